"""EVC-HYB: layout, figures of Guo, Gropp and Olson, choice of windows and of teams, split rows, options."""

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, CsrMatrix, banded, from_row_lengths, shape, uniform
from emulation.backend import EmulatedBackend
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common import base
from petsc_gpufmt.formats.common.columns import FULL, FULL_ONLY, SHORT, SHORT_WHERE_IT_FITS
from petsc_gpufmt.formats.evchyb import layout as evchyb_layout
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.formats.evchyb.layout import AUTOMATIC, RowCounts, Split, choose_split, cut_slices, split_lengths
from petsc_gpufmt.formats.evchyb.order import (
    ACCEPTABLE_PADDING,
    ALL_ROWS,
    automatic_window,
    order_rows,
    padding_share,
)
from petsc_gpufmt.patterns.csr import CsrPattern

H200_THREADS = 270336
SEGMENT_GROUPS = 128


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture
def warp_backend(backend):
    """The host backend with slices as high as a warp, as on a device: its kernels take both."""
    backend.simd_width = 32
    return backend


def stored_format(matrix, backend, **options):
    return StoredMatrix(matrix, EvcHyb, backend, options).format


def pattern_of_lengths(lengths, index=np.int32):
    """Rows of these lengths, all entries in column 0."""
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(index)
    return CsrPattern(len(lengths), 1, rowptr, np.zeros(rowptr[-1], dtype=index))


def parts_of(lengths, split_length, window, height, backend):
    """Pattern, counts, split and order of rows of these lengths."""
    csr, splits = pattern_of_lengths(lengths), (split_length, split_length)
    counts = RowCounts.of(csr, splits, height, SEGMENT_GROUPS, backend)
    split = Split(split_length, counts.nshort[0], counts.segments[0])
    return csr, counts, split, order_rows(csr, counts, split, window, height, backend)


def cut(parts, height, backend):
    return cut_slices(*parts, height, SEGMENT_GROUPS, backend)


def slices_of(c, stored):
    """The slices of a class of teams, in the order in which they are begun."""
    part = (
        range(stored.slices.nell) if c in stored.teams.ell_classes else range(stored.slices.nell, stored.slices.nslices)
    )
    begin, numbers, groups, split, teams = (a.ravel() for a in tasks_of(stored))
    found = numbers[np.isin(numbers, part) & (teams == c.team)]
    return found[:: c.team].tolist()


def in_order_of_length(matrix, rows):
    """`rows` by length, else as they are."""
    lengths = np.diff(matrix.rowptr)
    return sorted(rows, key=lambda row: lengths[row])


@pytest.mark.real
@pytest.mark.parametrize("window", [1, 64, ALL_ROWS])
@pytest.mark.parametrize("split_length", [3, 128])
@EVERY_SHAPE_MOST_SLOW
def test_layout(warp_backend, shape_name, split_length, window):
    matrix = shape(shape_name)
    stored = stored_format(matrix, warp_backend, split_length=split_length, sigma_window=window, segment_length=256)
    lengths = np.diff(matrix.rowptr)
    short = [r for r in range(matrix.nrows) if lengths[r] <= split_length]
    step = len(short) if window == ALL_ROWS else window
    if window != 1 and short:
        short = [r for i in range(0, len(short), step) for r in in_order_of_length(matrix, short[i : i + step])]
    nell = len(short) // 32
    ell_rows = short[: 32 * nell]
    long_rows = in_order_of_length(matrix, sorted(set(range(matrix.nrows)) - set(ell_rows), key=short_first(short)))
    columns, values = [], []
    for s in range(nell):
        rows = ell_rows[32 * s : 32 * s + 32]
        for j in range(lengths[rows].max()):
            entries = [matrix.rowptr[r] + j if j < lengths[r] else -1 for r in rows]
            columns += [matrix.colidx[k] if k >= 0 else -1 for k in entries]
            values += [matrix.values[k] if k >= 0 else 0 for k in entries]
    for row in long_rows:
        padding = -lengths[row] % 32
        columns += [*matrix.colidx[matrix.rowptr[row] : matrix.rowptr[row + 1]], *[-1] * padding]
        values += [*matrix.values[matrix.rowptr[row] : matrix.rowptr[row + 1]], *[0] * padding]
    segments = np.maximum(1, -(-lengths[long_rows] // 256))

    assert stored.columns.decode().tolist() == columns
    assert stored.val.tolist() == values
    assert stored.slices.segment_row.tolist() == np.repeat(long_rows, segments).tolist()
    assert stored.slices.segments[1::2].tolist() == np.repeat(segments, segments).tolist()


def short_first(short):
    """Key that puts rows of `short` first, in its order, then the others by number."""
    place = {row: i for i, row in enumerate(short)}
    return lambda row: (place.get(row, len(short)), row)


# Rows, split point I_split and stored entries of the vCSR part from table 3 of the paper, for its matrices without rows
# of more than 128 entries, and the length of the longest row.
TABLE_3 = {
    "raefsky3": (21200, 21184, 1536, 80),
    "cop20k_A": (121192, 121184, 768, 81),
    "msdoor": (415863, 415840, 2208, 77),
    "shipsec1": (140874, 140864, 1280, 102),
    "ldoor": (952203, 952192, 1056, 77),
    "Economics": (206500, 206496, 256, 44),
}


@pytest.mark.parametrize(("nrows", "split", "stored_long", "longest"), TABLE_3.values(), ids=TABLE_3)
def test_the_papers_split_points_and_entries_of_the_vectorised_part(warp_backend, nrows, split, stored_long, longest):
    lengths = np.ones(nrows, dtype=np.int32)
    lengths[7 : 7 + 40] = longest

    slices = cut(parts_of(lengths, 128, ALL_ROWS, 32, warp_backend), 32, warp_backend)

    assert 32 * slices.nell == split
    assert slices.offsets[-1] - slices.offsets[slices.nell] == slices.nstored - slices.nstored_ell == stored_long


def test_detail_counts_both_parts_as_table_3_does(warp_backend):
    lengths = np.random.default_rng(70).permutation(np.repeat([3, 5, 130, 4500], [70, 40, 10, 2]))
    warp_backend.resident_threads = 1
    stored = stored_format(from_row_lengths(lengths, 5000, seed=71), warp_backend)

    # 110 short rows make 3 slices: 32 rows of 3, 32 of 3, 6 of 3 with 26 of 5. The other 14 rows of 5 are padded to 32,
    # rows of 130 to 160, and those of 4500 to 4512, in two segments each.
    nnz = 70 * 3 + 40 * 5 + 10 * 130 + 2 * 4500
    ell, ell_nnz = 32 * (3 + 3 + 5), 70 * 3 + 26 * 5
    long = 14 * 32 + 10 * 160 + 2 * 4512
    assert (stored.nnz, stored.nstored, stored.nstored_ell, stored.nnz_ell) == (nnz, ell + long, ell, ell_nnz)
    assert stored.detail().splitlines() == [
        f"split at row 96 of 122, {nnz} nonzeros, {100 * (ell + long - nnz) / nnz:.2f} % added",
        f"ELL part: 96 rows, 352 stored, {100 * ell / (ell + long):.2f} % of all, 3.53 % added",
        f"vCSR part: 26 rows, 11072 stored, {100 * long / (ell + long):.2f} % of all, 6.77 % added",
        "vCSR part: 4 slices with 128 threads each",
        "vCSR part: 24 slices with 32 threads each",
        "ELL part: 3 slices with 32 threads each",
    ]
    assert stored.stats().fill_ratio == pytest.approx(1 - nnz / (ell + long))


def test_the_example_of_the_documentation(backend):
    lengths = np.array([2, 1, 9, 4, 2, 2, 1, 3, 2, 5, 2], dtype=np.int32)

    parts = parts_of(lengths, 4, ALL_ROWS, 4, backend)

    assert lengths[parts[-1].ell_rows].tolist() == [1, 1, 2, 2, 2, 2, 2, 3]
    assert lengths[parts[-1].long_rows].tolist() == [4, 5, 9]
    assert cut(parts, 4, backend).offsets.tolist() == [0, 8, 20, 24, 32, 44]


def test_the_host_says_nothing_of_threads(backend):
    stored = stored_format(shape("power_law"), backend)

    assert len(stored.detail().splitlines()) == 3 and "threads" not in stored.detail()
    assert ", 1 warp a slice, full columns" in stored.summary()


def test_at_most_31_zeros_pad_the_rows_of_one_length_into_the_next(warp_backend):
    for seed in range(30):
        lengths = np.random.default_rng(seed).integers(0, 20, 700).astype(np.int32)
        parts = parts_of(lengths, 128, ALL_ROWS, 32, warp_backend)
        slices = cut(parts, 32, warp_backend)

        assert slices.nnz_ell == lengths[parts[-1].ell_rows].sum()
        assert 0 < slices.offsets[slices.nell] - slices.nnz_ell <= 31 * int(lengths.max() - lengths.min())


def test_a_matrix_without_long_rows_that_needs_no_sorting_has_no_permutation(warp_backend):
    assert stored_format(uniform(96, 90, 5, seed=72), warp_backend, sigma_window=1).ell_rows is None
    assert stored_format(banded(96, 0), warp_backend).ell_rows is None


def test_windows_count_short_rows_and_hold_whole_slices(warp_backend):
    lengths = np.random.default_rng(73).integers(0, 9, 200).astype(np.int32)
    lengths[::5] = 200

    *_, order = parts_of(lengths, 128, 33, 32, warp_backend)  # as 64

    short = np.flatnonzero(lengths <= 128)
    assert order.sigma_window == 64
    assert sorted(order.ell_rows[:64]) == short[:64].tolist()
    assert (np.diff(lengths[order.ell_rows[:64]]) >= 0).all() and (np.diff(lengths[order.ell_rows[64:128]]) >= 0).all()


def automatic_split(lengths, backend):
    csr = pattern_of_lengths(lengths)
    splits = split_lengths(csr, AUTOMATIC, backend)
    return choose_split(csr, splits, RowCounts.of(csr, splits, 32, SEGMENT_GROUPS, backend), backend).length


@pytest.mark.parametrize(
    ("lengths", "split"), [([3, 64] * 100, 64), ([3] * 1000 + [65], 64), ([65] * 100, 128), ([65, 2000] * 100, 64)]
)
def test_more_rows_of_a_small_matrix_are_stored_along_themselves(backend, lengths, split):
    assert automatic_split(lengths, backend) == split


@pytest.mark.parametrize(
    ("lengths", "split"),
    [([3, 128, 0] * 100, 128), ([3] * 1000 + [129], 128), ([129] * 100, 256), ([129, 2000] * 100, 128), ([], 128)],
)
def test_rows_are_stored_along_themselves_where_that_pads_them_little(backend, monkeypatch, lengths, split):
    monkeypatch.setattr(evchyb_layout, "SMALL_BYTES", 0)

    assert automatic_split(lengths, backend) == split


def test_all_rows_of_a_matrix_that_fits_in_cache_are_sorted(backend):
    stored = stored_format(shape("power_law"), backend)

    assert stored.sigma_window == np.count_nonzero(np.diff(shape("power_law").rowptr) <= stored.split_length)


@pytest.mark.parametrize(
    ("lengths", "window"),
    [
        (np.full(40000, 6), 1),
        (np.tile(np.arange(1, 9), 5000), 1024),
        (np.minimum(np.random.default_rng(75).geometric(0.04, 40000), 128), 4096),
        (np.repeat(np.tile([1, 20], 40), np.tile([1100, 100], 40)), 16384),
        (np.random.default_rng(76).permutation(np.repeat([0, 60], [70000, 600])), ALL_ROWS),
    ],
    ids=["even", "mixed_nearby", "spread", "spread_more", "few_long"],
)
def test_the_window_of_a_large_matrix_is_the_smallest_with_acceptable_padding(backend, monkeypatch, lengths, window):
    monkeypatch.setattr(evchyb_layout, "SMALL_BYTES", 0)
    lengths = lengths.astype(np.int32)

    csr, counts, split, _ = parts_of(lengths, 128, 1, 32, backend)

    chosen = automatic_window(csr, counts, split, None, 32, backend)

    shares = {w: padding_share(csr, counts, split, None, w, 32, backend) for w in (1, 1024, 4096, 16384)}
    assert chosen == next((w for w, share in shares.items() if share <= ACCEPTABLE_PADDING), ALL_ROWS)
    assert chosen == window


def test_padding_is_estimated_from_evenly_spaced_windows(backend):
    lengths = np.tile(np.arange(32), 32 * 200)  # 200 windows of 1024
    csr, counts, split, _ = parts_of(lengths, 128, 1, 32, backend)

    assert padding_share(csr, counts, split, None, 1024, 32, backend) == 0
    assert padding_share(csr, counts, split, None, 1, 32, backend) == pytest.approx(1 - 15.5 / 31)


# Teams of warps


def tasks_of(stored):
    """begin, slice, groups, split, team of every warp: (nblocks, warps) arrays."""
    begin, word = stored.tasks.reshape(stored.teams.nblocks, stored.teams.warps, 2).transpose(2, 0, 1)
    numbers = (word & 0xFFFFFFFF).astype(np.uint32).astype(np.int32)
    shape_word = word >> 32
    return begin, numbers, shape_word >> 5, (shape_word >> 4) & 1, 1 << (shape_word & 15)


@pytest.mark.parametrize("threads", [0, 3000, H200_THREADS])
@EVERY_SHAPE_MOST_SLOW
def test_the_warps_of_a_launch_share_out_all_slices_once(warp_backend, shape_name, threads):
    warp_backend.resident_threads = threads
    stored = stored_format(shape(shape_name), warp_backend, split_length=6, segment_length=256)
    begin, numbers, groups, split, teams = tasks_of(stored)
    at_work = numbers >= 0
    slices = stored.slices

    assert (teams == teams[:, :1]).all()
    found, warps = np.unique(numbers[at_work], return_counts=True)
    assert found.tolist() == list(range(slices.nslices))
    assert (teams[at_work][np.argsort(numbers[at_work], kind="stable")] == np.repeat(warps, warps)).all()
    assert (begin[at_work] == slices.offsets[numbers[at_work]]).all()
    assert (groups[at_work] * 32 == np.diff(slices.offsets)[numbers[at_work]]).all()
    assert (groups[~at_work] == 0).all()
    is_long = numbers >= slices.nell
    assert (is_long.any(axis=1) == (np.arange(stored.teams.nblocks) < stored.teams.nlong_blocks)).all()
    assert (split[is_long] == (slices.segments[1::2][numbers[is_long] - slices.nell] > 1)).all()


def test_wider_slices_and_longer_rows_have_more_threads_where_rows_are_few(warp_backend):
    warp_backend.resident_threads = H200_THREADS
    lengths = np.repeat([4, 8, 30, 100, 200, 1000, 20000], [64, 64, 64, 64, 2, 2, 2])

    stored = stored_format(from_row_lengths(lengths, 20000, seed=77), warp_backend, split_length=128)

    assert stored.teams.entries_per_thread == 8 and stored.teams.warps == 16
    # of 100, 30, 8 and 4 groups for each thread; 20000 entries are 5 segments of 125 groups
    assert [(c.count, c.team) for c in stored.teams.ell_classes] == [(2, 16), (2, 4), (4, 1)]
    assert [(c.count, c.team) for c in stored.teams.long_classes] == [(10, 16), (2, 4), (2, 1)]
    assert [slices_of(c, stored) for c in stored.teams.ell_classes] == [[7, 6], [5, 4], [3, 2, 1, 0]]
    assert "64 slices" not in stored.detail() and "ELL part: 2 slices with 512 threads each" in stored.detail()
    assert stored.summary().startswith("split length 128, sigma window 256, 1 to 16 warps a slice, ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "entries"),
    [
        (0, None),
        (32 * 300 * 8, 8),
        pytest.param(32 * 300 * 4, 16, marks=pytest.mark.slow),
        pytest.param(32 * 300 * 3, 32, marks=pytest.mark.slow),
        pytest.param(32, 32, marks=pytest.mark.slow),
    ],
)
def test_threads_sum_more_entries_where_rows_are_many(warp_backend, threads, entries):
    warp_backend.resident_threads = 2 * threads
    stored = stored_format(uniform(9600, 64, 64, seed=78), warp_backend)

    assert [c.team for c in stored.teams.ell_classes] == [64 // entries if entries else 1]


def test_slices_that_are_not_sorted_throughout_are_taken_in_their_order(warp_backend):
    warp_backend.resident_threads = H200_THREADS
    lengths = np.random.default_rng(79).integers(0, 60, 640)

    stored = stored_format(from_row_lengths(lengths, 60, seed=80), warp_backend, sigma_window=64)

    widths = np.diff(stored.slices.offsets)[:20] // 32
    teams = [8 if w > 32 else 4 if w > 16 else 2 if w > 8 else 1 for w in widths]
    wanted = [(np.flatnonzero(np.array(teams) == t)[::-1].tolist(), t) for t in sorted(set(teams), reverse=True)]
    assert [(slices_of(c, stored), c.team) for c in stored.teams.ell_classes] == wanted and len(wanted) > 1


@pytest.mark.parametrize("threads", [128, 256, 512, 1024])
def test_a_block_has_the_threads_asked_for(warp_backend, threads):
    warp_backend.resident_threads = H200_THREADS
    options = {"block_threads": threads, "entries_per_thread": 1, "split_length": 128}
    stored = stored_format(uniform(64, 200, 100, seed=81), warp_backend, **options)
    (launch,) = stored.plan(Operation.MULT)

    assert launch.block == (32, threads // 32, 1)
    assert [c.team for c in stored.teams.ell_classes] == [threads // 32]


# Results


def test_one_launch_multiplies_both_parts_and_none_a_matrix_without_rows(backend):
    stored = stored_format(shape("one_huge_row"), backend)

    assert stored.slices.nell and stored.slices.nsegments
    assert all(len(stored.plan(operation)) == 1 for operation in Operation)
    assert [stored_format(shape("0xN"), backend).plan(operation) for operation in Operation] == [[]] * len(Operation)


@pytest.mark.parametrize("threads", [0, H200_THREADS])
@pytest.mark.parametrize("place", ["host", "emulation"])
def test_split_rows_leave_their_tickets_at_zero(place, threads, request):
    if place == "host":
        backend = HostBackend(*native_library.petsc_types())
    else:
        backend = EmulatedBackend(np.float64, np.int32, request.getfixturevalue("emulation_folder"), threads)
    lengths = np.array([3000, 1, 0, 257, 5000, 2] + [3] * 70)
    stored = StoredMatrix(from_row_lengths(lengths, 5000, seed=82), EvcHyb, backend, {"segment_length": 256})
    x, y = stored.vectors()

    first = stored.mult(x)

    assert stored.format.slices.segments[1::2].max() == 20
    assert stored.format.tickets.max() == 0
    assert stored.mult(x).tobytes() == first.tobytes()
    assert np.allclose(stored.multadd(x, y), first + y)


@pytest.mark.real
@pytest.mark.parametrize("place", ["host", "emulation"])
def test_a_product_with_constants_reads_what_is_left(place, request):
    """Teams of several warps, split rows, padding in both parts, and batches that end within a slice."""
    if place == "host":
        backend = HostBackend(*native_library.petsc_types())
    else:
        backend = EmulatedBackend(np.float64, np.int32, request.getfixturevalue("emulation_folder"), 4096)
    lengths = np.array([3000, 1, 0, 257, 5000, 2] + [3] * 70)
    stored = StoredMatrix(from_row_lengths(lengths, 5000, seed=82), EvcHyb, backend, {"segment_length": 256})
    x, matrix = stored.vectors()[0], stored.matrix
    rows, nothing = np.repeat(np.arange(lengths.size), lengths), np.full(x.shape, np.nan)

    def product(x, *operands):
        return stored._run(stored.format.mult_with_constant(*operands), x)

    def sums(entries):
        return np.bincount(rows, entries, lengths.size)

    assert np.allclose(product(nothing, "x"), sums(matrix.values))
    assert np.allclose(product(x, "A"), sums(x[matrix.colidx]))
    counts = product(nothing, "x", "A")
    assert (counts >= lengths).all() and counts.sum() == stored.format.nstored
    with pytest.raises(KeyError):
        stored.format.mult_with_constant("y")


@pytest.mark.parametrize("place", ["host", "emulation"])
def test_short_indices_give_the_bits_of_full_ones(place, request):
    for shape_name in ("power_law", "one_huge_row", "banded"):
        results = {}
        for choice in (FULL_ONLY, SHORT_WHERE_IT_FITS):
            if place == "host":
                backend = HostBackend(*native_library.petsc_types())
            else:
                backend = EmulatedBackend(np.float64, np.int32, request.getfixturevalue("emulation_folder"))
            stored = StoredMatrix(shape(shape_name), EvcHyb, backend, {"index": choice, "split_length": 20})
            results[stored.format.columns.mode] = stored.mult(stored.vectors()[0]).tobytes()

        assert set(results) == {FULL, SHORT} and results[FULL] == results[SHORT]


def test_columns_are_full_where_memory_is_not_waited_for(backend, monkeypatch, emulation_folder):
    matrix = banded(2000)
    device = EmulatedBackend(np.float64, np.int32, emulation_folder)
    assert stored_format(matrix, device).columns.mode == FULL

    monkeypatch.setattr(evchyb_layout, "SMALL_BYTES", 0)

    assert stored_format(matrix, device).columns.mode == SHORT
    assert stored_format(matrix, backend).columns.mode == FULL


@pytest.mark.real
def test_stats_of_a_small_matrix(backend):
    lengths = np.array([1, 0, 3, 2, 2, 0, 1, 1, 4, 1, 200])
    stored = stored_format(from_row_lengths(lengths, 300, seed=83), backend)
    stats = stored.stats()

    # a slice of 8 rows and 2 groups: 0 0 1 1 1 1 2 2; rows of 3 and 4 padded to 8, and the row of 200
    nstored = 16 + 8 + 8 + 200
    assert (stats.nnz, stats.nstored, stats.nonempty_rows) == (215, nstored, 9)
    tasks, rows = 2 * 4 * 16, (8 + 3) * 4
    assert stored.teams.nblocks == 2
    assert stats.bytes_per_mult == nstored * (8 + 4) + tasks + rows + (11 + 300) * 8
    assert stats.bytes_held == nstored * (8 + 4) + tasks + rows + 5 * 8 + 3 * 8 + 12 * 4


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_length": -1}, "-mat_evchyb_split_length -1: choose 1 to 65536, or 0 for automatic"),
        ({"split_length": 65537}, "-mat_evchyb_split_length 65537: choose 1 to 65536"),
        (
            {"sigma_window": -2},
            "-mat_evchyb_sigma_window -2: choose a number of rows, 1 for no sorting, -1 for all rows",
        ),
        ({"index": "pattern"}, "-mat_evchyb_index pattern: choose one of auto, full, short"),
        ({"block_threads": 64}, "-mat_evchyb_block_threads 64: choose one of 128, 256, 512, 1024, or 0"),
        ({"batch": 2}, "-mat_evchyb_batch 2: choose one of 4, 8, or 0 for automatic"),
        ({"entries_per_thread": 2000}, "-mat_evchyb_entries_per_thread 2000: choose 1 to 1024, or 0"),
        ({"segment_length": 100}, "-mat_evchyb_segment_length 100: choose one of 256, 512, .*16384, or 0"),
    ],
)
def test_a_value_that_is_not_offered_is_refused(backend, options, message):
    with pytest.raises(OptionError, match=message):
        stored_format(shape("banded"), backend, **options)


def test_measured_options_hold_where_none_is_given(backend, monkeypatch):
    matrix = shape("power_law")
    asked = []

    def tuned(*arguments):
        asked.append(arguments)
        return {"block_threads": 512, "split_length": 40}

    monkeypatch.setattr(base, "tuned", tuned)
    stored = stored_format(matrix, backend, split_length=50)

    assert asked == [(backend, "evchyb", EvcHyb.tuning_key(matrix.pattern(np, np.int32)))]
    assert stored.split_length == 50 and stored.teams.warps * stored.height == 512


@pytest.mark.parametrize(
    ("nrows", "row_length", "key"),
    [
        (100, 3, "entries=few,row_length=4"),
        (2**18, 2, "entries=some,row_length=2"),
        (1, 2**21 + 1, "entries=many,row_length=1024"),
    ],
)
def test_matrices_alike_share_their_measured_options(nrows, row_length, key):
    assert EvcHyb.tuning_key(pattern_of_lengths(np.full(nrows, row_length))) == key


def test_every_combination_to_be_measured_is_offered(backend):
    matrix: CsrMatrix = shape("banded")
    space = EvcHyb.tuning_space(matrix.pattern(np, np.int32))

    assert 1 < len(space) <= 48 and len({tuple(sorted(o.items())) for o in space}) == len(space)
    for options in space:
        assert set(options) <= set(EvcHyb.default_options) and AUTOMATIC not in options.values()
        stored_format(matrix, backend, **options)
