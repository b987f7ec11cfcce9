"""Patterns that answers hold on a backend: later requests name them by numbers, so none is sent or checked again."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import replace

from petsc_gpufmt.patterns.csr import CsrPattern

_numbers = itertools.count(1)


class HeldPattern:
    """A pattern that is known by a number as long as the answer lives that keeps this object.

    Attributes
    ----------
    pattern : CsrPattern
    number : of no other pattern of the process; never 0
    """

    def __init__(self, pattern: CsrPattern):
        self.pattern, self.number = pattern, next(_numbers)
        _held[self.number] = self


_held: weakref.WeakValueDictionary[int, HeldPattern] = weakref.WeakValueDictionary()


def held_pattern(number: int, row_block: int = 1, col_block: int = 1) -> CsrPattern | None:
    """The pattern of that number with these block sizes; None if nothing holds it any more."""
    held = _held.get(number)
    return replace(held.pattern, row_block=row_block, col_block=col_block) if held else None
