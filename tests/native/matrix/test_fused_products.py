"""Products of a sequential matrix with what solvers want of each row, as they call them in C."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from builders import shape, stencil
from petsc4py import PETSc
from petsc_products import petsc_matrix
from stored_matrix import Expected, assert_dot, assert_same_bits

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning import abi, requests

pytestmark = pytest.mark.real

LIBRARY = native_library.load()
SCALAR, _ = native_library.petsc_types()
HOST = 0
ARG_SIZ, ARG_WRONG = 60, 62  # PETSc's error codes


class Smoothing(ctypes.Structure):
    """GpufmtSmoothing of matrix/matrix.h."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("x", "u", "b", "d", "z")]
    _fields_ += [(name, np.ctypeslib.as_ctypes_type(SCALAR.type().real.dtype)) for name in ("alpha", "beta", "gamma")]


def call(name, A, *arguments):
    """Whether the function has done it; AssertionError for an error of PETSc."""
    done = ctypes.c_bool()
    pointers = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in arguments]
    assert getattr(LIBRARY, name)(ctypes.c_void_p(A.handle), HOST, *pointers, ctypes.byref(done)) == 0
    return done.value


def smooth(name, A, **members):
    given = Smoothing(**{k: v.ctypes.data if isinstance(v, np.ndarray) else v for k, v in members.items()})
    return call(name, A, ctypes.byref(given))


def mult_dot(A, x):
    z, result = (np.full(n, np.nan, PETSc.ScalarType) for n in (A.size[0], 1))
    assert call("GpufmtMultDot", A, x, z, result)
    return z, result[0]


def vectors(A, seed=91):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(n).astype(PETSc.ScalarType) for n in A.size[::-1])


def product(A, x):
    z = A.createVecLeft()
    A.mult(PETSc.Vec().createWithArray(x, comm=PETSc.COMM_SELF), z)
    return z.getArray().copy()


@pytest.fixture
def fused_plans(monkeypatch):
    """Names of the plans that are asked for."""
    names, kind = [], requests.KINDS[abi.Ask.FUSED]

    def fill(request, *others):
        names.append(requests.Fused(request.fused).name)
        return kind.fill(request, *others)

    monkeypatch.setitem(requests.KINDS, abi.Ask.FUSED, kind._replace(fill=fill))
    return names


def test_products_leave_their_dot_products(fused_plans):
    A = petsc_matrix(stencil())
    x, y = vectors(A)
    expected = product(A, x)

    for _ in range(2):
        z, dot = mult_dot(A, x)
        assert_same_bits(z, expected)
        assert_dot(dot, x, z)
    added, result = y.copy(), np.full(1, np.nan, PETSc.ScalarType)
    assert call("GpufmtAddDot", A, x, y, added, result)

    assert np.allclose(added, y + expected, rtol=rounding(1e-14), atol=0)
    assert_dot(result[0], y, expected)
    assert fused_plans == ["MULT_DOT", "ADD_DOT"]


def test_steps_of_smoothing_take_other_factors_each_time(fused_plans):
    matrix = stencil()
    A = petsc_matrix(matrix)
    x, b = vectors(A)
    u, d = (np.linspace(k, k + 1, b.size, dtype=PETSc.ScalarType) for k in (1, 3))
    product_of = Expected.of(matrix, x).exact.astype(float)

    for alpha, beta, gamma in ((0.5, -2.0, 3.0), (0.0, 1.0, 0.25)):
        z = u.copy()
        assert smooth("GpufmtSmooth", A, x=x, u=z, b=b, d=d, z=z, alpha=alpha, beta=beta, gamma=gamma)
        assert np.allclose(
            z, alpha * u + beta * x + gamma * d * (b - product_of), rtol=rounding(1e-12), atol=rounding(1e-12)
        )
    z = u.copy()
    assert smooth("GpufmtAddSmooth", A, x=x, z=z, gamma=2.0)

    assert np.allclose(z, u - 2 * product_of, rtol=rounding(1e-12), atol=rounding(1e-12))
    assert fused_plans == ["SMOOTH", "ADD_SMOOTH"]


def test_new_values_and_a_new_pattern_are_seen(fused_plans):
    A = petsc_matrix(shape("banded"))
    x, _ = vectors(A)
    first, _ = mult_dot(A, x)

    A.scale(2)
    assert_same_bits(mult_dot(A, x)[0], 2 * first)
    assert fused_plans == ["MULT_DOT"]
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    A.setValue(0, A.size[1] - 1, 7.0)
    A.assemble()

    z, dot = mult_dot(A, x)
    assert_same_bits(z, product(A, x))
    assert_dot(dot, x, z)
    assert fused_plans == ["MULT_DOT"] * 2


def test_plans_go_with_the_matrix():
    before = settled_tokens()
    A = petsc_matrix(stencil())
    x, _ = vectors(A)
    mult_dot(A, x)
    assert settled_tokens() == before + 2

    A.convert("aijellpack")
    assert settled_tokens() == before
    A.convert("aijpjds")
    mult_dot(A, x)
    A.destroy()

    assert settled_tokens() == before


def test_a_format_without_such_plans_leaves_it_to_the_caller(fused_plans):
    A = petsc_matrix(stencil(), "aijellpack")
    x, _ = vectors(A)
    z, result = (np.full(n, np.nan, PETSc.ScalarType) for n in (A.size[0], 1))

    for _ in range(2):
        assert not call("GpufmtMultDot", A, x, z, result)

    assert np.isnan(z).all() and np.isnan(result).all()
    assert fused_plans == ["MULT_DOT"]


def test_flops_are_counted():
    matrix = stencil()
    A = petsc_matrix(matrix)
    x, _ = vectors(A)
    before = PETSc.Log.getFlops()

    mult_dot(A, x)

    assert PETSc.Log.getFlops() - before == 2 * matrix.values.size + matrix.nrows


@pytest.mark.parametrize(
    ("name", "mat_type", "code", "message"),
    [
        ("wide", "aijpjds", ARG_SIZ, "a matrix with 60 rows and 700 columns: give a square one"),
        ("banded", "aij", ARG_WRONG, "a matrix of type seqaij: give a sequential one of petsc_gpufmt"),
    ],
    ids=["not square", "not of ours"],
)
def test_a_matrix_that_has_no_such_product_is_refused(name, mat_type, code, message, capfd):
    A = petsc_matrix(shape(name), mat_type)
    done = ctypes.c_bool()

    PETSc.Sys.pushErrorHandler("traceback")
    try:
        assert LIBRARY.GpufmtMultDot(ctypes.c_void_p(A.handle), HOST, None, None, None, ctypes.byref(done)) == code
    finally:
        PETSc.Sys.popErrorHandler()

    assert message in capfd.readouterr().err
