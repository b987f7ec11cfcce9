"""The copy of a sequential matrix in single precision, through the functions that solvers call, on the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from answers import failing, settled_tokens
from builders import shape
from low_copy import check, mult, update
from petsc4py import PETSc
from petsc_products import petsc_matrix
from solves import informing
from stored_matrix import Expected

import petsc_gpufmt  # noqa: F401
from petsc_gpufmt import errors
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.planning import planner, requests

pytestmark = pytest.mark.skipif(np.float64 != PETSc.ScalarType, reason="PETSc has single precision itself, or complex")

UNSUPPORTED, OUT_OF_RANGE, ORDER, WRONG_STATE = 56, 63, 58, 73
N = 50


@pytest.fixture(autouse=True, scope="module")
def logging():
    PETSc.Log.begin()


def counts():
    """Of plans, and of values that came to a store."""
    return tuple(PETSc.Log.Event(name).getPerfInfo()["count"] for name in ("GpufmtPlan", "GpufmtRefresh"))


def symmetric(seed=1):
    """A dense symmetric matrix, a fifth of it entries, with a diagonal that is larger than they are."""
    random = np.random.default_rng(seed)
    half = np.triu(np.where(random.random((N, N)) < 0.1, random.uniform(-1, 1, (N, N)), 0), 1)
    return half + half.T + np.diag(random.uniform(4, 8, N))


def matrix_of(dense, mat_type="aijpjds"):
    rows, columns = np.nonzero(dense)
    rowptr = np.searchsorted(rows, np.arange(len(dense) + 1))
    csr = (rowptr.astype(PETSc.IntType), columns.astype(PETSc.IntType), dense[rows, columns])
    A = PETSc.Mat().createAIJ(dense.shape, csr=csr, comm=PETSc.COMM_SELF)
    return A if mat_type == "aij" else A.convert(mat_type)


def vector(n, seed=2):
    return np.random.default_rng(seed).uniform(-1, 1, n).astype(np.float32)


def check_product(A, dense, what=""):
    x = vector(dense.shape[1])
    error, z = mult(A, x)
    assert error == 0
    check(z, dense, x, what)


@pytest.mark.parametrize("shape_name", ["empty_rows", "tall"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_products(format_name, shape_name):
    given = shape(shape_name)
    A = petsc_matrix(given, f"aij{format_name}")
    assert update(A) == (0, None)
    x = vector(given.ncols)
    error, z = mult(A, x)
    assert error == 0
    Expected.of(replace(given, values=given.values.astype(np.float32)), x).check(z)


@pytest.mark.parametrize(("nrows", "ncols"), [(0, 0), (0, 7), (7, 0), (1, 1), (3, 9)])
def test_small_and_empty_matrices(nrows, ncols):
    dense = np.ones((nrows, ncols))
    A = matrix_of(dense)
    assert update(A) == (0, None)
    check_product(A, dense)


def test_the_copy_follows_values_and_pattern():
    dense = symmetric()
    A = matrix_of(dense)
    tokens, (plans, refreshes) = settled_tokens(), counts()
    for _ in range(2):  # the second finds all done
        assert update(A) == (0, None)
        assert counts() == (plans + 2, refreshes + 1)  # a plan of the store, and one of the conversion
        assert planner.owned_tokens() == tokens + 2
    A.scale(-3)
    assert mult(A, vector(N))[0] == ORDER
    assert update(A) == (0, None) and counts() == (plans + 2, refreshes + 2)
    check_product(A, -3 * dense, "other values")
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    row, column = next(zip(*np.nonzero(dense == 0), strict=True))
    A.setValue(row, column, 7.5)
    A.assemble()
    assert mult(A, vector(N))[0] == ORDER
    assert update(A) == (0, None) and counts() == (plans + 4, refreshes + 3)
    dense = -3 * dense
    dense[row, column] = 7.5
    check_product(A, dense, "other pattern")
    A.convert("seqaijbsr")
    assert mult(A, vector(N))[0] == ORDER and planner.owned_tokens() == tokens + 1
    assert update(A) == (0, None)
    check_product(A, dense, "other format")
    A.destroy()
    assert settled_tokens() == tokens


def test_products_in_double_are_what_they_were():
    dense = symmetric()
    A = matrix_of(dense)
    x, y = A.createVecs()
    x.setArray(np.cos(np.arange(N)))
    A.mult(x, y)
    before = y.getArray().tobytes()
    assert update(A) == (0, None)
    check_product(A, dense)
    A.mult(x, y)
    assert y.getArray().tobytes() == before


def test_what_is_not_finite_stays_so():
    dense = np.diag([1.0, np.inf, np.nan, -np.inf])
    A = matrix_of(dense)
    assert update(A) == (0, None)
    with np.errstate(invalid="ignore"):
        assert mult(A, np.ones(4))[1].tobytes() == np.array([1, np.inf, np.nan, -np.inf], np.float32).tobytes()


@pytest.mark.parametrize("exponent", [200, -200, 600, -600])
def test_a_matrix_outside_of_the_range_is_scaled(exponent):
    dense = np.ldexp(symmetric(), exponent)
    A = matrix_of(dense)
    error, factors = update(A)
    assert error == 0
    assert (np.frexp(factors)[0] == 0.5).all(), "powers of two"
    scaled = factors[:, None] * dense * factors
    assert (0.25 <= np.diag(scaled)).all() and (np.diag(scaled) <= 4).all()
    check_product(A, scaled)
    plans = counts()[0]
    A.scale(2.0**-exponent)
    assert update(A) == (0, None), "it fits again"
    assert counts()[0] == plans
    check_product(A, dense * 2.0**-exponent)


def test_rows_of_very_different_size_are_scaled():
    grades = np.ldexp(1.0, np.linspace(-300, 300, N).astype(int))
    dense = grades[:, None] * symmetric() * grades
    A = matrix_of(dense)
    error, factors = update(A)
    assert error == 0
    check_product(A, factors[:, None] * dense * factors)


def test_a_row_without_a_diagonal_entry_is_not_scaled():
    dense = np.ldexp(symmetric(), 200)
    dense[3, :] = dense[:, 3] = 0
    dense[3, 4] = dense[4, 3] = 1.0
    A = matrix_of(dense)
    error, factors = update(A)
    assert error == 0 and factors[3] == 1 and (factors[4:] < 1).all()
    check_product(A, factors[:, None] * dense * factors)


def test_a_matrix_that_scaling_does_not_bring_into_range_is_an_error():
    dense = symmetric()
    dense[1, 2] = dense[2, 1] = 1e60
    A = matrix_of(dense)
    for _ in range(2):
        assert update(A)[0] == OUT_OF_RANGE
        assert mult(A, vector(N))[0] == ORDER
    A.scale(1e-30)
    assert update(A)[0] == 0


def test_what_is_too_small_is_left_where_scaling_makes_others_too_large():
    dense = symmetric()
    dense[5, 5] = 1e-120
    A = matrix_of(dense)
    assert update(A) == (0, None)
    check_product(A, dense)


def test_a_matrix_that_is_not_square_is_not_scaled():
    dense = symmetric()[:, : N - 1]
    dense[0, 0] = 1e-60
    assert update(matrix_of(dense)) == (0, None)
    dense[0, 0] = 1e60
    assert update(matrix_of(dense))[0] == OUT_OF_RANGE


def test_matrices_that_have_no_copy():
    assert update(matrix_of(symmetric(), "aij"))[0] == UNSUPPORTED
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes(N)
    A.setType("pjds")
    A.setUp()
    assert update(A)[0] == WRONG_STATE


@pytest.mark.parametrize("name", ["_fill_store", "_fill_scale_and_add"])
def test_a_plan_that_fails_leaves_no_copy(monkeypatch, name):
    dense = symmetric()
    A = matrix_of(dense)
    function = getattr(requests, name)
    calls = failing(monkeypatch, requests, name, errors.UnsupportedError("on purpose"))
    for ask, kind in requests.KINDS.items():
        if kind.fill is function:
            monkeypatch.setitem(requests.KINDS, ask, kind._replace(fill=getattr(requests, name)))
    assert update(A)[0] == UNSUPPORTED and len(calls) == 1
    assert mult(A, vector(N))[0] == ORDER
    assert update(A) == (0, None)
    check_product(A, dense)


def test_info_tells_of_the_copy(capfd):
    A = matrix_of(np.ldexp(symmetric(), 200))
    capfd.readouterr()
    with informing():
        assert update(A)[0] == 0
    lines = [line.partition("): ")[2] for line in capfd.readouterr().out.splitlines() if "copy in" in line]
    nnz = np.count_nonzero(symmetric())
    assert lines[0].startswith("pjds on the host, copy in single precision: slice height ")
    assert lines[1].endswith(f"for {nnz} entries are too large and 0 too small; 0 then") and len(lines) == 2


def view_of(A, path):
    viewer = PETSc.Viewer().createASCII(str(path), comm=PETSc.COMM_SELF)
    viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO)
    A.view(viewer)
    viewer.destroy()
    return [line.strip() for line in path.read_text().splitlines() if "copy in" in line]


def test_views_tell_of_the_copy(tmp_path):
    A = matrix_of(symmetric())
    assert view_of(A, tmp_path / "before") == []
    update(A)
    (line,) = view_of(A, tmp_path / "after")
    beginning, _, rest = line.partition(" bytes, ")
    assert beginning.startswith("storage: copy in single precision: ") and rest == "format pjds"
    entries, most = A.getInfo()["nz_used"], 8 + 2 * np.dtype(PETSc.IntType).itemsize
    assert 4 * entries < int(beginning.split()[-1]) < most * entries
    A.scale(1e60)
    update(A)
    assert view_of(A, tmp_path / "scaled")[0].endswith("format pjds, scaled by powers of two")
