"""Chebyshev's smoothers on the levels of GAMG are ours, with the eigenvalues that PETSc hands them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from multigrid import in_blocks, pair, solver
from petsc4py import PETSc
from petsc_products import coupled_csr, petsc_matrix, stencil_csr
from solves import check_same, run, view_of

from petsc_gpufmt.planning.abi import Ask

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.usefixtures("several_levels")]

OURS = "petsc_gpufmt: each step a product and one pass over vectors on the host"
FUSED = "petsc_gpufmt: steps in the product on the host"
N = 10
CHOICES = {
    "by default": {},
    "with more steps": {"mg_levels_ksp_max_it": 3},
    "in the product": {"mg_levels_ksp_gpuchebyshev_fused": True},
    "as a W-cycle": {"pc_mg_cycle_type": "w"},
    "multiplicative twice": {"pc_mg_multiplicative_cycles": 2},
    "full": {"pc_mg_type": "full"},
    "distinct": {"pc_mg_distinct_smoothup": True, "mg_levels_up_ksp_max_it": 3},
    "without a preconditioner": {"mg_levels_pc_type": "none"},
    "with estimates of their own": {"pc_gamg_use_sa_esteig": False},
    "of that type by name": {"mg_levels_ksp_type": "chebyshev"},
}
NOT_PROVIDED = ("without a preconditioner", "with estimates of their own")
"""Where eigenvalues of the set-up are none of the smoothers'."""
OTHERS = {
    "norms": ({"mg_levels_ksp_norm_type": "preconditioned"}, "norms are wanted (-ksp_norm_type none)"),
    "blocks of 1 row": ({"mg_levels_pc_type": "pbjacobi"}, "point blocks are of 1 row, or of more than 16"),
    "sweeps": (
        {"mg_levels_pc_type": "sor"},
        "the preconditioner is no multiplication by a diagonal or by point blocks",
    ),
    "fourth kind": ({"mg_levels_ksp_chebyshev_kind": "fourth"}, "the polynomial is not of the first kind"),
}


def solved(A, prepare=lambda ksp: None):
    """A KSP that is set up for a matrix, and what it found."""
    ksp, (x, b) = solver(A), A.createVecs()
    ksp.setConvergenceHistory()
    prepare(ksp)
    b.setArray(np.random.default_rng(3).standard_normal(b.getLocalSize()).astype(PETSc.ScalarType))
    return ksp, run(ksp, b, x)


def smoothers(ksp, tmp_path):
    """What -ksp_view says of the solves by each smoother."""
    return re.findall(r"petsc_gpufmt: .*", view_of(ksp, tmp_path))


@pytest.mark.parametrize("choice", CHOICES)
def test_smoothers_do_what_those_of_petsc_do(options, choice, tmp_path):
    for name, value in CHOICES[choice].items():
        options[name] = value
    A, reference = pair(stencil_csr(N))
    ksp, ours = solved(A)
    check_same(ours, solved(reference)[1])
    nlevels = ksp.getPC().getMGLevels()
    way = FUSED if "mg_levels_ksp_gpuchebyshev_fused" in CHOICES[choice] else OURS
    assert nlevels > 2 and smoothers(ksp, tmp_path) == [way] * (nlevels - 1) * (1 + (choice == "distinct"))
    given = "eigenvalues provided (min" in view_of(ksp, tmp_path)
    assert given == (choice not in NOT_PROVIDED)
    options["pc_gamg_gpufmt_smoother"] = "petsc"
    ksp, theirs = solved(A)
    check_same(ours, theirs)
    assert smoothers(ksp, tmp_path) == []


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_left_to_petsc_says_why(options, case, tmp_path):
    more, reason = OTHERS[case]
    options["pc_gamg_eigenvalues"] = "0.1,2.0"  # of this matrix they would be estimated from rounding
    options["mg_levels_ksp_chebyshev_eigenvalues"] = "0.2,2.0"
    for name, value in more.items():
        options[name] = value
    A, reference = pair(in_blocks(stencil_csr(4), 3, share=1.0))
    for matrix in (A, reference):
        matrix.shift(3e4)  # more than entries of a row: all solves end
    ksp, ours = solved(A)
    check_same(ours, solved(reference)[1])
    assert ours.reason > 0
    said = smoothers(ksp, tmp_path)
    assert said and set(said) == {f"petsc_gpufmt: solved by PETSc's own method, because {reason}"}


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_smoothers_with_blocks(options, steps, tmp_path):
    """Coarse levels have blocks of the size of the near-null space; further set-ups, those of new values."""
    options["mg_levels_pc_type"], options["mg_levels_ksp_max_it"] = "pbjacobi", steps
    options["mg_levels_ksp_gpuchebyshev_fused"] = True  # which products of blocks are not
    matrix, found = coupled_csr(6, 3), []
    right_hand_side = np.random.default_rng(4).standard_normal(matrix.nrows)
    for A in pair(matrix):
        A.setBlockSize(3)
        (ksp, first), (x, b) = solved(A), A.createVecs()
        nlevels = ksp.getPC().getMGLevels()
        assert nlevels > 2
        b.setArray(right_hand_side.astype(PETSc.ScalarType))
        A.scale(2.0)
        A.shift(3.0)
        ksp.setOperators(A)
        found.append((first, run(ksp, b, x)))
        assert smoothers(ksp, tmp_path) == ([OURS] * (nlevels - 1) if A.getType() == "seqaijpjds" else [])
        ksp.destroy()
    for ours, theirs in zip(*found, strict=True):
        check_same(ours, theirs, 1e-7)


def test_other_smoothers_and_matrices_stay_as_they_are(options, tmp_path):
    options["mg_levels_ksp_type"] = "richardson"
    ksp, _ = solved(petsc_matrix(stencil_csr(N)))
    assert smoothers(ksp, tmp_path) == []
    options["mg_levels_ksp_type"], options["pc_gamg_type"] = "chebyshev", "gpufmt"
    ksp, _ = solved(petsc_matrix(stencil_csr(N), "aij"))
    assert smoothers(ksp, tmp_path) == []


def test_a_wrong_word_is_an_error(options):
    options["pc_gamg_gpufmt_smoother"] = "quick"
    with pytest.raises(PETSc.Error) as raised:
        solved(petsc_matrix(stencil_csr(5)))
    assert 'Unknown option "quick" for -pc_gamg_gpufmt_smoother' in str(raised.value)


@pytest.mark.parametrize("kind", ["chebyshev", "gpuchebyshev"])
@pytest.mark.parametrize("reuse", [True, False])
def test_set_ups_that_follow(options, asked, reuse, kind, tmp_path):
    """Diagonals are those of the new values; eigenvalues are estimated anew, from our start vector."""
    options["mg_levels_ksp_type"], options["pc_gamg_reuse_interpolation"] = kind, reuse
    options["pc_gamg_eigenvalues"] = "0.1,2.0"
    found, right_hand_side = [], np.random.default_rng(4).standard_normal(N**3)
    for A in pair(stencil_csr(N)):
        (ksp, first), (x, b) = solved(A), A.createVecs()
        nsmoothers = ksp.getPC().getMGLevels() - 1
        assert not asked[Ask.START_VECTOR]
        b.setArray(right_hand_side.astype(PETSc.ScalarType))
        A.shift(2.0)
        ksp.setOperators(A)
        found.append((first, run(ksp, b, x)))
        ours = A.getType() == "seqaijpjds"
        assert asked[Ask.START_VECTOR] == (nsmoothers if ours and reuse else 0)
        assert len(smoothers(ksp, tmp_path)) == (nsmoothers if ours or kind == "gpuchebyshev" else 0)
        asked.clear()
        ksp.destroy()
    for ours, theirs in zip(*found, strict=True):
        check_same(ours, theirs, 1e-7)
