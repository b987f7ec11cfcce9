"""Type gpuchebyshev with PCPBJACOBI against PETSc's chebyshev: inverses of blocks in the pass over vectors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from answers import settled_tokens
from petsc4py import PETSc
from petsc_products import coupled_csr, petsc_matrix
from solves import NEWER, check_same, informing, make_solver, right_hand_side, run, solve, view_of

from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

pytestmark = pytest.mark.slow

POINTS = 4
BLOCKS = {"ksp_norm_type": "none", "ksp_max_it": 2, "pc_type": "pbjacobi"}
BOUNDS = {"ksp_chebyshev_eigenvalues": "0.2,2.5"}
OURS = "petsc_gpufmt: each step a product and one pass over vectors on the host\n"
LEFT = "solved by PETSc's own method, because "
TIGHT = 1e-13  # they differ in the order of a few sums
KINDS = ("gpuchebyshev", "chebyshev")


def blocked(block, mat_type="pjds", declared=None, seed=0):
    """A matrix with so many unknowns a point; the block size it tells may be another."""
    A = petsc_matrix(coupled_csr(POINTS, block, seed), "aij")
    A.setBlockSize(block if declared is None else declared)
    return A.convert(mat_type)


def both(A, **settings):
    """By gpuchebyshev and by chebyshev."""
    n = (A[0] if isinstance(A, tuple) else A).getSize()[0]
    return [solve(A, right_hand_side(n), kind, **settings) for kind in KINDS]


class Smoothers:
    """A KSP of ours and one of PETSc's, with a matrix of each; plans and what they hold are given back."""

    def __init__(self, block=3, **settings):
        self.matrices = [blocked(block) for _ in KINDS]
        self.solvers = [
            make_solver(A, kind, **{**BLOCKS, **settings}) for A, kind in zip(self.matrices, KINDS, strict=True)
        ]

    def compared(self):
        """What ours finds, which is what PETSc's finds."""
        found = []
        for ksp in self.solvers:
            x, b = ksp.getOperators()[0].createVecs()
            b.setArray(right_hand_side(b.size))
            found.append(run(ksp, b, x))
        check_same(*found, TIGHT)
        return found[0]

    def view(self, tmp_path):
        return view_of(self.solvers[0], tmp_path)

    def pcs(self):
        return [ksp.getPC() for ksp in self.solvers]


@pytest.fixture
def smoothers():
    before = settled_tokens()
    made = Smoothers(**BOUNDS)
    yield made
    for thing in (*made.solvers, *made.matrices):
        thing.destroy()
    assert settled_tokens() == before


@pytest.fixture
def asked(monkeypatch):
    """How often the planner is asked for what."""
    counts = Counter()
    for ask, kind in list(requests.KINDS.items()):

        def counted(*arguments, ask=ask, fill=kind.fill):
            counts[ask] += 1
            return fill(*arguments)

        monkeypatch.setitem(requests.KINDS, ask, kind._replace(fill=counted))
    return counts


@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("block", [2, 3, 5])
def test_an_iterate_is_that_of_petsc(block, iterations, guess):
    more = {"ksp_max_it": iterations, "ksp_initial_guess_nonzero": guess}
    ours, theirs = both(blocked(block), **{**BLOCKS, **more})
    check_same(ours, theirs, TIGHT)
    assert (ours.reason, ours.iterations) == (PETSc.KSP.ConvergedReason.CONVERGED_ITS, iterations)


@pytest.mark.parametrize("block", [4, 6, 7, 11, 16])
def test_blocks_of_other_sizes(block, tmp_path):
    made = Smoothers(block)
    made.compared()
    assert OURS in made.view(tmp_path)


@pytest.mark.parametrize("mat_type", ["aij", "baij", *FORMATS])
def test_any_matrix_will_do(mat_type, tmp_path):
    """Products make no steps with blocks, though they are asked for."""
    A = blocked(3, "aij" + mat_type if mat_type in FORMATS else mat_type)
    settings = {**BLOCKS, "ksp_gpuchebyshev_fused": True}
    check_same(*both(A, **settings), TIGHT)
    ksp, (x, b) = make_solver(A, "gpuchebyshev", **settings), A.createVecs()
    ksp.solve(b, x)
    assert OURS in view_of(ksp, tmp_path)


def test_a_preconditioner_may_be_of_another_matrix():
    check_same(*both((blocked(3), blocked(3, "aij", seed=1)), **BLOCKS), TIGHT)


def test_blocks_matter(smoothers):
    """They are no diagonal."""
    with_blocks = smoothers.compared()
    for pc in smoothers.pcs():
        pc.setType("jacobi")
    with_a_diagonal = smoothers.compared()
    assert np.abs(with_a_diagonal.x - with_blocks.x).max() > 1e-2 * np.abs(with_blocks.x).max()


def test_inverses_are_those_of_the_last_set_up(smoothers, tmp_path):
    """Of new values, unless the preconditioner is to stay, and of new values again once it is not."""

    def new_values():
        for A in smoothers.matrices:
            A.shift(5.0)

    def reuse(flag):
        for pc in smoothers.pcs():
            pc.setReusePreconditioner(flag)

    def other_matrices():
        smoothers.matrices += [blocked(3, seed=1) for _ in KINDS]
        for ksp, A in zip(smoothers.solvers, smoothers.matrices[-2:], strict=True):
            ksp.setOperators(A)

    def none():
        for pc in smoothers.pcs():
            pc.setType("none")

    def blocks():
        for pc in smoothers.pcs():
            pc.setType("pbjacobi")

    changes = (
        new_values,
        lambda: (reuse(True), new_values()),
        lambda: reuse(False),
        new_values,
        none,
        blocks,
        other_matrices,
    )
    last = smoothers.compared()
    for change in changes:
        change()
        found = smoothers.compared()
        # PETSc 3.25 has new inverses while the preconditioner is to stay
        assert not NEWER or np.abs(found.x - last.x).max() > 1e-6 * np.abs(last.x).max()
        assert OURS in smoothers.view(tmp_path)
        last = found


def test_the_planner_is_asked_where_another_kernel_is_wanted(smoothers, asked):
    for _ in range(3):
        smoothers.compared()
        for A in smoothers.matrices:
            A.shift(1.0)
    assert asked[Ask.KRYLOV] == 1 and not asked[Ask.FUSED]
    for pc in smoothers.pcs():
        pc.setType("jacobi")
    for _ in range(2):
        smoothers.compared()
    assert asked[Ask.KRYLOV] == 2


def test_a_steady_solve_applies_no_preconditioner(smoothers):
    smoothers.compared()
    ours, theirs = smoothers.solvers
    event = PETSc.Log.Event("PCApply")
    PETSc.Log.begin()
    for ksp, applies in ((ours, False), (theirs, True)):
        x, b = ksp.getOperators()[0].createVecs()
        before = event.getPerfInfo()["count"]
        ksp.solve(b, x)
        assert (event.getPerfInfo()["count"] > before) == applies


@pytest.mark.parametrize(("block", "declared"), [(3, 1), (17, 17), (6, 24)])
def test_blocks_of_one_row_or_of_many_are_left_to_petsc(block, declared, tmp_path):
    A = blocked(block, declared=declared)
    ours, theirs = both(A, **BLOCKS)
    assert ours.x.tobytes() == theirs.x.tobytes()
    ksp, (x, b) = make_solver(A, "gpuchebyshev", **BLOCKS), A.createVecs()
    ksp.solve(b, x)
    assert LEFT + "point blocks are of 1 row, or of more than 16\n" in view_of(ksp, tmp_path)


def test_blocks_that_are_not_those_of_the_matrix_are_left_to_petsc(smoothers, tmp_path):
    """A preconditioner that stays keeps its blocks, whatever matrix there is now."""
    smoothers.compared()
    smoothers.matrices += [blocked(3, declared=2, seed=1) for _ in KINDS]
    for ksp, A in zip(smoothers.solvers, smoothers.matrices[-2:], strict=True):
        ksp.getPC().setReusePreconditioner(True)
        ksp.setOperators(A)
    smoothers.compared()
    assert LEFT + "point blocks are not those of the matrix\n" in smoothers.view(tmp_path)


def test_a_null_space_is_left_to_petsc(tmp_path):
    A = blocked(3)
    A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=PETSc.COMM_SELF))
    ours, theirs = both(A, **BLOCKS)
    assert ours.x.tobytes() == theirs.x.tobytes()
    ksp, (x, b) = make_solver(A, "gpuchebyshev", **BLOCKS), A.createVecs()
    ksp.solve(b, x)
    reason = "the preconditioner is no multiplication by a diagonal or by point blocks"
    assert LEFT + reason in view_of(ksp, tmp_path)


def test_a_transposed_solve_is_left_to_petsc(smoothers, capfd):
    found = []
    for ksp in smoothers.solvers:
        x, b = ksp.getOperators()[0].createVecs()
        b.setArray(right_hand_side(b.size))
        with informing():
            ksp.solveTranspose(b, x)
        found.append(x.array.copy())
    assert LEFT + "it is with the transposed matrix" in capfd.readouterr().out
    assert found[0].tobytes() == found[1].tobytes()


def test_a_singular_block_ends_as_with_petsc():
    """The set-up leaves no numbers in its place, and says nothing to a solve without norms."""
    found = []
    for kind in KINDS:
        A = blocked(3)
        A.zeroRows([3, 4, 5], diag=0.0)
        found.append(solve(A, right_hand_side(A.getSize()[0]), kind, **{**BLOCKS, **BOUNDS, "ksp_max_it": 1}))
    assert np.flatnonzero(~np.isfinite(found[1].x)).tolist() == [3, 4, 5]
    check_same(*found, TIGHT)
