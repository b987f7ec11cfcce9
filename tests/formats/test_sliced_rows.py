"""Rows in slices: the order within windows, where slices begin, and when the device is waited for."""

import numpy as np
import pytest
from places import EVERY_PLACE, INDEX, make_backend

from petsc_gpufmt.formats.common.sliced_rows import SCANNED_ROWS, TILE, cut, sort_rows
from petsc_gpufmt.formats.pjds import SLICE_HEIGHTS
from petsc_gpufmt.patterns.csr import SLICE_HEIGHT, CsrPattern


@pytest.fixture(params=[*EVERY_PLACE, "device_like"])
def backend(request):
    return make_backend(request, request.param, resident_threads=512)


def rows_of_lengths(lengths, backend):
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(INDEX)
    rowptr, colidx = (backend.adopt(a) for a in (rowptr, np.zeros(rowptr[-1], dtype=INDEX)))
    return CsrPattern(len(lengths), 1, rowptr, colidx)


def stable_order(lengths, window):
    return [
        first + place
        for first in range(0, len(lengths), window)
        for place in np.argsort(-lengths[first : first + window], kind="stable").tolist()
    ]


def random_lengths(nrows, seed=40):
    return np.random.default_rng(seed).integers(0, 9, nrows)


@pytest.mark.parametrize(
    ("nrows", "window"),
    [
        (300, 1),
        (300, 7),
        (300, 64),
        (300, 300),
        (2 * TILE, TILE),
        (TILE + 1, TILE),
        (3 * TILE + 5, 2 * TILE),
        (3 * TILE + 5, 1500),
        (3 * TILE + 5, 3 * TILE + 5),
    ],
)
def test_rows_are_sorted_by_decreasing_length_inside_windows_and_ties_keep_their_order(backend, nrows, window):
    lengths = random_lengths(nrows)

    perm = sort_rows(rows_of_lengths(lengths, backend), window, backend)

    order = list(range(nrows)) if perm is None else backend.to_host(perm).tolist()
    assert order == stable_order(lengths, window) and (perm is None) == (window == 1)


@pytest.mark.parametrize("nrows", [0, 1, 2, 1500])
def test_rows_in_order_have_no_permutation(backend, nrows):
    descending = rows_of_lengths(np.arange(nrows)[::-1] // 100, backend)
    ascending_between_windows = rows_of_lengths(np.arange(nrows) // 5, backend)

    assert sort_rows(descending, nrows, backend) is None
    assert sort_rows(ascending_between_windows, 5, backend) is None


@pytest.mark.parametrize("height", SLICE_HEIGHTS)
@pytest.mark.parametrize("nrows", [0, 1, 31, 128, SCANNED_ROWS - 1, SCANNED_ROWS, 2 * SCANNED_ROWS + 77])
def test_slices_begin_where_those_before_them_end(backend, height, nrows):
    lengths = random_lengths(nrows, seed=nrows)
    padded = np.append(lengths, np.zeros(-nrows % height, dtype=lengths.dtype)).reshape(-1, height)

    slices = cut(rows_of_lengths(lengths, backend), 1, height, backend)

    expected = np.concatenate([[0], np.cumsum(padded.max(axis=1) * height, dtype=np.int64)])
    assert backend.to_host(slices.offsets).tolist() == expected.tolist() and slices.nstored == expected[-1]


@pytest.mark.parametrize("window", [100, 4000])
def test_slices_of_sorted_rows(backend, window):
    lengths = random_lengths(4000)
    widths = lengths[stable_order(lengths, window)].reshape(-1, SLICE_HEIGHT).max(axis=1)

    slices = cut(rows_of_lengths(lengths, backend), window, SLICE_HEIGHT, backend)

    assert backend.to_host(slices.offsets)[1:].tolist() == np.cumsum(widths * SLICE_HEIGHT).tolist()
    assert slices.nstored == widths.sum() * SLICE_HEIGHT and slices.row_perm is not None


def test_counted_slices_are_cut_without_a_wait(backend, monkeypatch):
    csr = rows_of_lengths(random_lengths(500), backend).validated(backend)
    monkeypatch.setattr(backend, "first", None)
    monkeypatch.setattr(backend, "to_host", None)

    assert cut(csr, 1, SLICE_HEIGHT, backend).nstored == csr.counts.sliced_entries
