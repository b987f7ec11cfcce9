"""The package with its library compiled in another way: with a sanitizer, or with counters of lines."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import launch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "instrumented"
SECONDS, TESTS_SECONDS = 600, 3 * 3600
NOT_THE_PACKAGE = (
    *("benchmarks", "kernels", "reproduce", "test_docs.py", "test_docs_code.py", "test_docs_site.py"),
    *("test_format_pictures.py", "test_packaging.py", "test_recipes.py"),
)
"""Tests of what lies beside the package, which would tell nothing of its library."""


def package(name: str, flags: str) -> Path:
    """A folder for the front of PYTHONPATH, with a copy of the package whose library has these flags; kept in `build`.

    Python must not have the source tree before it: with PYTHONSAFEPATH=1 that is so.
    """
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "setup.py", "-q", "build"]
    places = ["--build-lib", folder / "package", "--build-temp", folder / "temp"]
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        finished = launch.run(
            [*command, *places], cwd=ROOT, seconds=SECONDS, CFLAGS=flags, PETSC_GPUFMT_ARCH="none", LD_PRELOAD=""
        )
    assert finished.status == 0, str(finished)
    return folder / "package"


def environment(package: Path, flags: str) -> dict[str, str]:
    """For programs that use that package; what tests compile of C has its flags as well."""
    return {"PYTHONPATH": os.fspath(package), "PYTHONSAFEPATH": "1", "CFLAGS": flags}


def run_tests(
    words: tuple[str, ...], package: Path, flags: str, left_out: tuple[str, ...] = (), **more: str
) -> launch.Finished:
    """Tests that pytest selects by `words`, but for NOT_THE_PACKAGE and `left_out`, with more variables."""
    ignored = [f"--ignore=tests/{name}" for name in (*NOT_THE_PACKAGE, *left_out)]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *ignored, *words]
    return launch.run(command, cwd=ROOT, seconds=TESTS_SECONDS, **environment(package, flags) | more)
