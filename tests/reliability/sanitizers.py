"""Tests and attacks with a library that sanitizers of the compiler watch."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import instrumented
import launch

from petsc_gpufmt.choice.registry import FORMATS
from reliability import children, threads
from reliability.attack import Report, Row, part_of

ABOUT = (
    "The library is compiled with GCC's sanitizers of addresses, of undefined behaviour and of threads, and tests run "
    "with it: no report, and all tests pass. Emulated kernels are compiled with the second."
)
MINUTES = 25
DEBUGGABLE = "-O1 -g -fno-omit-frame-pointer"


class Sanitizer(NamedTuple):
    """`library` is the compiler's, loaded before all others since Python is not compiled with it; then `more`."""

    of: str
    flags: str
    library: str
    environment: dict[str, str]
    more: str = ""


class Group(NamedTuple):
    """Tests that pytest selects by `words`."""

    what: str
    sanitizer: str
    words: tuple[str, ...]
    environment: dict[str, str] = {}


SANITIZERS = {
    "address": Sanitizer(
        "addresses",
        f"-fsanitize=address {DEBUGGABLE}",
        "libasan.so",
        # leaks are looked for by other attacks: Python and MPI leave memory behind
        {"ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"},
        "libstdc++.so",  # it has to know how exceptions of C++ are thrown, as those in SciPy
    ),
    # by itself: together with that of addresses GCC's has no file for what it finds
    "undefined": Sanitizer(
        "undefined behaviour",
        f"-fsanitize=undefined,float-cast-overflow {DEBUGGABLE}",
        "libubsan.so",
        {"UBSAN_OPTIONS": "print_stacktrace=1"},
    ),
    "thread": Sanitizer(
        "threads",
        f"-fsanitize=thread {DEBUGGABLE}",
        "libtsan.so",
        {"TSAN_OPTIONS": "exitcode=0:history_size=4"},
    ),
}
NOT_THE_LIBRARY = (
    *("reliability", "test_option_page.py"),
    # look at headers and sources beside the library, or compile these in other ways
    *("backends/test_plan.py", "native/test_sources.py", "scaling/test_prediction.py"),
)
QUICK = ("tests", "-m", "not (gpu or mpi or petsc or slow)")
PRELOADED = "another_minor_release or with_the_library_of_python or commands_of_a_shell"
"""Tests that load other libraries before that of the sanitizer, and one whose shell does not run with it."""
LONGER = ("tests/native", "tests/planning", "-m", "slow and not (gpu or mpi)", "-k", f"not ({PRELOADED})")
RANKS = ("tests/mpi", "-m", "not gpu", "-k", "pjds and (2 or 3)")
GROUPS = (
    Group("quick tests", "address", QUICK),
    Group("quick tests", "undefined", QUICK),
    Group("longer tests of C", "address", LONGER),
    Group("longer tests of C", "undefined", LONGER),
    Group("programs of 2 and 3 ranks", "address", RANKS),
    Group("programs of 2 and 3 ranks", "undefined", RANKS),
    Group(
        "emulated kernels",
        "undefined",
        ("tests", "-m", "not gpu", "-k", "emulat"),
        {"CXXFLAGS": SANITIZERS["undefined"].flags},
    ),
    Group(
        "threads of the library",
        "thread",
        ("tests/native/runtime", "tests/native/memory", "-m", "not gpu", "-k", f"not ({PRELOADED})"),
    ),
    Group("halo exchanges on 2 and 3 ranks", "thread", ("tests/mpi", "-m", "not gpu", "-k", "halo and (2 or 3)")),
)


def library_of(name: str) -> Path | None:
    """Where the compiler has a library; None if it has none."""
    compiler = shlex.split(launch.petsc_variables()["CC"])
    path = Path(launch.run([*compiler, f"-print-file-name={name}"]).output.strip())
    return path.resolve() if path.is_absolute() and path.exists() else None


def watched(sanitizer: Sanitizer, logs: Path) -> dict[str, str]:
    """The environment of programs that it watches; what it finds is in files of the folder `logs`."""
    libraries = {name: library_of(name) for name in (sanitizer.library, sanitizer.more) if name}
    assert libraries[sanitizer.library], f"the compiler of PETSc has no {sanitizer.library}: GCC's is needed"
    # UCX, below MPICH, replaces munmap(): threads that are watched crash in it as they end, and in the child of a fork
    # a lock of it may be taken for ever
    environment = {"UCX_MEM_EVENTS": "n", **sanitizer.environment}
    environment["LD_PRELOAD"] = " ".join(str(path) for path in libraries.values() if path)
    for name in environment:
        if name.endswith("SAN_OPTIONS"):
            environment[name] += f":log_path={logs / name}"
    return environment


REPORT = re.compile(r"(?:^.*: runtime error: .*$)|(?:^SUMMARY: .*$)", re.MULTILINE)


def reports(logs: Path) -> list[str]:
    """What sanitizers have found, each once, and how often."""
    found = Counter(line for path in sorted(logs.iterdir()) for line in REPORT.findall(path.read_text()))
    return [f"{line} ({number} times)" if number > 1 else line for line, number in found.items()]


def run_group(group: Group) -> Row:
    sanitizer = SANITIZERS[group.sanitizer]
    package = instrumented.package(group.sanitizer, sanitizer.flags)
    words = ("-p", "no:cacheprovider", *group.words)
    with tempfile.TemporaryDirectory() as folder:
        environment = watched(sanitizer, Path(folder)) | group.environment
        finished = instrumented.run_tests(words, package, sanitizer.flags, NOT_THE_LIBRARY, **environment)
        found = reports(Path(folder))
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?)\b", finished.output)}
    row = Row(f"{group.what}, {sanitizer.of}", sum(counts.values()), sum(counts.values()))
    row.failures = found + re.findall(r"^(?:FAILED|ERROR) .*$", finished.output, re.MULTILINE)
    if finished.status and not row.failures:
        row.failures.append(f"status {finished.status}: {finished.output[-900:]}")
    return row


def run_threads(share: float, report: Report) -> Row:
    """The attack of threads, each type in a process of its own."""
    sanitizer = SANITIZERS["thread"]
    package = instrumented.package("thread", sanitizer.flags)
    row = Row(f"products of {threads.THREADS} threads of Python, {sanitizer.of}", 0)
    products = part_of(100, share)
    with tempfile.TemporaryDirectory() as folder:
        environment = instrumented.environment(package, sanitizer.flags) | watched(sanitizer, Path(folder))
        for name in FORMATS:
            request = {"types": [f"aij{name}"], "threads": threads.THREADS, "products": products, "planted": False}
            found = children.run("threads_child", [json.dumps(request)], 1, report, **environment)
            for asked, tried, bad in found.values():
                row.asked += asked * threads.THREADS * products
                row.tried += tried * threads.THREADS * products
                row.failures += bad
        row.failures += reports(Path(folder))
    return row


def run(share: float, seed: int, report: Report, only: tuple[str, ...] = ()) -> list[Row]:
    """All groups, or those with one of the words in their names."""
    rows = []
    chosen = [group for group in GROUPS if not only or any(word in group.what for word in only)]
    for group in chosen[: part_of(len(chosen), share)]:
        rows.append(run_group(group))
        report(f"{rows[-1].what}: {rows[-1].tried} tried, {len(rows[-1].failures)} ended badly")
    if not only or "products" in only:
        rows.append(run_threads(share, report))
    return rows


DEFECT = """
import ctypes, sys
library, name, result, number = sys.argv[1:]
function = getattr(ctypes.CDLL(library), name)
function.restype = getattr(ctypes, result)
print(function(int(number)))
"""


def run_defect(sanitizer: Sanitizer, name: str, result: str, number: int, folder: Path) -> tuple[str, list[str]]:
    """What a function of tests/support/programs/defects.c has printed, and what the sanitizer has found."""
    logs = folder / "logs"
    logs.mkdir()
    library = launch.compiled("defects", folder, "-shared", "-fvisibility=default", *sanitizer.flags.split())
    command = [sys.executable, "-c", DEFECT, library, name, result, number]
    finished = launch.run(command, **watched(sanitizer, logs))
    return finished.output, reports(logs)
