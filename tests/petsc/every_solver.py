"""A program: one linear problem solved by one preconditioner or method after another, with matrices of several types.

    python every_solver.py SOLVERS.json TYPE ...

The file has a list of [name, options]; options are words as PETSc takes them, with MATIS where the matrix is to be
converted to the unassembled type, and DM where the solver is to know the grid. Prints a line of JSON for each of these
and each type: the reason why the solve ended, its iterations and the norm of the difference from the solution by the
first type, or the last line of the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

import petsc_gpufmt  # noqa: F401  registers the types

GRID, UNKNOWNS = (7, 5, 5), 2
COUPLING = np.array([[2.0, 0.5], [0.5, 2.0]])
COMMON = {"ksp_rtol": "1e-9", "ksp_max_it": "400"}
NEIGHBOURS = [(0, 0, 0), *(tuple(s * (d == k) for d in range(3)) for k in range(3) for s in (-1, 1))]


class Scaled:
    """A preconditioner in Python: the residual, scaled."""

    def apply(self, pc: Any, x: Any, y: Any) -> None:
        x.copy(y)
        y.scale(0.1)


class Steps:
    """A method in Python: steps along the preconditioned residual."""

    def solve(self, ksp: Any, b: Any, x: Any) -> None:
        A, _ = ksp.getOperators()
        residual, step = b.duplicate(), b.duplicate()
        x.set(0)
        for iteration in range(401):
            A.mult(x, residual)
            residual.aypx(-1, b)
            ksp.setIterationNumber(iteration)
            ksp.setConvergedReason(ksp.callConvergenceTest(iteration, residual.norm()))
            if ksp.reason:
                break
            ksp.getPC().apply(residual, step)
            x.axpy(1, step)


def laplacian(mat_type: str) -> tuple[Any, Any]:
    """A grid and a matrix on it: -div grad by seven points, for two unknowns a point that are coupled."""
    da = PETSc.DMDA().create(GRID, dof=UNKNOWNS, stencil_width=1, comm=PETSc.COMM_WORLD)
    da.setMatType(mat_type)
    A = da.createMat()
    row, column = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
    for point in np.ndindex(*GRID):
        if not all(low <= p < high for p, (low, high) in zip(point, da.getRanges(), strict=True)):
            continue
        for step in NEIGHBOURS:
            other = tuple(int(p + s) for p, s in zip(point, step, strict=True))
            if not all(0 <= p < n for p, n in zip(other, GRID, strict=True)):
                continue
            for (i, j), coupling in np.ndenumerate(COUPLING):
                row.index, row.field, column.index, column.field = point, i, other, j
                A.setValueStencil(row, column, coupling * (-1 if any(step) else 6.2 + 0.05 * point[0]))
    A.assemble()
    return da, A


def solve(options: list[str], da: Any, A: Any, first: Any) -> tuple[dict[str, Any], Any]:
    """What became of the solve, and its solution, None after an error."""
    ksp = PETSc.KSP().create(PETSc.COMM_WORLD)
    ksp.setOptionsPrefix("every_")
    ksp.setOperators(A)
    if da:
        ksp.setDM(da)
        ksp.setDMActive(PETSc.KSP.DMActive.ALL, False)
    database = PETSc.Options("every_")
    pairs = {**COMMON, **options_by_name(options)}
    for name, value in pairs.items():
        database[name] = value
    try:
        ksp.setFromOptions()
        x, b = A.createVecs()
        b.setArray(np.sin(1.0 + np.arange(*b.getOwnershipRange())))
        ksp.solve(b, x)
    except PETSc.Error as error:
        return {"error": str(error).splitlines()[-1]}, None
    finally:
        for name in pairs:
            database.delValue(name)
    distance = (x - (first or x)).norm() / x.norm()
    return {"reason": ksp.reason, "iterations": ksp.getIterationNumber(), "distance": distance}, x


def options_by_name(words: list[str]) -> dict[str, str | None]:
    """Options and their values, None for one that has none."""
    pairs: dict[str, str | None] = {}
    for word in words:
        if word.startswith("-"):
            name = word[1:]
            pairs[name] = None
        else:
            pairs[name] = word
    return pairs


def main() -> None:
    solvers, types = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:]
    problems = {mat_type: laplacian(mat_type) for mat_type in types}
    for name, options in solvers:
        first = None
        for mat_type, (da, whole) in problems.items():
            A = whole.copy()  # that a solver which fails leaves nothing behind
            A.setVariableBlockSizes(np.full(A.getLocalSize()[0] // UNKNOWNS, UNKNOWNS, PETSc.IntType))
            if "MATIS" in options:
                A.convert("is")
            words = [word for word in options if word not in ("MATIS", "DM")]
            outcome, x = solve(words, da if "DM" in options else None, A, first)
            first = first or x
            PETSc.Sys.Print(json.dumps({"name": name, "type": mat_type, **outcome}))


if __name__ == "__main__":
    main()
