"""How commands end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.errors import GpufmtError

WRONG_RESULTS, NOT_DONE = 1, 2
"""Exit status of a command whose results are wrong, and of one that cannot do what was asked."""

INTERRUPTED = 128 + signal.SIGINT


def exit_status(program: str, run: Callable[[], int]) -> int:
    """What `run` returns; errors and Ctrl-C end it in one line that begins with `program`."""
    try:
        return run()
    except (GpufmtError, BenchError) as e:
        print(f"{program}: {e}", file=sys.stderr)
        return NOT_DONE
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED


def program(name: str, run: Callable[[], int]) -> int:
    """The exit status of a program that does `run`."""
    # leave as by an exception, so that programs that a benchmark started are ended too
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # PETSc's handlers would take the place of this one and of Python's for a closed pipe, and abort MPI
    native_library.load().PetscOptionsSetValue(None, b"-no_signal_handler", b"true")
    try:
        status = exit_status(name, run)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in the buffer goes nowhere
        return 128 + signal.SIGPIPE
    return status
