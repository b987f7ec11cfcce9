"""Type mixedcg solves as accurately as cg on any number of ranks, and what fails on one rank fails on all."""

import ctypes
from contextlib import contextmanager

import numpy as np
from dense import COMM, TYPE, distribute, layouts, mode_instead_of
from failing import LIBRARY, ORDER, UNSUPPORTED, method_failing, plan_failing
from krylov_solves import Solves, make_solver
from petsc4py import PETSc

from petsc_gpufmt.krylov.steps import Method

ROWS, LAST = 90, COMM.size - 1
OUTER = ("replacement", "refinement", "flexible")
RANDOM = np.random.default_rng(3)
SCALE = 1 + 4 * RANDOM.random(ROWS)
DENSE = np.diag(np.full(ROWS, 2.3)) - np.eye(ROWS, k=1) - np.eye(ROWS, k=-1) - 0.1 * np.eye(ROWS, k=40)
DENSE = np.outer(SCALE, SCALE) * (DENSE + DENSE.T) / 2
RIGHT = RANDOM.standard_normal(ROWS)
SOLVES = Solves(RIGHT)


def solver(A, outer="replacement", **settings):
    return make_solver(A, "mixedcg", COMM, **{"pc_type": "jacobi", "ksp_mixedcg_outer": outer, **settings})


def solved(A, outer, right=RIGHT, **settings):
    """The end, which is the same on all ranks, and all of x."""
    found = Solves(right).run(solver(A, outer, **settings), A)
    assert len(set(COMM.tompi4py().allgather((found.reason, found.iterations, found.history.tobytes())))) == 1
    return found, np.concatenate(COMM.tompi4py().allgather(found.x))


@contextmanager
def halo_mode_named(mode):
    """-mat_halo_mode, where `mode` is one."""
    options = PETSc.Options()
    before = options.getString("mat_halo_mode", "")
    if mode:
        options["mat_halo_mode"] = mode
    yield
    options["mat_halo_mode"] = before
    if not before:
        options.delValue("mat_halo_mode")


def check_residuals():
    for layout, local in layouts(ROWS).items():
        A = distribute(DENSE, TYPE, local, local)
        for outer in OUTER:
            for check in (0, 10):
                found, x = solved(A, outer, ksp_rtol=1e-11, ksp_mixedcg_check=check, ksp_mixedcg_graph=not check)
                norms = [np.linalg.norm(r / DENSE.diagonal()) for r in (RIGHT, RIGHT - DENSE @ x)]
                assert found.reason == 2 and norms[1] <= 1.01e-11 * norms[0], (layout, outer)
                assert np.allclose(found.history[[0, -1]], norms, rtol=1e-2), (layout, outer)
                assert 3 < found.history.size < 12, (layout, outer)


def check_modes():
    """Entries in single precision go through memory of other ranks, or as messages: the same bits.

    So do sums, which MPI may add up in another order than that of the ranks where there are more than two; single
    precision rounds what comes of that.
    """
    found, messages = {}, PETSc.Log.Event("SFBcastBegin")
    for mode in ("overlap", "peer"):
        with halo_mode_named(mode):
            A = distribute(DENSE)
            solved(A, "refinement")
            A.scale(2.0)  # the exchange is that of the first solve
            PETSc.Log.begin()
            before = messages.getPerfInfo()["count"]
            found[mode] = solved(A, "refinement", ksp_norm_type="natural", ksp_mixedcg_check=7)
            sent = messages.getPerfInfo()["count"] - before
            by_messages = COMM.size > 1 and mode_instead_of(mode) == "overlap"
            assert (sent > found[mode][0].iterations) == by_messages, (mode, sent)
            for graph in (False, True):
                found[mode, graph] = solved(A, "refinement", ksp_norm_type="natural", ksp_mixedcg_graph=graph)
    for name, (ended, x) in found.items():
        mode = name if isinstance(name, str) else name[0]
        for other, bound in (mode, 0.0), ("overlap", 0.0 if COMM.size <= 2 else 1e-6):
            expected, solution = found[other]
            assert ended.history.shape == expected.history.shape, (name, other)
            assert abs(x - solution).max() <= bound * abs(solution).max(), (name, other)
            assert abs(ended.history - expected.history).max() <= bound * expected.history[0], (name, other)


def check_scaling():
    """Entries of one rank that leave the range of single precision."""
    scale = np.where(np.arange(ROWS) < 3, 1e30, 1.0)
    scaled = np.outer(scale, scale) * DENSE
    for outer in OUTER:
        found, x = solved(distribute(scaled), outer, RIGHT * scale, ksp_rtol=1e-11, ksp_norm_type="natural")
        expected = np.linalg.solve(DENSE, RIGHT)
        assert found.reason == 2 and np.allclose(x * scale, expected, rtol=0, atol=1e-8 * abs(expected).max())


def check_ends():
    """Among them those of PETSc's method, after what one rank alone has seen."""
    rows = np.arange(ROWS)
    for outer in OUTER:
        indefinite, first = distribute(np.diag(np.where(rows == ROWS - 1, -1.0, 1.0 + rows))), np.eye(ROWS)[0]
        assert (
            solved(indefinite, outer, first + np.eye(ROWS)[-1], pc_type="none")[0].reason == -10
        )  # DIVERGED_INDEFINITE_MAT
        unknown = distribute(np.diag(np.where(rows == 0, np.nan, 1.0)))
        assert solved(unknown, outer, pc_type="none")[0].reason == -9  # DIVERGED_NANORINF
        assert solved(distribute(DENSE), outer, ksp_max_it=7)[0].iterations == 7
        assert solved(distribute(np.zeros((1, 1)) + 4), outer, np.ones(1))[0].iterations == 1
        assert solved(distribute(DENSE), outer, np.zeros(ROWS))[0].iterations == 0


def check_plans_that_fail():
    for method in (Method.MIXED, Method.CG):
        A = distribute(DENSE)
        ksp = solver(A)
        with method_failing(method):
            SOLVES.fails(ksp, A, UNSUPPORTED)
        SOLVES.succeeds(ksp, A)
    A = distribute(DENSE)
    SOLVES.succeeds(solver(A), A)
    A.scale(2.0)
    A.axpy(1.0, distribute(np.eye(ROWS, k=7) + np.eye(ROWS, k=-7)), structure=A.Structure.DIFFERENT_NONZERO_PATTERN)
    A.shift(200.0)
    ksp = solver(A)
    with plan_failing(0 if COMM.rank == LAST else None):
        SOLVES.fails(ksp, A, UNSUPPORTED)
    SOLVES.succeeds(ksp, A)


def own_block(A):
    """The diagonal block of this rank."""
    blocks = [ctypes.c_void_p(), ctypes.c_void_p()]
    assert LIBRARY.MatMPIAIJGetSeqAIJ(ctypes.c_void_p(A.handle), *map(ctypes.byref, blocks), None) == 0
    return blocks[0]


def check_a_product_that_fails():
    """Values of one rank change while the solve is on, so its copy is not current: its sums tell the others."""
    for outer, mode in [*((outer, None) for outer in OUTER), ("replacement", "peer")]:
        A = distribute(DENSE)

        def other_values(_, iteration, __, A=A):
            if iteration and COMM.rank == LAST:
                state, block = ctypes.c_int64(), own_block(A)
                assert LIBRARY.PetscObjectStateGet(block, ctypes.byref(state)) == 0
                assert LIBRARY.PetscObjectStateSet(block, ctypes.c_int64(state.value + 1)) == 0

        ksp = solver(A, outer, ksp_rtol=1e-11, ksp_mixedcg_graph=bool(mode))
        ksp.setMonitor(other_values)
        with halo_mode_named(mode):
            SOLVES.fails(ksp, A, ORDER)
        ksp.monitorCancel()
        SOLVES.succeeds(ksp, A)


check_residuals()
check_modes()
check_scaling()
check_ends()
check_plans_that_fail()
if COMM.size > 1:
    check_a_product_that_fails()
