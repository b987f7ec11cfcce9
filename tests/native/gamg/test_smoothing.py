"""Estimates of eigenvalues and smoothed prolongators of PCGAMG's type gpufmt on one rank are those of agg."""

from __future__ import annotations

import pytest
from multigrid import check_same, fail, geometric_graph, levels, pair, setups, solver, with_dirichlet_rows
from petsc4py import PETSc
from petsc_products import stencil_csr
from solves import NEWER

from petsc_gpufmt.coarsening import smoothed as smoothing
from petsc_gpufmt.planning.abi import Ask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("several_levels")]

ESTIMATES = {
    "by default": {},
    "by CG": {"pc_gamg_esteig_ksp_type": "cg"},
    "in three steps": {"pc_gamg_esteig_ksp_max_it": 3},
    "without a preconditioner": {"pc_gamg_esteig_pc_type": "none"},
    "of row sums": {"pc_gamg_esteig_pc_jacobi_type": "rowl1", "pc_gamg_use_sa_esteig": False},
    "not for smoothers": {"pc_gamg_use_sa_esteig": False},
    "given": {"pc_gamg_eigenvalues": "0.1,2.0"},
    "smoothed twice": {"pc_gamg_agg_nsmooths": 2},
    "smoothed three times": {"pc_gamg_agg_nsmooths": 3},
    "with rows alone": {},
    "definite": {},
    "singular": {"mg_coarse_pc_type": "svd"},
}
BY_PRODUCTS = {
    **({"filtered": ({"pc_gamg_prolongator_filter": 0.1}, "the prolongator is filtered")} if NEWER else {}),
    "viewed": (
        {"pc_gamg_agg_view_initial_prolongation": "ascii:/dev/null"},
        "the tentative prolongator is to be viewed",
    ),
}


def check_near(ours, theirs):
    """The finest level but for rounding; that of the next is enlarged by ten steps of GMRES with a few dozen rows."""
    check_same(ours[-1:], theirs[-1:], tolerance=1e-13)
    check_same(ours, theirs, tolerance=1e-7)


def compare(options, more, matrix, prepare=lambda A: None):
    """Hierarchies, values and iterations are those of aij; what -ksp_view says of ours."""
    for name, value in more.items():
        options[name] = value
    found = []
    for A in pair(matrix):
        prepare(A)
        ksp = solver(A)
        x, b = A.createVecs()
        b.setArray(matrix.values[: b.getLocalSize()].astype(PETSc.ScalarType))
        if A.getNullSpace().handle:
            A.getNullSpace().remove(b)
        ksp.solve(b, x)
        found.append((levels(ksp), ksp.getIterationNumber()))
        if len(found) == 1:
            ours = ksp
        else:
            ksp.destroy()
    check_near(found[0][0], found[1][0])
    assert found[0][1] == found[1][1] and ours.getConvergedReason() > 0
    return ours


def make_definite(A):
    A.setOption(PETSc.Mat.Option.SPD, True)


def make_singular(A):
    """The diagonal becomes the sum of the others of its row: constant vectors are mapped to zero."""
    ones, sums = A.createVecs()
    ones.set(1.0)
    A.mult(ones, sums)
    A.setDiagonal(A.getDiagonal() - sums)
    A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=PETSc.COMM_SELF))


PREPARED = {"definite": make_definite, "singular": make_singular}


@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_and_prolongators_are_those_of_agg(options, asked, name):
    matrix = geometric_graph(600, 8.0, seed=21)
    if name == "singular":
        matrix = stencil_csr(9)  # the graph has two parts, and so more of a null space than is told
    if name == "with rows alone":
        matrix = with_dirichlet_rows(matrix, 9)
    ksp = compare(options, ESTIMATES[name], matrix, PREPARED.get(name, lambda A: None))
    nlevels = ksp.getPC().getMGLevels() - 1
    assert nlevels >= 2 and asked[Ask.SMOOTHED] == asked[Ask.TENTATIVE] == nlevels
    assert asked[Ask.START_VECTOR] == (0 if name == "given" else nlevels)
    ksp.destroy()


@pytest.mark.parametrize("name", BY_PRODUCTS)
def test_where_the_tentative_prolongator_is_wanted_products_smooth_it(options, asked, tmp_path, name):
    more, reason = BY_PRODUCTS[name]
    ksp = compare(options, more, stencil_csr(9))
    assert not asked[Ask.SMOOTHED] and all(
        f"; smoothed by products, because {reason}" in s for s in setups(ksp, tmp_path)
    )
    ksp.destroy()


@pytest.mark.parametrize("nsmooths", [1, 2])
def test_rows_that_are_too_long_are_left_to_products(options, asked, tmp_path, monkeypatch, nsmooths):
    monkeypatch.setattr(smoothing, "LONGEST_ROW", 7)
    ksp = compare(options, {"pc_gamg_agg_nsmooths": nsmooths}, stencil_csr(9))
    first, *others = setups(ksp, tmp_path)
    assert "products" not in first and others
    assert all("; smoothed by products, because a row of the matrix is too long" in words for words in others)
    assert asked[Ask.SMOOTHED] == len(others) + 1
    ksp.destroy()


def test_without_smoothing_nothing_is_estimated(options, asked, tmp_path):
    ksp = compare(options, {"pc_gamg_agg_nsmooths": 0}, stencil_csr(9))
    assert not asked[Ask.SMOOTHED] and not asked[Ask.START_VECTOR]
    assert all("products" not in words for words in setups(ksp, tmp_path))
    ksp.destroy()


def test_levels_of_agg_have_our_estimate(options, asked, tmp_path):
    ksp = compare(options, {"pc_gamg_mat_coarsen_type": "hem"}, stencil_csr(8))
    assert not asked[Ask.SMOOTHED] and asked[Ask.START_VECTOR] == ksp.getPC().getMGLevels() - 1
    ksp.destroy()


@pytest.mark.parametrize("ask", [Ask.SMOOTHED, Ask.START_VECTOR])
@pytest.mark.parametrize("number", [1, 2])
def test_after_an_error_the_solver_can_be_used_and_holds_nothing(monkeypatch, ask, number):
    A, other = pair(stencil_csr(8))
    ksp, expected = solver(A), solver(other)
    expected.setUp()
    references = A.getRefCount()
    fail(monkeypatch, ask, number)
    with pytest.raises(PETSc.Error, match="made to fail"):
        ksp.setUp()
    assert A.getRefCount() == references
    ksp.setUp()
    check_near(levels(ksp), levels(expected))
    ksp.destroy()
