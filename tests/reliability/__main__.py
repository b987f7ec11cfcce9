"""`python tests/reliability [ATTACK ...]`: the long runs, each by itself, with their results as JSON.

Exit status 1 if anything ended badly. The seed is printed: with it and the attack's name a run can be repeated.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent / name) for name in (".", "support", "petsc", "../tools")]

from petsc_gpufmt.bench.environment import describe  # noqa: E402
from reliability import ATTACKS  # noqa: E402

SELECTION = ("only", "journal", "seconds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/reliability", description=__doc__.splitlines()[0])
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"all if none is named: {', '.join(ATTACKS)}")
    parser.add_argument("--share", type=float, default=1.0, help="of the full number of tries, above 0, at most 1")
    parser.add_argument("--seed", type=int, default=0, help="of what is random")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        help="petsc_tests: types, mat/tests/ex2, ...; sanitizers: words of groups; covered_lines: tests; "
        "long_runs: what is repeated, '4 ranks', ...; other_builds: 3.26-single, ...; limits: padded, 'long row'",
    )
    parser.add_argument("--seconds", type=float, help="petsc_tests, files: after which none begins")
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="petsc_tests, other_builds, files: where a run that is stopped goes on",
    )
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="writes ATTACK.json there")
    parser.add_argument("--list", action="store_true", help="attacks and their minutes, and nothing else")
    options = parser.parse_args()
    unknown = sorted(set(options.attacks) - set(ATTACKS))
    if unknown:
        parser.error(f"no attack {unknown[0]!r}: choose of {', '.join(ATTACKS)}")
    if not 0 < options.share <= 1:
        parser.error(f"--share {options.share}: a number above 0 and at most 1 is needed")
    chosen = {key: value for key, value in vars(options).items() if key in SELECTION and value not in (None, [])}
    failed = 0
    for name in options.attacks or ATTACKS:
        attack = importlib.import_module(f"reliability.{name}")
        if unread := sorted(chosen.keys() - inspect.signature(attack.run).parameters):
            parser.error(f"--{unread[0]} is not for {name}")
        print(f"{name}: {attack.ABOUT} About {attack.MINUTES} minutes in full.", flush=True)
        if options.list:
            continue
        begin = time.perf_counter()
        rows = attack.run(options.share, options.seed, lambda line: print(f"  {line}", flush=True), **chosen)
        seconds = time.perf_counter() - begin
        seconds = max(seconds, sum(getattr(row, "seconds", 0.0) for row in rows))  # those that a journal has, too
        for row in rows:
            print(
                f"  {row.what}: {row.tried} tried, {row.asked} asked for, {len(row.failures)} ended badly", flush=True
            )
            print(*(f"    {line}" for line in row.failures), sep="\n", end="\n" if row.failures else "", flush=True)
            failed += len(row.failures)
        if options.json:
            options.json.mkdir(parents=True, exist_ok=True)
            result = {
                "attack": name,
                "about": attack.ABOUT,
                "share": options.share,
                "seed": options.seed,
                "seconds": round(seconds, 1),
                "environment": describe(),
                "rows": [row.as_json() for row in rows],
            }
            (options.json / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
