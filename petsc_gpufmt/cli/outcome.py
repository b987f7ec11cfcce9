"""How commands end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.errors import GpufmtError

INTERRUPTED = 128 + signal.SIGINT


def exit_status(program: str, run: Callable[[], int]) -> int:
    """What `run` returns; errors and Ctrl-C end it in one line that begins with `program`."""
    try:
        return run()
    except (GpufmtError, BenchError) as e:
        print(f"{program}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED


def program(name: str, run: Callable[[], int]) -> int:
    """The exit status of a program; SIGTERM ends it as an exception does, so that what it has started is ended too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return exit_status(name, run)
