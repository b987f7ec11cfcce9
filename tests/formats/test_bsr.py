"""BSR: blocks and padding, balanced BSR and the example of Abdelfattah et al. 2016, blocks side by side, errors."""

from dataclasses import replace

import numpy as np
import pytest
from bounds import rounding
from builders import CsrMatrix, blocked, from_row_lengths, shape, uniform
from emulation.backend import EmulatedBackend
from format_checks import check
from option_sets import ALL_OPTION_SETS, option_id
from stored_matrix import StoredMatrix, assert_same_bits

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation
from petsc_gpufmt.errors import IndexOverflowError, OptionError
from petsc_gpufmt.formats.bsr import layout as bsr_layout
from petsc_gpufmt.formats.bsr.bsr import Bsr
from petsc_gpufmt.formats.bsr.layout import (
    cut_block_rows,
    interleave_columns,
    interleaved_places,
)
from petsc_gpufmt.patterns import transpose

BLOCK_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 45, 46, 64)


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture
def emulation(emulation_folder):
    return EmulatedBackend(np.float64, np.int32, emulation_folder)


def blocks_of(matrix, row_block, col_block):
    """The blocks of a matrix by (block row, block column), each a (row_block, col_block) array; None marks no entry."""
    blocks = {}
    for row, column, value in zip(matrix.rows, matrix.colidx, matrix.values, strict=True):
        place = row // row_block, column // col_block
        block = blocks.setdefault(place, np.full((row_block, col_block), None))
        entry = row % row_block, column % col_block
        block[entry] = value if block[entry] is None else block[entry] + value
    return blocks


def from_blocks(blocks, row_block, col_block, seed=90):
    """A full block of row_block x col_block in place of each entry of `blocks`."""
    r, c = np.meshgrid(np.arange(row_block), np.arange(col_block), indexing="ij")
    rows = (blocks.rows[:, None, None] * row_block + r).ravel()
    columns = (blocks.colidx[:, None, None] * col_block + c).ravel()
    order = np.lexsort((columns, rows))
    lengths = np.bincount(rows, minlength=blocks.nrows * row_block)
    return replace(from_row_lengths(lengths, blocks.ncols * col_block, seed), colidx=columns[order])


def huge_block_row():
    """Blocks of 3 x 3, two in most block rows and 200 in one."""
    lengths = np.full(60, 2)
    lengths[[0, 7]], lengths[31] = 0, 200
    return replace(from_blocks(from_row_lengths(lengths, 200, seed=88), 3, 3), block=3)


def build(matrix, backend, row_block, col_block, **options):
    """The format of a pattern whose block sizes are set, without values."""
    pattern = replace(matrix.pattern(np, backend.index), row_block=row_block, col_block=col_block)
    return Bsr.build(pattern, backend, {**Bsr.default_options, **options})


@pytest.mark.real
@pytest.mark.parametrize(
    "block_size", [pytest.param(1, marks=pytest.mark.slow), 2, 3, pytest.param(5, marks=pytest.mark.slow), 8]
)
@pytest.mark.parametrize("name", ["tall", "wide", "unsorted_columns", "duplicate_columns", "empty_rows", "blocked_3x3"])
def test_layout(backend, name, block_size):
    matrix = shape(name)
    stored = StoredMatrix(matrix, Bsr, backend, {"block_size": block_size}).format
    expected = blocks_of(matrix, block_size, block_size)
    val = stored.val.reshape(stored.nblocks, block_size, block_size)

    places = [
        (i, stored.block_col[b])
        for i in range(stored.nblock_rows)
        for b in range(stored.block_offsets[i], stored.block_offsets[i + 1])
    ]
    assert places == sorted(expected)
    for place, columns in zip(places, val, strict=True):
        is_entry = expected[place].T != None  # noqa: E711 - elementwise
        assert np.allclose(columns[is_entry], expected[place].T[is_entry].astype(val.dtype), rtol=rounding(1e-15))
        assert (columns[~is_entry] == 0).all() and np.signbit(columns[~is_entry]).all()
        assert not (np.signbit(columns[is_entry]) & (columns[is_entry] == 0)).any()


@pytest.mark.real
def test_an_entry_minus_zero_is_no_padding(backend):
    matrix = CsrMatrix(2, 2, np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([-0.0, 1.0, 2.0]))
    stored = StoredMatrix(matrix, Bsr, backend, {"block_size": 2})

    assert stored.format.val.tolist() == [0, 0, 1, 2] and np.signbit(stored.format.val).tolist() == [0, 1, 0, 0]
    assert np.isnan(stored.mult(np.array([np.inf, 1.0]))).tolist() == [True, False]


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_full_blocks_have_no_padding_and_keep_no_columns(backend, block_size):
    stored = StoredMatrix(blocked(block_size, 9, declared=True), Bsr, backend, {})
    bsr_format = stored.format

    assert (bsr_format.row_block, bsr_format.col_block) == (block_size, block_size)
    assert bsr_format.padding == 0 and bsr_format.nstored == bsr_format.nnz
    assert bsr_format.entries.colidx is None and bsr_format.entries.rowptr is None
    check(stored, f"blocks of {block_size}")


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_block_sizes_on_the_emulated_device(emulation, block_size):
    check(StoredMatrix(blocked(block_size, 7, declared=True), Bsr, emulation, {}), f"blocks of {block_size}")


@pytest.mark.parametrize("place", ["backend", "emulation"])
@pytest.mark.parametrize(("row_block", "col_block"), [(3, 6), (6, 3), (1, 4), (4, 1), (2, 50)])
def test_rectangular_blocks(request, place, row_block, col_block):
    here = request.getfixturevalue(place)
    blocks = from_row_lengths(np.random.default_rng(87).integers(0, 5, 12), 9, seed=89)
    matrix = from_blocks(blocks, row_block, col_block)
    stored = build(matrix, here, row_block, col_block)

    assert (stored.row_block, stored.col_block, stored.padding) == (row_block, col_block, 0)
    transposed = Bsr.build(
        transpose.transposed(replace(matrix.pattern(np, here.index), row_block=row_block, col_block=col_block), here),
        here,
        Bsr.default_options,
    )
    assert (transposed.row_block, transposed.col_block, transposed.padding) == (col_block, row_block, 0)
    wrapped = StoredMatrix(matrix, Bsr, here, {})
    wrapped.format = stored
    wrapped.refresh(matrix.values)
    check(wrapped, f"blocks of {row_block} x {col_block}")


@pytest.mark.parametrize("place", ["backend", "emulation"])
@pytest.mark.parametrize(("nrows", "ncols"), [(17, 23), (23, 17), (5, 6), (3, 50)])
def test_blocks_that_stand_out_over_the_end(request, place, nrows, ncols):
    lengths = np.random.default_rng(91).integers(0, min(ncols, 9), nrows)
    lengths[-1] = ncols  # the last row and the last column are there
    stored = StoredMatrix(
        from_row_lengths(lengths, ncols, seed=92), Bsr, request.getfixturevalue(place), {"block_size": 4}
    )

    check(stored, f"{nrows} x {ncols}")
    assert stored.format.nblock_rows == -(-nrows // 4)


def test_padding_is_reported(backend):
    matrix = blocked(4, 30, declared=True, missing=0.15)
    stored = StoredMatrix(matrix, Bsr, backend, {}).format
    nblocks = len(blocks_of(matrix, 4, 4))

    assert stored.padding == 16 * nblocks - matrix.values.size > 0
    assert stored.stats().fill_ratio == pytest.approx(1 - matrix.values.size / (16 * nblocks))
    percent = 100 * stored.padding / stored.nstored
    assert f"padding: {stored.padding} of {16 * nblocks} stored entries ({percent:.2f} %)" in stored.detail()


def test_words_of_a_small_matrix(backend):
    matrix = blocked(3, 40, declared=True)
    stored = StoredMatrix(matrix, Bsr, backend, {"lambda": 16}).format
    lengths = np.diff(stored.block_offsets)

    assert stored.summary() == f"blocks of 3 x 3, cut at 16 blocks, {stored.parameters}"
    assert str(stored.parameters) == ("kernel K2, 28 thread arrays of 3 x 3, 1 block rows each, 4 entries a thread")
    assert stored.detail().splitlines() == [
        f"blocks: {stored.nblocks} of 3 x 3 in 40 block rows",
        f"padding: 0 of {stored.nstored} stored entries (0.00 %)",
        f"block rows: longest 40, mean {lengths.mean():.2f} blocks; "
        f"cut at lambda = 16 blocks into {(-(-lengths // 16)).sum()} segments",
        f"product: {stored.parameters}",
    ]


@pytest.mark.double
@pytest.mark.real
def test_stats_of_a_small_matrix(backend):
    stored = StoredMatrix(blocked(3, 40, declared=True), Bsr, backend, {"lambda": -1}).format
    stats = stored.stats()

    assert stats.bytes_per_mult == stored.nnz * 8 + stored.nblocks * 4 + 40 * 8 + 2 * 120 * 8
    assert stats.bytes_held == stored.nnz * 8 + stored.nblocks * 4 + 41 * 8


def test_columns_that_do_not_come_in_blocks_get_blocks_of_one_column(backend):
    """The off-diagonal block of a parallel matrix: rows in blocks of three, columns compacted."""
    matrix = blocked(3, 40, declared=True)
    used = np.flatnonzero(np.arange(120) % 3 != 1)
    kept = np.isin(matrix.colidx, used)
    lengths = np.bincount(matrix.rows[kept], minlength=120)
    compacted = replace(
        from_row_lengths(lengths, used.size, seed=93), colidx=np.searchsorted(used, matrix.colidx[kept]), block=3
    )

    stored = StoredMatrix(compacted, Bsr, backend, {}).format
    transposed = StoredMatrix(compacted, Bsr, backend, {}, transposed=True).format

    assert (stored.row_block, stored.col_block, stored.padding) == (3, 1, 0)
    assert (transposed.row_block, transposed.col_block, transposed.padding) == (1, 3, 0)


def test_a_matrix_without_blocks_is_stored_entry_by_entry_whatever_the_application_says(backend):
    stored = StoredMatrix(replace(uniform(90, 90, 4, seed=94), block=3), Bsr, backend, {}).format

    assert (stored.row_block, stored.col_block) == (1, 1)


def test_an_option_overrides_the_block_size_of_the_matrix(backend):
    stored = StoredMatrix(blocked(4, 10, declared=True), Bsr, backend, {"block_size": 3}).format

    assert (stored.row_block, stored.col_block) == (3, 3) and stored.padding > 0


@pytest.mark.real
def test_repeated_entries_are_added_up_where_blocks_are_full(backend):
    matrix = CsrMatrix(2, 2, np.array([0, 3, 5]), np.array([1, 0, 1, 0, 1]), np.array([1.0, 2, 3, 4, 5]))
    stored = StoredMatrix(matrix, Bsr, backend, {"block_size": 2})

    assert stored.format.val.tolist() == [2, 4, 4, 5] and stored.format.padding == 0
    stored.refresh(10 * matrix.values)
    assert stored.format.val.tolist() == [20, 40, 40, 50]


# --- balanced BSR


@pytest.mark.parametrize("place", ["backend", "emulation"])
def test_the_papers_example_of_balanced_bsr(request, place):
    """Figure 8: lambda = 3, and the segment pointer given in section 5.5."""
    lengths = np.array([4, 3, 2, 12, 5, 1, 9])
    offsets = np.concatenate([[0], np.cumsum(lengths)])

    segment_offsets, segment_ptr = cut_block_rows(offsets, 3, request.getfixturevalue(place))

    assert segment_ptr.tolist() == [0, 2, 3, 4, 8, 10, 11, 14]
    assert np.diff(segment_offsets).tolist() == [3, 1, 3, 2, 3, 3, 3, 3, 3, 2, 1, 3, 3, 3]


@pytest.mark.parametrize("place", ["backend", "emulation"])
def test_segments_cover_all_blocks_and_are_no_longer_than_the_limit(request, place):
    lengths = np.random.default_rng(95).geometric(0.05, 500) - 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])

    segment_offsets, segment_ptr = cut_block_rows(offsets, 7, request.getfixturevalue(place))

    pieces = np.diff(segment_offsets)
    assert 0 < pieces.min() and pieces.max() == 7 and segment_offsets[-1] == offsets[-1]
    assert segment_offsets[segment_ptr].tolist() == offsets.tolist()


@pytest.mark.parametrize("place", ["backend", "emulation"])
@pytest.mark.parametrize("limit", [1, 5, 16])
def test_balanced_products_with_one_huge_block_row(request, place, limit):
    stored = StoredMatrix(huge_block_row(), Bsr, request.getfixturevalue(place), {"lambda": limit})

    assert stored.format.limit == limit and stored.format.nsegments > stored.format.nblock_rows - 2
    check(stored, f"lambda {limit}")


def test_a_limit_that_no_block_row_reaches_cuts_nothing(backend):
    stored = StoredMatrix(huge_block_row(), Bsr, backend, {"lambda": 200}).format

    assert stored.limit == 0 and stored.partial is None and len(stored.plan(Operation.MULT)) == 1


def test_long_block_rows_are_cut_by_themselves_where_threads_would_wait_for_them(emulation):
    emulation.resident_threads = 2048
    cut = StoredMatrix(huge_block_row(), Bsr, emulation, {}).format
    never = StoredMatrix(huge_block_row(), Bsr, emulation, {"lambda": -1}).format

    assert 16 <= cut.limit < 200 and len(cut.plan(Operation.MULT)) == 2
    assert never.limit == 0 and len(never.plan(Operation.MULT)) == 1


# --- blocks side by side (K1)


def test_blocks_of_k1_lie_side_by_side(backend):
    """Four block rows of 2, 0, 3 and 1 blocks of 2 x 2: the first blocks of all, then the second, then the third."""
    blocks = from_row_lengths(np.array([2, 0, 3, 1]), 5, seed=99)
    stored = build(from_blocks(blocks, 2, 2), backend, 2, 2, kernel="k1", thread_groups=2)
    offsets, ordered = np.array([0, 2, 2, 5, 6]), blocks.colidx.astype(backend.index)

    assert stored.block_col.tolist() == ordered[[0, 2, 5, 1, 3, 4]].tolist()
    assert interleave_columns(offsets, ordered, backend).tolist() == stored.block_col.tolist()
    place, base, count = interleaved_places(offsets, 32)
    assert (place.tolist(), base.tolist()) == ([0, 3, 1, 4, 5, 2], [0, 3, 0, 3, 5, 0])
    assert count.tolist() == [3, 2, 3, 2, 1, 3]


@pytest.mark.parametrize("place", ["backend", "emulation"])
@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
def test_entries_of_k1_are_those_of_k2(request, place, block_size):
    here = request.getfixturevalue(place)
    matrix = shape("blocked_3x3")
    k1, k2 = (StoredMatrix(matrix, Bsr, here, {"block_size": block_size, "kernel": k}).format for k in ("k1", "k2"))

    assert k1.interleaved and not k2.interleaved
    for one, other in zip(k1.blocks(), k2.blocks(), strict=True):
        assert_same_bits(one, other)


@pytest.mark.parametrize("place", ["backend", pytest.param("emulation", marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{}, {"thread_groups": 3, "thread_arrays": 2}, {"entries_per_thread": 2}])
@pytest.mark.parametrize(("row_block", "col_block"), [(1, 1), (2, 2), (2, 3), (1, 4)])
def test_k1_with_rows_of_all_lengths(request, place, row_block, col_block, options):
    here = request.getfixturevalue(place)
    lengths = np.random.default_rng(100).integers(0, 9, 75)
    lengths[40:50] = 0
    matrix = from_blocks(from_row_lengths(lengths, 30, seed=101), row_block, col_block)
    wrapped = StoredMatrix(matrix, Bsr, here, {})
    wrapped.format = build(matrix, here, row_block, col_block, kernel="k1", **options)
    wrapped.refresh(matrix.values)

    assert wrapped.format.interleaved and wrapped.format.padding == 0
    check(wrapped, f"K1 {row_block} x {col_block}")


def test_large_matrices_of_small_blocks_take_k1_by_themselves(emulation):
    emulation.resident_threads = 32
    matrix = from_blocks(uniform(64, 64, 6, seed=102), 3, 3)
    stored = StoredMatrix(replace(matrix, block=3), Bsr, emulation, {})

    assert stored.format.interleaved and str(stored.format.parameters) == (
        "kernel K1, 4 x 1 warps a thread block, 1 blocks a thread at once"
    )
    check(stored, "K1 chosen")


@pytest.mark.parametrize("options", ALL_OPTION_SETS["bsr"], ids=option_id)
def test_the_threads_of_a_launch_cover_all_rows_once(backend, options):
    stored = StoredMatrix(shape("blocked_5x5_undeclared"), Bsr, backend, options).format
    spmv, *rest = stored.plan(Operation.MULT)
    p = stored.parameters
    items = -(-stored.nsegments // 32) if p.kernel == "k1" else stored.nsegments * -(-stored.row_block // p.tile_height)

    assert spmv.block == (p.tile_height, p.thread_groups, p.thread_arrays)
    assert (
        (spmv.grid[0] - 1) * p.thread_arrays * p.rows_per_array
        < items
        <= spmv.grid[0] * p.thread_arrays * p.rows_per_array
    )
    assert len(rest) == (stored.limit > 0)


def test_all_parameters_give_the_same_sums_of_whole_numbers(emulation):
    matrix = blocked(7, 8, declared=True)
    matrix = replace(matrix, values=np.random.default_rng(96).integers(-9, 9, matrix.values.size).astype(float))
    x = np.random.default_rng(97).integers(-9, 9, matrix.ncols).astype(float)
    sets = [
        {"kernel": "k2", "thread_groups": 1, "entries_per_thread": 8, "rows_per_array": 3},
        {"kernel": "k2", "thread_groups": 7, "thread_arrays": 2},
        {"kernel": "k3", "tile_height": 3, "thread_groups": 5, "entries_per_thread": 1},
    ]
    for options in sets:
        stored = StoredMatrix(matrix, Bsr, emulation, options)
        assert_same_bits(stored.mult(x), matrix.product(x).astype(float))


# --- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": -1}, "-mat_bsr_block_size -1: choose 1 to 1024, or 0 for the block sizes of the matrix"),
        ({"block_size": 1025}, "-mat_bsr_block_size 1025: choose 1 to 1024"),
        ({"lambda": -2}, "-mat_bsr_lambda -2: choose a number of blocks, -1 never to cut, or 0 for automatic"),
        ({"kernel": 4}, "-mat_bsr_kernel 4: choose one of auto, k1, k2, k3"),
        ({"kernel": "k4"}, "-mat_bsr_kernel k4: choose one of auto, k1, k2, k3"),
        ({"thread_arrays": 65}, "-mat_bsr_thread_arrays 65: choose 1 to 64"),
        ({"rows_per_array": 17}, "-mat_bsr_rows_per_array 17: choose 1 to 16"),
        ({"thread_groups": -3}, "-mat_bsr_thread_groups -3: choose 1 to 1024"),
        ({"entries_per_thread": 5}, "-mat_bsr_entries_per_thread 5: choose one of 1, 2, 4, 6, 8, or 0 for automatic"),
        ({"block_size": 6, "kernel": "k1"}, "-mat_bsr_kernel k1 with blocks of 6 rows: it takes 1 to 5; choose k2"),
        ({"block_size": 46, "kernel": "k2"}, "-mat_bsr_kernel k2 with blocks of 46 rows: it takes up to 45; choose k3"),
        ({"block_size": 4, "kernel": "k3"}, "-mat_bsr_kernel k3 with blocks of 4 rows: it takes 5 and more; choose k1"),
        ({"block_size": 5, "kernel": "k1"}, "with x, they take 31 words, and 21 fit in registers"),
        ({"block_size": 3, "kernel": "k1", "rows_per_array": 2}, "with kernel K1: a lane does one block row"),
        ({"block_size": 3, "kernel": "k1", "lambda": 9}, "-mat_bsr_lambda 9 with kernel K1"),
        ({"block_size": 8, "kernel": "k2", "tile_height": 4}, "only K3 cuts blocks into tiles; leave it at 0"),
        ({"block_size": 8, "tile_height": 9}, "-mat_bsr_tile_height 9 with blocks of 8 rows: choose 1 to 8"),
        (
            {"block_size": 40, "thread_groups": 26},
            "1040 threads a block with 1040 partial sums; at most 1024 threads",
        ),
        ({"block_size": 8, "thread_groups": 64, "rows_per_array": 16}, "512 threads a block with 8192 partial sums"),
    ],
    ids=lambda value: option_id(value) if isinstance(value, dict) else "",
)
def test_options_that_are_refused(backend, options, message):
    with pytest.raises(OptionError) as refused:
        StoredMatrix(shape("blocked_3x3"), Bsr, backend, options)

    assert message in str(refused.value)


def test_a_block_row_with_more_entries_than_kernels_count_is_refused(backend, monkeypatch):
    monkeypatch.setattr(bsr_layout, "SEGMENT_ENTRIES", 99)
    matrix = uniform(4, 50, 25, seed=98)

    StoredMatrix(matrix, Bsr, backend, {"block_size": 1})
    with pytest.raises(IndexOverflowError, match="more than 99 entries: set a smaller -mat_bsr_block_size"):
        StoredMatrix(matrix, Bsr, backend, {"block_size": 4})
