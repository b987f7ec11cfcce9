"""``python -m petsc_gpufmt bench report``, and the pictures of other benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.command import check_writable, optional_packages, show
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.results import read_runs


def add_plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw what was measured, such as FILE.svg or FILE.png (matplotlib)"
    )


def add_report(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "report", help="a page of results, of any of these benchmarks: who is fastest, tables, a picture"
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="FILE", help="what --json has written")
    parser.add_argument("--output", type=Path, metavar="PAGE.md", help="write the page to this file")
    add_plot(parser)
    parser.set_defaults(run=run_report)


def check_picture(path: Path | None) -> None:
    """BenchError, before anything is measured, for a picture that cannot be drawn or written."""
    if path:
        from petsc_gpufmt.bench.report.pictures import check_plot

        check_plot(path)
        check_writable("--plot", path)


def plot(path: Path | None, runs: Sequence[dict[str, Any]]) -> None:
    """Draw, where a picture was asked for."""
    if path:
        from petsc_gpufmt.bench.report.page import DAMAGED, damaged
        from petsc_gpufmt.bench.report.pictures import draw

        try:
            draw(runs, path)
        except DAMAGED as e:
            raise damaged(runs[0], e) from e


@optional_packages()
def run_report(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.bench.report.page import make_page, shown_runs

    check_picture(arguments.plot)
    taken = {path.absolute() for path in arguments.results}
    for option in ("plot", "output"):
        path = getattr(arguments, option)
        if path and path.absolute() in taken:
            raise BenchError(f"--{option} {path}: this file has another use in this command; name another one")
        taken |= {path.absolute()} if path else set()
    if arguments.output:
        check_writable("--output", arguments.output)
    runs = shown_runs([run for path in arguments.results for run in read_runs(path)])
    page = make_page(runs, arguments.plot)
    plot(arguments.plot, runs)
    if arguments.output:
        arguments.output.write_text(page)
    else:
        show(page.rstrip("\n"))
    return 0
