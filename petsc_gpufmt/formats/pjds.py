"""pJDS, padded jagged diagonals storage (Kreutzer et al. 2012, section II-A), generalised by a sort window.

Rows are sorted by decreasing length within windows of ``sigma_window`` rows, cut into slices of ``slice_height`` rows
(the paper's b_r), and every slice is padded to its longest row and stored column by column. ``sigma_window = n`` is
the paper's format; ``sigma_window = 1`` keeps the order of rows. The kernels write to the rows' own places, so results
are never permuted.

In the literature on SELL-C-sigma a slice is called a chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.errors import IndexOverflowError, OptionError
from petsc_gpufmt.formats.base import Format, Stats
from petsc_gpufmt.plan import Launch, Operation, Slot

SLICE_HEIGHTS = (8, 16, 32, 64, 128)
AUTOMATIC, ALL_ROWS = 0, -1
# Automatic window: the smallest of these whose padding is acceptable. A small window keeps neighbouring rows together,
# which keeps their accesses to x in cache; padding costs its bytes.
AUTOMATIC_WINDOWS = (1, 1024, 16384, ALL_ROWS)
ACCEPTABLE_FILL_RATIO = 0.03
THREADS_PER_BLOCK = 128


class Pjds(Format):
    """One matrix in pJDS.

    Attributes
    ----------
    slice_offsets : (nslices + 1,) int64; slice s occupies entries slice_offsets[s] to slice_offsets[s + 1]
    col : (nstored,) index; column of each stored entry, -1 for padding
    val : (nstored,) scalar; 0 for padding
    row_perm : (nrows,) index or None; row_perm[sorted position] = row, None if rows keep their order
    rowptr, source : of the CSR pattern, kept for REFRESH
    """

    name = "pjds"
    default_options = {"slice_height": AUTOMATIC, "sigma_window": AUTOMATIC}

    def __init__(
        self,
        csr: CsrPattern,
        backend: Backend,
        slice_height: int,
        sigma_window: int,
        row_perm: Any,
        slice_offsets: Any,
        nonempty_rows: int,
    ):
        self.backend = backend
        self.nrows, self.ncols, self.nnz = csr.nrows, csr.ncols, csr.nnz
        self.rowptr, self.source = csr.rowptr, csr.source
        self.slice_height, self.sigma_window = slice_height, sigma_window
        self.row_perm, self.slice_offsets = row_perm, slice_offsets
        self.nslices = int(slice_offsets.size) - 1
        self.nstored = int(slice_offsets[-1])
        self.mean_width = self.nstored / max(1, self.nslices * slice_height)
        self.nonempty_rows = nonempty_rows
        self.col = backend.xp.empty(self.nstored, dtype=backend.index)
        self.val = backend.xp.empty(self.nstored, dtype=backend.scalar)
        backend.run(self._fill("pjds_fill_columns", csr.colidx, self.col, source=None))

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, int]) -> Pjds:
        """Sort, cut and pad. Raises OptionError for a slice height or window that is not offered."""
        height = options["slice_height"] or backend.simd_width
        sigma = options["sigma_window"]
        if height not in SLICE_HEIGHTS:
            choices = ", ".join(map(str, SLICE_HEIGHTS))
            raise OptionError(f"-mat_pjds_slice_height {height}: choose one of {choices}, or 0 for automatic")
        if sigma < ALL_ROWS:
            raise OptionError(
                f"-mat_pjds_sigma_window {sigma}: "
                "choose a number of rows, 1 for no sorting, -1 for all rows, or 0 for automatic"
            )
        lengths = backend.xp.diff(csr.rowptr)
        candidates = AUTOMATIC_WINDOWS if sigma == AUTOMATIC else (sigma,)
        best = None
        for candidate in candidates:
            window = csr.nrows if candidate == ALL_ROWS else min(candidate, csr.nrows)
            perm = sort_rows(lengths, window, backend)
            offsets = slice_offsets(lengths, perm, height, backend.xp)
            nstored = int(offsets[-1])
            if best is None or nstored < best[0]:
                best = nstored, max(window, 1), perm, offsets
            if csr.nnz >= (1 - ACCEPTABLE_FILL_RATIO) * nstored or window >= csr.nrows:
                break
        return cls(csr, backend, height, *best[1:], nonempty_rows=int((lengths > 0).sum()))

    def plan(self, operation: Operation) -> list[Launch]:
        if operation is Operation.REFRESH:
            return self._fill("pjds_fill_values", Slot.VALUES, self.val, source=self.source)
        if not self.nrows:
            return []
        matrix = (self.col, self.val, self.row_perm)
        if operation is Operation.MULT:
            return [self._launch("pjds_spmv", self._threads_per_row(), *matrix, Slot.X, Slot.Z)]
        return [self._launch("pjds_spmv_add", self._threads_per_row(), *matrix, Slot.X, Slot.Y, Slot.Z)]

    def _threads_per_row(self) -> int:
        """More than one where rows are too few to fill the device, and long enough for four entries a thread."""
        threads = 1
        while (
            2 * threads * self.nrows <= self.backend.resident_threads
            and self.mean_width >= 8 * threads
            and 2 * threads * self.slice_height <= 1024
        ):
            threads *= 2
        return threads

    def _fill(self, kernel: str, entries: Any, stored: Any, source: Any) -> list[Launch]:
        """The launch that copies CSR `entries` into `stored`, padding the rest."""
        if not self.nstored:
            return []
        threads_per_row = 2 if self.mean_width < 16 else 4  # on an H200, more thrash the first-level cache
        return [self._launch(kernel, threads_per_row, self.rowptr, self.row_perm, source, entries, stored)]

    def _launch(self, kernel: str, threads_per_row: int, *arguments: Any) -> Launch:
        """A launch with one thread, or several, for each row; all kernels begin with nrows and slice_offsets."""
        slices_per_block = max(1, THREADS_PER_BLOCK // (self.slice_height * threads_per_row))
        block = (self.slice_height, threads_per_row, slices_per_block)
        function = self.backend.function("pjds", kernel, block)
        nrows = self.backend.index.type(self.nrows)
        grid = (-(-self.nslices // slices_per_block), 1, 1)
        return Launch(function, grid, block, (nrows, self.slice_offsets, *arguments))

    def stats(self) -> Stats:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        arrays = [self.slice_offsets, self.col, self.val, self.row_perm, self.rowptr, self.source]
        per_row = 8 / self.slice_height + (index if self.row_perm is not None else 0) + scalar
        return Stats(
            nnz=self.nnz,
            nstored=self.nstored,
            fill_ratio=1 - self.nnz / self.nstored if self.nstored else 0.0,
            bytes_held=sum(int(a.nbytes) for a in arrays if a is not None),
            bytes_per_product=round(self.nstored * (index + scalar) + self.nrows * per_row + self.ncols * scalar),
            nonempty_rows=self.nonempty_rows,
        )

    def summary(self) -> str:
        return f"slice height {self.slice_height}, sigma window {self.sigma_window}"

    def reference(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        to_host = self.backend.to_host
        offsets, col, val = to_host(self.slice_offsets), to_host(self.col), to_host(self.val)
        perm = np.arange(self.nrows) if self.row_perm is None else to_host(self.row_perm)
        z = np.zeros(self.nrows, dtype=val.dtype)
        for position, row in enumerate(perm):
            s, lane = divmod(position, self.slice_height)
            entries = np.arange(offsets[s] + lane, offsets[s + 1], self.slice_height)
            entries = entries[col[entries] >= 0]
            z[row] = val[entries] @ x[col[entries]]
        return z if y is None else y + z


def sort_rows(lengths: Any, window: int, backend: Backend) -> Any:
    """Stable sort of rows by decreasing length within windows of `window` rows; None if nothing would move."""
    xp, nrows = backend.xp, int(lengths.size)
    if window <= 1 or nrows <= 1:
        return None
    longest = int(lengths.max())
    windows = xp.arange(nrows, dtype=xp.int64) // window
    key = windows * (longest + 1) + (longest - lengths)
    if bool((key[1:] >= key[:-1]).all()):
        return None
    return xp.argsort(key, kind="stable").astype(backend.index)


def slice_offsets(lengths: Any, row_perm: Any, height: int, xp: Any) -> Any:
    """Where each slice begins when padded to its longest row: (nslices + 1,) int64."""
    nslices = -(-int(lengths.size) // height)
    if nslices * height > np.iinfo(lengths.dtype).max:
        raise IndexOverflowError(
            f"{int(lengths.size)} rows padded to slices of {height} do not fit {lengths.dtype}: "
            "use a PETSc with 64-bit indices"
        )
    padded = xp.zeros(nslices * height, dtype=lengths.dtype)
    padded[: lengths.size] = lengths if row_perm is None else lengths[row_perm]
    offsets = xp.zeros(nslices + 1, dtype=xp.int64)
    if nslices:
        widths = padded.reshape(nslices, height).max(axis=1).astype(xp.int64)
        offsets[1:] = xp.cumsum(widths * height)
    return offsets
