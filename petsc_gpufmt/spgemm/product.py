"""One sparse product C = A B: an accumulator for each row of C, the pattern of C, the launches that fill its values."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.errors import IndexOverflowError, OptionError, OutOfMemoryError, PatternError
from petsc_gpufmt.formats.csr_arrays import WARP, power_of_two
from petsc_gpufmt.plan import Launch
from petsc_gpufmt.spgemm.accumulator import Accumulator, Operands

AUTO = "auto"
ACCUMULATORS = {"merge": ("rmerge", "MergeAccumulator"), "hash": ("hash", "HashAccumulator")}
DEFAULT_OPTIONS: dict[str, int | str] = {"accumulator": AUTO, "merge_width": 0, "merge_buffer": 0}
OPTION_NAMES = {
    "accumulator": "-mat_rmerge_accumulator",
    "merge_width": "-mat_rmerge_width",
    "merge_buffer": "-mat_rmerge_buffer",
}

BLOCK_THREADS = 256
# Entries of the longest row of A up to which rows are merged on a device
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
    phases : Phases, what found the pattern and what sums the values
    """

    def __init__(self, pattern: CsrPattern, phases: Phases, terms: int, bytes_needed: int):
        self.pattern, self.phases = pattern, phases
        self._terms, self._bytes_needed = terms, bytes_needed

    @classmethod
    def build(
        cls, A: CsrPattern, B: CsrPattern, backend: Backend, options: dict[str, int | str] | None = None
    ) -> SparseProduct:
        """The symbolic phase; `options` are changes of DEFAULT_OPTIONS.

        Raises OptionError, PatternError if A and B do not chain, IndexOverflowError if C has more entries than the
        index type counts, and OutOfMemoryError before memory is taken that the device does not have.
        """
        options = checked_options(options or {})
        if A.ncols != B.nrows:
            raise PatternError(f"a {A.nrows} x {A.ncols} matrix cannot be multiplied by one of {B.nrows} x {B.ncols}")
        operands = count_terms(A, B, backend)
        phases = make_accumulators(operands, backend, options)
        needed = A.nrows * (16 + backend.index.itemsize) + sum(a.bytes_needed() for a in phases.all)
        require_memory(needed, backend, "the symbolic phase")

        lengths = backend.xp.zeros(A.nrows, dtype=np.int64)
        for accumulator in phases.symbolic:
            accumulator.lengths(lengths)
        rowptr, nnz = row_pointer(lengths, backend)
        del lengths
        bytes_of_c = nnz * (backend.index.itemsize + backend.scalar.itemsize)
        require_memory(bytes_of_c, backend, f"the {nnz} entries of the result")
        colidx = backend.xp.empty(nnz, dtype=backend.index)
        for accumulator in phases.symbolic:
            accumulator.columns(rowptr, colidx)
        pattern = CsrPattern(A.nrows, B.ncols, rowptr, colidx, row_block=A.row_block, col_block=B.col_block)
        return cls(pattern, phases, operands.total_terms, needed + bytes_of_c)

    def numeric(self, a_values: Any, b_values: Any, c_values: Any) -> list[Launch]:
        """The numeric phase: launches that fill `c_values` (nnz of C,) from the values of A and B, in pattern order.

        Each argument is an array or a Slot. The launches wait for nothing and take no memory.
        """
        C = self.pattern
        return [
            launch
            for accumulator in self.phases.numeric
            for launch in accumulator.values(C.rowptr, C.colidx, a_values, b_values, c_values)
        ]

    @property
    def accumulators(self) -> list[Accumulator]:
        """Those of both phases."""
        return self.phases.all

    @property
    def stats(self) -> ProductStats:
        nnz = self.pattern.nnz
        return ProductStats(
            nnz=nnz,
            terms=self._terms,
            compression=self._terms / nnz if nnz else 1.0,
            bytes_needed=self._bytes_needed,
            bytes_held=sum(a.bytes_held for a in self.phases.numeric),
        )

    def summary(self) -> str:
        """How C is computed, in one line."""
        stats = self.stats
        return f"{stats.terms} terms to {stats.nnz} entries ({stats.compression:.3g} to 1): {how(self.phases)}"


def how(phases: Phases) -> str:
    """The accumulators of both phases in words."""
    if not phases.symbolic:
        return "no terms"
    columns, values = ("; ".join(a.summary() for a in part) for part in (phases.symbolic, phases.numeric))
    return values if phases.symbolic == phases.numeric else f"columns by {columns}; values by {values}"


def default_option(name: str) -> int | str:
    """The default of an option of a sparse product. OptionError if there is none of this name."""
    if name not in DEFAULT_OPTIONS:
        raise OptionError(f"{name} is not an option of a sparse product: there are {', '.join(DEFAULT_OPTIONS)}")
    return DEFAULT_OPTIONS[name]


def checked_options(options: dict[str, int | str]) -> dict[str, int | str]:
    """DEFAULT_OPTIONS changed by `options`. OptionError for a name or an accumulator that there is not."""
    for name in options:
        if isinstance(default_option(name), int) and not str(options[name]).lstrip("-").isdigit():
            raise OptionError(f"{OPTION_NAMES[name]} {options[name]}: give a whole number")
    merged = {**DEFAULT_OPTIONS, **options}
    if merged["accumulator"] not in (AUTO, *ACCUMULATORS):
        raise OptionError(
            f"{OPTION_NAMES['accumulator']} {merged['accumulator']}: choose one of {', '.join((AUTO, *ACCUMULATORS))}"
        )
    return merged


def count_terms(A: CsrPattern, B: CsrPattern, backend: Backend) -> Operands:
    """The operands of A B with the number of terms of each row of C."""
    xp, index = backend.xp, backend.index
    terms = xp.empty(A.nrows, dtype=np.int64)
    if not A.nrows:
        return Operands(A, B, terms, 0, 0, 0)
    census = xp.zeros(3, dtype=np.int64)
    lanes = power_of_two(A.nnz / A.nrows, 1, WARP)
    blocks = -(-A.nrows * lanes // BLOCK_THREADS)
    if backend.resident_threads:
        blocks = min(blocks, max(1, backend.resident_threads // BLOCK_THREADS))
    function = backend.function("spgemm", "spgemm_count_terms", (BLOCK_THREADS, lanes))
    arguments = (index.type(A.nrows), A.rowptr, A.colidx, B.rowptr, terms, census)
    backend.run([Launch(function, (blocks, 1, 1), (BLOCK_THREADS, 1, 1), arguments)])
    total, most, longest = backend.to_host(census).tolist()  # waits for the device
    return Operands(A, B, terms, longest, most, total)


@dataclass(frozen=True)
class Phases:
    """The accumulators of each phase; together those of a phase compute every row of C once."""

    symbolic: list[Accumulator]
    numeric: list[Accumulator]

    @property
    def all(self) -> list[Accumulator]:
        return self.symbolic + [a for a in self.numeric if a not in self.symbolic]


def make_accumulators(operands: Operands, backend: Backend, options: dict[str, int | str]) -> Phases:
    """Accumulators for all rows of C, in both phases; one that is in both is made once."""
    if not operands.total_terms:
        return Phases([], [])

    def make(name: str) -> Accumulator:
        return accumulator_class(name)(operands, None, backend, options)

    chosen = str(options["accumulator"])
    if chosen != AUTO:
        made = [make(chosen)]
        return Phases(made, made)
    symbolic = make(choose(operands, backend))
    return Phases([symbolic], [symbolic if symbolic.name == "hash" else make("hash")])


def choose(operands: Operands, backend: Backend) -> str:
    """The accumulator that finds the columns of C; values are summed by hashing everywhere.

    On a device merging reads each row of B once and in order, and sorts nothing; but it takes a step of a whole group
    of threads for each entry of C, and rows of different lengths need a launch each: that is less than hashing where
    all rows of A are short. A core has no group of threads, there merging compares columns one by one.
    """
    return "merge" if backend.name != "host" and operands.longest_row <= LONGEST_MERGED else "hash"


def accumulator_class(name: str) -> type[Accumulator]:
    """The class of an accumulator in ACCUMULATORS."""
    module, class_name = ACCUMULATORS[name]
    return getattr(importlib.import_module(f"petsc_gpufmt.spgemm.{module}"), class_name)


def row_pointer(lengths: Any, backend: Backend) -> tuple[Any, int]:
    """(rowptr, nnz) of rows of `lengths`. IndexOverflowError if nnz does not fit the index type."""
    xp, largest = backend.xp, np.iinfo(backend.index).max
    rowptr = xp.zeros(lengths.size + 1, dtype=backend.index)
    if not lengths.size:
        return rowptr, 0
    ends = xp.cumsum(lengths)
    nnz = int(ends[-1])  # waits for the device
    if nnz > largest:
        raise IndexOverflowError(
            f"the result has {nnz} entries, a PetscInt of {8 * backend.index.itemsize} bits counts {largest}: use more "
            "ranks, or a PETSc configured with --with-64-bit-indices"
        )
    rowptr[1:] = ends
    return rowptr, nnz


def require_memory(needed: int, backend: Backend, what: str) -> None:
    """Raise OutOfMemoryError if `needed` bytes are more than are free."""
    free = backend.free_bytes()
    if free is not None and needed > free:
        raise OutOfMemoryError(
            f"{what} needs {needed / 1e9:.3g} GB on the device, {free / 1e9:.3g} GB are free: use more ranks or GPUs"
        )
