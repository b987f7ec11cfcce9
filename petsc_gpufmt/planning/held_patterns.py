"""Patterns that are on a backend already: requests name them by numbers, so none is sent again.

One that an answer holds is not checked again either: its counts are known.

Arrays are known as long as something has them: an answer that holds the pattern, or a plan that reads it. A store of
pJDS has the row pointer of its pattern, a sparse product both arrays of its operands. Nothing is kept for a plan that
may come.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from petsc_gpufmt.backends.device_array import DeviceArray
from petsc_gpufmt.backends.device_memory import Allocation
from petsc_gpufmt.patterns.csr import CsrPattern

FEW_KNOWN = 64  # numbers, up to which those of patterns that are gone are not looked for

_numbers = itertools.count(1)


class HeldPattern:
    """A pattern that is known by a number as long as the answer lives that keeps this object, or its arrays.

    Attributes
    ----------
    pattern : CsrPattern
    number : of no other pattern of the process; positive, as those that the library gives are negative
    """

    def __init__(self, pattern: CsrPattern):
        self.pattern, self.number = pattern, next(_numbers)
        know(self.number, pattern, self)


class Known:
    """A pattern without its arrays, and where these are.

    Attributes
    ----------
    pattern : CsrPattern
    holder : returns the HeldPattern that has the arrays, None if it is gone
    rowptr, colidx : return the arrays, None for those that are gone
    """

    __slots__ = ("colidx", "holder", "pattern", "rowptr")

    def __init__(self, pattern: CsrPattern, holder: HeldPattern | None):
        self.pattern = replace(pattern, rowptr=None, colidx=None)
        self.holder = weakref.ref(holder) if holder else _nothing
        self.rowptr, self.colidx = _reference(pattern.rowptr), _reference(pattern.colidx)

    def arrays(self) -> tuple[Any, Any]:
        holder = self.holder()
        return (holder.pattern.rowptr, holder.pattern.colidx) if holder else (self.rowptr(), self.colidx())


class Numbers(dict[int, Known]):
    """What is known by each number; those of patterns that are gone are looked for when there are twice as many.

    So a program with thousands of matrices does not go through all of them for each. Another thread may plan meanwhile.
    """

    left = 0  # when they were looked for last

    def forget_gone(self) -> None:
        if len(self) < max(FEW_KNOWN, 2 * self.left):
            return
        for gone in [n for n, known in list(self.items()) if all(array is None for array in known.arrays())]:
            self.pop(gone, None)
        self.left = len(self)


_known = Numbers()


def know(number: int, pattern: CsrPattern, holder: HeldPattern | None = None) -> None:
    """Give a pattern a number that is not 0; an array that is None is not known by it."""
    if not number:
        return
    _known.forget_gone()
    _known[number] = Known(pattern, holder)


def held_arrays(number: int) -> tuple[Any, Any]:
    """The row pointer and the columns of the pattern of that number; None for what is gone."""
    known = _known.get(number)
    return known.arrays() if known else (None, None)


def held_pattern(number: int, row_block: int = 1, col_block: int = 1) -> CsrPattern | None:
    """The pattern of that number with these block sizes; None if one of its arrays is gone."""
    rowptr, colidx = held_arrays(number)
    if rowptr is None or colidx is None:
        return None
    pattern = _known[number].pattern
    return replace(pattern, rowptr=rowptr, colidx=colidx, row_block=row_block, col_block=col_block)


def _nothing() -> None:
    return None


def _reference(array: Any) -> Callable[[], Any]:
    """What returns an array, or None once nobody has it any more."""
    if isinstance(array, np.ndarray):
        return weakref.ref(array)
    if not isinstance(array, DeviceArray) or not isinstance(array.memory, Allocation):
        return _nothing  # of memory that others own, who alone know how long it is there
    memory, place = weakref.ref(array.memory), (array.ptr, array.size, array.dtype)

    def array_there() -> DeviceArray | None:
        owner = memory()
        return None if owner is None else DeviceArray(owner, *place)

    return array_there
