"""What is executed is told from what is not, and places where errors are made from those that others make."""

import shlex
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import launch
import pytest

from reliability import covered_lines

MODULE = """\
def half(n):
    if n % 2:
        raise ValueError("odd")
    return n // 2


def never():
    raise NotImplementedError
"""
SOURCE = """\
#include <petscsys.h>

static PetscErrorCode Checks(int n)
{
  PetscCheck(n > 1 && n < 9, PETSC_COMM_SELF, PETSC_ERR_USER, "no argument");
  PetscCheck(n < 3 || n > 9, PETSC_COMM_SELF, PETSC_ERR_USER,
             "too many");
  return PETSC_SUCCESS;
}

int main(int argc, char **argv)
{
  return Checks(argc) != PETSC_SUCCESS;
}
"""


@pytest.mark.slow
def test_lines_of_python(tmp_path):
    package = tmp_path / "package" / "sums"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "halves.py").write_text(MODULE)
    (package / "unused.py").write_text("raise ValueError\n")
    settings = covered_lines.settings_in(tmp_path / "data", package)
    for program in ("halves.half(4)", "halves.half(6)"):
        command = [sys.executable, "-c", f"from sums import halves; {program}"]
        environment = {"PYTHONPATH": str(package.parent), "COVERAGE_PROCESS_START": str(settings)}
        assert launch.run(command, **environment).status == 0
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as elsewhere:  # this process may be measured itself
        empty, halves, unused = elsewhere.submit(covered_lines.python_files, package, settings).result()
    assert (empty.lines, unused.lines, unused.errors) == ({}, {1: False}, {1: False})
    assert halves.lines == {1: True, 2: True, 3: False, 4: True, 7: True, 8: False}
    assert halves.errors == {3: False, 8: False}
    assert halves.around(3) == 'half: raise ValueError("odd")' and halves.function_of(8) == "never"


@pytest.mark.slow
def test_lines_of_c(tmp_path):
    (tmp_path / "sums").mkdir()
    source, program = tmp_path / "sums" / "checks.c", tmp_path / "checks"
    source.write_text(SOURCE)
    variables = launch.petsc_variables()
    more = [shlex.split(variables[name]) for name in ("PETSC_CC_INCLUDES", "PETSC_WITH_EXTERNAL_LIB")]
    compiler = [*shlex.split(variables["CC"]), *covered_lines.FLAGS.split(), *more[0]]
    assert launch.run([*compiler, source, "-o", program, *more[1]], cwd=tmp_path).status == 0
    expected = {(): {5: True, 6: False}, ("one",): {5: False, 6: False}, ("one", "two"): {5: False, 6: True}}
    for arguments, errors in expected.items():
        launch.run([program, *arguments], cwd=tmp_path)
        (file,) = covered_lines.c_files(tmp_path, ("sums",), tmp_path / "nothing", tmp_path)
        assert file.errors == errors and file.around(6).startswith("Checks: PetscCheck(n < 3")
        assert file.lines[8] == (arguments == ("one",)) and file.lines[13]
        for counts in tmp_path.rglob("*.gcda"):
            counts.unlink()
    assert list(covered_lines.c_files(tmp_path, ("sums",), tmp_path / "nothing", tmp_path)) == []
    (file,) = covered_lines.c_files(tmp_path, ("sums",), tmp_path, tmp_path / "nothing")
    assert not any(file.lines.values()) and not any(file.errors.values())


def test_measurements_of_one_source_add_up(tmp_path, monkeypatch):
    kept, texts = tmp_path / "measured.json", MODULE.splitlines()
    first = covered_lines.File("sums/halves.py", {1: True, 3: False, 4: False}, {3: False}, texts)
    assert covered_lines.add_earlier([first], kept, 2.0) == 2.0
    second = covered_lines.File("sums/halves.py", {1: False, 3: True, 4: False}, {3: True}, texts)
    assert covered_lines.add_earlier([second], kept, 0.5) == 2.5
    assert second.lines == {1: True, 3: True, 4: False} and second.errors == {3: True}
    third = covered_lines.File("sums/halves.py", {1: False, 3: False, 4: False}, {3: False}, texts)
    covered_lines.add_earlier([third], kept, 0.0)
    assert third.lines == second.lines and third.errors == second.errors
    monkeypatch.setattr(covered_lines, "ROOT", tmp_path)
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "halves.py").write_text(MODULE)
    files = []
    covered_lines.add_earlier(files, kept, 0.0)
    assert [(file.path, file.lines) for file in files] == [("sums/halves.py", second.lines)]
    changed = covered_lines.File("sums/halves.py", {1: False, 3: False, 4: False}, {3: False}, [*texts, "# more"])
    covered_lines.add_earlier([changed], kept, 0.0)
    assert not any(changed.lines.values())


def test_what_cannot_be_reached_is_counted_by_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(covered_lines, "FOLDER", tmp_path)
    monkeypatch.setattr(covered_lines, "REASONS", ((r"sums/.*", r"^never: raise", "an example"),))
    file = covered_lines.File(
        "sums/halves.py", {1: True, 3: False, 8: False}, {3: False, 8: False}, MODULE.splitlines()
    )
    rows = covered_lines.rows_of([file], [])
    assert [(row.tried, row.asked, len(row.failures)) for row in rows] == [(1, 3, 0), (0, 2, 1), (0, 0, 0), (0, 0, 0)]
    assert rows[0].remark == "33.3%, and 50.0% of those that can be reached here; 1: an example"
    assert (tmp_path / "uncovered.txt").read_text().splitlines()[:2] == [
        "lines of Python, not executed:",
        'sums/halves.py:3: half: raise ValueError("odd")',
    ]
