"""What the commands that measure have in common: arguments, what they print, how they end."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from petsc_gpufmt.bench.errors import BenchError

RTOL, MAX_IT = 1e-8, 10_000
"""Of the solves of `bench ksp`, unless others are asked for."""


def add_output(parser: argparse.ArgumentParser, default: Path | None = None) -> None:
    """Where the results go, and the commit that they name."""
    shown = "add the results to this file" + (" (default: %(default)s)" if default else "")
    parser.add_argument("--json", type=Path, metavar="FILE", default=default, help=shown)
    parser.add_argument(
        "--commit", help="commit to name in the results (default: PETSC_GPUFMT_COMMIT, or what git says)"
    )


ERASE_LINE = "\r\033[K"


def show(line: str) -> None:
    """A line of the results; what `progress` said gives way to it."""
    print((ERASE_LINE if sys.stdout.isatty() else "") + line, flush=True)


def progress(what: str) -> None:
    """Say what is measured now, on a terminal alone, until the next line is shown."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(ERASE_LINE + f"... {what}"[:width], end="", flush=True)


def check_choices(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    """BenchError for what is not known."""
    for name in given:
        if name not in known:
            raise BenchError(f"{option} {name}: choose from {', '.join(known)}")


def check_writable(option: str, path: Path) -> None:
    """BenchError if the file that `option` names cannot be written; one that is there stays as it is."""
    try:
        there = path.exists() or path.is_symlink()
        with open(path, "ab"):
            pass
        if not there:
            path.unlink()
    except OSError as e:
        raise BenchError(f"{option} {path}: cannot be written ({e.strerror}); name a file in a folder of yours") from e


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Say how long a benchmark took."""
    start = time.perf_counter()
    yield
    show(f"\n{name}: {time.perf_counter() - start:.0f} s")


@contextlib.contextmanager
def optional_packages() -> Iterator[None]:
    """Benchmarks and tuning need more packages than the matrix types do: those of the extra `bench`."""
    try:
        yield
    except ModuleNotFoundError as e:
        package = (e.name or "").partition(".")[0]
        raise BenchError(f"this command needs {package}, which is not installed: pip install {package}") from e


def finish(wrong: Sequence[str]) -> int:
    """Say which results are wrong; the exit status."""
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0
