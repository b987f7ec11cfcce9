"""Memory runs out in each allocation of each operation in turn."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import launch

from petsc_gpufmt.choice.registry import FORMATS
from reliability import children
from reliability.attack import Report, Row

ABOUT = "Each allocation of an operation fails in turn: an error, nothing lost, and the operation works right after it."
MINUTES = 10
QUICK_SHARE = 0.05  # below it, one child of several is enough to see that the attack runs
PLACES = {
    "package": "PETSc's allocator in the package's files",
    "petsc": "PETSc's allocator in PETSc's files",
    "malloc": "malloc and its like in the package's library and NumPy",
}
NOT_OF_PETSC = ("multigrid", "solvers")
NOT_TOGETHER = ("create and convert", "sums and scaling")
"""Each rank makes its part by itself: with an error on one rank alone, it is the program that ends the others."""
REMARKS = {
    "petsc": "under functions of the package, without solvers: PETSc cannot destroy its half-made vectors",
    "malloc": "the library calls malloc for kernels of a GPU only: these are arrays of the planner",
}
TOGETHER = "but for those in MatCreateSubMatrix(): there other ranks wait with any type"


def jobs(share: float, seed: int) -> list[list[str]]:
    """Operations and types: all of pjds, and for the other types those that differ by the type."""
    from reliability.operations import OF_ALL_TYPES, OPERATIONS

    chosen = [[name, "aijpjds"] for name in OPERATIONS]
    others = [f"aij{name}" for name in FORMATS if name != "pjds"]
    chosen += [[name, mat_type] for mat_type in others for name in OF_ALL_TYPES]
    return chosen if share >= QUICK_SHARE else chosen[seed % 3 :: 3][:20]


def group_of(name: str) -> str:
    from reliability.operations import OPERATIONS

    return OPERATIONS[name].group


def compiled(folder: Path) -> Path:
    """The library that makes malloc fail."""
    library = folder / "failing_allocations.so"
    source = launch.PROGRAMS / "failing_allocations.c"
    compiler = launch.petsc_variables()["CC"].split()
    finished = launch.run([*compiler, "-shared", "-fPIC", "-O2", source, "-o", library])
    assert finished.status == 0, str(finished)
    return library


def try_all(
    where: str, ranks: int, given: list[list[str]], step: int, seed: int, report: Report, failing_rank: int = 0
) -> list[Row]:
    """Every `step`-th allocation of the jobs fails, on one rank; their rows."""
    on = "sequential" if ranks == 1 else f"{ranks} ranks, fails on rank {failing_rank}"
    request = {
        "jobs": given,
        "where": where,
        "rank": failing_rank,
        "step": step,
        "offset": seed,
        "row": f"{{}}, {PLACES[where]}, {on}",
    }
    with tempfile.TemporaryDirectory() as folder:
        preload = {"LD_PRELOAD": str(compiled(Path(folder)))} if where == "malloc" else {}
        rows = children.run("allocations_child", [json.dumps(request)], ranks, report, **preload)
    remark = TOGETHER if ranks > 1 else REMARKS.get(where, "")
    return [Row(row, asked, tried, bad, remark) for row, (asked, tried, bad) in rows.items() if asked]


def run(share: float, seed: int, report: Report) -> list[Row]:
    step, given = max(1, round(1 / share)), jobs(share, seed)
    step = min(step, 40)
    runs = [("package", 1, 0), ("petsc", 1, 0), ("malloc", 1, 0), ("package", 2, 0), ("package", 2, 1)]
    if share < QUICK_SHARE:
        runs.pop()
    rows = []
    for where, ranks, rank in runs:
        left_out = NOT_OF_PETSC if where == "petsc" else NOT_TOGETHER if ranks > 1 else ()
        some = [job for job in given if group_of(job[0]) not in left_out]
        made = try_all(where, ranks, some, min(step, 3) if where == "package" else step, seed, report, rank)
        report(f"{PLACES[where]}, {ranks} ranks: {sum(row.tried for row in made)} tried")
        rows += made
    return rows
