"""A few of PETSc's test blocks; and that what ends otherwise than with aij is found, and named for what it is."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import launch
import pytest
from blocks import Block
from programs import Programs, Run

from reliability import petsc_reasons, petsc_tests
from reliability.petsc_runs import Blocks, Outcome, Task, with_blocks, with_type

SAMPLE = (
    "mat/tests/ex2 ex2_11_A",
    "ksp/ksp/tutorials/ex2 ex2_1",
    "ksp/ksp/tutorials/ex2 ex2_2",
    "mat/tests/ex104 ex104_1",
)
QUIET = "Option left: name:-dm_mat_type value: aij source: command line\nnorm 1.5\n  type: seqaij\n"


def task(arguments: str = "", commands: str = "") -> Task:
    block = Block("mat/tests/ex9", "ex9_1", "1", arguments, "", (), commands, (), "")
    return Task(block, 1, arguments)


class Said:
    """In the place of Programs: each run is answered by a function of its words and of whether ours are there."""

    def __init__(self, folder, answer):
        self.sources, self.answer = folder, answer

    def run(self, program, ranks, words, folder, plugin, options, seconds, **environment):
        status, output = self.answer(words, plugin)
        return Run(launch.Finished("command", status, output), Counter({"GpufmtPlan": int(plugin)}))


def outcome(folder, ours, arguments="", commands="", aij=(0, QUIET)):
    """What becomes of a run that ends as `ours` with the package, and as `aij` without."""

    def answer(words, plugin):
        ended = ours if plugin else aij
        if isinstance(ended, Exception):
            raise ended
        return ended

    runs = Blocks(Said(folder, answer), task(arguments, commands))
    return runs.look() or runs.compare("pjds")


@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        ("equal", (0, QUIET)),
        ("equal", (0, QUIET.replace("1.5", "1.500001"))),
        ("views", (0, QUIET.replace("seqaij", "seqaijpjds"))),
        ("views", (0, QUIET + "    storage: pjds, not built yet\n")),
        ("numbers", (0, QUIET.replace("1.5", "1.501"))),
        ("numbers", (0, QUIET + "leaked\n")),
        ("error", (56, "[0]PETSC ERROR: ---- Error Message ----\n[0]PETSC ERROR: No support for this\n")),
        ("crash", (59, "[0]PETSC ERROR: Caught signal number 11 SEGV: Segmentation Violation\n")),
        ("crash", (-11, "")),
        ("hang", TimeoutError("no end after 1 s: command")),
    ],
)
def test_each_kind_is_named(tmp_path, kind, ours):
    assert outcome(tmp_path, ours).kind == kind


@pytest.mark.parametrize(
    ("kind", "aij"),
    [
        ("aij fails", (62, "[0]PETSC ERROR: no\n")),
        ("aij is slow", TimeoutError("no end after 1 s: command")),
        ("no aij", (0, QUIET.replace("-dm_", "-") + QUIET + QUIET.replace("-dm_mat", "-mat_seqaij"))),
    ],
)
def test_what_is_no_comparison_is_left_out(tmp_path, kind, aij):
    assert outcome(tmp_path, (0, "other"), aij=aij).kind == kind


def test_what_aij_does_not_repeat_is_left_out(tmp_path):
    numbers = iter(range(9))

    def answer(words, plugin):
        return 0, f"{next(numbers)}\n"

    runs = Blocks(Said(tmp_path, answer), task())
    assert runs.look() is None and runs.compare("pjds").kind == "aij differs from itself"


def test_the_filter_of_a_block_is_used_and_an_error_that_it_wants_is_none(tmp_path):
    changed = QUIET.replace("type: seqaij", "type: other")
    assert outcome(tmp_path, (0, changed)).kind == "numbers"
    assert outcome(tmp_path, (0, changed), commands='grep -v "type"').kind == "equal"
    assert outcome(tmp_path, (62, QUIET), commands="Error: grep norm", aij=(62, QUIET)).kind == "equal"
    assert outcome(tmp_path, (0, "a1\n"), commands='sed -e "s/[0-9]\\\\{1,\\\\}//g"', aij=(0, "a23\n")).kind == "equal"


def test_types_take_the_place_of_aij():
    assert with_type(["-ksp_view"], "pjds") == "-ksp_view -mat_type aijpjds -dm_mat_type aijpjds".split()
    assert with_type(["-A_mat_type", "seqaij"], "pjds")[:2] == ["-A_mat_type", "seqaijpjds"]
    assert with_type(["-dm_mat_type", "aij"], "pjds") == "-dm_mat_type aijpjds -mat_type aijpjds".split()
    assert with_type(["-mat_type", "baij"], "pjds") == ["-mat_type", "baij"]
    assert with_type(["-convname", "mpiaij"], "")[:2] == ["-convname", "mpiaij"]
    assert with_blocks(["-a"], "bsr") == ["-a", "-mat_seqaij_type", "seqaijbsr"]


def test_all_sequential_matrices_are_ours_where_options_lead_to_no_product(tmp_path):
    lines = []

    def answer(words, plugin):
        lines.append(" ".join(words) if plugin else "")
        return 0, QUIET

    said = Said(tmp_path, answer)
    runs = Blocks(said, task())
    assert runs.look() is None and runs.compare("pjds").plans == 1 and "seqaij" not in lines[-1]
    run = said.run
    said.run = lambda *given, **more: Run(run(*given, **more).finished, Counter())
    assert runs.compare("pjds").kind == "equal" and lines[-1].endswith("-mat_seqaij_type seqaijpjds")


def test_another_type_of_petsc_explains_the_same_end_alone():
    error = Outcome("error", "not for seqaijpjds")
    assert error.is_like(Outcome("error", "not for seqaijperm"))
    assert not error.is_like(Outcome("error", "other")) and not error.is_like(Outcome("equal"))
    numbers = Outcome("numbers", "a", 0, "norm 1.5")
    assert numbers.is_like(Outcome("numbers", "b", 0, "norm 1.500001"))
    assert not numbers.is_like(Outcome("numbers", "a", 0, "norm 1.6"))


@pytest.mark.parametrize(
    ("why", "of"),
    [
        ("PETSc's type aijperm does the same", {"perm": "2.5", "sell": "2.5"}),
        ("PETSc's type aijsell does the same", {"perm": "1.5", "sell": "2.5"}),
        ("PETSc's type aijperm differs from aij there too", {"perm": "2.6", "sell": "1.5"}),
        ("", {"perm": "1.5", "sell": "1.5"}),
        ("GAMG on several ranks: with -pc_gamg_gpufmt_order petsc it is as with aij", {"order petsc": "1.5"}),
    ],
)
def test_what_explains_other_numbers(tmp_path, why, of):
    def answer(words, plugin):
        line = " ".join(words)
        norm = next((norm for name, norm in of.items() if name in line), "2.5" if plugin else "1.5")
        return 0, QUIET.replace("1.5", norm)

    runs = Blocks(Said(tmp_path, answer), task("-mg_pc_type gamg"))
    assert runs.look() is None
    assert petsc_tests.explanation(runs, "pjds", runs.compare("pjds"), {}) == why


def test_a_block_is_run_with_the_first_and_other_combinations_of_its_loops():
    block = Block("mat/tests/ex9", "ex9_1", "{{1 8}}", "-a {{1 2 3 4 5 6 7 8}}", "", (), "", (), "")
    assert [task.line for task in petsc_tests.tasks_of(block)] == ["-a 1", "-a 3", "-a 5", "-a 7"]


def test_reasons_are_those_of_the_task_the_kind_and_what_was_seen(monkeypatch):
    known = petsc_reasons.Reason(r"mat/tests/ex9 ", "error crash", "^No", "why")
    monkeypatch.setattr(petsc_reasons, "REASONS", (known,))
    assert petsc_reasons.reason("mat/tests/ex9 ex9_1 -n 1 ", "error", "No support") == "why"
    assert not petsc_reasons.reason("mat/tests/ex99 ex99_1 -n 1 ", "error", "No support")
    assert not petsc_reasons.reason("mat/tests/ex9 ex9_1 -n 1 ", "numbers", "No support")
    assert not petsc_reasons.reason("mat/tests/ex9 ex9_1 -n 1 ", "error", "Other")


@pytest.fixture(scope="module")
def sources():
    """Sources of PETSc's programs are here."""
    if not os.environ.get("PETSC_SRC"):
        pytest.skip("PETSC_SRC is not set: it names the sources of PETSc's own programs")


@pytest.mark.petsc
@pytest.mark.slow
def test_a_sample_is_as_with_aij(sources, tmp_path):
    journal = tmp_path / "journal"
    rows = petsc_tests.run(1, 0, lambda line: None, only=["pjds", "bsr", *SAMPLE], journal=journal)
    assert [row.failures for row in rows] == [[], [], [], []]
    assert [row.what for row in rows] == [f"{where}, {name}" for name in ("pjds", "bsr") for where in FOLDERS]
    assert sum(row.tried for row in rows) == sum(row.asked for row in rows) == 8
    assert all(row.counts["with products of ours"] for row in rows)
    assert petsc_tests.run(1, 0, lambda line: None, only=["pjds", *SAMPLE], journal=journal) == rows[:2]
    assert len(journal.read_text().splitlines()) == 8
    (row,) = petsc_tests.run(1, 0, lambda line: None, only=["pjds", "mat/tests/ex104 ex104_1"], seconds=0)
    assert row.counts["not run"] == row.asked == 1 and not row.tried


FOLDERS = ("mat/tests", "ksp/ksp/tutorials")


@pytest.mark.petsc
@pytest.mark.slow
def test_a_planted_difference_is_found_in_a_program_of_petsc(sources, monkeypatch):
    run = Programs.run

    def looser(self, program, ranks, arguments, folder, plugin=True, options="", **more):
        return run(self, program, ranks, arguments, folder, plugin, options + " -ksp_rtol 0.9" * plugin, **more)

    monkeypatch.setattr(Programs, "run", looser)
    (row,) = petsc_tests.run(1, 0, lambda line: None, only=["pjds", "ksp/ksp/tutorials/ex2 ex2_1"])
    assert row.counts["numbers"] == row.tried == 1 == len(row.failures) and "iterations" in row.failures[0]


def test_what_a_journal_keeps_is_read_again(tmp_path):
    line = {"task": "a", "type": "pjds", "kind": "error", "detail": "no", "plans": 3, "why": "so", "seconds": 0.5}
    (tmp_path / "journal").write_text(json.dumps(line) + "\n")
    assert petsc_tests._read(tmp_path / "journal") == {("a", "pjds"): ("error", "no", 3, "so", 0.5)}
    assert petsc_tests._read(None) == {}


def test_a_selection_is_refused_by_attacks_that_have_none():
    program = Path(petsc_tests.__file__).parent
    finished = launch.run([sys.executable, program, "killed_ranks", "--only", "pjds"])
    assert finished.status == 2 and "--only is not for killed_ranks" in finished.output
    finished = launch.run([sys.executable, program, "petsc_tests", "--only", "pjds", "--list"])
    assert finished.status == 0 and "mat, ksp, snes" in finished.output
