"""Defects that are put into the matrices of our types, to see that they are found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from petsc4py import PETSc

from reliability.twin.matrices import COMM, Sibling


def _after(operation: str, spoil: Callable[[Sibling], None]) -> Callable[[Sibling, str], None]:
    def defect(s: Sibling, name: str) -> None:
        if name == operation:
            spoil(s)

    return defect


def _a_little_off(s: Sibling) -> None:
    """Far less than a solver would show."""
    s.A.scale(1.0 + 2.0**-30)


def _lost_pattern(s: Sibling) -> None:
    s.A.setOption(s.A.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    first, last = s.A.getOwnershipRange()
    for column in range(s.A.getSize()[1] if first < last else 0):
        s.A.setValue(first, column, 0.0, addv=True)
    s.A.assemble()


def _end(s: Sibling) -> None:
    if COMM.rank == COMM.size - 1:
        os.abort()


def _wait(s: Sibling) -> None:
    time.sleep(10**6)


def _fail_at_the_end(s: Sibling) -> None:
    """As objects do whose exchange of entries has begun and not ended."""
    cleanup = PETSc.garbage_cleanup

    def fail() -> None:
        PETSc.garbage_cleanup = cleanup
        cleanup()
        raise PETSc.Error(73)

    PETSc.garbage_cleanup = fail


DEFECTS = {
    "a little off": _after("shift", _a_little_off),
    "another pattern": _after("set_diagonal", _lost_pattern),
    "ends": _after("shift", _end),
    "cannot be destroyed": _after("shift", _fail_at_the_end),
    "waits": _after("shift", _wait),
}
