"""Rows in slices: sorted by decreasing length within windows, and cut into slices that are padded to their longest row.

Few launches, and no wait where the counts of the pattern tell the padding: small matrices are built often.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import ceil_div, launch_1d
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.patterns.csr import INT64, SLICE_HEIGHT, CsrPattern
from petsc_gpufmt.patterns.scan import SCAN_THREADS

TILE, SORT_THREADS, ROW_THREADS = 1024, 512, 256  # as in kernels/formats/sliced_rows.cu
SCANNED_ROWS = 2048  # of a block of the prefix sum
CONTROL_WORDS = 3  # fields of `Control` there

ARGUMENTS = "nrows height rowptr row_perm offsets control"
OFFSETS = Program(ARGUMENTS, Step("formats/sliced_rows", "sliced_rows_offsets", (), SCAN_THREADS, ARGUMENTS))


class Slices(NamedTuple):
    """Rows sorted within windows of `window` rows and cut into slices of `height`.

    Attributes
    ----------
    row_perm : (nrows,) index or None; row_perm[sorted position] = row, None if rows keep their order
    offsets : (nslices + 1,) int64; slice s has the padded entries offsets[s] to offsets[s + 1]
    nstored : entries of all slices
    """

    height: int
    window: int
    row_perm: Any
    offsets: Any
    nstored: int


def cut(csr: CsrPattern, window: int, height: int, backend: Backend) -> Slices:
    """The slices of `height` rows, sorted within windows of `window`; `height` is a power of two from 8 to 128.

    Waits for the device, unless rows keep their order and slices have the SLICE_HEIGHT rows that were counted.
    """
    csr, counts = csr.counted(backend)
    nslices = ceil_div(csr.nrows, height)
    nblocks = nslices * height // SCANNED_ROWS + 1
    sort = window > 1 and csr.nrows > 1
    control, offsets, row_perm = backend.empty(
        (CONTROL_WORDS + nblocks, INT64), (nslices + 1, INT64), (csr.nrows if sort else 0, backend.index), zeros=1
    )
    if sort:
        put_in_order(csr, counts.longest, window, row_perm, control, backend)
    else:
        row_perm = None
    backend.carry_out(OFFSETS, (nblocks,), (csr.nrows, height, csr.rowptr, row_perm, offsets, control))
    if not sort and height == SLICE_HEIGHT:
        return Slices(height, window, None, offsets, counts.sliced_entries)
    _, nstored, moved = backend.first(control, CONTROL_WORDS)  # waits for the device
    return Slices(height, window, row_perm if moved else None, offsets, nstored)


def sort_rows(csr: CsrPattern, window: int, backend: Backend) -> Any:
    """Stable order of rows by decreasing length within windows of `window` rows: (nrows,) index.

    None if nothing would move. Waits for the device.
    """
    if window <= 1 or csr.nrows <= 1:
        return None
    csr, counts = csr.counted(backend)
    row_perm, control = backend.empty((csr.nrows, backend.index), (CONTROL_WORDS, INT64))
    backend.clear(control)
    put_in_order(csr, counts.longest, window, row_perm, control, backend)
    return row_perm if backend.first(control, CONTROL_WORDS)[-1] else None  # waits for the device


def put_in_order(csr: CsrPattern, longest: int, window: int, row_perm: Any, control: Any, backend: Backend) -> None:
    """The launches of `sort_rows`, into (nrows,) index `row_perm`; `control` tells whether a row has moved."""
    nrows, length_bits, place_bits = csr.nrows, longest.bit_length(), (window - 1).bit_length()

    def run(kernel: str, n: int, threads: int, *arguments: Any) -> None:
        function = backend.function("formats/sliced_rows", kernel, ())
        backend.run([launch_1d(function, n, threads, (nrows, *arguments))])

    threads, sizes = ceil_div(nrows, TILE) * SORT_THREADS, (window, longest, length_bits, place_bits)
    if TILE % window == 0 or nrows <= TILE:  # no window lies in two tiles
        run("sliced_rows_sort", threads, SORT_THREADS, *sizes, csr.rowptr, None, row_perm, control)
        return
    keys, merged = backend.empty((nrows, INT64), (nrows, INT64))  # these go
    run("sliced_rows_sort", threads, SORT_THREADS, *sizes, csr.rowptr, keys, None, control)
    in_order = TILE
    while in_order % window and in_order < nrows:  # a window begins in one run of keys and ends in another
        run("sliced_rows_merge", nrows, ROW_THREADS, in_order, keys, merged)
        keys, merged, in_order = merged, keys, 2 * in_order
    run("sliced_rows_order", nrows, ROW_THREADS, window, place_bits, keys, row_perm)


@compiled_ahead("formats/sliced_rows")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(f"sliced_rows_{what}", ()) for what in ("offsets", "sort", "merge", "order")]
