"""Patterns of transposes: on the host and by the device kernels, entry by entry those of a stable sort by column."""

from dataclasses import replace

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, CsrMatrix, from_entries, poisoned, shape, stencil
from emulation.backend import EmulatedBackend
from places import INDEX, SCALAR, make_backend

from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.segments import BATCH, BLOCK_THREADS, ENTRIES_A_THREAD, PIECE, SORT_THREADS
from petsc_gpufmt.patterns.transpose import bytes_to_transpose, counted_transpose, transposed

PLACES = [
    pytest.param(("host", INDEX), id="host"),
    pytest.param(("emulation", np.int32), id="emulation"),
    pytest.param(("emulation", np.int64), id="emulation int64"),
    pytest.param(("cuda", np.int32), marks=pytest.mark.gpu, id="cuda"),
    pytest.param(("cuda", np.int64), marks=pytest.mark.gpu, id="cuda int64"),
]


@pytest.fixture(params=PLACES)
def backend(request):
    name, index = request.param
    made = make_backend(request, name, index=index)
    made.xp = poisoned(made.xp)
    return made


def sorted_by_column(csr: CsrPattern) -> CsrPattern:
    """The transpose by a stable sort of all entries."""
    rows = np.repeat(np.arange(csr.nrows), np.diff(csr.rowptr))
    order = np.argsort(csr.colidx, kind="stable")
    rowptr = np.concatenate(([0], np.cumsum(np.bincount(csr.colidx, minlength=csr.ncols))))
    source = order if csr.source is None else csr.source[order]
    return CsrPattern(csr.ncols, csr.nrows, rowptr, rows[order], source, csr.col_block, csr.row_block)


def check(csr: CsrPattern, backend) -> CsrPattern:
    """Transpose a pattern of host arrays, here and on the backend; returns the transpose in host arrays."""
    on_backend = {
        name: None if array is None else backend.xp.asarray(array.astype(backend.index))
        for name, array in (("rowptr", csr.rowptr), ("colidx", csr.colidx), ("source", csr.source))
    }
    result, expected = transposed(replace(csr, **on_backend), backend), sorted_by_column(csr)
    assert result.longest == result.validated(backend).longest
    for name in ("rowptr", "colidx", "source"):
        array = backend.to_host(getattr(result, name))

        assert array.dtype == backend.index
        assert array.tolist() == getattr(expected, name).tolist(), name
    for name in ("nrows", "ncols", "row_block", "col_block"):
        assert getattr(result, name) == getattr(expected, name)
    return expected


def columns_of_lengths(lengths, nrows: int, seed: int = 90) -> CsrMatrix:
    """A matrix whose columns have so many entries in random rows, which may repeat."""
    columns = np.repeat(np.arange(len(lengths)), lengths)
    rows = np.random.default_rng(seed).integers(0, nrows, columns.size)
    return from_entries(nrows, len(lengths), rows, columns, seed)


@EVERY_SHAPE_MOST_SLOW
def test_every_shape(backend, shape_name):
    check(shape(shape_name).pattern(np, np.int64), backend)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65, 200, 256, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_columns_of_all_lengths(backend, length):
    check(columns_of_lengths([length, 0, 1, length, 3], 700).pattern(np, np.int64), backend)


@pytest.mark.parametrize("length", [2 * PIECE + 1, 5 * PIECE - 3, 8 * PIECE, 9 * PIECE])
def test_long_columns_between_short_ones(backend, length):
    lengths = np.concatenate(([0, 5, length, 0, PIECE + 9], np.arange(60), [length // 2, 0, 0]))
    check(columns_of_lengths(lengths, 3000).pattern(np, np.int64), backend)


@pytest.mark.parametrize("longest", [0, 3, PIECE + 1, 2 * PIECE + 1])
def test_a_transpose_with_its_counts_is_the_same(emulation_folder, longest, monkeypatch):
    waits = []
    fetch = EmulatedBackend.first
    monkeypatch.setattr(EmulatedBackend, "first", lambda *arguments: waits.append(1) or fetch(*arguments))
    backend = EmulatedBackend(SCALAR, INDEX, emulation_folder)
    csr = columns_of_lengths([longest, 0, longest // 2, longest // 3], 3000).pattern(np, INDEX)
    counted = counted_transpose(csr, backend)

    assert len(waits) == 1 and counted.counts.longest == longest
    assert counted.colidx.tolist() == transposed(csr, backend).colidx.tolist()
    assert counted.source.tolist() == transposed(csr, backend).source.tolist()


def test_blocks_whose_columns_all_begin_at_the_end_of_their_window(backend):
    window = SORT_THREADS * ENTRIES_A_THREAD - PIECE + 1
    lengths = [window - 1, PIECE, window - PIECE - 1, PIECE, 1]
    check(columns_of_lengths(lengths, 900).pattern(np, np.int64), backend)


def test_one_column_of_all_entries(backend):
    check(columns_of_lengths([4000], 4000).pattern(np, np.int64), backend)


def test_many_columns_and_empty_rows(backend):
    matrix = columns_of_lengths(np.random.default_rng(91).integers(0, 2, 5000), 20)
    check(replace(matrix, block=4).pattern(np, np.int64), backend)
    check(matrix.transposed().pattern(np, np.int64), backend)


@pytest.mark.parametrize(("nrows", "ncols"), [(0, 0), (0, 5), (5, 0), (5, 7)])
def test_nothing_to_transpose(backend, nrows, ncols):
    check(CsrPattern(nrows, ncols, np.zeros(nrows + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)), backend)


def test_transposing_twice_finds_the_values_of_the_first_pattern(backend):
    csr = replace(shape("unsorted_columns").pattern(np, np.int64), row_block=2, col_block=3)
    once = check(csr, backend)

    twice = check(once, backend)

    assert sorted(twice.source.tolist()) == list(range(csr.nnz))


def test_entries_of_a_row_keep_the_order_of_the_rows_they_came_from(backend):
    csr = CsrPattern(2, 3, np.array([0, 3, 6]), np.array([2, 0, 2, 2, 1, 0]))

    result = check(csr, backend)

    assert result.rowptr.tolist() == [0, 2, 3, 6]
    assert result.colidx.tolist() == [0, 1, 1, 0, 0, 1]
    assert result.source.tolist() == [1, 5, 4, 0, 2, 3]


class ShufflingBackend(EmulatedBackend):
    """Where entries come to their columns in any order, as on a device, where those of emulated blocks come in turn."""

    scatter = None

    def function(self, stem, kernel, template_arguments):
        function = super().function(stem, kernel, template_arguments)
        self.scatter = function if kernel == "transpose_scatter" else self.scatter
        return function

    def run(self, launches, slots=None):
        for launch in launches:
            if launch.function == self.scatter:
                _, _, _, colidx, begins, slots_of_entries, _ = launch.arguments
                drawn = np.random.default_rng(92).random(colidx.size)
                slots_of_entries[np.lexsort((drawn, colidx))] = np.arange(colidx.size) - np.repeat(
                    begins[:-1], np.diff(begins)
                )
            super().run([launch], slots)


def test_launches_have_no_more_blocks_than_entries_and_columns_need(emulation_folder, monkeypatch):
    backend = EmulatedBackend(np.float64, np.int32, emulation_folder)
    launched, run = [], backend.run
    monkeypatch.setattr(backend, "run", lambda launches: launched.extend(launches) or run(launches))

    transposed(columns_of_lengths(np.full(1500, 2), 90).pattern(np, np.int32), backend)

    entries = ceil_div(3000, BATCH * BLOCK_THREADS)
    assert [launch.grid[0] for launch in launched[:4]] == [entries, 2, entries, 2]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("longest", [20, 500, pytest.param(5000, marks=pytest.mark.slow)])
def test_the_order_in_which_entries_come_does_not_show(emulation_folder, longest, index):
    lengths = (longest * np.random.default_rng(93).random(40) ** 3).astype(np.int64)
    lengths[7] = longest

    check(columns_of_lengths(lengths, 4000).pattern(np, np.int64), ShufflingBackend(SCALAR, index, emulation_folder))


class CountingBackend(EmulatedBackend):
    """Counts the times that the host waits."""

    waits = 0

    def first(self, array, count):
        self.waits += 1
        return super().first(array, count)


@pytest.mark.parametrize(
    ("matrix", "spare"), [(stencil(8, 8, 8), 2), (columns_of_lengths([4 * PIECE, 7], 3000), 0)], ids=["short", "long"]
)
def test_memory_is_as_predicted_and_the_host_waits_once(emulation_folder, matrix, spare, monkeypatch):
    backend = CountingBackend(SCALAR, INDEX, emulation_folder)
    csr, empty = matrix.pattern(np, INDEX), np.empty
    taken = []
    monkeypatch.setattr(np, "empty", lambda *a, **k: taken.append(empty(*a, **k)) or taken[-1])

    transposed(csr, backend)

    assert sum(a.nbytes for a in taken) == bytes_to_transpose(csr, backend) - spare * csr.nnz * INDEX.itemsize
    assert backend.waits == 1
