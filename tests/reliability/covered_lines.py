"""Which lines tests execute, of Python and of C; those that none does are listed in build/coverage/uncovered.txt."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import instrumented

from reliability.attack import Report, Row, TimedRow
from reliability.unreached import REASONS

ABOUT = (
    "Lines that tests execute without a GPU, of Python and of C in the library, in child processes and on all ranks: "
    "95 % are wanted, and every place where an error is made: those that are left ended badly. What no test here can "
    "reach is counted by its reason."
)
MINUTES = 20
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "coverage"
DATA = FOLDER / "python"
FLAGS = "--coverage -O0 -g -fprofile-update=atomic -fprofile-abs-path"
TESTS = ("tests", "-m", "not (gpu or petsc)")
SETTINGS = """
[run]
include = */{package}/*
parallel = true
data_file = {folder}/python
patch = _exit
disable_warnings = no-data-collected
[paths]
package =
    {root}/{package}
    */package/{package}
"""


@dataclass
class File:
    """`lines` that can be executed, and whether they were; `errors` likewise: those that make an error."""

    path: str  # from the root
    lines: dict[int, bool]
    errors: dict[int, bool]
    texts: list[str] = field(default_factory=list, repr=False)

    def kept(self) -> dict[str, Any]:
        """What a later measurement may add to, as JSON, with a digest of the source that it is of."""
        digest = hashlib.sha256("\n".join(self.texts).encode()).hexdigest()
        return {"digest": digest, **{kind: list(getattr(self, kind).items()) for kind in KINDS}}

    def add(self, earlier: dict[str, Any]) -> None:
        """What an earlier measurement has kept of the same source."""
        if earlier.get("digest") != self.kept()["digest"]:
            return
        for kind in KINDS:
            lines = getattr(self, kind)
            for number, executed in earlier[kind]:
                lines[number] = executed or lines.get(number, False)

    def reason(self, number: int) -> str | None:
        """Why no test here reaches that line, if there is a reason."""
        for pattern, texts, why in REASONS:
            if re.fullmatch(pattern, self.path) and re.search(texts, self.around(number)):
                return why
        return None

    def around(self, number: int) -> str:
        """The line, behind the name of the function that it is in."""
        return f"{self.function_of(number)}: {self.texts[number - 1].strip()}"

    def function_of(self, number: int) -> str:
        pattern = FUNCTION_OF_PYTHON if self.path.endswith(".py") else FUNCTION_OF_C
        for text in reversed(self.texts[:number]):
            if found := pattern.match(text):
                return found[1]
        return ""


KINDS = ("lines", "errors")
FUNCTION_OF_PYTHON = re.compile(r"\s*(?:async )?(?:def|class) (\w+)")
FUNCTION_OF_C = re.compile(r"(?!typedef)[A-Za-z][\w \*]*?\b(\w+)\([^;]*$")
ERROR_OF_C = re.compile(r"\b(?:PetscCheck|SETERRQ)\(")


def settings_in(folder: Path, package: Path) -> Path:
    """The file that COVERAGE_PROCESS_START names: each process of Python leaves its lines of the package there."""
    folder.mkdir(parents=True)
    settings = folder / "settings"
    settings.write_text(SETTINGS.format(folder=folder, root=package.parent, package=package.name))
    return settings


def python_files(package: Path, settings: Path) -> list[File]:
    """All of the package, whether it was imported or not. A process that is measured loses its own lines by this."""
    from coverage import Coverage

    measured, files = Coverage(config_file=str(settings)), []
    measured.combine(keep=True)
    for path in sorted(package.rglob("*.py")):
        _, statements, _, missing, _ = measured.analysis2(str(path))
        lines = dict.fromkeys(statements, True) | dict.fromkeys(missing, False)
        source = path.read_text()
        raised = {node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise)}
        errors = {number: lines[number] for number in sorted(raised & lines.keys())}
        files.append(File(str(path.relative_to(package.parent)), lines, errors, source.splitlines()))
    return files


def reports_of_gcov(library: Path, programs: Path) -> Iterator[dict]:
    """What gcov says of each source and header, as often as it is in the library and in programs that ran."""
    ran = (notes for notes in programs.rglob("*.gcno") if notes.with_suffix(".gcda").exists())
    for notes in sorted([*library.rglob("*.gcno"), *ran]):
        command = ["gcov", "--json-format", "--branch-probabilities", "--stdout", notes]
        finished = subprocess.run(command, cwd=notes.parent, capture_output=True, text=True, timeout=60)
        for line in finished.stdout.splitlines():
            yield from json.loads(line)["files"]


def error_was_made(line: dict) -> bool:
    """Whether PetscCheck() or SETERRQ() in the line has come to its end: the code that it returns is chosen there."""
    return any(branch["count"] for branch in line["branches"][-2:])


def c_files(root: Path, rooms: tuple[str, ...], library: Path, programs: Path) -> Iterator[File]:
    """Sources below these rooms of the root, by the objects in the folder of a library and in that of programs."""
    lines: dict[Path, Counter[int]] = {}
    errors: dict[Path, Counter[int]] = {}
    for told in reports_of_gcov(library, programs):
        path = Path(told["file"])
        if not any(path.is_relative_to(root / room) for room in rooms):
            continue
        for line in told["lines"]:
            number = line["line_number"]
            lines.setdefault(path, Counter())[number] += line["count"]
            errors.setdefault(path, Counter())[number] += error_was_made(line)
    for path in sorted(lines):
        texts = path.read_text().splitlines()
        makes = {number for number in lines[path] if ERROR_OF_C.search(texts[number - 1])}
        yield File(
            str(path.relative_to(root)),
            {number: count > 0 for number, count in sorted(lines[path].items())},
            {number: errors[path][number] > 0 for number in sorted(makes)},
            texts,
        )


def run_tests(words: tuple[str, ...]) -> str:
    """The tests, with counters that begin at none; pytest's last line."""
    package = instrumented.package("coverage", FLAGS)
    for path in package.parent.rglob("*.gcda"):
        path.unlink()
    for folder in (DATA, FOLDER / "tests"):
        shutil.rmtree(folder, ignore_errors=True)
    settings = settings_in(DATA, ROOT / "petsc_gpufmt")
    words = (f"--basetemp={FOLDER / 'tests'}", *words)
    finished = instrumented.run_tests(words, package, FLAGS, COVERAGE_PROCESS_START=str(settings))
    (FOLDER / "tests.log").write_text(finished.output)
    return finished.output.splitlines()[-1]


def row_of(what: str, files: list[File], kind: str) -> tuple[TimedRow, list[str]]:
    """How many of the lines, or of those that make an error, were executed, and a line for each that was not."""
    row, reasons, left = TimedRow(what, 0), Counter[str](), []
    for file in files:
        for number, executed in getattr(file, kind).items():
            why = None if executed else file.reason(number)
            row.asked += 1
            row.tried += executed
            if why:
                reasons[why] += 1
            elif not executed:
                left.append(f"{file.path}:{number}: {file.around(number)}")
    reached = row.tried / max(1, row.asked - sum(reasons.values()))
    row.remark = (
        f"{row.tried / max(1, row.asked):.1%}, and {reached:.1%} of those that can be reached here; "
        + "; ".join(f"{number}: {why}" for why, number in reasons.most_common())
    )
    return row, left


def rows_of(python: list[File], c: list[File]) -> list[TimedRow]:
    rows, listed = [], []
    for what, files, kind in (
        ("lines of Python", python, "lines"),
        ("`raise` in Python", python, "errors"),
        ("lines of C", c, "lines"),
        ("`PetscCheck` and `SETERRQ` in C", c, "errors"),
    ):
        row, left = row_of(what, files, kind)
        row.failures = left if kind == "errors" else []
        rows.append(row)
        listed += [f"{what}, not executed:", *left, ""]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "uncovered.txt").write_text("\n".join(listed))
    return rows


def add_earlier(files: list[File], kept: Path, seconds: float) -> float:
    """What the file of the earlier measurement says, if it is there; it is then that of both. Seconds of all tests."""
    earlier = json.loads(kept.read_text()) if kept.exists() else {"seconds": 0.0, "files": {}}
    for path in sorted(earlier["files"].keys() - {file.path for file in files}):  # as headers of programs that ran then
        if (ROOT / path).exists():
            files.append(File(path, {}, {}, (ROOT / path).read_text().splitlines()))
    for file in files:
        file.add(earlier["files"].get(file.path, {}))
    seconds += earlier["seconds"]
    kept.write_text(json.dumps({"seconds": seconds, "files": {file.path: file.kept() for file in files}}))
    return seconds


def run(share: float, seed: int, report: Report, only: tuple[str, ...] = ()) -> list[Row]:
    """All tests, or what `only` selects, which is added to the measurement before."""
    kept, begin = FOLDER / "measured.json", time.monotonic()
    if not only:
        kept.unlink(missing_ok=True)
    report(run_tests(tuple(only) or TESTS))
    objects = instrumented.FOLDER / "coverage" / "temp", FOLDER / "tests"
    files = python_files(ROOT / "petsc_gpufmt", DATA / "settings")
    files += c_files(ROOT, ("petsc_gpufmt", "kernels"), *objects)
    seconds = add_earlier(files, kept, time.monotonic() - begin)
    rows = rows_of(*([file for file in files if file.path.endswith(".py") == is_python] for is_python in (True, False)))
    rows[0].seconds = seconds
    report(f"what was not executed is in {FOLDER / 'uncovered.txt'}")
    return rows
