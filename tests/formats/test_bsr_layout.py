"""The structure pass of BSR: what is counted, blocks of every shape, and builds with no more than a device's arrays."""

from dataclasses import replace

import numpy as np
import pytest
from builders import CsrMatrix, blocked, from_row_lengths, shape, uniform
from fake_driver import fake_driver
from places import make_backend
from stored_matrix import assert_multiplies

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.formats.bsr.bsr import Bsr
from petsc_gpufmt.formats.bsr.layout import Entries, count_blocks, find_blocks, sorted_entries
from petsc_gpufmt.patterns import transpose
from petsc_gpufmt.patterns.scan import SCAN_THREADS

pytestmark = pytest.mark.real


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture
def emulation(request):
    return make_backend(request, "emulation", np.float64, np.int32)


@pytest.fixture
def device_like(request):
    """Whose arrays offer no more than those of a device: nothing but kernels can build with them."""
    return make_backend(request, "device_like", np.float64, np.int32)


def one_long_row():
    return from_row_lengths(np.r_[np.full(30, 2), 200, np.full(29, 2)], 200, seed=88)


def test_entries_in_order_are_taken_as_they_are(backend):
    pattern = shape("banded").pattern(np, backend.index)
    entries, _ = find_blocks(pattern, [(1, 1)], backend)

    assert entries == Entries(pattern.nrows, pattern.ncols, pattern.rowptr, pattern.colidx, None, None)


@pytest.mark.parametrize("transposed", [False, True])
def test_entries_out_of_order_are_sorted_with_their_values(backend, transposed):
    pattern = shape("duplicate_columns").pattern(np, backend.index)
    pattern = transpose.transposed(pattern, backend) if transposed else pattern
    values = np.arange(pattern.nnz) if pattern.source is None else pattern.source
    entries = sorted_entries(pattern, backend)

    for row in range(pattern.nrows):
        columns = pattern.colidx[pattern.rowptr[row] : pattern.rowptr[row + 1]]
        mine = slice(entries.rowptr[row], entries.rowptr[row + 1])
        assert entries.colidx[mine].tolist() == np.unique(columns).tolist()
        for k in range(mine.start, mine.stop):
            places = entries.source[entries.first[k] : entries.first[k + 1]]
            expected = values[pattern.rowptr[row] : pattern.rowptr[row + 1]][columns == entries.colidx[k]]
            assert places.tolist() == expected.tolist()


def counted(matrix, row_block, col_block, here):
    csr = matrix.pattern(np, here.index)
    entries = Entries(csr.nrows, csr.ncols, here.adopt(csr.rowptr), here.adopt(csr.colidx), None, None)
    return count_blocks(entries, [(row_block, col_block), (1, 1)], here)[0]


@pytest.mark.parametrize("place", ["backend", "device_like"])
@pytest.mark.parametrize("row_block", [1, 3, 7, 50])
@pytest.mark.parametrize("nrows", [SCAN_THREADS - 1, SCAN_THREADS, 3 * SCAN_THREADS + 33])
def test_what_is_counted_of_blocks(request, place, row_block, nrows):
    """Prefix sums over several tiles of rows, whose ends block rows do not share."""
    here = request.getfixturevalue(place)
    lengths = np.random.default_rng(103).integers(0, 6, nrows)
    lengths[nrows // 3 : nrows // 2] = 0
    matrix = from_row_lengths(lengths, 40, seed=104)
    places = {(row // row_block, column // 4) for row, column in zip(matrix.rows, matrix.colidx, strict=True)}
    blocks_of_rows = np.bincount([i for i, _ in places], minlength=-(-nrows // row_block))
    slices = np.resize(blocks_of_rows, -(-blocks_of_rows.size // 32) * 32)
    slices[blocks_of_rows.size :] = 0

    found = counted(matrix, row_block, 4, here)

    assert here.to_host(found.block_offsets).tolist() == [0, *np.cumsum(blocks_of_rows)]
    assert (
        here.to_host(found.first_block)[::row_block].tolist()
        == [0, *np.cumsum(blocks_of_rows)][: -(-(nrows + 1) // row_block)]
    )
    assert (found.nblocks, found.longest) == (len(places), blocks_of_rows.max())
    assert found.steps == slices.reshape(-1, 32).max(axis=1).sum()
    assert found.share_of_lanes == len(places) / (32 * found.steps)
    assert found.empty_rows == np.count_nonzero(lengths == 0)
    assert not found.out_of_order and found.several_rows_opened == (row_block > 1)


@pytest.mark.parametrize("place", ["backend", "device_like"])
@pytest.mark.parametrize("nrows", [0, 5])
def test_a_matrix_without_entries_has_no_blocks(request, place, nrows):
    found = counted(from_row_lengths(np.zeros(nrows, dtype=int), 40, seed=1), 3, 4, request.getfixturevalue(place))

    assert request.getfixturevalue(place).to_host(found.block_offsets).tolist() == [0] * (-(-nrows // 3) + 1)
    assert (found.nblocks, found.longest, found.share_of_lanes, found.empty_rows) == (0, 0, 1.0, nrows)
    assert not found.out_of_order and not found.several_rows_opened


@pytest.mark.parametrize("place", ["backend", "emulation"])
@pytest.mark.parametrize("columns", [[0, 1, 1], [0, 2, 1]])
def test_columns_that_do_not_ascend_are_seen(request, place, columns):
    matrix = CsrMatrix(3, 3, np.array([0, 0, 3, 3]), np.array(columns), np.zeros(3))

    assert counted(matrix, 2, 2, request.getfixturevalue(place)).out_of_order


@pytest.mark.parametrize(
    "matrix",
    [
        replace(shape("blocked_3x3"), block=3),
        blocked(4, 30, declared=True, missing=0.15),
        replace(uniform(90, 90, 4, seed=94), block=3),
        one_long_row(),
        shape("power_law"),
        from_row_lengths(np.zeros(0, dtype=int), 9, seed=1),
    ],
    ids=["full", "padded", "no_blocks", "cut", "block_size_1", "empty"],
)
@pytest.mark.parametrize("threads", [0, 64, 4096])
def test_a_device_builds_what_the_host_builds(backend, device_like, matrix, threads):
    """The parameters of the product depend on the device: the host is told of as many threads."""
    device_like.resident_threads = backend.resident_threads = threads
    csr = matrix.pattern(np, np.int32)
    there = replace(csr, rowptr=device_like.adopt(csr.rowptr), colidx=device_like.adopt(csr.colidx))
    one, other = (
        Bsr.build(pattern, here, Bsr.default_options) for pattern, here in ((csr, backend), (there, device_like))
    )

    assert (one.summary(), one.stats(), one.detail()) == (other.summary(), other.stats(), other.detail())
    for name in ("block_offsets", "block_col", "segment_offsets", "segment_ptr"):
        expected, array = getattr(one, name), getattr(other, name)
        assert array is None if expected is None else np.array_equal(device_like.to_host(array), expected)
    assert all(device_like.to_host(other.entries.colidx) == csr.colidx if other.padding else [not other.entries.colidx])


@pytest.mark.parametrize(
    ("matrix", "waits"),
    [(blocked(4, 30, declared=True), 1), (replace(uniform(90, 90, 4, seed=94), block=3), 2), (one_long_row(), 2)],
    ids=["blocks", "no_blocks", "cut"],
)
def test_a_build_waits_once_and_again_if_blocks_do_not_fit_or_are_cut(emulation, monkeypatch, matrix, waits):
    emulation.resident_threads = 2048
    fetched = []
    monkeypatch.setattr(emulation, "first", lambda array, count: fetched.append(count) or array[:count].tolist())

    Bsr.build(matrix.pattern(np, np.int32), emulation, Bsr.default_options)

    assert len(fetched) == waits


@pytest.mark.parametrize(
    "matrix",
    [blocked(4, 9, declared=True), blocked(3, 9, declared=True, missing=0.2), one_long_row()],
    ids=["full", "padded", "cut"],
)
def test_products_with_what_a_device_has_built(device_like, matrix):
    device_like.resident_threads = 2048
    csr = matrix.pattern(np, np.int32)
    there = replace(csr, rowptr=device_like.adopt(csr.rowptr), colidx=device_like.adopt(csr.colidx))
    stored = Bsr.build(there, device_like, Bsr.default_options)

    assert_multiplies(stored, matrix, device_like)


def test_the_memory_of_shapes_that_are_not_chosen_goes(emulation_folder):
    with fake_driver(emulation_folder) as driver:
        device = CudaBackend(np.float64, np.int32, device=0)
        pattern = replace(uniform(3000, 3000, 1, seed=89).pattern_on(device), row_block=3, col_block=3)
        stored = Bsr.build(pattern, device, Bsr.default_options)
        device.memory.trim()  # what no array uses is given back
        assert (stored.row_block, stored.col_block) == (1, 1)
        given = pattern.rowptr.nbytes + pattern.colidx.nbytes
        assert driver.used < stored.stats().bytes_held + given + 8 * 3000
