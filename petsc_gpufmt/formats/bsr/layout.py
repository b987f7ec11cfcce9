"""Structure of BSR: which blocks a CSR pattern fills, which block size suits it, and where long block rows are cut.

Blocks are counted by rows, and the counts added up, in one pass over the pattern: what is asked of them is known after
one wait for the device. Their columns are filled in after that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import WARP, Launch, ceil_div, launch_1d
from petsc_gpufmt.errors import IndexOverflowError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles

# Blocks of the application's size are kept up to this padding; with more, narrower blocks are looked at, too.
ACCEPTABLE_FILL_RATIO = 0.1
THREADS_PER_BLOCK = 128
OFFSET = np.dtype(np.int64)
NFOUND = 6  # members of `Found` in kernels/formats/bsr_layout.cu
SEGMENT_ENTRIES = 2**31 - 1  # kernels count the entries of a block row in 32 bits


class Entries(NamedTuple):
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


class Blocks(NamedTuple):
    """Blocks of ``row_block`` x ``col_block`` entries that hold all entries of a matrix, but for their columns.

    Attributes
    ----------
    first_block : (nrows + 1,) index
        Row i opens blocks first_block[i] to first_block[i + 1]: it has an entry in them, and no earlier row of its
        block row has.
    block_offsets : (nblock_rows + 1,) int64; block row i has blocks block_offsets[i] to block_offsets[i + 1]
    nblocks, longest : blocks of all block rows, and of the longest
    steps : sum over groups of 32 block rows of the blocks of the longest
    empty_rows : rows of the matrix without entries
    out_of_order : whether columns do not ascend in a row, or repeat: then nothing else is right
    several_rows_opened : whether blocks of a block row may be out of order, if rows fill them in as they open them
    """

    row_block: int
    col_block: int
    first_block: Any
    block_offsets: Any
    nblocks: int
    longest: int
    steps: int
    empty_rows: int
    out_of_order: bool
    several_rows_opened: bool

    @property
    def shape(self) -> tuple[int, int]:
        return self.row_block, self.col_block

    @property
    def share_of_lanes(self) -> float:
        """The share of lanes that have a block where 32 block rows go through theirs side by side."""
        return self.nblocks / (WARP * self.steps) if self.steps else 1.0


def find_blocks(
    csr: CsrPattern, shapes: Sequence[tuple[int, int]], backend: Backend, counted: Blocks | None = None
) -> tuple[Entries, Blocks]:
    """The entries of a pattern, and their blocks of the first of `shapes` if the pattern comes in such.

    Else of the shape that moves least bytes, as far as the first that leaves little padding: the compacted columns of
    an off-diagonal block of a parallel matrix do not come in blocks, nor do the rows of its transpose. `counted` are
    the blocks of the first shape if they are known. Waits for the device if they are not, and if they do not fit.
    Raises IndexOverflowError for a block row of 2^31 entries or more.
    """
    entries = entries_of(csr)
    blocks = counted or count_blocks(entries, shapes[:1], backend)[0]
    if blocks.out_of_order:
        entries = sorted_entries(csr, backend)
        (blocks,) = count_blocks(entries, shapes[:1], backend)
    if len(shapes) > 1 and not fits(entries, blocks):
        blocks = best_of([blocks, *count_blocks(entries, shapes[1:], backend)], entries, backend)
    if blocks.longest * blocks.row_block * blocks.col_block > SEGMENT_ENTRIES:
        raise IndexOverflowError(
            f"a block row has {blocks.longest} blocks of {blocks.row_block} x {blocks.col_block}, more than "
            f"{SEGMENT_ENTRIES} entries: set a smaller -mat_bsr_block_size"
        )
    return entries, blocks


def entries_of(csr: CsrPattern) -> Entries:
    """The entries of a pattern whose columns ascend in each row."""
    return Entries(csr.nrows, csr.ncols, csr.rowptr, csr.colidx, None, csr.source)


def shapes_of(row_block: int, col_block: int) -> list[tuple[int, int]]:
    """The shapes that blocks may have in a matrix whose block sizes are `row_block` and `col_block`."""
    return list(dict.fromkeys(((row_block, col_block), (row_block, 1), (1, col_block), (1, 1))))


def fits(entries: Entries, blocks: Blocks) -> bool:
    """Whether there is little padding."""
    stored = blocks.nblocks * blocks.row_block * blocks.col_block
    return bool(entries.colidx.size >= (1 - ACCEPTABLE_FILL_RATIO) * stored)


def best_of(counted: Sequence[Blocks], entries: Entries, backend: Backend) -> Blocks:
    """Those that take least bytes, as far as the first that fit."""
    least = math.inf
    for blocks in counted:
        block_bytes = blocks.row_block * blocks.col_block * backend.scalar.itemsize + backend.index.itemsize
        if blocks.nblocks * block_bytes < least:
            least, best = blocks.nblocks * block_bytes, blocks
        if fits(entries, blocks):
            break
    return best


def sorted_entries(csr: CsrPattern, backend: Backend) -> Entries:
    """The entries of a pattern with columns out of order or repeated, which PETSc's matrices do not have."""
    xp, index = backend.xp, backend.index
    rowptr, given = xp.asarray(csr.rowptr), xp.asarray(csr.colidx)
    rows = xp.searchsorted(rowptr[1:], xp.arange(csr.nnz, dtype=OFFSET), side="right")
    order = xp.argsort(given, kind="stable")
    order = order[xp.argsort(rows[order], kind="stable")]
    colidx = given[order]
    source = order.astype(index) if csr.source is None else xp.asarray(csr.source)[order]
    new = xp.ones(csr.nnz, dtype=bool)
    new[1:] = (colidx[1:] != colidx[:-1]) | (rows[1:] != rows[:-1])
    nentries = int(new.sum())  # waits for the device
    if nentries == csr.nnz:
        return Entries(csr.nrows, csr.ncols, csr.rowptr, colidx, None, source)
    first = xp.full(nentries + 1, csr.nnz, dtype=index)
    first[:-1] = xp.flatnonzero(new)
    before = xp.zeros(csr.nnz + 1, dtype=index)
    before[1:] = xp.cumsum(new)
    return Entries(csr.nrows, csr.ncols, before[rowptr], colidx[new], first, source)


def count_blocks(entries: Entries, shapes: Sequence[tuple[int, int]], backend: Backend) -> list[Blocks]:
    """The blocks of each of `shapes` that hold an entry. Waits for the device."""
    nrows, nshapes = entries.nrows, len(shapes)
    control = 1 + tiles(nrows + 1)
    work, *first_blocks = backend.empty((nshapes * (NFOUND + control), COUNT), *[(nrows + 1, backend.index)] * nshapes)
    # those of one shape stay
    block_offsets = [backend.empty((ceil_div(nrows, row_block) + 1, OFFSET))[0] for row_block, _ in shapes]
    backend.clear(work)
    launches = []
    for i, shape in enumerate(shapes):
        found, ticket = work[i * NFOUND : (i + 1) * NFOUND], nshapes * NFOUND + i * control
        outputs = (first_blocks[i], block_offsets[i], found)
        if nrows:
            launches += counting(entries, shape, outputs, work[ticket : ticket + control], backend)
        else:
            backend.clear(block_offsets[i])
    backend.run(launches)
    found = backend.first(work, nshapes * NFOUND)  # waits for the device
    counted = []
    for i, (row_block, col_block) in enumerate(shapes):
        nblocks, longest, steps, empty_rows, out_of_order, several = found[i * NFOUND : (i + 1) * NFOUND]
        arrays, counts = (first_blocks[i], block_offsets[i]), (nblocks, longest, steps, empty_rows)
        counted.append(Blocks(row_block, col_block, *arrays, *counts, bool(out_of_order), bool(several)))
    return counted


def counting(
    entries: Entries, shape: tuple[int, int], outputs: tuple[Any, Any, Any], control: Any, backend: Backend
) -> list[Launch]:
    """The launches that fill `outputs`: first_block, block_offsets, and what is found, of blocks of one shape."""
    _, block_offsets, found = outputs
    nblock_rows = ceil_div(entries.nrows, shape[0])
    threads = backend.in_turns(nblock_rows)
    measure = backend.function("formats/bsr_layout", "bsr_measure_block_rows", ())
    return [
        over_rows(backend, "bsr_count_blocks", entries, shape, *outputs, control, spare=1, threads=SCAN_THREADS),
        launch_1d(measure, threads, SCAN_THREADS, (np.int64(nblock_rows), block_offsets, found)),
    ]


def block_columns(entries: Entries, blocks: Blocks, backend: Backend) -> Any:
    """Block column of each block, ascending in each block row: (nblocks,) index."""
    opened, index = _new(blocks.nblocks, backend.index, backend), backend.index.type
    if not blocks.nblocks:
        return opened
    shape = (blocks.row_block, blocks.col_block)
    launches = [over_rows(backend, "bsr_fill_columns", entries, shape, blocks.first_block, opened)]
    block_col = opened
    if blocks.several_rows_opened:
        block_col = _new(blocks.nblocks, backend.index, backend)
        function = backend.function("formats/bsr_layout", "bsr_order_columns", ())
        arguments = (index(entries.nrows), index(blocks.row_block), blocks.first_block, opened, block_col)
        launches.append(launch_1d(function, entries.nrows, THREADS_PER_BLOCK, arguments))
    backend.run(launches)
    return block_col


def over_rows(
    backend: Backend,
    kernel: str,
    entries: Entries,
    shape: tuple[int, int],
    *arguments: Any,
    spare: int = 0,
    threads: int = THREADS_PER_BLOCK,
) -> Launch:
    """The launch of a kernel of the structure pass, a thread for each row and `spare` more."""
    sizes = map(backend.index.type, (entries.nrows, *shape))
    function = backend.function("formats/bsr_layout", kernel, ())
    return launch_1d(function, entries.nrows + spare, threads, (*sizes, entries.rowptr, entries.colidx, *arguments))


def interleave_columns(block_offsets: Any, block_col: Any, backend: Backend) -> Any:
    """Block columns in the order in which kernel K1 has the blocks (kernels/formats/bsr.cuh): (nblocks,) index."""
    interleaved = _new(block_col.size, backend.index, backend)
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


def cut_block_rows(block_offsets: Any, limit: int, backend: Backend) -> tuple[Any, Any]:
    """Cut block rows into segments of at most `limit` blocks (Abdelfattah et al. 2016, section 5.5, figure 8).

    Returns segment_offsets, (nsegments + 1,) int64: the blocks of each segment; and segment_ptr, (nblock_rows + 1,)
    int64: the segments of each block row. An empty block row has no segment. Waits for the device.
    """
    nblock_rows = int(block_offsets.size) - 1
    segment_ptr = _new(nblock_rows + 1, OFFSET, backend)
    control = _new(1 + tiles(nblock_rows + 1), COUNT, backend)
    backend.clear(control)
    cut = backend.function("formats/bsr_layout", "bsr_cut_block_rows", ())
    arguments: tuple[Any, ...] = (np.int64(nblock_rows), np.int64(limit), block_offsets, segment_ptr, control)
    backend.run([launch_1d(cut, nblock_rows + 1, SCAN_THREADS, arguments)])
    (nsegments,) = backend.first(segment_ptr[nblock_rows:], 1)  # waits for the device
    segment_offsets = _new(nsegments + 1, OFFSET, backend)
    fill = backend.function("formats/bsr_layout", "bsr_fill_segments", ())
    sizes = map(np.int64, (nblock_rows, nsegments, limit))
    arguments = (*sizes, block_offsets, segment_ptr, segment_offsets)
    backend.run([launch_1d(fill, nsegments + 1, THREADS_PER_BLOCK, arguments)])
    return segment_offsets, segment_ptr


def kept_for_refresh(entries: Entries, full_blocks: bool) -> Entries:
    """The entries as a stored matrix keeps them: without columns if all blocks are full, else with its own columns.

    Columns on the host may be those of PETSc, which may go. On a device they are the plan's.
    """
    if full_blocks and entries.first is None:
        return entries._replace(rowptr=None, colidx=None)
    colidx = entries.colidx
    return entries._replace(colidx=colidx.copy() if isinstance(colidx, np.ndarray) else colidx)


def _new(size: int, dtype: np.dtype, backend: Backend) -> Any:
    (array,) = backend.empty((size, dtype))
    return array
