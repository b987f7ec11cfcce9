"""Values in single precision: on the host, as a device kernel, and as the planner answers the library."""

import numpy as np
import pytest
from places import EVERY_PLACE, SCALAR, make_backend
from test_scale_and_add import AnsweredChange, Matrix

from petsc_gpufmt.backends.plan import ScaleAndAdd, Slot
from petsc_gpufmt.patterns import narrow

pytestmark = pytest.mark.real

LARGEST, SMALLEST = (float(x) for x in (np.finfo(np.float32).max, np.finfo(np.float32).smallest_normal))
TO_INFINITY = LARGEST + 2.0**103  # the smallest number that becomes infinite

needs_double = pytest.mark.skipif(np.float64 != SCALAR, reason="PETSc has single precision itself")


@pytest.fixture(params=[*EVERY_PLACE, "device_like"])
def backend(request):
    return make_backend(request, request.param)


def narrowed(backend, values):
    """In single precision, and how many are too large and too small, added to 5 and 7."""
    nnz = len(values)
    arrays = np.asarray(values, SCALAR), np.full(nnz, np.nan, np.float32), np.array([5, 7], np.uint64)
    given, result, outside = map(backend.adopt, arrays)
    slots = {Slot.A_VALUES: given, Slot.RESULT: result, Slot.Z: outside}
    backend.run(narrow.plan_narrow(nnz, backend), slots)
    return backend.to_host(result), (backend.to_host(outside).astype(int) - [5, 7]).tolist()


@pytest.mark.parametrize("nnz", [0, 1, 1023, 5000])
def test_each_value_is_rounded_to_the_nearest(backend, nnz):
    values = np.random.default_rng(90).uniform(-2, 1, nnz)
    result, outside = narrowed(backend, values)
    assert result.tobytes() == values.astype(np.float32).tobytes() and outside == [0, 0]


@needs_double
@pytest.mark.parametrize(
    ("value", "outside"),
    [
        *((x, [0, 0]) for x in (0.0, -0.0, LARGEST, np.nextafter(TO_INFINITY, 0), SMALLEST, np.inf, np.nan)),
        *((x, [1, 0]) for x in (TO_INFINITY, 1e39, np.finfo(np.float64).max)),
        *((x, [0, 1]) for x in (SMALLEST / 2, 1e-46, 5e-324)),
    ],
)
def test_what_leaves_the_range_is_counted(backend, value, outside):
    with np.errstate(over="ignore"):
        for sign in (1, -1):
            given = np.full(2000, 0.1)
            given[[3, 1999]] = sign * value
            result, counted = narrowed(backend, given)
            assert result.tobytes() == given.astype(np.float32).tobytes()
            assert counted == [2 * n for n in outside]


@needs_double
def test_the_plan_of_an_answer():
    m = Matrix([2, 3])
    m.values[1], m.values[4] = 1e50, 1e-50
    with AnsweredChange(ScaleAndAdd.NARROW, m) as a:
        assert a.error == (0, "") and a.answer.applies
        result, outside = np.full(5, np.nan, np.float32), np.zeros(2, np.uint64)
        a.launch(a.answer.scale_and_add, {Slot.A_VALUES: m.values, Slot.RESULT: result, Slot.Z: outside})
    with np.errstate(over="ignore"):
        assert result.tobytes() == m.values.astype(np.float32).tobytes() and outside.tolist() == [1, 1]
