"""Where EVC-HYB stores what: the order of rows, the slices of both parts, and the warps that share each.

Guo, Gropp, Olson, section 2.1, generalised by a sort window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.patterns.csr import CsrPattern

AUTOMATIC, ALL_ROWS = 0, -1
SPLIT_LENGTHS, SMALL_SPLIT_LENGTHS = (128, 256), (64, 128)
"""Longest row of the ELL part: the first, or the second where that pads the longer rows too much. The paper has 128.
In a small matrix longer rows should have more threads."""

ACCEPTABLE_ROW_PADDING, SMALL_ACCEPTABLE_ROW_PADDING = 0.03, 0.08
"""Of the rows longer than that, as a share of all entries."""

AUTOMATIC_WINDOWS = (1, 1024, 4096, 16384, ALL_ROWS)
"""The smallest whose padding is acceptable: small windows keep neighbouring rows together, and what they share of x."""

ACCEPTABLE_PADDING = 0.03
SMALL_BYTES = 30e6
"""Matrix and vectors of this size stay in the second-level cache; all rows are sorted, as locality decides little."""

SAMPLED_WINDOWS = 64


@dataclass(frozen=True)
class RowOrder:
    """The parts of a matrix.

    Attributes
    ----------
    ell_rows : (nell * height,) index or None; rows of the ELL part by slice and lane; None if row i is at i
    long_rows : (nlong,) index; rows of the vCSR part by increasing length
    nell : slices of the ELL part
    sigma_window : rows among which sorting may have moved a row of the ELL part
    """

    ell_rows: Any
    long_rows: Any
    nell: int
    sigma_window: int


@dataclass(frozen=True)
class Slices:
    """Slices of both parts, those of the ELL part first.

    Attributes
    ----------
    offsets : (nslices + 1,) int64; slice s occupies entries offsets[s] to offsets[s + 1]
    segment_row : (nsegments,) index; row of each slice of the vCSR part
    segments : (nsegments, 2) int32; for each of them, the first segment of its row, and how many the row has
    nell, nsegments : slices of the ELL part, slices of the vCSR part
    """

    offsets: Any
    segment_row: Any
    segments: Any
    nell: int
    nsegments: int

    @property
    def nslices(self) -> int:
        return self.nell + self.nsegments


def automatic_split(csr: CsrPattern, lengths: Any, height: int, backend: Backend) -> int:
    """The longest row of the ELL part: along themselves, longer rows are padded to whole groups of `height`."""
    small = is_small(csr, backend)
    splits = SMALL_SPLIT_LENGTHS if small else SPLIT_LENGTHS
    acceptable = SMALL_ACCEPTABLE_ROW_PADDING if small else ACCEPTABLE_ROW_PADDING
    padding = int(backend.xp.where(lengths > splits[0], -lengths % height, 0).sum(dtype=np.int64))
    return splits[padding > acceptable * csr.nnz]


def order_rows(
    csr: CsrPattern, lengths: Any, split_length: int, window: int, height: int, backend: Backend
) -> RowOrder:
    """Sort the rows of at most `split_length` entries by length within windows of `window` rows.

    As many of them as fill slices of `height` rows make up the ELL part; those left over join the long rows in the vCSR
    part, as in the paper. Windows count short rows only, and hold whole slices: they are rounded up to `height`. Rows
    of one length keep their order: neighbouring rows often read the same of x.
    """
    xp = backend.xp
    is_short = lengths <= split_length
    nshort = int(is_short.sum())
    short_rows = xp.arange(csr.nrows) if nshort == csr.nrows else xp.flatnonzero(is_short)
    short_lengths = lengths[short_rows]
    if window == AUTOMATIC:
        window = automatic_window(csr, short_lengths, height, backend)
    window = nshort if window == ALL_ROWS else min(window, nshort)
    if window > 1:
        window = ceil_div(window, height) * height
        order = sort_order(short_lengths, window, xp)
        short_rows = short_rows if order is None else short_rows[order]
    nell = nshort // height
    ell_rows, rest = short_rows[: nell * height], short_rows[nell * height :]
    long_rows = rest if nshort == csr.nrows else xp.concatenate([rest, xp.flatnonzero(~is_short)])
    order = sort_order(lengths[long_rows], max(1, int(long_rows.size)), xp)
    if order is not None:
        long_rows = long_rows[order]
    in_place = not ell_rows.size or bool((ell_rows == xp.arange(ell_rows.size)).all())
    return RowOrder(
        None if in_place else ell_rows.astype(backend.index),
        long_rows.astype(backend.index),
        nell,
        max(1, min(window, nshort)),
    )


def sort_order(lengths: Any, window: int, xp: Any) -> Any:
    """Stable order by length within windows of `window` rows; None if nothing would move.

    One 64-bit key holds window, length and place in the window: all keys differ, and the sorted keys tell the order.
    """
    nrows = int(lengths.size)
    if nrows <= 1:
        return None
    place = xp.arange(nrows, dtype=np.int64)
    first = place // window * window
    bits = window.bit_length()
    key = (first // window * (int(lengths.max()) + 1) + lengths << bits) + (place - first)
    if bool((key[1:] >= key[:-1]).all()):
        return None
    return (xp.sort(key) & (1 << bits) - 1) + first


def is_small(csr: Any, backend: Backend) -> bool:
    """Whether matrix and vectors stay in the second-level cache; `csr` has nrows, ncols and nnz."""
    index, scalar = backend.index.itemsize, backend.scalar.itemsize
    return csr.nnz * (index + scalar) + (csr.nrows + csr.ncols) * scalar <= SMALL_BYTES


def automatic_window(csr: CsrPattern, short_lengths: Any, height: int, backend: Backend) -> int:
    """All rows for a matrix that stays in cache; else the smallest of AUTOMATIC_WINDOWS with acceptable padding."""
    if is_small(csr, backend):
        return ALL_ROWS
    for window in AUTOMATIC_WINDOWS[:-1]:
        if padding_share(short_lengths, window, height, backend.xp) <= ACCEPTABLE_PADDING:
            return window
    return ALL_ROWS


def padding_share(lengths: Any, window: int, height: int, xp: Any) -> float:
    """Padding of the ELL part as a share of its stored entries, from windows evenly spaced where there are many.

    Rows that do not fill a window are left out; 1 if there is no whole window.
    """
    nwindows = int(lengths.size) // max(window, height)
    if not nwindows:
        return 1.0
    rows = lengths[: nwindows * max(window, height)].reshape(nwindows, -1)
    if window > 1:
        rows = xp.sort(rows[xp.linspace(0, nwindows - 1, min(nwindows, SAMPLED_WINDOWS)).astype(np.int64)], axis=1)
    slices = rows.reshape(-1, height)
    used, stored = xp.stack([slices.sum(dtype=np.int64), slices.max(axis=1).sum(dtype=np.int64)]).tolist()
    return 1 - used / (height * stored) if stored else 0.0


def cut_slices(lengths: Any, order: RowOrder, height: int, segment_groups: int, backend: Backend) -> Slices:
    """Slices of `height` rows, each as wide as its longest; longer rows in segments of at most `segment_groups` groups.

    A row of the vCSR part is padded to whole groups of `height` entries, its segments are equal but for one group.
    """
    xp = backend.xp
    in_ell = order.nell * height
    ell_lengths = lengths[:in_ell] if order.ell_rows is None else lengths[order.ell_rows]
    ell_groups = ell_lengths.reshape(order.nell, height).max(axis=1) if order.nell else lengths[:0]
    row_groups = ceil_div(lengths[order.long_rows].astype(np.int64), height)
    counts = xp.maximum(1, ceil_div(row_groups, segment_groups))
    first = xp.zeros(counts.size + 1, dtype=np.int64)
    first[1:] = xp.cumsum(counts)
    nsegments = int(first[-1])
    segment = xp.arange(nsegments, dtype=np.int64)
    position = xp.searchsorted(first[1:], segment, side="right")  # of the row in long_rows
    number, count, groups = segment - first[position], counts[position], row_groups[position]
    offsets = xp.zeros(order.nell + nsegments + 1, dtype=np.int64)
    offsets[1 : order.nell + 1] = ell_groups
    offsets[order.nell + 1 :] = (number + 1) * groups // count - number * groups // count
    offsets = xp.cumsum(offsets) * height
    segments = xp.stack([first[position], count], axis=1).astype(np.int32)
    return Slices(offsets, order.long_rows[position], segments, order.nell, nsegments)
