"""Plans: short lists of launches that the C library replays (see native/gpufmt_plan.h)."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from petsc_gpufmt.backends.device_array import DeviceArray

WARP = 32  # threads that run in lockstep on a device


class Slot(enum.IntEnum):
    """An argument that is only known at replay.

    X, Y, Z are the vectors of z = y + A x, VALUES the CSR values of A; A_VALUES, B_VALUES and C_VALUES those of the
    operands of a sparse product, and RESULT those of the matrix that it makes. ALPHA is a scalar, passed by value.
    COLIDX are the columns of the pattern; ROWS and COLUMNS have a byte for each, not 0 if it is meant. MESSAGES and
    ARRIVALS are what is sent and what is waited for in a halo exchange. P, R, W and D are vectors of Krylov solvers:
    the direction, the residual, the product of the direction, and the diagonal of a preconditioner. U and B are the
    other vectors of a smoothing step, and BETA and GAMMA scalars like ALPHA: see Fused. ALPHA_IMAG is the second half
    of ALPHA where a scalar has 16 bytes.
    """

    X = 0
    Y = 1
    Z = 2
    VALUES = 3
    A_VALUES = 4
    B_VALUES = 5
    C_VALUES = 6
    RESULT = 7
    ALPHA = 8
    COLIDX = 9
    ROWS = 10
    COLUMNS = 11
    MESSAGES = 12
    ARRIVALS = 13
    P = 14
    R = 15
    W = 16
    D = 17
    U = 18
    B = 19
    BETA = 20
    GAMMA = 21
    ALPHA_IMAG = 22


class Operation(enum.IntEnum):
    """What a format must offer a plan for.

    z = A x, z = y + A x, values into the format, z = diagonal of A, z = z + A x.
    """

    MULT = 0
    MULTADD = 1
    REFRESH = 2
    DIAGONAL = 3
    ADD = 4


class Fused(enum.IntEnum):
    """Products with what solvers want of each row, for which a format may offer a plan of one launch.

    MULT_DOT is z = A x and RESULT[0] = x . A x, of a square matrix; ADD_DOT, z = z + A x and RESULT[0] = y . A x.
    SMOOTH is z = ALPHA u + BETA x + GAMMA d (b - A x), row by row, of a square matrix, where u may be z, and what has
    the factor 0 is not read; ADD_SMOOTH, z = z - GAMMA d A x. Null slots: d is 1, b is 0. What is added to z need not
    look at rows without entries.
    """

    MULT_DOT = 0
    ADD_DOT = 1
    SMOOTH = 2
    ADD_SMOOTH = 3


class Product(enum.IntEnum):
    """A product of sparse matrices; the operands come in PETSc's order, the second of PTAP is P, of RART R.

    ATBC is none of PETSc's: parallel PtAP has one.
    """

    AB = 0
    ATB = 1
    ABT = 2
    PTAP = 3
    RART = 4
    ABC = 5
    ATBC = 6

    @property
    def formula(self) -> str:
        """As PETSc would write it: "PtAP"."""
        return PRODUCT_FORMULAS[self]

    @property
    def letters(self) -> str:
        """The operands by their letters in the formula, in their order."""
        return PRODUCT_LETTERS[self]


class ScaleAndAdd(enum.IntEnum):
    """What changes the values of a matrix in place.

    By a scalar, by a scalar for each row or column, or by adding a multiple of a matrix of the same pattern, or of one
    whose entries are some of those of the first; the diagonal alone, set or added to; rows, or rows and columns, made
    zeros, in a matrix with the diagonal or without. And what changes nothing: the sums that norms are made of, and the
    values in single precision.
    """

    SCALE = 0
    SCALE_ROWS = 1
    SCALE_COLUMNS = 2
    ADD = 3
    ADD_SUBSET = 4
    SET_DIAGONAL = 5
    ZERO_ROWS = 6
    ZERO_ROWS_OFFDIAG = 7
    SUM_SQUARES = 8
    SUM_ROWS = 9
    SUM_COLUMNS = 10
    NARROW = 11


class AggregationStep(enum.IntEnum):
    """What a rank does between exchanges, when ranks find aggregates together."""

    LOOK = 0
    DECIDE = 1
    NUMBER = 2
    JOIN_NEXT = 3
    JOIN_BEYOND = 4


class PeerStep(enum.IntEnum):
    """What a rank does in an exchange through memory of other ranks.

    Entries of a vector are sent; what others send is waited for; sums that have arrived are added to their entries. Or
    a few numbers are summed over all ranks.
    """

    SEND = 0
    WAIT = 1
    ADD = 2
    SUM = 3


PRODUCT_FORMULAS = ("AB", "AtB", "ABt", "PtAP", "RARt", "ABC", "AtBC")
PRODUCT_LETTERS = ("AB", "AB", "AB", "AP", "AR", "ABC", "ABC")


class Struct(tuple[Any, ...]):
    """Arguments that kernels take as one struct: its members in their order, those of a struct in it in its place.

    Each is a word: kernels declare members of fewer bytes ``alignas(8)``.
    """

    __slots__ = ()

    def __new__(cls, *members: Any) -> Struct:
        return super().__new__(cls, members)


@dataclass(slots=True)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    function : int
        CUfunction handle, or address of a host function.
    grid, block : tuple of 3 int
        Blocks and threads a block; host functions read their slice height and the like from `block`.
    arguments : tuple
        Arrays (passed as pointers), None (a null pointer), NumPy scalars of at most 8 bytes, int for parameters of
        any integer type (it must fit), Slots, or Structs of these.
    shared_bytes : int
    """

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Any, ...]
    shared_bytes: int = 0

    def flattened(self) -> tuple[Sequence[Any], Sequence[int]]:
        """What each word passes, the members of a Struct in its place; and the word that each argument begins with."""
        if Struct not in map(type, self.arguments):  # as in most launches
            return self.arguments, range(len(self.arguments))
        members: list[Any] = []
        first_words: list[int] = []
        for a in self.arguments:
            first_words.append(len(members))
            if type(a) is Struct:
                members += a
            else:
                members.append(a)
        return members, tuple(first_words)


def ceil_div(numerator: Any, denominator: Any) -> Any:
    """The quotient of whole numbers, or of arrays of them, rounded up."""
    return -(-numerator // denominator)


def power_of_two(least: float, low: int, high: int) -> int:
    """The smallest power of two that is not below `least`, between the powers `low` and `high`."""
    return 1 << (math.ceil(max(low, min(least, high))) - 1).bit_length()


def launch_1d(function: int, n: int, threads: int, arguments: tuple[Any, ...]) -> Launch:
    """A launch of at least `n` threads in blocks of `threads`."""
    return Launch(function, (-(-n // threads), 1, 1), (threads, 1, 1), arguments)


def address(array: Any) -> int:
    """Address of the first entry of an array, a DeviceArray or one of NumPy or CuPy; 0 for an empty one."""
    return WORD_OF[type(array)](array)


def argument_word(argument: Any) -> int:
    """The 8-byte word that passes one argument (little endian, as the kernel reads it); 0 for slots and None."""
    return WORD_OF[type(argument)](argument)


def _scalar_word(argument: Any) -> int:
    return int.from_bytes(argument.tobytes().ljust(8, b"\0"), "little")


def _host_address(array: Any) -> int:
    return array.ctypes.data if array.size else 0


def _cupy_address(array: Any) -> int:
    return array.data.ptr if array.size else 0


class WordOfType(dict[type, Callable[[Any], int]]):
    """How arguments of a type are passed; grows with the types that come, since a look-up costs least."""

    def __missing__(self, kind: type) -> Callable[[Any], int]:
        if issubclass(kind, np.generic):
            self[kind] = _scalar_word
        else:
            self[kind] = _host_address if issubclass(kind, np.ndarray) else _cupy_address
        return self[kind]


WORD_OF = WordOfType(
    {
        type(None): lambda _: 0,
        Slot: lambda _: 0,
        DeviceArray: attrgetter("ptr"),
        int: (2**64 - 1).__and__,
        np.int32: lambda number: int(number) & 0xFFFFFFFF,
        np.int64: lambda number: int(number) & 0xFFFFFFFFFFFFFFFF,
    }
)
