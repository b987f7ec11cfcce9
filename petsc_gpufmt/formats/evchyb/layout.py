"""Where EVC-HYB stores what: how long rows are, where they are split, and the slices of both parts.

Guo, Gropp, Olson, section 2.1, generalised by a sort window. The structure is made by kernels, which rows and slices
are never brought to the host for: sizes are known after one wait for the lengths of rows, and one for the slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import ceil_div, launch_1d
from petsc_gpufmt.patterns.csr import SLICE_HEIGHT, CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles

AUTOMATIC = 0
SPLIT_LENGTHS, SMALL_SPLIT_LENGTHS = (128, 256), (64, 128)
"""Longest row of the ELL part: the first, or the second where that pads the longer rows too much. The paper has 128.
In a small matrix longer rows should have more threads."""

ACCEPTABLE_ROW_PADDING, SMALL_ACCEPTABLE_ROW_PADDING = 0.03, 0.08
"""Of the rows longer than that, as a share of all entries."""

SMALL_BYTES = 30e6
"""Matrix and vectors of this size stay in the second-level cache; all rows are sorted, as locality decides little."""

OFFSET = np.dtype(np.int64)
FETCHED_AT_ONCE = 512  # counts: the most bytes that a backend brings to the host without an array for them


class RowCounts(NamedTuple):
    """What is counted of the rows of a matrix, for two split lengths.

    Attributes
    ----------
    padding : what whole groups add to rows longer than the first split length
    nshort : rows of at most each split length
    segments : of the longer rows
    nonempty_rows : rows with an entry
    descends : whether a row is longer than the next
    sliced, in_slices : of the whole slices of the rows in their order, the sum of longest rows, and all entries
    longest : entries of the longest row
    """

    padding: int = 0
    nshort: tuple[int, int] = (0, 0)
    segments: tuple[int, int] = (0, 0)
    nonempty_rows: int = 0
    descends: bool = False
    sliced: int = 0
    longest: int = 0
    in_slices: int = 0

    @classmethod
    def of(
        cls, csr: CsrPattern, splits: tuple[int, int], height: int, segment_groups: int, backend: Backend
    ) -> RowCounts:
        """Counted for split lengths `splits`. Waits for the device, but in a small matrix with automatic ones."""
        if not csr.nrows:
            return cls()
        whole_rows = height == SLICE_HEIGHT and csr.counts and csr.counts.longest <= segment_groups * height
        if whole_rows and splits == SMALL_SPLIT_LENGTHS:
            return cls.known(csr)
        (counts,) = backend.empty((10, COUNT))
        backend.clear(counts)
        threads = backend.in_turns(csr.nrows)
        function = backend.function("formats/evchyb_layout", "evchyb_count_rows", ())
        arguments = (csr.nrows, height, *splits, segment_groups, csr.rowptr, counts)
        backend.run([launch_1d(function, threads, SCAN_THREADS, arguments)])
        padding, *sums, nonempty, descents, sliced, longest, in_slices = backend.first(
            counts, 10
        )  # waits for the device
        of_splits = (sums[0], sums[1]), (sums[2], sums[3])
        return cls(padding, *of_splits, nonempty, descents > 0, sliced, longest, in_slices)

    @classmethod
    def known(cls, csr: CsrPattern) -> RowCounts:
        """For SMALL_SPLIT_LENGTHS and rows of one segment, all that decides on a small matrix; no `sliced` entries."""
        counts = csr.counts
        first, second = (sum(counts.lengths[: split.bit_length() + 1]) for split in SMALL_SPLIT_LENGTHS)
        of_splits = (first, second), (csr.nrows - first, csr.nrows - second)
        return cls(counts.padding[0], *of_splits, counts.nonempty_rows, counts.descends, 0, counts.longest, 0)


class Split(NamedTuple):
    """Where rows are split: the longest row of the ELL part, how many rows are not longer, segments of the others."""

    length: int
    nshort: int
    segments: int


class RowOrder(NamedTuple):
    """The parts of a matrix.

    Attributes
    ----------
    ell_rows : (nell * height,) index or None; rows of the ELL part by slice and lane; None if row i is at i
    long_rows : (nlong,) index or None
        Rows of the vCSR part by increasing length; None if row nell * height + i is at i.
    nell : slices of the ELL part
    sigma_window : rows among which sorting may have moved a row of the ELL part
    """

    ell_rows: Any
    long_rows: Any
    nell: int
    sigma_window: int


class Slices(NamedTuple):
    """Slices of both parts, those of the ELL part first.

    Attributes
    ----------
    offsets : (nslices + 1,) int64; slice s occupies entries offsets[s] to offsets[s + 1]
    segment_row : (nsegments,) index; row of each slice of the vCSR part
    segments : (2 nsegments,) int32; for each of them, the first segment of its row, and how many the row has
    nell, nsegments : slices of the ELL part, slices of the vCSR part
    moved : whether a row of the ELL part is not in its place
    nnz_ell, nstored_ell, nstored : entries of the ELL part, and with padding; those of both parts with padding
    ell_widths, segment_widths : how many slices of each part have 0, 1, 2, ... groups, up to the widest
        Segments of split rows count as whole ones: so the size of teams grows with the row.
    """

    offsets: Any
    segment_row: Any
    segments: Any
    nell: int
    nsegments: int
    moved: bool
    nnz_ell: int
    nstored_ell: int
    nstored: int
    ell_widths: list[int]
    segment_widths: list[int]

    @property
    def nslices(self) -> int:
        return self.nell + self.nsegments


def split_lengths(csr: CsrPattern, given: int, backend: Backend) -> tuple[int, int]:
    """The split lengths to choose from: the one that is given, if one is."""
    if given:
        return given, given
    return SMALL_SPLIT_LENGTHS if is_small(csr, backend) else SPLIT_LENGTHS


def choose_split(csr: CsrPattern, splits: tuple[int, int], counts: RowCounts, backend: Backend) -> Split:
    """The first of two split lengths, or the second where that pads the longer rows too much along themselves."""
    acceptable = SMALL_ACCEPTABLE_ROW_PADDING if is_small(csr, backend) else ACCEPTABLE_ROW_PADDING
    which = int(counts.padding > acceptable * csr.nnz)
    return Split(splits[which], counts.nshort[which], counts.segments[which])


def is_small(csr: Any, backend: Backend) -> bool:
    """Whether matrix and vectors stay in the second-level cache; `csr` has nrows, ncols and nnz."""
    index, scalar = backend.index.itemsize, backend.scalar.itemsize
    return csr.nnz * (index + scalar) + (csr.nrows + csr.ncols) * scalar <= SMALL_BYTES


def cut_slices(
    csr: CsrPattern,
    counts: RowCounts,
    split: Split,
    order: RowOrder,
    height: int,
    segment_groups: int,
    backend: Backend,
) -> Slices:
    """Slices of `height` rows, each as wide as its longest; longer rows in segments of at most `segment_groups` groups.

    A row of the vCSR part is padded to whole groups of `height` entries, its segments are equal but for one group.
    Waits for the device.
    """
    nell, nlong = order.nell, csr.nrows - order.nell * height
    nsegments, first_segment = nlong, None
    if counts.longest > segment_groups * height:
        # short rows that do not fill a slice have one segment each, unless the split length is a very long one
        known = split.segments + split.nshort - nell * height if split.length <= segment_groups * height else None
        nsegments, first_segment = find_segments(csr, order, height, segment_groups, known, backend)
    widths = (min(split.length, counts.longest) + 1, min(segment_groups, ceil_div(counts.longest, height)) + 1)
    nfound, ntiles = 4 + sum(widths), tiles(nell + nsegments + 1)
    kept = (nell + nsegments + 1, OFFSET), (nsegments, backend.index), (2 * nsegments, np.dtype(np.int32))
    offsets, segment_row, segments, work = backend.empty(*kept, (nfound + 1 + ntiles, COUNT))
    backend.clear(work)
    function = backend.function("formats/evchyb_layout", "evchyb_cut_slices", ())
    rows = (order.ell_rows, order.long_rows, csr.rowptr, first_segment)
    found = (work[:4], work[4 : 4 + widths[0]], work[4 + widths[0] : nfound], work[nfound:])
    sizes = (nell, nsegments, nlong, height, segment_groups)
    arguments = (*sizes, *rows, offsets, segment_row, segments, *found)
    backend.run([launch_1d(function, nell + nsegments + 1, SCAN_THREADS, arguments)])
    moved, nnz_ell, nstored_ell, nstored, *counted = fetched(work, nfound, backend)
    ell_widths, segment_widths = (up_to_widest(part) for part in (counted[: widths[0]], counted[widths[0] :]))
    entries = (nnz_ell, nstored_ell, nstored)
    return Slices(offsets, segment_row, segments, nell, nsegments, bool(moved), *entries, ell_widths, segment_widths)


def find_segments(
    csr: CsrPattern, order: RowOrder, height: int, segment_groups: int, known: int | None, backend: Backend
) -> tuple[int, Any]:
    """How many segments the rows of the vCSR part have, and the first of each row: (nlong + 1,) int64.

    Waits for the device if it is not `known` how many.
    """
    in_ell = order.nell * height
    nlong = csr.nrows - in_ell
    (first_segment,) = backend.empty((nlong + 1, OFFSET))
    (control,) = backend.empty((1 + tiles(nlong + 1), COUNT))
    backend.clear(control)
    function = backend.function("formats/evchyb_layout", "evchyb_first_segments", ())
    arguments = (nlong, height, segment_groups, in_ell, order.long_rows, csr.rowptr, first_segment, control)
    backend.run([launch_1d(function, nlong + 1, SCAN_THREADS, arguments)])
    if known is None:
        (known,) = backend.first(first_segment[nlong:], 1)  # waits for the device
    return known, first_segment


def fetched(counts: Any, n: int, backend: Backend) -> list[int]:
    """The first `n` counts. Waits for the device."""
    if n <= FETCHED_AT_ONCE:
        return backend.first(counts, n)
    return backend.to_host(counts[:n]).tolist()


def up_to_widest(counts: list[int]) -> list[int]:
    """How many slices have 0, 1, 2, ... groups, without the widths that none has."""
    widest = len(counts) - 1
    while widest > 0 and not counts[widest]:
        widest -= 1
    return counts[: widest + 1]


@compiled_ahead("formats/evchyb_layout")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    rows = (
        "count_rows",
        "split_rows",
        "measure_slices",
        "sample_rows",
        "count_digits",
        "add_up",
        "move_rows",
        "sort_tile",
    )
    yield [(f"evchyb_{what}", ()) for what in (*rows, "first_segments", "cut_slices", "deal", "count_sectors")]
