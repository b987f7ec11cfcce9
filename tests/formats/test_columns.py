"""Compressed columns: what is stored, which slices keep full columns, and when compression is refused."""

import numpy as np
import pytest
from places import make_backend

from petsc_gpufmt.formats.common.columns import (
    FULL,
    FULL_ONLY,
    MIXED,
    SHORT,
    SHORT_PADDING,
    SHORT_WHERE_IT_FITS,
    StoredColumns,
)
from petsc_gpufmt.option_value import AUTO

pytestmark = pytest.mark.real

HEIGHTS = (8, 16, 32, 64, 128)


@pytest.fixture(params=["host", "device_like", "emulation int64", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    name, _, index = request.param.partition(" ")
    return make_backend(request, name, np.float64, index or np.int32)


def compress(col, slice_offsets, height, backend, choice=SHORT_WHERE_IT_FITS):
    offsets = None if slice_offsets is None else backend.adopt(np.asarray(slice_offsets, dtype=np.int64))
    return StoredColumns.compress(backend.adopt(col.astype(backend.index)), offsets, height, backend, choice)


def near(ngroups, height, seed=50):
    """Columns that lie close together in each group, some entries padding."""
    rng = np.random.default_rng(seed)
    col = rng.integers(0, 2_000_000, (ngroups, 1)) + rng.integers(0, 60_000, (ngroups, height))
    col[rng.random((ngroups, height)) < 0.1] = -1
    return col


@pytest.mark.parametrize("height", HEIGHTS)
def test_columns_close_together_are_stored_in_16_bits(backend, height):
    col = near(40, height)
    stored = compress(col.ravel(), [0, 3 * height, 3 * height, 40 * height], height, backend)
    low = np.where(col < 0, np.iinfo(np.int64).max, col).min(axis=1)

    assert stored.mode == SHORT and stored.members[0] is None and stored.members[3] is None
    assert backend.to_host(stored.col_base).tolist() == low.tolist()
    expected = np.where(col < 0, SHORT_PADDING, col - low[:, None])
    assert backend.to_host(stored.col_offset).reshape(col.shape).tolist() == expected.tolist()
    assert stored.decode().tolist() == col.ravel().tolist() and stored.decode().dtype == backend.index


@pytest.mark.parametrize("slices", ["slices", "groups"])
@pytest.mark.parametrize("height", HEIGHTS)
def test_slices_with_columns_far_apart_keep_full_ones(backend, height, slices):
    col = near(12, height)
    col[4, height // 2], col[4, height - 1] = 7, 1_000_000
    col[9, 0], col[9, 1] = 2_000_000, 1_900_000
    offsets = [0, 3 * height, 6 * height, 6 * height, 9 * height, 12 * height] if slices == "slices" else None
    wide = [3, 4, 5, 9, 10, 11] if offsets else [4, 9]

    stored = compress(col.ravel(), offsets, height, backend)

    assert stored.mode == MIXED and stored.nwide == len(wide) * height
    assert backend.to_host(stored.col).tolist() == col[wide].ravel().tolist()
    if offsets:
        assert backend.to_host(stored.wide_offset).tolist() == [-1, 0, -1, -1, 3 * height]
    assert stored.decode().tolist() == col.ravel().tolist()


@pytest.mark.parametrize(("span", "mode"), [(SHORT_PADDING - 1, SHORT), (SHORT_PADDING, MIXED)])
def test_the_largest_distance_that_fits_is_one_less_than_the_mark_of_padding(backend, span, mode):
    col = np.full(32, 100)
    col[[5, 20]] = 100 + span, -1

    stored = compress(col, None, 32, backend)

    assert stored.mode == mode
    assert stored.decode().tolist() == col.tolist()


def test_groups_of_nothing_but_padding(backend):
    col = np.full(64, -1)
    col[40] = 123_456

    stored = compress(col, [0, 64], 32, backend)

    assert stored.mode == SHORT and stored.decode().tolist() == col.tolist()
    assert backend.to_host(stored.col_base).tolist() == [0, 123_456]


def test_no_entries_need_no_compression(backend):
    stored = compress(np.zeros(0), [0, 0], 32, backend)

    assert stored.mode == FULL and stored.decode().size == 0 and stored.bytes_per_mult == 0


def test_full_columns_are_kept_where_they_are_asked_for(backend):
    col = near(5, 32).ravel()

    stored = compress(col, None, 32, backend, FULL_ONLY)

    assert stored.mode == FULL and stored.members[1:] == (None, None, None)
    assert stored.decode().tolist() == col.tolist()


def test_the_automatic_choice_is_that_of_fewest_bytes(backend):
    index = backend.index.itemsize
    narrow, wide = near(10, 32), near(10, 32)
    wide[:, 1], wide[:, 2] = 3, 100_000
    half = np.concatenate([narrow[:5], wide[:5]])
    offsets = [0, 5 * 32, 10 * 32]

    chosen = [compress(col.ravel(), offsets, 32, backend, AUTO) for col in (narrow, half, wide)]

    assert [stored.mode for stored in chosen] == [SHORT, MIXED, FULL]
    assert [stored.bytes_per_mult for stored in chosen] == [
        320 * 2 + 10 * index,
        160 * 2 + 5 * index + 160 * index + 2 * 8,
        320 * index,
    ]
    assert [stored.nbytes for stored in chosen] == [
        320 * 2 + 10 * index,
        320 * 2 + 10 * index + 160 * index + 2 * 8,
        320 * index,
    ]


def test_summary_says_what_is_stored(backend):
    col = near(10, 32)
    assert compress(col.ravel(), None, 32, backend, FULL_ONLY).summary() == "full columns"
    assert compress(col.ravel(), None, 32, backend).summary() == "16-bit columns"
    col[3, 1], col[3, 2] = 3, 100_000
    assert compress(col.ravel(), None, 32, backend).summary() == "16-bit columns, full ones for 32 of 320 entries"


@pytest.mark.parametrize(("ncols", "waits"), [(SHORT_PADDING, False), (SHORT_PADDING + 1, True), (None, True)])
def test_columns_that_all_fit_are_stored_without_a_wait(backend, monkeypatch, ncols, waits):
    col = np.tile([0, SHORT_PADDING - 1, -1, 7], 8)
    seen, first = [], backend.first
    monkeypatch.setattr(backend, "first", lambda *arguments: seen.append(1) or first(*arguments))

    stored = StoredColumns.compress(
        backend.adopt(col.astype(backend.index)), None, 8, backend, SHORT_WHERE_IT_FITS, ncols
    )

    assert stored.mode == SHORT and stored.decode().tolist() == col.tolist()
    assert bool(seen) == waits


@pytest.mark.parametrize("nslices", [1, 1023, 1024, 2500])
def test_wide_slices_are_counted_over_many_blocks(backend, nslices):
    col = np.zeros((nslices, 8), dtype=np.int64)
    wide = np.random.default_rng(53).random(nslices) < 0.3
    wide[-1] = True
    col[wide, 3] = SHORT_PADDING
    stored = compress(col.ravel(), None, 8, backend)

    assert (stored.mode, stored.nwide) == (MIXED, 8 * wide.sum())
    expected = np.where(wide, 8 * (np.cumsum(wide) - wide), -1)
    assert backend.to_host(stored.wide_offset).tolist() == expected.tolist()
    assert stored.decode().tolist() == col.ravel().tolist()
