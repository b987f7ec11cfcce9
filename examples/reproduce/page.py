"""The page of a paper, made of its results: every published value beside ours, and the pictures.

    python page.py docs/reproduction/pjds_kreutzer_2012.json

FILE.md and FILE_<chart>.svg are written beside FILE.json, in place of earlier ones. Nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasons import reason_of
from report import NOT_MEASURED, NOT_REACHED, shown

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.cli.outcome import program

SIZE = (7.6, 4.2)
LEGEND_COLUMNS = 4
MOST_WORDS = 10
"""More words than these below a bar chart are turned, more places of an axis have no numbers of their own."""

Run = dict[str, Any]


def write_page(path: Path) -> None:
    """FILE.md and its pictures; BenchError for a file that this folder's scripts have not written."""
    runs = read_runs(path)
    if not runs or not all("part" in run for run in runs):
        raise BenchError(
            f"{path}: not results of a script of examples/reproduce/; name a file that one wrote by --json"
        )
    for old in path.parent.glob(f"{path.stem}_*.svg"):
        old.unlink()
    for run in runs:
        for chart in run["charts"]:
            draw(chart, picture_of(path, chart))
    path.with_suffix(".md").write_text(page(path, runs))


def picture_of(path: Path, chart: dict[str, Any]) -> Path:
    return path.with_name(f"{path.stem}_{chart['name']}.svg")


def page(path: Path, runs: Sequence[Run]) -> str:
    """The Markdown of the results in `path`, parts in the order in which the paper has them."""
    verdicts = Counter(case["verdict"] for run in runs for case in run["cases"])
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    head = (
        f"# {runs[0]['paper']['title']}\n\n"
        f"Made by `examples/reproduce/{path.stem}.py`; the numbers are in `{path.name}`. Lines: {counted}. A line is\n"
        "reproduced within the tolerance of its script, 5 % unless it says another one. Exceeded and not reached say\n"
        "on which side ours is.\n"
    )
    return head + "".join(section(path, run) for run in sorted(runs, key=lambda run: order(run["name"])))


def order(name: str) -> tuple[str, int, str]:
    """Tables, then figures, by their numbers."""
    kind, _, number = name.partition("-")
    digits = "".join(c for c in number if c.isdigit())
    return ("0" if kind == "table" else "1" if kind == "figure" else "2", int(digits or 0), name)


def section(path: Path, run: Run) -> str:
    parts = [f"\n## {run['part']['title']}\n\n{measured_on(run)}\n"]
    parts += [f"\n{note}\n" for note in run["notes"]]
    if run["cases"]:
        rows = [[*map(cell, row(run, case))] for case in run["cases"]]
        head = ["", "published", "ours", "", "verdict", "remark"]
        lines = [head, ["---", "--:", "--:", "---", "---", "---"], *rows]
        parts.append("\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines))
    parts += [f"\n![{chart['title']}]({picture_of(path, chart).name})\n" for chart in run["charts"]]
    return "".join(parts)


def row(run: Run, case: dict[str, Any]) -> list[str]:
    ours = "" if case["verdict"] == NOT_MEASURED else shown(case["ours"])
    why = reason_of(run["paper"]["key"], run["name"], case["what"]) if case["verdict"] == NOT_REACHED else ""
    remark = "; ".join(filter(None, [case["remark"], f"why: {why}" if why else ""]))
    return [case["what"], shown(case["published"]), ours, case["unit"], case["verdict"], remark]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def measured_on(run: Run) -> str:
    environment, setting = run["environment"], run["setting"]
    machine = environment["processor"] if setting["place"] == "host" else environment.get("gpu", "a GPU")
    small = ", small sizes: they show that the script runs, not how fast" if setting["small"] else ""
    return f"Measured on {machine}, {environment['date']}, commit {environment['commit']}{small}."


def draw(chart: dict[str, Any], path: Path) -> None:
    """A picture by matplotlib, its text as text; the same bytes for the same data."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as e:
        raise BenchError(f"pictures need matplotlib ({e}): pip install 'petsc_gpufmt[plot]', or matplotlib") from e
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name, "font.size": 9}):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        axes.set(title=chart["title"], xlabel=chart["x_label"], ylabel=chart["y_label"])
        DRAWN[chart["kind"]](axes, chart["series"])
        for axis in chart["log"]:
            getattr(axes, f"set_{axis}scale")("log")
        if "x" in chart["log"]:
            name_places(axes, chart["series"])
        axes.grid(axis="y", color="#dddddd")
        axes.set_axisbelow(True)
        if len(chart["series"]) > 1:
            figure.legend(fontsize=8, loc="outside upper center", ncols=LEGEND_COLUMNS)
        figure.savefig(path, metadata={"Date": None})


def name_places(axes: Any, series: dict[str, Any]) -> None:
    """Few places of a logarithmic axis by their own numbers, such as ranks, in place of powers of ten."""
    places = sorted({x for xs, _ in series.values() for x in xs})
    if len(places) <= MOST_WORDS:
        axes.set_xticks(places, [f"{x:g}" for x in places])
        axes.set_xticks([], minor=True)


def _draw_bars(axes: Any, series: dict[str, Any]) -> None:
    words = list(dict.fromkeys(x for xs, _ in series.values() for x in xs))
    width = 0.8 / len(series)
    for k, (label, (xs, ys)) in enumerate(series.items()):
        places = [words.index(x) + (k - (len(series) - 1) / 2) * width for x in xs]
        axes.bar(places, [0 if y is None else y for y in ys], width, label=label)
    axes.set_xticks(range(len(words)), words)
    if len(words) > MOST_WORDS:
        for word in axes.get_xticklabels():
            word.set(rotation=60, horizontalalignment="right", rotation_mode="anchor")


def _draw_lines(axes: Any, series: dict[str, Any]) -> None:
    for label, (xs, ys) in series.items():
        axes.plot(xs, [float("nan") if y is None else y for y in ys], marker="o", markersize=4, label=label)


def _draw_steps(axes: Any, series: dict[str, Any]) -> None:
    for label, (xs, ys) in series.items():
        axes.step(xs, ys, where="mid", label=label)


DRAWN = {"bars": _draw_bars, "lines": _draw_lines, "steps": _draw_steps}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE.json", help="what a script wrote by --json")
    arguments = parser.parse_args()
    for path in arguments.results:
        if path.suffix != ".json" or not path.is_file():
            parser.error(f"{path}: there is no such JSON file")

    def write() -> int:
        for path in arguments.results:
            write_page(path)
        return 0

    return program("page", write)


if __name__ == "__main__":
    sys.exit(main())
