"""Sparse products of the sequential types through petsc4py, made by RMerge on the host."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from builders import CsrMatrix, from_row_lengths
from chains import Exact, operands_of
from petsc4py import PETSc
from petsc_products import (
    VIA,
    gamg_iterations,
    multiply,
    other_values,
    petsc_matrix,
    stencil_csr,
    symbolic_phases,
)

import petsc_gpufmt  # noqa: F401
from petsc_gpufmt import errors
from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.planning import planner
from petsc_gpufmt.spgemm import chain

WRONG_STATE = 73
PARENT_ALGORITHMS = {
    Product.AB: ["sorted", "scalable", "heap", "default"],
    Product.ATB: ["outerproduct", "at*b", "default"],
    Product.ABT: ["default", "color"],
    Product.PTAP: ["scalable", "rap", "default"],
    Product.RART: ["r*a*rt", "r*art", "default"],
    Product.ABC: ["sorted", "default"],
}
EVERY_PRODUCT = pytest.mark.parametrize("product", PARENT_ALGORITHMS, ids=lambda p: p.formula)


@pytest.fixture
def rmerge(options):
    """All products by RMerge, which on the host is for those who ask."""
    for via in VIA.values():
        options[via] = "rmerge"
    return options


@pytest.fixture(autouse=True, scope="module")
def logging():
    PETSc.Log.begin()


def check(product, operands, C):
    Exact.of(product, operands).check(*C.getValuesCSR())


def values_of(A):
    rowptr, colidx, values = A.getValuesCSR()
    return CsrMatrix(*A.size, rowptr.astype(np.int64), colidx.astype(np.int64), values)


def add_entry(A):
    """An entry where there was none, in the first row."""
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    missing = set(range(A.size[1])) - set(A.getRow(0)[0].tolist())
    A.setValue(0, min(missing), 5.0)
    A.assemble()


@EVERY_PRODUCT
@pytest.mark.parametrize("accumulator", [None, "auto", "merge", "hash"])
def test_products(product, accumulator, rmerge):
    if accumulator:
        rmerge["mat_rmerge_accumulator"] = accumulator
    operands = operands_of(product, 70, 40)
    before = symbolic_phases()
    C = multiply(product, [petsc_matrix(m) for m in operands])
    assert symbolic_phases() == before + 1
    assert C.getType() == "seqaijpjds"
    check(product, operands, C)


@EVERY_PRODUCT
@pytest.mark.parametrize(
    "mat_type", [pytest.param(name, marks=() if name == "pjds" else pytest.mark.slow) for name in FORMATS]
)
def test_every_type_and_its_mixtures_with_aij(product, mat_type, rmerge):
    operands = operands_of(product, 40, 25)
    for types in set(itertools.product((mat_type, "aij"), repeat=len(operands))) - {("aij",) * len(operands)}:
        before = symbolic_phases()
        matrices = [petsc_matrix(m, t) for m, t in zip(operands, types, strict=True)]
        C = multiply(product, matrices)
        assert symbolic_phases() == before + 1, types
        assert C.getType() == ("seqaij" if types[0] == "aij" else f"seqaij{mat_type}")
        check(product, operands, C)


@EVERY_PRODUCT
def test_mixtures_with_aij_by_default(product):
    """PETSc's own algorithms on the host, but for those that cannot take two types."""
    operands = operands_of(product, 40, 25)
    for types in itertools.product(("pjds", "aij"), repeat=len(operands)):
        matrices = [petsc_matrix(m, t) for m, t in zip(operands, types, strict=True)]
        check(product, operands, multiply(product, matrices))


@EVERY_PRODUCT
def test_types_of_ours_mix(product, rmerge):
    operands = operands_of(product, 40, 25)
    matrices = [petsc_matrix(m, t) for m, t in zip(operands, ("pjds", "bsr", "evchyb"), strict=False)]
    check(product, operands, multiply(product, matrices))


def test_a_type_derived_from_aij_by_others(rmerge):
    operands = operands_of(Product.AB, 40, 25)
    before = symbolic_phases()
    C = multiply(Product.AB, [petsc_matrix(m, t) for m, t in zip(operands, ("seqaijperm", "pjds"), strict=True)])
    assert symbolic_phases() == before + 1
    check(Product.AB, operands, C)


@EVERY_PRODUCT
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 7), (7, 0), (1, 1)])
def test_operands_that_are_small_or_empty(product, n, m, rmerge):
    operands = operands_of(product, n, m)
    matrices = [petsc_matrix(o) for o in operands]
    C = multiply(product, matrices)
    check(product, operands, C)
    multiply(product, matrices, result=C)
    check(product, operands, C)


@EVERY_PRODUCT
def test_operands_without_entries(product, rmerge):
    operands = [from_row_lengths(np.zeros(m.nrows, dtype=int), m.ncols, 1) for m in operands_of(product, 20, 10)]
    check(product, operands, multiply(product, [petsc_matrix(m) for m in operands]))


@EVERY_PRODUCT
def test_changed_values_cost_a_numeric_phase_alone(product, rmerge):
    operands = operands_of(product, 50, 30)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(product, matrices)
    before, tokens = symbolic_phases(), settled_tokens()
    for seed in range(3):
        operands = other_values(matrices, operands, seed)
        multiply(product, matrices, result=C)
        check(product, operands, C)
    assert (symbolic_phases(), planner.owned_tokens()) == (before, tokens)


def test_a_result_follows_its_product_in_mult(rmerge):
    operands = operands_of(Product.PTAP, 50, 30)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(Product.PTAP, matrices)
    x, z = C.createVecs()
    x.set(1.0)
    C.mult(x, z)
    operands = other_values(matrices, operands, 3)
    multiply(Product.PTAP, matrices, result=C)
    C.mult(x, z)
    exact = Exact.of(Product.PTAP, operands)
    np.testing.assert_allclose(z.getArray(), exact.values.sum(axis=1).astype(float), atol=rounding(1e-9))


@pytest.mark.parametrize(("product", "changed"), [(p, k) for p in PARENT_ALGORITHMS for k in range(len(p.letters))])
def test_a_changed_pattern_is_an_error_that_says_so(product, changed, rmerge):
    operands = operands_of(product, 50, 30)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(product, matrices)
    values = C.getValuesCSR()[2].copy()
    add_entry(matrices[changed])
    with pytest.raises(PETSc.Error) as failure:
        multiply(product, matrices, result=C)
    assert failure.value.ierr == WRONG_STATE
    text = f"Sparse product {product.formula}: the pattern of {product.letters[changed]} has changed since the symbolic"
    assert text in str(failure.value) and "MAT_INITIAL_MATRIX" in str(failure.value)
    assert C.getValuesCSR()[2].tobytes() == values.tobytes()
    check(product, [values_of(A) for A in matrices], multiply(product, matrices))


@EVERY_PRODUCT
def test_other_matrices_of_the_same_pattern_may_take_the_place_of_the_operands(product, rmerge):
    operands = operands_of(product, 50, 30)
    C = multiply(product, [petsc_matrix(m) for m in operands])
    before = symbolic_phases()
    others = [petsc_matrix(m) for m in operands]
    for seed in (5, 6):
        operands = other_values(others, operands, seed)
        multiply(product, others, result=C)
        check(product, operands, C)
    assert symbolic_phases() == before


@EVERY_PRODUCT
def test_another_matrix_of_another_pattern_may_not(product, rmerge):
    operands = operands_of(product, 50, 30)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(product, matrices)
    others = [petsc_matrix(m) for m in operands_of(product, 50, 30, seed=61)]
    with pytest.raises(PETSc.Error, match="has changed since the symbolic phase"):
        multiply(product, others, result=C)


def test_columns_that_change_while_their_number_does_not_are_found(rmerge):
    A, B = operands_of(Product.AB, 50, 30)
    C = multiply(Product.AB, [petsc_matrix(A), petsc_matrix(B)])
    colidx = A.colidx.copy()
    row = int(np.flatnonzero(np.diff(A.rowptr))[0])
    last = A.rowptr[row + 1] - 1
    colidx[last] = 49 if colidx[last] != 49 else 48
    moved = CsrMatrix(A.nrows, A.ncols, A.rowptr, colidx, A.values)
    with pytest.raises(PETSc.Error, match="the pattern of A has changed"):
        multiply(Product.AB, [petsc_matrix(moved), petsc_matrix(B)], result=C)


@EVERY_PRODUCT
def test_operands_of_another_type_are_planned_again(product, rmerge):
    operands = operands_of(product, 50, 30)
    C = multiply(product, [petsc_matrix(m) for m in operands])
    others = [petsc_matrix(m, "bsr") for m in operands]
    before = symbolic_phases()
    operands = other_values(others, operands, 7)
    multiply(product, others, result=C)
    assert symbolic_phases() > before
    check(product, operands, C)


def test_a_result_that_got_another_pattern_is_an_error(rmerge):
    matrices = [petsc_matrix(m) for m in operands_of(Product.PTAP, 50, 30, longest=2)]
    C = multiply(Product.PTAP, matrices)
    add_entry(C)
    with pytest.raises(PETSc.Error, match="the pattern of the result has changed since the symbolic phase"):
        multiply(Product.PTAP, matrices, result=C)


@EVERY_PRODUCT
def test_on_the_host_petscs_own_algorithms_are_the_default(product, options):
    operands = operands_of(product, 40, 25)
    before = symbolic_phases()
    check(product, operands, multiply(product, [petsc_matrix(m) for m in operands]))
    assert symbolic_phases() == before


@pytest.mark.parametrize(
    ("product", "algorithm"), [(p, a) for p, names in PARENT_ALGORITHMS.items() for a in names], ids=lambda v: str(v)
)
def test_petscs_own_algorithms_by_name(product, algorithm, options):
    options[VIA[product]] = algorithm
    operands = operands_of(product, 40, 25)
    before = symbolic_phases()
    check(product, operands, multiply(product, [petsc_matrix(m) for m in operands]))
    assert symbolic_phases() == before


@EVERY_PRODUCT
def test_the_option_that_gpu_types_have_for_the_host(product, rmerge):
    rmerge[VIA[product].replace("_via", "_backend_cpu")] = True
    operands = operands_of(product, 40, 25)
    before = symbolic_phases()
    check(product, operands, multiply(product, [petsc_matrix(m) for m in operands]))
    assert symbolic_phases() == before


@EVERY_PRODUCT
def test_the_option_of_all_products(product, options):
    """PETSc reads it in products of MatProductCreate() alone, so that it would do nothing in GAMG."""
    operands = operands_of(product, 40, 25)
    matrices = [petsc_matrix(m) for m in operands]
    for own, ours in ((None, True), ("rmerge", True), ("default", False), (PARENT_ALGORITHMS[product][0], False)):
        options["mat_product_algorithm"] = "rmerge"
        if own:
            options[VIA[product]] = own
        before = symbolic_phases()
        check(product, operands, multiply(product, matrices))
        assert (symbolic_phases() > before) == ours, own
    options.delValue(VIA[product])
    options["mat_product_algorithm"] = PARENT_ALGORITHMS[product][0]
    check(product, operands, multiply(product, matrices))
    assert symbolic_phases() == before


def test_an_algorithm_that_nobody_knows(options):
    options["matmatmult_via"] = "guess"
    with pytest.raises(PETSc.Error, match="guess"):
        multiply(Product.AB, [petsc_matrix(m) for m in operands_of(Product.AB, 40, 25)])


@pytest.mark.parametrize(
    ("name", "value", "code", "remedy"),
    [
        ("mat_rmerge_accumulator", "heap", errors.OptionError.petsc_code, "choose one of auto, merge, hash"),
        ("mat_rmerge_width", 3, errors.OptionError.petsc_code, "choose one of"),
        ("mat_rmerge_width", 2**32, errors.OptionError.petsc_code, "choose one of"),
        ("mat_rmerge_width", "wide", errors.OptionError.petsc_code, "a whole number is needed"),
        ("mat_rmerge_buffer", "much", errors.OptionError.petsc_code, "a whole number is needed"),
        ("mat_rmerge_buffer", -1, errors.OptionError.petsc_code, "give a number of bytes"),
    ],
)
def test_a_wrong_option_value(name, value, code, remedy, rmerge):
    """Also where nothing is merged, and so no row is split."""
    rmerge[name] = value
    operands = operands_of(Product.AB, 40, 25)
    matrices = [petsc_matrix(m) for m in operands]
    with pytest.raises(PETSc.Error) as failure:
        multiply(Product.AB, matrices)
    assert failure.value.ierr == code
    assert f"-{name} {value}: {remedy}" in str(failure.value)
    rmerge.delValue(name)
    check(Product.AB, operands, multiply(Product.AB, matrices))


@pytest.mark.parametrize(
    ("raised", "code"),
    [(MemoryError("9 GB"), errors.OutOfMemoryError.petsc_code), (ValueError("a bug"), errors.GpufmtError.petsc_code)],
    ids=["memory", "bug"],
)
def test_a_failed_symbolic_phase_leaves_operands_and_an_earlier_result_intact(monkeypatch, raised, code, rmerge):
    operands = operands_of(Product.PTAP, 40, 25)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(Product.PTAP, matrices)
    tokens = settled_tokens()

    def fail(*_):
        raise raised

    with monkeypatch.context() as patch:
        patch.setattr(chain, "plan_product", fail)
        with pytest.raises(PETSc.Error) as failure:
            multiply(Product.PTAP, matrices)
    assert failure.value.ierr == code and str(raised) in str(failure.value)
    assert planner.owned_tokens() == tokens
    check(Product.PTAP, operands, C)
    operands = other_values(matrices, operands, 8)
    multiply(Product.PTAP, matrices, result=C)
    check(Product.PTAP, operands, C)


def test_the_plan_goes_with_the_result(rmerge):
    matrices = [petsc_matrix(m) for m in operands_of(Product.PTAP, 40, 25)]
    before = settled_tokens()
    C = multiply(Product.PTAP, matrices)
    copy = C.duplicate(copy=True)
    assert planner.owned_tokens() == before + 1
    C.destroy()
    assert planner.owned_tokens() == before
    copy.scale(2.0)
    copy.mult(*copy.createVecs())


@pytest.mark.double
def test_a_result_is_an_ordinary_matrix(rmerge):
    A, P = (petsc_matrix(m) for m in operands_of(Product.PTAP, 40, 24))
    P.setBlockSizes(1, 3)
    C = multiply(Product.PTAP, [A, P])
    assert C.isAssembled() and C.getBlockSizes() == (3, 3)
    copy = C.duplicate(copy=True)
    C.shift(2.0)
    assert np.allclose(C[:, :] - copy[:, :], 2.0 * np.eye(24), atol=rounding(1e-8))
    C.convert("aij")
    assert C.getType() == "seqaij" and np.allclose(C[:, :] - copy[:, :], 2.0 * np.eye(24))


def test_a_product_of_products(rmerge):
    operands = operands_of(Product.ABC, 40, 25)
    R, A, P = (petsc_matrix(m) for m in operands)
    first = multiply(Product.AB, [R, A])
    C = multiply(Product.AB, [first, P])
    check(Product.ABC, operands, C)
    operands = other_values([R, A, P], operands, 9)
    multiply(Product.AB, [R, A], result=first)
    multiply(Product.AB, [first, P], result=C)
    check(Product.ABC, operands, C)


def test_flops_are_two_a_term(rmerge):
    A, B = operands_of(Product.AB, 40, 25)
    terms = np.diff(B.rowptr)[A.colidx].sum()
    matrices = [petsc_matrix(A), petsc_matrix(B)]
    C = multiply(Product.AB, matrices)
    before = PETSc.Log.getFlops()
    multiply(Product.AB, matrices, result=C)
    assert PETSc.Log.getFlops() - before == 2 * terms * (4 if np.iscomplexobj(PETSc.ScalarType()) else 1)


def test_multigrid_takes_as_many_iterations_as_with_aij(options):
    """GAMG merges and replaces matrices that our products have made, and reuses them."""
    options["pc_gamg_reuse_interpolation"] = True
    grid = stencil_csr(9)
    with_aij = gamg_iterations(petsc_matrix(grid, "aij"))
    options["mat_product_algorithm"] = "rmerge"
    before = symbolic_phases()
    with_ours = gamg_iterations(petsc_matrix(grid))
    assert symbolic_phases() > before
    assert with_ours == with_aij


def test_the_end_of_a_long_pattern_is_looked_at_too(rmerge):
    n = 400_000
    rowptr, columns = np.arange(n + 1), np.arange(n)
    diagonal = CsrMatrix(n, n, rowptr, columns, np.ones(n))
    A = petsc_matrix(diagonal)
    C = multiply(Product.AB, [A, A])
    moved = columns.copy()
    moved[-1] = 7
    other = petsc_matrix(CsrMatrix(n, n, rowptr, moved, np.ones(n)))
    multiply(Product.AB, [A, petsc_matrix(diagonal)], result=C)
    with pytest.raises(PETSc.Error, match="the pattern of B has changed"):
        multiply(Product.AB, [A, other], result=C)
