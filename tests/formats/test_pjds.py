"""pJDS: layout, options, columns, launches."""

from dataclasses import replace

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, banded, from_row_lengths, shape, stencil, uniform
from emulation.backend import EmulatedBackend
from format_checks import check
from option_sets import ALL_OPTION_SETS, option_id
from stored_matrix import StoredMatrix, assert_same_bits

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.backends.plan import Launch, Operation
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats import pjds
from petsc_gpufmt.formats.common import base, columns
from petsc_gpufmt.formats.common.columns import FULL_ONLY, SHORT_WHERE_IT_FITS
from petsc_gpufmt.formats.common.row_patterns import RowPatterns, Search
from petsc_gpufmt.formats.common.sliced_rows import cut
from petsc_gpufmt.formats.pjds import (
    ALL_ROWS,
    LARGE_BATCH,
    PATTERN,
    SLICE_HEIGHTS,
    SMALL_BATCH,
    Pjds,
    check_options,
)
from petsc_gpufmt.patterns.csr import CsrPattern, RowCounts

MANY_THREADS = 1 << 20


WITH_DICTIONARY = {"1x1", "all_empty", "banded", "dense", "stencil"}
"""Shapes of few different rows."""


def make_backend(place, request):
    if place == "host":
        return HostBackend(*native_library.petsc_types())
    if place == "cuda":
        return CudaBackend(np.float64, np.int32, device=0)
    resident_threads = MANY_THREADS if place.endswith("many threads") else 0
    folder, device_like = request.getfixturevalue("emulation_folder"), place == "device_like"
    return EmulatedBackend(np.float64, np.int32, folder, resident_threads, device_like=device_like)


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.mark.real
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, marks=[pytest.mark.slow] if number % 5 else [])
        for number, options in enumerate(ALL_OPTION_SETS["pjds"])
    ],
    ids=option_id,
)
@EVERY_SHAPE_MOST_SLOW
def test_layout(backend, shape_name, options):
    matrix = shape(shape_name)
    stored = StoredMatrix(matrix, Pjds, backend, options).format
    perm = np.arange(matrix.nrows) if stored.row_perm is None else stored.row_perm
    height, lengths = options["slice_height"], np.diff(matrix.rowptr)
    expected_columns, expected_values = [], []
    for first in range(0, matrix.nrows, height):
        rows = perm[first : first + height]
        width = lengths[rows].max()
        columns, values = np.full((width, height), -1), np.zeros((width, height), stored.val.dtype)
        for lane, row in enumerate(rows):
            entries = slice(matrix.rowptr[row], matrix.rowptr[row + 1])
            columns[: lengths[row], lane] = matrix.colidx[entries]
            values[: lengths[row], lane] = matrix.values[entries]
        expected_columns.extend(columns.ravel())
        expected_values.extend(values.ravel())

    assert stored.columns.decode().tolist() == expected_columns
    assert stored.val.tolist() == expected_values
    assert sorted(perm) == list(range(matrix.nrows))


@pytest.mark.double
@pytest.mark.real
def test_stats_and_summary_of_a_small_matrix(backend):
    lengths = np.array([1, 0, 3, 2, 2, 0, 1, 1, 4, 1])
    stored = StoredMatrix(
        from_row_lengths(lengths, 6, seed=48), Pjds, backend, {"slice_height": 8, "sigma_window": ALL_ROWS}
    ).format
    stats = stored.stats()

    assert (stats.nnz, stats.nstored, stats.nonempty_rows) == (15, 8 * 4 + 8 * 0, 8)
    assert stats.fill_ratio == pytest.approx(1 - 15 / 32)
    assert stats.bytes_held == 32 * (8 + 4) + 3 * 8 + 10 * 4 + 11 * 4
    assert stats.bytes_per_mult == 32 * (8 + 4) + 10 * (8 / 8 + 4 + 8) + 6 * 8
    assert stored.summary() == "slice height 8, sigma window 10, full columns"


@pytest.mark.parametrize("width", [8, 32])
def test_the_automatic_slice_height_is_the_number_of_rows_that_run_in_step(backend, width):
    backend.simd_width = width

    assert StoredMatrix(shape("banded"), Pjds, backend, {}).format.slice_height == width


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("index", 4, "-mat_pjds_index 4: choose one of auto, full, short, pattern"),
        ("index", "fuller", "-mat_pjds_index fuller: choose one of auto, full, short, pattern"),
        ("threads_per_row", 3, "-mat_pjds_threads_per_row 3: choose one of 1, 2, 4, 8, 16, 32, or 0"),
        ("block_threads", 100, "-mat_pjds_block_threads 100: choose one of 64, 128, 256, 512, or 0"),
    ],
)
def test_a_value_that_is_not_offered_is_refused(backend, option, value, message):
    with pytest.raises(OptionError, match=message):
        StoredMatrix(shape("banded"), Pjds, backend, {option: value})


def test_more_threads_than_a_block_holds_are_refused(backend):
    message = (
        "threads_per_row 32 needs 1024 threads for a slice of 32 rows, and a block has at most 512: "
        "choose at most 16, or a smaller -mat_pjds_slice_height"
    )
    with pytest.raises(OptionError, match=message):
        StoredMatrix(shape("banded"), Pjds, backend, {"slice_height": 32, "threads_per_row": 32})


def test_a_dictionary_that_is_not_there_is_refused_with_the_reason(backend):
    with pytest.raises(
        OptionError,
        match="-mat_pjds_index pattern stores .* has more than 256 row patterns .*: choose auto, full, short",
    ):
        StoredMatrix(shape("power_law"), Pjds, backend, {"index": PATTERN})


@pytest.mark.parametrize("height", [1, 33, 256, -32])
def test_a_slice_height_that_is_not_offered_is_refused(backend, height):
    with pytest.raises(OptionError, match=f"-mat_pjds_slice_height {height}: choose one of 8, 16, 32, 64, 128"):
        StoredMatrix(shape("banded"), Pjds, backend, {"slice_height": height})


def test_a_negative_window_is_refused(backend):
    with pytest.raises(OptionError, match="-mat_pjds_sigma_window -2: choose a number of rows"):
        StoredMatrix(shape("banded"), Pjds, backend, {"sigma_window": -2})


@pytest.mark.double
def test_padding_may_pass_what_the_index_type_counts(backend):
    counts = RowCounts(2**30, 0, False, (0, 0), ())
    csr = CsrPattern(2, 1, np.array([0, 2**30, 2**30 + 5], dtype=np.int32), np.zeros(0, dtype=np.int32), counts=counts)

    slices = cut(csr, 1, 8, backend)

    assert slices.offsets.tolist() == [0, 2**33] and slices.nstored == 2**33


@pytest.mark.parametrize(
    ("nrows", "row_length", "resident_threads", "threads_per_row"),
    [
        (1, 7, MANY_THREADS, 1),
        (1, 8, MANY_THREADS, 2),
        (1, 16, MANY_THREADS, 4),
        (1, 5000, MANY_THREADS, 16),  # 512 threads a block
        (40, 100, MANY_THREADS, 16),
        (40, 100, 160, 4),
        (40, 100, 79, 1),
    ],
)
def test_threads_share_rows_that_are_few_and_long(backend, nrows, row_length, resident_threads, threads_per_row):
    backend.resident_threads = resident_threads
    stored = StoredMatrix(uniform(nrows, row_length, row_length, seed=49), Pjds, backend, {"slice_height": 32}).format

    assert [launch.block[1] for launch in stored.plan(Operation.MULT)] == [threads_per_row]


@pytest.mark.parametrize(
    ("row_length", "threads_per_row", "batch", "fill_threads"),
    [
        (0, 1, SMALL_BATCH, None),
        (4, 1, SMALL_BATCH, 1),
        (5, 1, LARGE_BATCH, 2),
        (8, 2, SMALL_BATCH, 2),
        (15, 2, LARGE_BATCH, 2),
        (16, 2, LARGE_BATCH, 4),
    ],
)
def test_batches_and_threads_of_the_refresh_follow_the_entries_of_a_thread(
    backend, monkeypatch, row_length, threads_per_row, batch, fill_threads
):
    options = {"slice_height": 32, "threads_per_row": threads_per_row}
    stored = StoredMatrix(uniform(40, 90, row_length, seed=56), Pjds, backend, options).format
    asked = []
    monkeypatch.setattr(backend, "function", lambda stem, kernel, template: asked.append((kernel, template)) or 0)

    for operation in (Operation.MULT, Operation.DIAGONAL, Operation.REFRESH):
        stored.plan(operation)

    assert [template[1] for kernel, template in asked if kernel == "pjds_spmv"] == [batch]
    assert [template[1] for kernel, template in asked if kernel == "pjds_fill_values"] == (
        [fill_threads] if fill_threads else []
    )


@pytest.mark.parametrize(
    ("row_length", "template"), [(32, (0, SMALL_BATCH, 32, 1, 4)), (33, (0, SMALL_BATCH, 32, 4, 1))]
)
def test_diagonals_have_one_kernel_for_short_rows_and_one_for_long_ones(backend, monkeypatch, row_length, template):
    for threads_per_row in (1, 8):
        options = {"slice_height": 32, "threads_per_row": threads_per_row}
        stored = StoredMatrix(uniform(40, 90, row_length, seed=56), Pjds, backend, options).format
        with monkeypatch.context() as patch:
            patch.setattr(backend, "function", lambda stem, kernel, template: (kernel, template))

            assert [launch.function for launch in stored.diagonal()] == [("pjds_diagonal", template)]


def test_threads_per_row_and_block_are_those_asked_for(backend):
    options = {"slice_height": 16, "threads_per_row": 4, "block_threads": 256}
    stored = StoredMatrix(shape("power_law"), Pjds, backend, options).format

    assert [launch.block for launch in stored.plan(Operation.MULT)] == [(16, 4, 4)]


def test_options_measured_best_are_used_where_nothing_is_asked_for(backend, monkeypatch):
    asked = []

    def tuned(backend, format_name, key):
        asked.append((format_name, key))
        return {"slice_height": 16, "threads_per_row": 2, "block_threads": 64}

    monkeypatch.setattr(base, "tuned", tuned)
    stored = StoredMatrix(shape("banded"), Pjds, backend, {"threads_per_row": 4}).format

    assert asked == [("pjds", "rows=few,width=8")]
    assert [launch.block for launch in stored.plan(Operation.MULT)] == [(16, 4, 1)]


@pytest.mark.parametrize(
    ("nrows", "row_length", "key"),
    [
        (0, 0, "rows=few,width=1"),
        (32768, 1, "rows=few,width=1"),
        (32769, 3, "rows=some,width=4"),
        (262145, 9, "rows=many,width=16"),
    ],
)
def test_matrices_of_similar_size_and_row_length_are_tuned_alike(nrows, row_length, key):
    csr = CsrPattern(nrows, 9, np.arange(0, nrows * row_length + 1, max(row_length, 1)), np.zeros(nrows * row_length))

    assert Pjds.tuning_key(csr) == key


def test_all_options_of_the_tuning_space_are_offered_and_none_wastes_a_thread():
    csr = uniform(50, 40, 13, seed=55).pattern(np, np.int32)
    space = Pjds.tuning_space(csr)

    assert len(space) == len({tuple(options.values()) for options in space}) > 10
    for options in space:
        check_options({**Pjds.default_options, **options}, options["slice_height"])
        assert options["threads_per_row"] <= 13
        assert options["slice_height"] * options["threads_per_row"] <= options["block_threads"]


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"slice_height": 64, "sigma_window": 50}, marks=pytest.mark.slow)],
    ids=option_id,
)
@EVERY_SHAPE_MOST_SLOW
@pytest.mark.parametrize(
    "place",
    [
        "host",
        "device_like",
        pytest.param("emulation of many threads", marks=pytest.mark.slow),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ],
)
def test_results_have_the_same_bits_however_columns_are_stored(place, shape_name, options, request):
    stored = []
    for index in (FULL_ONLY, SHORT_WHERE_IT_FITS, PATTERN):
        try:
            stored.append(
                StoredMatrix(shape(shape_name), Pjds, make_backend(place, request), {**options, "index": index})
            )
        except OptionError:
            assert index == PATTERN and shape_name not in WITH_DICTIONARY
    x, y = stored[0].vectors()

    for other in stored[1:]:
        assert_same_bits(other.mult_scaled(0.7, -1.3, x, y), stored[0].mult_scaled(0.7, -1.3, x, y))
        assert_same_bits(other.diagonal(), stored[0].diagonal())


def test_the_automatic_index_on_the_host_is_the_dictionary_or_full(backend, monkeypatch):
    monkeypatch.setattr(pjds, "FEW_ENTRIES", 0)

    assert isinstance(StoredMatrix(shape("stencil"), Pjds, backend, {}).format.columns, RowPatterns)
    assert StoredMatrix(shape("power_law"), Pjds, backend, {}).format.columns.mode == columns.FULL


def test_the_automatic_index_on_a_device_is_that_of_fewest_bytes(emulation_folder, monkeypatch):
    monkeypatch.setattr(pjds, "FEW_ENTRIES", 0)
    backend = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=MANY_THREADS)
    chosen = {name: StoredMatrix(shape(name), Pjds, backend, {}).format for name in ("stencil", "power_law", "dense")}
    far = replace(uniform(64, 64, 4, seed=56), ncols=64 * 70_000)
    far = replace(far, colidx=far.colidx * 70_000)

    assert isinstance(chosen["stencil"].columns, RowPatterns)
    assert chosen["power_law"].columns.mode == chosen["dense"].columns.mode == columns.SHORT
    assert StoredMatrix(far, Pjds, backend, {}).format.columns.mode == columns.FULL


@pytest.mark.parametrize(("options", "first"), [({}, 0), ({"sigma_window": 1}, 0), ({"sigma_window": 64}, 2)])
def test_patterns_are_sought_while_rows_are_cut_if_these_keep_their_order(
    emulation_folder, monkeypatch, options, first
):
    monkeypatch.setattr(pjds, "FEW_ENTRIES", 0)
    backend = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=4096, device_like=True)
    asked, function, matrix = [], backend.function, banded(512)
    csr = matrix.pattern_on(backend).validated(backend)
    monkeypatch.setattr(
        backend, "function", lambda stem, kernel, *more: asked.append(kernel) or function(stem, kernel, *more)
    )

    built = Pjds.build(csr, backend, {**Pjds.default_options, **options})

    assert asked.index("row_patterns_collect") == first and "sliced_rows_offsets" in asked
    assert isinstance(built.columns, RowPatterns)


def test_a_device_does_not_look_for_patterns_in_few_rows_that_it_sorts(emulation_folder, monkeypatch):
    monkeypatch.setattr(pjds, "FEW_ENTRIES", 0)
    backend = EmulatedBackend(np.float64, np.int32, emulation_folder)
    even, uneven = banded(512), from_row_lengths(np.where(np.arange(512) % 2, 1, 9), 512, seed=57)

    def index_of(matrix):
        return StoredMatrix(matrix, Pjds, backend, {}).format.columns

    monkeypatch.setattr(Search, "begin", None)
    assert index_of(uneven).mode == columns.SHORT
    with pytest.raises(TypeError):
        index_of(even)
    monkeypatch.setattr(pjds, "MANY_ROWS", 511)
    with pytest.raises(TypeError):
        index_of(uneven)


def test_small_matrices_are_stored_without_a_wait_and_regular_ones_with_one(emulation_folder, monkeypatch):
    backend = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=MANY_THREADS)
    waits, first = [], backend.first
    for few, matrix, expected in ((1 << 17, stencil(), 0), (0, stencil(), 1), (0, uniform(90, 90, 7, seed=58), 1)):
        monkeypatch.setattr(pjds, "FEW_ENTRIES", few)
        csr = matrix.pattern(np, np.int32).validated(backend)
        with monkeypatch.context() as patch:
            patch.setattr(backend, "first", lambda *arguments: waits.append(1) or first(*arguments))
            waits.clear()
            Pjds.build(csr, backend, Pjds.default_options)

        assert len(waits) == expected


def test_columns_of_few_entries_stay_full(backend):
    assert StoredMatrix(shape("stencil"), Pjds, backend, {}).format.columns.mode == columns.FULL


@pytest.mark.double
@pytest.mark.real
@pytest.mark.parametrize("index", [FULL_ONLY, SHORT_WHERE_IT_FITS, PATTERN])
def test_bytes_that_a_product_moves(backend, index):
    matrix = stencil(8, 8, 8)
    stored = StoredMatrix(matrix, Pjds, backend, {"slice_height": 8, "sigma_window": 1, "index": index}).format
    nstored, rows = stored.nstored, 512
    short = nstored * 2 + nstored // 8 * 4
    of_columns = {FULL_ONLY: nstored * 4, SHORT_WHERE_IT_FITS: short, PATTERN: rows + 27 * 8 * 4}[index]

    assert stored.row_perm is None
    assert stored.stats().bytes_per_mult == nstored * 8 + of_columns + rows * (8 / 8 + 8) + rows * 8
    assert stored.stats().bytes_held == nstored * 8 + of_columns + (rows // 8 + 1) * 8 + (rows + 1) * 4


@pytest.mark.double
@pytest.mark.real
def test_the_report_compares_with_csr_and_ellpack(backend):
    lengths = np.array([1, 0, 3, 2, 2, 0, 1, 1, 4, 1])
    options = {"slice_height": 8, "sigma_window": ALL_ROWS}
    stored = StoredMatrix(from_row_lengths(lengths, 6, seed=48), Pjds, backend, options).format

    assert stored.detail().splitlines() == [
        "rows: 10, longest 4, mean 1.50",
        "stored entries: 32 for 15 nonzeros, fill ratio 0.5312",
        "columns: full columns, 128 bytes",
        "memory: 448 bytes, 2.0000 times the 224 of CSR, 0.9333 times the 480 of ELLPACK",
        "launch: 1 threads a row, 128 a block, the first 8 rows to add",
    ]


@pytest.mark.double
def test_the_report_of_an_empty_matrix(backend):
    stored = StoredMatrix(shape("Nx0"), Pjds, backend, {}).format

    assert "times the 204 of CSR, infinitely many times the 0 of ELLPACK" in stored.detail()


@pytest.mark.parametrize("resident_threads", [0, MANY_THREADS])
@pytest.mark.parametrize("height", SLICE_HEIGHTS)
def test_the_threads_of_a_launch_cover_all_slices_once(backend, height, resident_threads):
    backend.resident_threads = resident_threads
    stored = StoredMatrix(shape("power_law"), Pjds, backend, {"slice_height": height}).format
    (launch,) = stored.plan(Operation.MULT)
    lanes, threads_per_row, slices_per_block = launch.block

    assert lanes == height and (threads_per_row > 1) == (resident_threads > 0)
    assert launch.grid[1:] == (1, 1)
    assert (launch.grid[0] - 1) * slices_per_block < stored.slice_offsets.size - 1 <= launch.grid[0] * slices_per_block


@pytest.mark.parametrize("place", ["host", "emulation"])
@pytest.mark.parametrize("height", [8, 32])
@pytest.mark.parametrize(
    ("nonempty", "sigma", "added"), [(0, 0, 0), (1, 0, 1), (40, 0, 40), (250, 0, 250), (40, 64, 1000), (700, 16, 1000)]
)
def test_what_is_added_is_launched_over_rows_with_entries(place, height, nonempty, sigma, added, request):
    """Where these are a quarter of all, or fewer; and it is right wherever they are."""
    backend = make_backend(place, request)
    lengths = np.zeros(1000, dtype=int)
    lengths[np.random.default_rng(52).choice(1000, nonempty, replace=False)] = 3
    options = {"slice_height": height, "sigma_window": sigma}
    stored = StoredMatrix(from_row_lengths(lengths, 60, seed=53), Pjds, backend, options)

    launched = {
        operation: sum(launch.grid[0] * launch.block[2] * height for launch in stored.format.plan(operation))
        for operation in (Operation.ADD, Operation.REFRESH, Operation.MULT, Operation.DIAGONAL)
    }

    of_all, of_added = (-(-n // 128) * 128 for n in (1000, added))
    assert launched[Operation.MULT] == launched[Operation.DIAGONAL] == of_all
    assert launched[Operation.ADD] == launched[Operation.REFRESH] == of_added
    check(stored, f"{nonempty} of 1000 rows")


@pytest.mark.parametrize("place", ["host", "emulation"])
def test_a_dictionary_is_no_need_of_a_rank_without_rows(place, request):
    backend = make_backend(place, request)
    csr = CsrPattern(0, 5, np.zeros(1, backend.index), np.zeros(0, backend.index))
    stored = Pjds.build(csr, backend, {**Pjds.default_options, "index": PATTERN})
    assert stored.nstored == 0 and not stored.mult(1.0, 0.0) and not stored.refresh()


def test_no_launch_for_nothing(backend):
    stored = StoredMatrix(shape("0xN"), Pjds, backend, {}).format

    assert [stored.plan(operation) for operation in Operation] == [[]] * len(Operation)


@pytest.mark.double
@pytest.mark.parametrize("place", ["host", "emulation"])
def test_rows_are_padded_rightly_where_the_entries_end_at_the_largest_index(place, request):
    """Walking past the end of the last row must not wrap around: 2^31 - 1 entries, of which one slice is looked at."""
    backend = make_backend(place, request)
    last = 2**31 - 1
    rowptr = np.array([last - 4, last - 1, last], dtype=np.int32)
    entries = np.zeros(last, dtype=np.int32)  # memory that is reserved only
    entries[-4:] = [6, 7, 8, 9]
    stored = np.full(3 * 8, -5, dtype=np.int32)
    function = backend.function("formats/pjds", "pjds_fill_columns", (8, 1, 1))
    arguments = (np.int32(2), np.array([0, 24]), rowptr, None, None, entries, stored)

    backend.run([Launch(function, (1, 1, 1), (8, 1, 1), arguments)])

    assert stored.reshape(3, 8)[:, :2].tolist() == [[6, 9], [7, -1], [8, -1]]
    assert (stored.reshape(3, 8)[:, 2:] == -1).all()
