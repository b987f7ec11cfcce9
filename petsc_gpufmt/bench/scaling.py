"""MatMult over the ranks: what is started on each number of them, and what is made of the times."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

from petsc_gpufmt.bench.command import check_choices
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.rank_mult import AS_MADE, CUT, TASK_MODE, Task
from petsc_gpufmt.distribute import METHODS
from petsc_gpufmt.distribute.partition import check_packages

MATRICES = {"cuda": ("7point:128", "27point:128"), "host": ("7point:50", "27point:20")}
DISTRIBUTIONS = (*METHODS, CUT)
MODES = ("vector", "overlap", TASK_MODE, "peer")
MOST_DEFAULT_RANKS = 2
"""Without a device: ranks of the host share its memory."""

Case = dict[str, Any]


def default_ranks(devices: int) -> list[int]:
    """1, 2, 4, ... as far as each rank has a device; 1 and 2 without one."""
    most = devices or MOST_DEFAULT_RANKS
    return [1 << k for k in range(most.bit_length())]


def has_threads() -> bool:
    """Whether mpi4py is there, which asks MPI for the threads that one mode needs."""
    return importlib.util.find_spec("mpi4py") is not None


def default_modes() -> tuple[str, ...]:
    """All that the ranks can have."""
    return tuple(mode for mode in MODES if mode != TASK_MODE or has_threads())


def check_modes(modes: Sequence[str]) -> None:
    """BenchError for modes that are not known, or that the ranks cannot have."""
    check_choices("--mode", modes, MODES)
    if TASK_MODE in modes and not has_threads():
        raise BenchError(f"--mode {TASK_MODE}: mpi4py asks MPI for the threads of this mode, and is not there")


def check_distribution(name: str, most_ranks: int) -> None:
    """BenchError for one that is not known, UnsupportedError for one that this PETSc cannot make on so many ranks."""
    check_choices("--distribution", [name], DISTRIBUTIONS)
    if name == "partition" and most_ranks > 1:
        check_packages()


def run_name(task: Task, gpu_aware: bool) -> str:
    """What tells the results of a task from those of others in one file."""
    parts = [
        "scaling",
        task.matrix_type,
        *(["weak"] if task.weak else []),
        *(["MPI not GPU-aware"] if not gpu_aware else []),
    ]
    parts += [task.distribution] if task.distribution != AS_MADE else []
    return ", ".join(parts)


def contender(case: Case) -> str:
    """Whose line in a picture a case belongs to."""
    return f"{case['type']}, {case['mode']}" if case["mode"] else case["type"]


def case_line(case: Case) -> str:
    """For the terminal."""
    ranks = f"{case['ranks']} rank{'s' * (case['ranks'] > 1)}"
    us = [f"{case[name] * 1e6:.1f}" for name in ("seconds", "least_seconds", "largest_seconds")]
    taken = f" (taken: {case['taken']})" if case["taken"] != case["mode"] else ""
    return (
        f"{case['matrix']}{' on each' if case['weak'] else ''} on {ranks}, {contender(case)}{taken}: "
        f"{us[0]} us ({us[1]} to {us[2]}), {gflops(case):.0f} GF/s"
    )


def gflops(case: Case) -> float:
    """Of all ranks together, 2 flops an entry."""
    return 2e-9 * case["nnz"] / case["seconds"]


def lines_of(cases: Sequence[Case]) -> Iterator[tuple[str, str, list[Case]]]:
    """Matrix, contender, and its cases in the order of the ranks; that on one rank begins the lines of all modes.

    Where there are none, it is a line of its own. Modes that gave way to another one are left out.
    """
    for matrix in dict.fromkeys(case["matrix"] for case in cases):
        of_matrix = sorted((case for case in cases if case["matrix"] == matrix), key=lambda case: case["ranks"])
        shown = [case for case in of_matrix if case["taken"] == case["mode"]]
        in_modes = {case["type"] for case in shown if case["mode"]}
        for name in dict.fromkeys(contender(case) for case in shown if case["mode"] or case["type"] not in in_modes):
            of_name = [case for case in shown if contender(case) == name]
            alone = [case for case in shown if case["type"] == of_name[0]["type"] and case["ranks"] == 1]
            yield matrix, name, list({case["ranks"]: case for case in [*alone, *of_name]}.values())


def efficiency(case: Case, alone: Case) -> float:
    """Against one rank: 1 if so many ranks are so many times as fast, or with a matrix that grows as fast."""
    return alone["seconds"] / case["seconds"] / (1 if case["weak"] else case["ranks"])


def summary_lines(cases: Sequence[Case]) -> list[str]:
    """For the terminal: how many times as fast more ranks are, and how that compares with PETSc's type."""
    peers = {(case["matrix"], case["ranks"]): case for case in cases if not case["ours"]}
    lines = []
    for matrix, name, of_line in lines_of(cases):
        alone = of_line[0]
        for case in of_line:
            if case["ranks"] == 1 or alone["ranks"] != 1:
                continue
            peer = peers.get((matrix, case["ranks"])) if case["ours"] else None
            against = f"{peer['seconds'] / case['seconds']:.2f} times as fast as {peer['type']}" if peer else ""
            speed = alone["seconds"] / case["seconds"] * (case["ranks"] if case["weak"] else 1)
            lines.append(
                f"{matrix:16}{name:22}{case['ranks']:5}{case['seconds'] * 1e6:11.1f}{gflops(case):9.0f}{speed:10.2f}"
                f"{efficiency(case, alone):12.2f}   {against}"
            )
    heading = f"\n{'matrix':16}{'type, mode':22}{'ranks':>5}{'us':>11}{'GF/s':>9}{'speed-up':>10}{'efficiency':>12}"
    return [heading, *lines] if lines else []


def wrong_cases(cases: Sequence[Case]) -> list[str]:
    """A line for each wrong product of ours."""
    return [f"{case_line(case)}: entries of z are wrong" for case in cases if case["ours"] and not case["correct"]]
