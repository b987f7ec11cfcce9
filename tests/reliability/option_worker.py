"""Tries hostile values of options in a process of its own, which a crash or a hang may end.

Usage: python option_worker.py FOLDER SEED COUNT [OPTION:FIRST ...]

Prints a line of JSON for each value that ended badly, and one for each option that is done. FOLDER/now has the number
of the value that is being tried. Without options it prints the names of all.
"""

from __future__ import annotations

import faulthandler
import json
import numbers
import os
import re
import resource
import signal
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "support"), str(TESTS.parent / "tools")]

import petsc4py  # noqa: E402

if __name__ == "__main__":  # tests import this, and have PETSc as it is
    petsc4py.init(["worker", "-device_enable", "none", "-no_signal_handler"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402,F401
from petsc_gpufmt.backends import native_library  # noqa: E402
from reliability.hostile_options import Subject, hostile, subjects  # noqa: E402

SECONDS = 30
LONGEST_MESSAGE = 1100
ONCE = "gpufmt_start_early"
"""Read by the first matrix of a process that does not refuse it."""
EXCEPTION = re.compile(r"\b(?!GpufmtError)[A-Z]\w*(Error|Exception|Interrupt)\b")
NAMES = re.compile(r"[a-z_0-9/]+")
_asked: set[str] = set()


def watch_kernels() -> None:
    """Notes names of kernels that are not words of the package, before a compiler could see them."""
    from petsc_gpufmt.backends import backend

    function = backend.HostBackend.function

    def watched(self, stem, kernel, template_arguments=(), *more, **named):
        whole = all(isinstance(n, numbers.Integral) for n in template_arguments)
        if not (NAMES.fullmatch(stem) and NAMES.fullmatch(kernel) and whole):
            _asked.add(f"{stem} {kernel} {template_arguments}"[:200])
        return function(self, stem, kernel, template_arguments, *more, **named)

    backend.HostBackend.function = watched


def complaint(subject: Subject, value: str) -> str | None:
    """What is bad about how a value ended; None if nothing is."""
    options = PETSc.Options()
    options.setValue(subject.option, value)
    try:
        subject.use()
        if not options.used(subject.option) and subject.option != ONCE:
            return "nothing has read it"
    except PETSc.Error as e:
        return said_badly(subject, str(e))
    except AssertionError as e:
        return str(e)
    except Exception as e:
        return f"{type(e).__name__}: {str(e)[:150]}"
    finally:
        options.delValue(subject.option)
    return None


def said_badly(subject: Subject, text: str) -> str | None:
    """What is wrong about a message: of ours it is one line that names the option; PETSc's are as they are."""
    message = re.split(r"(?m)^\[0\] ", text)[-1]
    if EXCEPTION.search(message):
        return f"an exception of Python's: {message[:300]!r}"
    if subject.ours and (subject.option not in message or "\n" in message.strip("\n")):
        return f"not one line that names the option: {message[:300]!r}"
    return f"a message of {len(message)} letters" if subject.ours and len(message) > LONGEST_MESSAGE else None


def main() -> None:
    folder, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    known = {subject.option: subject for subject in subjects()}
    if not sys.argv[4:]:
        print(json.dumps(list(known)))
        return
    faulthandler.enable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    watch_kernels()
    native_library.load()
    with open(folder / "now", "r+b", buffering=0) as now:
        for job in sys.argv[4:]:
            option, _, first = job.rpartition(":")
            subject = known[option]
            for number in range(int(first), count):
                os.pwrite(now.fileno(), b"%-20d" % number, 0)
                signal.alarm(SECONDS)
                wrong = complaint(subject, hostile(seed, option, number, subject.words))
                signal.alarm(0)
                if _asked:
                    wrong = f"kernels {sorted(_asked)}"
                    _asked.clear()
                if wrong:
                    print(json.dumps({"option": option, "number": number, "wrong": wrong}), flush=True)
            os.pwrite(now.fileno(), b"%-20d" % -1, 0)
            print(json.dumps({"option": option, "done": count}), flush=True)


if __name__ == "__main__":
    main()
