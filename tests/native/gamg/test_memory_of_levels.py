"""What -info says of the memory of each level."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import launch
import numpy as np
import pytest
from petsc4py import PETSc

EXAMPLE = Path(__file__).parents[3] / "examples/bratu3d.py"
POINTS = 10
LEVEL = re.compile(
    r"level (\d): the matrix takes (\S+) MB as CSR and (\S+) MB as stored so far, the prolongator (\S+) MB, "
    r"the next matrix (\S+) MB(?:; the product takes (\S+) MB at most as predicted, and keeps (\S+) MB)?"
)


def told(ranks, *options):
    """The numbers of each line about a level: level, matrix, stored, prolongator, next matrix, needed, kept."""
    grid = [word for axis in "xyz" for word in (f"-da_grid_{axis}", POINTS)]
    solver = ["-pc_type", "gamg", "-mg_levels_pc_type", "jacobi", "-pc_gamg_coarse_eq_limit", 20, "-snes_max_it", 1]
    command = [sys.executable, EXAMPLE, *grid, *solver, "-snes_force_iteration", "-info", ":pc", *options]
    finished = launch.run(command, ranks=ranks)
    assert "Newton iterations 1" in finished.output, str(finished)
    return [tuple(float(number or 0) for number in found) for found in LEVEL.findall(finished.output)]


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_levels_tell_what_they_take(ranks):
    found = told(ranks, "-dm_mat_type", "pjds", "-matptap_via", "rmerge")
    assert [line[0] for line in found] == list(range(len(found))) and len(found) > 1  # PETSc prints those of rank 0
    index, scalar = (np.dtype(t).itemsize for t in (PETSc.IntType, PETSc.ScalarType))
    rows, nonzeros = POINTS**3 // ranks, (7 * POINTS**3 - 6 * POINTS**2) // ranks
    assert found[0][1] == pytest.approx(((rows + 1) * index + nonzeros * (index + scalar)) / 1e6, abs=1e-3)
    following = [line[1] for line in found[1:]]
    assert [line[4] for line in found[:-1]] == following or ranks > 1  # which may be given to fewer ranks
    for level, _, stored, prolongator, _, needed, kept in found:
        assert prolongator > 0 and (stored > 0 or level)  # estimates of eigenvalues have multiplied
        assert (needed > kept > 0) == (ranks == 1)  # parallel products are made of several


@pytest.mark.mpi
@pytest.mark.parametrize("options", [["-dm_mat_type", "pjds", "-pc_gamg_type", "agg"], ["-pc_gamg_type", "gpufmt"]])
def test_other_set_ups_and_other_types_say_nothing(options):
    assert told(1, *options) == []
