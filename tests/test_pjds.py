"""pJDS: layout, padding against the figures of Kreutzer et al. 2012, choice of the window, launches."""

import numpy as np
import pytest
from builders import SHAPES, CsrMatrix, banded, from_row_lengths, shape, uniform
from emulation.backend import EmulatedBackend
from option_sets import ALL_OPTION_SETS, option_id
from stored_matrix import StoredMatrix

from petsc_gpufmt import native_library
from petsc_gpufmt.backend import HostBackend
from petsc_gpufmt.errors import IndexOverflowError, OptionError
from petsc_gpufmt.formats.pjds import (
    ACCEPTABLE_FILL_RATIO,
    ALL_ROWS,
    AUTOMATIC,
    SLICE_HEIGHTS,
    Pjds,
    slice_offsets,
    sort_rows,
)
from petsc_gpufmt.plan import Launch, Operation

MANY_THREADS = 1 << 20


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


def padded_entries(lengths, height, window, backend):
    """nstored of rows of these lengths, without storing them."""
    perm = sort_rows(lengths, window, backend)
    return int(slice_offsets(lengths, perm, height, np)[-1])


@pytest.mark.parametrize("options", ALL_OPTION_SETS["pjds"], ids=option_id)
@pytest.mark.parametrize("shape_name", SHAPES)
def test_layout(backend, shape_name, options):
    matrix = shape(shape_name)
    stored = StoredMatrix(matrix, Pjds, backend, options).format
    perm = np.arange(matrix.nrows) if stored.row_perm is None else stored.row_perm
    height, lengths = options["slice_height"], np.diff(matrix.rowptr)
    expected_columns, expected_values = [], []
    for first in range(0, matrix.nrows, height):
        rows = perm[first : first + height]
        width = lengths[rows].max()
        columns, values = np.full((width, height), -1), np.zeros((width, height))
        for lane, row in enumerate(rows):
            entries = slice(matrix.rowptr[row], matrix.rowptr[row + 1])
            columns[: lengths[row], lane] = matrix.colidx[entries]
            values[: lengths[row], lane] = matrix.values[entries]
        expected_columns.extend(columns.ravel())
        expected_values.extend(values.ravel())

    assert stored.col.tolist() == expected_columns
    assert stored.val.tolist() == expected_values
    assert sorted(perm) == list(range(matrix.nrows))


@pytest.mark.parametrize("window", [1, 7, 64, 300])
def test_rows_are_sorted_by_decreasing_length_inside_windows_and_ties_keep_their_order(backend, window):
    lengths = np.random.default_rng(40).integers(0, 9, 300).astype(np.int32)
    expected = np.concatenate(
        [first + np.argsort(-lengths[first : first + window], kind="stable") for first in range(0, 300, window)]
    )

    perm = sort_rows(lengths, window, backend)

    assert (np.arange(300) if perm is None else perm).tolist() == expected.tolist()


@pytest.mark.parametrize("window", [AUTOMATIC, ALL_ROWS, 5])
def test_rows_that_need_no_sorting_have_no_permutation(backend, window):
    stored = StoredMatrix(uniform(100, 100, 5, seed=41), Pjds, backend, {"sigma_window": window}).format

    assert stored.row_perm is None


@pytest.mark.parametrize("height", SLICE_HEIGHTS)
def test_the_papers_worst_case_one_full_row_and_one_entry_in_all_others(backend, height):
    n = 8 * height
    lengths = np.ones(n, dtype=np.int64)
    lengths[n // 2] = n
    matrix = from_row_lengths(lengths, n, seed=42)

    stored = StoredMatrix(matrix, Pjds, backend, {"slice_height": height, "sigma_window": ALL_ROWS}).format

    assert stored.nstored == (height + 1) * n - height  # ELLPACK: n * n


def test_the_example_of_the_documentation(backend):
    lengths = np.array([1, 3, 0, 2, 4, 1, 2, 1], dtype=np.int32)

    perm = sort_rows(lengths, 8, backend)

    assert perm.tolist() == [4, 1, 3, 6, 0, 5, 7, 2]
    assert slice_offsets(lengths, perm, 4, np).tolist() == [0, 16, 20]


@pytest.mark.parametrize("window", [AUTOMATIC, ALL_ROWS, 1])
def test_rows_of_constant_length_store_no_padding(backend, window):
    stored = StoredMatrix(uniform(256, 90, 11, seed=43), Pjds, backend, {"sigma_window": window}).format

    assert stored.nstored == stored.nnz and stored.stats().fill_ratio == 0


# Dimension, longest, shortest and mean row length of matrices like those of the paper's section I-C and figure 3.
# Of the lengths between, only what matters to padding is kept: how many different ones there are, and their mean.
PAPER_MATRICES = {
    "DLR1": (278_502, 180, 90, 144),
    "DLR2": (541_980, 740, 50, 315),
    "HMEp": (6_201_600, 24, 3, 15),
    "sAMG": (3_405_035, 25, 4, 7),
}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "longest", "shortest", "mean"), PAPER_MATRICES.values(), ids=PAPER_MATRICES)
def test_overhead_on_matrices_like_the_papers_is_below_a_hundredth_of_a_percent(backend, n, longest, shortest, mean):
    share = (mean - shortest) / (longest - shortest)
    places = np.random.default_rng(44).beta(2 * share, 2 * (1 - share), n)
    lengths = np.rint(shortest + (longest - shortest) * places).astype(np.int32)
    nnz = int(lengths.sum(dtype=np.int64))
    assert lengths.max() == longest and lengths.min() == shortest and nnz == pytest.approx(mean * n, rel=0.02)

    nstored = padded_entries(lengths, 32, n, backend)

    assert nstored - nnz < 1e-4 * nnz


@pytest.mark.parametrize("height", SLICE_HEIGHTS)
def test_padding_of_sorted_rows_is_bounded_by_the_spread_of_lengths(backend, height):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, rng.integers(1, 200), rng.integers(1, 2000)).astype(np.int32)

        padding = padded_entries(lengths, height, lengths.size, backend) - int(lengths.sum())

        assert padding <= (height - 1) * int(lengths.max())
        if lengths.size % height == 0:
            assert padding <= (height - 1) * int(lengths.max() - lengths.min())


def test_a_larger_window_that_holds_whole_smaller_ones_never_pads_more(backend):
    lengths = np.random.default_rng(45).geometric(0.05, 4096).astype(np.int32)

    sizes = [padded_entries(lengths, 32, window, backend) for window in (1, 32, 64, 256, 1024, 4096)]

    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] > lengths.sum()


def test_the_automatic_window_does_not_sort_where_padding_is_small(backend):
    stored = StoredMatrix(banded(2000), Pjds, backend, {}).format

    assert stored.sigma_window == 1 and stored.row_perm is None
    assert 0 < stored.stats().fill_ratio <= ACCEPTABLE_FILL_RATIO


@pytest.mark.parametrize("nrows", [500, 3000, 40000])
def test_the_automatic_window_is_the_smallest_with_acceptable_padding(backend, nrows):
    lengths = np.random.default_rng(46).geometric(0.1, nrows)
    rowptr = np.concatenate([[0], np.cumsum(lengths)])
    one_column = CsrMatrix(nrows, 1, rowptr, np.zeros(rowptr[-1], dtype=np.int64), np.ones(rowptr[-1]))
    stored = StoredMatrix(one_column, Pjds, backend, {}).format

    assert stored.stats().fill_ratio <= ACCEPTABLE_FILL_RATIO or stored.sigma_window == nrows
    for window in (w for w in (1, 1024, 16384) if w < stored.sigma_window):
        fill_ratio = 1 - stored.nnz / padded_entries(lengths, stored.slice_height, window, backend)
        assert fill_ratio > ACCEPTABLE_FILL_RATIO


def test_stats_and_summary_of_a_small_matrix(backend):
    lengths = np.array([1, 0, 3, 2, 2, 0, 1, 1, 4, 1])
    stored = StoredMatrix(
        from_row_lengths(lengths, 6, seed=48), Pjds, backend, {"slice_height": 8, "sigma_window": ALL_ROWS}
    ).format
    stats = stored.stats()

    assert (stats.nnz, stats.nstored, stats.nonempty_rows) == (15, 8 * 4 + 8 * 0, 8)
    assert stats.fill_ratio == pytest.approx(1 - 15 / 32)
    assert stats.bytes_held == 32 * (8 + 4) + 3 * 8 + 10 * 4 + 11 * 4
    assert stats.bytes_per_product == 32 * (8 + 4) + 10 * (8 / 8 + 4 + 8) + 6 * 8
    assert stored.summary() == "slice height 8, sigma window 10"


@pytest.mark.parametrize("width", [8, 32])
def test_the_automatic_slice_height_is_the_number_of_rows_that_run_in_step(backend, width):
    backend.simd_width = width

    assert StoredMatrix(shape("banded"), Pjds, backend, {}).format.slice_height == width


@pytest.mark.parametrize("height", [1, 33, 256, -32])
def test_a_slice_height_that_is_not_offered_is_refused(backend, height):
    with pytest.raises(OptionError, match=f"-mat_pjds_slice_height {height}: choose one of 8, 16, 32, 64, 128"):
        StoredMatrix(shape("banded"), Pjds, backend, {"slice_height": height})


def test_a_negative_window_is_refused(backend):
    with pytest.raises(OptionError, match="-mat_pjds_sigma_window -2: choose a number of rows"):
        StoredMatrix(shape("banded"), Pjds, backend, {"sigma_window": -2})


def test_padded_rows_that_do_not_fit_the_index_type_are_refused():
    with pytest.raises(IndexOverflowError, match="32761 rows padded to slices of 8 do not fit int16"):
        slice_offsets(np.zeros(2**15 - 7, dtype=np.int16), None, 8, np)


def test_padding_may_pass_what_the_index_type_counts():
    offsets = slice_offsets(np.full(64, 100, dtype=np.int8), None, 32, np)

    assert offsets.tolist() == [0, 3200, 6400] and offsets.dtype == np.int64


@pytest.mark.parametrize(
    ("nrows", "row_length", "resident_threads", "threads_per_row"),
    [
        (1, 7, MANY_THREADS, 1),
        (1, 8, MANY_THREADS, 2),
        (1, 16, MANY_THREADS, 4),
        (1, 5000, MANY_THREADS, 32),  # 1024 threads a block
        (40, 100, MANY_THREADS, 16),
        (40, 100, 160, 4),
        (40, 100, 79, 1),
    ],
)
def test_threads_share_rows_that_are_few_and_long(backend, nrows, row_length, resident_threads, threads_per_row):
    backend.resident_threads = resident_threads
    stored = StoredMatrix(uniform(nrows, row_length, row_length, seed=49), Pjds, backend, {"slice_height": 32}).format

    assert [launch.block[1] for launch in stored.plan(Operation.MULT)] == [threads_per_row]


@pytest.mark.parametrize("resident_threads", [0, MANY_THREADS])
@pytest.mark.parametrize("height", SLICE_HEIGHTS)
def test_the_threads_of_a_launch_cover_all_slices_once(backend, height, resident_threads):
    backend.resident_threads = resident_threads
    stored = StoredMatrix(shape("power_law"), Pjds, backend, {"slice_height": height}).format
    (launch,) = stored.plan(Operation.MULT)
    lanes, threads_per_row, slices_per_block = launch.block

    assert lanes == height and (threads_per_row > 1) == (resident_threads > 0)
    assert launch.grid[1:] == (1, 1)
    assert (launch.grid[0] - 1) * slices_per_block < stored.nslices <= launch.grid[0] * slices_per_block


def test_no_launch_for_nothing(backend):
    stored = StoredMatrix(shape("0xN"), Pjds, backend, {}).format

    assert [stored.plan(operation) for operation in Operation] == [[], [], []]


@pytest.mark.parametrize("place", ["host", "emulation"])
def test_rows_are_padded_rightly_where_the_entries_end_at_the_largest_index(place, request):
    """Walking past the end of the last row must not wrap around: 2^31 - 1 entries, of which one slice is looked at."""
    if place == "host":
        backend = HostBackend(*native_library.petsc_types())
    else:
        backend = EmulatedBackend(np.float64, np.int32, request.getfixturevalue("emulation_folder"))
    last = 2**31 - 1
    rowptr = np.array([last - 4, last - 1, last], dtype=np.int32)
    entries = np.zeros(last, dtype=np.int32)  # memory that is reserved only
    entries[-4:] = [6, 7, 8, 9]
    stored = np.full(3 * 8, -5, dtype=np.int32)
    function = backend.function("pjds", "pjds_fill_columns", (8, 1, 1))
    arguments = (np.int32(2), np.array([0, 24]), rowptr, None, None, entries, stored)

    backend.run([Launch(function, (1, 1, 1), (8, 1, 1), arguments)])

    assert stored.reshape(3, 8)[:, :2].tolist() == [[6, 9], [7, -1], [8, -1]]
    assert (stored.reshape(3, 8)[:, 2:] == -1).all()
