"""One sparse product C = A B: what finds its pattern, the pattern, and the launches that fill its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.option_value import AUTO, option_value
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm.accumulator import Accumulator
from petsc_gpufmt.spgemm.census import (
    Operands,
    ResultRows,
    check_sorted,
    count_terms,
    count_words,
    require_memory,
    row_pointer,
    uncounted,
)
from petsc_gpufmt.spgemm.hash import HashAccumulator, needs_no_census
from petsc_gpufmt.spgemm.rmerge import MergeAccumulator, network_sizes
from petsc_gpufmt.spgemm.splitting import WIDTHS

ACCUMULATORS: dict[str, type[Accumulator]] = {"merge": MergeAccumulator, "hash": HashAccumulator}
DEFAULT_OPTIONS: dict[str, int | str] = {"accumulator": AUTO, "merge_width": 0, "merge_buffer": 0}
OPTION_NAMES = {
    "accumulator": "-mat_rmerge_accumulator",
    "merge_width": "-mat_rmerge_width",
    "merge_buffer": "-mat_rmerge_buffer",
}

# Entries of the longest row of A and of B up to which rows are merged on a device
LONGEST_MERGED = 8


@dataclass(frozen=True)
class ProductStats:
    """Sizes of a product.

    Attributes
    ----------
    nnz : entries of C
    terms : products a_ik b_kj that are summed; a numeric phase takes 2 terms flops
    compression : terms / nnz; 1 for an empty C
    bytes_needed : that symbolic and numeric phase took at most, C included, as predicted
    bytes_held : kept beside C for the launches of `numeric`, once these have been made
    """

    nnz: int
    terms: int
    compression: float
    bytes_needed: int
    bytes_held: int


class SparseProduct:
    """The plan of C = A B after its symbolic phase.

    Attributes
    ----------
    pattern : CsrPattern of C, sorted by column; entries whose terms cancel stay
    rows : ResultRows, what is known of the lengths of C's rows
    phases : Phases, what found the pattern and what sums the values
    terms, bytes_needed : as in ProductStats
    """

    def __init__(self, pattern: CsrPattern, rows: ResultRows, phases: Phases, terms: int, bytes_needed: int):
        self.pattern, self.rows, self.phases = pattern, rows, phases
        self.terms, self.bytes_needed = terms, bytes_needed

    @classmethod
    def build(
        cls, A: CsrPattern, B: CsrPattern, backend: Backend, options: dict[str, int | str] | None = None
    ) -> SparseProduct:
        """The symbolic phase; `options` are changes of DEFAULT_OPTIONS.

        Raises OptionError, PatternError if A and B do not chain, UnsortedError if B's columns do not rise,
        IndexOverflowError if C has more entries than the index type counts, and OutOfMemoryError before memory is taken
        that the device does not have.
        """
        return cls.of(A, B, backend, checked_options(options or {}))

    @classmethod
    def of(
        cls,
        A: CsrPattern,
        B: CsrPattern,
        backend: Backend,
        options: dict[str, int | str],
        carried: Any = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> SparseProduct:
        """`build` with all options, which have been checked; `carried` as for `row_pointer`.

        `meanwhile` is as for `Backend.first`, of each wait.
        """
        operands = count(A, B, backend, options, meanwhile)
        check_sorted(operands)
        phases, known_before = make_accumulators(operands, backend, options), operands.counted
        needed = phases.bytes_needed()
        require_memory(needed, backend, "the symbolic phase")
        lengths = phases.symbolic.lengths() if phases.symbolic else None
        counted = operands.nbytes
        rows = row_pointer(lengths, operands, backend, carried, meanwhile)
        operands.terms = operands.lengths = lengths = None
        bytes_of_c = rows.nnz * (backend.index.itemsize + backend.scalar.itemsize)
        require_memory(bytes_of_c, backend, f"the {rows.nnz} entries of the result")
        (colidx,) = backend.empty((rows.nnz, backend.index))
        if not known_before:
            phases = phases if operands.total_terms else Phases(None, None)
        if phases.symbolic:
            phases.symbolic.columns(rows.rowptr, colidx)
        needed = max(needed, phases.bytes_needed())
        pattern = CsrPattern(A.nrows, B.ncols, rows.rowptr, colidx, None, A.row_block, B.col_block, rows.longest)
        needed += counted + (A.nrows + 1) * backend.index.itemsize + bytes_of_c
        return cls(pattern, rows, phases, operands.total_terms, needed)

    def numeric(self, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        """The numeric phase: launches that fill `c_values` (nnz of C,) from the values of A and B, in pattern order.

        Each argument is an array or a Slot. The launches wait for nothing and take no memory.
        """
        if not self.phases.numeric:
            return []
        return self.phases.numeric.values(self.rows, self.pattern.colidx, a_values, b_values, c_values)

    @property
    def accumulators(self) -> list[Accumulator]:
        """Those of both phases."""
        return self.phases.all

    @property
    def compression(self) -> float:
        """As in ProductStats."""
        return self.terms / self.pattern.nnz if self.pattern.nnz else 1.0

    @property
    def stats(self) -> ProductStats:
        return ProductStats(
            nnz=self.pattern.nnz,
            terms=self.terms,
            compression=self.compression,
            bytes_needed=self.bytes_needed,
            bytes_held=self.phases.numeric.bytes_held if self.phases.numeric else 0,
        )

    def summary(self) -> str:
        """How C is computed, in one line."""
        return f"{self.terms} terms to {self.pattern.nnz} entries ({self.compression:.3g} to 1): {how(self.phases)}"


def how(phases: Phases) -> str:
    """The accumulators of both phases in words."""
    if not phases.symbolic or not phases.numeric:
        return "no terms"
    columns, values = phases.symbolic.summary(), phases.numeric.summary()
    return values if phases.symbolic is phases.numeric else f"columns by {columns}; values by {values}"


def product_option(name: str, text: str) -> int | str:
    """The value of an option of a sparse product. OptionError for a name or a kind of value that there is not."""
    if name not in DEFAULT_OPTIONS:
        raise OptionError(f"{name} is not an option of a sparse product: there are {', '.join(DEFAULT_OPTIONS)}")
    return option_value(OPTION_NAMES[name], text, DEFAULT_OPTIONS[name])


def checked_options(options: dict[str, int | str]) -> dict[str, int | str]:
    """DEFAULT_OPTIONS changed by `options`. OptionError for a name or a value that there is not."""
    if not options:
        return DEFAULT_OPTIONS
    merged = {**DEFAULT_OPTIONS, **{name: product_option(name, str(value)) for name, value in options.items()}}
    accumulator, width, buffer = (merged[name] for name in ("accumulator", "merge_width", "merge_buffer"))
    if accumulator not in (AUTO, *ACCUMULATORS):
        choices = ", ".join((AUTO, *ACCUMULATORS))
        raise OptionError(f"{OPTION_NAMES['accumulator']} {accumulator}: choose one of {choices}")
    if width and width not in WIDTHS:
        choices = ", ".join(map(str, WIDTHS))
        raise OptionError(f"{OPTION_NAMES['merge_width']} {width}: choose one of {choices}, or 0 for automatic")
    if int(buffer) < 0:
        raise OptionError(f"{OPTION_NAMES['merge_buffer']} {buffer}: give a number of bytes, or 0 for automatic")
    return merged


def count(
    A: CsrPattern,
    B: CsrPattern,
    backend: Backend,
    options: dict[str, int | str],
    meanwhile: Callable[[], None] | None = None,
) -> Operands:
    """The operands of A B, counted for the accumulator that will find C's columns, unless that counts them itself."""
    chosen = options["accumulator"]
    if chosen == AUTO:
        chosen = "merge" if backend.name != "host" and may_be_short(A) and may_be_short(B) else "hash"
        if chosen == "merge" and A.longest is not None and B.longest is not None:
            if network_sizes(A.longest, B.longest, int(options["merge_width"])):
                return uncounted(A, B, backend)
    if chosen == "merge":
        return count_terms(A, B, backend, meanwhile)
    return count_words(A, B, backend, meanwhile, wait=not needs_no_census(A, B, backend))


def may_be_short(pattern: CsrPattern) -> bool:
    """Whether no row has more than LONGEST_MERGED entries; where that is not known, whether the mean row has not."""
    if pattern.longest is None:
        return pattern.nnz <= LONGEST_MERGED * pattern.nrows
    return pattern.longest <= LONGEST_MERGED


@dataclass(slots=True)
class Phases:
    """The accumulators of the symbolic and the numeric phase, None without terms."""

    symbolic: Accumulator | None
    numeric: Accumulator | None

    @property
    def all(self) -> list[Accumulator]:
        both = [self.symbolic] if self.numeric is self.symbolic else [self.symbolic, self.numeric]
        return [a for a in both if a is not None]

    def bytes_needed(self) -> int:
        """Of both, as an accumulator says it."""
        needed = self.symbolic.bytes_needed() if self.symbolic else 0
        return needed if self.numeric is self.symbolic or not self.numeric else needed + self.numeric.bytes_needed()


def make_accumulators(operands: Operands, backend: Backend, options: dict[str, int | str]) -> Phases:
    """Accumulators for both phases; one that is in both is made once."""
    if operands.counted and not operands.total_terms:
        return Phases(None, None)

    def make(name: str) -> Accumulator:
        return ACCUMULATORS[name](operands, backend, options)

    chosen = str(options["accumulator"])
    if chosen != AUTO:
        both = make(chosen)
        return Phases(both, both)
    symbolic = make(choose(operands, backend))
    return Phases(symbolic, symbolic if symbolic.name == "hash" else make("hash"))


def choose(operands: Operands, backend: Backend) -> str:
    """The accumulator that finds the columns of C; values are summed by hashing everywhere.

    On a device a network merges rows of B that are as short as the rows of A, without a table to be cleared, filled and
    sorted. A core has no use for a network: there merging compares columns one by one.
    """
    short = operands.longest_left <= LONGEST_MERGED and operands.longest_right <= LONGEST_MERGED
    return "merge" if backend.name != "host" and short else "hash"
