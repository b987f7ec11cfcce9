"""The picture of where the time of a whole program goes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("scipy.sparse")

import report  # noqa: E402
import time_plot  # noqa: E402

from petsc_gpufmt.bench import results  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402

FOLDER = Path(__file__).parent


def golden_runs():
    return {run["name"]: run for run in results.read_runs(FOLDER / "results.json")}


def picture_of(capsys, *words):
    capsys.readouterr()
    assert time_plot.main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_picture_is_the_golden_one(capsys):
    """After a wanted change: python benchmarks/time_plot.py results.json > bratu_time.svg."""
    assert picture_of(capsys, FOLDER / "results.json") == (FOLDER / "bratu_time.svg").read_text()


def test_picture_in_the_documentation_is_that_of_the_results(capsys):
    """After a wanted change: python benchmarks/time_plot.py > docs/bratu_time.svg."""
    assert picture_of(capsys) == (report.ROOT / "docs/bratu_time.svg").read_text()


def test_parts_of_a_bar_follow_each_other_and_are_as_long_as_the_program():
    runs = golden_runs()
    size, bars = time_plot.measured_bars(runs)
    root = ElementTree.fromstring(time_plot.make_plot(runs))
    boxes = [box for box in root.findall("{*}rect") if float(box.get("height")) == time_plot.HEIGHT]
    assert size == 128 and len(boxes) == len(bars) * len(time_plot.PARTS)
    lengths = []
    for row in range(len(bars)):
        x = time_plot.LEFT
        for box in boxes[row * len(time_plot.PARTS) :][: len(time_plot.PARTS)]:
            assert float(box.get("x")) == pytest.approx(x, abs=0.2)
            x += float(box.get("width"))
        lengths.append(x - time_plot.LEFT)
    seconds = [entry["warm"]["median_seconds"] for _, entry in bars]
    assert [length / lengths[0] for length in lengths] == pytest.approx([s / seconds[0] for s in seconds], abs=2e-3)
    assert max(lengths) < time_plot.WIDTH - time_plot.LEFT


def test_time_that_no_event_has_is_another_part():
    (_, entry), *_ = time_plot.measured_bars(golden_runs())[1]
    parts = {name: seconds(entry) for name, _, seconds in time_plot.PARTS}
    assert parts["other parts of SNESSolve"] == pytest.approx(3.5 - 0.1 - 0.65 - 2.6 - 0.06)
    del entry["warm"]["events"]["SNESFunctionEval"]  # as in results of before
    assert time_plot.rest_of_the_solve(entry) == pytest.approx(3.5 - 0.65 - 2.6 - 0.06)
    entry["warm"]["events"]["DMCreateMat"] = {"count": 1, "seconds": 0.5}
    parts = {name: seconds(entry) for name, _, seconds in time_plot.PARTS}
    assert parts["start, grid, end"] == 1.0 and parts["pattern, by DMCreateMatrix"] == 0.5


def test_bars_that_were_not_measured_are_left_out():
    runs = golden_runs()
    del runs["programs, bratu3d"]
    assert [label for label, _ in time_plot.measured_bars(runs)[1]] == ["ex14, aijcusparse", "ex14, gpufmt"]
    runs["programs, ex14-gamg"]["cases"][0]["place"] = "host"
    with pytest.raises(BenchError, match="the results lack ex14-gamg with aijcusparse"):
        time_plot.make_plot(runs)
