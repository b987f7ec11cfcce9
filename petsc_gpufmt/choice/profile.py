"""What the choice of a format needs to know about a pattern: from a few passes over rows, and a sample of entries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.choice.sample import SLICE_HEIGHT, Sample, find_blocks
from petsc_gpufmt.formats.common.row_patterns import collect, table_limits
from petsc_gpufmt.formats.pjds import FEW_ENTRIES
from petsc_gpufmt.patterns.csr import CsrPattern

# A length that is counted as one with all above: rows so long are few, and no format pads them by much.
COUNTED_LENGTHS = 1024
# Rows that EVC-HYB stores apart are longer.
LONG_ROW = 128
# Where slices pad no more than this, row lengths are not counted: nothing would be sorted.
REGULAR = 0.03


@dataclass(frozen=True)
class Profile:
    """Sizes and regularity of a pattern.

    Attributes
    ----------
    nrows, ncols, nnz : as in CSR
    longest, empty_rows : entries of the longest row, and how many rows have none
    sliced_entries : entries with padding in slices of 32 rows, in the order of the matrix
    sorted_entries : the same, all rows sorted by length
    long_rows : rows of more than 128 entries
    lengths : rows of 0, 1, 2, 3-4, 5-8, ... entries; empty where slices hardly pad
    block_shape, block_fill : rows and columns of dense blocks, 1 x 1 if none; share of their entries that exist
    npatterns : different rows, as columns relative to the row; 0 if there are too many for a table
    short_slices : share of slices (by entries) whose columns fit 16 bits, from a sample
    short_rows : whether this holds for all rows of the sample
    sectors : pieces of 32 bytes of x that about a hundred neighbouring rows read, for each of their entries

    Row patterns are not looked for where entries are few; nor blocks that the matrix does not tell, nor short columns.
    Where there are row patterns, nothing saves more, and the others are not looked for.
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
        """The profile of a pattern on `backend`."""
        if not csr.nnz:
            return cls(csr.nrows, csr.ncols, 0, empty_rows=csr.nrows)
        xp = backend.xp
        lengths = xp.diff(csr.rowptr)
        padded = xp.zeros(ceil_div(csr.nrows, SLICE_HEIGHT) * SLICE_HEIGHT, dtype=lengths.dtype)
        padded[: csr.nrows] = lengths
        widths = padded.reshape(-1, SLICE_HEIGHT).max(axis=1)
        figures = (widths.max(), widths.sum(dtype=np.int64), (lengths == 0).sum())
        longest, width, empty = (int(f) for f in backend.to_host(xp.stack([f.astype(np.int64) for f in figures])))
        sliced = width * SLICE_HEIGHT
        counts = None
        if sliced * (1 - REGULAR) > csr.nnz:
            counts = backend.to_host(xp.bincount(xp.minimum(lengths, COUNTED_LENGTHS), minlength=COUNTED_LENGTHS + 1))
        few = csr.nnz < FEW_ENTRIES  # no format saves bytes of columns there
        npatterns = 0 if few else count_patterns(csr, longest, backend)
        if npatterns or (few and csr.row_block * csr.col_block == 1):
            found = (1, 1), 1.0, npatterns, 0.0, False, 0.0
        else:
            sample = Sample.of(csr, backend)
            sectors = sample.sectors(backend.scalar.itemsize)
            found = *find_blocks(csr, sample), 0, *sample.short_columns(csr.ncols), sectors
        return cls(
            csr.nrows,
            csr.ncols,
            csr.nnz,
            longest,
            empty,
            sliced,
            sliced if counts is None else sorted_entries(counts, csr.nnz, longest),
            (csr.nrows if longest > LONG_ROW else 0) if counts is None else int(counts[LONG_ROW + 1 :].sum()),
            () if counts is None else by_powers_of_two(counts),
            *found,
        )

    def describe(self) -> str:
        """One line: the rows."""
        if not self.nnz:
            return "no entries"
        spread = f"at most {self.longest}, {self.spread:.3g} times the mean"
        return f"{self.mean:.3g} entries a row, {spread}"


def sorted_entries(counts: np.ndarray, nnz: int, longest: int) -> int:
    """Entries in slices of rows sorted by length, from (COUNTED_LENGTHS + 1,) how many rows have each length.

    Exact but for rows that are longer than what is counted: of these, the first slice is padded to the longest.
    """
    lengths = np.arange(counts.size, dtype=np.int64)
    first = np.cumsum(counts[::-1])[::-1] - counts  # rows that are longer
    slices = ceil_div(first + counts, SLICE_HEIGHT) - ceil_div(first, SLICE_HEIGHT)  # whose first row has this length
    counted = int((slices * lengths)[:-1].sum()) * SLICE_HEIGHT
    beyond = int(counts[-1])
    if not beyond:
        return counted
    mean = (nnz - int((counts * lengths)[:-1].sum())) / beyond
    return counted + SLICE_HEIGHT * longest + round(mean * max(0, beyond - SLICE_HEIGHT))


def by_powers_of_two(counts: np.ndarray) -> tuple[int, ...]:
    """How many rows have 0, 1, 2, 3-4, 5-8, ... entries."""
    bounds = [0, *(2**k for k in range(COUNTED_LENGTHS.bit_length() - 1))]
    parts = [
        int(counts[low + 1 : high + 1].sum()) for low, high in zip([-1, *bounds], [*bounds, counts.size], strict=False)
    ]
    return tuple(parts)


def count_patterns(csr: CsrPattern, longest: int, backend: Backend) -> int:
    """How many different rows there are, 0 if too many for a table in the cache of a multiprocessor."""
    _, most = table_limits(longest, backend)
    if not most:
        return 0
    counts, _, _ = collect(csr, backend)
    (count,) = backend.first(counts, 1)  # waits for the device
    return count if count <= most else 0
