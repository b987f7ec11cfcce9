"""The package with its library compiled in another way: with a sanitizer, or with counters of lines."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import launch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "instrumented"
SECONDS = 600


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
