"""Set-ups of PCGAMG after the first: Newton steps, and smoothers whose vectors stay where they are."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from multigrid import check_same, geometric_graph, levels, pair, solver
from petsc4py import PETSc
from petsc_products import stencil_csr

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning.abi import Ask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("several_levels")]


def view(ksp, tmp_path):
    viewer = PETSc.Viewer().createASCII(str(tmp_path / "view.txt"), comm=PETSc.COMM_SELF)
    ksp.view(viewer)
    viewer.destroy()
    return (tmp_path / "view.txt").read_text()


def eigenvalues(ksp, tmp_path):
    """Bounds of the smoothers, from the coarsest on."""
    found = re.findall(r"eigenvalue targets used: min ([\d.e+-]+), max ([\d.e+-]+)", view(ksp, tmp_path))
    return np.array([[float(word.rstrip(".")) for word in bounds] for bounds in found])


def newton_steps(A, change, tmp_path, steps=3):
    """Iterations and bounds of eigenvalues of solves with changed values, and the last hierarchy."""
    ksp = solver(A)
    x, b = A.createVecs()
    b.set(1.0)
    found = []
    for step in range(steps):
        change(A, step)
        ksp.setOperators(A)
        ksp.solve(b, x)
        found.append((ksp.getIterationNumber(), eigenvalues(ksp, tmp_path)))
    return ksp, found


def shift(A, step):
    A.shift(0.3 * (step + 1))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"pc_gamg_reuse_interpolation": False},
        {"pc_gamg_recompute_esteig": False},
        {"pc_gamg_use_sa_esteig": False},
        {"mg_levels_ksp_chebyshev_esteig_noisy": False},
        {"mg_levels_ksp_type": "richardson"},
        {"pc_gamg_type": "agg"},
    ],
    ids=lambda more: " ".join(more) or "default",
)
def test_newton_steps_take_the_iterations_of_aij(options, tmp_path, more):
    for name, value in more.items():
        options[name] = value
    found = [newton_steps(A, shift, tmp_path) for A in pair(geometric_graph(500, 8.0, seed=31))]
    chebyshev = "mg_levels_ksp_type" not in more
    for (iterations, bounds), (expected, expected_bounds) in zip(found[0][1], found[1][1], strict=True):
        assert iterations == expected and bool(bounds.size) is chebyshev
        assert np.allclose(bounds, expected_bounds, rtol=1e-4)
    check_same(levels(found[0][0]), levels(found[1][0]), tolerance=1e-6)
    for ksp, _ in found:
        ksp.destroy()


def test_a_newton_step_makes_no_plan(options, asked):
    A, other = pair(stencil_csr(8))
    other.destroy()
    ksp = solver(A)
    x, b = A.createVecs()
    b.set(1.0)
    for step in range(3):
        shift(A, step)
        ksp.solve(b, x)
        if step == 0:
            assert asked[Ask.START_VECTOR] == asked[Ask.SMOOTHED] == ksp.getPC().getMGLevels() - 1
            asked.clear()
    assert not asked
    ksp.destroy()


def test_a_set_up_that_begins_anew_makes_the_plans_of_the_first(options, asked):
    """But for start vectors, and the stores of the finest matrix, which are there."""
    options["pc_gamg_reuse_interpolation"] = False
    A, other = pair(stencil_csr(8))
    other.destroy()
    ksp = solver(A)
    ksp.setUp()
    first = dict(asked)
    for step in range(2):
        asked.clear()
        shift(A, step)
        ksp.setOperators(A)
        ksp.setUp()
        assert not asked[Ask.START_VECTOR]
        assert all(asked[ask] == first[ask] for ask in (Ask.AGGREGATES, Ask.TENTATIVE, Ask.SMOOTHED))
        assert asked[Ask.STORE] < first[Ask.STORE]
    ksp.destroy()


def test_smoothers_have_their_own_right_hand_sides_again(options):
    """What they begin an estimate with is not what they solve for."""
    A, other = pair(stencil_csr(8))
    other.destroy()
    ksp = solver(A)
    x, b = A.createVecs()
    b.set(1.0)
    ksp.solve(b, x)
    smoothers = [ksp.getPC().getMGSmoother(k) for k in range(1, ksp.getPC().getMGLevels())]
    before = [smoother.getRhs().handle for smoother in smoothers]
    shift(A, 0)
    ksp.setUp()
    assert [smoother.getRhs().handle for smoother in smoothers] == before
    ksp.destroy()


def set_diagonal(A, value):
    """Of one row, in a pattern that stays."""
    A.setValue(3, 3, value)
    A.assemble()


def fixes_diagonal(pc):
    library, flag = native_library.load(), ctypes.c_int()
    assert library.PCJacobiGetFixDiagonal(ctypes.c_void_p(pc.handle), ctypes.byref(flag)) == 0
    return bool(flag.value)


def jacobi_of_finest(ksp):
    pc = ksp.getPC()
    return pc.getMGSmoother(pc.getMGLevels() - 1).getPC()


@pytest.mark.parametrize("more", [{}, {"mg_levels_pc_jacobi_fixdiagonal": False}, {"mg_levels_pc_jacobi_abs": True}])
def test_zeros_on_the_diagonal_are_replaced_as_by_petsc(options, managed, more):
    """In a set-up after one without any, and before another."""
    options["pc_gamg_eigenvalues"] = "0.1,2.0"
    options["mg_levels_ksp_chebyshev_eigenvalues"] = "0.2,2.0"
    for name, value in more.items():
        options[name] = value
    applied = []
    for A in pair(stencil_csr(6)):
        ksp = solver(A)
        x, y = A.createVecs()
        x.setArray(np.linspace(1, 2, x.getLocalSize(), dtype=PETSc.ScalarType))
        results = []
        for value in (5.0, 0.0, -2.0, 4.0):
            set_diagonal(A, value)
            ksp.setUp()
            pc = jacobi_of_finest(ksp)
            assert pc.getType() == "jacobi" and fixes_diagonal(pc) is ("mg_levels_pc_jacobi_fixdiagonal" not in more)
            pc.apply(x, y)
            results.append(y.getArray().copy())
        applied.append(results)
        ksp.destroy()
    for ours, theirs in zip(*applied, strict=True):
        assert ours.tolist() == theirs.tolist()
    assert applied[0][1][3] == (0.0 if "mg_levels_pc_jacobi_fixdiagonal" in more else x.getArray()[3])
