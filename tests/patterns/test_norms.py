"""The sums that norms are made of: on the host, as device kernels, and as the planner answers the library."""

import numpy as np
import pytest
from places import EVERY_PLACE, SCALAR, make_backend
from test_scale_and_add import AnsweredChange, Matrix
from test_zero_rows import EVERY_MATRIX, ROW_LENGTHS

from petsc_gpufmt.backends.plan import ScaleAndAdd, Slot
from petsc_gpufmt.patterns import norms
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.transpose import transposed

EPS = float(np.finfo(SCALAR).eps)


@pytest.fixture(params=EVERY_PLACE)
def backend(request):
    return make_backend(request, request.param)


def filled(backend, n):
    """An array of what must not be read."""
    return backend.xp.full(n, np.nan, dtype=SCALAR)


@pytest.mark.parametrize("nnz", [0, 1, 1023, 5000])
def test_squares(backend, nnz):
    values = np.random.default_rng(80).uniform(-2, 1, nnz).astype(SCALAR)
    parts = filled(backend, norms.PARTS)
    slots = {Slot.A_VALUES: backend.xp.asarray(values), Slot.RESULT: parts}
    backend.run(norms.plan_sum_of_squares(nnz, backend), slots)
    found = backend.to_host(parts)
    assert found.sum() == pytest.approx((values.astype(np.float64) ** 2).sum(), rel=(nnz + 2) * EPS)
    backend.run(norms.plan_sum_of_squares(nnz, backend), slots)
    assert backend.to_host(parts).tobytes() == found.tobytes()


def sums_of(m, axis):
    expected = np.zeros((m.nrows, m.ncols)[axis], SCALAR)
    np.add.at(expected, (m.rows, m.colidx)[axis], np.abs(m.values))
    return expected


@EVERY_MATRIX
@pytest.mark.parametrize("axis", [0, 1], ids=["rows", "columns"])
@pytest.mark.parametrize("added", [False, True])
def test_sums_and_the_largest(backend, lengths, axis, added):
    m = Matrix(lengths, ncols=800)
    pattern = CsrPattern(m.nrows, m.ncols, *(backend.xp.asarray(a) for a in (m.rowptr, m.colidx)))
    if axis:
        pattern = transposed(pattern, backend)
    launches = norms.plan_absolute_sums(pattern.rowptr, pattern.source if axis else None, backend)
    expected, result = sums_of(m, axis), filled(backend, (m.nrows, m.ncols)[axis])
    if added:
        result = backend.xp.asarray(np.linspace(1, 3, expected.size).astype(SCALAR))
        expected += backend.to_host(result)
    parts = filled(backend, norms.PARTS)
    slots = {Slot.A_VALUES: backend.xp.asarray(m.values), Slot.RESULT: result, Slot.Y: result if added else None}
    backend.run(launches, {**slots, Slot.Z: parts})
    np.testing.assert_allclose(backend.to_host(result), expected, rtol=800 * EPS)
    if expected.size:
        assert backend.to_host(parts).max() == backend.to_host(result).max()
        backend.run(launches, {**slots, Slot.Y: None, Slot.Z: None})
        np.testing.assert_allclose(backend.to_host(result), sums_of(m, axis), rtol=800 * EPS)


def test_what_is_no_number_is_not_the_largest(backend):
    m = Matrix([1, 1, 1])
    m.values[:] = 2.0, np.nan, -5.0
    parts, result = filled(backend, norms.PARTS), filled(backend, 3)
    launches = norms.plan_absolute_sums(backend.xp.asarray(m.rowptr), None, backend)
    slots = {Slot.A_VALUES: backend.xp.asarray(m.values), Slot.RESULT: result, Slot.Y: None, Slot.Z: parts}
    backend.run(launches, slots)
    assert backend.to_host(parts).max() == 5.0


@pytest.mark.parametrize("kind", [ScaleAndAdd.SUM_SQUARES, ScaleAndAdd.SUM_ROWS, ScaleAndAdd.SUM_COLUMNS])
def test_the_plan_of_an_answer(kind):
    m = Matrix(ROW_LENGTHS["short"])
    axis = int(kind is ScaleAndAdd.SUM_COLUMNS)
    expected = (m.values**2).sum() if kind is ScaleAndAdd.SUM_SQUARES else sums_of(m, axis).max()
    with AnsweredChange(kind, m) as a:
        assert a.error == (0, "") and a.answer.applies
        m.rowptr[:], m.colidx[:] = -1, -1  # the plan has its own
        parts, sums = np.full(norms.PARTS, np.nan, SCALAR), np.full(m.ncols, np.nan, SCALAR)
        squares = kind is ScaleAndAdd.SUM_SQUARES
        slots = {Slot.A_VALUES: m.values, Slot.RESULT: parts if squares else sums, Slot.Y: None, Slot.Z: parts}
        a.launch(a.answer.scale_and_add, slots)
    assert (parts.sum() if squares else parts.max()) == pytest.approx(expected, rel=1000 * EPS)


def test_a_pattern_that_is_none_has_no_sums_of_columns():
    m = Matrix([2, 3])
    m.colidx[1] = m.ncols
    with AnsweredChange(ScaleAndAdd.SUM_COLUMNS, m) as a:
        assert a.token == 0 and "sum_columns of a 2 x" in a.error[1]
