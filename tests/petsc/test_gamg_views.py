"""Bratu in 3-D with GAMG: hierarchies and iterations are those of aij, as -ksp_view shows them after each solve."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.petsc

PROGRAM = "snes/tutorials/ex14"
BRATU = "-da_grid_x 12 -da_grid_y 12 -da_grid_z 12 -pc_type gamg -snes_converged_reason -ksp_converged_reason -ksp_view"
AT_DISTANCE_2 = "175 aggregates of 1728 rows at distance 2, in 8 rounds"
# what -info says of the finest level; ranks, options
RUNS = {
    "default": ([AT_DISTANCE_2], 1, ""),
    "set up again": ([AT_DISTANCE_2] * 3, 1, "-pc_gamg_reuse_interpolation false"),
    "threshold": (
        [
            "374 aggregates of 1728 rows at distance 2, in 9 rounds; "
            "graph of the matrix, 74.1 % of its entries above 0.01"
        ],
        1,
        "-pc_gamg_threshold 0.01",
    ),
    "hem": (
        ["the set-up is that of agg, because the coarsening is of type hem"],
        1,
        "-pc_gamg_mat_coarsen_type hem",
    ),
    "two ranks": (
        ["the set-up is that of agg, because agg's order of the rows of several ranks was named"],
        2,
        "-pc_gamg_gpufmt_order petsc -options_left no",
    ),
    "agg": ([], 1, "-pc_gamg_type agg"),
}


def view(output: str) -> list[str]:
    """The output without what our types add to it."""
    lines = output.replace("aijpjds", "aij").splitlines()
    return [line for line in lines if not re.match(r" +storage:| +gpufmt, level| +petsc_gpufmt: ", line)]


@pytest.mark.parametrize("name", RUNS)
def test_views_are_those_of_aij(programs, tmp_path, name):
    said, ranks, options = RUNS[name]
    ours, theirs = (
        programs.run(PROGRAM, ranks, [*BRATU.split(), *options.split(), "-mat_type", mat_type, *more], tmp_path)
        for mat_type, more in (("pjds", ("-info", "info.txt:pc")), ("aij", ()))
    )
    assert theirs.finished.status == 0 and "gpufmt" not in theirs.finished.output
    assert view(ours.finished.output) == view(theirs.finished.output), str(ours.finished)
    info = "".join(file.read_text() for file in tmp_path.glob("info.txt.*"))
    assert re.findall(r"Gpufmt\(\): level 0:? (?:on the host, |on the device, )?(.*)", info) == said
