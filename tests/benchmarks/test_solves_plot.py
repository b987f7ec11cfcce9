"""The picture of whole solves and their memory."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

pytest.importorskip("scipy.sparse")

import report  # noqa: E402
import solves_plot  # noqa: E402

from petsc_gpufmt.bench import results  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402

HYPRE = json.loads(solves_plot.HYPRE.read_text())


def committed_runs():
    return report.collect([run for path in report.committed_results() for run in results.read_runs(path)])


def test_picture_of_the_first_page_is_that_of_the_results(capsys):
    """After a wanted change: python benchmarks/solves_plot.py > docs/whole_solves.svg."""
    capsys.readouterr()
    assert solves_plot.main([]) == 0
    assert capsys.readouterr().out == (report.ROOT / "docs" / "whole_solves.svg").read_text()


def test_bars_are_as_long_as_seconds_and_bytes_and_hypre_is_the_better_of_its_settings():
    runs = committed_runs()
    root = ElementTree.fromstring(solves_plot.make_plot(runs, HYPRE))
    boxes = [box for box in root.findall("{*}rect") if float(box.get("height")) == solves_plot.HEIGHT]
    solves = [solve for name, _ in solves_plot.PROBLEMS for solve in solves_plot.solves_of(runs, name, HYPRE)[1]]
    assert len(boxes) == 2 * len(solves)
    widths = [(float(a.get("width")), float(b.get("width"))) for a, b in zip(boxes[::2], boxes[1::2], strict=True)]
    for solve, width, colour in zip(solves, widths, boxes[::2], strict=True):
        peer = solves_plot.PEER if solve.solver == solves_plot.PEER else None
        if peer:
            longest, longest_width = solve, width
        assert width[0] / longest_width[0] == pytest.approx(solve.seconds / longest.seconds, abs=2e-3)
        assert width[1] / longest_width[1] == pytest.approx((solve.device_bytes or 0) / longest.device_bytes, abs=2e-3)
        assert colour.get("fill") == solves_plot.COLOURS[solve.solver]
    size, (_, hypre, ours) = solves_plot.solves_of(runs, "laplacian-7point", HYPRE)
    assert size == 128 and hypre == solves_plot.Solve("hypre", pytest.approx(0.39), 1533870080) and ours.seconds < 0.1


def test_a_program_that_was_not_measured_is_named():
    runs = committed_runs()
    del runs["programs, ex56"]
    with pytest.raises(BenchError, match="the results lack ex56 with aijcusparse and gpufmt"):
        solves_plot.make_plot(runs, HYPRE)
