"""What ELLPACK, ELLPACK-R and JDS share: entries j of all rows stored side by side, one thread to sum each row."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch, Slot, ceil_div, launch_1d
from petsc_gpufmt.errors import OptionError, OutOfMemoryError
from petsc_gpufmt.formats.common.base import Format, Stats
from petsc_gpufmt.patterns.csr import CsrPattern

BLOCK_THREADS = (64, 128, 256, 512)
# Storage is refused where it is both this many times the nonzeros and more than this many bytes.
REFUSED_STORED_PER_NONZERO = 64
REFUSED_BYTES = 1 << 30


class EllFormat(Format):
    """One matrix whose entry j of the row at position p lies at place(j) + p.

    Attributes
    ----------
    col : (nstored,) index; column of each stored entry, -1 for padding
    val : (nstored,) scalar; 0 for padding
    longest : entries of the longest row
    block_threads : threads of a block, one for each row
    rowptr, source : of the CSR pattern, kept for REFRESH
    """

    fill_stem: ClassVar[str]
    """Stem of the fill kernels."""

    def __init__(self, csr: CsrPattern, backend: Backend, options: dict[str, int], lengths: Any, longest: int):
        self.backend = backend
        self.nrows, self.ncols, self.nnz = csr.nrows, csr.ncols, csr.nnz
        self.rowptr, self.source = csr.rowptr, csr.source
        self.longest = longest
        self.nonempty_rows = int((lengths > 0).sum())
        self.block_threads = self._block_threads(options["block_threads"])

    def store(self, nstored: int, csr: CsrPattern) -> None:
        """Allocate and fill `nstored` entries; OutOfMemoryError if they are too many."""
        self.nstored = nstored
        entry_bytes = self.backend.index.itemsize + self.backend.scalar.itemsize
        if nstored > REFUSED_STORED_PER_NONZERO * self.nnz and nstored * entry_bytes > REFUSED_BYTES:
            raise OutOfMemoryError(self._too_much(nstored * entry_bytes))
        try:
            self.col = self.backend.xp.empty(nstored, dtype=self.backend.index)
            self.val = self.backend.xp.empty(nstored, dtype=self.backend.scalar)
        except MemoryError as e:  # of NumPy and CuPy
            raise OutOfMemoryError(self._too_much(nstored * entry_bytes)) from e
        self.backend.run(self._fill("columns", csr.colidx, self.col, source=None))

    def _too_much(self, size: int) -> str:
        return (
            f"-mat_type {self.name} needs {size / 1e9:.2f} GB for {self.nnz} nonzeros: "
            f"the longest row has {self.longest} of them, the mean row {self.nnz / max(1, self.nrows):.1f}; "
            "use -mat_type pjds or evchyb, which do not pad short rows to the longest"
        )

    def _block_threads(self, asked: int) -> int:
        if asked and asked not in BLOCK_THREADS:
            choices = ", ".join(map(str, BLOCK_THREADS))
            raise OptionError(f"-mat_{self.name}_block_threads {asked}: choose one of {choices}, or 0 for automatic")
        # smaller blocks spread few rows more evenly over the multiprocessors
        return asked or (256 if self.nrows >= self.backend.resident_threads else 128)

    @abstractmethod
    def row_arguments(self) -> tuple[Any, ...]:
        """Arguments of the kernels of mult between nrows and col."""

    @abstractmethod
    def place_arguments(self) -> tuple[Any, ...]:
        """Arguments of the fill kernels between nrows and rowptr."""

    @abstractmethod
    def positions(self) -> int:
        """Rows and the padding after them."""

    def mult(self, alpha: float, beta: float) -> list[Launch]:
        factors = (self.backend.by_value(alpha), self.backend.by_value(beta))
        return self._launch("spmv", Slot.X, *factors, Slot.Y if beta else None, Slot.Z)

    def diagonal(self) -> list[Launch]:
        return self._launch("diagonal", Slot.Z)

    def _launch(self, operation: str, *vectors: Any) -> list[Launch]:
        if not self.nrows:
            return []
        function = self.backend.function(f"formats/{self.name}", f"{self.name}_{operation}", (self.block_threads,))
        arguments = (self.backend.index.type(self.nrows), *self.row_arguments(), self.col, self.val, *vectors)
        return [launch_1d(function, self.nrows, self.block_threads, arguments)]

    def refresh(self) -> list[Launch]:
        return self._fill("values", Slot.VALUES, self.val, source=self.source)

    def _fill(self, what: str, entries: Any, stored: Any, source: Any) -> list[Launch]:
        """The launch that copies CSR `entries` into `stored`, padding the rest."""
        if not self.nstored:
            return []
        block = (64, 2, 1) if self.nstored < 16 * self.nrows else (32, 4, 1)
        function = self.backend.function(f"formats/{self.fill_stem}", f"{self.fill_stem}_fill_{what}", block[:2])
        places = (self.backend.index.type(self.nrows), *self.place_arguments())
        grid = (ceil_div(self.positions(), block[0]), 1, 1)
        return [Launch(function, grid, block, (*places, self.rowptr, source, entries, stored))]

    def row_arrays(self) -> list[Any]:
        """The arrays that a mult reads besides col and val."""
        return [a for a in self.row_arguments() if a is not None and a.ndim]

    def entries_read(self) -> int:
        """Stored entries that a mult reads."""
        return self.nnz

    def stats(self) -> Stats:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        rows = sum(int(a.nbytes) for a in self.row_arrays())
        kept = sum(int(a.nbytes) for a in (self.rowptr, self.source) if a is not None)
        return Stats(
            nnz=self.nnz,
            nstored=self.nstored,
            fill_ratio=1 - self.nnz / self.nstored if self.nstored else 0.0,
            bytes_held=self.nstored * (index + scalar) + rows + kept,
            bytes_per_mult=self.entries_read() * (index + scalar) + rows + (self.nrows + self.ncols) * scalar,
            nonempty_rows=self.nonempty_rows,
        )

    def detail(self) -> str:
        index, scalar = self.backend.index.itemsize, self.backend.scalar.itemsize
        csr = self.nnz * (index + scalar) + (self.nrows + 1) * index
        ours = self.nstored * (index + scalar) + sum(int(a.nbytes) for a in self.row_arrays())
        return (
            f"rows: longest {self.longest}, mean {self.nnz / max(1, self.nrows):.2f}\n"
            f"memory: {ours} bytes, {ours / csr:.4f} times the {csr} of CSR"
        )

    def rows_of_positions(self) -> np.ndarray:
        """(nrows,) the row at each position, on the host."""
        return np.arange(self.nrows)

    @abstractmethod
    def row_entries(self, position: int) -> np.ndarray:
        """Where the entries that the row at `position` multiplies lie in col and val, on the host."""

    def reference(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        col, val = self.backend.to_host(self.col), self.backend.to_host(self.val)
        z = np.zeros(self.nrows, dtype=val.dtype)
        for position, row in enumerate(self.rows_of_positions()):
            entries = self.row_entries(position)
            entries = entries[col[entries] >= 0]
            z[row] = val[entries] @ x[col[entries]]
        return z if y is None else y + z

    @classmethod
    def tuning_key(cls, csr: CsrPattern) -> str:
        """Mean row length, rounded up to a power of two."""
        mean = ceil_div(int(csr.nnz), max(1, int(csr.nrows)))
        return f"row_length<={1 << max(0, mean - 1).bit_length()}"

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        return [{"block_threads": threads} for threads in BLOCK_THREADS]


def row_lengths(csr: CsrPattern, backend: Backend) -> tuple[Any, int]:
    """Entries of each row, (nrows,) index, and of the longest."""
    xp = backend.xp
    lengths = xp.diff(xp.asarray(csr.rowptr))
    return lengths, int(lengths.max()) if csr.nrows else 0
