"""Applications that choose our matrix type by an option alone take as many iterations as with aij."""

from __future__ import annotations

import pytest
from cases import Case

pytestmark = pytest.mark.petsc

ALL = (1, 2, 3, 4)
REASONS = "-snes_converged_reason -ksp_converged_reason"
BRATU = f"-da_grid_x 16 -da_grid_y 16 -da_grid_z 16 -mat_type pjds {REASONS}"

# name: program, numbers of ranks, arguments
PROBLEMS = {
    "bratu-3d": ("snes/tutorials/ex14", ALL, BRATU),
    "bratu-3d-cg-jacobi": ("snes/tutorials/ex14", ALL, f"-ksp_type cg -pc_type jacobi {BRATU}"),
    "bratu-3d-gamg": ("snes/tutorials/ex14", ALL, f"-pc_type gamg {BRATU}"),
    "bratu-2d": ("snes/tutorials/ex5", ALL, f"-da_refine 3 -dm_mat_type pjds {REASONS}"),
    "bratu-2d-multigrid": ("snes/tutorials/ex5", ALL, f"-da_refine 4 -pc_type mg -dm_mat_type aijpjds {REASONS}"),
    "driven-cavity": ("snes/tutorials/ex19", ALL, f"-da_refine 2 -dm_mat_type pjds {REASONS}"),
    "driven-cavity-gamg": ("snes/tutorials/ex19", ALL, f"-da_refine 2 -pc_type gamg -dm_mat_type pjds {REASONS}"),
    "laplacian-2d": ("ksp/ksp/tutorials/ex2", ALL, f"-m 60 -n 60 -mat_type pjds {REASONS}"),
    "laplacian-2d-gamg": ("ksp/ksp/tutorials/ex2", ALL, f"-m 60 -n 60 -pc_type gamg -mat_type pjds {REASONS}"),
    # The program divides a cube among the ranks, and takes no 3 or 4 of them.
    "elasticity-3d-gamg": (
        "ksp/ksp/tutorials/ex56",
        (1, 2),
        f"-ne 11 -alpha 1e-3 -two_solves -use_mat_nearnullspace -ksp_type cg -pc_type gamg -mat_type pjds {REASONS}",
    ),
}
RUNS = [(name, ranks) for name, (_, all_ranks, _) in PROBLEMS.items() for ranks in all_ranks]


def _iterations(output: str) -> list[str]:
    """The lines that say why a linear or nonlinear solve ended, and after how many iterations."""
    return [line.strip() for line in output.splitlines() if "solve converged due to" in line]


@pytest.mark.parametrize(("name", "ranks"), RUNS)
def test_newton_and_krylov_iterations_are_those_of_aij(programs, name, ranks, tmp_path):
    program, _, arguments = PROBLEMS[name]
    words = arguments.split()

    ours = programs.run(program, ranks, words, tmp_path)
    aij = programs.run(program, ranks, [Case.parent(word) for word in words], tmp_path)

    for run in (ours, aij):
        assert run.finished.status == 0, str(run.finished)
    assert ours.events["GpufmtPlan"] and not aij.events["GpufmtPlan"]
    assert _iterations(ours.finished.output), str(ours.finished)
    assert _iterations(ours.finished.output) == _iterations(aij.finished.output)
