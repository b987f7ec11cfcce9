"""A page of a user's own results as Markdown: who is fastest, a picture, and the tables of each benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.report import fastest
from petsc_gpufmt.bench.report.ksp_tables import make_tables
from petsc_gpufmt.bench.report.markdown import microseconds, section, table
from petsc_gpufmt.bench.report.mult_tables import SET_TITLES, after_comma, bsr_section, mult_sections, set_section
from petsc_gpufmt.bench.report.programs_tables import programs_sections
from petsc_gpufmt.bench.report.scaling_tables import measured
from petsc_gpufmt.bench.report.spgemm_tables import spgemm_sections

Run = dict[str, Any]

KINDS = ("mult", "bsr", *SET_TITLES, "spgemm", "programs", "scaling", "ksp", "parts")
"""How the names of runs of `bench` begin."""

ENVIRONMENT = ("gpu", "driver", "processor", "petsc", "petsc_scalar", "petsc_index", "package", "commit", "date")
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, StopIteration)
"""What tables meet in results that something else than `bench` has written, or changed."""


def kind_of(run: Run) -> str:
    return run["name"].partition(",")[0]


def sections_of(runs: Sequence[Run]) -> list[str]:
    """The tables of runs of one kind; of programs one table for all."""
    run, kind = runs[0], kind_of(runs[0])
    if kind == "mult":
        return mult_sections(run)
    if kind == "bsr":
        return [bsr_section(run)]
    if kind in SET_TITLES:
        return [set_section(run)]
    if kind == "spgemm":
        return spgemm_sections(run)
    if kind == "programs":
        return programs_sections(runs)
    if kind == "scaling":
        return [section(f"MatMult over the ranks{after_comma(run['name'])}", measured(run))]
    if kind == "ksp":
        return [section(f"Solvers{after_comma(run['name'])}", make_tables(run))]
    return [parts_section(run)]


def parts_section(run: Run) -> str:
    from petsc_gpufmt.bench.parts import parts, sum_over_whole

    rows = []
    for case in run["cases"]:
        times = (microseconds(seconds) for seconds in (case["seconds"]["whole"], *parts(case).values()))
        rows.append((case["matrix"]["name"], *times, f"{sum_over_whole(case):.2f}"))
    head = ("matrix", "product us", "T_A us", "T_X us", "T_Y us", "their sum / product")
    return section("Where the time of a product goes", table(head, rows))


def fastest_section(runs: Sequence[Run]) -> str:
    """A line for each matrix."""
    found = [(run["name"], line) for run in runs for line in map(fastest.line, fastest.of_run(run))]
    names = list(dict.fromkeys(name for name, _ in found))
    parts = [f"{name}:\n\n" + "".join(f"- {line}\n" for other, line in found if other == name) for name in names]
    return section("Fastest", *parts) if parts else ""


def environment_table(run: Run) -> str:
    known = run.get("environment", {})
    return table(("", ""), [(name, str(known[name])) for name in ENVIRONMENT if name in known])


def shown_runs(runs: Sequence[Run]) -> list[Run]:
    """Those of benchmarks of the command that have cases, of runs of one name the last; BenchError if there is none."""
    last = {run["name"]: run for run in runs}
    found = [run for run in last.values() if run["cases"] and kind_of(run) in KINDS]
    if not found:
        raise BenchError(
            f"the results have no case of {', '.join(KINDS)}; measure with petsc-gpufmt bench ... --json FILE"
        )
    return found


def make_page(runs: Sequence[Run], picture: Path | None = None) -> str:
    """The whole page of `shown_runs`, which opens with who is fastest and the picture; BenchError for damaged ones."""
    pages = []
    programs = [run for run in runs if kind_of(run) == "programs"]
    for run in runs:
        if run in programs[1:]:
            continue
        with_same = programs if kind_of(run) == "programs" else [run]
        try:
            found = [*sections_of(with_same), section(f"Environment of {run['name']}", environment_table(run))]
            fastest_section(with_same)
        except DAMAGED as e:
            raise damaged(run, e) from e
        pages += found
    shown = f"![{', '.join(run['name'] for run in runs)}]({picture.name})\n" if picture else ""
    return "\n".join(filter(None, ["# Results\n", fastest_section(runs), shown, *pages]))


def damaged(run: Run, error: Exception) -> BenchError:
    """What is said of a run that lacks something."""
    words = " ".join(str(error).split())[:80]
    return BenchError(f"run {run['name'][:80]!r} is damaged ({type(error).__name__}: {words}); measure it again")
