"""JDS with CSR-like multiplication (Cevahir, Nukada, Matsuoka 2009, sections 2.1 and 3.1).

Rows are sorted by decreasing length and shifted to the left; column j of the result, a jagged diagonal, holds entry j
of all rows that have one. Every jagged diagonal is padded to a multiple of ``alignment``, so that the reads of a warp
are coalesced. A thread multiplies one row and writes its result once, to the row's own place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch, Slot, ceil_div, launch_1d
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common.ell import BLOCK_THREADS, EllFormat, row_lengths
from petsc_gpufmt.formats.common.sliced_rows import sort_rows
from petsc_gpufmt.patterns.csr import CsrPattern, gather_values

PAPER_ALIGNMENT = 16
MAX_ALIGNMENT = 1024


class Jds(EllFormat):
    """One matrix in JDS.

    Attributes
    ----------
    jd_ptr : (longest + 1,) int64; jagged diagonal j occupies entries jd_ptr[j] to jd_ptr[j + 1]
    nz_count : (nrows,) index; entries of each row in the sorted order, decreasing
    perm : (nrows,) index or None; perm[sorted position] = row, None if rows keep their order
    col, val : (jd_ptr[-1],) entry j of the row at sorted position p at jd_ptr[j] + p; see EllFormat
    """

    name = "jds"
    fill_stem = "jds"
    default_options = {"alignment": 0, "block_threads": 0}

    def __init__(self, csr: CsrPattern, backend: Backend, options: dict[str, int], lengths: Any, longest: int):
        super().__init__(csr, backend, options, lengths, longest)
        self.alignment = options["alignment"] or PAPER_ALIGNMENT
        if not 1 <= self.alignment <= MAX_ALIGNMENT:
            raise OptionError(
                f"-mat_jds_alignment {self.alignment}: choose 1 to {MAX_ALIGNMENT} entries, or 0 for {PAPER_ALIGNMENT}"
            )
        perm = sort_rows(csr, csr.nrows, backend)
        self.perm = None if perm is None else backend.xp.asarray(perm)
        self.nz_count = lengths if self.perm is None else lengths[self.perm]
        self.jd_ptr = jagged_diagonals(lengths, longest, self.alignment, backend.xp)
        self.store(int(self.jd_ptr[-1]), csr)

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, int]) -> Jds:
        """Sort and pad. OptionError for bad options, OutOfMemoryError if padding takes too much memory."""
        return cls(csr, backend, cls.with_measured(options, csr, backend), *row_lengths(csr, backend))

    def row_arguments(self) -> tuple[Any, ...]:
        return self.jd_ptr, self.nz_count, self.perm

    def place_arguments(self) -> tuple[Any, ...]:
        return self.backend.index.type(self.alignment), self.jd_ptr, self.nz_count, self.perm

    def positions(self) -> int:
        return ceil_div(self.nrows, self.alignment) * self.alignment

    def rows_of_positions(self) -> np.ndarray:
        return np.arange(self.nrows) if self.perm is None else self.backend.to_host(self.perm)

    def row_entries(self, position: int) -> np.ndarray:
        count = int(self.backend.to_host(self.nz_count[position]))
        return self.backend.to_host(self.jd_ptr[:count]) + position

    def mult_by_diagonals(self) -> list[Launch]:
        """z = A x by the basic multiplication of JDS, which section 4.1 compares with: a thread to each entry.

        A launch for each jagged diagonal adds to sums in the sorted order; the last one brings these to their rows.
        """
        if not self.nrows:
            return []
        backend, index = self.backend, self.backend.index
        bounds = backend.to_host(self.jd_ptr).tolist() if self.longest else [0, 0]
        xp, (sums,), places = backend.xp, backend.empty((self.nrows, backend.scalar)), None
        if self.perm is not None:
            places = xp.empty(self.nrows, dtype=index)
            places[self.perm] = xp.arange(self.nrows, dtype=index)
        function = backend.function("formats/jds", "jds_add_diagonal", (self.block_threads,))
        launches = []
        for number, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
            count = min(self.nrows, end - begin)
            where = (index.type(self.nrows), index.type(count), np.int64(begin), np.int64(number > 0))
            threads = count if number else self.nrows
            arguments = (*where, self.col, self.val, Slot.X, sums)
            launches.append(launch_1d(function, threads, self.block_threads, arguments))
        return [*launches, gather_values(backend, self.nrows, places, sums, Slot.Z)]

    def summary(self) -> str:
        return f"{self.longest} jagged diagonals, alignment {self.alignment}, {self.block_threads} threads a block"

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        return [{"alignment": a, "block_threads": threads} for a in (16, 32) for threads in BLOCK_THREADS]


def jagged_diagonals(lengths: Any, longest: int, alignment: int, xp: Any) -> Any:
    """Where each jagged diagonal begins when padded to a multiple of `alignment`: (longest + 1,) int64."""
    jd_ptr = xp.zeros(longest + 1, dtype=xp.int64)
    if longest:
        rows_of_length = xp.bincount(lengths, minlength=longest + 1)
        rows_longer = int(lengths.size) - xp.cumsum(rows_of_length)[:longest]
        jd_ptr[1:] = xp.cumsum(ceil_div(rows_longer, alignment) * alignment)
    return jd_ptr
