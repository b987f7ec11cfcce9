"""The picture of what ranks do in a product, and when: ``python benchmarks/halo_timeline_plot.py > FILE.svg``.

It is drawn from what `halo_timeline.py` has measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from halo_timeline import in_words

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.bench.svg import box, picture, text, ticks, upright
from petsc_gpufmt.cli.outcome import program

RESULTS = Path(__file__).resolve().parent / "results/timeline/h200-x2.json"
MATRIX = "7point:200"

COLOURS = {
    "pack": "#e3a857",
    "send": "#e3a857",
    "wait": "#f3e0bd",
    "MPI_Start": "#c8553d",
    "MPI_Startall": "#c8553d",
    "MPI_Waitall": "#e8b4a6",
    "MPI_Testsome": "#e8b4a6",
    "local": "#588b5b",
    "nonlocal": "#7d8fa3",
    "MatMult": "#b0b7bf",
}
LEGEND = (
    ("kernel that packs or sends", "send"),
    ("MPI_Start or MPI_Startall", "MPI_Startall"),
    ("local part", "local"),
    ("kernel that waits", "wait"),
    ("MPI_Waitall or MPI_Testsome", "MPI_Waitall"),
    ("nonlocal part", "nonlocal"),
    ("PETSc's thread is in MatMult", "MatMult"),
)
LANES = (
    ("exchange", ("pack", "send", "wait", "MPI_Start", "MPI_Startall", "MPI_Waitall", "MPI_Testsome")),
    ("product", ("local", "nonlocal")),
    ("host", ("MatMult",)),
)
WIDTH, LEFT, RIGHT = 900, 150, 20
TOP, HEADING, LANE, BAR, BETWEEN = 48, 40, 16, 13, 6  # the first mode, its words, from lane to lane, a bar, two ranks
LEGEND_STEP, LEGEND_COLUMNS = 20, 3
SHORTEST_BAR, LABELLED_BAR = 0.6, 30
PALE = 0.35  # what belongs to other products
MOST_TICKS = 10  # of microseconds

Case = dict[str, Any]


class Exchange(NamedTuple):
    """Nanoseconds of the exchange of the product that is shown, and those of them in which its local part runs."""

    length: int
    hidden: int


def exchange_of(case: Case, rank: int) -> Exchange:
    """From the kernel that sends, or the first start of sends, until all is there.

    Receives are started before: by an MPI_Startall, or one by one.
    """
    spans = [span for span in case["spans"] if span["rank"] == rank and span["product"] == 0]
    begins = sorted(span["begin"] for span in spans if span["what"] in ("send", "MPI_Startall"))
    ends = [span["end"] for span in spans if span["what"] in ("wait", "MPI_Waitall", "MPI_Testsome")]
    (local,) = (span for span in spans if span["what"] == "local")
    one_by_one = any(span["what"] == "MPI_Start" for span in spans)
    begin, end = begins[0] if one_by_one else begins[:2][-1], max(ends)
    return Exchange(end - begin, max(0, min(end, local["end"]) - max(begin, local["begin"])))


def cases_of(runs: Sequence[dict[str, Any]], matrix: str) -> list[Case]:
    """Those of a matrix, each with its mode in words; BenchError if there are none."""
    cases = [(run, case) for run in runs for case in run["cases"]]
    found = [
        {**case, "mode": case["mode"] + in_words(run["gpu_aware"])} for run, case in cases if case["matrix"] == matrix
    ]
    if not found:
        measured = ", ".join(dict.fromkeys(case["matrix"] for _, case in cases))
        raise BenchError(f"--matrix {matrix}: the results have {measured}")
    return found


def window(case: Case) -> int:
    """Nanoseconds that are shown."""
    return max(span["end"] for span in case["spans"] if span["product"] == 0)


def heading(case: Case, nranks: int) -> tuple[str, str]:
    """Two lines above the lanes of a mode."""
    exchanges = [exchange_of(case, rank) for rank in range(nranks)]
    shares = ", ".join(
        f"rank {rank} {e.hidden / 1e3:.1f} of {e.length / 1e3:.1f} us" for rank, e in enumerate(exchanges)
    )
    times = f"{case['seconds'] * 1e6:.1f} us a product, {case['stamped_seconds'] * 1e6:.1f} us with stamps"
    return f"{case['mode']}: {times}", f"exchange that is hidden behind the local part: {shares}"


def panel(case: Case, nranks: int, y: float, scale: float) -> list[str]:
    """The lanes of a mode, from y on."""
    first, second = heading(case, nranks)
    parts = [text(10, y + 14, first), text(LEFT, y + 32, second)]
    end = window(case)
    y += HEADING
    for rank in range(nranks):
        for lane, (name, names) in enumerate(LANES):
            parts.append(text(LEFT - 8, y + BAR - 2, f"rank {rank}, {name}" if lane == 0 else name, "end"))
            for span in case["spans"]:
                if span["rank"] == rank and span["what"] in names:
                    parts += bar(span, end, y, scale)
                    if span["product"] == 0 and span["end"] < 0:
                        parts.append(
                            text(LEFT, y + BAR - 2, f"was in this MatMult {-span['begin'] / 1e3:.0f} us before")
                        )
            y += LANE
        y += BETWEEN
    return parts


def bar(span: dict[str, Any], window_end: int, y: float, scale: float) -> list[str]:
    """A span as far as it lies in the window; if it belongs to another product, pale and with that one's number."""
    begin, end = max(span["begin"], 0), min(span["end"], window_end)
    if end < begin:
        return []
    width, others = max((end - begin) * scale, SHORTEST_BAR), span["product"] != 0
    parts = [box(LEFT + begin * scale, y, width, BAR, COLOURS[span["what"]], PALE if others else 1)]
    if others and span["what"] == "MatMult" and width >= LABELLED_BAR:
        parts.append(text(LEFT + begin * scale + width / 2, y + BAR - 3, f"{span['product']:+d}", "middle"))
    return parts


def make_plot(runs: Sequence[dict[str, Any]], matrix: str) -> str:
    """All modes of a matrix below each other, with one scale of time; the runs have as many ranks."""
    cases, nranks = cases_of(runs, matrix), runs[0]["ranks"]
    longest = max(map(window, cases))
    scale = (WIDTH - LEFT - RIGHT) / longest
    step = HEADING + nranks * (len(LANES) * LANE + BETWEEN) + BETWEEN
    bottom = TOP + step * len(cases)
    title = f"One MatMult of {matrix} on {nranks} ranks in each mode of the halo exchange: microseconds"
    parts = [text(10, 24, title)]
    for tick in ticks(longest / 1e3, MOST_TICKS):
        x = LEFT + 1e3 * tick * scale
        parts += [upright(x, TOP, bottom), text(x, bottom + 14, f"{tick:g}", "middle")]
    for k, case in enumerate(cases):
        parts += panel(case, nranks, TOP + k * step, scale)
    for k, (words, what) in enumerate(LEGEND):
        x = 10 + (k % LEGEND_COLUMNS) * (WIDTH - 20) / LEGEND_COLUMNS
        y = bottom + 38 + LEGEND_STEP * (k // LEGEND_COLUMNS)
        parts += [box(x, y - 11, 14, 14, COLOURS[what]), text(x + 20, y, words)]
    height = bottom + 38 + LEGEND_STEP * -(-len(LEGEND) // LEGEND_COLUMNS)
    return picture(WIDTH, height, title, parts)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="halo_timeline_plot.py", description="What ranks do in one MatMult, and when, as SVG."
    )
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS, help="JSON (default: %(default)s)")
    parser.add_argument("--matrix", default=MATRIX, help="of those that were measured (default: %(default)s)")
    arguments = parser.parse_args(words)
    print(make_plot(read_runs(arguments.results), arguments.matrix), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("halo_timeline_plot", main))
