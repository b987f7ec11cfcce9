"""BSR: which kernel and parameters suit a matrix, and where long block rows are cut."""

import itertools

import numpy as np
import pytest
from builders import blocked
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.formats.bsr.bsr import Bsr
from petsc_gpufmt.formats.bsr.parameters import K1, K2, K3, PARAMETERS, Parameters, Shape, choose, parameter_space
from petsc_gpufmt.formats.common import base
from petsc_gpufmt.patterns.csr import CsrPattern

pytestmark = pytest.mark.real

H200_THREADS = 270336
NOTHING_SET = {**PARAMETERS, "lambda": 0}


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


def shape_of(row_block, nblock_rows=10**6, mean=27.0, **other):
    """What the choice of parameters sees of a matrix of square blocks on an H200."""
    facts = {"col_block": row_block, "longest": round(mean), "share_of_lanes": 1.0, "resident_threads": H200_THREADS}
    return Shape(row_block=row_block, mean=mean, nblock_rows=nblock_rows, **{**facts, **other})


def chosen_for(shape_, measured=None, **options):
    return choose(shape_, {**NOTHING_SET, **options}, measured or {})[1]


@pytest.mark.parametrize(
    ("longest", "mean", "nblock_rows", "resident_threads", "cuts"),
    [
        (27, 26.5, 200_000, H200_THREADS, False),  # a stencil
        (50_000, 5, 60_000, H200_THREADS, True),
        (50_000, 5, 60_000, 0, False),  # one thread at a time
        (40, 5, 60_000, H200_THREADS, False),  # is done before the others are
        (2000, 1000, 50, H200_THREADS, False),  # all are long
    ],
)
def test_what_makes_long_block_rows_be_cut(longest, mean, nblock_rows, resident_threads, cuts):
    limit, parameters = choose(
        shape_of(3, nblock_rows, mean, longest=longest, resident_threads=resident_threads), NOTHING_SET, {}
    )

    assert (limit > 0) == cuts
    if cuts:
        assert max(16, 2 * mean) <= limit < longest / 8 and parameters.kernel == K2


def test_small_thread_arrays_cut_into_small_segments():
    """A row of 60000 blocks among many of 5: 30 us with 64, 37 with 128 on an H200, 3 x 2 threads an array."""
    limit, parameters = choose(shape_of(3, 60_000, 6.0, longest=60_000), NOTHING_SET, {})
    wide, more_threads = choose(shape_of(3, 60_000, 6.0, longest=60_000), {**NOTHING_SET, "thread_groups": 10}, {})

    assert parameters.array_threads <= 16 and 32 <= limit <= 96
    assert more_threads.array_threads == 30 and 96 <= wide <= 320


@pytest.mark.parametrize(
    ("row_block", "kernel"),
    [*((n, K1) for n in (1, 2, 3)), *((n, K2) for n in (4, 6, 20, 45)), *((n, K3) for n in (46, 64, 300))],
)
def test_the_kernel_follows_the_block_size(row_block, kernel):
    chosen = chosen_for(shape_of(row_block))

    assert chosen.kernel == kernel
    assert chosen.tile_height == {K1: 32, K2: row_block}.get(kernel, chosen.tile_height)
    assert chosen.array_threads * chosen.thread_arrays <= 256
    if kernel == K3:
        tiles = -(-row_block // chosen.tile_height)
        assert 14 <= chosen.tile_height <= 17 and tiles * chosen.tile_height - row_block < tiles


@pytest.mark.parametrize(
    "other",
    [
        {"share_of_lanes": 0.4},  # lanes would wait for others
        {"nblock_rows": 1000},  # too few block rows for all multiprocessors
        {"longest": 100_000, "mean": 5.0},  # is cut
        {"resident_threads": 0},  # no lanes at all
        {"col_block": 5},  # not in registers
    ],
    ids=lambda other: next(iter(other)),
)
def test_where_small_blocks_take_k2(other):
    assert chosen_for(shape_of(3)).kernel == K1
    assert chosen_for(shape_of(3, **other)).kernel == K2


def test_few_high_blocks_are_cut_into_tiles():
    many, few = chosen_for(shape_of(45, 10_000)), chosen_for(shape_of(45, 1000))

    assert (many.kernel, few.kernel, few.tile_height) == (K2, K3, 15)


def test_lanes_of_the_last_warp_are_used():
    """The paper's truncated warp for 5 x 5 blocks leaves 7 of 32 lanes idle; arrays of several warps together fewer."""
    for row_block in range(1, 46):
        chosen = chosen_for(shape_of(row_block))
        threads = chosen.array_threads * chosen.thread_arrays
        assert threads / (-(-threads // 32) * 32) > 0.85, str(chosen)


FEW_BLOCK_ROWS = [
    (row_block, nblock_rows)
    for row_block, nblock_rows in itertools.product([1, 2, 3, 5, 7, 20, 45, 64], [1, 20, 500, 5000])
    if 27 * row_block**2 * nblock_rows < 16 * H200_THREADS
]


@pytest.mark.parametrize(("row_block", "nblock_rows"), FEW_BLOCK_ROWS)
def test_few_block_rows_get_more_threads(row_block, nblock_rows):
    width = 27 * row_block
    few = chosen_for(shape_of(row_block, nblock_rows))
    tiles = -(-row_block // few.tile_height)

    assert few.kernel != K1 and few.thread_groups * few.entries_per_thread <= width
    assert few.array_threads <= 256
    asked_at_once = few.thread_groups * few.entries_per_thread > width / 2
    assert asked_at_once or few.array_threads > 128 or few.array_threads * tiles * nblock_rows > H200_THREADS / 2


def test_short_block_rows_get_fewer_threads():
    assert chosen_for(shape_of(6, mean=1.0)).thread_groups == 2
    assert chosen_for(shape_of(6)).thread_groups == 5


def test_measured_parameters_are_for_large_matrices_without_options(backend, monkeypatch):
    measured = {"kernel": K2, "thread_groups": 24, "entries_per_thread": 2, "thread_arrays": 3}
    asked = []
    monkeypatch.setattr(base, "tuned", lambda *arguments: asked.append(arguments) or measured)
    large, small = shape_of(3), shape_of(3, 1000)

    assert chosen_for(large, measured) == Parameters(K2, 3, 24, 3, 1, 2)
    assert chosen_for(small, measured) == chosen_for(small)
    assert chosen_for(large, measured, entries_per_thread=1) == chosen_for(large, entries_per_thread=1)
    stored = StoredMatrix(blocked(3, 40, declared=True), Bsr, backend, {}).format
    assert asked == [(backend, "bsr", "block_size=3")] and stored.parameters.thread_groups == 24


def test_measured_parameters_of_k1_are_for_what_suits_it():
    measured = {"kernel": K1, "thread_groups": 2, "entries_per_thread": 1, "thread_arrays": 3}

    assert chosen_for(shape_of(3), measured) == Parameters(K1, 32, 2, 3, 1, 1)
    irregular = shape_of(3, share_of_lanes=0.1)
    assert chosen_for(irregular, measured) == chosen_for(irregular)


@pytest.mark.parametrize("row_block", [1, 2, 3, 4, 5, 6, 9, 16, 45, 46, 64])
def test_the_space_of_the_tuner_is_small_and_valid(row_block):
    csr = CsrPattern(0, 0, np.zeros(1, np.int32), np.zeros(0, np.int32), None, row_block, row_block)
    space = Bsr.tuning_space(csr)
    chosen = {chosen_for(shape_of(row_block), **options) for options in space}

    assert Bsr.tuning_key(csr) == f"block_size={row_block}" and space == parameter_space(row_block, row_block)
    assert 10 <= len(chosen) <= 48 and all(set(options) <= set(Bsr.default_options) for options in space)
