"""Rows, and columns, made zeros in place: on the host, as device kernels, and as the planner answers the library."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from builders import from_row_lengths
from emulation.backend import EmulatedBackend
from places import EVERY_PLACE, INDEX, SCALAR, alpha_slots, make_backend
from test_scale_and_add import AnsweredChange

from petsc_gpufmt.backends.plan import ScaleAndAdd, Slot
from petsc_gpufmt.patterns import zero_rows

# of rows: none, empty ones among others, one longer than a block has threads
ROW_LENGTHS = {"nothing": [], "empty rows": [0, 0], "one": [1], "long": [3, 700, 0, 7], "short": [2, 0, 5, 1] * 90}
EVERY_MATRIX = pytest.mark.parametrize("lengths", ROW_LENGTHS.values(), ids=ROW_LENGTHS)


@pytest.fixture(params=EVERY_PLACE)
def backend(request):
    return make_backend(request, request.param)


class Zeroed:
    """A random matrix whose rows are not sorted, vectors, and some of its rows and columns."""

    def __init__(self, lengths, ncols=900):
        random = np.random.default_rng(75)
        self.m = m = from_row_lengths(np.array(lengths, dtype=int), ncols, seed=76)
        self.rowptr, self.colidx = m.rowptr.astype(INDEX), m.colidx.astype(INDEX)
        self.values, self.x, self.b = (random.uniform(1, 2, n).astype(SCALAR) for n in (m.colidx.size, ncols, m.nrows))
        self.rows, self.columns = (random.random(n) < 0.4 for n in (m.nrows, ncols))
        on_the_diagonal = self.colidx == m.rows
        self.places = np.full(m.nrows, -1)
        self.places[m.rows[on_the_diagonal]] = np.flatnonzero(on_the_diagonal)

    def expected(self, alpha, diagonal, columns):
        """Values and b afterwards."""
        rows, values, b = self.rows[self.m.rows], self.values.copy(), self.b.copy()
        goes = ~rows & (self.columns[self.colidx] if columns else False)
        np.subtract.at(b, self.m.rows[goes], values[goes] * self.x[self.colidx[goes]])
        values[rows | goes] = 0
        if diagonal:
            values[self.places[self.rows & (self.places >= 0)]] = alpha
            square = self.rows[: self.m.ncols]
            b[: square.size][square] = alpha * self.x[: square.size][square]
        return values, b

    def slots(self, backend, alpha, columns, vectors):
        marks = [backend.xp.asarray(a.astype(np.uint8)) for a in (self.rows, self.columns)]
        x, b, values = (backend.xp.asarray(a.copy()) for a in (self.x, self.b, self.values))
        return {
            **{Slot.COLIDX: backend.xp.asarray(self.colidx), Slot.ROWS: marks[0]},
            **alpha_slots(alpha, SCALAR),
            **{Slot.COLUMNS: marks[1] if columns else None, Slot.RESULT: values},
            **{Slot.X: x if vectors else None, Slot.Z: b if vectors else None},
        }


def find(z, backend):
    return zero_rows.find_diagonal(*(backend.xp.asarray(a) for a in (z.rowptr, z.colidx)), backend)


@EVERY_MATRIX
def test_the_diagonal_is_found_wherever_it_is_in_its_row(backend, lengths):
    z = Zeroed(lengths, ncols=max(len(lengths), 900))
    places, missing = find(z, backend)
    assert backend.to_host(places).tolist() == z.places.tolist()
    assert (missing is None) == bool((z.places >= 0).all())
    assert missing is None or (missing != 0).tolist() == (z.places < 0).tolist()


def test_kernels_alone_compute_with_arrays_of_a_device(emulation_folder):
    device = EmulatedBackend(SCALAR, INDEX, emulation_folder, device_like=True)
    z = Zeroed(ROW_LENGTHS["short"])
    places, missing = zero_rows.find_diagonal(device.adopt(z.rowptr), device.adopt(z.colidx), device)
    assert device.to_host(places).tolist() == z.places.tolist()
    assert (missing != 0).tolist() == (z.places < 0).tolist()


def test_a_full_diagonal_lacks_nothing(backend):
    z = Zeroed([1] * 300)
    z.colidx = np.arange(300, dtype=INDEX)
    places, missing = find(z, backend)
    assert missing is None and backend.to_host(places).tolist() == list(range(300))


@EVERY_MATRIX
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "rows and columns"])
@pytest.mark.parametrize("diagonal", [False, True], ids=["off-diagonal", "diagonal"])
def test_zeros(backend, lengths, columns, diagonal):
    z = Zeroed(lengths)
    places = find(z, backend)[0] if diagonal else None
    launches = zero_rows.plan_zero_rows(backend.xp.asarray(z.rowptr), z.m.ncols, places, backend)
    values, b = z.expected(-0.5, diagonal, columns)
    for vectors in (True, False):
        slots = z.slots(backend, -0.5, columns, vectors)
        backend.run(launches, slots)
        assert backend.to_host(slots[Slot.RESULT]).tobytes() == values.tobytes()
        if vectors:
            np.testing.assert_allclose(backend.to_host(slots[Slot.Z]), b, rtol=400 * np.finfo(SCALAR).eps)


def test_rows_below_the_last_column_have_no_diagonal(backend):
    z = Zeroed([2] * 40, ncols=9)
    places, _ = find(z, backend)
    slots = z.slots(backend, 3.0, False, True)
    backend.run(zero_rows.plan_zero_rows(backend.xp.asarray(z.rowptr), 9, places, backend), slots)
    values, b = z.expected(3.0, True, False)
    assert backend.to_host(slots[Slot.RESULT]).tobytes() == values.tobytes()
    assert backend.to_host(slots[Slot.Z]).tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", [ScaleAndAdd.ZERO_ROWS, ScaleAndAdd.ZERO_ROWS_OFFDIAG])
def test_the_plan_of_an_answer(kind):
    z = Zeroed(ROW_LENGTHS["short"])
    values, b = z.expected(2.0, kind is ScaleAndAdd.ZERO_ROWS, columns=True)
    with AnsweredChange(kind, replace(z.m, rowptr=z.rowptr, colidx=z.colidx)) as a:
        assert a.error == (0, "") and a.answer.applies
        if kind is ScaleAndAdd.ZERO_ROWS:
            missing = (ctypes.c_uint8 * z.m.nrows).from_address(a.answer.no_diagonal)
            assert [m != 0 for m in missing] == (z.places < 0).tolist()
        else:
            assert a.answer.no_diagonal is None
        z.rowptr[:] = -1  # the plan has its own
        slots = {
            **{Slot.COLIDX: z.colidx, Slot.ROWS: z.rows.astype(np.uint8), Slot.COLUMNS: z.columns.astype(np.uint8)},
            **{**alpha_slots(2.0, SCALAR), Slot.X: z.x, Slot.Z: z.b, Slot.RESULT: z.values},
        }
        a.launch(a.answer.scale_and_add, slots)
    assert z.values.tobytes() == values.tobytes()
    np.testing.assert_allclose(z.b, b, rtol=400 * np.finfo(SCALAR).eps)
