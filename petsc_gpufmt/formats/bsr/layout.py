"""Structure of BSR: which blocks a CSR pattern fills, which block size suits it, and where long block rows are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import WARP, Launch, ceil_div, launch_1d
from petsc_gpufmt.errors import IndexOverflowError
from petsc_gpufmt.patterns.csr import CsrPattern

# Blocks of the application's size are kept up to this padding; with more, narrower blocks are looked at, too.
ACCEPTABLE_FILL_RATIO = 0.1
THREADS_PER_BLOCK = 128
SEGMENT_ENTRIES = 2**31 - 1  # kernels count the entries of a block row in 32 bits


@dataclass(frozen=True)
class Entries:
    """The entries of a CSR pattern, columns ascending in each row and each only once.

    Attributes
    ----------
    rowptr : (nrows + 1,) index
    colidx : (nentries,) index
    first : (nentries + 1,) index or None
        Entry k is the sum of values first[k] to first[k + 1]; None: value k alone.
    source : (nnz,) index or None
        Where value e is in the array of values; None: at e.
    """

    nrows: int
    ncols: int
    rowptr: Any
    colidx: Any
    first: Any
    source: Any


@dataclass(frozen=True)
class BlockPattern:
    """Blocks of ``row_block`` x ``col_block`` entries that hold all entries of a matrix.

    Attributes
    ----------
    block_offsets : (nblock_rows + 1,) int64; block row i has blocks block_offsets[i] to block_offsets[i + 1]
    block_col : (nblocks,) index; block column of each block, ascending in a block row
    """

    row_block: int
    col_block: int
    block_offsets: Any
    block_col: Any


def distinct_entries(csr: CsrPattern, xp: Any) -> Entries:
    """The entries in order, without repeats. PETSc's matrices have them so, which costs a look; others are sorted."""
    in_order = xp.ones(csr.nnz + 1, dtype=bool)
    in_order[1:-1] = csr.colidx[1:] > csr.colidx[:-1]
    in_order[csr.rowptr] = True
    if bool(in_order.all()):
        return Entries(csr.nrows, csr.ncols, csr.rowptr, csr.colidx, None, csr.source)
    index = csr.colidx.dtype
    rows = xp.searchsorted(csr.rowptr[1:], xp.arange(csr.nnz, dtype=xp.int64), side="right")
    order = xp.argsort(csr.colidx, kind="stable")
    order = order[xp.argsort(rows[order], kind="stable")]
    colidx = csr.colidx[order]
    source = order.astype(index) if csr.source is None else csr.source[order]
    new = xp.ones(csr.nnz, dtype=bool)
    new[1:] = (colidx[1:] != colidx[:-1]) | (rows[1:] != rows[:-1])
    nentries = int(new.sum())
    if nentries == csr.nnz:
        return Entries(csr.nrows, csr.ncols, csr.rowptr, colidx, None, source)
    first = xp.full(nentries + 1, csr.nnz, dtype=index)
    first[:-1] = xp.flatnonzero(new)
    before = xp.zeros(csr.nnz + 1, dtype=index)
    before[1:] = xp.cumsum(new)
    return Entries(csr.nrows, csr.ncols, before[csr.rowptr], colidx[new], first, source)


def choose_blocks(entries: Entries, row_block: int, col_block: int, backend: Backend) -> BlockPattern:
    """Blocks of `row_block` x `col_block` if the pattern comes in such, else of the shape that moves least bytes.

    The compacted columns of an off-diagonal block of a parallel matrix do not come in blocks, nor do the rows of its
    transpose. Raises IndexOverflowError as `block_pattern`.
    """
    least = math.inf
    for rows, columns in dict.fromkeys(((row_block, col_block), (row_block, 1), (1, col_block), (1, 1))):
        nopened = count_blocks(entries, rows, columns, backend)
        nblocks = int(nopened.sum())
        size = nblocks * (rows * columns * backend.scalar.itemsize + backend.index.itemsize)
        if size < least:
            least, best = size, (rows, columns, nopened)
        if entries.colidx.size >= (1 - ACCEPTABLE_FILL_RATIO) * nblocks * rows * columns:
            break
    return block_pattern(entries, *best, backend)


def count_blocks(entries: Entries, row_block: int, col_block: int, backend: Backend) -> Any:
    """Blocks that each row opens, that is, has an entry in when no earlier row of its block row has: (nrows,) index."""
    nopened = backend.xp.empty(entries.nrows, dtype=backend.index)
    launch_rows(backend, "bsr_count_blocks", entries, row_block, col_block, nopened)
    return nopened


def block_pattern(entries: Entries, row_block: int, col_block: int, nopened: Any, backend: Backend) -> BlockPattern:
    """The blocks that hold an entry; `nopened` is what `count_blocks` returns.

    Raises IndexOverflowError for a block row of 2^31 entries or more.
    """
    xp = backend.xp
    first_block = offsets_of(nopened, xp)
    nblock_rows = ceil_div(entries.nrows, row_block)
    nblocks = int(first_block[-1])
    block_offsets = xp.full(nblock_rows + 1, nblocks, dtype=xp.int64)
    block_offsets[:-1] = first_block[:-1:row_block]
    longest = int(xp.diff(block_offsets).max()) if nblock_rows else 0
    if longest * row_block * col_block > SEGMENT_ENTRIES:
        raise IndexOverflowError(
            f"a block row has {longest} blocks of {row_block} x {col_block}, more than {SEGMENT_ENTRIES} entries: "
            "set a smaller -mat_bsr_block_size"
        )
    block_col = xp.empty(nblocks, dtype=backend.index)
    launch_rows(backend, "bsr_fill_columns", entries, row_block, col_block, first_block, block_col)
    return BlockPattern(row_block, col_block, block_offsets, sort_block_rows(block_offsets, block_col, xp))


def sort_block_rows(block_offsets: Any, block_col: Any, xp: Any) -> Any:
    """Block columns ascending in each block row; rows that open all blocks of their block row leave nothing to sort."""
    in_order = xp.ones(block_col.size + 1, dtype=bool)
    in_order[1:-1] = block_col[1:] > block_col[:-1]
    in_order[block_offsets] = True
    if bool(in_order.all()):
        return block_col
    places = xp.arange(block_col.size, dtype=xp.int64)
    block_rows = xp.searchsorted(block_offsets[1:], places, side="right")
    order = xp.argsort(block_col, kind="stable")
    return block_col[order[xp.argsort(block_rows[order], kind="stable")]]


def launch_rows(
    backend: Backend, kernel: str, entries: Entries, row_block: int, col_block: int, *arguments: Any
) -> None:
    """Run a kernel of the structure pass, a thread for each row."""
    if not entries.nrows:
        return
    index = backend.index.type
    sizes = (index(entries.nrows), index(row_block), index(col_block))
    function = backend.function("formats/bsr_layout", kernel, ())
    arguments = (*sizes, entries.rowptr, entries.colidx, *arguments)
    backend.run([launch_1d(function, entries.nrows, THREADS_PER_BLOCK, arguments)])


def share_of_lanes(block_offsets: Any, lanes: int, xp: Any) -> float:
    """The share of lanes that have a block where `lanes` consecutive block rows go through theirs side by side."""
    lengths = xp.zeros(ceil_div(int(block_offsets.size) - 1, lanes) * lanes, dtype=xp.int64)
    lengths[: block_offsets.size - 1] = xp.diff(block_offsets)
    steps = int(lengths.reshape(-1, lanes).max(axis=1).sum()) if lengths.size else 0
    return int(block_offsets[-1]) / (lanes * steps) if steps else 1.0


def interleave_columns(block_offsets: Any, block_col: Any, backend: Backend) -> Any:
    """Block columns in the order in which kernel K1 has the blocks (kernels/formats/bsr.cuh): (nblocks,) index."""
    interleaved = backend.xp.empty_like(block_col)
    nblock_rows = int(block_offsets.size) - 1
    if block_col.size:
        grid = (ceil_div(nblock_rows, THREADS_PER_BLOCK), 1, 1)
        function = backend.function("formats/bsr_layout", "bsr_interleave_columns", ())
        arguments = (np.int64(nblock_rows), block_offsets, block_col, interleaved)
        backend.run([Launch(function, grid, (WARP, THREADS_PER_BLOCK // WARP, 1), arguments)])
    return interleaved


def interleaved_places(block_offsets: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where K1 has each block, block rows in order: its place, its diagonal's first place and size; (nblocks,) each."""
    lengths = np.diff(block_offsets)
    rows = np.repeat(np.arange(lengths.size), lengths)
    diagonals = np.arange(rows.size) - block_offsets[rows]
    order = np.lexsort((rows, diagonals, rows // lanes))
    place = np.empty(rows.size, dtype=np.int64)
    place[order] = np.arange(rows.size)
    new = np.ones(rows.size + 1, dtype=bool)
    new[1:-1] = (np.diff(rows[order] // lanes) != 0) | (np.diff(diagonals[order]) != 0)
    bounds = np.flatnonzero(new)
    diagonal = np.cumsum(new[:-1])[place] - 1
    return place, bounds[diagonal], np.diff(bounds)[diagonal]


def cut_block_rows(block_offsets: Any, limit: int, xp: Any) -> tuple[Any, Any]:
    """Cut block rows into segments of at most `limit` blocks (Abdelfattah et al. 2016, section 5.5, figure 8).

    Returns segment_offsets, (nsegments + 1,) int64: the blocks of each segment; and segment_ptr, (nblock_rows + 1,)
    int64: the segments of each block row. An empty block row has no segment.
    """
    segment_ptr = offsets_of(ceil_div(xp.diff(block_offsets), limit), xp)
    segments = xp.arange(int(segment_ptr[-1]), dtype=xp.int64)
    block_rows = xp.searchsorted(segment_ptr[1:], segments, side="right")
    segment_offsets = xp.empty(segments.size + 1, dtype=xp.int64)
    segment_offsets[-1:] = block_offsets[-1:]
    segment_offsets[:-1] = block_offsets[block_rows] + (segments - segment_ptr[block_rows]) * limit
    return segment_offsets, segment_ptr


def offsets_of(counts: Any, xp: Any) -> Any:
    """Where each of consecutive pieces of these sizes begins, and the end: (n + 1,) int64."""
    offsets = xp.zeros(counts.size + 1, dtype=xp.int64)
    offsets[1:] = xp.cumsum(counts, dtype=xp.int64)
    return offsets


def kept_for_refresh(entries: Entries, full_blocks: bool) -> Entries:
    """The entries as a stored matrix keeps them: without columns if all blocks are full, else with its own columns."""
    if full_blocks and entries.first is None:
        return replace(entries, rowptr=None, colidx=None)
    return replace(entries, colidx=entries.colidx.copy())
