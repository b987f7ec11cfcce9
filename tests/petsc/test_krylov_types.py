"""Applications that choose our type of CG by an option alone take the iterations of cg, and its norms."""

from __future__ import annotations

import pytest
from compare import differences

pytestmark = pytest.mark.petsc

KSP, SNES = "ksp/ksp/tutorials/", "snes/tutorials/"
GRID = "-da_grid_x 10 -da_grid_y 10 -da_grid_z 10"
GAMG = "-pc_type gamg -pc_gamg_gpufmt_order petsc"

# name: program, numbers of ranks, arguments; TYPE stands for the type of the solver
PROBLEMS = {
    "laplacian-2d": (KSP + "ex2", (3,), "-m 40 -n 40 -ksp_type TYPE -pc_type jacobi -mat_type pjds"),
    "null-space": (
        KSP + "ex34",
        (2,),
        f"{GRID} -pc_type bjacobi -ksp_type TYPE -dm_mat_type pjds -ksp_max_it 60",
    ),
    "multigrid-3d": (
        KSP + "ex45",
        (2,),
        "-da_grid_x 17 -da_grid_y 17 -da_grid_z 17 -pc_type mg -pc_mg_levels 3 -pc_mg_galerkin pmat -ksp_type TYPE "
        "-mg_coarse_ksp_type TYPE -mg_coarse_pc_type jacobi -mg_levels_pc_type jacobi -dm_mat_type aijpjds",
    ),
    "multigrid-2d-neumann": (
        KSP + "ex50",
        (4,),
        "-pc_type mg -pc_mg_type full -ksp_type TYPE -da_refine 3 -mg_coarse_pc_type redundant "
        "-mg_coarse_redundant_pc_type svd -dm_mat_type aijpjds",
    ),
    "elasticity-3d-gamg": (
        KSP + "ex56",
        (1, 2),
        f"-ne 7 -alpha 1e-3 -two_solves -use_mat_nearnullspace -ksp_type TYPE {GAMG} -mat_type aijpjds "
        "-pc_gamg_esteig_ksp_type TYPE",
    ),
    "bratu-3d": (
        SNES + "ex14",
        (4,),
        f"{GRID} -ksp_type TYPE -pc_type jacobi -mat_type pjds -snes_monitor",
    ),
}
RUNS = [(name, ranks) for name, (_, all_ranks, _) in PROBLEMS.items() for ranks in all_ranks]
CLOSE = {"relative": 1e-6, "absolute": 1e-10}  # rounding differs, and iterations amplify it


def output_of(programs, name, ranks, ksp_type, folder, *more):
    program, _, arguments = PROBLEMS[name]
    run = programs.run(program, ranks, [*arguments.replace("TYPE", ksp_type).split(), *more], folder)
    assert run.finished.status == 0, str(run.finished)
    return run.finished.output


@pytest.mark.parametrize(("name", "ranks"), RUNS)
def test_norms_and_answers_are_those_of_cg(programs, name, ranks, tmp_path):
    outputs = [output_of(programs, name, ranks, ksp_type, tmp_path, "-ksp_monitor") for ksp_type in ("gpucg", "cg")]
    assert outputs[0].count("KSP Residual norm") > 2, outputs[0]
    assert not differences(*outputs[::-1], **CLOSE), outputs[0]


@pytest.mark.parametrize("name", ["laplacian-2d", "bratu-3d"])
def test_iterations_that_are_queued_ahead_are_not_counted(programs, name, tmp_path):
    """Nobody watches here; counts and reasons are printed, and the answer."""
    ours = output_of(programs, name, 2, "gpucg", tmp_path, "-ksp_gpucg_check", "10", "-ksp_converged_reason")
    theirs = output_of(programs, name, 2, "cg", tmp_path, "-ksp_converged_reason")
    assert "converged due to" in ours and "KSP Residual norm" not in ours
    assert not differences(theirs, ours, **CLOSE), ours
