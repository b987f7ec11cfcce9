"""What a kind of request is, and what answers have in common."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch, address
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import abi
from petsc_gpufmt.planning.held_patterns import HeldPattern

Leases = list[tuple[Any, list[Any]]]  # a structure with a token, and what the library may use as long as it holds that


class Kind(NamedTuple):
    """Structures of one kind of request, and what is done with them."""

    request: type[ctypes.Structure]
    answer: type[ctypes.Structure]
    what: Callable[[Any], str]  # is asked for, in words
    fill: Callable[[Any, Any, Backend], Leases]  # the answer to a request
    simplify: Callable[[Any], None] = lambda request: None  # a request for which memory did not suffice


def sizes_of(operand: Any, what: str) -> str:
    """Rows, columns and nonzeros of abi.OperandStruct, or of what has these fields, in words."""
    return f"a {operand.nrows} x {operand.ncols} {what} with {operand.nnz} nonzeros"


def fill_matrix(answer: Any, pattern: CsrPattern, numeric: list[Launch]) -> list[Any]:
    """What abi.PLANNED_MATRIX has besides the outcome; returns what must live as long as the answer is used."""
    answer.nrows, answer.ncols, answer.nnz = pattern.nrows, pattern.ncols, pattern.nnz
    answer.rowptr, answer.colidx = address(pattern.rowptr), address(pattern.colidx)
    held = HeldPattern(pattern)
    answer.held = held.number
    return [held, *abi.export_plan(numeric, answer.numeric)]
