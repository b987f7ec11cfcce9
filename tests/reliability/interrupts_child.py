"""SIGINT at moments spread over each operation; started by interrupts.py: BEGIN JSON. A process of its own sends it."""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]


SENT = mmap.mmap(-1, 8)
"""How many interrupts the sender has sent, which both processes see."""


def sender() -> int:
    """A pipe to a child, made before there are threads: it gets a number of seconds, and sends SIGINT after it."""
    wanted, ask = os.pipe()
    if os.fork():
        os.close(wanted)
        return ask
    os.close(ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    while given := os.read(wanted, 8):
        time.sleep(struct.unpack("d", given)[0])
        if os.getppid() == parent:
            os.kill(parent, signal.SIGINT)
        SENT[:] = struct.pack("q", struct.unpack("q", SENT[:])[0] + 1)
    os._exit(0)


ASK = sender() if __name__ == "__main__" else -1

import petsc4py  # noqa: E402

petsc4py.init(["interrupts", "-device_enable", "none"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402
from reliability.operations import (  # noqa: E402
    OPERATIONS,
    OPTIONS,
    Maker,
    destroy,
    differences,
    numbers_of,
    take_interrupts,
    usable,
    wrong_products,
)

SAYS_SO = "KeyboardInterrupt", "locked for read-only access"
"""PETSc's MatMult() leaves a vector locked after an error; what PETSc goes on with then says no more than that."""


def swallow(things):
    """An operation with a defect, for the test that the attack finds it: what an interrupt leaves is wrong."""
    try:
        time.sleep(0.02)
    except KeyboardInterrupt:
        things["A"].scale(2.0)
        raise
    OPERATIONS["mult"].act(things)


def hang(things):
    try:
        time.sleep(0.02)
    except KeyboardInterrupt:
        while True:
            time.sleep(1.0)


PLANTED = {
    "planted change": OPERATIONS["mult"]._replace(act=swallow),
    "planted hang": OPERATIONS["mult"]._replace(act=hang),
}


def interrupted(operation, things, seconds, traced):
    """How the operation ends that gets a SIGINT after some seconds; `traced`: Python looks for it more often."""
    end, number = "", struct.unpack("q", SENT[:])[0] + 1
    try:
        try:
            sys.setprofile((lambda *_: None) if traced else None)
            os.write(ASK, struct.pack("d", seconds))  # on a busy machine it may come right here
            operation.act(things)
            end = "ended before"
        except PETSc.Error as e:
            end = "error" if any(words in str(e) for words in SAYS_SO) else f"error {e.ierr} without a word of it: {e}"
    except KeyboardInterrupt:
        end = end if end.startswith("error") else "KeyboardInterrupt"
    while True:
        try:
            sys.setprofile(None)
            while struct.unpack("q", SENT[:])[0] < number:
                time.sleep(0.0002)
            break
        except KeyboardInterrupt:
            continue
    return end


def one(operation, make, expected, seconds, traced):
    """What is wrong after an interrupt, and how the operation ended."""
    things = operation.prepare(make)
    before, begun = numbers_of(things), set(things)
    end = interrupted(operation, things, seconds, traced)
    with suppress(KeyboardInterrupt):  # Python 3.12 raises one where the function begins
        take_interrupts()  # one that came with the end of the operation may be raised only now
    bad = [end] if "without a word" in end else []
    found = numbers_of(things)
    bad += differences(found, before, names=begun & set(before) - set(operation.changes))
    bad += wrong_products(things)
    matrices = {n for n in operation.changes if isinstance(things.get(n), PETSc.Mat)}
    if not differences(found, before, names=matrices & set(before)):
        destroy({name: thing for name, thing in things.items() if name not in begun})
        things = usable(operation, make, things) if end != "ended before" else things
        operation.act(things)
    bad += differences(numbers_of(things), expected)
    destroy(things)
    return bad, end


def main():
    given = json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
    for name, value in OPTIONS.items():
        PETSc.Options()[name] = value
    child = Child(int(sys.argv[1]), True, limit=given["limit"])
    for name, count in given["jobs"]:
        operation, make = {**OPERATIONS, **PLANTED}[name], Maker("aijpjds", PETSc.COMM_SELF, count)
        for _ in range(2):
            things = operation.prepare(make)
            start = time.perf_counter()
            operation.act(things)
            seconds = time.perf_counter() - start
            expected = numbers_of(things)
            destroy(things)
        moments = given["moments"]
        names = [f"{name}, moment {k} of {moments}" for k in range(moments)]
        for title in child.tries(name, names):
            number = names.index(title)
            bad, end = one(operation, make, expected, (number + 0.5) / moments * seconds * 1.2, traced=number % 2)
            child.tell(end_of_try=end.split(":")[0], of=name)
            if bad:
                child.bad(name, f"{title}: {'; '.join(bad)}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
