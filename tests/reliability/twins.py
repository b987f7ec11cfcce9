"""Twins: random sequences of operations on a matrix of type aij and on one of ours, on one rank and on several."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import launch

from reliability.attack import Report, Row, part_of

ABOUT = "Random sequences of 50 operations, on a matrix of a type of ours and on its twin of type aij."
MINUTES = 12
SEQUENCES = {1: 6000, 2: 2500, 3: 1500}
"""How many by the number of ranks; in all more than 10^4."""

_PROGRAM = Path(__file__).with_name("twin_ranks.py")
_BATCH = 200  # sequences of one program, which has two minutes
_TRIES = 60  # programs that are started to shrink a sequence that ends one


def run(share: float, seed: int, report: Report) -> list[Row]:
    return [_run_on(ranks, part_of(number, share), seed, report) for ranks, number in SEQUENCES.items()]


def _run_on(ranks: int, number: int, seed: int, report: Report) -> Row:
    row = Row(f"sequences of 50 operations on {ranks} rank{'s' * (ranks > 1)}", asked=number)
    first = seed * 10**7 + ranks * 10**6
    end = first + number
    while first < end:
        ended = run_batch(ranks, first, min(_BATCH, end - first))
        row.tried += ended.tried
        row.failures += ended.failures
        report(f"{ranks} ranks: {row.tried} of {number} sequences, seeds to {first + ended.tried - 1}")
        first += max(1, ended.tried)
    return row


def run_batch(ranks: int, first: int, count: int, *more: object) -> Row:
    """Sequences of these seeds; up to the one, and with it, that ends the program."""
    output, status = _ended(ranks, "--first", first, "--count", count, *more)
    begun = [int(seed) for seed in re.findall(r"^begin (\d+)$", output, re.MULTILINE)]
    failures = [f"{_command(ranks)} {line}" for line in re.findall(r"^differs (.*)$", output, re.MULTILINE)]
    if not re.search(r"^end \d+$", output, re.MULTILINE):
        failures.append(_shrunk_by_programs(ranks, begun[-1], *more) if begun else f"status {status}: {output[-2000:]}")
    return Row("", count, len(begun), failures)


def _ended(ranks: int, *words: object) -> tuple[str, int | str]:
    try:
        finished = launch.run([sys.executable, _PROGRAM, *words], ranks=ranks)
    except TimeoutError as error:
        return "", str(error)
    return finished.output, finished.status


def _command(ranks: int) -> str:
    return f"mpiexec -n {ranks} python tests/reliability/{_PROGRAM.name}"


def _shrunk_by_programs(ranks: int, seed: int, *more: object) -> str:
    """The shortest sequence that still ends a program before its own end, and with what status."""
    from reliability.twin.sequence import Walk, shrunk

    def ends_program(walk: Walk) -> bool:
        output, _ = _ended(ranks, *walk.words(), *more)
        return not re.search(r"^end \d+$", output, re.MULTILINE)

    short = shrunk(Walk.drawn(seed), ends_program, _TRIES)
    output, status = _ended(ranks, *short.words(), *more)
    reason = next(iter(re.findall(r"Caught signal.*", output)), f"status {status}")
    return f"{_command(ranks)} {' '.join(short.words())} : {reason}"
