"""Options of EVC-HYB that depend on the stored columns: threads of a block, entries in flight, columns in 16 bits.

Most products wait for memory, some for x. A slice whose entries share sectors of x, as rows of meshes and stencils do,
reads x once, and its own entries decide. Where x is scattered, every entry is a read of 32 bytes from the second-level
cache, unless other rows on the same multiprocessor have read it before: then large blocks of neighbouring rows pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch
from petsc_gpufmt.formats.common.columns import FULL_ONLY, MIXED, StoredColumns
from petsc_gpufmt.formats.evchyb.layout import AUTOMATIC, OFFSET
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS

SMALL_BATCH, LARGE_BATCH = 4, 8
"""Entries that a thread loads before it uses the first. With the large one, a device holds half as many threads."""

LARGE_BATCH_WIDTH, LARGE_BATCH_SCATTERED_WIDTH = 12, 16
"""Mean slice from which the large batch pays in a large matrix, and in a scattered one."""

BUSY_ENTRIES = 32
"""Entries of a matrix for each thread that a device can hold, from which the longest wait of a thread is hidden."""

SCATTERED_BLOCK_THREADS, SCATTERED_ENTRIES_PER_THREAD = 1024, 64
"""Where x is scattered; teams for fewer entries would take more slices out of their order."""

MIXED_WIDTH = 16
"""Mean slice from which it pays to have both kinds of columns: each slice waits for where its columns begin."""

SAMPLED_PIECES, PIECE_GROUPS = 128, 16  # PIECE / HEIGHT in kernels/formats/evchyb_layout.cu
SECTOR_BYTES = 32
SCATTERED = 0.45
"""Sectors of x for each entry of a piece of the ELL part, from which x is scattered."""


@dataclass(frozen=True)
class Parameters:
    """What a product is launched with; `block_threads` and `entries_per_thread` may be AUTOMATIC."""

    index: str
    block_threads: int
    batch: int
    entries_per_thread: int

    @classmethod
    def of(
        cls,
        options: dict[str, Any],
        columns: Any,
        nstored_ell: int,
        mean_width: float,
        small: bool,
        height: int,
        backend: Backend,
    ) -> Parameters:
        """The options given, and for those that are automatic what suits the (nstored,) stored `columns`.

        `mean_width` : groups of a slice; `small` : memory is not what a product waits for
        """
        ell = columns[:nstored_ell]
        busy = not small and columns.size >= BUSY_ENTRIES * backend.resident_threads
        scattered = busy and 2 * nstored_ell >= columns.size and is_scattered(ell, height, backend)
        least_width = LARGE_BATCH_SCATTERED_WIDTH if scattered else LARGE_BATCH_WIDTH
        large_batch = not busy or mean_width > least_width
        return cls(
            FULL_ONLY if options["index"] == AUTO and (small or scattered) else options["index"],
            options["block_threads"] or (SCATTERED_BLOCK_THREADS if scattered else AUTOMATIC),
            options["batch"] or (LARGE_BATCH if large_batch else SMALL_BATCH),
            options["entries_per_thread"] or (SCATTERED_ENTRIES_PER_THREAD if scattered else AUTOMATIC),
        )

    def compress(
        self, columns: Any, slice_offsets: Any, mean_width: float, height: int, backend: Backend
    ) -> StoredColumns:
        """The columns as `index` asks; if that is AUTO, both kinds in one matrix only where slices are wide."""
        stored = StoredColumns.compress(columns, slice_offsets, height, backend, self.index)
        if self.index == AUTO and stored.mode == MIXED and mean_width < MIXED_WIDTH:
            return StoredColumns.compress(columns, slice_offsets, height, backend, FULL_ONLY)
        return stored


def is_scattered(columns: Any, height: int, backend: Backend) -> bool:
    """Whether the entries of a slice seldom share a sector of x, by pieces spread over (nstored,) `columns`.

    Waits for the device.
    """
    length = PIECE_GROUPS * height
    npieces = int(columns.size) // length
    if not npieces:
        return False
    sampled = np.linspace(0, npieces - 1, min(npieces, SAMPLED_PIECES)).astype(OFFSET)
    (found,) = backend.empty((2, COUNT))
    backend.clear(found)
    function = backend.function("formats/evchyb_layout", "evchyb_count_sectors", ())
    sector_entries = SECTOR_BYTES // backend.scalar.itemsize
    arguments = (length, sector_entries, backend.adopt(sampled, keep=True), columns, found)
    backend.run([Launch(function, (sampled.size, 1, 1), (SCAN_THREADS, 1, 1), arguments)])
    sectors, entries = backend.first(found, 2)  # waits for the device
    return sectors > SCATTERED * entries
