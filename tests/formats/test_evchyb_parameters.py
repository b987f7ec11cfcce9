"""EVC-HYB: what the stored columns decide: threads of a block, entries in flight, columns in 16 bits."""

import numpy as np
import pytest

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.formats.common.columns import FULL, FULL_ONLY, MIXED, SHORT, SHORT_WHERE_IT_FITS
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.formats.evchyb.layout import AUTOMATIC
from petsc_gpufmt.formats.evchyb.parameters import LARGE_BATCH, MIXED_WIDTH, SMALL_BATCH, Parameters, is_scattered
from petsc_gpufmt.option_value import AUTO

pytestmark = pytest.mark.real


@pytest.fixture
def warp_backend():
    """The host backend with slices as high as a warp, as on a device."""
    backend = HostBackend(*native_library.petsc_types())
    backend.simd_width = 32
    return backend


def parameters(columns, backend, width=10.0, small=False, nstored_ell=None, **options):
    """Those chosen for (nstored,) stored columns, all in the ELL part if not told otherwise."""
    given = {**EvcHyb.default_options, **options}
    return Parameters.of(given, columns, nstored_ell or columns.size, width, small, 32, backend)


def stored_columns(share, nstored=32 * 16 * 40):
    """Columns of which `share` have a sector of x of their own in every piece, the others that of column 0."""
    own = np.arange(nstored) % 512 < share * 512
    return np.where(own, 4 * (1 + np.arange(nstored) % 512), 0).astype(np.int32)


@pytest.mark.parametrize(("share", "scattered"), [(0.0, False), (0.44, False), (0.46, True), (1.0, True)])
def test_x_is_scattered_where_entries_of_a_piece_share_few_sectors(warp_backend, share, scattered):
    columns = stored_columns(share)

    assert is_scattered(columns, 32, warp_backend) == scattered
    columns[::2] = -1
    assert not is_scattered(np.full(5120, -1), 32, warp_backend)
    assert not is_scattered(columns[:100], 32, warp_backend)


def test_scattered_x_takes_large_blocks_full_columns_and_few_teams(warp_backend):
    scattered, together = stored_columns(1.0), stored_columns(0.1)

    assert parameters(scattered, warp_backend) == Parameters(FULL_ONLY, 1024, SMALL_BATCH, 64)
    assert parameters(scattered, warp_backend, width=20.0).batch == LARGE_BATCH
    assert parameters(together, warp_backend) == Parameters(AUTO, AUTOMATIC, SMALL_BATCH, AUTOMATIC)
    assert parameters(together, warp_backend, width=13.0).batch == LARGE_BATCH
    long_rows = parameters(scattered, warp_backend, nstored_ell=scattered.size // 2 - 1)
    assert long_rows == parameters(together, warp_backend)


def test_matrices_that_do_not_keep_a_device_busy_take_large_batches(warp_backend):
    scattered = stored_columns(1.0)
    assert parameters(scattered, warp_backend, small=True).index == FULL_ONLY
    assert parameters(scattered, warp_backend, small=True).batch == LARGE_BATCH

    warp_backend.resident_threads = scattered.size // 32 + 1

    assert parameters(scattered, warp_backend) == Parameters(AUTO, AUTOMATIC, LARGE_BATCH, AUTOMATIC)


def test_given_options_go_before_what_the_columns_suggest(warp_backend):
    given = {"index": SHORT_WHERE_IT_FITS, "block_threads": 256, "batch": LARGE_BATCH, "entries_per_thread": 3}

    assert parameters(stored_columns(1.0), warp_backend, **given) == Parameters(
        SHORT_WHERE_IT_FITS, 256, LARGE_BATCH, 3
    )


@pytest.mark.parametrize(("width", "mode"), [(MIXED_WIDTH - 1, FULL), (MIXED_WIDTH, MIXED)])
def test_both_kinds_of_columns_need_wide_slices(warp_backend, width, mode):
    columns = np.zeros(32 * 100, dtype=np.int32)
    columns[5] = 70000
    offsets = np.arange(0, columns.size + 1, 320)
    chosen = Parameters(AUTO, AUTOMATIC, SMALL_BATCH, AUTOMATIC)

    assert chosen.compress(columns, offsets, width, 32, warp_backend).mode == mode
    columns[5] = 7
    assert chosen.compress(columns, offsets, width, 32, warp_backend).mode == SHORT
    asked = Parameters(SHORT_WHERE_IT_FITS, AUTOMATIC, SMALL_BATCH, AUTOMATIC)
    columns[5] = 70000
    assert asked.compress(columns, offsets, width, 32, warp_backend).mode == MIXED
