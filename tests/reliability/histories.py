"""Solves with types of ours on several ranks, beside those of PETSc's aij on one rank of the host."""

from __future__ import annotations

import json

from petsc_gpufmt.choice.registry import FORMATS
from reliability import children
from reliability.attack import Report, Row, part_of, ranks_in_words

ABOUT = (
    "Residual norms of each of 30 iterations beside those of type aij on one rank of the host: with Jacobi as many, "
    "each within 1e-10 of the norm there and a rounding of the first; with multigrid one more or less, and the same "
    "solution."
)
MINUTES = 2
RANKS = (1, 2, 3, 4)
PROBLEMS = ("7-point", "27-point", "graph", "blocks of 3", "jump")
SOLVERS = ("cg, Jacobi", "gpucg, Jacobi", "gmres, Jacobi", "gpugmres, Jacobi", "cg, multigrid", "gpucg, multigrid")


def try_all(types: list[str], ranks: int, problems: list[str], report: Report, planted: bool = False) -> list[Row]:
    """A row for each solver; each type solves each problem."""
    request = {"types": types, "problems": problems, "solvers": SOLVERS, "planted": planted}
    found = children.run("histories_child", [json.dumps(request)], ranks, report)
    report(f"{ranks_in_words(ranks)}: {sum(tried for _, tried, _ in found.values())} solves")
    return [Row(f"{what}, {ranks_in_words(ranks)}", asked, tried, bad) for what, (asked, tried, bad) in found.items()]


def run(share: float, seed: int, report: Report) -> list[Row]:
    types = [f"aij{name}" for name in FORMATS][: part_of(len(FORMATS), share)]
    problems = list(PROBLEMS[: part_of(len(PROBLEMS), share)])
    return [row for ranks in RANKS for row in try_all(types, ranks, problems, report)]
