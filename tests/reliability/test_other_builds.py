"""A build that fails, or is another one than asked for, has ended badly; a small checkout stands in for this one."""

import itertools
import json
import platform
import sys
from pathlib import Path

import launch
import pytest
from petsc_config import dotted, find_petsc

from petsc_gpufmt.backends.native_library import petsc_types
from reliability import other_builds
from reliability.attack import TimedRow
from reliability.other_builds import BUILDS, SCALARS, Build

ROOT = Path(__file__).resolve().parents[2]
TESTS = """\
import pytest

def test_right():
    assert 1 + 1 == 2

@pytest.mark.skip
def test_skipped():
    pass

def test_{name}():
    assert 1 + 1 == {two}, "sums are wrong"
"""
TWINS = """\
import json, sys
from pathlib import Path
rows = [{"asked": 3, "tried": 2, "failures": ["seed 7"]}]
Path(sys.argv[sys.argv.index("--json") + 1], "twins.json").write_text(json.dumps({"rows": rows}))
"""
ENVIRONMENT = "export PYTHONPATH='{root}'"


@pytest.fixture
def here(monkeypatch):
    """What the table would have for the PETSc of this environment."""
    from mpi4py import MPI

    scalar, index = petsc_types()
    name = next(name for name, dtype in SCALARS.items() if scalar == dtype)
    monkeypatch.setitem(other_builds.RELEASES, "here", dotted(find_petsc().version))
    mpi = "MPICH" if "MPICH" in MPI.Get_library_version() else "Open MPI"
    return Build(
        "here", name, 8 * index.itemsize, launch.petsc_checks(), ".".join(platform.python_version_tuple()[:2]), mpi
    )


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A function that makes a checkout whose set-up is these words of a shell, and its tests."""
    root = tmp_path / "checkout"

    def make(set_up, name="sums", two=2):
        (root / "tests" / "reliability").mkdir(parents=True)
        (root / "Makefile").write_text(f"setup:\n\t@{set_up}\n")
        for name_of_folder in ("tools", "tests/support"):
            (root / name_of_folder).symlink_to(ROOT / name_of_folder)
        (root / "tests" / "test_sums.py").write_text(TESTS.format(name=name, two=two))
        (root / "tests" / "reliability" / "__main__.py").write_text(TWINS)
        git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
            assert launch.run([*git, *words], cwd=root).status == 0
        monkeypatch.setattr(other_builds, "ROOT", root)
        monkeypatch.setattr(other_builds, "FOLDER", tmp_path / "builds")
        monkeypatch.setattr(other_builds, "GROUPS", {"quick tests": ("tests",)})

    return make


def set_up_here():
    return f'mkdir -p build && echo "{ENVIRONMENT.format(root=ROOT)}" > build/environment.sh'


def run(build):
    return other_builds.run_build(build, ("quick tests", "twins"), 0, lambda line: None)


def test_tests_and_twins_that_fail_have_ended_badly(here, checkout):
    checkout(set_up_here(), two=3)
    row = run(here)
    failures = [failure for failure in row.failures if not failure.startswith("twins")]
    assert len(failures) == 1 and failures[0].startswith("quick tests: tests.test_sums.test_sums: ")
    assert "sums are wrong" in failures[0]
    with_twins = "complex" not in here.scalar
    assert row.failures[1:] == ["twins: seed 7"] * with_twins
    assert (row.asked, row.tried) == (4 + 3 * with_twins, 3 + 2 * with_twins)
    assert "quick tests: 1 passed, 1 failed, 1 skipped" in row.remark and f"Python {here.python}" in row.remark


def test_another_build_than_asked_for_has_ended_badly(here, checkout):
    checkout(set_up_here())
    row = run(here._replace(bits=96 - here.bits))
    assert f"set-up: petsc_index int{here.bits} in the place of int{96 - here.bits}" in row.failures
    assert len([failure for failure in row.failures if not failure.startswith("twins")]) == 1


def test_a_set_up_that_fails_has_ended_badly(here, checkout):
    checkout("echo no compiler; false")
    row = run(here)
    assert (row.asked, row.tried, len(row.failures)) == (1, 1, 1)
    assert row.failures[0].startswith("make setup: ") and "no compiler" in row.failures[0]


def test_tests_that_do_not_come_to_results_have_ended_badly(tmp_path):
    row = TimedRow("a build", 1, 1)
    other_builds.add_tests(row, "quick tests", launch.Finished("pytest", 4, "no tests"), tmp_path / "none.xml")
    assert row.failures == ["quick tests: status 4: no tests"]


def test_an_interpreter_that_is_not_here_is_said(here):
    row = run(here._replace(python="3.99"))
    assert (row.tried, row.failures, row.remark) == (0, [], "not run: no python3.99 on PATH")


def test_the_main_branch_has_to_be_named(here, monkeypatch):
    monkeypatch.delenv("PETSC_MAIN", raising=False)
    row = run(here._replace(release="main"))
    assert row.tried == 0 and row.remark == "not run: PETSC_MAIN names no clone of PETSc's main branch"


def test_the_main_branch_has_to_be_newer_than_the_releases(here, tmp_path, monkeypatch):
    header = tmp_path / "include" / "petscversion.h"
    header.parent.mkdir()
    header.write_text("#define PETSC_VERSION_MAJOR 3\n#define PETSC_VERSION_MINOR 25\n")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        assert launch.run([*git, *words], cwd=tmp_path).status == 0
    monkeypatch.setenv("PETSC_MAIN", str(tmp_path))
    monkeypatch.setattr(other_builds, "FOLDER", tmp_path / "builds")
    monkeypatch.setattr(other_builds, "RELEASES", {"3.26": "3.26.1", "3.3": "3.3.9"})
    row = run(here._replace(release="main"))
    assert row.tried == 0 and row.remark.startswith("not run: PETSC_MAIN names a main branch of before PETSc 3.26.")


def test_every_two_choices_are_together_in_a_build():
    columns = list(zip(*BUILDS, strict=True))
    for first, second in itertools.combinations(columns, 2):
        assert set(zip(first, second, strict=True)) == set(itertools.product(set(first), set(second)))
    assert [len(set(column)) for column in columns] == [4, 4, 2, 2, 4, 2]


def test_runs_are_added_to_a_journal(tmp_path, monkeypatch):
    ran, asked = [], []

    def run_build(build, groups, seed, report):
        ran.append(build.name)
        asked.append(groups)
        return TimedRow(build.title, 2, 2, [f"run {len(ran)}"], seconds=1.5)

    monkeypatch.setattr(other_builds, "run_build", run_build)
    journal, names = tmp_path / "journal", [build.name for build in BUILDS]
    other_builds.run(1.0, 0, print, only=names[1:3], journal=journal)
    other_builds.run(1.0, 0, print, only=names[2:3], journal=journal)
    assert ran == [*names[1:3], names[2]] and len(journal.read_text().splitlines()) == 3
    rows = other_builds.run(1.0, 0, print, journal=journal)
    assert all(len(groups) == 4 for groups in asked)
    other_builds.run(1.0, 0, print, only=["3.26-single", "quick", "twins"])
    assert ran.pop().startswith("3.26-single") and asked[-1] == ["quick tests", "twins"]
    assert sorted(ran[3:]) == sorted({*names} - {*names[1:3]})
    assert [row.failures for row in rows[:3]] == [["run 4"], ["run 1"], ["run 3"]]
    assert json.loads(journal.read_text().splitlines()[0])["seconds"] == rows[1].seconds == 1.5


def test_those_that_were_not_run_have_a_row():
    rows = other_builds._rows({BUILDS[0].name: TimedRow("first", 9, 9)})
    assert [(row.tried, row.remark) for row in rows] == [(9, ""), *[(0, "not run")] * (len(BUILDS) - 1)]


def test_a_launcher_whose_version_is_not_there_is_passed_over(tmp_path, monkeypatch):
    launcher = tmp_path / "python3"
    launcher.write_text("#!/bin/sh\nexit 127\n")
    launcher.chmod(0o755)
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{tmp_path / 'second'}")
    assert other_builds.interpreter("3") == str(tmp_path / "second" / "python3")


def test_the_environment_of_this_checkout_is_passed_over(tmp_path, monkeypatch):
    """Its PETSc would be taken for that of the interpreter."""
    own, other = (tmp_path / name / "bin" for name in (".venv", "other"))
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(other_builds, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", f"{own}:{other}")
    assert other_builds.interpreter("3") == str(other / "python3")
