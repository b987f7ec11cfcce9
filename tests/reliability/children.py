"""Child processes that try one thing after another: what they tell, and what becomes of those that crash or hang.

A child prints a line of JSON before each try and for each that ends badly. If it dies, the try that it had begun is the
failure, and the next child goes on behind it.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MARK = "@reliability "
FOLDER = Path(__file__).resolve().parent
SECONDS = 60  # after which a child leaves the rest to the next one, well before launch.run ends it


class Child:
    """The child's side. `begin` says where to go on; a try that takes longer than `limit` seconds ends the process."""

    def __init__(
        self,
        begin: int,
        speaks: bool,
        limit: float = 10.0,
        agree: Callable[[bool], bool] = bool,
        seconds: float = SECONDS,
    ):
        self.begin, self.speaks, self.limit, self.agree, self.seconds = begin, speaks, limit, agree, seconds
        self.number, self.start = 0, time.monotonic()

    def tell(self, **what: Any) -> None:
        if self.speaks:
            print(MARK + json.dumps(what), flush=True)

    def tries(self, row: str, names: list[str]) -> Iterator[str]:
        """Those of the named tries that this child has to make; `names` must not depend on the child."""
        if names:
            self.tell(row=row, asked=len(names), first=self.number)
        for name in names:
            self.number += 1
            if self.number <= self.begin:
                continue
            if self.agree(time.monotonic() - self.start > self.seconds):
                self.tell(next=self.number - 1)
                raise SystemExit(0)
            self.tell(at=self.number, row=row, name=name)
            faulthandler.dump_traceback_later(self.limit, exit=True)
            yield name
            faulthandler.cancel_dump_traceback_later()

    def bad(self, row: str, line: str) -> None:
        self.tell(bad=line, row=row)


def run(
    program: str,
    arguments: list[str],
    ranks: int,
    report: Callable[[str], None],
    seconds: float = 2 * SECONDS,
    **environment: str,
) -> dict[str, Any]:
    """All tries of a program of this folder, on one rank without mpiexec: {row: [asked, tried, failures]}."""
    import launch

    rows: dict[str, list[Any]] = {}
    firsts: dict[str, set[int]] = {}
    begin, deaths = 0, 0
    while True:
        command = [sys.executable, FOLDER / f"{program}.py", str(begin), *arguments]
        try:
            finished = launch.run(command, ranks=ranks if ranks > 1 else None, seconds=seconds, **environment)
            status, output = finished.status, finished.output
        except TimeoutError as e:
            status, output = -1, str(e)
        told = [json.loads(line[len(MARK) :]) for line in output.splitlines() if line.startswith(MARK)]
        at, after = None, None
        for line in told:
            row = rows.setdefault(line["row"], [0, 0, []]) if "row" in line else None
            if "asked" in line and line["first"] not in firsts.setdefault(line["row"], set()):
                firsts[line["row"]].add(line["first"])
                row[0] += line["asked"]
            if "at" in line:
                at = line
                row[1] += 1
            if "bad" in line:
                row[2].append(line["bad"])
            after = line.get("next", after)
        if after is not None:
            begin = after
            continue
        if any("end" in line for line in told):
            return rows
        deaths += 1
        last = " | ".join([line for line in output.splitlines() if line and not line.startswith(MARK)][-12:])
        if at is None or at["at"] <= begin or deaths > 40:
            row = rows.setdefault(at["row"] if at else program, [0, 0, []])
            row[2].append(f"status {status}, and the rest was not tried: {last[-1500:]}")
            return rows
        rows[at["row"]][2].append(f"{at['name']}: status {status}: {last[-900:]}")
        report(f"{at['name']}: a process that ended with status {status}")
        begin = at["at"]
