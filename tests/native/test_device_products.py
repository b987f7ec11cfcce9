"""Sparse products on a CUDA device, through petsc4py: made there by default, from values that are sent once."""

from __future__ import annotations

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from builders import CsrMatrix
from chains import Exact, operands_of
from copies import copied_bytes
from petsc_products import METHODS, VIA, multiply, other_values, petsc_matrix, scale_on_the_host, symbolic_phases
from test_device import petsc  # noqa: F401

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.planning import planner

pytestmark = pytest.mark.gpu

EVERY_PRODUCT = pytest.mark.parametrize("product", METHODS, ids=lambda p: p.formula)
SIZES = {"n": 300, "m": 120, "longest": 20}


@pytest.fixture(autouse=True)
def logging(petsc):  # noqa: F811
    petsc.Log.begin()


def check(product, operands, C):
    Exact.of(product, operands).check(*C.getValuesCSR())


def check_square(C, square):
    dense = C[:, :]
    bound = (dense.shape[0] + 2) * np.finfo(dense.dtype).eps * (abs(dense) @ abs(dense))
    assert np.all(abs(square[:, :] - dense @ dense) <= bound)


@EVERY_PRODUCT
@pytest.mark.parametrize("mat_type", FORMATS)
def test_the_device_is_the_default(petsc, product, mat_type):  # noqa: F811
    operands = operands_of(product, **SIZES)
    matrices = [petsc_matrix(m, mat_type) for m in operands]
    before = symbolic_phases()
    C = multiply(product, matrices)
    assert symbolic_phases() == before + 1
    check(product, operands, C)
    operands = other_values(matrices, operands, 1)
    multiply(product, matrices, result=C)
    assert symbolic_phases() == before + 1
    check(product, operands, C)


@EVERY_PRODUCT
def test_mixtures_with_aij(petsc, product):  # noqa: F811
    operands = operands_of(product, **SIZES)
    types = ("aij", "pjds", "aij")
    matrices = [petsc_matrix(m, t) for m, t in zip(operands, types, strict=False)]
    C = multiply(product, matrices)
    check(product, operands, C)
    operands = other_values(matrices, operands, 2)
    multiply(product, matrices, result=C)
    check(product, operands, C)


def test_another_operand_of_type_aij_whose_state_is_the_same(petsc):  # noqa: F811
    A, B = operands_of(Product.AB, **SIZES)
    matrices = [petsc_matrix(A), petsc_matrix(B, "aij")]
    C = multiply(Product.AB, matrices)
    other = CsrMatrix(B.nrows, B.ncols, B.rowptr, B.colidx, 2.0 * B.values)
    replacement = petsc_matrix(other, "aij")
    replacement.stateSet(matrices[1].stateGet())
    multiply(Product.AB, [matrices[0], replacement], result=C)
    check(Product.AB, (A, other), C)


def test_values_that_are_there_are_not_sent_again(petsc):  # noqa: F811
    A, P = operands_of(Product.PTAP, **SIZES)
    a, p = matrices = [petsc_matrix(A), petsc_matrix(P)]
    C = multiply(Product.PTAP, matrices)
    before = copied_bytes("ctog")
    multiply(Product.PTAP, matrices, result=C)
    assert copied_bytes("ctog") == before
    a.scale(2.0)
    multiply(Product.PTAP, matrices, result=C)
    assert copied_bytes("ctog") - before == A.colidx.size * np.dtype(petsc.ScalarType).itemsize


def test_large_values_are_sent_once_while_the_result_is_made(petsc):  # noqa: F811
    """A thread sends them; memory of the results before is taken again."""
    n = 1_000_000
    numbers = np.arange(n + 1, dtype=petsc.IntType)
    rowptr, colidx = 3 * numbers, (numbers[:n, None] + np.arange(3)) % n
    colidx.sort(axis=1)
    values = np.linspace(1.0, 2.0, 3 * n).astype(petsc.ScalarType)
    csr = (rowptr.astype(petsc.IntType), colidx.ravel().astype(petsc.IntType), values)
    for again in range(3):
        A = petsc.Mat().createAIJ((n, n), csr=csr, comm=petsc.COMM_SELF)
        A.convert("aijpjds")
        before = copied_bytes("ctog")
        square = A.matMult(A)
        assert 0 <= copied_bytes("ctog") - before - sum(a.nbytes for a in csr) < 1 << 16
        x, y = A.createVecs()
        x.set(1.0 + again)
        z = y.duplicate()
        A.mult(x, y)
        A.mult(y, z)
        square.mult(x, y)
        y.axpy(-1.0, z)
        assert y.norm(petsc.NormType.INFINITY) <= rounding(1e-12) * z.norm(petsc.NormType.INFINITY)
        for o in (A, square, x, y, z):
            o.destroy()


def test_a_result_is_an_operand_without_a_copy_of_its_values(petsc):  # noqa: F811
    A, P = operands_of(Product.PTAP, **SIZES)
    C = multiply(Product.PTAP, [petsc_matrix(A), petsc_matrix(P)])
    square = multiply(Product.AB, [C, C])
    before = copied_bytes("ctog")
    multiply(Product.AB, [C, C], result=square)
    assert copied_bytes("ctog") == before
    check_square(C, square)


def test_a_result_that_was_changed_on_the_host_is_sent(petsc):  # noqa: F811
    A, P = operands_of(Product.PTAP, **SIZES)
    C = multiply(Product.PTAP, [petsc_matrix(A), petsc_matrix(P)])
    scale_on_the_host(C, 3.0)
    square = multiply(Product.AB, [C, C])
    check_square(C, square)


def test_a_refresh_takes_the_values_that_a_product_left_on_the_device(petsc):  # noqa: F811
    operands = operands_of(Product.PTAP, **SIZES)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(Product.PTAP, matrices)
    x, z = C.createVecs()
    x.set(1.0)
    C.mult(x, z)
    multiply(Product.PTAP, matrices, result=C)
    before = copied_bytes("ctog")
    C.mult(x, z)
    assert copied_bytes("ctog") == before
    np.testing.assert_allclose(z.getArray(), C[:, :].sum(axis=1), rtol=rounding(1e-9), atol=1e-6)


@EVERY_PRODUCT
@pytest.mark.parametrize("many", [True, False], ids=["many rows", "few rows"])
def test_nothing_but_the_row_pointer_goes_to_the_host_until_it_asks(petsc, many_rows, product, many):  # noqa: F811
    """And that of many rows does not: two numbers do, the longest row and how many have entries."""
    many_rows(1 if many else 10_000)
    operands = operands_of(product, **SIZES)
    matrices = [petsc_matrix(m) for m in operands]
    before = copied_bytes("gtoc")
    C = multiply(product, matrices)
    operands = other_values(matrices, operands, 4)
    multiply(product, matrices, result=C)
    x, z = C.createVecs()
    C.mult(x, z)
    numbers = 2 if many else C.size[0] + 1
    assert copied_bytes("gtoc") - before == numbers * np.dtype(petsc.IntType).itemsize
    check(product, operands, C)


@EVERY_PRODUCT
def test_eager_values_go_to_the_host_in_each_numeric_phase(petsc, options, product):  # noqa: F811
    options["mat_rmerge_host_values"] = "eager"
    operands = operands_of(product, **SIZES)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(product, matrices)
    check(product, operands, C)
    before = copied_bytes("gtoc")
    operands = other_values(matrices, operands, 4)
    multiply(product, matrices, result=C)
    assert copied_bytes("gtoc") - before == C.getValuesCSR()[2].nbytes
    check(product, operands, C)


def test_the_pattern_of_a_result_is_not_sent_either(petsc):  # noqa: F811
    C = multiply(Product.PTAP, [petsc_matrix(m) for m in operands_of(Product.PTAP, **SIZES)])
    before = copied_bytes("ctog")
    square = multiply(Product.AB, [C, C])
    x, z = square.createVecs()
    square.mult(x, z)
    row_pointers = 2 * (C.size[0] + 1) * np.dtype(petsc.IntType).itemsize
    assert copied_bytes("ctog") - before <= row_pointers + x.size * np.dtype(petsc.ScalarType).itemsize
    check_square(C, square)


def test_a_pattern_is_sent_once_for_all_its_plans(petsc):  # noqa: F811
    A, P = operands_of(Product.PTAP, **SIZES)
    a, p = matrices = [petsc_matrix(A), petsc_matrix(P)]
    C = multiply(Product.PTAP, matrices)
    x, y = p.createVecs()
    before = copied_bytes("ctog")
    square = multiply(Product.AB, [a, a])
    p.mult(x, y)
    p.multTranspose(y, x)
    a.mult(y, y.duplicate())
    assert copied_bytes("ctog") - before <= (x.size + 2 * y.size) * np.dtype(petsc.ScalarType).itemsize
    check(Product.PTAP, [A, P], C)
    check(Product.AB, [A, A], square)


def test_values_that_the_host_changed_after_a_refresh_and_before_the_next(petsc):  # noqa: F811
    C = multiply(Product.PTAP, [petsc_matrix(m) for m in operands_of(Product.PTAP, **SIZES)])
    x, z = C.createVecs()
    x.set(1.0)
    for _ in range(3):
        scale_on_the_host(C, 2.0)
        C.mult(x, z)
        np.testing.assert_allclose(z.getArray(), C[:, :].sum(axis=1), rtol=rounding(1e-9), atol=1e-6)


def test_results_are_scaled_and_added_to_on_the_device(petsc):  # noqa: F811
    C, other = (multiply(Product.PTAP, [petsc_matrix(m) for m in operands_of(Product.PTAP, **SIZES)]) for _ in range(2))
    host = petsc_matrix(CsrMatrix(*C.size, *C.getValuesCSR()), "aij")
    part = host.copy()
    part.filter(np.abs(host.getValuesCSR()[2]).mean())
    ours = part.copy().convert("pjds")
    left, right = C.createVecs()[::-1]
    for v in (left, right):
        v.setRandom()
        v.shift(1.0)
    host_left, host_right = (petsc.Vec().createWithArray(v.getArray().copy(), comm=v.comm) for v in (left, right))

    def change(A, added, same, left, right):
        A.scale(0.5)
        A.diagonalScale(left, None)
        A.diagonalScale(left, right)
        A.aypx(-0.7, added, structure=petsc.Mat.Structure.SUBSET)
        A.axpy(0.3, same, structure=petsc.Mat.Structure.SAME)

    same = petsc_matrix(CsrMatrix(*other.size, *other.getValuesCSR()), "aij")
    for k in range(3):
        copied = copied_bytes("ctog"), copied_bytes("gtoc")
        change(C, ours, other, left, right)
        if k:
            assert copied == (copied_bytes("ctog"), copied_bytes("gtoc"))
        change(host, part, same, host_left, host_right)
        np.testing.assert_allclose(
            C.getValuesCSR()[2], host.getValuesCSR()[2], rtol=rounding(1e-9), atol=rounding(1e-9)
        )


def test_a_result_bound_to_the_cpu_is_scaled_by_petsc(petsc):  # noqa: F811
    C = multiply(Product.PTAP, [petsc_matrix(m) for m in operands_of(Product.PTAP, **SIZES)])
    values, before = C.getValuesCSR()[2].copy(), settled_tokens()
    C.bindToCPU(True)
    C.scale(3.0)
    assert planner.owned_tokens() == before
    np.testing.assert_array_equal(C.getValuesCSR()[2], 3.0 * values)


def test_results_have_managed_arrays_that_go_with_them(petsc):  # noqa: F811
    library = native_library.load()
    before = library.GpufmtManagedCount()
    C = multiply(Product.PTAP, [petsc_matrix(m) for m in operands_of(Product.PTAP, **SIZES)])
    assert library.GpufmtManagedCount() == before + 1
    C.destroy()
    assert library.GpufmtManagedCount() == before


@EVERY_PRODUCT
def test_a_matrix_bound_to_the_cpu_is_multiplied_on_the_host(petsc, product):  # noqa: F811
    operands = operands_of(product, **SIZES)
    matrices = [petsc_matrix(m) for m in operands]
    for A in matrices:
        A.bindToCPU(True)
    before = symbolic_phases(), copied_bytes("ctog")
    check(product, operands, multiply(product, matrices))
    assert (symbolic_phases(), copied_bytes("ctog")) == before
    database = petsc.Options()
    database[VIA[product]] = "rmerge"
    check(product, operands, multiply(product, matrices))
    database.delValue(VIA[product])
    assert symbolic_phases() == before[0] + 1 and copied_bytes("ctog") == before[1]


def test_flops_are_counted_on_the_device(petsc):  # noqa: F811
    A, B = operands_of(Product.AB, **SIZES)
    matrices = [petsc_matrix(A), petsc_matrix(B)]
    C = multiply(Product.AB, matrices)
    before = petsc.Log.getFlops()
    multiply(Product.AB, matrices, result=C)
    operations = 4 if np.dtype(petsc.ScalarType).kind == "c" else 1  # of a complex one, as PETSc counts
    assert petsc.Log.getFlops() - before == operations * 2 * np.diff(B.rowptr)[A.colidx].sum()


def test_memory_goes_back_with_the_result(petsc):  # noqa: F811
    matrices = [petsc_matrix(m) for m in operands_of(Product.PTAP, **SIZES)]
    before = settled_tokens()
    multiply(Product.PTAP, matrices).destroy()
    assert planner.owned_tokens() == before
