"""An operation that gets SIGINT, and the end of the process with all that it has made; started by interrupts.py.

NAME ROWS TRACED. It prints how many seconds the operation takes.
"""

from __future__ import annotations

import atexit
import ctypes
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import petsc4py  # noqa: E402

petsc4py.init(["interrupted end", "-device_enable", "none", "-no_signal_handler"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.operations import OPERATIONS, OPTIONS, Maker  # noqa: E402

PLANTED = "planted crash"


def main():
    name, rows, traced = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
    for option, value in OPTIONS.items():
        PETSc.Options()[option] = value
    operation, make = OPERATIONS["mult" if name == PLANTED else name], Maker("aijpjds", PETSc.COMM_SELF, rows)
    for _ in range(2):
        things = operation.prepare(make)
        start = time.perf_counter()
        operation.act(things)
        seconds = time.perf_counter() - start
    things = operation.prepare(make)
    if name == PLANTED:
        atexit.register(ctypes.string_at, 0)
    print(seconds, flush=True)
    sys.setprofile((lambda *_: None) if traced else None)
    operation.act(things)
    time.sleep(seconds)  # where it comes late


main()
