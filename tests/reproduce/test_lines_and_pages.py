"""Verdicts, arguments, results and pages that the scripts of examples/reproduce/ share."""

import json
import sys

import launch
import pytest
from reproduced import SCRIPTS, run_script

from petsc_gpufmt.bench.results import read_runs

from reasons import REASONS, reason_of  # isort: skip  # of the folder that `reproduced` shows

PROGRAM = """
import sys, time
sys.path.insert(0, {scripts!r})
from report import Chart, Paper, Part, line, main, unmeasured

def first(setting):
    yield "a note"
    yield line("speed | single", 10.0, 12.0 + len(setting.places), "GF/s", remark="why")
    yield unmeasured("lost", 3.0, "no counters")
    yield Chart("bars", "Speeds", "bars", "", "GF/s", {{"ours": (["p", "q"], [1.0, None])}})

def second(setting):
    yield line("count", 7, 7, better="same", tolerance=0)
    yield Chart("lines", "Times", "lines", "x", "y", {{"a": ([1, 2], [3.0, 4.0]), "b": ([1], [2.0])}}, "xy")
    time.sleep(0.2)

parts = (Part("figure-10", "Figure 10", first), Part("table-2", "Table 2", second))
sys.exit(main("text", Paper("key", "A paper, 2012"), parts))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "program.py"
    path.write_text(PROGRAM.format(scripts=str(SCRIPTS)))
    return path


@pytest.mark.parametrize(
    ("published", "ours", "better", "tolerance", "expected"),
    [
        (10.0, 9.6, "more", 0.05, "reproduced"),
        (10.0, 10.6, "more", 0.05, "exceeded"),
        (10.0, 9.4, "more", 0.05, "not reached"),
        (10.0, 9.4, "less", 0.05, "exceeded"),
        (10.0, 10.6, "less", 0.05, "not reached"),
        (10.0, 10.6, "same", 0.05, "not reached"),
        (10, 10, "same", 0, "reproduced"),
        ((1.0, 2.0), 1.5, "more", 0, "reproduced"),
        ((1.0, 2.0), 2.1, "more", 0, "exceeded"),
        ((1.0, 2.0), 0.9, "more", 0, "not reached"),
        (None, 4.0, "more", 0.05, "no number published"),
    ],
)
def test_verdicts(report, published, ours, better, tolerance, expected):
    assert report.line("x", published, ours, better=better, tolerance=tolerance).verdict == expected


def test_a_verdict_knows_its_words_and_numbers_are_shown_to_four_digits(report):
    with pytest.raises(ValueError, match="choose more, less or same"):
        report.line("x", 1.0, 1.0, better="higher")
    values = (None, 6201600, 0.00838, (0.0, 0.01), 15.324)
    assert [report.shown(value) for value in values] == ["-", "6201600", "0.00838", "0 to 0.01", "15.32"]


@pytest.mark.slow
def test_results_pages_and_the_time_limit(program, tmp_path):
    results = tmp_path / "paper.json"
    assert "Figure 10" in run_script(program, "--host", "--json", results, "--figure", "figure-10")
    output = run_script(program, "--host", "--json", results, "--page", "--table", "table-2", "--small")

    assert "Figure 10" not in output and "count" in output
    first, second = json.loads(results.read_text())["runs"]  # the other part stays
    assert (first["name"], second["name"]) == ("figure-10", "table-2")
    assert first["cases"][0] == {
        **{"what": "speed | single", "published": 10.0, "ours": 13.0, "unit": "GF/s"},
        **{"verdict": "exceeded", "remark": "why"},
    }
    assert first["cases"][1]["verdict"] == "not measured" and first["notes"] == ["a note"]
    text = results.with_suffix(".md").read_text()
    assert text.startswith("# A paper, 2012\n") and text.index("## Table 2") < text.index("## Figure 10")
    assert "| speed \\| single | 10 | 13 | GF/s | exceeded | why |" in text
    assert "| lost | 3 |  |  | not measured | no counters |" in text
    assert "1 exceeded, 1 not measured, 1 reproduced" in text and "small sizes" in text
    for chart in ("bars", "lines"):
        assert f"](paper_{chart}.svg)" in text and "<svg" in (tmp_path / f"paper_{chart}.svg").read_text()

    pictures = {path: path.read_bytes() for path in tmp_path.glob("*.svg")}
    run_script("page.py", results)
    assert {path: path.read_bytes() for path in pictures} == pictures and results.with_suffix(".md").read_text() == text

    late = run_script(program, "--host", "--seconds", "0.05", "--table", "table-2", "--figure", "figure-10")
    assert "Table 2: not measured, the time limit had passed" in late or "count" in late


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (None, ["--page"], "--page: the page stands beside the results, name them with --json FILE.json"),
        (None, ["--matrices", "/nowhere"], "--matrices /nowhere: there is no such folder"),
        (None, ["--seconds", "0"], "--seconds 0: give a time above 0"),
        (None, ["--figure", "figure-1"], "invalid choice: 'figure-1'"),
        ("page.py", ["/nowhere.json"], "/nowhere.json: there is no such JSON file"),
    ],
)
def test_arguments_that_cannot_be(program, script, arguments, message):
    assert message in run_script(script or program, *arguments, status=2)


def test_a_page_is_made_of_results_of_these_scripts_alone(tmp_path):
    other = tmp_path / "bench.json"
    other.write_text(json.dumps({"schema": 1, "runs": [{"name": "mult", "cases": []}]}))
    finished = run_script("page.py", other, status=None)
    assert "not results of a script of examples/reproduce/" in finished


RESULTS = SCRIPTS.parents[1] / "docs/reproduction"
CHECK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import page
for name in sys.argv[2:]:
    path = Path(name)
    assert path.with_suffix(".md").read_text() == page.page(path, page.read_runs(path)), name
"""


def test_committed_pages_are_those_of_the_results():
    """After a wanted change: python examples/reproduce/page.py docs/reproduction/*.json."""
    finished = launch.run([sys.executable, "-c", CHECK, SCRIPTS, *sorted(RESULTS.glob("*.json"))])
    assert finished.status == 0, str(finished)


def test_all_that_is_not_reached_has_a_reason_and_no_reason_is_for_nothing(report):
    found = set()
    for run in (run for path in RESULTS.glob("*.json") for run in read_runs(path)):
        paper, missed = run["paper"]["key"], report.NOT_REACHED
        for what in (case["what"] for case in run["cases"] if case["verdict"] == missed):
            words = reason_of(paper, run["name"], what)
            found.add((paper, words))
            assert words, (run["name"], what)
    assert {(reason.paper, reason.words) for reason in REASONS} == found
    assert reason_of("another_paper", "figure-1", "a line") == ""
