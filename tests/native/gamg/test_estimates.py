"""Estimates of eigenvalues are by our solves where vectors are as on a device, and come to what PETSc's come to."""

from __future__ import annotations

import re

import numpy as np
import pytest
from multigrid import check_same, geometric_graph, levels, pair, solver
from petsc4py import PETSc
from solves import MODIFIED, NEWER, REFINEMENT

from petsc_gpufmt.krylov.gmres import Step, generalized_minimal_residuals
from petsc_gpufmt.krylov.steps import Method
from petsc_gpufmt.planning import krylov_requests
from petsc_gpufmt.planning.abi import Ask

pytestmark = [pytest.mark.usefixtures("several_levels", "managed"), pytest.mark.real]

BY_PETSC = {
    "modified": {f"pc_gamg_esteig_{name}": value for name, value in MODIFIED.items()},
    "refined": {f"pc_gamg_esteig_{REFINEMENT}": "refine_always"},
    "flexible": {"pc_gamg_esteig_ksp_type": "fgmres"},
}
ESTIMATES = {
    "by default": {},
    "by CG": {"pc_gamg_esteig_ksp_type": "cg"},
    "in many steps": {"pc_gamg_esteig_ksp_gmres_restart": 50, "pc_gamg_esteig_ksp_max_it": 40},
    "in cycles": {"pc_gamg_esteig_ksp_gmres_restart": 4},
    **BY_PETSC,
}


def set_up_again(A, ksp, turns=1):
    for _ in range(turns):
        A.shift(0.3)
        ksp.setOperators(A)
        ksp.setUp()


def hierarchies(options, more):
    """Ours and that of aij, after a further set-up."""
    for name, value in more.items():
        options[name] = value
    found = []
    for A in pair(geometric_graph(600, 8.0, seed=21)):
        ksp = solver(A)
        ksp.setUp()
        set_up_again(A, ksp)
        found.append(levels(ksp))
        ksp.destroy()
    return found


@pytest.mark.double
@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_are_those_of_petsc(options, asked, name):
    ours, theirs = hierarchies(options, ESTIMATES[name])
    if name == "in many steps":  # rounding grows with them, and coarse levels have fewer rows
        check_same(ours[-1:], theirs[-1:], tolerance=1e-5)
    else:
        check_same(ours[-1:], theirs[-1:], tolerance=1e-12)
        check_same(ours, theirs, tolerance=1e-7)
    assert asked[Ask.JACOBI] == 1


def without_scaling(*arguments):
    made = generalized_minimal_residuals(*arguments)
    return made._replace(launches={**made.launches, Step.SCALE: []})


@pytest.mark.parametrize("name", ["by default", *BY_PETSC])
def test_a_solve_that_is_not_made_shows(options, monkeypatch, name):
    """So those of other types and with other orthogonalizations are left to PETSc."""
    monkeypatch.setitem(krylov_requests.METHODS, Method.GMRES, without_scaling)
    ours, theirs = hierarchies(options, {"pc_gamg_reuse_interpolation": False, **ESTIMATES[name]})
    if name == "by default":
        with pytest.raises(AssertionError):
            check_same(ours[-1:], theirs[-1:], tolerance=1e-3)
    else:
        check_same(ours[-1:], theirs[-1:], tolerance=1e-5)


def view(ksp, tmp_path):
    viewer = PETSc.Viewer().createASCII(str(tmp_path / "view.txt"), comm=PETSc.COMM_SELF)
    ksp.view(viewer)
    viewer.destroy()
    return (tmp_path / "view.txt").read_text()


def bounds_of_smoothers(text):
    """From the coarsest on."""
    bounds = re.findall(r"targets used: min ([\d.e+-]+), max ([\d.e+-]+)", text)
    return np.array([[float(word.rstrip(".")) for word in words] for words in bounds])


@pytest.mark.double
@pytest.mark.parametrize("definite", [False, True])
def test_smoothers_estimate_anew_by_our_solves(tmp_path, definite):
    texts = []
    for A in pair(geometric_graph(600, 8.0, seed=21)):
        A.setOption(PETSc.Mat.Option.SPD, definite)
        ksp = solver(A)
        ksp.setUp()
        set_up_again(A, ksp)
        texts.append(view(ksp, tmp_path))
        ksp.destroy()
    found, expected = (bounds_of_smoothers(text) for text in texts)
    assert expected.shape == (2, 2) and np.allclose(found, expected, rtol=1e-4)
    names, those_of_aij = (re.findall(r"eigenvalues estimated via (\w+)", text) for text in texts)
    assert names == those_of_aij
    if NEWER:
        assert names == 2 * ["cg" if definite else "gmres"]
    ours = {"cg": "scalars on the host", "gmres": "Hessenberg matrix on the host"}[names[0]]
    assert texts[0].count(f"petsc_gpufmt: {ours}") == 2 and "petsc_gpufmt" not in texts[1]


def test_further_set_ups_take_the_plans_of_the_first(options, asked):
    """Also where prolongators, and with them smoothers, are made anew."""
    A, other = pair(geometric_graph(600, 8.0, seed=21))
    other.destroy()
    ksp = solver(A)
    ksp.setUp()
    smoothers = ksp.getPC().getMGLevels() - 1
    assert asked[Ask.KRYLOV] == 2 * smoothers  # of each level's estimator, and of its smoother
    set_up_again(A, ksp, turns=2)
    assert asked[Ask.KRYLOV] == 2 * smoothers
    options["pc_gamg_reuse_interpolation"] = False
    ksp.setFromOptions()
    set_up_again(A, ksp, turns=2)
    assert asked[Ask.KRYLOV] == 4 * smoothers
    ksp.destroy()
