"""What the choice of a format needs to know about a pattern: the counts of its rows, and a sample of a large one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.choice.sample import LEAST_BLOCK_SEARCH_ENTRIES, Sample, find_blocks
from petsc_gpufmt.formats.common.row_patterns import collect, table_limits
from petsc_gpufmt.formats.pjds import FEW_ENTRIES
from petsc_gpufmt.patterns.csr import SLICE_HEIGHT, CsrPattern

# Rows that EVC-HYB stores apart are longer.
LONG_ROW = 128


@dataclass(frozen=True)
class Profile:
    """Sizes and regularity of a pattern.

    Attributes
    ----------
    nrows, ncols, nnz : as in CSR
    longest, empty_rows : entries of the longest row, and how many rows have none
    sliced_entries : entries with padding in slices of 32 rows, in the order of the matrix
    sorted_entries : the most that they may be if all rows are sorted by length
    long_rows : rows of more than 128 entries
    lengths : rows of 0, 1, 2, 3-4, 5-8, ... entries
    block_shape, block_fill : rows and columns of dense blocks, 1 x 1 if none; share of their entries that exist
    npatterns : different rows, as columns relative to the row; 0 if there are too many for a table
    short_slices : share of slices (by entries) whose columns fit 16 bits, from a sample
    short_rows : whether this holds for all rows of the sample
    sectors : pieces of 32 bytes of x that about a hundred neighbouring rows read, for each of their entries
    sampled : whether blocks, short columns and sectors were looked for

    Where entries are few, the counts of the rows decide: row patterns are not looked for, nor blocks that the matrix
    does not tell. Where there are row patterns, nothing saves more, and the others are not looked for.
    """

    nrows: int
    ncols: int
    nnz: int
    longest: int = 0
    empty_rows: int = 0
    sliced_entries: int = 0
    sorted_entries: int = 0
    long_rows: int = 0
    lengths: tuple[int, ...] = ()
    block_shape: tuple[int, int] = (1, 1)
    block_fill: float = 1.0
    npatterns: int = 0
    short_slices: float = 1.0
    short_rows: bool = True
    sectors: float = 0.0
    sampled: bool = False

    @property
    def mean(self) -> float:
        """Mean row length."""
        return self.nnz / max(1, self.nrows)

    @property
    def spread(self) -> float:
        """The longest row as a multiple of the mean."""
        return self.longest / self.mean if self.nnz else 1.0

    @classmethod
    def of(cls, csr: CsrPattern, backend: Backend) -> Profile:
        """The profile of a pattern on `backend`. Waits for the device if its rows are not counted, or it is large."""
        if not csr.nnz:
            return cls(csr.nrows, csr.ncols, 0, empty_rows=csr.nrows)
        csr, counts = csr.counted(backend)
        longest, sliced, lengths = counts.longest, counts.sliced_entries, counts.lengths
        facts: dict[str, Any] = {}
        looked_at = csr.nnz >= least_looked_at(backend)
        if looked_at:
            facts["npatterns"] = count_patterns(csr, longest, backend)
        if not facts.get("npatterns") and (looked_at or csr.row_block * csr.col_block > 1):
            sample = Sample.of(csr, backend)
            facts["block_shape"], facts["block_fill"] = find_blocks(csr, sample)
            facts["short_slices"], facts["short_rows"] = sample.short_columns(csr.ncols)
            facts["sectors"] = sample.sectors(backend.scalar.itemsize)
        return cls(
            csr.nrows,
            csr.ncols,
            csr.nnz,
            longest,
            lengths[0],
            sliced,
            min(sliced, csr.nnz + SLICE_HEIGHT * longest),  # where a slice ends, the next begins
            sum(lengths[LONG_ROW.bit_length() + 1 :]),
            lengths,
            **{"short_slices": 0.0, "short_rows": False, "sampled": "sectors" in facts, **facts},
        )

    def describe(self) -> str:
        """One line: the rows."""
        if not self.nnz:
            return "no entries"
        spread = f"at most {self.longest}, {self.spread:.3g} times the mean"
        return f"{self.mean:.3g} entries a row, {spread}"


def least_looked_at(backend: Backend) -> int:
    """Entries from which row patterns, blocks and short columns are looked for.

    With fewer, no format saves bytes of columns; a device waits for memory more than it moves bytes, up to where blocks
    pay that the matrix does not tell of.
    """
    return FEW_ENTRIES if backend.name == "host" else LEAST_BLOCK_SEARCH_ENTRIES


def count_patterns(csr: CsrPattern, longest: int, backend: Backend) -> int:
    """How many different rows there are, 0 if too many for a table in the cache of a multiprocessor."""
    _, most = table_limits(longest, backend)
    if not most:
        return 0
    counts, _, _ = collect(csr, backend)
    (count,) = backend.first(counts, 1)  # waits for the device
    return count if count <= most else 0
