"""Solves that something breaks; started by failing_solves.py: BEGIN JSON, on some ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support"), str(FOLDER.parent / "mpi")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init(["failing_solves"])

from failing import FailingDiagonal  # noqa: E402
from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402
from reliability.failing_solves import SOLVERS  # noqa: E402
from reliability.operations import LOST, OPTIONS, Maker, destroy, solve, solver  # noqa: E402

COMM = PETSc.COMM_WORLD.tompi4py()
WHEN = 1
"""The iteration in which something happens: the preconditioner is called once more before."""
NO_NUMBER = {PETSc.KSP.ConvergedReason.DIVERGED_NANORINF, PETSc.KSP.ConvergedReason.DIVERGED_PCSETUP_FAILED}


def last_row(things):
    return things["A"].getSize()[0] - 1


def set_entry(things, value):
    """The last diagonal entry, by the rank that has it; the one before is told."""
    A, row = things["A"], last_row(things)
    first, end = A.getOwnershipRange()
    before = COMM.bcast(A.getValue(row, row) if first <= row < end else None, root=COMM.size - 1)
    if first <= row < end:
        A.setValue(row, row, value)
    A.assemble()
    return before


def entry(value):
    def inject(things):
        before = set_entry(things, value)
        return lambda: set_entry(things, before)

    return inject


def right_hand_side(value):
    def inject(things):
        before = things["x"].getArray().copy()
        if COMM.rank == COMM.size - 1:
            things["x"].setValue(last_row(things), value)
        things["x"].assemble()
        return lambda: things["x"].setArray(before)

    return inject


def entry_within(things):
    """The entry is lost in an iteration."""
    before = []

    def monitor(ksp, iteration, norm):
        if iteration >= WHEN and not before:
            before.append(set_entry(things, np.nan))

    things["ksp"].setMonitor(monitor)

    def undo():
        things["ksp"].monitorCancel()
        if before:
            set_entry(things, before[0])

    return undo


def raising_monitor(things):
    def monitor(ksp, iteration, norm):
        if iteration >= WHEN:
            raise RuntimeError("on purpose")

    things["ksp"].setMonitor(monitor)
    return things["ksp"].monitorCancel


def raising_test(things):
    def converged(ksp, iteration, norm):
        if iteration >= WHEN:
            raise RuntimeError("on purpose")
        return None

    things["ksp"].setConvergenceTest(converged)
    return lambda: None


def raising_preconditioner(things):
    """On the last rank alone."""
    pc = things["ksp"].getPC()
    pc.setType("python")
    pc.setPythonContext(FailingDiagonal(things["A"], WHEN + 1))
    return lambda: None


NUMBERS = {
    "NaN in the matrix": entry(np.nan),
    "Inf in the matrix": entry(np.inf),
    "-Inf in the matrix": entry(-np.inf),
    "NaN in the right-hand side": right_hand_side(np.nan),
    "Inf in the right-hand side": right_hand_side(np.inf),
    "NaN in the matrix within a solve": entry_within,
}
OURS = ("gpucg", "gpubcgs", "gpugmres", "gpufgmres")
"""Solvers that keep what fails on one rank until all ranks know. With a preconditioner of Python others are PETSc's."""
ERRORS = {
    "an exception in a monitor": raising_monitor,
    "an exception in a test of convergence": raising_test,
    "an exception in a preconditioner, on one rank": raising_preconditioner,
}


def left_out(kind):
    """Solvers that are not tried."""
    if ERRORS.get(kind) is raising_preconditioner and COMM.size > 1:
        return [name for name in SOLVERS if name not in OURS]
    # the second set-up of PETSc's KSPCHEBYSHEV, which finds eigenvalues, crashes with a matrix of type aij too
    return ["gpuchebyshev"] if NUMBERS.get(kind) is entry_within else []


def prepared(name):
    ksp_type, _, pc_type = name.partition(" with ")
    return solver(ksp_type, pc_type or "jacobi")(Maker("aijpjds", PETSc.COMM_WORLD))


def outcome(things):
    """('error', message), ('reason', number)."""
    try:
        solve(things)
    except Exception as e:
        return "error", f"{type(e).__name__}: {str(e).splitlines()[-1]}"
    return "reason", things["ksp"].getConvergedReason()


def ends_badly(kind, ends):
    """What is wrong with how a solve has ended on the ranks."""
    kinds = {end[0] for end in ends}
    if len(kinds) > 1:
        return f"ranks end differently: {ends}"
    if kind in ERRORS:
        return "" if kinds == {"error"} else f"no error, but {ends}"
    if kinds == {"error"}:  # a solver may say that its matrix has changed
        return "" if NUMBERS[kind] is entry_within else f"an error: {ends[0][1]}"
    if len({end[1] for end in ends}) > 1:
        return f"ranks have different reasons: {ends}"
    return "" if ends[0][1] in NO_NUMBER else f"reason {ends[0][1]} is not that of a NaN"


def one(name, kind, planted):
    """What is wrong with a solve that is broken, and with one of the same objects that follows."""
    things = prepared(name)
    solve(things)
    expected, reason = things["z"].getArray().copy(), things["ksp"].getConvergedReason()
    undo = {**NUMBERS, **ERRORS}[kind](things)
    end = outcome(things)
    if planted == "reason" and end[0] == "reason":
        end = "reason", reason
    undo()
    bad = [ends_badly(kind, COMM.allgather(end))]
    failed = end[0] == "error"
    if failed:  # PETSc leaves vectors of a solver locked
        LOST.append(things)
        things = {**things, "ksp": prepared(name)["ksp"]}
        things["ksp"].setOperators(things["A"])
    if planted == "wrong":
        things["x"].scale(1.5)
    again = outcome(things)
    if again != ("reason", reason):
        bad.append(f"the next solve ends with {again}, not with reason {reason}")
    elif not np.allclose(things["z"].getArray(), expected, rtol=1e-6, atol=1e-8):
        bad.append("the next solve is wrong")
    if not failed:
        destroy(things)
    return [line for line in bad if line]


def main():
    given = json.loads(sys.argv[2])
    for option, value in OPTIONS.items():
        PETSc.Options()[option] = value
    child = Child(int(sys.argv[1]), COMM.rank == 0, limit=10.0, agree=lambda flag: COMM.bcast(flag))
    for kind in (*NUMBERS, *ERRORS):
        titles = {f"{kind}, {name}": name for name in given["solvers"] if name not in left_out(kind)}
        for title in child.tries(kind, list(titles)):
            for rank, lines in enumerate(COMM.allgather(one(titles[title], kind, given["planted"]))):
                if lines:
                    child.bad(kind, f"{title}, rank {rank}: {'; '.join(lines)}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
