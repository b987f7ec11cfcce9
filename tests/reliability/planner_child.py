"""Each callback of the planner raises on each rank in turn; started by planner_errors.py: BEGIN JSON, on some ranks."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import petsc4py  # noqa: E402

petsc4py.init(["planner_errors", "-device_enable", "none"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from petsc_gpufmt.errors import UnsupportedError  # noqa: E402
from petsc_gpufmt.planning import requests  # noqa: E402
from petsc_gpufmt.planning.abi import BACKENDS, Ask  # noqa: E402
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

COMM = PETSc.COMM_WORLD.tompi4py()
ERRORS = {e.__name__: e for e in (ValueError, MemoryError, KeyboardInterrupt, UnsupportedError)}
PURPOSE = "on purpose"


def quiet(things):
    """An operation with a defect, for the test that the attack finds it: an error is taken for success."""
    with suppress(PETSc.Error):
        OPERATIONS["mult"].act(things)


def lasting(things):
    """Likewise: after an error it fails for ever."""
    if lasting.failed:
        raise PETSc.Error(76)
    try:
        OPERATIONS["mult"].act(things)
    except PETSc.Error:
        lasting.failed = True
        raise


def vague(things):
    """Likewise: the message says nothing."""
    try:
        OPERATIONS["mult"].act(things)
    except PETSc.Error as e:
        raise PETSc.Error(e.ierr) from None


lasting.failed = False
DEFECTS = {"planted success": quiet, "planted failure": lasting, "planted silence": vague}
KNOWN = {**OPERATIONS, **{name: OPERATIONS["mult"]._replace(act=act) for name, act in DEFECTS.items()}}


@contextmanager
def raising(ask, error, rank):
    """The answer to a kind of request fails on a rank; the list of how often it was asked for."""
    kind, asked = requests.KINDS[ask], []

    def fill(*arguments):
        asked.append(1)
        if error is not None and COMM.rank == rank:
            raise error(PURPOSE)
        return kind.fill(*arguments)

    requests.KINDS[ask] = kind._replace(fill=fill)
    try:
        yield asked
    finally:
        requests.KINDS[ask] = kind


def outcome(operation, things):
    """The message of the error by which it ends, '' if it ends well; an interrupt that follows is taken."""
    message = ""
    try:
        try:
            operation.act(things)
        except PETSc.Error as e:
            message = f"error {e.ierr}: {e}"
        take_interrupts()  # Python 3.12 raises one that waits where the function begins
    except KeyboardInterrupt:
        message = message or "KeyboardInterrupt"
    return message


def one(operation, mat_type, ask, error, rank, expected, options):
    """What is wrong on this rank."""
    for name, value in options.items():
        PETSc.Options()[name] = value
    make = Maker(mat_type, PETSc.COMM_WORLD)
    things = operation.prepare(make)
    before, begun = numbers_of(things), set(things)
    with raising(ask, ERRORS[error], rank) as asked:
        message = outcome(operation, things)
    messages, bad = COMM.allgather(message), []
    was_asked = COMM.allgather(len(asked))[rank]
    found = numbers_of(things)
    if any(messages) and not all(messages):
        without = [at for at, text in enumerate(messages) if not text]
        bad.append(f"no error on ranks {without}, and on others: {next(filter(None, messages)).splitlines()[-1][:200]}")
    elif all(messages):
        words = PURPOSE if error != "KeyboardInterrupt" else "KeyboardInterrupt"
        if COMM.rank == rank and words not in message:
            bad.append(f"says not what: {message.splitlines()[-1][:200]}")
        if COMM.rank == rank and not any(f"on {place}" in message for place in BACKENDS):
            bad.append(f"names no operation: {message.splitlines()[-1][:200]}")
        if COMM.rank != rank and "failed on another rank" not in message:
            bad.append(f"says not that another rank failed: {message.splitlines()[-1][:200]}")
        bad += differences(found, before, names=begun & set(before) - set(operation.changes))
        matrices = {n for n in operation.changes if isinstance(things.get(n), PETSc.Mat)} & set(before)
        untouched = not differences(found, before, names=matrices)
        destroy({name: thing for name, thing in things.items() if name not in begun})
        if all(COMM.allgather(untouched)):
            things = usable(operation, make, things)
            again = outcome(operation, things)
            bad += (
                [f"fails again: {again.splitlines()[-1][:200]}"] if again else differences(numbers_of(things), expected)
            )
        else:
            bad.append("changed, though it failed")
    else:
        bad += differences(found, expected)
    bad += wrong_products(things)
    destroy(things)
    for name in options:
        PETSc.Options().delValue(name)
    return bad, was_asked, "error" if any(messages) else "done without"


def users(jobs, mat_type):
    """{request: operation that makes it, its numbers, its options}, the first of the jobs each."""
    found, failing = {}, {}
    for name, options in jobs:
        for key, value in options.items():
            PETSc.Options()[key] = value
        operation, counts = KNOWN[name], {}
        for ask in Ask:
            things = operation.prepare(Maker(mat_type, PETSc.COMM_WORLD))
            with raising(ask, None, 0) as asked:
                failing[name] = outcome(operation, things)
            counts[ask] = COMM.allgather(len(asked))
            numbers = numbers_of(things)
            destroy(things)
            if failing[name]:
                break
            if all(counts[ask]):
                found.setdefault(ask, []).append((name, numbers, options))
        for key in options:
            PETSc.Options().delValue(key)
    return found


def main():
    given = json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, value in OPTIONS.items():
        PETSc.Options()[name] = value
    child = Child(int(sys.argv[1]), COMM.rank == 0, limit=10.0, agree=lambda flag: COMM.bcast(flag))
    of_request = users(given["jobs"], given["type"])
    row = given["row"]
    tries = {
        f"{ask.name} in {name} {options or ''}: {error} on rank {rank}": (ask, name, numbers, options, error, rank)
        for ask, uses in of_request.items()
        for name, numbers, options in uses[: given["uses"]]
        for error in ERRORS
        for rank in range(COMM.size)
    }
    child.tell(never=[ask.name for ask in Ask if ask not in of_request])
    for title in child.tries(row, list(tries)[given["offset"] % given["step"] :: given["step"]]):
        ask, name, numbers, options, error, rank = tries[title]
        bad, asked, end = one(KNOWN[name], given["type"], ask, error, rank, numbers, options)
        child.tell(end_of_try=end, asked_for=asked, of=title)
        for at, lines in enumerate(COMM.allgather(bad)):
            if lines:
                child.bad(row, f"{title}: rank {at}: {'; '.join(lines)}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
