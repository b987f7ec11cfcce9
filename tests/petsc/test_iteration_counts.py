"""Applications that choose our matrix type by an option alone take as many iterations as with aij."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import launch
import pytest

from petsc_gpufmt.choice.registry import FORMATS

pytestmark = pytest.mark.petsc

ALL = (1, 2, 3, 4)
GAMG = "-pc_type gamg -pc_gamg_gpufmt_order petsc"  # with agg's aggregates on any number of ranks
EXAMPLE = Path(__file__).parents[2] / "examples/bratu3d.py"
REASONS = "-snes_converged_reason -ksp_converged_reason"
BRATU = f"-da_grid_x 16 -da_grid_y 16 -da_grid_z 16 -mat_type ALIAS {REASONS}"

# name: program, numbers of ranks, arguments; ALIAS and ROOT stand for the names of a matrix type
PROBLEMS = {
    "bratu-3d": ("snes/tutorials/ex14", ALL, BRATU),
    "bratu-3d-cg-jacobi": ("snes/tutorials/ex14", ALL, f"-ksp_type cg -pc_type jacobi {BRATU}"),
    "bratu-3d-gamg": ("snes/tutorials/ex14", ALL, f"{GAMG} {BRATU}"),
    "bratu-2d": ("snes/tutorials/ex5", ALL, f"-da_refine 3 -dm_mat_type ALIAS {REASONS}"),
    "bratu-2d-multigrid": ("snes/tutorials/ex5", ALL, f"-da_refine 4 -pc_type mg -dm_mat_type ROOT {REASONS}"),
    "driven-cavity": ("snes/tutorials/ex19", ALL, f"-da_refine 2 -dm_mat_type ALIAS {REASONS}"),
    "driven-cavity-gamg": ("snes/tutorials/ex19", ALL, f"-da_refine 2 {GAMG} -dm_mat_type ALIAS {REASONS}"),
    "laplacian-2d": ("ksp/ksp/tutorials/ex2", ALL, f"-m 60 -n 60 -mat_type ALIAS {REASONS}"),
    "laplacian-2d-gamg": ("ksp/ksp/tutorials/ex2", ALL, f"-m 60 -n 60 {GAMG} -mat_type ALIAS {REASONS}"),
    # The program divides a cube among the ranks, and takes no 3 or 4 of them.
    "elasticity-3d-gamg": (
        "ksp/ksp/tutorials/ex56",
        (1, 2),
        f"-ne 11 -alpha 1e-3 -two_solves -use_mat_nearnullspace -ksp_type cg {GAMG} -mat_type ALIAS {REASONS}",
    ),
}
RUNS = [("pjds", name, ranks) for name, (_, all_ranks, _) in PROBLEMS.items() for ranks in all_ranks]
RUNS += [
    (format_name, name, ranks)
    for format_name in FORMATS
    if format_name != "pjds"
    for name, ranks in (("bratu-3d", 4), ("bratu-2d-multigrid", 1), ("driven-cavity-gamg", 2))
]


def _iterations(output: str) -> list[str]:
    """The lines that say why a linear or nonlinear solve ended, and after how many iterations."""
    return [line.strip() for line in output.splitlines() if "solve converged due to" in line]


def _run(programs, name: str, ranks: int, alias: str, root: str, folder):
    program, _, arguments = PROBLEMS[name]
    run = programs.run(program, ranks, arguments.replace("ALIAS", alias).replace("ROOT", root).split(), folder)
    assert run.finished.status == 0, str(run.finished)
    return run


@pytest.fixture(scope="module")
def aij(programs, tmp_path_factory):
    """Runs a problem with aij, once for all formats."""

    @functools.cache
    def run(name: str, ranks: int):
        return _run(programs, name, ranks, "aij", "aij", tmp_path_factory.mktemp("aij"))

    return run


@pytest.mark.parametrize(("format_name", "name", "ranks"), RUNS)
def test_newton_and_krylov_iterations_are_those_of_aij(programs, aij, format_name, name, ranks, tmp_path):
    ours = _run(programs, name, ranks, format_name, f"aij{format_name}", tmp_path)
    theirs = aij(name, ranks)

    assert ours.events["GpufmtPlan"] and not theirs.events["GpufmtPlan"]
    assert _iterations(ours.finished.output), str(ours.finished)
    assert _iterations(ours.finished.output) == _iterations(theirs.finished.output)


@pytest.mark.parametrize("ranks", ALL)
def test_the_bratu_example_takes_the_iterations_of_the_tutorial(aij, ranks):
    _, _, arguments = PROBLEMS["bratu-3d-gamg"]

    ours = launch.run([sys.executable, EXAMPLE, *arguments.replace("ALIAS", "pjds").split()], ranks=ranks)

    assert ours.status == 0, str(ours)
    assert _iterations(ours.output)
    assert _iterations(ours.output) == _iterations(aij("bratu-3d-gamg", ranks).finished.output)
