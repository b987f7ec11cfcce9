"""Type mixedcg: single precision inside, and solutions as good as those of cg."""

from __future__ import annotations

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from builders import CsrMatrix
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import diagonal_matrix, informing, make_solver, right_hand_side, run, solve, view_of

from petsc_gpufmt.choice.registry import FORMATS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(np.float64 != PETSc.ScalarType, reason="PETSc has single precision itself"),
]

Reason = PETSc.KSP.ConvergedReason
NORMS = ("preconditioned", "unpreconditioned", "natural")
OUTER = ("replacement", "refinement", "flexible")
RTOL = 1e-11
LOOP = {"ksp_mixedcg_graph": True}
AT_ONCE = [pytest.param({}, id="batches"), pytest.param(LOOP, id="loop")]
NOT_CONVERGED, OUT_OF_RANGE, ORDER = 91, 63, 58


def mixed(A, b, outer="replacement", prepare=lambda ksp: None, **settings):
    return solve(A, b, "mixedcg", prepare, ksp_mixedcg_outer=outer, **settings)


def dense(A):
    return A.convert("dense", PETSc.Mat()).getDenseArray().copy()


def norm_of(r, diagonal, norm):
    z = r / diagonal
    return np.sqrt({"preconditioned": z @ z, "unpreconditioned": r @ r, "natural": r @ z}[norm])


@pytest.mark.parametrize("guess", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@pytest.mark.parametrize("outer", OUTER)
def test_the_residual_is_as_small_as_that_of_cg(grid, outer, pc_type, norm, guess):
    """Norms are those of true residuals in double precision; few iterations more than cg's are needed."""
    b, settings = right_hand_side(343), {"pc_type": pc_type, "ksp_norm_type": norm, "ksp_initial_guess_nonzero": guess}
    found, theirs = mixed(grid, b, outer, ksp_rtol=RTOL, **settings), solve(grid, b, "cg", ksp_rtol=RTOL, **settings)
    matrix = dense(grid)
    diagonal = np.diag(matrix) if pc_type == "jacobi" else np.ones(343)
    assert found.reason == theirs.reason == Reason.CONVERGED_RTOL
    last = norm_of(b - matrix @ found.x, diagonal, norm)
    assert np.isclose(found.history[-1], last, rtol=1e-2) and last <= 1.01 * RTOL * norm_of(b, diagonal, norm)
    assert np.isclose(found.history[0], theirs.history[0])
    assert 3 <= found.history.size <= 12 < found.iterations
    assert found.iterations <= (1.25 if outer == "replacement" else 1.9) * theirs.iterations + 3


@pytest.mark.parametrize("name", FORMATS)
def test_any_format_will_do(name):
    A, b = petsc_matrix(stencil_csr(5), "aij" + name), right_hand_side(125)
    found, theirs = mixed(A, b, pc_type="jacobi", ksp_rtol=RTOL), solve(A, b, "cg", pc_type="jacobi", ksp_rtol=RTOL)
    assert found.reason == Reason.CONVERGED_RTOL
    assert np.allclose(found.x, theirs.x, rtol=0, atol=rounding(1e-9) * abs(theirs.x).max())


def test_replacement_goes_on_where_refinement_begins_anew():
    A, b = petsc_matrix(stencil_csr(12)), right_hand_side(12**3)
    replacement, refinement = (mixed(A, b, outer, pc_type="none", ksp_rtol=1e-12) for outer in OUTER[:2])
    assert replacement.iterations < 0.9 * refinement.iterations


@pytest.mark.parametrize("check", [2, 7, 100])
@pytest.mark.parametrize("outer", OUTER)
def test_how_often_the_inner_norm_is_looked_at_changes_nothing(grid, outer, check):
    b, settings = right_hand_side(343), {"pc_type": "jacobi", "ksp_rtol": RTOL}
    alone, found = mixed(grid, b, outer, **settings), mixed(grid, b, outer, ksp_mixedcg_check=check, **settings)
    assert found.iterations == alone.iterations
    assert found.history.tobytes() == alone.history.tobytes() and found.x.tobytes() == alone.x.tobytes()


@pytest.mark.parametrize("outer", OUTER)
def test_so_many_inner_iterations_between_corrections(grid, outer):
    sizes, seen = [], []

    def monitored(ksp):
        ksp.setMonitor(lambda _, *what: seen.append(what))

    for count in (5, 12):
        seen.clear()
        settings = {"pc_type": "jacobi", "ksp_rtol": 1e-10, "ksp_mixedcg_inner_it": count}
        found = mixed(grid, right_hand_side(343), outer, monitored, **settings)
        assert seen == list(zip(range(0, count * len(seen), count), found.history.tolist(), strict=True))
        assert found.reason == Reason.CONVERGED_RTOL
        sizes.append(len(seen))
    assert sizes[0] > sizes[1] > 3


def test_the_inner_norm_falls_as_far_as_is_wanted(grid):
    sizes = [
        mixed(grid, right_hand_side(343), pc_type="jacobi", ksp_rtol=1e-10, ksp_mixedcg_inner_rtol=rtol).history
        for rtol in (0.3, 1e-2, 1e-4)
    ]
    assert sizes[0].size > sizes[1].size > sizes[2].size
    assert 1e-5 < sizes[2][1] / sizes[2][0] < 3e-4


# ---- ends ----


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("most", [0, 1, 7, 30])
def test_as_many_iterations_as_there_may_be(grid, outer, most):
    found = mixed(grid, right_hand_side(343), outer, pc_type="jacobi", ksp_rtol=1e-14, ksp_max_it=most)
    assert (found.reason, found.iterations) == (Reason.DIVERGED_MAX_IT, max(1, most))
    true = right_hand_side(343) - dense(grid) @ found.x
    assert np.isclose(found.history[-1], norm_of(true, np.diag(dense(grid)), "preconditioned"))


def test_without_norms_all_iterations_are_made(grid):
    found = mixed(grid, right_hand_side(343), pc_type="jacobi", ksp_norm_type="none", ksp_max_it=60)
    assert (found.reason, found.iterations) == (Reason.DIVERGED_MAX_IT, 60)
    assert not found.history.any() and found.history.size > 3
    assert np.allclose(dense(grid) @ found.x, right_hand_side(343), atol=rounding(1e-8))
    skip = {"ksp_norm_type": "none", "ksp_convergence_test": "skip"}
    found = mixed(grid, right_hand_side(343), pc_type="jacobi", ksp_max_it=9, **skip)
    assert (found.reason, found.iterations) == (Reason.CONVERGED_ITS, 9)


@pytest.mark.parametrize("outer", OUTER)
def test_nothing_to_do(grid, outer):
    zero = mixed(grid, np.zeros(343), outer, pc_type="jacobi")
    assert (zero.reason, zero.iterations, abs(zero.x).max()) == (Reason.CONVERGED_ATOL, 0, 0)
    assert mixed(grid, np.zeros(343), outer, pc_type="jacobi", ksp_norm_type="none").reason == Reason.CONVERGED_ATOL
    exact = diagonal_matrix(np.full(8, 2.0))  # the guess is b / 2
    assert mixed(exact, np.ones(8), outer, pc_type="none", ksp_initial_guess_nonzero=True).iterations == 0
    assert mixed(diagonal_matrix(np.zeros(0)), np.zeros(0), outer, pc_type="jacobi").iterations == 0


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("settings", [{}, {"ksp_norm_type": "none", "ksp_max_it": 40}])
def test_one_iteration_is_enough(outer, settings):
    """The residual becomes 0, in single precision or in double."""
    for n in (1, 20):
        found = mixed(diagonal_matrix(np.full(n, 4.0)), np.ones(n), outer, pc_type="none", **settings)
        assert found.reason > 0 and found.iterations <= 3 and np.allclose(found.x, 0.25)


def test_other_tests_of_convergence_see_corrections(grid):
    seen = []

    def test(_, iteration, norm):
        seen.append((iteration, norm))
        return Reason.CONVERGED_ITS if len(seen) == 4 else Reason.ITERATING

    found = mixed(grid, right_hand_side(343), "replacement", lambda ksp: ksp.setConvergenceTest(test), pc_type="none")
    assert found.reason == Reason.CONVERGED_ITS and [norm for _, norm in seen] == found.history.tolist()
    assert seen[-1][0] == found.iterations and np.all(np.diff([iteration for iteration, _ in seen]) > 0)


# ---- what goes on in double ----


def went_on(A, b, tmp_path, capfd, **settings):
    """A solve whose end is PETSc's method's, which is said; and why."""
    operator = A[0] if isinstance(A, tuple) else A
    ksp, (x, rhs) = make_solver(A, "mixedcg", **settings), operator.createVecs()
    rhs.setArray(b)
    capfd.readouterr()
    with informing():
        found = run(ksp, rhs, x)
    said, view = capfd.readouterr().out, view_of(ksp, tmp_path)
    why = view.partition("on PETSc's own method, because ")[2].partition("\n")[0]
    assert why and f"because {why}\n" in said
    return found, why


@pytest.mark.parametrize("outer", OUTER[:2])  # the other updates the residual, as cg does
def test_tolerances_that_nobody_reaches(grid, outer, tmp_path, capfd):
    """When the residual is that of rounding, the method of double precision comes to its own conclusion."""
    settings = {"ksp_mixedcg_outer": outer, "pc_type": "jacobi", "ksp_rtol": 1e-18, "ksp_max_it": 2000}
    found, why = went_on(grid, right_hand_side(343), tmp_path, capfd, **settings)
    assert why == "the residual did not fall"
    assert found.reason in (Reason.CONVERGED_RTOL, Reason.DIVERGED_MAX_IT) and 40 < found.iterations <= 2000
    residual = right_hand_side(343) - dense(grid) @ found.x
    assert abs(residual).max() < 1e-12 * abs(right_hand_side(343)).max()


def ill_conditioned(least):
    """A dense matrix with eigenvalues from `least` to 1, and its eigenvectors."""
    n = 40
    q, _ = np.linalg.qr(np.random.default_rng(5).standard_normal((n, n)))
    matrix = (q * np.geomspace(least, 1, n)) @ q.T
    values = ((matrix + matrix.T) / 2).ravel()
    return petsc_matrix(CsrMatrix(n, n, np.arange(n + 1) * n, np.tile(np.arange(n), n), values), "pjds"), q


@pytest.mark.parametrize("outer", OUTER)
def test_a_matrix_that_is_singular_in_single_precision(outer, tmp_path, capfd):
    """What makes the residual larger is taken back; cg takes it from there."""
    A, q = ill_conditioned(1e-10)
    b = q @ np.ones(40)
    settings = {"pc_type": "none", "ksp_rtol": 1e-6, "ksp_max_it": 5000}
    theirs = solve(A, b, "cg", **settings)
    found, why = went_on(A, b, tmp_path, capfd, ksp_mixedcg_outer=outer, **settings)
    assert why == "the residual did not fall"
    assert theirs.reason == found.reason == Reason.CONVERGED_RTOL
    assert found.history[1] == found.history[0] >= 1e6 * found.history[-1]
    assert found.iterations < theirs.iterations + 550


def test_the_test_of_convergence_goes_on_as_well(tmp_path, capfd):
    """Tolerances are those of the first residual, and iterations those of both methods."""
    A, q = ill_conditioned(1e-10)
    b, seen = q @ np.ones(40), []
    settings = {"pc_type": "none", "ksp_max_it": 700, "ksp_rtol": 1e-14, "ksp_converged_maxits": True}
    found, _ = went_on(A, b, tmp_path, capfd, **settings)
    assert (found.reason, found.iterations) == (Reason.CONVERGED_ITS, 700)

    def test(_, iteration, norm):
        seen.append(iteration)
        return Reason.CONVERGED_ITS if iteration >= 600 else Reason.ITERATING

    found = mixed(A, b, "replacement", lambda ksp: ksp.setConvergenceTest(test), pc_type="none", ksp_max_it=700)
    assert found.iterations == 600 and seen[-1] == 600 and sorted(seen) == seen and len(seen) > 50


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number(outer, wrong):
    numbers = np.where(np.arange(30) == 7, wrong, 2.0)
    settings = {"pc_type": "none"}
    if np.isnan(wrong):
        assert mixed(diagonal_matrix(numbers), np.ones(30), outer, **settings).reason == Reason.DIVERGED_NANORINF
    assert mixed(diagonal_matrix(np.full(30, 2.0)), numbers, outer, **settings).reason == Reason.DIVERGED_NANORINF
    again = make_solver(diagonal_matrix(np.full(30, 2.0)), "mixedcg", ksp_mixedcg_outer=outer, **settings)
    x, b = PETSc.Vec().createWithArray(np.zeros(30)), PETSc.Vec().createWithArray(numbers)
    assert run(again, b, x).reason == Reason.DIVERGED_NANORINF
    b.set(1.0)
    x.set(0.0)
    assert np.allclose(run(again, b, x).x, 0.5)


@pytest.mark.parametrize("outer", OUTER)
def test_indefinite_matrices_are_for_cg(outer, tmp_path, capfd):
    """Unless inner iterations happen to solve with them."""
    for values in (np.zeros(9), np.array([1.0, -1.0, 1.0, -1.0])):
        settings = {"pc_type": "none", "ksp_mixedcg_outer": outer}
        found, why = went_on(diagonal_matrix(values), np.ones(values.size), tmp_path, capfd, **settings)
        assert (why, found.reason) == ("there was no step", Reason.DIVERGED_INDEFINITE_MAT)
    values = 1 + np.arange(40.0)
    values[37:] *= -1
    found = mixed(diagonal_matrix(values), np.ones(40), outer, pc_type="none")
    solved = np.allclose(found.x * values, 1, atol=1e-3)
    assert found.reason == (Reason.CONVERGED_RTOL if solved else Reason.DIVERGED_INDEFINITE_MAT)


def test_who_wants_an_error_gets_the_one_of_cg():
    settings = {"pc_type": "none", "ksp_error_if_not_converged": True}
    with pytest.raises(PETSc.Error) as error:
        mixed(diagonal_matrix(np.zeros(9)), np.ones(9), **settings)
    assert error.value.ierr == NOT_CONVERGED and "indefinite matrix" in str(error.value)


# ---- ranges of numbers ----


@pytest.mark.parametrize("exponent", [30, -30, 200, -200])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@pytest.mark.parametrize("outer", OUTER)
def test_numbers_of_any_magnitude(outer, pc_type, norm, exponent):
    """With 1e200 and no preconditioner, cg itself fails."""
    matrix, scale = stencil_csr(4), 10.0 ** (exponent / 2)
    expected = np.linalg.solve(dense(petsc_matrix(matrix)), right_hand_side(64)) / scale
    matrix.values[:] *= scale * scale
    settings = {"pc_type": pc_type, "ksp_norm_type": norm, "ksp_rtol": 1e-10, "ksp_atol": 0}
    found = mixed(petsc_matrix(matrix), right_hand_side(64) * scale, outer, **settings)
    assert found.reason == Reason.CONVERGED_RTOL and found.history.size < 12
    assert np.allclose(found.x, expected, rtol=0, atol=rounding(1e-8) * abs(expected).max())


@pytest.mark.parametrize("outer", OUTER)
def test_one_large_entry(outer):
    """The inner system is scaled, and is not the matrix itself."""
    for pc_type, large in (("none", 1e60), ("jacobi", 1e200)):
        values = np.linspace(1.0, 3.0, 50)
        values[17] = large
        A, b = diagonal_matrix(values), right_hand_side(50)
        found = mixed(A, b, outer, pc_type=pc_type, ksp_rtol=1e-12)
        assert found.reason == Reason.CONVERGED_RTOL and found.history.size < 12
        assert np.allclose(found.x, b / values, rtol=rounding(1e-9), atol=1e-30)


def test_a_matrix_that_does_not_fit_is_an_error():
    n = 2
    matrix = np.array([[1.0, 1e60], [1e60, 1.0]])
    A = petsc_matrix(CsrMatrix(n, n, np.arange(n + 1) * n, np.tile(np.arange(n), n), matrix.ravel()), "pjds")
    with pytest.raises(PETSc.Error) as error:
        mixed(A, np.ones(n), pc_type="none")
    assert error.value.ierr == OUT_OF_RANGE and "solve in double" in str(error.value)


# ---- inner iterations in one launch ----


def check_loop(A, b, outer="replacement", **settings):
    """A loop comes to what batches come to, bit for bit."""
    batches, loop = mixed(A, b, outer, **settings), mixed(A, b, outer, **settings, **LOOP)
    assert (loop.reason, loop.iterations) == (batches.reason, batches.iterations)
    assert loop.history.tobytes() == batches.history.tobytes() and loop.x.tobytes() == batches.x.tobytes()
    return loop


@pytest.mark.parametrize("norm", [*NORMS, "none"])
@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@pytest.mark.parametrize("outer", OUTER)
def test_a_loop_gives_the_bits_of_batches(grid, outer, pc_type, norm):
    settings = {"pc_type": pc_type, "ksp_norm_type": norm, "ksp_rtol": RTOL, "ksp_max_it": 90}
    for count in (0, 7):
        assert check_loop(grid, right_hand_side(343), outer, **settings, ksp_mixedcg_inner_it=count).iterations > 30


@pytest.mark.parametrize("outer", OUTER)
def test_a_loop_ends_as_batches_do(grid, outer):
    for most in (0, 1, 7, 30):
        check_loop(grid, right_hand_side(343), outer, pc_type="jacobi", ksp_rtol=1e-14, ksp_max_it=most)
    values = 1 + np.arange(40.0)
    values[37:] *= -1
    for numbers in (values, np.zeros(9), np.full(20, 4.0), np.where(values == 7, 1e200, abs(values))):
        check_loop(diagonal_matrix(numbers), np.ones(numbers.size), outer, pc_type="none")
    for wrong in (np.nan, np.inf):
        numbers = np.where(values == 7, wrong, 2.0)
        check_loop(diagonal_matrix(np.full(40, 2.0)), numbers, outer, pc_type="none")
    assert check_loop(diagonal_matrix(np.where(values == 7, np.nan, 2.0)), np.ones(40), pc_type="none").reason < 0


@pytest.mark.parametrize("name", FORMATS)
def test_loops_with_any_format(name):
    check_loop(petsc_matrix(stencil_csr(5), "aij" + name), right_hand_side(125), pc_type="jacobi", ksp_rtol=RTOL)


def logged_flops(A, **settings):
    before = PETSc.Log.getFlops()
    mixed(A, right_hand_side(A.size[0]), pc_type="none", **settings)
    return PETSc.Log.getFlops() - before


def test_flops_of_loops_are_those_of_batches(grid):
    """On the host, where nothing is queued in vain; p.A p may end an iteration after its product."""
    values = 1 + np.arange(40.0)
    values[37:] *= -1
    for A in (grid, diagonal_matrix(values)):
        assert logged_flops(A, **LOOP) == logged_flops(A) > 1000


def said_of_loops(ksp, x, b, capfd):
    """How inner iterations of a solve were launched, and how often some were recorded."""
    capfd.readouterr()
    with informing():
        found = run(ksp, b, x)
    said = capfd.readouterr().out.splitlines()
    hows = [line.partition("inner iterations are ")[2] for line in said if "inner iterations are " in line]
    return found, hows, sum("Iterations are recorded in a graph" in line for line in said)


PARALLEL, LOOKS, UNSET = (
    "entries of x on other ranks are messages",
    "-ksp_mixedcg_check is set",
    "-ksp_mixedcg_graph is not set",
)


@pytest.mark.parametrize(
    ("mat_type", "settings", "expected"),
    [
        ("aijpjds", {}, [f"launched in batches, because {UNSET}"]),
        ("aijpjds", LOOP, ["one launch of a loop"]),
        ("aijpjds", {**LOOP, "ksp_mixedcg_check": 5}, [f"launched in batches, because {LOOKS}"]),
        ("mpiaijpjds", LOOP, [f"launched in batches, because {PARALLEL}"]),
        ("mpiaijpjds", {**LOOP, "ksp_mixedcg_check": 5}, [f"launched in batches, because {LOOKS}"]),
    ],
)
def test_it_is_said_how_inner_iterations_are_launched(mat_type, settings, expected, capfd):
    A = petsc_matrix(stencil_csr(5), mat_type)
    ksp, (x, b) = make_solver(A, "mixedcg", pc_type="jacobi", **settings), A.createVecs()
    b.setArray(right_hand_side(125))
    found, hows, nrecorded = said_of_loops(ksp, x, b, capfd)
    assert found.reason == Reason.CONVERGED_RTOL
    assert hows == expected and nrecorded == ("of a loop" in "".join(hows))


def test_a_loop_is_recorded_where_something_else_is_there(grid, capfd):
    """New values of the same pattern, or another right-hand side, are not: plans and arrays stay."""
    A, B = grid.duplicate(copy=True), grid.duplicate(copy=True)
    ksp, (x, b) = make_solver(A, "mixedcg", pc_type="jacobi", **LOOP), A.createVecs()

    def check(nrecorded):
        b.setArray(right_hand_side(343) * (1 + nrecorded))
        x.set(0.0)
        found, _, recorded = said_of_loops(ksp, x, b, capfd)
        operator = ksp.getOperators()[0]
        alone = mixed(operator, b.array, pc_type=ksp.getPC().getType())
        assert found.x.tobytes() == alone.x.tobytes() and recorded == nrecorded

    check(1)
    check(0)
    A.shift(3.0)
    check(0)
    B.shift(20.0)
    ksp.setOperators(B)
    check(1)
    check(0)
    ksp.getPC().setType("none")
    check(1)
    B.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    B.setValues([3, 300], [3, 300], np.array([[8.0, -2.0], [-2.0, 8.0]]))
    B.assemble()
    check(1)
    ksp.reset()
    ksp.setOperators(B)
    check(1)


def test_one_loop_within_another(grid):
    """A monitor solves with a solver of its own."""
    b = right_hand_side(343)
    alone = mixed(grid, b, pc_type="jacobi")
    inner, (inner_x, inner_b) = make_solver(grid, "mixedcg", pc_type="none", **LOOP), grid.createVecs()
    inner_b.setArray(b[::-1])
    inner_alone = run(inner, inner_b, inner_x)

    def solve_inner(*_):
        inner_x.set(0.0)
        assert run(inner, inner_b, inner_x).x.tobytes() == inner_alone.x.tobytes()

    both = mixed(grid, b, prepare=lambda ksp: ksp.setMonitor(solve_inner), pc_type="jacobi", **LOOP)
    assert both.x.tobytes() == alone.x.tobytes()


@pytest.mark.parametrize("when", [0, 2])
@pytest.mark.parametrize("nsolves", [0, 1])
@pytest.mark.parametrize("settings", AT_ONCE)
def test_values_that_change_within_a_solve_are_an_error(grid, settings, nsolves, when):
    """Before a loop is recorded, or when there is one, of solves before; the next solve is not harmed."""
    A, right, calls = grid.duplicate(copy=True), right_hand_side(343), []
    ksp = make_solver(A, "mixedcg", pc_type="none", **settings)

    def vectors():
        x, b = A.createVecs()
        b.setArray(right)
        return b, x

    def change(*_):
        calls.append(len(calls))
        if len(calls) - 1 == when:
            A.shift(1.0)

    for _ in range(nsolves):
        run(ksp, *vectors())
    ksp.setMonitor(change)
    with pytest.raises(PETSc.Error) as error:
        ksp.solve(*vectors())
    assert error.value.ierr == ORDER and "is not that of its values as they are now" in str(error.value)
    ksp.monitorCancel()
    assert run(ksp, *vectors()).x.tobytes() == mixed(A, right, pc_type="none").x.tobytes()


# ---- what is left to cg, and what is kept ----


LEFT = {
    "the preconditioner is neither none nor jacobi": lambda ksp: ksp.getPC().setType("icc"),
    "eigenvalues or singular values are to be estimated": lambda ksp: ksp.setComputeEigenvalues(True),
    "-ksp_cg_single_reduction is set": None,
    "the matrix is of a type that has no copy in single precision": lambda ksp: ksp.setOperators(
        petsc_matrix(stencil_csr(7), "aij")
    ),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_is_left_to_cg(grid, reason, tmp_path):
    settings = {"ksp_cg_single_reduction": True} if LEFT[reason] is None else {}
    ksp, (x, b) = make_solver(grid, "mixedcg", pc_type="jacobi", **settings), grid.createVecs()
    if LEFT[reason]:
        LEFT[reason](ksp)
    b.setArray(right_hand_side(343))
    assert run(ksp, b, x).reason > 0
    assert f"solved by PETSc's own method, because {reason}" in view_of(ksp, tmp_path)


def test_transposes_and_null_spaces_are_left_to_cg(grid, tmp_path):
    ksp, (x, b) = make_solver(grid, "mixedcg", pc_type="jacobi"), grid.createVecs()
    b.setArray(right_hand_side(343))
    ksp.solveTranspose(b, x)
    assert "because it is with the transposed matrix" in view_of(ksp, tmp_path)
    A = grid.duplicate(copy=True)
    A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=A.comm))
    ksp.setOperators(A)
    run(ksp, b, x)
    assert "or the matrix has a null space" in view_of(ksp, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ksp_mixedcg_outer": "sideways"}, "sideways"),
        ({"ksp_mixedcg_inner_rtol": 0.9}, "greater than allowed bound 0.5"),
        ({"ksp_mixedcg_inner_rtol": -1.0}, "less than allowed bound"),
        ({"ksp_mixedcg_inner_it": -1}, "less than allowed bound 0"),
        ({"ksp_mixedcg_check": -1}, "less than allowed bound 0"),
        ({"ksp_mixedcg_graph": "perhaps"}, "Unknown logical value: perhaps"),
    ],
)
def test_wrong_options_are_errors(grid, settings, message):
    database = PETSc.Options("of_wrong_options_")
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setOptionsPrefix("of_wrong_options_")
    for name, value in {"ksp_type": "mixedcg", **settings}.items():
        database[name] = value
    with pytest.raises(PETSc.Error) as error:
        ksp.setFromOptions()
    for name in ("ksp_type", *settings):
        database.delValue(name)
    assert message in str(error.value)


def test_what_is_printed_of_a_solver(grid, tmp_path):
    for outer in OUTER:
        ksp, (x, b) = make_solver(grid, "mixedcg", pc_type="jacobi", ksp_mixedcg_outer=outer), grid.createVecs()
        assert "petsc_gpufmt" not in view_of(ksp, tmp_path)
        b.setArray(right_hand_side(343))
        found = run(ksp, b, x)
        expected = f"  petsc_gpufmt: single precision on the host, {found.history.size - 1} corrections by {outer}\n"
        assert expected in view_of(ksp, tmp_path)


@pytest.mark.parametrize("settings", AT_ONCE)
@pytest.mark.parametrize("outer", OUTER)
def test_other_values_sizes_and_preconditioners(grid, outer, settings):
    ksp = make_solver(grid, "mixedcg", pc_type="jacobi", ksp_mixedcg_outer=outer, ksp_rtol=RTOL, **settings)
    A = grid.duplicate(copy=True)
    for pc_type in ("jacobi", "none"):
        ksp.getPC().setType(pc_type)
        for shift in (0.0, 30.0):
            A.shift(shift)
            ksp.setOperators(A)
            x, b = A.createVecs()
            b.setArray(right_hand_side(343))
            found = run(ksp, b, x)
            again = run(ksp, b, x)
            assert found.x.tobytes() == again.x.tobytes()
            alone = mixed(A, right_hand_side(343), outer, pc_type=pc_type, ksp_rtol=RTOL)
            assert (found.iterations, found.x.tobytes()) == (alone.iterations, alone.x.tobytes())
    for n in (8, 30, 5):
        ksp.reset()
        A = diagonal_matrix(np.arange(1.0, n + 1.0))
        ksp.setOperators(A)
        x, b = A.createVecs()
        b.set(1.0)
        run(ksp, b, x)
        assert np.allclose(x.array, 1 / np.arange(1.0, n + 1.0), rtol=rounding(1e-9))


@pytest.mark.parametrize("settings", AT_ONCE)
def test_plans_are_asked_for_once_and_go_with_the_solver(grid, settings):
    ksp, (x, b) = make_solver(grid, "mixedcg", pc_type="jacobi", **settings), grid.createVecs()
    b.setArray(right_hand_side(343))
    run(ksp, b, x)
    held = settled_tokens()
    for _ in range(5):
        run(ksp, b, x)
    assert settled_tokens() == held
    ksp.setType("cg")
    assert settled_tokens() == held - 2
