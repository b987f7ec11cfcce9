"""A sample of a pattern's rows, and what it says about blocks and about the reach of columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.patterns.csr import SLICE_HEIGHT, CsrPattern, gather_indices

# Rows are sampled in chunks that hold whole blocks of 2, 3, 4, 5, 6 and 8 rows, and a few slices.
CHUNK_ROWS = 120
BLOCK_SIZES = (2, 3, 4, 5, 6, 8)
# Enough for shares to within a few percent, and few enough for NumPy to take a millisecond.
SAMPLED_ENTRIES = 8192
# Chunks with more entries are not looked at: they have rows that are dense or nearly so.
MOST_CHUNK_ENTRIES = 1 << 16
# Columns that 16 bits can tell from the smallest; one value marks padding.
SHORT_SPAN = 65534
# Bytes of x that a device reads at once.
SECTOR_BYTES = 32
# Smaller mults wait for memory more than they move: blocks that the application does not tell of are not sought.
LEAST_BLOCK_SEARCH_ENTRIES = 500_000
# Share of supposed blocks whose rows must begin in the same column for their entries to be counted.
ALIGNED_ROWS = 0.6


class Sample(NamedTuple):
    """Chunks of CHUNK_ROWS rows, or of a few block rows, spread over the matrix.

    Attributes
    ----------
    chunk_rows : rows of a chunk
    rows : (sampled rows,) their numbers; whole chunks, ascending
    lengths : (sampled rows,) entries of each
    columns : (sum of lengths,) of all, row by row
    """

    chunk_rows: int
    rows: np.ndarray
    lengths: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, csr: CsrPattern, backend: Backend) -> Sample:
        """Chunks with about SAMPLED_ENTRIES entries, one at least. Waits for the device, twice."""
        chunk_rows = ceil_div(CHUNK_ROWS, csr.row_block) * csr.row_block
        nchunks = max(1, csr.nrows // chunk_rows)
        taken = min(nchunks, max(1, int(SAMPLED_ENTRIES // (csr.nnz / csr.nrows * chunk_rows))))
        first = np.arange(taken, dtype=np.int64) * nchunks // taken * chunk_rows
        rows = first[:, None] + np.arange(min(chunk_rows, csr.nrows))
        bounds = gather_indices(backend, csr.rowptr, np.concatenate([rows, rows + 1], axis=None))
        begin, end = bounds.astype(np.int64).reshape(2, *rows.shape)
        small = (end - begin).sum(axis=1) <= MOST_CHUNK_ENTRIES
        rows, begin, lengths = (a[small].ravel() for a in (rows, begin, end - begin))
        ends = np.cumsum(lengths)
        entries = np.arange(ends[-1] if ends.size else 0) + np.repeat(begin - (ends - lengths), lengths)
        columns = gather_indices(backend, csr.colidx, entries)
        return cls(chunk_rows, rows, lengths, columns.astype(np.int64))

    def short_columns(self, ncols: int) -> tuple[float, bool]:
        """(share of entries in slices whose columns fit 16 bits column by column, whether those of all rows fit)."""
        if not self.columns.size or ncols <= SHORT_SPAN + 1:
            return 1.0, True
        slices = self.rows // self.chunk_rows * self.chunk_rows + self.rows % self.chunk_rows // SLICE_HEIGHT
        positions = np.arange(self.columns.size) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        group = np.repeat(slices, self.lengths) * (int(self.lengths.max()) + 1) + positions
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        fits = _spans(self.columns[order], starts) <= SHORT_SPAN
        of_slice = group[order][starts] // (int(self.lengths.max()) + 1)
        number = np.cumsum(np.diff(of_slice, prepend=-1) != 0) - 1  # of the slice among those of the sample
        wide = np.zeros(int(number[-1]) + 1, dtype=bool)
        wide[number[~fits]] = True  # not np.isin, whose first call imports numpy.ma
        entries = np.add.reduceat(np.ones(group.size), starts)
        share = float(entries[~wide[number]].sum() / group.size)
        rows = (np.cumsum(self.lengths) - self.lengths)[self.lengths > 0]
        return share, bool((_spans(self.columns, rows) <= SHORT_SPAN).all())

    def sectors(self, scalar_bytes: int) -> float:
        """Sectors of x that the rows of a chunk read, for each of their entries; 0 if there are no entries."""
        if not self.columns.size:
            return 0.0
        sectors = self.columns // max(1, SECTOR_BYTES // scalar_bytes)
        chunks = np.repeat(self.rows // self.chunk_rows, self.lengths)
        return _different(chunks * (int(sectors.max()) + 1) + sectors) / self.columns.size


def _different(numbers: np.ndarray) -> int:
    """How many different ones there are: np.unique takes twenty times as long."""
    in_order = np.sort(numbers)
    return 1 + int(np.count_nonzero(in_order[1:] != in_order[:-1]))


def _spans(columns: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Largest - smallest column of each piece."""
    return np.maximum.reduceat(columns, starts) - np.minimum.reduceat(columns, starts)


def find_blocks(csr: CsrPattern, sample: Sample) -> tuple[tuple[int, int], float]:
    """(rows and columns of a block, share of the entries of blocks that exist), storing least by the sample.

    The block sizes of the matrix are tried, and small square ones if it is large. ((1, 1), 1.0) where none is better.
    """
    shapes = {(csr.row_block, csr.col_block)}
    if csr.nnz >= LEAST_BLOCK_SEARCH_ENTRIES:
        shapes |= {(size, size) for size in BLOCK_SIZES if _is_aligned(sample, size)}
    best = (1, 1), 1.0
    for rows, columns in sorted(shapes - {(1, 1)}):
        if not sample.columns.size:
            break
        blocks = (
            np.repeat(sample.rows // rows, sample.lengths) * ceil_div(csr.ncols, columns) + sample.columns // columns
        )
        fill = min(1.0, sample.columns.size / (_different(blocks) * rows * columns))
        if _entry_bytes((rows, columns), fill) < _entry_bytes(*best):
            best = (rows, columns), fill
    return best


def _entry_bytes(shape: tuple[int, int], fill: float) -> float:
    """Bytes for each entry of a matrix in double precision, stored in blocks with 32-bit indices."""
    return (8 + 4 / (shape[0] * shape[1])) / fill


def _is_aligned(sample: Sample, size: int) -> bool:
    """Whether the rows of most blocks of `size` begin in the same column."""
    if not sample.columns.size or sample.chunk_rows % size:
        return False
    begin = np.cumsum(sample.lengths) - sample.lengths
    first = np.where(sample.lengths > 0, sample.columns[np.minimum(begin, sample.columns.size - 1)], -1)
    first = first[: first.size // size * size].reshape(-1, size)
    return bool(first.size and (first == first[:, :1]).all(axis=1).mean() >= ALIGNED_ROWS)
