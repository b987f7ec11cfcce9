"""Solvers side by side: who is measured, and what is made of the times of iterations and of whole solves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from petsc_gpufmt.bench.command import MAX_IT, RTOL
from petsc_gpufmt.bench.rank_ksp import Contender, Task
from petsc_gpufmt.bench.rank_spd import is_file

MATRICES = {"cuda": ("7point:50", "27point:128", "7point:256"), "host": ("7point:20", "27point:20")}
METHODS = {"cg": "gpucg", "bcgs": "gpubcgs", "gmres": "gpugmres", "fgmres": "gpufgmres"}
"""Type of PETSc's KSP -> type of ours with the same method."""
MIXED, DOUBLE = "mixedcg", "gpucg"
MIXED_METHOD = "mixed"
OUTERS = ("replacement", "refinement", "flexible")
PRECONDITIONERS = ("jacobi", "none")
FIXED_OPTIONS = ("ksp_type", "ksp_norm_type", "ksp_pc_side", "pc_type", "mat_type")
"""Options of PETSc that would change a contender under its label."""

Case = dict[str, Any]


def make_contenders(
    methods: Sequence[str], types: Sequence[str], peer: str, outers: Sequence[str]
) -> tuple[Contender, ...]:
    """For each method PETSc's with the peer's type, PETSc's with each type of ours, and ours with that.

    For MIXED_METHOD ours in double precision, and in mixed with each of `outers`, are compared with one another.
    """
    found: dict[str, Contender] = {}

    def add(contender: Contender) -> str:
        return found.setdefault(contender.label, contender).label

    for method in sorted(methods, key=MIXED_METHOD.__eq__):  # what it compares with is compared with a peer first
        if method == MIXED_METHOD:
            for name in types:
                double = add(Contender(DOUBLE, name))
                for outer in outers:
                    add(Contender(MIXED, name, outer, double))
            continue
        petscs = add(Contender(method, peer))
        for name in types:
            add(Contender(method, name, None, petscs))
            add(Contender(METHODS[method], name, None, petscs))
    return tuple(found.values())


def run_name(
    task: Task,
    methods: Sequence[str],
    types: Sequence[str],
    gpu_aware: bool,
    ranks: Sequence[int] = (1,),
    outers: Sequence[str] = OUTERS[:1],
) -> str:
    """What tells the results of a task from those of others in one file: what is not as it is by default is named."""
    parts = ["ksp", *methods, *types]
    parts += ["files"] if all(map(is_file, task.matrices)) else []
    parts += [f"-ksp_mixedcg_outer {' '.join(outers)}"] if tuple(outers) != OUTERS[:1] else []
    parts += [f"-pc_type {task.pc}"] if task.pc != PRECONDITIONERS[0] else []
    parts += [f"-ksp_rtol {task.rtol:g}"] if task.rtol != RTOL else []
    parts += [f"-ksp_max_it {task.max_it}"] if task.max_it != MAX_IT else []
    parts += [f"ranks {' '.join(map(str, ranks))}"] if tuple(ranks) != (1,) else []
    return ", ".join([*parts, *(["MPI not GPU-aware"] if not gpu_aware else [])])


def name_of(case: Case) -> str:
    """For a line: matrix, ranks and contender."""
    return f"{case['matrix']} on {case['ranks']} rank{'s' * (case['ranks'] > 1)}, {case['label']}"


def case_line(case: Case) -> str:
    """For the terminal."""
    keys = ("{}_seconds", "least_{}_seconds", "largest_{}_seconds")
    if case["iteration_seconds"] is None:
        iteration = "an iteration was not timed"
    else:
        us = [f"{case[key.format('iteration')] * 1e6:.2f}" for key in keys]
        iteration = f"{us[0]} us an iteration ({us[1]} to {us[2]})"
    ms = [f"{case[key.format('solve')] * 1e3:.3f}" for key in keys]
    how = f" [{case['said']}]" if case["said"] else ""
    ended = "" if case["reason"] > 0 else f", ended by reason {case['reason']}"
    return (
        f"{name_of(case)}: {iteration}; {case['iterations']} iterations in {ms[0]} ms ({ms[1]} to {ms[2]})"
        f"{ended}, residual {case['residual']:.2e}{how}"
    )


def compared_with(case: Case, cases: Sequence[Case]) -> Case | None:
    """The case that one is compared with: same matrix and ranks; None for a peer."""
    same = (other for other in cases if named(other) == named(case))
    return next((other for other in same if other["label"] == case["against"]), None)


def ratios(case: Case, cases: Sequence[Case]) -> tuple[float | None, float | None]:
    """How many times as fast an iteration and a solve are as those that a case is compared with.

    None where there is nothing to compare, of iterations that are not timed, and of solves unless both are correct.
    """
    other = compared_with(case, cases)
    if other is None:
        return None, None
    timed = case["iteration_seconds"] and other["iteration_seconds"]
    iteration = other["iteration_seconds"] / case["iteration_seconds"] if timed else None
    solve = other["solve_seconds"] / case["solve_seconds"] if case["correct"] and other["correct"] else None
    return iteration, solve


def number(value: float | None, scale: float = 1.0, digits: int = 2) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"


def summary_lines(cases: Sequence[Case]) -> list[str]:
    """For the terminal: a table of all cases, and geometric means of how many times as fast contenders are."""
    lines = [
        f"\n{'matrix':20}{'ranks':>5}  {'solver':34}{'us/iteration':>13}{'times':>7}{'iterations':>12}{'ms':>11}"
        f"{'times':>7}  as fast as"
    ]
    for case in cases:
        iteration, solve = ratios(case, cases)
        lines.append(
            f"{case['matrix']:20}{case['ranks']:5}  {case['label']:34}"
            f"{number(case['iteration_seconds'], 1e6):>13}{number(iteration):>7}{case['iterations']:12}"
            f"{number(case['solve_seconds'], 1e3, 3):>11}{number(solve):>7}  {case['against'] or ''}".rstrip()
        )
    return [*lines, *mean_lines(cases)]


def mean_lines(cases: Sequence[Case]) -> list[str]:
    """Geometric means over matrices and ranks, a line for each contender that is compared with another one."""
    lines = []
    for label in dict.fromkeys(case["label"] for case in cases if case["against"]):
        of_label = [case for case in cases if case["label"] == label]
        pairs = [ratios(case, cases) for case in of_label]
        parts = []
        for words, found in zip(("iterations", "solves to the same residual"), zip(*pairs, strict=True), strict=True):
            known = [ratio for ratio in found if ratio is not None]
            if known:
                mean, times = statistics.geometric_mean(known), "" if len(known) == 1 else "s"
                parts.append(f"{words} {mean:.2f} times as fast ({len(known)} case{times})")
        if parts:
            lines.append(f"{label} against {of_label[0]['against']}: {', '.join(parts)}")
    return lines


def wrong_cases(cases: Sequence[Case]) -> list[str]:
    """A line for each solve with a type of ours that missed the residual, unless PETSc's own missed it, too."""
    missed = [case for case in cases if not case["correct"]]
    petscs = {named(case) for case in missed if is_peer(case)}
    return [
        f"{name_of(case)}: reason {case['reason']}, residual {case['residual']:.2e} and not {case['rtol']:g}"
        for case in missed
        if not is_peer(case) and named(case) not in petscs
    ]


def named(case: Case) -> tuple[str, int]:
    """What cases are compared within."""
    return case["matrix"], case["ranks"]


def is_peer(case: Case) -> bool:
    """Whether method and matrix type are PETSc's."""
    return case["ksp"] in METHODS and case["against"] is None
