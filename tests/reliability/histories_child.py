"""Solves beside those of aij on one rank; started by histories.py: BEGIN JSON, on some ranks."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init(["histories"])

import scipy.sparse  # noqa: E402
from dealt import dealt  # noqa: E402
from multigrid import geometric_graph  # noqa: E402
from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402

CLOSE = 1e-10
"""By how much a norm may differ, relative to the one there, beside a rounding of the first, which it comes from."""
RTOL, MOST = 1e-8, 30
"""So much less than the first norm ends a solve, or so many iterations: a restart of gmres would round A x anew."""


@cache
def matrix_of(problem: str) -> tuple[scipy.sparse.csr_matrix, int]:
    """A positive definite matrix, and its block size."""
    if problem == "graph":
        graph = geometric_graph(1500, 8.0, seed=3)
        return scipy.sparse.csr_matrix((graph.values, graph.colidx, graph.rowptr)), 1
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (12, 12))
    seven = scipy.sparse.csr_matrix(scipy.sparse.kronsum(scipy.sparse.kronsum(line, line), line))
    if problem == "27-point":
        ones = scipy.sparse.diags([1.0, 1.0, 1.0], [-1, 0, 1], (12, 12))
        box = scipy.sparse.kron(scipy.sparse.kron(ones, ones), ones, "csr")
        return scipy.sparse.csr_matrix(27.0 * scipy.sparse.identity(box.shape[0]) - box), 1
    if problem == "blocks of 3":
        block = np.array([[1.0, 0.2, 0.1], [0.2, 1.1, 0.3], [0.1, 0.3, 0.9]])
        return scipy.sparse.csr_matrix(scipy.sparse.kron(seven, block)), 3
    if problem == "jump":
        size = scipy.sparse.diags(np.where(np.arange(seven.shape[0]) % 144 < 72, 1.0, 10.0))
        return scipy.sparse.csr_matrix(size @ seven @ size), 1
    return seven, 1


def dealt_in_blocks(problem: str, mat_type: str, comm: Any) -> PETSc.Mat:
    csr, block = matrix_of(problem)
    firsts = [block * (csr.shape[0] // block * k // comm.size) for k in range(comm.size + 1)]
    rows = np.diff(firsts).tolist()
    A = dealt(csr, mat_type, comm, rows, rows, block)
    A.setOption(A.Option.SPD, True)
    return A


def solve(A: PETSc.Mat, solver: str) -> tuple[np.ndarray, np.ndarray]:
    """Norms of the residual, and the entries of the solution that this rank has."""
    name, _, pc = solver.partition(", ")
    ksp = PETSc.KSP().create(A.getComm())
    ksp.setOperators(A)
    ksp.setType(name)
    ksp.setNormType(PETSc.KSP.NormType.PRECONDITIONED)
    ksp.getPC().setType({"Jacobi": "jacobi", "multigrid": "gamg"}[pc])
    ksp.setTolerances(rtol=RTOL, atol=0.0, max_it=MOST)
    ksp.setConvergenceHistory()
    x, b = A.createVecs()
    first, last = b.getOwnershipRange()
    b.setArray(1.0 + 0.5 * np.cos(np.arange(first, last)))
    ksp.solve(b, x)
    found = np.array(ksp.getConvergenceHistory()), x.array_r.copy()
    for thing in (ksp, x, b, A):
        thing.destroy()
    return found


@cache
def expected(problem: str, solver: str) -> tuple[np.ndarray, np.ndarray]:
    return solve(dealt_in_blocks(problem, "aij", PETSc.COMM_SELF), solver.removeprefix("gpu"))


def fault(problem: str, solver: str, mat_type: str, planted: bool) -> str:
    """What differs, '' if nothing does."""
    norms, x = expected(problem, solver)
    A = dealt_in_blocks(problem, mat_type, PETSc.COMM_WORLD)
    if planted:
        A.scale(1.0 + 1e-7)
    mine = slice(*A.getOwnershipRange())
    history, found = solve(A, solver)
    if "multigrid" in solver:
        if abs(len(history) - len(norms)) > 1:
            return f"{len(history) - 1} iterations, with aij {len(norms) - 1}"
        off = abs(found - x[mine]).max(initial=0.0) / abs(x).max()
        return f"the solution is off by {off:.1e}" if off > 100 * RTOL else ""
    if len(history) != len(norms):
        return f"{len(history) - 1} iterations, with aij {len(norms) - 1}"
    off = np.maximum(0.0, abs(history - norms) - np.finfo(np.float64).eps * norms[0]) / norms
    return f"the norm of iteration {off.argmax()} is off by {off.max():.1e}" if off.max() > CLOSE else ""


def main() -> None:
    given, comm = json.loads(sys.argv[2]), PETSc.COMM_WORLD.tompi4py()
    child = Child(int(sys.argv[1]), comm.rank == 0, limit=50.0, agree=lambda flag: comm.bcast(flag))
    for solver in given["solvers"]:
        pairs = [(problem, mat_type) for problem in given["problems"] for mat_type in given["types"]]
        tries = {f"{problem}, {mat_type}": (problem, mat_type) for problem, mat_type in pairs}
        for title in child.tries(solver, list(tries)):
            problem, mat_type = tries[title]
            for line in filter(None, comm.allgather(fault(problem, solver, mat_type, given["planted"]))):
                child.bad(solver, f"{title}: {line}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
