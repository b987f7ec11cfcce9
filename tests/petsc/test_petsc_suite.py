"""PETSc's own test programs, unmodified, give with our matrix types what PETSc expects and what aij gives."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from cases import CASES, Case
from compare import differences
from filters import FILTERS

pytestmark = pytest.mark.petsc

RUNS = [(case, ranks) for case in CASES for ranks in case.ranks]
NEVER_MULTIPLYING = [(case, case.ranks[0]) for case in CASES if not case.multiplies]

# PETSc's expected outputs come from other machines and older releases, and its own comparison skips the reals.
TEXT_ONLY = {"relative": 0.0, "absolute": math.inf}
# Against aij on this machine they count. Rounding differs with the order of summation, and an iteration amplifies it.
WITH_REALS = {"relative": 1e-5, "absolute": 1e-8}


def _name(case: Case, ranks: int) -> str:
    return f"{case.source}-n{ranks}-{Path(case.expected).stem}"


def _filtered(text: str, case: Case) -> str:
    for name in case.filters:
        text = FILTERS[name].apply(text)
    return text


@pytest.mark.parametrize(("case", "ranks"), RUNS, ids=[_name(*run) for run in RUNS])
def test_output_is_that_of_petsc_and_of_aij(programs, case, ranks, tmp_path):
    accepted = [_filtered(text, case) for text in programs.expected_outputs(case.source, case.expected)]
    plans = 0

    for arguments in case.command_lines():
        run = programs.run(case.source, ranks, arguments, tmp_path)

        assert run.finished.status == 0, str(run.finished)
        found = _filtered(run.finished.output, case)
        compared = [differences(text, found, **TEXT_ONLY) for text in accepted]
        assert "" in compared, f"{run.finished.command}\n{compared[0]}"
        plans += run.events["GpufmtPlan"]
        if found:
            parent = programs.run(case.source, ranks, [case.parent(argument) for argument in arguments], tmp_path)
            assert parent.finished.status == 0, str(parent.finished)
            compared_to_parent = differences(_filtered(parent.finished.output, case), found, **WITH_REALS)
            assert not compared_to_parent, f"{run.finished.command}: differs from aij\n{compared_to_parent}"

    assert bool(plans) == case.multiplies, f"{plans} of our plans were made"


@pytest.mark.parametrize(("case", "ranks"), NEVER_MULTIPLYING, ids=[_name(*run) for run in NEVER_MULTIPLYING])
def test_a_program_that_never_multiplies_still_asks_for_our_type(programs, case, ranks, tmp_path):
    run = programs.run(case.source, ranks, case.command_lines()[-1], tmp_path, plugin=False)

    assert run.finished.status != 0
    assert re.search(r"Unknown Mat type given: \w*pjds", run.finished.output), str(run.finished)
