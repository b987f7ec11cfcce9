"""Chebyshev's smoothers of ours do what PETSc's do on any number of ranks, and wait for no others than those do."""

import ctypes
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from dense import COMM, TYPE, distribute, layouts, rounding, scalars
from failing import LIBRARY, UNSUPPORTED, error_of, method_failing, plan_failing
from krylov_solves import check_same, make_solver, run
from petsc4py import PETSc

from petsc_gpufmt.krylov.steps import Method

GRID, ROWS = 12, 144
LINE = 2.0 * np.eye(GRID) - np.eye(GRID, k=1) - np.eye(GRID, k=-1)
DENSE = np.kron(LINE, np.eye(GRID)) + np.kron(np.eye(GRID), LINE) + np.diag(np.linspace(0, 3, ROWS))
RIGHT = np.random.default_rng(3).standard_normal(ROWS)
SMOOTHER = {"ksp_norm_type": "none", "pc_type": "jacobi", "ksp_chebyshev_eigenvalues": "0.2,2.2"}
BLOCK, POINTS = 3, 48
BLOCKS = {**SMOOTHER, "pc_type": "pbjacobi"}
GAMG = {"pc_type": "gamg", "pc_gamg_coarse_eq_limit": 10, "ksp_rtol": 1e-8}
WAYS = ("steps in the product", "each step a product and one pass over vectors")
TIGHT = rounding(1e-12)


def ways(ksp):
    """How smoothers were solved, as -ksp_view says."""
    with TemporaryDirectory() as own:
        path = COMM.tompi4py().bcast(str(Path(own) / "view.txt"))
        viewer = PETSc.Viewer().createASCII(path, comm=COMM)
        ksp.view(viewer)
        viewer.destroy()
        text = COMM.tompi4py().bcast(Path(path).read_text() if COMM.rank == 0 else None)
    return re.findall(r"petsc_gpufmt: (.*)", text)


def solved(A, ksp_type, view=None, **settings):
    """What a new KSP finds; what -ksp_view says of ours goes to the list `view`."""
    ksp, (x, b) = make_solver(A, ksp_type, COMM, **settings), A.createVecs()
    first, last = b.getOwnershipRange()
    b.setArray(scalars(RIGHT[first:last]))
    x.setArray(scalars(RIGHT[first:last] / 3))
    found = run(ksp, b, x)
    if view is not None:
        view += ways(ksp)
    for thing in (ksp, x, b):
        thing.destroy()
    return found


def check_iterates():
    for layout, local in layouts(ROWS).items():
        A = distribute(DENSE, TYPE, local, local)
        for iterations in (1, 2, 3):
            for guess in (False, True):
                settings = {**SMOOTHER, "ksp_max_it": iterations, "ksp_initial_guess_nonzero": guess}
                ours, theirs = (solved(A, kind, **settings) for kind in ("gpuchebyshev", "chebyshev"))
                assert np.allclose(ours.x, theirs.x, rtol=0, atol=TIGHT * np.abs(RIGHT).max()), layout
                assert (ours.reason, ours.iterations) == (theirs.reason, theirs.iterations)


def dense_in_blocks():
    """Symmetric and positive definite, no two diagonal blocks alike."""
    scale = np.diag(np.linspace(1, 2, ROWS))
    line = 2.5 * np.eye(POINTS) - np.eye(POINTS, k=1) - np.eye(POINTS, k=-1)
    return scale @ np.kron(line, np.eye(BLOCK) + np.full((BLOCK, BLOCK), 0.3)) @ scale


def check_blocks():
    for layout, local in layouts(POINTS).items():
        A, said = distribute(dense_in_blocks(), TYPE, BLOCK * local, BLOCK * local), []
        A.setBlockSize(BLOCK)
        for iterations in (1, 2, 3):
            for guess in (False, True):
                settings = {**BLOCKS, "ksp_max_it": iterations, "ksp_initial_guess_nonzero": guess}
                ours, theirs = (solved(A, kind, said, **settings) for kind in ("gpuchebyshev", "chebyshev"))
                assert np.allclose(ours.x, theirs.x, rtol=0, atol=TIGHT * np.abs(RIGHT).max()), layout
        assert {text.rpartition(" on the ")[0] for text in said} == {WAYS[1]}, (layout, said)
        settings = {**GAMG, "mg_levels_pc_type": "pbjacobi"}
        ours = solved(A, "cg", said, **settings)
        check_same(ours, solved(A, "cg", **settings, pc_gamg_gpufmt_smoother="petsc"))
        assert {text.rpartition(" on the ")[0] for text in said} == {WAYS[1]}, (layout, said)


def check_multigrid():
    said, options = [], {"mg_levels_ksp_max_it": 3, "mg_levels_ksp_gpuchebyshev_fused": True}
    for local in layouts(ROWS).values():
        A = distribute(DENSE, TYPE, local, local)
        ours = solved(A, "cg", said, **GAMG, **options)
        check_same(ours, solved(A, "cg", **GAMG, **options, pc_gamg_gpufmt_smoother="petsc"))
    assert said and {text.rpartition(" on the ")[0] for text in said} <= set(WAYS), said


def smoother(A, ksp_type="gpuchebyshev"):
    """A KSP of two steps, and vectors for it."""
    ksp, (x, b) = make_solver(A, ksp_type, COMM, **SMOOTHER, ksp_max_it=2), A.createVecs()
    b.set(1.0)
    return ksp, b, x


def check_no_sums_over_ranks():
    """A smoother waits for other ranks in products alone."""
    sums = ctypes.c_double.in_dll(LIBRARY, "petsc_allreduce_ct")
    A, counts = distribute(DENSE), []
    for ksp_type in ("chebyshev", "gpuchebyshev"):
        ksp, b, x = smoother(A, ksp_type)
        ksp.solve(b, x)
        before = sums.value
        for _ in range(5):
            ksp.solve(b, x)
        counts.append(sums.value - before)
    assert counts[1] <= counts[0], counts


def check_a_plan_that_fails():
    """It is made in the set-up, which ranks do together; the next solve makes it."""
    A = distribute(DENSE)
    ksp, b, x = smoother(A)
    with method_failing(Method.CHEBYSHEV):
        assert error_of(ksp.solve, b, x) == UNSUPPORTED
    ksp.solve(b, x)
    assert ksp.getConvergedReason() > 0
    A.setBlockSize(BLOCK)
    ksp.getPC().setType("pbjacobi")  # another plan, which the solve asks for
    with method_failing(Method.CHEBYSHEV):
        assert error_of(ksp.solve, b, x) == UNSUPPORTED
    ksp.solve(b, x)
    assert ksp.getConvergedReason() > 0 and WAYS[1] in ways(ksp)[0]
    ksp = make_solver(A, "cg", COMM, **GAMG)
    with method_failing(Method.CHEBYSHEV):
        assert error_of(ksp.setUp) == UNSUPPORTED
    ksp.solve(b, x)
    assert ksp.getConvergedReason() > 0


def check_a_product_that_fails():
    """On one rank, and so on all; the next solve is as if nothing had been."""
    A = distribute(DENSE)
    ksp, b, x = smoother(A)
    if COMM.size > 1 or "cuda" not in x.getType():
        ksp.setUp()  # on a device, this plans the block of its own columns, which is all that a single rank has
    with plan_failing(0 if COMM.rank == COMM.size - 1 else None):
        assert error_of(ksp.solve, b, x) == UNSUPPORTED
    ksp.solve(b, x)
    assert ksp.getConvergedReason() > 0 and np.isfinite(x.norm())


def estimated(mat_type, rows):
    """A smoother with estimates of its own, of so many rows on this rank, and what it makes of a vector."""
    A = PETSc.Mat().create(COMM)
    A.setSizes(((rows, None), (rows, None)))
    A.setType(mat_type)
    A.setUp()
    for row in range(*A.getOwnershipRange()):
        A.setValue(row, row, 3.0 + row % 3)
        for beside in {row - 1, row + 1} & set(range(A.getSize()[0])):
            A.setValue(row, beside, -1.0)
    A.assemble()
    settings = {"ksp_norm_type": "none", "pc_type": "jacobi", "ksp_max_it": 3}
    ksp = make_solver(A, "chebyshev" if mat_type == "aij" else "gpuchebyshev", COMM, **settings)
    x, b = A.createVecs()
    b.setArray(scalars(np.sin(np.arange(*b.getOwnershipRange()))))
    ksp.solve(b, x)
    return ksp, x.getArray().copy()


def check_estimators_of_as_many_rows_on_one_rank():
    """What an estimator has made goes to the next with as many rows: ranks do not take what they made with others."""
    options = PETSc.Options()
    options["mat_halo_timeout"] = 20
    if LIBRARY.GpufmtManagedSimulate(1):  # without a device: estimates are ours where vectors are on one
        options["mat_halo_mode"] = "peer"  # as on devices: sums over ranks are in what is kept
    rows = [20 if COMM.rank == 0 else other for other in (24, 16)]  # more than an estimate has steps
    user, _ = estimated(TYPE, 5)  # what is kept goes with the last
    made = [estimated(TYPE, n) for n in rows]
    for ksp, _ in made:
        ksp.destroy()
    for n, (_, before) in zip(rows, made, strict=True):
        ksp, found = estimated(TYPE, n)
        assert "Hessenberg matrix" in "".join(ways(ksp))
        assert np.allclose(found, before, rtol=TIGHT)
        assert np.allclose(found, estimated("aij", n)[1], rtol=rounding(1e-9))
        ksp.destroy()
    user.destroy()
    LIBRARY.GpufmtManagedSimulate(0)
    for name in ("mat_halo_mode", "mat_halo_timeout"):
        options.delValue(name)


check_iterates()
check_blocks()
check_multigrid()
check_a_product_that_fails()
check_no_sums_over_ranks()
check_a_plan_that_fails()
check_estimators_of_as_many_rows_on_one_rank()
