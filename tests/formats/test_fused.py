"""Products with what solvers want of each row, beyond the checks of all formats: grids, and what is not read."""

from __future__ import annotations

import numpy as np
import pytest
from builders import CsrMatrix, shape, uniform
from places import EVERY_PLACE, make_backend
from stored_matrix import StoredMatrix, assert_dot, assert_same_bits

from petsc_gpufmt.backends.plan import Fused
from petsc_gpufmt.choice.registry import FORMATS, find_format
from petsc_gpufmt.formats.common.fused import FEW_BLOCKS

pytestmark = pytest.mark.real

OFFERING = ("pjds", "bsr", "csradaptive")
OTHERS = sorted(set(FORMATS) - {*OFFERING, "gpufmt"})
SMALL_BLOCKS = {"slice_height": 32, "block_threads": 64}


@pytest.fixture(params=[*EVERY_PLACE, "device_like"])
def backend(request):
    return make_backend(request, request.param)


def scaled_identity(n: int) -> CsrMatrix:
    return CsrMatrix(n, n, np.arange(n + 1), np.arange(n), 1 + np.arange(n) % 7 / 7)


@pytest.mark.parametrize("format_name", OFFERING)
@pytest.mark.parametrize("shape_name", ["0x0", "0xN", "all_empty", "Nx0"])
def test_a_matrix_without_entries_has_the_sum_0(backend, format_name, shape_name):
    stored = StoredMatrix(shape(shape_name), find_format(format_name), backend, {})
    x, y = stored.vectors()

    added = stored.fused(Fused.ADD_DOT, x=x, y=y, z=y)

    assert added.sum == 0
    assert_same_bits(added.z, y)
    if x.size == y.size:
        made = stored.fused(Fused.MULT_DOT, x=x)
        assert made.sum == 0 and not made.z.any()


@pytest.mark.slow
@pytest.mark.parametrize("nblocks", [1, FEW_BLOCKS, FEW_BLOCKS + 1])
def test_sums_are_made_in_the_product_or_after_it(request, nblocks):
    backend = make_backend(request, "emulation")
    stored = StoredMatrix(scaled_identity(64 * nblocks), find_format("pjds"), backend, SMALL_BLOCKS)
    x, _ = stored.vectors()
    launch, *after = stored.format.fused(Fused.MULT_DOT)
    assert len(after) == (nblocks > FEW_BLOCKS)
    assert launch.grid == (nblocks, 1, 1) and np.prod(launch.block) == 64

    first = stored.fused(Fused.MULT_DOT, x=x)

    assert_dot(first.sum, x, first.z)
    assert_same_bits(stored.fused(Fused.MULT_DOT, x=x).sum, first.sum)


@pytest.mark.gpu
def test_sums_of_many_blocks(request):
    backend = make_backend(request, "cuda")
    stored = StoredMatrix(scaled_identity(5_000_000), find_format("pjds"), backend, SMALL_BLOCKS)
    x, _ = stored.vectors()

    first = stored.fused(Fused.MULT_DOT, x=x)

    assert_dot(first.sum, x, first.z)
    for _ in range(20):
        assert_same_bits(stored.fused(Fused.MULT_DOT, x=x).sum, first.sum)


@pytest.mark.parametrize("format_name", OFFERING)
def test_a_launch_leaves_its_scratch_as_it_was(backend, format_name):
    stored = StoredMatrix(shape("stencil"), find_format(format_name), backend, {})
    x, _ = stored.vectors()
    launches = stored.format.fused(Fused.MULT_DOT)
    stored.format.fused = lambda _: launches

    sums = {stored.fused(Fused.MULT_DOT, x=factor * x).sum for factor in (1, 1, 2)}

    assert len(sums) == 2 and max(sums, key=abs) == 4 * min(sums, key=abs)


@pytest.mark.parametrize("format_name", OFFERING)
def test_what_is_not_used_of_x_does_not_come_into_the_sum(backend, format_name):
    stored = StoredMatrix(shape("wide"), find_format(format_name), backend, {})
    x, y = stored.vectors()
    expected = stored.fused(Fused.ADD_DOT, x=x, y=y, z=y)
    unused = np.setdiff1d(np.arange(x.size), stored.matrix.colidx)
    assert unused.size
    x[unused] = np.nan

    found = stored.fused(Fused.ADD_DOT, x=x, y=y, z=y)

    assert_same_bits(found.sum, expected.sum)
    assert_same_bits(found.z, expected.z)


@pytest.mark.parametrize("format_name", OFFERING)
def test_rows_without_entries_are_not_looked_at_where_sums_are_added(backend, format_name):
    lengths = np.where(np.arange(320) < 64, 3, 0)
    matrix = CsrMatrix(320, 320, np.concatenate([[0], np.cumsum(lengths)]), np.tile([0, 1, 2], 64), np.ones(192))
    stored = StoredMatrix(matrix, find_format(format_name), backend, {})
    x, y = np.ones(320), np.ones(320)
    y[64:] = np.nan

    assert stored.fused(Fused.ADD_DOT, x=x, y=y, z=y).sum == 192
    z = stored.fused(Fused.ADD_SMOOTH, x=x, d=y, gamma=1, z=np.zeros(320)).z
    assert z.tolist() == [-3] * 64 + [0] * 256


@pytest.mark.parametrize("format_name", OTHERS)
@pytest.mark.parametrize("operation", Fused)
def test_other_formats_offer_none(request, format_name, operation):
    backend = make_backend(request, "host")
    stored = StoredMatrix(uniform(20, 20, 3, seed=90), find_format(format_name), backend, {})

    assert stored.format.fused(operation) is None


@pytest.mark.parametrize(("format_name", "offered"), [("pjds", True), ("ellpack", False)])
def test_the_type_that_chooses_offers_what_its_choice_does(request, format_name, offered):
    matrix, backend = uniform(20, 20, 3, seed=90), make_backend(request, "host")
    stored = StoredMatrix(matrix, find_format("gpufmt"), backend, {"format": format_name})

    assert [stored.format.fused(operation) is not None for operation in Fused] == [offered] * len(Fused)
