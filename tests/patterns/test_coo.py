"""Patterns from coordinates: on the host, as device kernels, and as the planner answers the library."""

import ctypes

import numpy as np
import pytest
from answers import Answer, failing, requested_place, settled_tokens
from emulation.backend import EmulatedBackend
from fake_driver import fake_driver
from places import INDEX, SCALAR, make_backend

from petsc_gpufmt import errors
from petsc_gpufmt.backends.device_memory import ZEROS, memory_of
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.patterns import coo
from petsc_gpufmt.patterns.segments import PIECE
from petsc_gpufmt.planning import abi, planner

PLACES = [
    pytest.param(("host", INDEX), id="host"),
    pytest.param(("device_like", np.int32), id="emulation"),
    pytest.param(("device_like", np.int64), id="emulation int64"),
    pytest.param(("cuda", np.int32), marks=pytest.mark.gpu, id="cuda"),
    pytest.param(("cuda", np.int64), marks=pytest.mark.gpu, id="cuda int64"),
]
NO_VALUES = {Slot.B_VALUES: None, Slot.C_VALUES: None, Slot.Y: None}
NENTRIES, STREAM = 5000, 0x51


@pytest.fixture(params=PLACES)
def backend(request):
    name, index = request.param
    return make_backend(request, name, index=index)


def by_numpy(shape, rows, cols):
    """(rowptr, colidx, begins, index) by a sort of all entries."""
    (kept,) = np.nonzero((rows >= 0) & (cols >= 0))
    index = kept[np.lexsort((kept, cols[kept], rows[kept]))]
    row, column = rows[index], cols[index]
    new = np.ones(index.size, dtype=bool)
    new[1:] = (np.diff(row) != 0) | (np.diff(column) != 0)
    rowptr = np.concatenate(([0], np.cumsum(np.bincount(row[new], minlength=shape[0]))))
    return rowptr, column[new], np.append(np.flatnonzero(new), index.size), index


def sums(begins, index, values):
    """Term after term, in their order, so to the last bit."""
    terms, result = values[index], np.zeros(begins.size - 1, dtype=values.dtype)
    for t, (begin, end) in enumerate(zip(begins[:-1], begins[1:], strict=True)):
        result[t] = terms[begin]
        for term in terms[begin + 1 : end]:
            result[t] += term
    return result


def check(backend, shape, rows, cols):
    """Assemble the pattern, compare all of it with NumPy's, and sum values; returns what was assembled."""
    rows, cols = (np.asarray(a, dtype=backend.index) for a in (rows, cols))
    rowptr, colidx, begins, index = by_numpy(shape, rows, cols)
    values = np.random.default_rng(95).uniform(-1, 1, rows.size).astype(backend.scalar)

    made = coo.assemble(shape, rows, cols, backend)

    (result,) = backend.empty((colidx.size, backend.scalar))
    backend.run(made.plan_sum(backend), {**NO_VALUES, Slot.A_VALUES: backend.adopt(values), Slot.RESULT: result})
    for array, expected in ((made.pattern.rowptr, rowptr), (made.pattern.colidx, colidx)):
        assert backend.to_host(array).tolist() == expected.tolist()
    assert backend.to_host(result).tobytes() == sums(begins, index, values).tobytes()
    expected = backend.to_host(result).tobytes()
    ngiven = rows.size // 3  # the values of others come in another array
    first, others = (backend.adopt(a.copy()) for a in np.split(values, [ngiven]))
    slots = {**NO_VALUES, Slot.A_VALUES: first, Slot.B_VALUES: others, Slot.RESULT: result}
    backend.run(made.plan_sum(backend, (ngiven, rows.size - ngiven)), slots)
    assert backend.to_host(result).tobytes() == expected
    assert (made.nentries, made.nterms, made.pattern.nnz) == (rows.size, index.size, colidx.size)
    assert (made.pattern.nrows, made.pattern.ncols) == shape
    assert (made.begins is None) == (index.size == colidx.size)
    return made


def random(shape, nentries, seed=96, least=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(least, max(n, 1), nentries) for n in shape)


def row_of(length, ncols, between, seed=97):
    """(shape, rows, cols): a row of so many entries between `between` others in 40 rows, in any order."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.concatenate((np.full(length, 23), rng.integers(0, 40, between))))
    return (40, ncols), rows, rng.integers(0, ncols, rows.size)


def grid(nx, ny):
    """(shape, rows, cols) of a 5-point stencil, row after row: neighbours outside of the grid are -1."""
    y, x = np.divmod(np.arange(nx * ny), nx)
    neighbours = [(0, -1), (-1, 0), (0, 0), (1, 0), (0, 1)]
    cols = np.stack(
        [
            np.where((x + i >= 0) & (x + i < nx) & (y + j >= 0) & (y + j < ny), (y + j) * nx + x + i, -1)
            for i, j in neighbours
        ]
    )
    return (nx * ny, nx * ny), np.repeat(np.arange(nx * ny), 5), cols.T.ravel()


CASES = {
    "many repeats": ((60, 7), *random((60, 7), NENTRIES)),
    "few repeats, most rows empty": ((20_000, 900), *random((20_000, 900), 2000)),
    "some left out": ((50, 40), *random((50, 40), 3000, least=-9)),
    "one place": ((3, 3), np.full(700, 1), np.full(700, 2)),
    "one entry": ((1, 1), [0], [0]),
    "last place": ((9, 5), [8], [4]),
    "no entries": ((4, 5), [], []),
    "no rows": ((0, 5), [], []),
    "no columns": ((5, 0), [], []),
    "all left out, no rows": ((0, 0), [-1, -1, 0], [0, -1, -2]),
    "all rows negative": ((4, 5), np.full(1500, -1), np.zeros(1500)),
    "all columns negative": ((4, 5), np.zeros(1500), np.full(1500, -7)),
    "grid": grid(23, 17),
    "equal columns in rows side by side": ((6, 9), [0, 1, 1, 3, 3, 5], [4, 4, 4, 4, 4, 4]),
    "runs of rows": ((90, 500), np.repeat(np.arange(90), 31), random((1, 500), 90 * 31)[1]),
    "a row for a piece": row_of(PIECE, 4000, 300),
    "a row for two pieces": row_of(PIECE + 1, 90, 300),
    "a long row": row_of(5 * PIECE - 3, 4000, 3000),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_entries_and_the_sums_that_they_are(backend, case):
    check(backend, *case)


@pytest.mark.slow
def test_a_row_of_nearly_all_entries(backend):
    check(backend, *row_of(100_000, 300, 5000))


@pytest.mark.parametrize("order", ["in order", "reversed", "shuffled", "by column"])
def test_entries_in_any_order(backend, order):
    places = np.sort(np.random.default_rng(98).choice(300 * 200, NENTRIES, replace=False))
    places = {
        "in order": places,
        "reversed": places[::-1],
        "shuffled": np.random.default_rng(99).permutation(places),
        "by column": places[np.argsort(places % 200, kind="stable")],
    }[order]

    made = check(backend, (300, 200), *np.divmod(places, 200))

    assert (made.index is None) == (order == "in order")
    in_words = f"5000 entries of 5000 given{', in order' * (order == 'in order')}, 0 left out, 0 repeated"
    assert made.summary() == in_words


def test_an_index_stays_where_entries_in_order_are_left_out_or_repeat(backend):
    assert check(backend, (2, 9), [0, 0, -1], [3, 5, 0]).index is not None
    made = check(backend, (2, 9), [0, 0, 1, 1], [3, 5, 5, 5])
    assert made.index is not None and made.summary() == "3 entries of 4 given, 0 left out, 1 repeated"


def test_the_pattern_is_that_of_scipy(backend):
    sparse = pytest.importorskip("scipy.sparse")
    rows, cols = random((400, 300), NENTRIES)
    expected = sparse.coo_array((np.ones(rows.size), (rows, cols)), (400, 300)).tocsr()

    made = check(backend, (400, 300), rows, cols)

    assert backend.to_host(made.pattern.rowptr).tolist() == expected.indptr.tolist()
    assert backend.to_host(made.pattern.colidx).tolist() == expected.indices.tolist()


BLOCKS = {
    "within": coo.Block(13, 20, 9, 25),
    "first": coo.Block(0, 20, 0, 25),
    "last": coo.Block(40, 20, 30, 20),
    "no rows": coo.Block(20, 0, 9, 25),
    "no columns": coo.Block(13, 20, 0, 0),
    "all": coo.Block(0, 60, 0, 50),
    "beyond": coo.Block(60, 20, 50, 9),
}


def in_block(block, rows, cols):
    inside = [
        (a >= first) & (a < first + n)
        for a, first, n in ((rows, block.first_row, block.nrows), (cols, block.first_col, block.ncols))
    ]
    return inside[0] & inside[1]


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("nentries", [0, 1, 3000])
def test_entries_outside_of_a_block_come_in_their_order(backend, block, nentries):
    rows, cols = (a.astype(backend.index) for a in random((60, 50), nentries, least=-3))

    found = coo.outside(block, backend.adopt(rows), backend.adopt(cols), backend)

    (expected,) = np.nonzero((rows >= 0) & (cols >= 0) & ~in_block(block, rows, cols))
    assert found.dtype == backend.index and found.shape == (3, expected.size)
    assert found.tolist() == [rows[expected].tolist(), cols[expected].tolist(), expected.tolist()]


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("nmore", [0, 1, 700])
def test_a_block_is_made_of_what_lies_in_it_of_given_and_of_more_entries(backend, block, nmore):
    rows, cols = (a.astype(backend.index) for a in random((60, 50), 3000, least=-3))
    parts = [(a[: 3000 - nmore], a[3000 - nmore :]) for a in (rows, cols)]
    inside = in_block(block, rows, cols)
    local = [np.where(inside, a - first, -1) for a, first in ((rows, block.first_row), (cols, block.first_col))]
    shape = (block.nrows, block.ncols)
    rowptr, colidx, begins, index = by_numpy(shape, *local)

    made = coo.assemble(shape, *(p[0] for p in parts), backend, block=block, more=tuple(p[1] for p in parts))

    assert backend.to_host(made.pattern.rowptr).tolist() == rowptr.tolist()
    assert backend.to_host(made.pattern.colidx).tolist() == colidx.tolist()
    assert (made.nentries, made.nterms) == (3000, index.size)
    if index.size:
        assert backend.to_host(made.index).tolist() == index.tolist()
        assert made.begins is None or backend.to_host(made.begins).tolist() == begins.tolist()


def test_entries_have_the_values_that_are_named(backend):
    """Few of many, and then some of another array."""
    (rows, cols), values = random((20, 30), 400), np.arange(400) * 3
    rowptr, colidx, begins, index = by_numpy((20, 30), rows, cols)
    given, received = (
        np.random.default_rng(k).uniform(-1, 1, n).astype(backend.scalar) for k, n in ((94, 700), (93, 500))
    )

    made = coo.assemble(
        (20, 30), *(a.astype(backend.index) for a in (rows, cols)), backend, numbers=values.astype(backend.index)
    )

    assert backend.to_host(made.pattern.colidx).tolist() == colidx.tolist()
    assert backend.to_host(made.index).tolist() == values[index].tolist()
    (result,) = backend.empty((colidx.size, backend.scalar))
    slots = {
        **NO_VALUES,
        Slot.A_VALUES: backend.adopt(given),
        Slot.B_VALUES: backend.adopt(received),
        Slot.RESULT: result,
    }
    backend.run(made.plan_sum(backend, (700, 500)), slots)
    assert backend.to_host(result).tobytes() == sums(begins, values[index], np.concatenate((given, received))).tobytes()


def test_entries_in_order_keep_the_values_that_are_named(backend):
    integers = [np.asarray(a, dtype=backend.index) for a in ([0, 0, 1], [1, 2, 0], [4, 7, 9])]
    made = coo.assemble((2, 3), *integers[:2], backend, numbers=integers[2])
    assert backend.to_host(made.index).tolist() == [4, 7, 9]


@pytest.mark.parametrize(("row", "column"), [(50, 0), (0, 40), (1 << 30, 1 << 30), (50, 40)])
@pytest.mark.parametrize("first", [0, 1234, NENTRIES - 1])
def test_the_first_entry_outside_is_named(backend, row, column, first):
    rows, cols = random((50, 40), NENTRIES, least=-1)
    rows[first], cols[first] = row, column
    cols[first + 1 :: 7], rows[first + 1 :: 7] = 90, 3

    text = f"^entry {first} of the coordinates is in row {row} and column {column}, the matrix is 50 x 40$"
    with pytest.raises(errors.PatternError, match=text):
        coo.assemble((50, 40), *(a.astype(backend.index) for a in (rows, cols)), backend)


def test_an_entry_that_is_left_out_may_lie_anywhere(backend):
    check(backend, (5, 5), [-1, 999, 2], [999, -1, 2])


class CountingBackend(EmulatedBackend):
    """Counts the times that the host waits, and brings entries to their rows in any order, as a device does."""

    waits, scatter = 0, None

    def function(self, stem, kernel, template_arguments):
        function = super().function(stem, kernel, template_arguments)
        self.scatter = function if kernel == "coo_scatter" else self.scatter
        return function

    def run(self, launches, slots=None):
        for launch in launches:
            if launch.function == self.scatter:
                rows, _, begins, slots_of_entries, _ = launch.arguments[5:]
                (kept,) = np.nonzero(slots_of_entries >= 0)
                drawn = np.random.default_rng(92).random(kept.size)
                shuffled = kept[np.lexsort((drawn, rows[kept]))]
                slots_of_entries[shuffled] = np.arange(kept.size) - begins[rows[shuffled]]
            super().run([launch], slots)

    def first(self, array, count):
        self.waits += 1
        return super().first(array, count)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("name", ["many repeats", "some left out", "a long row"])
def test_the_order_in_which_entries_come_does_not_show_and_the_host_waits_twice(emulation_folder, name, index):
    backend = CountingBackend(SCALAR, index, emulation_folder)

    check(backend, *CASES[name])

    assert backend.scatter and backend.waits == 2


class TooManyEntries:
    """Stands for more coordinates than an index counts."""

    size = 1 << 31


def test_more_entries_than_an_index_counts_are_refused(emulation_folder):
    backend = EmulatedBackend(SCALAR, np.int32, emulation_folder)
    with pytest.raises(errors.IndexOverflowError, match=r"^2147483648 entries are given, a PetscInt of 32 bits counts"):
        coo.assemble((5, 5), TooManyEntries(), TooManyEntries(), backend)


class AnsweredCoo(Answer):
    """The pattern of a matrix from coordinates, and the plan of its values."""

    def __init__(self, shape, rows, cols, backend="host", **fields):
        self.rows, self.cols = (np.asarray(a, dtype=INDEX) for a in (rows, cols))
        self.nrows = shape[0]
        request = abi.CooRequestStruct(
            requested_place(backend),
            abi.CooBlockStruct(0, shape[0], 0, shape[1]),
            nentries=self.rows.size,
            rows=self.rows.ctypes.data,
            cols=self.cols.ctypes.data,
            sizes=(self.rows.size, 0),
        )
        super().__init__(abi.Ask.COO, request, abi.CooAnswerStruct(), fields)

    def __exit__(self, *_):
        self.release_pattern()
        if self.answer.token:
            planner._planner.release(self.answer.token)

    def release_pattern(self):
        if self.token:
            planner._planner.release(self.token)

    @staticmethod
    def array(address, size):
        return np.frombuffer((ctypes.c_char * (size * INDEX.itemsize)).from_address(address), dtype=INDEX)

    def check_pattern(self):
        rowptr, colidx, *_ = by_numpy((self.nrows, 0), self.rows, self.cols)
        assert self.answer.nnz == colidx.size
        assert self.array(self.answer.rowptr, rowptr.size).tolist() == rowptr.tolist()
        assert self.array(self.answer.colidx, colidx.size).tolist() == colidx.tolist()

    def check_terms(self, begins, index):
        """Those of a copy need no numbers, and those of one each no beginnings."""
        nnz, nterms = self.answer.nnz, self.answer.nterms
        assert nterms == index.size
        assert self.answer.index or index.tolist() == list(range(nterms))
        assert self.answer.begins or nterms == nnz
        if self.answer.index:
            assert self.array(self.answer.index, nterms).tolist() == index.tolist()
        if self.answer.begins:
            assert self.array(self.answer.begins, nnz + 1).tolist() == begins.tolist()


@pytest.mark.parametrize("name", ["many repeats", "grid", "equal columns in rows side by side", "last place"])
def test_an_answer_has_the_pattern_and_the_plan_of_its_values(name):
    before = settled_tokens()
    with AnsweredCoo(*CASES[name]) as a:
        assert a.error == (0, "") and planner.owned_tokens() == before + 2
        assert a.answer.summary.decode().startswith(f"{a.answer.nnz} entries of {a.rows.size} given")
        a.check_pattern()
        _, _, *terms = by_numpy((a.nrows, 0), a.rows, a.cols)
        a.check_terms(*terms)
        a.rows[:], a.cols[:] = -1, -1  # the application frees them
        a.release_pattern()
        values = np.random.default_rng(95).uniform(-1, 1, a.rows.size).astype(SCALAR)
        result = np.full(a.answer.nnz, np.nan, dtype=SCALAR)
        a.launch(a.answer.sum, {**NO_VALUES, Slot.A_VALUES: values, Slot.RESULT: result})
        assert result.tobytes() == sums(*terms, values).tobytes()
        a.launch(a.answer.sum, {**NO_VALUES, Slot.A_VALUES: values, Slot.Y: result, Slot.RESULT: result})
        assert result.tobytes() == (2 * sums(*terms, values)).tobytes()
    assert planner.owned_tokens() == before


def test_an_answer_lists_what_lies_outside_and_keeps_all_coordinates():
    before, block = settled_tokens(), BLOCKS["within"]
    rows, cols = (a.astype(INDEX) for a in random((60, 50), 300, least=-3))
    given = (abi.CooBlockStruct(*block), rows.size, *(a.ctypes.data for a in (rows, cols)))
    request = abi.OutsideRequestStruct(requested_place("host"), *given)
    with Answer(abi.Ask.OUTSIDE, request, abi.OutsideAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        (expected,) = np.nonzero((rows >= 0) & (cols >= 0) & ~in_block(block, rows, cols))
        assert a.answer.count == expected.size
        for address, array in (
            (a.answer.rows, rows[expected]),
            (a.answer.cols, cols[expected]),
            (a.answer.numbers, expected),
        ):
            assert AnsweredCoo.array(address, expected.size).tolist() == array.tolist()
        assert AnsweredCoo.array(a.answer.all_rows, rows.size).tolist() == rows.tolist()
        assert AnsweredCoo.array(a.answer.all_cols, cols.size).tolist() == cols.tolist()
    assert planner.owned_tokens() == before


def test_an_answer_without_entries_has_no_launch():
    with AnsweredCoo(*CASES["all rows negative"]) as a:
        assert a.error == (0, "") and a.answer.nnz == 0 and a.answer.sum.nlaunches == 0
        assert a.array(a.answer.rowptr, 5).tolist() == [0] * 5


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    with AnsweredCoo((3, 3), [0, 3], [0, 0]) as a:
        assert a.token == 0 and a.error[0] == errors.PatternError.petsc_code
        assert a.error[1] == (
            "pattern of a 3 x 3 matrix from 2 coordinates on host: "
            "entry 1 of the coordinates is in row 3 and column 0, the matrix is 3 x 3"
        )
    with AnsweredCoo((3, 3), [0, 2], [0, 0], on_device=1) as a:
        assert a.token == 0 and a.error[0] == errors.UnsupportedError.petsc_code
        assert a.error[1].endswith("on host: arrays of a device are given to the host: copy them to the host first")


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, coo, "assemble", MemoryError("first try"))
    with AnsweredCoo(*CASES["grid"]) as a:
        assert a.error == (0, "") and len(calls) == 2


@pytest.mark.parametrize("on_device", [0, 1])
def test_a_block_is_made_where_coordinates_are_that_were_uploaded_once(emulation_folder, on_device):
    block, place = BLOCKS["within"], requested_place("cuda")
    place.stream = STREAM
    rows, cols, more_rows, more_cols = (
        a.astype(INDEX) for n, seed in ((NENTRIES, 96), (300, 91)) for a in random((60, 50), n, seed, least=-3)
    )
    at = [a.ctypes.data for a in (rows, cols, more_rows, more_cols)]
    everything = [np.concatenate(pair) for pair in ((rows, more_rows), (cols, more_cols))]
    inside = in_block(block, *everything)
    local = [np.where(inside, a - f, -1) for a, f in zip(everything, (block.first_row, block.first_col), strict=True)]
    rowptr, colidx, *_ = by_numpy((block.nrows, block.ncols), *local)
    with fake_driver(emulation_folder) as fake:
        memory = memory_of(0)
        struct = abi.CooBlockStruct(*block)
        request = abi.OutsideRequestStruct(place, struct, rows.size, *at[:2], on_device)
        with Answer(abi.Ask.OUTSIDE, request, abi.OutsideAnswerStruct(), {}) as found:
            assert found.error == (0, "")
            assert (found.answer.all_rows == at[0]) == bool(on_device)
            request = abi.CooRequestStruct(place, struct, is_part=1, on_device=1, nentries=rows.size, nmore=300)
            request.rows, request.cols = found.answer.all_rows, found.answer.all_cols
            request.more_rows, request.more_cols, request.sizes = *at[2:], (rows.size, 300)
            with Answer(abi.Ask.COO, request, abi.CooAnswerStruct(), {}) as made:
                assert made.error == (0, "") and made.answer.nnz == colidx.size
                assert AnsweredCoo.array(made.answer.rowptr, rowptr.size).tolist() == rowptr.tolist()
                assert AnsweredCoo.array(made.answer.colidx, colidx.size).tolist() == colidx.tolist()
                planner._planner.release(made.answer.token)
            held = fake.used - memory.bytes_given_back()
        assert held <= (0 if on_device else rows.nbytes + cols.nbytes) + ZEROS + 4096
        assert {call[-1] for call in fake.named("launch")} == {STREAM}


@pytest.mark.parametrize("on_device", [0, 1])
@pytest.mark.parametrize("name", ["many repeats", "grid", "a long row", "reversed"])
def test_memory_of_a_device_is_bounded_and_taken_on_the_stream_of_the_place(emulation_folder, name, on_device):
    """At most 2.5 times the coordinates, besides the row pointer and what prefix sums need."""
    case = CASES.get(name) or ((NENTRIES, 1), np.arange(NENTRIES)[::-1], np.zeros(NENTRIES))
    most = []
    with fake_driver(emulation_folder) as fake:
        memory = memory_of(0)
        fake.launched = lambda _: most.append(fake.used - memory.bytes_given_back())
        with AnsweredCoo(*case, backend="cuda", stream=STREAM, on_device=on_device) as a:
            assert a.error == (0, "")
            a.check_pattern()
            nbytes = a.rows.nbytes + a.cols.nbytes
            assert nbytes < max(most) - (case[0][0] + 1) * INDEX.itemsize < 2.5 * nbytes + ZEROS + 4096
        calls = fake.named("launch", "cuMemAllocFromPoolAsync", "cuMemsetD8Async")
        assert {call[-1] for call in calls} == {STREAM}
        assert len(fake.named("cuMemcpyDtoHAsync_v2")) == 2
