"""BSR, blocked sparse rows (Abdelfattah, Ltaief, Keyes, Dongarra 2016), with their kernels and their balanced variant.

The matrix is cut into dense blocks of ``row_block`` x ``col_block`` entries. Those that hold an entry are stored, block
row by block row, each column by column, with one block column. Where block rows differ so much in length that one alone
would take longer than the rest together, long ones are cut (balanced BSR).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, Module, compiled_ahead, in_parts, instance_name, module_of
from petsc_gpufmt.backends.plan import WARP, Fused, Launch, Slot, ceil_div, launch_1d
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.bsr.layout import (
    Blocks,
    Entries,
    block_columns,
    cut_block_rows,
    find_blocks,
    interleave_columns,
    interleaved_places,
    kept_for_refresh,
    shapes_of,
)
from petsc_gpufmt.formats.bsr.parameters import (
    AUTOMATIC,
    K1,
    KERNELS,
    PARAMETERS,
    Shape,
    choose,
    parameter_space,
    power_of_two,
    usual_parameters,
)
from petsc_gpufmt.formats.common.base import Format, Stats
from petsc_gpufmt.formats.common.fused import fused_argument, leaves_a_sum
from petsc_gpufmt.formats.common.known import NOTHING, Known
from petsc_gpufmt.patterns.csr import CsrPattern

LARGEST_BLOCK = 1024
REDUCE_BLOCK = (32, 8)  # rows, threads a row
DIAGONAL_THREADS = 128
FILL_THREADS = 256
TRANSPOSED_DIRECTLY = 16  # rows of a block; taller blocks are refreshed faster through shared memory
FILL_ROWS = 32  # of a thread block of bsr_fill_values, if it does several block rows
FILL_SLICE = 8  # block rows, at most
FILL_SHARE = 2048  # entries of a thread block that shares a block row
FILL_WAVES = 4
GRID_LIMIT = 65535
MOST_IN_A_MODULE = 8  # products, which take 0.1 s each to compile
USUAL_BLOCKS = tuple((size, size) for size in range(1, 9)) + ((2, 3), (3, 2), (3, 6), (6, 3))
"""Rows and columns of blocks whose kernels are compiled ahead: squares, and prolongators of elasticity."""
RIGID_MOTIONS = {2: 3, 3: 6}
"""By block size: the near-null space of elasticity, which coarse levels have as their block size."""


class Bsr(Format):
    """One matrix in BSR.

    Attributes
    ----------
    row_block, col_block : rows and columns of a block; those at the end of the matrix may stand out over it
    block_offsets : (nblock_rows + 1,) int64; block row i has blocks block_offsets[i] to block_offsets[i + 1]
    interleaved : whether blocks are stored for kernel K1, 32 block rows at a time (see kernels/formats/bsr.cuh)
    block_col : (nblocks,) index; block column of each block, ascending in a block row
    val : (nblocks * row_block * col_block,) scalar; block by block, each column by column; -0 in padding
    limit : blocks at which block rows are cut (the paper's lambda), 0: not at all
    segment_offsets, segment_ptr : of the pieces, see `cut_block_rows`; without a cut block_offsets and None
    partial : (nsegments * row_block,) scalar, results of the pieces; None without a cut
    parameters : of the product kernel
    """

    name = "bsr"
    default_options = {"block_size": AUTOMATIC, **PARAMETERS, "lambda": AUTOMATIC}
    words = {"kernel": KERNELS}

    def __init__(self, csr: CsrPattern, backend: Backend, options: dict[str, Any], entries: Entries, blocks: Blocks):
        self.backend = backend
        self.nrows, self.ncols, self.nnz = csr.nrows, csr.ncols, csr.nnz
        self.row_block, self.col_block = blocks.row_block, blocks.col_block
        self.block_offsets = blocks.block_offsets
        self.nblock_rows, self.nblocks = ceil_div(self.nrows, self.row_block), blocks.nblocks
        self.nstored = self.nblocks * self.row_block * self.col_block
        self.padding = self.nstored - int(entries.colidx.size)
        self.nonempty_rows = self.nrows - blocks.empty_rows
        self.entries = kept_for_refresh(entries, full_blocks=self.padding == 0)
        self.longest = blocks.longest
        self.mean = self.nblocks / max(1, self.nblock_rows)
        shape = Shape(
            self.row_block,
            self.col_block,
            self.mean,
            self.longest,
            self.nblock_rows,
            blocks.share_of_lanes,
            backend.resident_threads,
        )
        self.limit, self.parameters = choose(shape, options, self.measured(backend, tuning_key(self.row_block)))
        self.interleaved = self.parameters.kernel == K1
        self.block_col = block_columns(entries, blocks, backend)
        if self.interleaved:
            self.block_col = interleave_columns(self.block_offsets, self.block_col, backend)
        self.segment_offsets = self.block_offsets
        self.segment_ptr: Any = None
        self.partial: Any = None
        if self.limit:
            self.segment_offsets, self.segment_ptr = cut_block_rows(self.block_offsets, self.limit, backend)
        self.nsegments = int(self.segment_offsets.size) - 1
        if self.limit:
            (self.partial,) = backend.empty((self.nsegments * self.row_block, backend.scalar))
        (self.val,) = backend.empty((self.nstored, backend.scalar))

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> Bsr:
        """Find the blocks, and cut long block rows. Raises OptionError for options out of range or at odds."""
        return cls.build_knowing(csr, backend, options, NOTHING)

    @classmethod
    def build_knowing(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any], known: Known) -> Bsr:
        options = cls.with_words(options)
        size = options["block_size"]
        if not 0 <= size <= LARGEST_BLOCK:
            raise OptionError(
                f"-mat_bsr_block_size {size}: choose 1 to {LARGEST_BLOCK}, or 0 for the block sizes of the matrix"
            )
        shapes = [(size, size)]
        if size == AUTOMATIC:
            shapes = shapes_of(min(csr.row_block, LARGEST_BLOCK), min(csr.col_block, LARGEST_BLOCK))
        counted = known.blocks if known.blocks and known.blocks.shape == shapes[0] else None
        return cls(csr, backend, options, *find_blocks(csr, shapes, backend, counted))

    @classmethod
    def tuning_key(cls, csr: CsrPattern) -> str:
        return tuning_key(csr.row_block)

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        return parameter_space(csr.row_block, csr.col_block)

    def mult(self, alpha: float, beta: float) -> list[Launch]:
        if not self.nrows:
            return []
        scalar = self.backend.by_value
        result = (scalar(alpha), scalar(beta), Slot.Y if beta else None, Slot.Z)
        if not self.limit:
            return [self._spmv(self.nrows, *result)]
        return [self._spmv_of_pieces(), self._reduce("reduce", *result)]

    def fused(self, operation: Fused) -> list[Launch] | None:
        if self.row_block != self.col_block:
            return None
        if not self.nrows and not leaves_a_sum(operation):
            return []
        if not self.limit:
            fused, after = fused_argument(operation, self._nblocks, self.backend)
            return [self._over_segments("fused", (), self.nrows, fused), *after]
        fused, after = fused_argument(operation, ceil_div(self.nrows, REDUCE_BLOCK[0]), self.backend)
        return [self._spmv_of_pieces(), self._reduce("reduce_fused", Slot.X, fused), *after]

    def _spmv_of_pieces(self) -> Launch:
        scalar = self.backend.by_value
        return self._spmv(int(self.partial.size), scalar(1), scalar(0), None, self.partial)

    def _reduce(self, what: str, *result: Any) -> Launch:
        """What adds up the results of the pieces."""
        rows, lanes = REDUCE_BLOCK
        sizes = (self.backend.index.type(self.nrows), self.backend.index.type(self.row_block))
        function = self.backend.function("formats/bsr", f"bsr_{what}", REDUCE_BLOCK)
        arguments = (*sizes, self.segment_ptr, self.partial, *result)
        return Launch(function, (ceil_div(self.nrows, rows), 1, 1), (rows, lanes, 1), arguments)

    def _spmv(self, nrows: int, *result: Any) -> Launch:
        return self._over_segments("spmv", (int(self.padding > 0),), nrows, *result)

    @property
    def _nblocks(self) -> int:
        """Blocks of a product of all segments, at least one."""
        p = self.parameters
        items = self.nsegments * ceil_div(self.row_block, p.tile_height)
        if self.interleaved:
            items = ceil_div(self.nsegments, WARP)
        return max(1, ceil_div(items, p.thread_arrays * p.rows_per_array))

    def _over_segments(self, what: str, padded: tuple[int, ...], nrows: int, *result: Any) -> Launch:
        """The product of all segments, whose first `nrows` rows are written."""
        p, index = self.parameters, self.backend.index.type
        sizes = (index(self.row_block), index(self.col_block), np.int64(self.nsegments), np.int64(nrows))
        arguments = (*sizes, index(self.ncols), self.segment_offsets, self.block_col, self.val, Slot.X, *result)
        template: tuple[int, ...]
        if self.interleaved:
            template = (self.row_block, self.col_block, p.thread_groups, p.thread_arrays, p.entries_per_thread, *padded)
            function = self.backend.function("formats/bsr_interleaved", f"bsr_{what}_interleaved", template)
            threads = WARP
        else:
            template = (self.row_block, self.col_block, p.tile_height, p.thread_groups)
            template += (p.thread_arrays, p.rows_per_array, p.entries_per_thread, *padded)
            function = self.backend.function("formats/bsr", f"bsr_{what}", template)
            threads = p.tile_height
        return Launch(function, (self._nblocks, 1, 1), (threads, p.thread_groups, p.thread_arrays), arguments)

    def diagonal(self) -> list[Launch]:
        if not self.nrows:
            return []
        sizes = tuple(map(self.backend.index.type, (self.nrows, self.row_block, self.col_block)))
        arrays = (self.block_offsets, self.block_col, self.val, Slot.Z)
        if self.interleaved:
            function = self.backend.function("formats/bsr_values", "bsr_diagonal_interleaved", ())
            grid = (ceil_div(self.nblock_rows, DIAGONAL_THREADS), 1, 1)
            block = (WARP, DIAGONAL_THREADS // WARP, 1)
            return [Launch(function, grid, block, (*sizes, np.int64(self.nblock_rows), *arrays))]
        function = self.backend.function("formats/bsr_values", "bsr_diagonal", ())
        return [launch_1d(function, self.nrows, DIAGONAL_THREADS, (*sizes, *arrays))]

    def refresh(self) -> list[Launch]:
        if not self.nstored:
            return []
        index, entries = self.backend.index.type, self.entries
        sizes = (index(self.row_block), index(self.col_block))
        arguments: tuple[Any, ...]
        full = entries.colidx is None
        if full and not self.interleaved and self.row_block <= TRANSPOSED_DIRECTLY:
            threads = 32
            while threads < FILL_THREADS and self.nstored > 8 * threads * self.nblock_rows:
                threads *= 2
            rows = FILL_THREADS // threads
            nblocks = ceil_div(self.nblock_rows, rows)
            function = self.backend.function("formats/bsr_values", "bsr_transpose_values", ())
            arguments = (np.int64(self.nblock_rows), *sizes, self.block_offsets, entries.source, Slot.VALUES, self.val)
            return [Launch(function, (nblocks, self._fill_shares(nblocks), 1), (threads, rows, 1), arguments)]
        slice_rows = WARP if self.interleaved else power_of_two(min(ceil_div(FILL_ROWS, self.row_block), FILL_SLICE))
        nslices = ceil_div(self.nblock_rows, slice_rows)
        function = self.backend.function(
            "formats/bsr_values", "bsr_fill_values", (self.row_block, self.col_block, slice_rows, int(full))
        )
        pattern = (entries.rowptr, entries.colidx, entries.first, entries.source)
        arguments = (np.int64(self.nrows), np.int64(self.nblock_rows), *sizes)
        arguments += (index(slice_rows if self.interleaved else 1), self.block_offsets, self.block_col)
        arguments += (*pattern, Slot.VALUES, self.val)
        return [Launch(function, (nslices, self._fill_shares(nslices), 1), (FILL_THREADS, 1, 1), arguments)]

    def _fill_shares(self, nblocks: int) -> int:
        """Thread blocks that share the values of what `nblocks` thread blocks would do alone, to fill the device."""
        most = min(ceil_div(self.nstored, nblocks * FILL_SHARE), GRID_LIMIT)
        return max(1, min(most, FILL_WAVES * self.backend.resident_threads // (FILL_THREADS * nblocks)))

    def stats(self) -> Stats:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        entries = self.entries
        arrays = [self.block_offsets, self.block_col, self.val, self.segment_ptr, self.partial]
        arrays += [entries.rowptr, entries.colidx, entries.first, entries.source]
        moved = self.nstored * scalar + self.nblocks * index + self.nsegments * 8 + (self.nrows + self.ncols) * scalar
        if self.limit:
            arrays.append(self.segment_offsets)
            moved += 2 * int(self.partial.nbytes) + int(self.segment_ptr.nbytes)
        return Stats(
            nnz=self.nnz,
            nstored=self.nstored,
            fill_ratio=self.padding / self.nstored if self.nstored else 0.0,
            bytes_held=sum(int(a.nbytes) for a in arrays if a is not None),
            bytes_per_mult=moved,
            nonempty_rows=self.nonempty_rows,
        )

    def summary(self) -> str:
        balanced = f", cut at {self.limit} blocks" if self.limit else ""
        return f"blocks of {self.row_block} x {self.col_block}{balanced}, {self.parameters}"

    def detail(self) -> str:
        share = 100 * self.padding / max(1, self.nstored)
        cut = f"cut at lambda = {self.limit} blocks into {self.nsegments} segments" if self.limit else "not cut"
        return "\n".join(
            (
                f"blocks: {self.nblocks} of {self.row_block} x {self.col_block} in {self.nblock_rows} block rows",
                f"padding: {self.padding} of {self.nstored} stored entries ({share:.2f} %)",
                f"block rows: longest {self.longest}, mean {self.mean:.2f} blocks; {cut}",
                f"product: {self.parameters}",
            )
        )

    def reference(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        block_col, blocks = self.blocks()
        offsets = self.backend.to_host(self.block_offsets)
        z = np.zeros(self.nblock_rows * self.row_block, dtype=blocks.dtype)
        x_blocks = np.zeros((ceil_div(self.ncols, self.col_block), self.col_block), dtype=blocks.dtype)
        x_blocks.ravel()[: self.ncols] = x
        for i in range(self.nblock_rows):
            rows = slice(i * self.row_block, (i + 1) * self.row_block)
            for b in range(offsets[i], offsets[i + 1]):
                last_part = np.imag(blocks[b]) if np.iscomplexobj(blocks) else blocks[b]
                is_entry = (blocks[b] != 0) | ~np.signbit(last_part)
                products = np.zeros_like(blocks[b])
                np.multiply(blocks[b], x_blocks[block_col[b]][:, None], out=products, where=is_entry)
                z[rows] += products.sum(axis=0)
        return z[: self.nrows] if y is None else y + z[: self.nrows]

    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """Block column and entries of each block, block row by block row: (nblocks,), (nblocks, col_block, row_block).

        Entries are those stored on the device, wherever the kernel has them.
        """
        to_host, size = self.backend.to_host, self.row_block * self.col_block
        block_col, val = to_host(self.block_col), to_host(self.val)
        shape = (self.nblocks, self.col_block, self.row_block)
        if not self.interleaved:
            return block_col, val.reshape(shape)
        place, base, count = interleaved_places(to_host(self.block_offsets), WARP)
        piece, k = 2 - size % 2, np.arange(size)
        of_block = (base * size + (place - base) * piece)[:, None] + k // piece * piece * count[:, None] + k % piece
        return block_col[place], val[of_block].reshape(shape)


def tuning_key(row_block: int) -> str:
    """Matrices with blocks of as many rows take the same parameters."""
    return f"block_size={row_block}"


@compiled_ahead("formats/bsr_layout")
def layout_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    blocks = ("count_blocks", "measure_block_rows", "fill_columns", "order_columns", "interleave_columns")
    yield [(f"bsr_{what}", ()) for what in (*blocks, "cut_block_rows", "fill_segments")]


@compiled_ahead("formats/bsr_values")
def values_kernels() -> Iterator[list[Instance]]:
    """What stores values of full blocks and of others, and what reads the diagonal."""
    yield [("bsr_transpose_values", ()), ("bsr_diagonal", ()), ("bsr_diagonal_interleaved", ())]
    for shape in USUAL_BLOCKS:
        rows = {power_of_two(min(ceil_div(FILL_ROWS, shape[0]), FILL_SLICE))}
        rows |= {WARP for parameters in usual_parameters(*shape) if parameters.kernel == K1}
        yield [("bsr_fill_values", (*shape, *others)) for others in product(sorted(rows), (0, 1))]


@compiled_ahead("formats/bsr")
def product_kernels() -> Iterator[list[Instance]]:
    """Products of blocks, which may have padding, and what adds up block rows that are cut."""
    yield [("bsr_reduce", REDUCE_BLOCK), ("bsr_reduce_fused", REDUCE_BLOCK)]
    for shape in USUAL_BLOCKS:
        chosen = [p for p in usual_parameters(*shape) if p.kernel != K1]
        templates = [
            (*shape, p.tile_height, p.thread_groups, p.thread_arrays, 1, p.entries_per_thread, padded)
            for p, padded in product(chosen, (0, 1))
        ]
        yield from in_parts([("bsr_spmv", template) for template in templates], MOST_IN_A_MODULE)
        if shape[0] == shape[1]:
            fused = [("bsr_fused", template[:-1]) for template in templates[::2]]
            yield from in_parts(fused, MOST_IN_A_MODULE)


@compiled_ahead("formats/bsr_interleaved")
def interleaved_kernels() -> Iterator[list[Instance]]:
    """The same by K1."""
    for shape in USUAL_BLOCKS:
        chosen = [p for p in usual_parameters(*shape) if p.kernel == K1]
        templates = [
            (*shape, p.thread_groups, p.thread_arrays, p.entries_per_thread, padded)
            for p, padded in product(chosen, (0, 1))
        ]
        yield from in_parts([("bsr_spmv_interleaved", template) for template in templates], MOST_IN_A_MODULE)
        if templates and shape[0] == shape[1]:
            yield [("bsr_fused_interleaved", template[:-1]) for template in templates[::2]]


def modules_for(block_size: int) -> Iterator[Module]:
    """Of what is compiled ahead, what matrices of a block size may use, and the levels of elasticity below them."""
    sizes = {block_size, RIGID_MOTIONS.get(block_size, block_size)}
    for stem, kernels in (
        ("formats/bsr_layout", layout_kernels),
        ("formats/bsr_values", values_kernels),
        ("formats/bsr", product_kernels),
        ("formats/bsr_interleaved", interleaved_kernels),
    ):
        for (name, template_arguments), *_ in kernels():
            if sizes.issuperset(template_arguments[:2]):
                yield module_of(stem, instance_name(name, template_arguments))
