"""Runs sequences of operations on twins, on the ranks that it is started on; `twins.py` starts it.

    mpiexec -n 2 python tests/reliability/twin_ranks.py --first 0 --count 100
    mpiexec -n 2 python tests/reliability/twin_ranks.py --seed 7 --calls scale:3 mult:12

The first rank prints `begin SEED` before each sequence, and `differs SEED CALLS : WHAT` for each that ends badly,
with the calls of the shortest sequence that still does. A sequence that does not end takes the program with it: all
ranks say where they are. After `SECONDS` the rest is left to another program.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SECONDS = 60  # well before launch.run ends it
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.twin.defects import DEFECTS  # noqa: E402
from reliability.twin.matrices import COMM, WORLD  # noqa: E402
from reliability.twin.sequence import Walk, difference, shrunk  # noqa: E402


def say(line: str) -> None:
    if COMM.rank == 0:
        print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="seed of the first sequence")
    parser.add_argument("--count", type=int, default=1, help="of sequences, of that seed and those that follow")
    parser.add_argument("--seed", type=int, help="of the only sequence")
    parser.add_argument("--calls", nargs="*", help="of the only sequence, as NAME:NUMBER")
    parser.add_argument("--defect", choices=DEFECTS, help="puts a defect into the matrices of our types")
    parser.add_argument("--limit", type=int, default=30, help="seconds for a sequence, after which the program ends")
    parser.add_argument("--places", type=Path, help="folder in which each rank says where it was then")
    options = parser.parse_args()
    walks = [Walk.drawn(seed) for seed in range(options.first, options.first + options.count)]
    if options.seed is not None:
        given = (call.split(":") for call in options.calls or ())
        calls = tuple((name, int(number)) for name, number in given)
        walks = [Walk(options.seed, calls) if options.calls is not None else Walk.drawn(options.seed)]
    defect = DEFECTS.get(options.defect)
    places = open(options.places / f"{COMM.rank}", "w") if options.places else sys.stderr

    def differs(walk: Walk) -> str:
        faulthandler.dump_traceback_later(options.limit, file=places)
        signal.alarm(options.limit + 2)  # once all ranks have said where they are
        try:
            return difference(walk, defect)
        finally:
            signal.alarm(0)
            faulthandler.cancel_dump_traceback_later()

    failed, done, start = 0, 0, time.monotonic()
    for walk in walks:
        if WORLD.bcast(time.monotonic() - start > SECONDS):
            break
        done += 1
        say(f"begin {walk.seed}")
        if differs(walk):
            failed += 1
            short = shrunk(walk, lambda shorter: bool(differs(shorter)))
            say(f"differs {' '.join(short.words())} : {differs(short)}")
    say(f"end {done}")
    PETSc.garbage_cleanup()
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
