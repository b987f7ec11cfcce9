"""Dot products of estimates of eigenvalues are ours where vectors are as on a device, and PETSc's estimates are."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from multigrid import check_same, geometric_graph, levels, pair, solver
from petsc4py import PETSc
from solves import MODIFIED, REFINEMENT

from petsc_gpufmt.coarsening import vector_sums as module
from petsc_gpufmt.planning.abi import Ask

pytestmark = [pytest.mark.usefixtures("several_levels", "managed"), pytest.mark.real]

BY_PETSC = {
    "modified": {f"pc_gamg_esteig_{name}": value for name, value in MODIFIED.items()},
    "by CG": {"pc_gamg_esteig_ksp_type": "cg"},
}
MANY_STEPS = "in more steps than there are dots at once"
ESTIMATES = {
    "by default": {},
    "flexible": {"pc_gamg_esteig_ksp_type": "fgmres"},
    "refined": {f"pc_gamg_esteig_{REFINEMENT}": "refine_always"},
    MANY_STEPS: {"pc_gamg_esteig_ksp_gmres_restart": 50, "pc_gamg_esteig_ksp_max_it": 40},
    **BY_PETSC,
}


@pytest.fixture(autouse=True)
def dots_of_vectors(options):
    """Copies that PETSc makes together on the host have a way of their own."""
    for name in ("mdot", "maxpy"):
        options[f"vec_{name}_use_gemv"] = False


def without_dots(made):
    made.sums.fill(0)
    return dataclasses.replace(made, dots=[])


def hierarchies(options, more):
    """Ours and that of aij, after a further set-up."""
    for name, value in more.items():
        options[name] = value
    found = []
    for A in pair(geometric_graph(600, 8.0, seed=21)):
        ksp = solver(A)
        ksp.setUp()
        A.shift(0.3)
        ksp.setOperators(A)
        ksp.setUp()
        found.append(levels(ksp))
        ksp.destroy()
    return found


@pytest.mark.double
@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_are_those_of_petsc(options, asked, name):
    ours, theirs = hierarchies(options, ESTIMATES[name])
    if name == MANY_STEPS:  # rounding grows with them, and coarse levels have fewer rows
        check_same(ours[-1:], theirs[-1:], tolerance=1e-5)
    else:
        check_same(ours[-1:], theirs[-1:], tolerance=1e-12)
        check_same(ours, theirs, tolerance=1e-7)
    assert asked[Ask.VECTOR_SUMS] == 1


@pytest.mark.parametrize("name", ["by default", *BY_PETSC])
def test_dots_that_are_not_computed_show(options, monkeypatch, name):
    make = module.vector_sums
    monkeypatch.setattr(module, "vector_sums", lambda backend: without_dots(make(backend)))
    ours, theirs = hierarchies(options, {"pc_gamg_reuse_interpolation": False, **ESTIMATES[name]})
    if name == "by default":
        with pytest.raises(AssertionError):
            check_same(ours[-1:], theirs[-1:], tolerance=1e-3)
    else:
        check_same(ours[-1:], theirs[-1:], tolerance=1e-12)


def bounds_of_smoothers(A, tmp_path):
    """After a further set-up, from the coarsest on."""
    ksp = solver(A)
    ksp.setUp()
    A.shift(0.3)
    ksp.setOperators(A)
    ksp.setUp()
    viewer = PETSc.Viewer().createASCII(str(tmp_path / "view.txt"), comm=PETSc.COMM_SELF)
    ksp.view(viewer)
    viewer.destroy()
    ksp.destroy()
    bounds = re.findall(r"targets used: min ([\d.e+-]+), max ([\d.e+-]+)", (tmp_path / "view.txt").read_text())
    return np.array([[float(word.rstrip(".")) for word in words] for words in bounds])


@pytest.mark.double
def test_smoothers_estimate_anew_with_our_dots(options, monkeypatch, tmp_path):
    make, (A, other) = module.vector_sums, pair(geometric_graph(600, 8.0, seed=21))
    options["pc_gamg_esteig_ksp_type"] = "cg"
    expected = bounds_of_smoothers(other, tmp_path)
    monkeypatch.setattr(module, "vector_sums", lambda backend: without_dots(make(backend)))
    wrong = bounds_of_smoothers(A.duplicate(copy=True), tmp_path)
    monkeypatch.undo()
    found = bounds_of_smoothers(A, tmp_path)
    assert expected.shape == (2, 2) and np.allclose(found, expected, rtol=1e-4)
    assert not np.allclose(wrong, expected, rtol=1e-2)
