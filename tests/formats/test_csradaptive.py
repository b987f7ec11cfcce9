"""csradaptive: ranges of rows and the deal of blocks of Guo and Gropp 2012, described in Guo, Gropp, Olson 2016."""

import numpy as np
import pytest
from builders import CsrMatrix, banded, from_row_lengths, shape
from emulation.backend import EmulatedBackend
from places import make_backend
from stored_matrix import StoredMatrix, assert_product

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation
from petsc_gpufmt.formats.common.csr_arrays import BLOCK_THREADS
from petsc_gpufmt.formats.csradaptive import TILE_ROWS, CsrAdaptive, count_rows, order_rows

EVERY_TEAM = np.array([3000, 0, 5, 12, 20, 6000, 50, 8, 100, 200, 9, 400, 800, 1500, 2049, 1, 4097, 700])


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture(params=["host", "emulation"])
def place(request):
    return make_backend(request, request.param)


@pytest.mark.parametrize("nrows", [1, 31, TILE_ROWS, TILE_ROWS + 1, 5 * TILE_ROWS + 77])
@pytest.mark.parametrize("nranges", [7, 10])
def test_rows_of_many_tiles_are_grouped(place, nrows, nranges):
    lengths = np.random.default_rng(76).choice([0, 3, 8, 9, 40, 300, 5000, 9000], nrows)
    ranges = np.minimum(np.ceil(np.log2(np.maximum(lengths, 8) / 8)).astype(int), nranges - 1)
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(place.index)
    rows, grouped = count_rows(rowptr, nranges, place)
    marks = np.concatenate([np.zeros(nranges), [0], np.cumsum(rows)]).astype(place.index)

    assert rows == np.bincount(ranges, minlength=nranges).tolist()
    assert grouped == bool((np.diff(ranges) >= 0).all())
    assert order_rows(rowptr, nranges, marks, place).tolist() == np.argsort(ranges, kind="stable").tolist()


def test_one_row_out_of_order_is_seen_at_the_seam_of_tiles(place):
    lengths = np.full(2 * TILE_ROWS, 20)
    lengths[:TILE_ROWS] = 40
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(place.index)

    assert count_rows(rowptr, 9, place) == ([0, 0, TILE_ROWS, TILE_ROWS, *[0] * 5], False)
    assert count_rows(rowptr[: TILE_ROWS + 1], 9, place)[1]


def one_column(lengths):
    rowptr = np.concatenate([[0], np.cumsum(lengths)])
    return CsrMatrix(len(lengths), 1, rowptr, np.zeros(rowptr[-1], dtype=np.int64), np.ones(rowptr[-1]))


@pytest.mark.parametrize(
    ("length", "threads_per_row"),
    [
        *((0, 1), (1, 1), (8, 1), (9, 2), (16, 2), (17, 4), (32, 4), (33, 8), (64, 8), (65, 16), (128, 16), (129, 32)),
        *((256, 32), (257, 64), (512, 64), (513, 128), (1024, 128), (1025, 256), (2048, 256), (2049, 512)),
        *((4096, 512), (4097, 512), (10**9, 512)),
    ],
)
@pytest.mark.parametrize("block_threads", BLOCK_THREADS)
def test_the_papers_ranges_up_to_a_block_for_a_row(place, length, threads_per_row, block_threads):
    rows, grouped = count_rows(np.array([0, length], place.index), block_threads.bit_length(), place)

    assert 2 ** rows.index(1) == min(threads_per_row, block_threads)
    assert sum(rows) == 1 and grouped


def test_the_deal_of_blocks_of_the_papers_figure_1(backend):
    """Ten blocks of 512: two with one thread a row, three with 2, one with 4, two with 8, two with 16."""
    lengths = np.repeat([8, 16, 32, 64, 128], [1000, 700, 128, 65, 64])
    stored = StoredMatrix(one_column(lengths), CsrAdaptive, backend, {"block_threads": 512}).format

    assert stored.blocks_of_range == [2, 3, 1, 2, 2, 0, 0, 0, 0, 0]
    assert stored.marks.tolist() == [
        *(0, 2, 5, 6, 8, 10, 10, 10, 10, 10),
        *(0, 1000, 1700, 1828, 1893, 1957, 1957, 1957, 1957, 1957, 1957),
    ]
    assert [launch.grid for launch in stored.plan(Operation.MULT)] == [(10, 1, 1)]
    assert stored.detail().splitlines() == [
        "threads a row 1: rows 1000, blocks 2",
        "threads a row 2: rows 700, blocks 3",
        "threads a row 4: rows 128, blocks 1",
        "threads a row 8: rows 65, blocks 2",
        "threads a row 16: rows 64, blocks 2",
    ]


@pytest.mark.parametrize("block_threads", BLOCK_THREADS)
def test_rows_are_grouped_by_range_and_keep_their_order_in_it(backend, block_threads):
    lengths = np.random.default_rng(73).geometric(0.01, 3000)
    stored = StoredMatrix(one_column(lengths), CsrAdaptive, backend, {"block_threads": block_threads}).format
    nranges = len(stored.rows_of_range)
    first_block, first_position = stored.marks[:nranges], stored.marks[nranges:]

    assert sum(stored.rows_of_range) == 3000 and 2 ** (nranges - 1) == block_threads
    for r in range(nranges):
        rows = stored.row_perm[first_position[r] : first_position[r + 1]]
        longest = np.inf if r == nranges - 1 else 8 * 2**r
        in_range = (lengths <= longest) & (lengths > (4 * 2**r if r else 0))
        assert rows.tolist() == np.flatnonzero(in_range).tolist()
        assert stored.blocks_of_range[r] == np.ceil(rows.size * 2**r / block_threads)
        assert first_block[r] == sum(stored.blocks_of_range[:r])


def test_rows_that_lie_grouped_already_have_no_permutation(backend):
    lengths = [3, 8, 1, 9, 16, 10, 17, 100]

    assert StoredMatrix(banded(2000), CsrAdaptive, backend, {}).format.row_perm is None
    assert StoredMatrix(one_column(lengths), CsrAdaptive, backend, {}).format.row_perm is None
    assert StoredMatrix(one_column(lengths[::-1]), CsrAdaptive, backend, {}).format.row_perm.tolist() == [
        *(5, 6, 7),
        *(2, 3, 4, 1, 0),
    ]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("block_threads", BLOCK_THREADS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_teams_of_every_size_sum_their_rows(emulation_folder, block_threads, index, transposed):
    emulation = EmulatedBackend(np.float64, index, emulation_folder)
    matrix = from_row_lengths(EVERY_TEAM, 6000, seed=74)
    stored = StoredMatrix(matrix, CsrAdaptive, emulation, {"block_threads": block_threads}, transposed)
    x, y = stored.vectors()

    assert transposed or all(stored.format.rows_of_range)
    assert_product(stored.multadd(x, y), stored.matrix, x, y)


@pytest.mark.double
@pytest.mark.real
def test_the_permutation_and_the_marks_are_counted_in_the_bytes(backend):
    lengths = [9, 3, 9, 3]
    options = {"block_threads": 64, "index": "full"}
    stats = StoredMatrix(one_column(lengths), CsrAdaptive, backend, options).format.stats()

    assert stats.bytes_held == 24 * (8 + 4) + 5 * 4 + 4 * 4 + (2 * 7 + 1) * 4
    assert stats.bytes_per_mult == stats.bytes_held + (4 + 1) * 8


def test_the_summary_says_how_many_threads_and_what_columns(backend):
    stored = StoredMatrix(shape("banded"), CsrAdaptive, backend, {}).format

    assert stored.summary() == "1 to 256 threads a row, 256 threads a block, 16-bit columns"
