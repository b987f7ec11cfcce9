"""Values that are complex numbers, changed in place and added up by device kernels."""

import numpy as np
import pytest
from builders import from_row_lengths, scalars
from places import DEVICE_LIKE, alpha_slots, make_backend

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.patterns import entry_sum, norms, scale_and_add, zero_rows

ALPHA = 0.5 - 2j
NCOLS = 300


@pytest.fixture(params=DEVICE_LIKE)
def place(request):
    return request.param


@pytest.fixture(params=["complex128", "complex64"])
def backend(request, place):
    return make_backend(request, place, request.param, "int32")


@pytest.fixture
def matrix():
    """Rows of all lengths with some of their diagonal entries."""
    return from_row_lengths(np.random.default_rng(90).integers(0, 40, NCOLS), NCOLS, seed=91)


def numbers(n, seed, backend):
    return scalars(np.random.default_rng(seed).uniform(-1, 1, n), backend.scalar)


def changed(backend, launches, values, alpha=0, **slots):
    """The values after `launches`, with slots by name, whose arrays change too."""
    result, given = backend.adopt(values.copy()), {Slot[name]: there(array, backend) for name, array in slots.items()}
    backend.run(launches, {**alpha_slots(alpha, backend.scalar), **given, Slot.RESULT: result})
    for name, array in slots.items():
        if array is not None:
            array[:] = backend.to_host(given[Slot[name]])
    return backend.to_host(result)


def there(array, backend):
    return None if array is None else backend.adopt(array)


def check(found, expected, backend, terms=1):
    eps = np.finfo(backend.scalar).eps
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * (terms + 1) * eps * np.abs(expected).max(initial=1))


def test_scaling(backend, matrix):
    nnz, values = matrix.colidx.size, numbers(matrix.colidx.size, 92, backend)
    rowptr, colidx = (backend.adopt(a.astype(backend.index)) for a in (matrix.rowptr, matrix.colidx))
    check(changed(backend, scale_and_add.plan_scale(nnz, backend), values, ALPHA), values * ALPHA, backend)
    factors = numbers(NCOLS, 93, backend)
    by_rows = scale_and_add.plan_scale_rows(nnz, rowptr, backend)
    check(changed(backend, by_rows, values, X=factors), values * factors[matrix.rows], backend)
    by_columns = scale_and_add.plan_scale_columns(colidx, backend)
    check(changed(backend, by_columns, values, X=factors), values * factors[matrix.colidx], backend)


def test_adding_a_multiple_and_setting_the_diagonal(backend):
    values, other = (numbers(NCOLS, seed, backend) for seed in (94, 95))
    added = changed(backend, scale_and_add.plan_add(NCOLS, backend), values, ALPHA, A_VALUES=other)
    check(added, values + ALPHA * other, backend)
    rowptr, colidx = (backend.adopt(np.arange(n, dtype=backend.index)) for n in (NCOLS + 1, NCOLS))
    launches = scale_and_add.plan_set_diagonal(rowptr, colidx, backend)
    assert (changed(backend, launches, values, ALPHA, X=None, Y=None) == backend.scalar.type(ALPHA)).all()


@pytest.mark.parametrize("columns", [False, True])
def test_rows_and_columns_of_zeros(backend, matrix, columns):
    colidx = matrix.colidx.astype(backend.index)
    pattern = backend.adopt(matrix.rowptr.astype(backend.index)), backend.adopt(colidx)
    values, x, b = (numbers(n, seed, backend) for n, seed in ((colidx.size, 96), (NCOLS, 97), (NCOLS, 98)))
    marked = np.random.default_rng(99).random(NCOLS) < 0.3
    places, _ = zero_rows.find_diagonal(*pattern, backend)
    launches = zero_rows.plan_zero_rows(pattern[0], NCOLS, places, backend)
    marks = {"ROWS": marked.astype(np.uint8), "COLUMNS": marked.astype(np.uint8) if columns else None}
    dense = np.zeros((NCOLS, NCOLS), backend.scalar)
    dense[matrix.rows, matrix.colidx] = values
    expected_b = np.where(marked, ALPHA * x, b - dense[:, marked] @ x[marked] if columns else b)
    dense[:, marked if columns else []] = 0
    dense[marked] = 0
    dense[marked, marked] = ALPHA

    found = changed(backend, launches, values, ALPHA, COLIDX=colidx, X=x, Z=b, **marks)

    assert found.tolist() == dense[matrix.rows, matrix.colidx].tolist()
    check(b, expected_b, backend, terms=40)


def test_sums_that_norms_are_made_of_are_those_of_magnitudes(backend, matrix):
    values, parts = numbers(matrix.colidx.size, 100, backend), np.full(norms.PARTS, np.nan, backend.scalar)
    squares = changed(backend, norms.plan_sum_of_squares(values.size, backend), parts, A_VALUES=values)
    assert not squares.imag.any()
    rounding = values.size * float(np.finfo(backend.scalar).eps)
    assert squares.real.sum() == pytest.approx(np.linalg.norm(values) ** 2, rel=rounding)
    launches = norms.plan_absolute_sums(backend.adopt(matrix.rowptr.astype(backend.index)), None, backend)
    sums = changed(backend, launches, parts[:NCOLS], A_VALUES=values, Y=None, Z=parts)
    check(sums, np.bincount(matrix.rows, np.abs(values), NCOLS), backend, terms=40)
    assert parts.real.max() == sums.real.max() and not parts.imag.any()


def test_sums_of_entries(backend):
    values, counts = numbers(500, 101, backend), np.random.default_rng(102).integers(0, 6, 200)
    begins = np.append(0, np.cumsum(counts)).astype(backend.index)
    index = np.random.default_rng(103).integers(0, 500, begins[-1]).astype(backend.index)
    launches = entry_sum.plan_entry_sum(backend.adopt(begins), backend.adopt(index), (300, 200, 0), backend)
    given = {"A_VALUES": values[:300].copy(), "B_VALUES": values[300:].copy(), "C_VALUES": None, "Y": None}
    found = changed(backend, launches, np.full(200, np.nan, backend.scalar), **given)
    expected = [values[index[begin:end]].sum() for begin, end in zip(begins[:-1], begins[1:], strict=True)]
    check(found, np.array(expected), backend, terms=6)
