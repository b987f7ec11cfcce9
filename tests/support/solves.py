"""Linear solves through petsc4py, and what there is to compare of two of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bounds import rounding
from builders import CsrMatrix
from petsc4py import PETSc
from petsc_products import petsc_matrix

from petsc_gpufmt.backends import native_library

NEWER = PETSc.Sys.getVersion() >= (3, 26)
MODIFIED = {"ksp_orthogonalization": "mgs"} if NEWER else {"ksp_gmres_modifiedgramschmidt": True}
REFINEMENT = f"ksp_{'orthogonalization' if NEWER else 'gmres'}_cgs_refinement_type"
"""Options of PETSc's GMRES, by their names in its releases."""

ENDS = (
    {"ksp_max_it": 5},
    {"ksp_max_it": 1},
    {"ksp_max_it": 0},
    {"ksp_max_it": 5, "ksp_converged_maxits": True},
    {"ksp_atol": 1.0, "ksp_rtol": 0},
    {"ksp_divtol": 1e-9, "ksp_rtol": 1e-12},
    {"ksp_initial_guess_nonzero": True, "ksp_converged_use_initial_residual_norm": True},
    {"ksp_convergence_test": "skip", "ksp_max_it": 6},
    {"ksp_error_if_not_converged": True},
)
"""Options by which solves end in several ways."""
_numbers = itertools.count()


class Solve(NamedTuple):
    """PETSc's reason for the end, the number of iterations, the norms of all, and the solution."""

    reason: int
    iterations: int
    history: np.ndarray
    x: np.ndarray


def right_hand_side(n: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(n).astype(PETSc.ScalarType)


def diagonal_matrix(values: np.ndarray) -> Any:
    """Of type pjds."""
    n = len(values)
    return petsc_matrix(CsrMatrix(n, n, np.arange(n + 1), np.arange(n), np.asarray(values, PETSc.ScalarType)), "pjds")


def make_solver(A: Any, ksp_type: str, comm: Any = PETSc.COMM_SELF, **settings: Any) -> Any:
    """A KSP of a type with the options `settings`. Their prefix is its own: set-ups read some of them later."""
    ksp = PETSc.KSP().create(comm)
    prefix = f"solver_{next(_numbers)}_"
    ksp.setOptionsPrefix(prefix)
    ksp.setOperators(*A) if isinstance(A, tuple) else ksp.setOperators(A)
    database = PETSc.Options(prefix)
    for name, value in {"ksp_type": ksp_type, **settings}.items():
        database[name] = value
    ksp.setFromOptions()
    ksp.setConvergenceHistory()
    return ksp


def run(ksp: Any, b: Any, x: Any) -> Solve:
    """From x on, if the KSP begins with a guess."""
    ksp.setConvergenceHistory(reset=True)
    ksp.solve(b, x)
    return Solve(ksp.getConvergedReason(), ksp.getIterationNumber(), ksp.getConvergenceHistory().copy(), x.array.copy())


def solve(
    A: Any, b: np.ndarray, ksp_type: str, prepare: Callable[[Any], None] = lambda ksp: None, **settings: Any
) -> Solve:
    """By a new KSP, with options `settings`, which `prepare` is called with; a guess, if it is wanted, is b / 2."""
    operator = A[0] if isinstance(A, tuple) else A
    ksp, (x, rhs) = make_solver(A, ksp_type, **settings), operator.createVecs()
    prepare(ksp)
    rhs.setArray(np.asarray(b, PETSc.ScalarType))
    x.setArray(np.asarray(b, PETSc.ScalarType) / 2)
    found = run(ksp, rhs, x)
    for thing in (ksp, x, rhs):
        thing.destroy()
    return found


def check_same(ours: Solve, theirs: Solve, tolerance: float = 1e-8) -> None:
    """The same end, the same norms relative to the first, and the same solution."""
    assert (ours.reason, ours.iterations) == (theirs.reason, theirs.iterations)
    assert ours.history.size == theirs.history.size
    for found, expected in ((ours.history, theirs.history), (ours.x, theirs.x)):
        finite = np.isfinite(expected)
        assert (np.isfinite(found) == finite).all()
        scale = np.abs(expected[finite]).max(initial=1e-300)
        assert np.abs(found[finite] - expected[finite]).max(initial=0.0) <= rounding(tolerance) * scale


def compared(theirs: str, A: Any, b: np.ndarray, check: int = 0, **settings: Any) -> Solve:
    """By our type after a comparison with PETSc's, such as "cg"; `check` is what our option of that name says."""
    ours = solve(A, b, f"gpu{theirs}", **{f"ksp_gpu{theirs}_check": check}, **settings)
    check_same(ours, solve(A, b, theirs, **settings))
    return ours


def nest_of(A: Any) -> Any:
    """A matrix of two such blocks, whose vectors are of type nest."""
    nest = PETSc.Mat().createNest([[A, None], [None, A]], comm=PETSc.COMM_SELF)
    nest.setNestVecType("nest")
    return nest


def view_of(ksp: Any, folder: Path) -> str:
    """What -ksp_view prints."""
    viewer = PETSc.Viewer().createASCII(str(folder / "view.txt"), comm=ksp.comm)
    ksp.view(viewer)
    viewer.destroy()
    return (folder / "view.txt").read_text()


@contextmanager
def informing() -> Iterator[None]:
    """With -info, on standard output."""
    library = native_library.load()
    library.PetscInfoSetFile(None, b"w")
    library.PetscInfoAllow(1)
    try:
        yield
    finally:
        library.PetscInfoAllow(0)
