"""PETSc's own test blocks, all of them, with types of ours in the place of aij: outputs beside those with aij."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from blocks import Block, read_blocks
from petsc_config import find_petsc
from programs import ProgramError, Programs, programs_here
from requirements import build_of

from petsc_gpufmt.backends.native_library import option_table
from reliability.attack import Report, Row, add_to_journal, part_of, read_journal
from reliability.petsc_reasons import reason
from reliability.petsc_runs import BAD, LEFT_OUT, NOT_COMPARED, SAME, Blocks, Outcome, Task

ABOUT = (
    "Every test block of PETSc's mat, ksp, snes, ts, tao and dm that this build can run, with a type of ours in the "
    "place of aij, beside its output with aij: reals within 1e-5, all else equal."
)
MINUTES = 180
PACKAGES = ("mat", "ksp", "snes", "ts", "tao", "dm")
TYPES = ("pjds", "gpufmt", "bsr", "csradaptive")
MOST_RANKS = 4
MOST_COMBINATIONS = 4
CONTROLS = ("perm", "sell")


@dataclass
class Counted(Row):
    """A row with the number of runs of each kind, and what explains those that differ."""

    counts: dict[str, int] = field(default_factory=dict)
    explained: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0


class Kept(NamedTuple):
    """What a journal has of a task and a type."""

    kind: str = "not run"
    detail: str = ""
    plans: int = 0
    why: str = ""
    seconds: float = 0.0


Known = dict[tuple[str, str], Kept]


def every_type() -> list[str]:
    return ["gpufmt", *option_table()]


def blocks_to_run(programs: Programs, only: Sequence[str] = ()) -> list[Block]:
    """Those of PETSC's C programs that this build can run; `only` are beginnings of `program name`."""
    build, found = build_of(find_petsc()), []
    for package in PACKAGES:
        for source in sorted((programs.sources / "src" / package).rglob("*.c")):
            program = str(source.relative_to(programs.sources / "src").with_suffix(""))
            if "tests" in source.parts or "tutorials" in source.parts:
                found += [
                    block
                    for block in read_blocks(source, program)
                    if not block.left_out and not build.lacks(block.requires) and "DATAFILESPATH" not in block.arguments
                ]
    return [block for block in found if not only or f"{block.program} {block.name}".startswith(tuple(only))]


def tasks_of(block: Block) -> list[Task]:
    """At most so many of the combinations of its loops, the first one and others that are evenly spread."""
    runs = [(ranks, line) for ranks, line in block.runs() if ranks <= MOST_RANKS]
    count = min(len(runs), MOST_COMBINATIONS)
    return [Task(block, *runs[k * len(runs) // count]) for k in range(count)]


def run(
    share: float,
    seed: int,
    report: Report,
    only: Sequence[str] = (),
    journal: Path | None = None,
    seconds: float = math.inf,
) -> list[Counted]:
    """`only` has types, and beginnings of `program name`; runs that `journal` has are not run again.

    None begins after `seconds`: those are counted as not run.
    """
    end = time.monotonic() + seconds
    types = [word for word in only if word in every_type()] or list(TYPES)
    programs = programs_here()
    blocks = blocks_to_run(programs, [word for word in only if word not in types])
    tasks = [task for block in blocks for task in tasks_of(block)]
    if share < 1:
        tasks = sorted(random.Random(seed).sample(tasks, part_of(len(tasks), share)), key=tasks.index)
    known = _read(journal)
    left_out = {name: ended for (name, _), ended in known.items() if ended.kind in NOT_COMPARED}
    for number, task in enumerate(tasks):
        for name in types if task.name in left_out else ():
            known.setdefault((task.name, name), left_out[task.name]._replace(seconds=0.0))
        wanted = [name for name in types if (task.name, name) not in known]
        if wanted and time.monotonic() < end:
            known.update(_run_task(programs, task, wanted, journal))
            for name in wanted:
                kept = known[task.name, name]
                if kept.kind in BAD and not kept.why:
                    report(f"{number} of {len(tasks)}: {task.name}, {name}: {kept.kind}: {kept.detail}")
    return _rows(tasks, types, known)


def _read(journal: Path | None) -> Known:
    return {(line.pop("task"), line.pop("type")): Kept(**line) for line in read_journal(journal)}


def _run_task(programs: Programs, task: Task, types: Iterable[str], journal: Path | None) -> Known:
    known: Known = {}
    begin = time.monotonic()
    for name, outcome, why in outcomes(programs, task, types):
        now = time.monotonic()
        kept = Kept(outcome.kind, outcome.detail, outcome.plans, why, round(now - begin, 2))
        known[task.name, name], begin = kept, now
        add_to_journal(journal, {"task": task.name, "type": name, **kept._asdict()})
    return known


def outcomes(programs: Programs, task: Task, types: Iterable[str]) -> Iterable[tuple[str, Outcome, str]]:
    """What became of it with each of the types; and, of what is bad, that another type of PETSc's does the same."""
    try:
        programs.compile(task.block.program)
    except ProgramError as error:
        lines = [line for line in str(error).splitlines() if "error" in line]
        yield from ((name, Outcome("not compiled", lines[0] if lines else ""), "") for name in types)
        return
    runs = Blocks(programs, task)
    left_out = runs.look()
    of_controls: dict[tuple[str, int], Outcome] = {}
    for name in types:
        outcome, why = left_out or runs.compare(name), ""
        if outcome.kind in BAD:
            why = explanation(runs, name, outcome, of_controls)
        yield name, outcome, why


def explanation(runs: Blocks, name: str, outcome: Outcome, of_controls: dict[tuple[str, int], Outcome]) -> str:
    """What other runs say of one that ended badly: other types of PETSc's, and the order of aggregates; or ""."""
    why = ""
    for control in CONTROLS:
        if (control, outcome.way) not in of_controls:
            of_controls[control, outcome.way] = runs.compare_way(control, outcome.way, plugin=False)
        if outcome.is_like(of_controls[control, outcome.way]):
            return f"PETSc's type aij{control} does the same"
        if outcome.kind == "numbers" == of_controls[control, outcome.way].kind:
            why = why or f"PETSc's type aij{control} differs from aij there too"
    if outcome.kind == "numbers" and runs.with_order_of_agg(name, outcome.way).kind in SAME:
        return "GAMG on several ranks: with -pc_gamg_gpufmt_order petsc it is as with aij"
    return why


def _rows(tasks: Sequence[Task], types: Sequence[str], known: Known) -> list[Counted]:
    rows: dict[tuple[str, str], Counted] = {}
    kinds: dict[tuple[str, str], Counter[str]] = {}
    for name in types:
        for task in tasks:
            directory = _directory(task.block)
            row = rows.setdefault((directory, name), Counted(f"{directory}, {name}", 0))
            kind, detail, plans, why, seconds = known.get((task.name, name), Kept())
            row.seconds += seconds
            counts = kinds.setdefault((directory, name), Counter())
            counts[kind] += 1
            counts["with products of ours"] += plans > 0
            row.asked += 1
            row.tried += kind in (*SAME, *BAD)
            if kind in BAD:
                if why := reason(task.name, kind, detail) or why:
                    row.explained.setdefault(why, []).append(f"{kind}: {task.name}")
                    counts["explained"] += 1
                else:
                    row.failures.append(f"{kind}: {task.name} with {name}: {' | '.join(detail.splitlines()[:8])}")
    for key, row in rows.items():
        row.counts = {kind: kinds[key][kind] for kind in COLUMNS}
    return list(rows.values())


COLUMNS = (*SAME, *BAD, "explained", "with products of ours", *LEFT_OUT, "not compiled", "not run")


def _directory(block: Block) -> str:
    """src/<package>/<folder>, and the next one in folders that hold most of the package."""
    words = block.directory.split("/")
    return "/".join(words[: 3 if words[1] in ("ksp", "impls") else 2])
