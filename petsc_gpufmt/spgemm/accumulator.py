"""What finds and sums the rows of C = A B, in two phases: the pattern (symbolic) and the values (numeric)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from petsc_gpufmt.backend import Backend
    from petsc_gpufmt.csr import CsrPattern
    from petsc_gpufmt.plan import Launch


@dataclass(frozen=True)
class Operands:
    """The factors of one product C = A B on one rank; their arrays live on the backend.

    Attributes
    ----------
    A, B : rows of B are sorted by column and repeat none; values are in the order of the patterns (no `source`)
    terms : (A.nrows,) int64; products a_ik b_kj that each row of C sums: the lengths of B's rows, over the row of A
    longest_row, most_terms : the largest row length of A, and the largest of `terms`
    total_terms : sum of `terms`
    """

    A: CsrPattern
    B: CsrPattern
    terms: Any
    longest_row: int
    most_terms: int
    total_terms: int


class Accumulator(ABC):
    """Computes the rows `rows` of C on one backend.

    The order of additions within an entry of C is fixed: the same bits in every run. Entries that cancel to 0 stay.
    """

    name: ClassVar[str]

    @abstractmethod
    def __init__(self, operands: Operands, rows: Any, backend: Backend, options: dict[str, int | str]):
        """Prepare for `rows`: (n,) index array in any order, or None for all rows of C."""

    @abstractmethod
    def lengths(self, out: Any) -> None:
        """Set out[rows] to the number of distinct columns of each row; `out` is (nrows of C,) int64. Runs now."""

    @abstractmethod
    def columns(self, rowptr: Any, colidx: Any) -> None:
        """Fill the rows of `colidx`, sorted; `rowptr` is C's, both of the index dtype. Runs now, after `lengths`."""

    @abstractmethod
    def values(self, rowptr: Any, colidx: Any, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        """Launches that fill the rows of C's values; each argument `*_values` is an array or a Slot.

        They neither allocate nor wait, and may be replayed with other values. `rowptr` and `colidx` are C's; another
        accumulator may have made them.
        """

    @abstractmethod
    def bytes_needed(self) -> int:
        """Bytes that all of this takes at most beside C, predicted before anything is taken."""

    @property
    @abstractmethod
    def bytes_held(self) -> int:
        """Bytes kept for the launches of `values`."""

    @abstractmethod
    def summary(self) -> str:
        """How the rows are computed, in a few words for ``-info``."""
