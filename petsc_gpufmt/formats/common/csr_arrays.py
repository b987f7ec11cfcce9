"""What the formats that keep the arrays of CSR have in common: 16-bit columns, launches, refresh, sizes, reference."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Launch, Slot, launch_1d, power_of_two
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common.base import Format, Stats
from petsc_gpufmt.formats.common.columns import CHOICES, FULL_ONLY
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.csr import INT64, CsrPattern, gather_values

AUTOMATIC = 0
LARGEST_OFFSET = 65534  # of a 16-bit column from the first column of its row
BLOCK_THREADS = (64, 128, 256, 512)
FILL_THREADS = 256  # a block of the kernels that store columns
SHORT = np.dtype(np.uint16)


class CsrFormat(Format):
    """A matrix in CSR, its entries in the order of the pattern.

    Attributes
    ----------
    rowptr : (nrows + 1,) index; row i has entries rowptr[i] to rowptr[i + 1]
    col : (nnz,) index, columns; or uint16, columns from col_base of their row
    col_base : (nrows,) index or None; smallest column of each row, None if `col` holds columns
    val : (nnz,) scalar
    source : (nnz,) index or None; of the CSR pattern, kept for REFRESH
    block_threads : threads a block of the mult
    """

    default_options = {"block_threads": AUTOMATIC, "index": AUTO}
    words = {"index": CHOICES}
    default_block_threads: ClassVar[int]

    def __init__(self, csr: CsrPattern, backend: Backend, index: str, block_threads: int):
        """Copy the pattern; `index` is one of the choices of `columns`."""
        self.backend, self.block_threads = backend, block_threads
        self.nrows, self.ncols, self.nnz = csr.nrows, csr.ncols, csr.nnz
        self.rowptr, self.source = csr.rowptr, csr.source
        self.col, self.col_base, self.nonempty_rows = self._store_columns(csr.colidx, index)
        (self.val,) = backend.empty((self.nnz, backend.scalar))

    @classmethod
    def build(cls, csr: CsrPattern, backend: Backend, options: dict[str, Any]) -> CsrFormat:
        """Copy the pattern. Raises OptionError for options that are not offered."""
        options = cls.with_measured(options, csr, backend)
        threads = cls.choose("block_threads", options, BLOCK_THREADS, cls.default_block_threads)
        return cls(csr, backend, options["index"], threads)

    @classmethod
    def tuning_space(cls, csr: CsrPattern) -> list[dict[str, int | str]]:
        return [{"block_threads": threads} for threads in BLOCK_THREADS]

    @classmethod
    def tuning_key(cls, csr: CsrPattern) -> str:
        """Matrices whose mean row lengths lie between the same powers of two share their best options."""
        return f"row_length<={power_of_two(csr.nnz / max(1, csr.nrows), 1, 4096)}"

    @classmethod
    def choose(cls, option: str, options: dict[str, Any], offered: tuple[int, ...], default: int) -> int:
        """An option as given, else `default`. OptionError for a value that is not offered."""
        value = options[option] or default
        if value not in offered:
            choices = ", ".join(map(str, offered))
            raise OptionError(
                f"-mat_{cls.name}_{option} {value}: choose one of {choices}, or {AUTOMATIC} for automatic"
            )
        return value

    @property
    @abstractmethod
    def nblocks(self) -> int:
        """Blocks of the mult."""

    @property
    def template_arguments(self) -> tuple[int, ...]:
        """Template arguments of the mult before block_threads and the kind of columns."""
        return ()

    @property
    def row_arguments(self) -> tuple[Any, ...]:
        """Arguments of the mult before the columns: where rows begin."""
        return self.backend.index.type(self.nrows), self.rowptr

    def mult(self, alpha: float, beta: float) -> list[Launch]:
        scalar = self.backend.by_value
        return self._over_matrix("spmv", Slot.X, scalar(alpha), scalar(beta), Slot.Y if beta else None, Slot.Z)

    def diagonal(self) -> list[Launch]:
        return self._over_matrix("diagonal", Slot.Z)

    def _over_matrix(self, operation: str, *operands: Any) -> list[Launch]:
        return [self._product(operation, self.nblocks, *operands)] if self.nrows else []

    def _product(self, operation: str, nblocks: int, *operands: Any) -> Launch:
        template = (*self.template_arguments, self.block_threads, int(self.col_base is not None))
        function = self.backend.function(f"formats/{self.name}", f"{self.name}_{operation}", template)
        arguments = (*self.row_arguments, self.col, self.col_base, self.val, *operands)
        return Launch(function, (nblocks, 1, 1), (self.block_threads, 1, 1), arguments)

    def refresh(self) -> list[Launch]:
        if not self.nnz:
            return []
        return [gather_values(self.backend, self.nnz, self.source, Slot.VALUES, self.val)]

    def _store_columns(self, colidx: Any, index: str) -> tuple[Any, Any, int]:
        """col and col_base for the option `index`, and how many rows have entries. Waits for the device."""
        backend, index_dtype = self.backend, self.backend.index
        if not self.nnz:
            return backend.adopt(colidx, keep=True), None, 0
        saved = self.nnz * (index_dtype.itemsize - 2) - self.nrows * index_dtype.itemsize
        short = index != FULL_ONLY and (index != AUTO or saved > 0)
        rows = (index_dtype.type(self.nrows), self.rowptr)
        threads_per_row = power_of_two(self.nnz / self.nrows / 4, 1, WARP)
        threads = self.nrows * threads_per_row
        found, col_base, col = backend.empty(
            (2, INT64), (self.nrows if short else 0, index_dtype), (self.nnz if short else 0, SHORT)
        )
        backend.clear(found)
        seen = (colidx, col_base if short else None, found)
        backend.run([self._fill("csr_row_spans", threads_per_row, threads, *rows, *seen)])
        nonempty_rows, widest = backend.first(found, 2)  # waits for the device
        if not short or widest > LARGEST_OFFSET:
            return backend.adopt(colidx, keep=True), None, nonempty_rows
        backend.run([self._fill("csr_fill_offsets", threads_per_row, threads, *rows, col_base, colidx, col)])
        return col, col_base, nonempty_rows

    def _fill(self, kernel: str, threads_per_row: int, threads: int, *arguments: Any) -> Launch:
        """A launch of a kernel that stores columns."""
        function = self.backend.function("formats/csr_arrays", kernel, (FILL_THREADS, threads_per_row))
        return launch_1d(function, threads, FILL_THREADS, arguments)

    def stats(self) -> Stats:
        candidates = (*self.row_arguments, self.col, self.col_base, self.val)
        read = sum(int(a.nbytes) for a in candidates if a is not None and not isinstance(a, np.generic))
        return Stats(
            nnz=self.nnz,
            nstored=self.nnz,
            fill_ratio=0.0,
            bytes_held=read + (0 if self.source is None else int(self.source.nbytes)),
            bytes_per_mult=read + (self.nrows + self.ncols) * self.backend.scalar.itemsize,
            nonempty_rows=self.nonempty_rows,
        )

    def summary(self) -> str:
        columns = "full columns" if self.col_base is None else "16-bit columns"
        return f"{self.block_threads} threads a block, {columns}"

    def reference(self, x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        rowptr, col, val = (self.backend.to_host(a) for a in (self.rowptr, self.col, self.val))
        rows = np.repeat(np.arange(self.nrows), np.diff(rowptr))
        columns = col if self.col_base is None else col + self.backend.to_host(self.col_base)[rows]
        z = np.zeros(self.nrows, dtype=val.dtype)
        np.add.at(z, rows, val * x[columns])
        return z if y is None else y + z


@compiled_ahead("formats/csr_arrays")
def default_kernels() -> Iterator[list[Instance]]:
    """What stores columns in 16 bits, by the threads of a row."""
    templates = [(FILL_THREADS, threads_per_row) for threads_per_row in (1, 2, 4, 8, 16, 32)]
    yield list(product(("csr_row_spans", "csr_fill_offsets"), templates))
