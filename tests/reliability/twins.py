"""Twins: random sequences of operations on a matrix of type aij and on one of ours, on one rank and on several."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import launch

from reliability.attack import Report, Row, part_of

ABOUT = "Random sequences of 50 operations, on a matrix of a type of ours and on its twin of type aij."
MINUTES = 40
SEQUENCES = {1: 8000, 2: 1500, 3: 700}
"""How many by the number of ranks; in all more than 10^4."""

_PROGRAM = Path(__file__).with_name("twin_ranks.py")
_BATCH = 200  # sequences of one program, which has two minutes
_TRIES = 60  # programs that are started to shrink a sequence that ends one
_LIMIT = 10  # seconds that each of them waits for its sequence


def run(share: float, seed: int, report: Report) -> list[Row]:
    return [
        run_on(ranks, seed * 10**7 + ranks * 10**6, part_of(number, share), report)
        for ranks, number in SEQUENCES.items()
    ]


def run_on(ranks: int, first: int, number: int, report: Report) -> Row:
    """Sequences of these seeds, in one program after another."""
    row = Row(f"sequences of 50 operations on {ranks} rank{'s' * (ranks > 1)}", asked=number)
    while row.tried < number:
        ended = run_batch(ranks, first + row.tried, min(_BATCH, number - row.tried))
        row.tried += max(1, ended.tried)
        row.failures += ended.failures
        report(f"{ranks} ranks: {row.tried} of {number} sequences, seeds to {first + row.tried - 1}")
    return row


def run_batch(ranks: int, first: int, count: int, *more: object, tries: int = _TRIES) -> Row:
    """Sequences of these seeds; up to the one, and with it, that ends the program, or until it leaves the rest."""
    output, status = _ended(ranks, "--first", first, "--count", count, *more)
    begun = [int(seed) for seed in re.findall(r"^begin (\d+)$", output, re.MULTILINE)]
    failures = [f"{_command(ranks)} {line}" for line in re.findall(r"^differs (.*)$", output, re.MULTILINE)]
    if not _came_to_its_end(output):
        failures.append(
            _shrunk_by_programs(ranks, begun[-1], tries, _reason(output, status), *more)
            if begun
            else f"status {status}: {output[-2000:]}"
        )
    return Row("", count, len(begun), failures)


def _came_to_its_end(output: str) -> bool:
    return bool(re.search(r"^end \d+$", output, re.MULTILINE))


def _ended(ranks: int, *words: object) -> tuple[str, int | str]:
    """The output, then where each rank was if the program did not end, and the status."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            finished = launch.run([sys.executable, _PROGRAM, *words, "--places", folder], ranks=ranks)
        except TimeoutError as error:
            return "", str(error)
        places = [path.read_text() for path in sorted(Path(folder).iterdir())]
    return "".join([finished.output, *places]), finished.status


def _command(ranks: int) -> str:
    return f"mpiexec -n {ranks} python tests/reliability/{_PROGRAM.name}"


def _shrunk_by_programs(ranks: int, seed: int, tries: int, first: str, *more: object) -> str:
    """The shortest sequence that still ends a program before its own end, and how.

    Not looked for if the sequence comes to its end by itself: on a busy machine it may merely have been too slow.
    """
    from reliability.twin.sequence import Walk, shrunk

    def ends_program(walk: Walk) -> bool:
        return not _came_to_its_end(_ended(ranks, *walk.words(), "--limit", _LIMIT, *more)[0])

    short = Walk.drawn(seed)
    output, status = _ended(ranks, *short.words(), *more)
    if not _came_to_its_end(output):
        short = shrunk(short, ends_program, tries)
        output, status = _ended(ranks, *short.words(), "--limit", _LIMIT, *more)
    command, reason = f"{_command(ranks)} {' '.join(short.words())}", _reason(output, status)
    return f"{command} : {reason}" + (f"; before, {first}" if _came_to_its_end(output) else "")


def _reason(output: str, status: int | str) -> str:
    """How a program has ended: by itself, by which signal, or where its ranks were waiting."""
    if _came_to_its_end(output):
        differs = re.findall(r"^differs .*? : (.*)$", output, re.MULTILINE)
        return differs[0] if differs else "ends well by itself, so it is right at times, or was too slow"
    waiting = re.findall(r"^Timeout .*\n(?:.*\n)*?.*/twin/(\w+\.py)\", line (\d+) in (\w+)", output, re.MULTILINE)
    if waiting:
        return "no end: " + ", ".join(f"a rank is in {name}() ({file}:{line})" for file, line, name in waiting)
    return next(iter(re.findall(r"Caught signal.*", output)), f"status {status}")
