"""Values scaled and added to in place: on the host, as device kernels, and as the planner answers the library."""

import numpy as np
import pytest
from answers import Answer, failing, requested_place, settled_tokens
from builders import from_row_lengths
from emulation.backend import EmulatedBackend
from places import EVERY_PLACE, INDEX, SCALAR, alpha_slots, make_backend

from petsc_gpufmt import errors
from petsc_gpufmt.backends.plan import ScaleAndAdd, Slot
from petsc_gpufmt.patterns import scale_and_add
from petsc_gpufmt.planning import abi, planner

TILE = scale_and_add.TILE
# of rows: none, many empty ones before, between and after others, one longer than tiles, all in the first tile
ROW_LENGTHS = {
    "nothing": [],
    "empty rows": [0, 0],
    "one": [1],
    "long": [3, 2 * TILE + 5, 0, 7],
    "gaps": [0] * 1500 + [5, 0, 9] + [0] * 700 + [1] * TILE + [0] * 3,
    "short": [2, 0, 5] * 700,
}
EVERY_MATRIX = pytest.mark.parametrize("lengths", ROW_LENGTHS.values(), ids=ROW_LENGTHS)


@pytest.fixture(params=EVERY_PLACE)
def backend(request):
    return make_backend(request, request.param)


class Matrix:
    """Arrays of a random matrix, its rows sorted."""

    def __init__(self, lengths, ncols=3 * TILE):
        m = from_row_lengths(np.array(lengths, dtype=int), ncols, seed=70)
        order = np.lexsort((m.colidx, m.rows))
        self.nrows, self.ncols, self.rows = m.nrows, m.ncols, m.rows
        self.rowptr, self.colidx = m.rowptr.astype(INDEX), m.colidx[order].astype(INDEX)
        self.values = np.random.default_rng(71).uniform(-1, 1, self.colidx.size).astype(SCALAR)

    def part(self, seed=72):
        """Places of some of the entries, and (rowptr, colidx) of a matrix of these."""
        places = np.flatnonzero(np.random.default_rng(seed).random(self.colidx.size) < 0.4)
        lengths = np.bincount(self.rows[places], minlength=self.nrows)
        return places, (np.concatenate(([0], np.cumsum(lengths))).astype(INDEX), self.colidx[places])


def run(backend, launches, values, **slots):
    """The values after `launches`, with slots by name."""
    xp = backend.xp
    result = xp.array(values)
    arrays = {name: xp.asarray(a, dtype=SCALAR) for name, a in slots.items() if name != "ALPHA"}
    alpha = alpha_slots(slots["ALPHA"], SCALAR) if "ALPHA" in slots else {}
    backend.run(launches, {**{Slot[name]: a for name, a in arrays.items()}, **alpha, Slot.RESULT: result})
    return backend.to_host(result)


def test_kernels_alone_compute_with_arrays_of_a_device(emulation_folder):
    device = EmulatedBackend(SCALAR, INDEX, emulation_folder, device_like=True)
    m = Matrix(ROW_LENGTHS["gaps"])
    places, part = m.part()
    rowptr, colidx, *part = map(device.adopt, (m.rowptr, m.colidx, *part))
    assert device.to_host(scale_and_add._tile_rows(rowptr, m.colidx.size, device)).tolist() == [
        m.rows[min(first, m.colidx.size - 1)] for first in range(0, m.colidx.size + TILE, TILE)
    ]
    (launch,) = scale_and_add.plan_add_subset((rowptr, colidx), tuple(part), None, device)
    assert device.to_host(launch.arguments[1]).tolist() == places.tolist()


@EVERY_MATRIX
def test_scaling(backend, lengths):
    m = Matrix(lengths)
    random = np.random.default_rng(73)
    rows, columns = (random.uniform(-1, 1, n).astype(SCALAR) for n in (m.nrows, m.ncols))
    arrays = [backend.xp.asarray(a) for a in (m.rowptr, m.colidx)]
    nnz = m.colidx.size
    alpha = SCALAR.type(-0.7)
    scaled = run(backend, scale_and_add.plan_scale(nnz, backend), m.values, ALPHA=alpha)
    assert scaled.tobytes() == (m.values * alpha).tobytes()
    scaled = run(backend, scale_and_add.plan_scale_rows(nnz, arrays[0], backend), m.values, X=rows)
    assert scaled.tobytes() == (m.values * rows[m.rows]).tobytes()
    scaled = run(backend, scale_and_add.plan_scale_columns(arrays[1], backend), m.values, X=columns)
    assert scaled.tobytes() == (m.values * columns[m.colidx]).tobytes()


@EVERY_MATRIX
def test_adding_the_same_pattern(backend, lengths):
    m = Matrix(lengths)
    other = np.cos(np.arange(m.values.size)).astype(SCALAR)
    total = run(backend, scale_and_add.plan_add(other.size, backend), m.values, ALPHA=-0.7, A_VALUES=other)
    np.testing.assert_allclose(total, m.values - SCALAR.type(0.7) * other, rtol=0, atol=4 * np.finfo(SCALAR).eps)


def add_subset(backend, m, added, columns=None):
    on_backend = [[backend.xp.asarray(a) for a in pattern] for pattern in ((m.rowptr, m.colidx), added)]
    columns = None if columns is None else backend.xp.asarray(columns.astype(INDEX))
    return scale_and_add.plan_add_subset(*on_backend, columns, backend)


@EVERY_MATRIX
@pytest.mark.parametrize("renumbered", [False, True])
def test_adding_some_entries(backend, lengths, renumbered):
    m = Matrix(lengths)
    places, (rowptr, colidx) = m.part()
    columns = None
    if renumbered:
        columns, colidx = np.unique(colidx, return_inverse=True)
        colidx = colidx.astype(INDEX)
    other = np.cos(np.arange(places.size)).astype(SCALAR)
    launches = add_subset(backend, m, (rowptr, colidx), columns)
    expected = m.values.copy()
    expected[places] += other
    assert run(backend, launches, m.values, ALPHA=1.0, A_VALUES=other).tobytes() == expected.tobytes()


def broken(m, how):
    """Some entries of `m`, and columns by number, that are not an addition to it."""
    places, (rowptr, colidx) = m.part()
    row = int(np.flatnonzero(np.diff(rowptr) > 1)[-1])
    first, columns = rowptr[row], np.arange(m.ncols)
    if how == "another column":
        own = m.colidx[m.rowptr[row] : m.rowptr[row + 1]]
        colidx[first] = np.setdiff1d(np.arange(own.max() + 1), own)[0]
        colidx[first : rowptr[row + 1]].sort()
    elif how == "twice":
        colidx[first + 1] = colidx[first]
    elif how == "not sorted":
        colidx[[first, first + 1]] = colidx[[first + 1, first]]
    else:
        columns[colidx[first]] = -1
    return (rowptr, colidx), columns


@pytest.mark.parametrize("how", ["another column", "twice", "not sorted", "no such column"])
@pytest.mark.parametrize("lengths", [ROW_LENGTHS["long"], ROW_LENGTHS["short"]])
def test_what_is_not_a_part_of_the_pattern_has_no_plan(backend, lengths, how):
    m = Matrix(lengths)
    added, columns = broken(m, how)
    assert add_subset(backend, m, added, columns) is None


def test_rows_of_the_target_that_are_not_sorted_have_no_plan(backend):
    m = Matrix([5, 40, 3])
    added = m.rowptr, m.colidx.copy()
    m.colidx[5:45] = m.colidx[5:45][::-1]
    assert add_subset(backend, m, added) is None


def with_diagonal(nrows, seed=74):
    """Rows of a few entries in order, one of them on the diagonal, a long one among them; and the places of these."""
    random = np.random.default_rng(seed)
    rows = [np.union1d(random.integers(0, nrows, 400 if i == 5 else i % 4), [i]) for i in range(nrows)]
    m = Matrix([len(r) for r in rows], ncols=max(nrows, 1))
    m.colidx = np.concatenate([np.zeros(0), *rows]).astype(INDEX)
    return m, np.flatnonzero(m.colidx == m.rows)


@pytest.mark.parametrize("nrows", [0, 1, 700])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_the_diagonal(backend, nrows, added, constant):
    m, places = with_diagonal(nrows)
    launches = scale_and_add.plan_set_diagonal(*[backend.xp.asarray(a) for a in (m.rowptr, m.colidx)], backend)
    x = np.cos(np.arange(nrows)).astype(SCALAR)
    expected, result = m.values.copy(), backend.xp.asarray(m.values.copy())
    expected[places] = (SCALAR.type(-0.7) if constant else x) + (expected[places] if added else 0)
    slots = {Slot.X: None if constant else backend.xp.asarray(x), Slot.Y: result if added else None}
    backend.run(launches, {**slots, **alpha_slots(-0.7, SCALAR), Slot.RESULT: result})
    assert backend.to_host(result).tobytes() == expected.tobytes()


@pytest.mark.parametrize("row", [0, 5, 699])
def test_a_row_without_diagonal_entry_has_no_plan(backend, row):
    m, places = with_diagonal(700)
    m.colidx[places[row]] = m.colidx[places[row] - 1] if row else m.colidx[1]
    assert scale_and_add.plan_set_diagonal(*[backend.xp.asarray(a) for a in (m.rowptr, m.colidx)], backend) is None


class AnsweredChange(Answer):
    """The plan of a change of `m`; `added` is (rowptr, colidx)."""

    def __init__(self, kind, m, added=None, columns=None, **fields):
        self.arrays = m, added, columns
        request = abi.ScaleAndAddRequestStruct(
            scale_and_add=kind,
            target=self.operand(m.nrows, m.ncols, m.rowptr, m.colidx),
            place=requested_place(),
        )
        if added:
            request.added = self.operand(m.nrows, m.ncols if columns is None else columns.size, *added)
        if columns is not None:
            request.columns = columns.ctypes.data
        super().__init__(abi.Ask.SCALE_AND_ADD, request, abi.ScaleAndAddAnswerStruct(), fields)

    @staticmethod
    def operand(nrows, ncols, rowptr, colidx):
        return abi.OperandStruct(nrows, ncols, colidx.size, rowptr.ctypes.data, colidx.ctypes.data)


@pytest.mark.parametrize("kind", [k for k in ScaleAndAdd if k <= ScaleAndAdd.SET_DIAGONAL])  # others: beside theirs
def test_the_plan_of_an_answer_keeps_what_it_reads(kind):
    m, diagonal = with_diagonal(700) if kind is ScaleAndAdd.SET_DIAGONAL else (Matrix(ROW_LENGTHS["short"]), None)
    before = settled_tokens()
    factors = np.linspace(1, 2, 2 * m.ncols).astype(SCALAR)
    places, added = m.part() if kind is ScaleAndAdd.ADD_SUBSET else (slice(None), None)
    expected = m.values.copy()
    if kind in (ScaleAndAdd.ADD, ScaleAndAdd.ADD_SUBSET):
        expected[places] += 2 * factors[: expected[places].size]
    elif kind is ScaleAndAdd.SET_DIAGONAL:
        expected[diagonal] = factors[: diagonal.size]
    else:
        expected *= {
            ScaleAndAdd.SCALE: 2,
            ScaleAndAdd.SCALE_ROWS: factors[m.rows],
            ScaleAndAdd.SCALE_COLUMNS: factors[m.colidx],
        }[kind]
    with AnsweredChange(kind, m, added) as a:
        assert a.error == (0, "") and a.answer.applies and planner.owned_tokens() == before + 1
        m.rowptr[:], m.colidx[:] = -1, -1
        slots = {**alpha_slots(2, SCALAR), Slot.X: factors, Slot.Y: None, Slot.A_VALUES: factors}
        a.launch(a.answer.scale_and_add, {**slots, Slot.RESULT: m.values})
        np.testing.assert_allclose(m.values, expected, rtol=4 * np.finfo(SCALAR).eps)
    assert planner.owned_tokens() == before


def test_columns_by_number_come_with_a_request():
    m = Matrix([5, 40, 3])
    for columns, applies in ((np.arange(m.ncols), 1), (np.arange(m.ncols) - 1, 0)):
        with AnsweredChange(ScaleAndAdd.ADD_SUBSET, m, (m.rowptr.copy(), m.colidx.copy()), columns.astype(INDEX)) as a:
            assert a.error == (0, "") and a.answer.applies == applies


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line(monkeypatch):
    failing(monkeypatch, scale_and_add, "plan_scale", errors.UnsupportedError("not on this device"))
    with AnsweredChange(ScaleAndAdd.SCALE, Matrix([2, 3])) as a:
        assert a.token == 0 and a.error[0] == errors.UnsupportedError.petsc_code
        assert a.error[1] == f"scale of a 2 x {3 * TILE} block with 5 nonzeros on host: not on this device"


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, scale_and_add, "plan_add", MemoryError("first try"))
    with AnsweredChange(ScaleAndAdd.ADD, Matrix([2, 3])) as a:
        assert a.error == (0, "") and len(calls) == 2


def test_a_scalar_is_passed_by_value():
    number, m = 2.5 - 0.5j if SCALAR.kind == "c" else 2.5, Matrix([2, 3])
    words = np.frombuffer(np.array([number], SCALAR).tobytes().ljust(16, b"\0"), np.uint64)
    with AnsweredChange(ScaleAndAdd.SCALE, m) as a:
        launch = a.answer.scale_and_add.launches[0]
        a.launch(a.answer.scale_and_add, {**alpha_slots(number, SCALAR), Slot.RESULT: m.values})
        slots = list(launch.slots[: launch.nwords])
        assert launch.words[slots.index(Slot.ALPHA)] == words[0]
        assert (Slot.ALPHA_IMAG in slots) == (SCALAR.itemsize > 8)
        if Slot.ALPHA_IMAG in slots:
            assert launch.words[slots.index(Slot.ALPHA_IMAG)] == words[1]
