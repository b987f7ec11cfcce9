"""What the scripts of this folder have in common: arguments, lines with a published value beside ours, and results.

A script is a list of parts, each a table or a figure of its paper, and one call:

    PAPER = Paper("pjds_kreutzer_2012", "Kreutzer et al., ..., 2012")
    PARTS = (Part("table-1", "Table I: storage and GF/s", table_1), ...)

    if __name__ == "__main__":
        sys.exit(main(__doc__, PAPER, PARTS))

A part is a generator: it is called with a `Setting` and yields what it finds, in the order of the page:

- `line(...)`: one published value and ours, with the verdict that the two have;
- `unmeasured(...)`: a published value without one of ours, and why;
- a `Chart`: data of a picture, drawn by page.py;
- a text: a note, a line of its own above the table of the part.

`main` knows --json, --host, --small, --figure, --matrices, --seconds and --commit, prints each line as it comes and
adds it to the JSON file: one run for each part, in the form of petsc_gpufmt/bench/results.py, so that parts can be
measured one at a time and on several machines. A run has what `Recorder` writes, and

    paper: {"key", "title"}   part: {"name", "title"}   setting: {"small", "place"}   notes: [text]
    cases: lines, {"what", "published", "ours", "unit", "verdict", "remark"}   charts: [Chart as a dictionary]

`published` is a number, two (a range), or None where the paper has no number. `python page.py FILE.json` makes the
Markdown page and the SVG pictures of a file, `main` does so itself with --page.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.bench.command import add_output, show
from petsc_gpufmt.bench.places import Place, available_places, best_place, petsc_stream
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.cli.outcome import program

REPRODUCED, EXCEEDED, NOT_REACHED = "reproduced", "exceeded", "not reached"
NOT_MEASURED, NO_NUMBER = "not measured", "no number published"
MORE, LESS, SAME = "more", "less", "same"
TOLERANCE = 0.05
SEED = 20120917

Value = float | tuple[float, float]
"""A published number, or the least and the largest of a range."""


@dataclass(frozen=True)
class Paper:
    """What its messages begin with, and the heading of its page: authors, title, year."""

    key: str
    title: str


@dataclass(frozen=True)
class Line:
    """One value: what it is of, as published, ours, the unit of both, and what is said of it."""

    what: str
    published: Value | None
    ours: float | None
    unit: str
    verdict: str
    remark: str = ""

    def __str__(self) -> str:
        paper, ours = shown(self.published), shown(self.ours)
        remark = f"; {self.remark}" if self.remark else ""
        return f"  {self.what:58}{paper:>16}{ours:>12} {self.unit:8}{self.verdict}{remark}"


@dataclass(frozen=True)
class Chart:
    """A picture.

    Attributes
    ----------
    name : of its file, after that of the page
    kind : "bars" (x are words), "lines" or "steps" (x are numbers; steps are histograms)
    series : label -> (x, y), of the same length; None in y is a gap
    log : axes with a logarithmic scale, of "x" and "y"
    """

    name: str
    title: str
    kind: str
    x_label: str
    y_label: str
    series: Mapping[str, tuple[Sequence[Any], Sequence[float | None]]]
    log: str = ""


@dataclass
class Setting:
    """How a script was called: where it measures, how much, and until when.

    Attributes
    ----------
    small : sizes that a processor measures in seconds, the same code
    places : as `available_places` says; the host always
    place : the device if there is one, else the host
    matrices : folder with files of real matrices, None if none was named
    deadline : of time.perf_counter()
    kept : what one part measured and another one shows too
    """

    small: bool
    places: dict[str, Place]
    matrices: Path | None
    deadline: float
    kept: dict[str, Any] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    @property
    def place(self) -> Place:
        """The device if there is one, else the host."""
        return self.places[best_place(self.places)]

    @contextlib.contextmanager
    def place_for(self, scalar: np.dtype) -> Iterator[Place]:
        """`place` with values of another type than PETSc's: for formats that are run without PETSc."""
        place = self.place
        if np.dtype(scalar) == place.backend.scalar:
            yield place
        elif not isinstance(place.backend, CudaBackend):
            yield Place(place.timer, HostBackend(scalar, place.backend.index), place.vector_type)
        else:
            import cupy

            stream = petsc_stream()
            with CudaBackend(scalar, place.backend.index, cupy.cuda.Device().id).on(stream) as backend:
                yield Place(place.timer, backend, place.vector_type)

    def out_of_time(self) -> bool:
        """Whether --seconds have passed: then measure nothing more, and yield `unmeasured(..., OUT_OF_TIME)`."""
        return time.perf_counter() > self.deadline


OUT_OF_TIME = "the time limit had passed"

Found = Line | Chart | str


@dataclass(frozen=True)
class Part:
    """A table or a figure: its name for --figure, its title, and what reproduces it."""

    name: str
    title: str
    measure: Callable[[Setting], Iterator[Found]]


def line(
    what: str,
    published: Value | None,
    ours: float,
    unit: str = "",
    better: str = MORE,
    tolerance: float = TOLERANCE,
    remark: str = "",
) -> Line:
    """A line with its verdict.

    Within `tolerance`, a share of the published value, ours reproduces it; beyond, it exceeds it on the side that is
    `better` (MORE or LESS) and does not reach it on the other. With SAME it does not reach it on either side.
    """
    number = int(ours) if isinstance(ours, (int, np.integer)) else float(ours)  # NumPy's are no JSON
    return Line(what, published, number, unit, verdict(published, number, better, tolerance), remark)


def unmeasured(what: str, published: Value | None, why: str, unit: str = "") -> Line:
    """A line without a value of ours."""
    return Line(what, published, None, unit, NOT_MEASURED, why)


def verdict(published: Value | None, ours: float, better: str, tolerance: float) -> str:
    """REPRODUCED, EXCEEDED or NOT_REACHED; NO_NUMBER where nothing was published."""
    if better not in (MORE, LESS, SAME):
        raise ValueError(f"better {better!r}: choose {MORE}, {LESS} or {SAME}")
    if published is None:
        return NO_NUMBER
    least, most = published if isinstance(published, tuple) else (published, published)
    if least - tolerance * abs(least) <= ours <= most + tolerance * abs(most):
        return REPRODUCED
    beyond = {MORE: ours > most, LESS: ours < least, SAME: False}[better]
    return EXCEEDED if beyond else NOT_REACHED


def shown(value: Value | None) -> str:
    """A number for tables: whole ones in full, others to four digits; a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, (tuple, list)):
        return " to ".join(map(shown, value))
    whole = float(value).is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else f"{value:.4g}"


def parser_of(description: str | None, parts: Sequence[Part]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_output(parser)
    parser.add_argument("--page", action="store_true", help="write FILE.md and its pictures beside FILE.json")
    parser.add_argument("--host", action="store_true", help="measure on the host only")
    parser.add_argument("--small", action="store_true", help="small sizes: all parts in seconds, on the host too")
    parser.add_argument(
        *("--figure", "--table"),
        *("-f",),
        dest="figure",
        action="append",
        choices=[part.name for part in parts],
        help="only this part; may be repeated (default: all)",
    )
    parser.add_argument("--matrices", type=Path, metavar="FOLDER", help="real matrices, those of the paper are taken")
    parser.add_argument("--seconds", type=float, metavar="S", help="measure nothing more after so long")
    return parser


def main(description: str | None, paper: Paper, parts: Sequence[Part], words: Sequence[str] | None = None) -> int:
    """Measure the parts that the arguments `words` ask for, those of the program if None; the exit status.

    It is 2 for arguments that cannot be, 1 if a part fails.
    """
    parser = parser_of(description, parts)
    arguments = parser.parse_args(words)
    if arguments.page and not (arguments.json and arguments.json.suffix == ".json"):
        parser.error(f"--page: the page stands beside the results, name them with --json FILE.json ({arguments.json})")
    if arguments.matrices and not arguments.matrices.is_dir():
        parser.error(f"--matrices {arguments.matrices}: there is no such folder")
    if arguments.seconds is not None and not arguments.seconds > 0:
        parser.error(f"--seconds {arguments.seconds:g}: give a time above 0")
    return program(paper.key, lambda: measure_parts(paper, parts, arguments))


def measure_parts(paper: Paper, parts: Sequence[Part], arguments: argparse.Namespace) -> int:
    deadline = time.perf_counter() + (arguments.seconds or float("inf"))
    chosen = [part for part in parts if part.name in (arguments.figure or [part.name])]
    with available_places(arguments.host) as places:
        setting = Setting(arguments.small, places, arguments.matrices, deadline)
        for part in chosen:
            if setting.out_of_time():
                show(f"\n{part.title}: not measured, {OUT_OF_TIME}")
                continue
            measure_part(paper, part, setting, Recorder(part.name, arguments.json, arguments.commit))
    if arguments.page:
        from page import write_page

        write_page(arguments.json)
    return 0


def measure_part(paper: Paper, part: Part, setting: Setting, recorder: Recorder) -> None:
    """What a part finds, shown and kept line by line."""
    show(f"\n{part.title}\n  {'':58}{'published':>16}{'ours':>12}")
    start = time.perf_counter()
    recorder.run |= {
        "paper": dataclasses.asdict(paper),
        "part": {"name": part.name, "title": part.title},
        "setting": {"small": setting.small, "place": setting.place.name},
        "notes": [],
        "charts": [],
    }
    for found in part.measure(setting):
        if isinstance(found, Line):
            recorder.add(dataclasses.asdict(found))
            show(str(found))
        elif isinstance(found, Chart):
            recorder.run["charts"].append(dataclasses.asdict(found))
        else:
            recorder.run["notes"].append(found)
            show(f"  {found}")
    recorder.run["measured_in_seconds"] = round(time.perf_counter() - start, 1)
    recorder.save()
