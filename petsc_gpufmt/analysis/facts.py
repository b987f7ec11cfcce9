"""What a matrix is like: counted over all of its entries, nothing from a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from petsc_gpufmt.analysis.source import Source
from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.formats.bsr.layout import count_blocks, entries_of
from petsc_gpufmt.formats.common.row_patterns import NoRowPatternsError, RowPatterns, may_be_few
from petsc_gpufmt.patterns.csr import CsrPattern

BLOCK_SIZES = tuple(range(2, 9))
"""Which are looked for, beside that which the matrix tells."""
FULL_BLOCK = 0.9
"""Share of the entries of blocks that must exist for the matrix to be one of blocks."""

CHUNK_ENTRIES = 1 << 22
"""Entries that are looked at together: what is made of them stays far smaller than the matrix."""


@dataclass(frozen=True)
class Facts:
    """A matrix in numbers.

    Attributes
    ----------
    nrows, ncols, nnz : of the matrix; entries that are zero count
    shortest, longest, mean : entries of a row
    empty_rows, empty_columns : without entries
    lengths : rows of 0, 1, 2, 3-4, 5-8, ... entries, up to those of the longest
    bandwidth, mean_distance : largest and mean |column - row| of the entries
    diagonal : entries (i, i) that exist
    symmetric_pattern : whether (j, i) exists for each (i, j); None if the matrix is not square
    symmetric_values : whether they are equal; None too where values are not known
    value_type : of the file, None for a generator
    not_finite, zeros : values that are NaN or infinite, and that are 0; 0 where values are not known
    row_patterns : different rows, as columns relative to the row; 0 if they are too many for a table
    told_block : the block size that the generator or the file tells, 1 if none
    block_fill : rows and columns of square blocks -> share of their entries that exist
    block_size : the largest of these of which FULL_BLOCK exists, 1 if none
    block_bytes : of values and columns in blocks of that size
    csr_bytes : the same in CSR
    """

    nrows: int
    ncols: int
    nnz: int
    shortest: int
    longest: int
    mean: float
    empty_rows: int
    empty_columns: int
    lengths: tuple[int, ...]
    bandwidth: int
    mean_distance: float
    diagonal: int
    symmetric_pattern: bool | None
    symmetric_values: bool | None
    value_type: str | None
    not_finite: int
    zeros: int
    row_patterns: int
    told_block: int
    block_fill: dict[int, float]
    block_size: int
    block_bytes: int
    csr_bytes: int

    @property
    def blocks_end_evenly(self) -> bool:
        """Whether the sizes are multiples of the block size, as MatSetBlockSize() asks for."""
        return self.nrows % self.block_size == 0 and self.ncols % self.block_size == 0


def pattern_of(source: Source, backend: Backend) -> CsrPattern:
    """The pattern as formats take it, checked, its rows counted."""
    nrows, ncols = source.matrix.shape
    rowptr, colidx = (a.astype(backend.index, copy=False) for a in (source.matrix.indptr, source.matrix.indices))
    told = source.block_size
    return CsrPattern(nrows, ncols, rowptr, colidx, row_block=told, col_block=told).validated(backend)


def find_facts(source: Source, csr: CsrPattern, backend: Backend) -> Facts:
    """Facts of a matrix and its pattern, which `pattern_of` gave."""
    matrix, lengths = source.matrix, np.diff(source.matrix.indptr)
    values = matrix.data if source.has_values else np.empty(0)
    bandwidth, mean_distance, diagonal = distances(matrix)
    symmetric_pattern, symmetric_values = symmetry(source)
    fill = block_fill(csr, backend)
    block_size = max((size for size, share in fill.items() if share >= FULL_BLOCK), default=1)
    index, scalar = backend.index.itemsize, backend.scalar.itemsize
    blocks = round(csr.nnz / (fill.get(block_size, 1.0) * block_size**2)) if csr.nnz else 0
    return Facts(
        nrows=csr.nrows,
        ncols=csr.ncols,
        nnz=csr.nnz,
        shortest=int(lengths.min(initial=csr.ncols)) if csr.nrows else 0,
        longest=int(lengths.max(initial=0)),
        mean=csr.nnz / max(1, csr.nrows),
        empty_rows=int(np.count_nonzero(lengths == 0)),
        empty_columns=csr.ncols - int(np.count_nonzero(np.bincount(matrix.indices, minlength=csr.ncols))),
        lengths=row_histogram(lengths),
        bandwidth=bandwidth,
        mean_distance=mean_distance,
        diagonal=diagonal,
        symmetric_pattern=symmetric_pattern,
        symmetric_values=symmetric_values,
        value_type=values.dtype.name if source.has_values else None,
        not_finite=int(np.count_nonzero(~np.isfinite(values))),
        zeros=int(np.count_nonzero(values == 0)),
        row_patterns=count_row_patterns(csr, backend),
        told_block=source.block_size,
        block_fill=fill,
        block_size=block_size,
        block_bytes=blocks * (block_size**2 * scalar + index),
        csr_bytes=csr.nnz * (scalar + index),
    )


def row_histogram(lengths: np.ndarray) -> tuple[int, ...]:
    """Rows of 0, 1, 2, 3-4, 5-8, ... entries, up to those of the longest row; () without rows."""
    bins = np.where(lengths > 0, np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64) + 1, 0)
    return tuple(np.bincount(bins).tolist()) if lengths.size else ()


def histogram_labels(bins: int) -> list[str]:
    """0, 1, 2, 3-4, 5-8, ... for so many bins of `row_histogram`."""
    from_third = [f"{2 ** (k - 2) + 1}-{2 ** (k - 1)}" for k in range(3, bins)]
    return ["0", "1", "2", *from_third][:bins]


def row_chunks(matrix: scipy.sparse.csr_matrix) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, columns) of about CHUNK_ENTRIES entries at a time, in their order: int64 and the type of the indices."""
    indptr, first = matrix.indptr, 0
    while first < matrix.shape[0]:
        last = int(np.searchsorted(indptr, int(indptr[first]) + CHUNK_ENTRIES, side="right")) - 1
        last = min(max(last, first + 1), matrix.shape[0])
        rows = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        yield rows, matrix.indices[indptr[first] : indptr[last]]
        first = last


def distances(matrix: scipy.sparse.csr_matrix) -> tuple[int, float, int]:
    """(largest |column - row|, its mean, entries of the diagonal)."""
    largest = total = diagonal = 0
    for rows, columns in row_chunks(matrix):
        away = np.abs(columns - rows)
        largest = max(largest, int(away.max(initial=0)))
        total += int(away.sum())
        diagonal += int(np.count_nonzero(away == 0))
    return largest, total / max(1, matrix.nnz), diagonal


def symmetry(source: Source) -> tuple[bool | None, bool | None]:
    """(whether the pattern is symmetric, whether the values are); None for what has no answer."""
    matrix = source.matrix
    if matrix.shape[0] != matrix.shape[1]:
        return None, None
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    same = np.array_equal(matrix.indptr, transposed.indptr) and np.array_equal(matrix.indices, transposed.indices)
    if not source.has_values:
        return same, None
    return same, same and np.array_equal(matrix.data, transposed.data, equal_nan=True)


def count_row_patterns(csr: CsrPattern, backend: Backend) -> int:
    """Different rows relative to the diagonal; 0 if they are too many, or none may be alike."""
    if not csr.nnz or not may_be_few(csr):
        return 0
    try:
        return RowPatterns.find(csr, csr.longest or 0, None, backend).npatterns
    except NoRowPatternsError:
        return 0


def block_fill(csr: CsrPattern, backend: Backend) -> dict[int, float]:
    """Rows and columns of square blocks -> share of their entries that exist; no blocks without entries."""
    if not csr.nnz:
        return {}
    entries, sizes = entries_of(csr), sorted({*BLOCK_SIZES, csr.row_block} - {1})
    counted = [count_blocks(entries, [(size, size)], backend)[0] for size in sizes]
    return {blocks.row_block: csr.nnz / (blocks.nblocks * blocks.row_block**2) for blocks in counted}
