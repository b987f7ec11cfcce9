"""MatScale, MatDiagonalScale, MatAXPY and MatAYPX of results with managed arrays: done there, and as on type aij."""

from __future__ import annotations

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from chains import operands_of
from petsc4py import PETSc
from petsc_products import VIA, gamg_iterations, multiply, petsc_matrix, scale_on_the_host, stencil_csr
from test_managed import (  # noqa: F401
    add_everywhere,
    diagonally_dominant,
    eliminate_zeros,
    managed_matrices,
    ordinary,
    place,
    product,
)

from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.planning import planner

Structure = PETSc.Mat.Structure
WRONG_SIZE, WRONG_ARGUMENT = 60, 62


def plans():
    """How many plans have been made."""
    return PETSc.Log.Event("GpufmtPlan").getPerfInfo()["count"]


def flops_of(call):
    before = PETSc.Log.getFlops()
    call()
    return PETSc.Log.getFlops() - before


def check(C, same):
    """Values to within rounding of those of the same matrix of type aij."""
    np.testing.assert_array_equal(C.getValuesCSR()[1], same.getValuesCSR()[1])
    np.testing.assert_allclose(C.getValuesCSR()[2], same.getValuesCSR()[2], rtol=rounding(1e-13), atol=rounding(1e-13))


def vector(n, seed):
    v = PETSc.Vec().createSeq(n, comm=PETSc.COMM_SELF)
    v.setArray(np.random.default_rng(seed).uniform(1, 2, n).astype(PETSc.ScalarType))
    return v


def product_with_vector(A):
    x, z = vector(A.size[1], 3), vector(A.size[0], 4)
    A.mult(x, z)
    return z.getArray()


def diagonal_scale(left, right):
    def scale(A):
        A.diagonalScale(vector(A.size[0], 1) if left else None, vector(A.size[1], 2) if right else None)

    return scale


SCALINGS = {
    "scale": lambda A: A.scale(-3.0),
    "rows": diagonal_scale(True, False),
    "columns": diagonal_scale(False, True),
    "both": diagonal_scale(True, True),
}


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("rectangular", [False, True])
def test_scaling(scaling, rectangular):
    C = product(Product.AB, longest=20)[2] if rectangular else diagonally_dominant()[1]
    same, before, tokens = ordinary(C), plans(), settled_tokens()
    for _ in range(3):
        state = C.stateGet()
        ours, petscs = (flops_of(lambda A=A: SCALINGS[scaling](A)) for A in (C, same))
        assert ours == petscs and C.stateGet() > state
        check(C, same)
    assert plans() - before == planner.owned_tokens() - tokens == (2 if scaling == "both" else 1)
    np.testing.assert_allclose(product_with_vector(C), product_with_vector(same), rtol=rounding(1e-12))
    assert managed_matrices() == 1
    stored = planner.owned_tokens()
    C.destroy()
    assert planner.owned_tokens() < stored


def set_diagonal(mode):
    return lambda A: A.setDiagonal(vector(A.size[0], 1), mode)


ON_THE_DIAGONAL = {
    "shift": lambda A: A.shift(-1.5),
    "insert": set_diagonal(PETSc.InsertMode.INSERT_VALUES),
    "add": set_diagonal(PETSc.InsertMode.ADD_VALUES),
}


@pytest.mark.skipif(PETSc.Sys.getVersion() < (3, 25), reason="PETSc 3.24 counts flops in another way")
@pytest.mark.parametrize("change", ON_THE_DIAGONAL)
def test_changes_of_the_diagonal(change):
    C = diagonally_dominant()[1]
    same, before = ordinary(C), plans()
    for _ in range(3):
        state = C.stateGet()
        ours, petscs = (flops_of(lambda A=A: ON_THE_DIAGONAL[change](A)) for A in (C, same))
        assert ours == petscs and C.stateGet() > state
        check(C, same)
        np.testing.assert_allclose(product_with_vector(C), product_with_vector(same), rtol=rounding(1e-12))
    assert plans() - before == 2  # the change, and what is multiplied
    assert managed_matrices() == 1


@pytest.mark.parametrize("change", ON_THE_DIAGONAL)
def test_a_diagonal_that_is_not_full_is_petscs(change):
    C = product(Product.PTAP, longest=2)[2]
    same = ordinary(C)
    same.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    assert C.getDiagonal().getArray().all() == 0
    for A in (C, same):
        ON_THE_DIAGONAL[change](A)
    check(C, same)


def test_zeros():
    C = diagonally_dominant()[1]
    state = C.stateGet()
    C.zeroEntries()
    assert C.stateGet() > state and managed_matrices() == 1
    assert not C.getValuesCSR()[2].any() and not product_with_vector(C).any()


def test_a_vector_of_another_length_is_an_error():
    C = product(Product.AB)[2]
    values = C.getValuesCSR()[2].copy()
    for factors in ((vector(C.size[0] + 1, 0), None), (None, vector(C.size[1] - 1, 0))):
        with pytest.raises(PETSc.Error) as failure:
            C.diagonalScale(*factors)
        assert failure.value.ierr == WRONG_SIZE
    np.testing.assert_array_equal(C.getValuesCSR()[2], values)


def empty(n, m):
    return multiply(Product.PTAP, [petsc_matrix(o) for o in operands_of(Product.PTAP, n, m)])


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 7), (7, 0), (1, 1)])
def test_small_and_empty_matrices(n, m):
    C, other = empty(n, m), empty(n, m)
    same = ordinary(C)
    for scaling in SCALINGS.values():
        scaling(C)
        scaling(same)
    for structure in (Structure.SAME, Structure.SUBSET):
        C.axpy(0.5, other, structure=structure)
        same.axpy(0.5, ordinary(other), structure=structure)
    check(C, same)


def part_of(C, mat_type, every=3):
    """A matrix with some of the entries of C, and other values."""
    rowptr, colidx, values = C.getValuesCSR()
    rows = np.repeat(np.arange(C.size[0]), np.diff(rowptr))[::every]
    counts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=C.size[0]))]).astype(PETSc.IntType)
    other = PETSc.Mat().createAIJ(C.size, csr=(counts, colidx[::every], np.cos(values[::every])), comm=PETSc.COMM_SELF)
    return other if mat_type == "aij" else other.convert(mat_type)


STRUCTURES = {"same": (Structure.SAME, 1), "subset": (Structure.SUBSET, 3), "unknown": (Structure.UNKNOWN, 1)}


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("mat_type", ["pjds", "bsr", "gpufmt"])
@pytest.mark.parametrize("method", ["axpy", "aypx"])
def test_adding_what_is_in_the_pattern(structure, mat_type, method):
    C = product(longest=20)[2]
    structure, every = STRUCTURES[structure]
    other, same = part_of(C, mat_type, every), ordinary(C)
    added, before = part_of(C, "aij", every), plans()
    for a in (1.0, -0.7):
        state = C.stateGet()
        ours = flops_of(lambda a=a: getattr(C, method)(a, other, structure=structure))
        petscs = flops_of(lambda a=a: getattr(same, method)(a, added, structure=structure))
        assert ours == petscs and C.stateGet() > state
        check(C, same)
    assert plans() - before == (2 if method == "aypx" else 1)
    assert managed_matrices() == 1


def test_patterns_that_are_the_same_after_all_need_no_new_matrix():
    C = product(longest=20)[2]
    other, same = part_of(C, "pjds", 1), ordinary(C)
    C.axpy(2.0, other, structure=Structure.DIFFERENT)
    same.axpy(2.0, ordinary(other), structure=Structure.SAME)
    check(C, same)
    assert managed_matrices() == 1


def test_adding_a_result_to_another_one():
    C, other = product(longest=20)[2], product(longest=20)[2]
    same = ordinary(C)
    for structure in (Structure.SAME, Structure.SUBSET):
        C.axpy(-2.0, other, structure=structure)
        same.axpy(-2.0, ordinary(other), structure=structure)
    check(C, same)
    assert managed_matrices() == 2


def test_what_the_host_has_written_meanwhile_is_added_to():
    C = diagonally_dominant()[1]
    same, other = ordinary(C), part_of(C, "pjds")
    for factor in (1.0, 2.0):
        for A in (C, same):
            A.diagonalScale(vector(64, 3))
            A.zeroRowsColumns([5], diag=7.0) if factor > 1 else A.chop(1.0)
            A.scale(factor + 1)
            scale_on_the_host(A, -1.5)
        scale_on_the_host(other, factor)
        C.axpy(1.0, other, structure=Structure.SUBSET)
        same.axpy(1.0, ordinary(other), structure=Structure.SUBSET)
        check(C, same)


def test_a_part_that_has_changed_is_located_again():
    C = product(longest=20)[2]
    same, other = ordinary(C), part_of(C, "pjds")
    C.axpy(1.0, other, structure=Structure.SUBSET)
    same.axpy(1.0, ordinary(other), structure=Structure.SUBSET)
    before = plans()
    rowptr, colidx, values = other.getValuesCSR()
    other.setValuesCSR(rowptr, colidx, np.where(np.arange(values.size) % 2, values, 0.0))
    other.assemble()
    eliminate_zeros(other)
    C.axpy(1.0, other, structure=Structure.SUBSET)
    same.axpy(1.0, ordinary(other), structure=Structure.SUBSET)
    assert plans() == before + 1
    check(C, same)


@pytest.mark.parametrize("structure", [Structure.SUBSET, Structure.UNKNOWN, Structure.DIFFERENT])
@pytest.mark.parametrize("mat_type", ["pjds", "aij"])
def test_what_is_not_in_the_pattern_is_inserted_as_petsc_does(structure, mat_type):
    C = product(longest=3)[2]
    same = ordinary(C)
    same.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    other = part_of(C, "aij")
    other.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    add_everywhere(other)
    C.axpy(2.0, other if mat_type == "aij" else other.convert(mat_type, PETSc.Mat()), structure=structure)
    same.axpy(2.0, other, structure=structure)
    check(C, same)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("ours_is_added", [False, True])
def test_mixtures_with_aij_are_added_by_petsc(structure, ours_is_added):
    C = product(longest=20)[2]
    structure, every = STRUCTURES[structure]
    same, other = ordinary(C), part_of(C, "aij", every)
    if ours_is_added:
        total = ordinary(C)
        total.axpy(2.0, other.convert("pjds", PETSc.Mat()), structure=structure)
    else:
        total = C
        C.axpy(2.0, other, structure=structure)
    same.axpy(2.0, other, structure=structure)
    check(total, same)


def test_patterns_of_other_sizes_are_not_the_same():
    C = product(longest=20)[2]
    with pytest.raises(PETSc.Error) as failure:
        C.axpy(1.0, part_of(C, "pjds"), structure=Structure.SAME)
    assert failure.value.ierr == WRONG_ARGUMENT


def test_smoothed_prolongators_stay_managed(options):
    """GAMG scales rows of A P and adds P, whose entries are some of those of A P."""
    managed = []
    options["pc_gamg_coarse_eq_limit"] = 10
    ours = gamg_iterations(petsc_matrix(stencil_csr(12)), at_end=lambda: managed.append(managed_matrices()))
    assert managed[0] == 6  # three coarse matrices and their prolongators
    for via in VIA.values():
        options.delValue(via)  # PETSc's own types do not know the name
    assert gamg_iterations(petsc_matrix(stencil_csr(12), "aij")) == ours


def test_ordinary_matrices_are_left_to_petsc():
    A = petsc_matrix(stencil_csr(3))
    before = plans()
    A.scale(2.0)
    A.diagonalScale(vector(27, 1), vector(27, 2))
    A.shift(1.0)
    A.setDiagonal(vector(27, 1))
    A.zeroEntries()
    A.axpy(1.0, petsc_matrix(stencil_csr(3)), structure=Structure.SAME)
    assert plans() == before
