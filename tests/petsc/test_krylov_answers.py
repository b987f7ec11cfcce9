"""Applications that choose our types of solvers by an option alone find the solutions of PETSc's types.

Those of gpucg have the norms of cg as well: `test_krylov_types.py`.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

pytestmark = pytest.mark.petsc

KSP, SNES = "ksp/ksp/tutorials/", "snes/tutorials/"
GRID = "-da_grid_x 10 -da_grid_y 10 -da_grid_z 10"
JACOBI = "-pc_type jacobi -ksp_rtol 1e-9"

# name: program, number of ranks, arguments
PROBLEMS = {
    "laplacian-2d": (KSP + "ex2", 3, f"-m 30 -n 30 {JACOBI} -mat_type pjds"),
    "null-space-3d": (KSP + "ex34", 1, f"{GRID} {JACOBI} -dm_mat_type pjds"),
    "laplacian-3d": (KSP + "ex45", 2, f"{GRID} {JACOBI} -dm_mat_type pjds"),
    "neumann-2d": (KSP + "ex50", 4, f"-da_refine 1 {JACOBI} -dm_mat_type pjds"),
    "elasticity-3d": (KSP + "ex56", 1, f"-ne 5 -alpha 0.1 -two_solves -use_mat_nearnullspace {JACOBI} -mat_type bsr"),
    "bratu-3d": (SNES + "ex14", 2, f"{GRID} {JACOBI} -mat_type csradaptive"),
    "bratu-2d": (SNES + "ex5", 1, f"-da_refine 2 {JACOBI} -dm_mat_type gpufmt"),
    "driven-cavity": (SNES + "ex19", 2, "-da_refine 1 -pc_type bjacobi -ksp_rtol 1e-9 -dm_mat_type pjds"),
}
# Type of ours: that of PETSc, how many iterations more there may be in proportion, and problems. Right-hand sides are
# as symmetric as the grids: cg finds the end early by that, and what single precision rounds is not symmetric.
TYPES = {
    "gpucg": ("cg", 0.01, ["elasticity-3d", "bratu-2d"]),
    "gpubcgs": ("bcgs", 0.1, list(PROBLEMS)),
    "mixedcg": ("cg", 1.0, ["laplacian-2d", "null-space-3d", "laplacian-3d", "bratu-3d", "bratu-2d"]),
    "gpugmres": ("gmres", 0.01, ["driven-cavity"]),
}
RUNS = [(name, ours) for ours, (_, _, names) in TYPES.items() for name in names]
LINE = re.compile(r"Linear .*solve (\w+) due to (\w+) iterations (\d+)")


def solved(programs, name, ksp_type, folder):
    """Ends and iterations of all linear solves, the solution of the last system, and the output."""
    program, ranks, arguments = PROBLEMS[name]
    solution = "-snes_view_solution" if program.startswith(SNES) else "-ksp_view_solution"
    options = ["-ksp_type", ksp_type, "-ksp_converged_reason", solution, "binary:solution"]
    run = programs.run(program, ranks, [*arguments.split(), *options], folder)
    assert run.finished.status == 0, str(run.finished)
    ends = LINE.findall(run.finished.output)
    values = np.fromfile(folder / "solution", ">f8", offset=8)  # behind a class and a size of 32 bits
    assert ends and values.size > 100, str(run.finished)
    return [end[:2] for end in ends], np.array([int(end[2]) for end in ends]), values, run.finished.output


@pytest.fixture(scope="module")
def theirs(programs, tmp_path_factory):
    """Solves a problem by a type of PETSc, once for all of ours."""

    @functools.cache
    def solve(name, ksp_type):
        return solved(programs, name, ksp_type, tmp_path_factory.mktemp("theirs"))

    return solve


@pytest.mark.parametrize(("name", "ours"), RUNS)
def test_solutions_and_ends_are_those_of_petsc(programs, theirs, name, ours, tmp_path):
    ksp_type, more, _ = TYPES[ours]
    ends, iterations, values, output = solved(programs, name, ours, tmp_path)
    expected_ends, expected_iterations, expected, _ = theirs(name, ksp_type)
    assert ends == expected_ends and expected_iterations.max() > 10, output
    assert (np.abs(iterations - expected_iterations) <= np.maximum(2, more * expected_iterations)).all(), output
    assert np.abs(values - expected).max() <= 1e-6 * np.abs(expected).max()
