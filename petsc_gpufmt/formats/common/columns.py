"""Column indices of sliced storage, full or in 16 bits.

Stored entries lie in groups of ``height`` neighbours: a column of a slice, or a piece of a row. Columns of one group
are often close to each other, and then an entry needs only its distance from the smallest column of its group. The
choice is made for each slice, and loses nothing: mults are bit for bit those with full columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, ceil_div
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.csr import INT64
from petsc_gpufmt.patterns.scan import SCAN_THREADS, tiles

FULL, SHORT, MIXED = 0, 1, 2
"""Index modes, as in kernels/formats/columns.cuh: all columns full, all short, or full in some slices."""

FULL_ONLY, SHORT_WHERE_IT_FITS = "full", "short"
CHOICES = (AUTO, FULL_ONLY, SHORT_WHERE_IT_FITS)
"""The fewest bytes a mult; full columns; short ones in every slice where they fit."""

SHORT_PADDING = 0xFFFF
THREADS_PER_BLOCK = 128
SCANNED_A_THREAD, CONTROL_WORDS = 4, 2  # of columns_wide_offsets
UINT16 = np.dtype(np.uint16)


class StoredColumns(NamedTuple):
    """The columns of (nstored,) entries in slices.

    Attributes
    ----------
    mode : FULL, SHORT or MIXED
    height : entries of a group; every slice is a whole number of groups
    nstored, nwide : entries of all slices; of those that keep full columns where the mode is MIXED
    slice_offsets : (nslices + 1,) int64 where the slices begin, None if each group is a slice
    col : (nstored,) index if FULL, (nwide,) index if MIXED, else None; -1 in padding
    col_offset : (nstored,) uint16 or None; column - base of the group, 0xFFFF in padding, anything in wide slices
    col_base : (nstored / height,) index or None; smallest column of each group
    wide_offset : (nslices,) int64 or None; where the full columns of a slice begin in `col`, -1 if it has short ones
    """

    mode: int
    height: int
    nstored: int
    slice_offsets: Any
    backend: Backend
    col: Any = None
    col_offset: Any = None
    col_base: Any = None
    wide_offset: Any = None
    nwide: int = 0

    @classmethod
    def compress(
        cls,
        col: Any,
        slice_offsets: Any,
        height: int,
        backend: Backend,
        choice: str = AUTO,
        ncols: int | None = None,
    ) -> StoredColumns:
        """Store the columns `col`: (nstored,) index, -1 in padding; the array is kept where they stay full.

        `slice_offsets` is None if each group is a slice. Waits for the device, but where `ncols`, the columns that the
        matrix has, says that all fit.
        """
        full = cls(FULL, height, int(col.size), slice_offsets, backend, col)
        if choice == FULL_ONLY or not col.size:
            return full
        short = full._shortened(all_fit=ncols is not None and ncols <= SHORT_PADDING)
        return full if choice == AUTO and short.bytes_per_mult >= full.bytes_per_mult else short

    @property
    def members(self) -> tuple[Any, Any, Any, Any]:
        """Those of StoredColumns in the kernels; None for what the mode does not have."""
        return self.col, self.col_offset, self.col_base, self.wide_offset

    @property
    def nslices(self) -> int:
        return self.nstored // self.height if self.slice_offsets is None else int(self.slice_offsets.size) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(a.nbytes) for a in self.members if a is not None)

    @property
    def bytes_per_mult(self) -> int:
        """Bytes of them that a mult reads."""
        index = self.backend.index.itemsize
        if self.mode == FULL:
            return self.nstored * index
        nshort = self.nstored - self.nwide
        wide = self.nwide * index + self.nslices * 8 if self.mode == MIXED else 0
        return nshort * 2 + nshort // self.height * index + wide

    def decode(self) -> np.ndarray:
        """(nstored,) column of every entry, -1 in padding."""
        to_host = self.backend.to_host
        if self.mode == FULL:
            return to_host(self.col)
        offset, base = to_host(self.col_offset), to_host(self.col_base)
        columns = np.where(offset == SHORT_PADDING, -1, np.repeat(base, self.height) + offset).astype(base.dtype)
        if self.mode == MIXED:
            wide_offset, col = to_host(self.wide_offset), to_host(self.col)
            sizes = np.full(self.nslices, self.height)
            if self.slice_offsets is not None:
                sizes = np.diff(to_host(self.slice_offsets))
            columns[np.repeat(wide_offset >= 0, sizes)] = col
        return columns

    def summary(self) -> str:
        """The mode in words."""
        if self.mode == MIXED:
            return f"16-bit columns, full ones for {self.nwide} of {self.nstored} entries"
        return "16-bit columns" if self.mode == SHORT else "full columns"

    def _shortened(self, all_fit: bool) -> StoredColumns:
        """These full columns in 16 bits, but for the slices that have a group where they do not fit, if any may."""
        backend, height, nslices = self.backend, self.height, self.nslices
        ngroups = self.nstored // height
        nblocks = tiles(nslices, SCANNED_A_THREAD)
        nwords = 0 if all_fit else CONTROL_WORDS + nblocks + nslices
        kept = (self.nstored, UINT16), (ngroups, backend.index)
        col_offset, col_base, words = backend.empty(*kept, (nwords, INT64))
        short = self._replace(mode=SHORT, col=None, col_offset=col_offset, col_base=col_base)
        lanes = min(height, 32)
        block = (lanes, THREADS_PER_BLOCK // lanes, 1)

        def compress(wide_size: Any) -> None:
            arguments = (ngroups, height, nslices, self.slice_offsets, self.col, col_offset, col_base, wide_size)
            self._run("columns_compress", ceil_div(ngroups, block[1]), block, arguments)

        if all_fit:
            compress(None)
            return short
        backend.clear(words)
        control, states = words[:CONTROL_WORDS], words[CONTROL_WORDS : CONTROL_WORDS + nblocks]
        wide_offset = words[CONTROL_WORDS + nblocks :]  # sizes of wide slices at first
        compress(wide_offset)
        self._run("columns_wide_offsets", nblocks, (SCAN_THREADS, 1, 1), (nslices, wide_offset, control, states))
        _, nwide = backend.first(control, CONTROL_WORDS)  # waits for the device
        if not nwide:
            return short
        (wide_col,) = backend.empty((nwide, backend.index))
        arguments = (height, self.slice_offsets, wide_offset, self.col, wide_col)
        self._run("columns_copy_wide", nslices, (THREADS_PER_BLOCK, 1, 1), arguments)
        return short._replace(mode=MIXED, col=wide_col, wide_offset=wide_offset, nwide=nwide)

    def _run(self, kernel: str, nblocks: int, block: tuple[int, int, int], arguments: tuple[Any, ...]) -> None:
        function = self.backend.function("formats/columns", kernel, ())
        self.backend.run([Launch(function, (nblocks, 1, 1), block, arguments)])


@compiled_ahead("formats/columns")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    yield [(f"columns_{what}", ()) for what in ("compress", "wide_offsets", "copy_wide")]
