"""Plans: short lists of launches that the C library replays (see native/gpufmt_plan.h)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np


class Slot(enum.IntEnum):
    """An argument that is only known at replay: the vectors of z = y + A x, and the CSR values."""

    X = 0
    Y = 1
    Z = 2
    VALUES = 3


class Operation(enum.IntEnum):
    """What a format must offer a plan for: z = A x, z = y + A x, values into the format, z = diagonal of A."""

    MULT = 0
    MULTADD = 1
    REFRESH = 2
    DIAGONAL = 3


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    function : int
        CUfunction handle, or address of a host function.
    grid, block : tuple of 3 int
        Blocks and threads a block; host functions read their slice height and the like from `block`.
    arguments : tuple
        Arrays (passed as pointers), None (a null pointer), NumPy scalars of at most 8 bytes, or Slots.
    shared_bytes : int
    """

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Any, ...]
    shared_bytes: int = 0


def address(array: Any) -> int:
    """Address of the first entry of a NumPy or CuPy array; 0 for an empty one."""
    if not array.size:
        return 0
    return array.data.ptr if hasattr(array.data, "ptr") else array.ctypes.data


def argument_word(argument: Any) -> int:
    """The 8-byte word that passes one argument (little endian, as the kernel reads it); 0 for slots and None."""
    if argument is None or isinstance(argument, Slot):
        return 0
    if isinstance(argument, np.generic):
        return int.from_bytes(argument.tobytes().ljust(8, b"\0"), "little")
    return address(argument)
