"""Solvers on the ranks of this program, which ``bench ksp`` starts with a task, as JSON, and a file.

All contenders of a matrix are there together, and are measured in turn. The file gets a line of JSON for each of them.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.bench.rank_cases import keep_cases
from petsc_gpufmt.bench.rank_rows import RankRows
from petsc_gpufmt.bench.rank_spd import make_spd_rows, matrix_name, right_hand_side
from petsc_gpufmt.choice.registry import FORMATS

REPEATS, SOLVES = 9, 5
"""How often iterations and whole solves are timed."""

WARM_UP = 2  # solves

FEW, MANY = 40, 240
"""Iterations of the solves whose difference is timed; of MANY those that a solve to the tolerance takes at most."""
TOGETHER = 8  # iterations that one launch of a graph makes at most
RESTART = 30
RESTARTED = ("gmres", "fgmres", "gpugmres", "gpufgmres")
UNREACHED = 1e-50
"""A relative tolerance of the solves that are to make all of their iterations."""

ENOUGH = 1.1
"""So many tolerances the true residual may have: a norm that a method updates is not exactly its norm."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """A solver.

    Attributes
    ----------
    ksp, matrix_type : types of KSP and Mat
    outer : of -ksp_mixedcg_outer, None for other types
    against : label of the contender that it is compared with, None for a peer
    """

    ksp: str
    matrix_type: str
    outer: str | None = None
    against: str | None = None

    @property
    def label(self) -> str:
        return f"{self.ksp}{f' ({self.outer})' if self.outer else ''}, {self.matrix_type}"


@dataclasses.dataclass(frozen=True)
class Task:
    """What all ranks do.

    Attributes
    ----------
    matrices : as rank_spd.py names them
    contenders : of each matrix; in JSON as dictionaries
    pc : type of PC
    rtol : relative tolerance of the residual of the whole solves
    max_it : the most iterations of these
    history : whether the residuals of a solve are kept
    """

    matrices: tuple[str, ...]
    contenders: tuple[Contender, ...]
    pc: str
    rtol: float
    max_it: int
    history: bool

    @classmethod
    def of_json(cls, text: str) -> Task:
        words = json.loads(text)
        return cls(**words | {"contenders": tuple(Contender(**contender) for contender in words["contenders"])})


def make_matrix(rows: RankRows, matrix_type: str, comm: Any) -> Any:
    from petsc4py import PETSc

    A = PETSc.Mat().create(comm)
    A.setSizes(((rows.rowptr.size - 1, None),) * 2)
    A.setBlockSizes(rows.block_size, rows.block_size)
    A.setType(f"aij{matrix_type}" if matrix_type in FORMATS else matrix_type)
    A.setFromOptions()
    A.setPreallocationCSR((rows.rowptr, rows.colidx, rows.values))
    return A


class Solver:
    """A contender with its matrix, which others may have too, and vectors that all have: A x = b, begun with 0.

    `check` is the matrix that multiplies for true residuals.
    """

    def __init__(self, contender: Contender, A: Any, check: Any, b: Any, x: Any, task: Task):
        from petsc4py import PETSc

        self.contender, self.task = contender, task
        self.check, self.b, self.x = check, b, x
        self.ksp = PETSc.KSP().create(A.getComm())
        self.ksp.setOperators(A)
        self.ksp.setType(contender.ksp)
        self.ksp.getPC().setType(task.pc)
        # so all stop by the norm of the residual itself; those of Krylov spaces of any matrix have it on the right
        self.ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        if contender.ksp.removeprefix("gpu") in ("bcgs", "gmres", "fgmres"):
            self.ksp.setPCSide(PETSc.PC.Side.RIGHT)
        if contender.outer:
            PETSc.Options()["ksp_mixedcg_outer"] = contender.outer
        self.ksp.setFromOptions()
        self.wait = driver.synchronize_context if A.getVecType().endswith("cuda") else int

    def seconds(self, rtol: float, max_it: int) -> float:
        """Of a solve, by the wall clock, on the slowest rank."""
        self.ksp.setTolerances(rtol=rtol, atol=0.0, max_it=max_it)
        comm = self.ksp.getComm()
        self.wait()
        comm.barrier()
        start = time.perf_counter()
        self.ksp.solve(self.b, self.x)
        self.wait()
        comm.barrier()
        return time.perf_counter() - start

    def whole(self) -> float:
        """Seconds of a solve to the tolerance."""
        return self.seconds(self.task.rtol, self.task.max_it)

    def residual(self, x: Any) -> float:
        """||b - A x|| / ||b||."""
        r = self.b.duplicate()
        self.check.mult(x, r)
        r.aypx(-1.0, self.b)
        found = r.norm() / self.b.norm()
        r.destroy()
        return found

    def history(self) -> list[tuple[int, float]]:
        """Iterations and true residuals of a solve where the method tests its norm; it is slower than others."""
        found, x = [], self.b.duplicate()

        def look(ksp: Any, iteration: int, norm: float) -> None:
            found.append((iteration, self.residual(ksp.buildSolution(x)) if iteration else 1.0))

        self.ksp.setMonitor(look)
        self.whole()
        self.ksp.monitorCancel()
        x.destroy()
        return found

    def said(self) -> str:
        """What -ksp_view says of this package: how a solve of ours was made, or why it was left to PETSc."""
        from petsc4py import PETSc

        comm = self.ksp.getComm()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "view")
            viewer = PETSc.Viewer().createASCII(str(path), comm=comm)
            self.ksp.view(viewer)
            viewer.destroy()
            text = path.read_text() if comm.rank == 0 else ""
        lines = [line.partition("petsc_gpufmt: ")[2] for line in text.partition("Mat Object")[0].splitlines()]
        return "; ".join(filter(None, lines))

    def destroy(self) -> None:
        self.ksp.destroy()


def few_and_many(iterations: int, restarted: bool) -> tuple[int, int] | None:
    """Iterations of two solves of which neither comes below the residual that `iterations` reach.

    A method with restarts makes whole ones, two at least. None if there are too few to tell a difference.
    """
    step = RESTART if restarted else TOGETHER if iterations >= 3 * TOGETHER else 1
    many = min(MANY, max(iterations, 2 * RESTART if restarted else 0)) // step * step
    few = min(FEW, many // 3) // step * step or step
    return (few, many) if few < many else None


def iteration_seconds(solvers: Sequence[Solver], iterations: int) -> list[tuple[list[float], tuple[int, int] | None]]:
    """Of each solver the seconds of an iteration, as often as it was timed, and how many two solves had.

    No seconds and None where a solve ends too soon. All solvers make `iterations` at least before their tolerance.
    """
    pairs = [few_and_many(iterations, solver.contender.ksp in RESTARTED) for solver in solvers]
    found: list[list[float]] = [[] for _ in solvers]
    for repeat in range(-1, REPEATS):  # the first does not count
        for k, solver in enumerate(solvers):
            pair = pairs[k]
            if pair is None:
                continue
            seconds = []
            for count in pair:
                seconds.append(solver.seconds(UNREACHED, count))
                if solver.ksp.getIterationNumber() != count:
                    pairs[k] = None
            if repeat >= 0:
                found[k].append((seconds[1] - seconds[0]) / (pair[1] - pair[0]))
    return [(times if pair else [], pair) for times, pair in zip(found, pairs, strict=True)]


def spread(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """Median, least and largest; None for each where there is no time, or the median is lost in noise.

    Seconds may be differences: a least one that is below 0 by noise is 0.
    """
    if not seconds or statistics.median(seconds) <= 0:
        return {f"{name}_seconds": None, f"least_{name}_seconds": None, f"largest_{name}_seconds": None}
    return {
        f"{name}_seconds": statistics.median(seconds),
        f"least_{name}_seconds": max(0.0, min(seconds)),
        f"largest_{name}_seconds": max(seconds),
    }


def measured(solvers: Sequence[Solver], task: Task) -> Iterator[dict[str, Any]]:
    """What was found of each solver, all of them in turn."""
    for _ in range(WARM_UP):
        for solver in solvers:
            solver.whole()
    # one that breaks down does not keep the others from being timed
    ends = [(of.ksp.getConvergedReason(), of.ksp.getIterationNumber()) for of in solvers]
    counts = [count for reason, count in ends if reason > 0 or count == task.max_it]
    of_iterations = iteration_seconds(solvers, min(counts, default=0))
    whole: list[list[float]] = [[] for _ in solvers]
    found: list[dict[str, Any]] = [{} for _ in solvers]
    for _ in range(SOLVES):
        for k, solver in enumerate(solvers):
            whole[k].append(solver.whole())
            residual, reason = solver.residual(solver.x), int(solver.ksp.getConvergedReason())
            found[k] = {
                "iterations": solver.ksp.getIterationNumber(),
                "reason": reason,
                "residual": residual,
                "correct": reason > 0 and residual <= ENOUGH * task.rtol and found[k].get("correct", True),
            }
    for solver, (seconds, pair), of_whole, end in zip(solvers, of_iterations, whole, found, strict=True):
        yield {
            **spread("iteration", seconds),
            "timed_iterations": pair,
            **spread("solve", of_whole),
            **end,
            "said": solver.said(),
            **({"history": solver.history()} if task.history else {}),
        }


def cases(task: Task) -> Iterator[dict[str, Any]]:
    """Each contender of each matrix; of the matrix there is one object for each type."""
    from petsc4py import PETSc

    comm = PETSc.COMM_WORLD
    scalar, index = native_library.real_types()
    for spec in task.matrices:
        rows = make_spd_rows(spec, comm.rank, comm.size, scalar, index)
        size = rows.size
        types = dict.fromkeys(contender.matrix_type for contender in task.contenders)
        matrices = {name: make_matrix(rows, name, comm) for name in types}
        del rows
        first = next(iter(matrices.values()))
        x, b = first.createVecs()
        x.set(0.0)  # starts PETSc's device
        b.setArray(right_hand_side(range(*b.getOwnershipRange()), scalar))
        solvers = [Solver(of, matrices[of.matrix_type], first, b, x, task) for of in task.contenders]
        facts = {
            "matrix": matrix_name(spec, size),
            "ranks": comm.size,
            "pc": task.pc,
            "rtol": task.rtol,
            "rows": size,
            "nnz": int(first.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"]),
        }
        for solver, found in zip(solvers, measured(solvers, task), strict=True):
            named = dataclasses.asdict(solver.contender) | {"label": solver.contender.label}
            yield {**facts, **named, **found}
        for item in (*solvers, x, b, *matrices.values()):
            item.destroy()


if __name__ == "__main__":
    task = Task.of_json(sys.argv[1])
    keep_cases(lambda: cases(task), Path(sys.argv[2]))
