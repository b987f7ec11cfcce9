"""The order of rows in EVC-HYB: short rows sorted by length within windows, long rows among all.

Rows are sorted by a stable counting sort by the digits of their lengths: a few launches, and no wait.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch, ceil_div, launch_1d
from petsc_gpufmt.formats.evchyb.layout import (
    AUTOMATIC,
    OFFSET,
    RowCounts,
    RowOrder,
    Split,
    is_small,
)
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles

ALL_ROWS = -1
AUTOMATIC_WINDOWS = (1, 1024, 4096, 16384, ALL_ROWS)
"""The smallest whose padding is acceptable: small windows keep neighbouring rows together, and what they share of x."""

ACCEPTABLE_PADDING = 0.03
SAMPLED_WINDOWS = 64

TILE, DIGIT_BITS, COUNTS_A_THREAD = 1024, 8, 4  # TILE, bits of DIGITS, COUNTS in kernels/formats/evchyb_layout.cu


def order_rows(
    csr: CsrPattern, counts: RowCounts, split: Split, window: int, height: int, backend: Backend
) -> RowOrder:
    """Sort the rows of at most `split.length` entries by length within windows of `window` rows.

    As many of them as fill slices of `height` rows make up the ELL part; those left over join the long rows in the vCSR
    part, as in the paper. Windows count short rows only, and hold whole slices: they are rounded up to `height`. Rows
    of one length keep their order: neighbouring rows often read the same of x.
    """
    nrows, nshort, nell = csr.nrows, split.nshort, split.nshort // height
    in_ell, parts = nell * height, None
    if window == AUTOMATIC and is_small(csr, backend):
        window = ALL_ROWS
    elif window == AUTOMATIC:
        parts = split_rows(csr, split, backend)
        window = automatic_window(csr, counts, split, parts, height, backend)
    window = nshort if window == ALL_ROWS else min(window, nshort)
    if window > 1:
        window = ceil_div(window, height) * height
    sigma_window = max(1, min(window, nshort))
    if not counts.descends:
        return RowOrder(None, None, nell, sigma_window)
    (order,) = backend.empty((nrows, backend.index))
    if window >= nshort:  # long rows come after all short ones
        sort_rows(csr, None, 0, nrows, nrows, counts.longest, order, backend)
        return RowOrder(order[:in_ell], order[in_ell:], nell, sigma_window)
    parts = parts if parts is not None else split_rows(csr, split, backend)
    longest = min(counts.longest, split.length)
    if window > 1:
        ell_rows = order[:in_ell]
        sort_rows(csr, parts, 0, nshort, window, longest, order[:nshort], backend)
    else:
        ell_rows = None if parts is None else parts[:in_ell]
        rest = None if parts is None else parts[in_ell:nshort]
        sort_rows(csr, rest, in_ell, nshort - in_ell, height, longest, order[in_ell:nshort], backend)
    if parts is not None:
        sort_rows(csr, parts[nshort:], 0, nrows - nshort, nrows, counts.longest, order[nshort:], backend)
    return RowOrder(ell_rows, order[in_ell:], nell, sigma_window)


def split_rows(csr: CsrPattern, split: Split, backend: Backend) -> Any:
    """(nrows,) index: the short rows in their order, then the others; None if all are short."""
    if split.nshort == csr.nrows:
        return None
    (rows,) = backend.empty((csr.nrows, backend.index))
    (control,) = backend.empty((1 + tiles(csr.nrows), COUNT))
    backend.clear(control)
    function = backend.function("formats/evchyb_layout", "evchyb_split_rows", ())
    arguments = (csr.nrows, split.length, split.nshort, csr.rowptr, rows, control)
    backend.run([launch_1d(function, csr.nrows, SCAN_THREADS, arguments)])
    return rows


def sort_rows(
    csr: CsrPattern, rows: Any, first: int, n: int, window: int, longest: int, into: Any, backend: Backend
) -> None:
    """Sort `n` rows of at most `longest` entries by length, within windows of `window` rows, into an (n,) array.

    They are rows[0], rows[1], ..., or `first`, first + 1, ... if `rows` is None. Rows of one length keep their order.
    """
    if not n:
        return
    if n <= min(TILE, window):
        function = backend.function("formats/evchyb_layout", "evchyb_sort_tile", ())
        backend.run([launch_1d(function, TILE // 2, TILE // 2, (n, first, rows, csr.rowptr, into))])
        return
    bits_of_all = max(1, longest.bit_length())
    npasses = ceil_div(bits_of_all, DIGIT_BITS)
    bits, window = ceil_div(bits_of_all, npasses), min(window, n)
    tiles_per_window = ceil_div(window, TILE)
    ntiles = ceil_div(n, window) * tiles_per_window
    ncounts = ntiles << bits
    control_size = 1 + tiles(ceil_div(ncounts, COUNTS_A_THREAD))
    counts, other = backend.empty((ncounts, backend.index), (n if npasses > 1 else 0, backend.index))
    (control,) = backend.empty((npasses * control_size, COUNT))
    backend.clear(control)
    launches = []

    def add(kernel: str, nblocks: int, arguments: tuple[Any, ...]) -> None:
        function = backend.function("formats/evchyb_layout", kernel, ())
        launches.append(Launch(function, (nblocks, 1, 1), (SCAN_THREADS, 1, 1), arguments))

    for number in range(npasses):
        target = into if (npasses - number) % 2 else other
        listed = (n, window, tiles_per_window, first, number * bits, bits, rows, csr.rowptr, counts)
        control_of_pass = control[number * control_size : (number + 1) * control_size]
        add("evchyb_count_digits", ntiles, listed)
        add("evchyb_add_up", control_size - 1, (ncounts, counts, control_of_pass))
        add("evchyb_move_rows", ntiles, (*listed, target))
        rows = target
    backend.run(launches)


def automatic_window(
    csr: CsrPattern, counts: RowCounts, split: Split, parts: Any, height: int, backend: Backend
) -> int:
    """The smallest of AUTOMATIC_WINDOWS with acceptable padding; `parts` is what `split_rows` returns."""
    for window in AUTOMATIC_WINDOWS[:-1]:
        if padding_share(csr, counts, split, parts, window, height, backend) <= ACCEPTABLE_PADDING:
            return window
    return ALL_ROWS


def padding_share(
    csr: CsrPattern, counts: RowCounts, split: Split, parts: Any, window: int, height: int, backend: Backend
) -> float:
    """Padding of the ELL part as a share of its stored entries, from windows evenly spaced where there are many.

    Rows that do not fill a window are left out; 1 if there is no whole window. Waits for the device.
    """
    nwindows = split.nshort // max(window, height)
    if not nwindows:
        return 1.0
    if window == 1 and parts is None:
        used, sliced = counts.in_slices, counts.sliced
    else:
        rows, nrows = parts, nwindows * max(window, height)
        if window > 1:
            rows, nrows = sorted_sample(csr, counts, split, parts, window, nwindows, backend)
        (found,) = backend.empty((2, COUNT))
        backend.clear(found)
        threads = backend.in_turns(nrows)
        function = backend.function("formats/evchyb_layout", "evchyb_measure_slices", ())
        arguments = (nrows // height, height, rows, csr.rowptr, found)
        backend.run([launch_1d(function, threads, SCAN_THREADS, arguments)])
        used, sliced = backend.first(found, 2)  # waits for the device
    return 1 - used / (height * sliced) if sliced else 0.0


def sorted_sample(
    csr: CsrPattern, counts: RowCounts, split: Split, parts: Any, window: int, nwindows: int, backend: Backend
) -> tuple[Any, int]:
    """The rows of some of `nwindows` windows, sorted by length in each, and how many they are."""
    windows = np.linspace(0, nwindows - 1, min(nwindows, SAMPLED_WINDOWS)).astype(OFFSET)
    n = windows.size * window
    sampled, in_order = backend.empty((n, backend.index), (n, backend.index))
    function = backend.function("formats/evchyb_layout", "evchyb_sample_rows", ())
    arguments = (n, window, parts, backend.adopt(windows, keep=True), sampled)
    backend.run([launch_1d(function, n, SCAN_THREADS, arguments)])
    sort_rows(csr, sampled, 0, n, window, min(counts.longest, split.length), in_order, backend)
    return in_order, n
