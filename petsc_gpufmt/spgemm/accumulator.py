"""What finds and sums the rows of C = A B, in two phases: the pattern (symbolic) and the values (numeric)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from petsc_gpufmt.backends.backend import Backend
    from petsc_gpufmt.backends.plan import Launch
    from petsc_gpufmt.spgemm.census import Operands, ResultRows


class Accumulator(ABC):
    """Computes the rows of C on one backend.

    The order of additions within an entry of C is fixed: the same bits in every run. Entries that cancel to 0 stay.
    """

    name: ClassVar[str]

    @abstractmethod
    def __init__(self, operands: Operands, backend: Backend, options: dict[str, int | str]):
        """`operands` have terms, and their B has rows that rise, as far as they are counted."""

    @abstractmethod
    def lengths(self) -> Any:
        """(nrows of C,) int64, the number of distinct columns of each row. Runs now; counts what is not counted yet."""

    @abstractmethod
    def columns(self, rowptr: Any, colidx: Any) -> None:
        """Fill `colidx`, rows sorted; `rowptr` is C's, both of the index dtype. Runs now, after `lengths`."""

    @abstractmethod
    def values(self, C: ResultRows, colidx: Any, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        """Launches that fill C's values; each argument `*_values` is an array or a Slot.

        They neither allocate nor wait, and may be replayed with other values. Another accumulator may have found the
        columns.
        """

    @abstractmethod
    def bytes_needed(self) -> int:
        """Bytes that all of this takes at most beside C and what is counted, predicted before anything is taken."""

    @property
    @abstractmethod
    def bytes_held(self) -> int:
        """Bytes kept for the launches of `values`."""

    @abstractmethod
    def summary(self) -> str:
        """How the rows are computed, in a few words for ``-info``."""
