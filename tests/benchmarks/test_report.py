"""The page made of the results, and the table of the figures to reach."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scipy.sparse")

import program_targets  # noqa: E402
import report  # noqa: E402
import targets  # noqa: E402

from petsc_gpufmt.bench import galerkin, results  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.report.markdown import number  # noqa: E402
from petsc_gpufmt.bench.report.spgemm_tables import TITLES  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402

FOLDER = Path(__file__).parent


def golden_runs():
    return {run["name"]: run for run in results.read_runs(FOLDER / "results.json")}


def found_figures(runs):
    return {target.what: target.find(runs) for target in targets.TARGETS}


def test_targets_read_the_right_entries():
    def figure(what):
        measured = found[what]
        return measured.by, pytest.approx(measured.value), pytest.approx(measured.best_peer)

    found = found_figures(golden_runs())
    assert figure("7-point 200^3") == ("gpufmt", 170, 306)  # not the wrong result, nor that with an option
    assert figure("27-point 20^3") == ("pjds", 4.4, 5.3)
    assert figure("BSR, block size 8") == ("bsr", 130, 170)
    assert figure("BSR, smallest share of a copy's speed over the block sizes")[0] == "block size 2"
    assert figure("real matrices: geometric mean") == ("gpufmt", 44**0.5, 57.5**0.5)
    assert figure("host time of MatMult from C, 7-point 50^3") == ("seqaijpjds", 3.4, 5)
    assert figure("Bratu 200^3, CG and Jacobi: MatMult total") == ("pjds", 0.26, 0.502)
    alone = {
        "real matrices, replicated: best peer over ours, geometric mean": ("gpufmt", (1.25 * 1.99) ** 0.5),
        "real matrices, replicated: best peer over ours, worst": ("cage10 x266", 1.25),
        "real matrices: best peer over ours, worst": ("boyd1_kkt", 11.5 / 11),
        "format build on the device, large matrices, worst": ("pjds, 7-point 200^3", 30),
        "value refresh without upload, large matrices, worst": ("gpufmt, 7-point 200^3", 1.5),
        "host time of MatMult from petsc4py, worst": ("gpufmt, 27-point 20^3", 6.5),
    }
    for what, (by, value) in alone.items():
        assert (found[what].by, found[what].value, found[what].best_peer) == (by, pytest.approx(value), None)
    assert found["27-point 128^3"] is None


def test_figures_of_whole_programs():
    names = {target.what for target in program_targets.PROGRAM_TARGETS}
    found = {what: m for what, m in found_figures(golden_runs()).items() if m and what in names}
    assert {what: (m.value, m.best_peer) for what, m in found.items()} == {
        "program with one MatMult of 1000 rows": (0.7, 0.5),
        "first product after a second of assembly, 1000 rows": (0.04, 0.008),
        "program Bratu 128^3, GAMG: caches of kernels empty, beyond later runs": (0.25, None),
        "program Bratu 128^3, GAMG: ours over the peer": (1.0, None),  # of 200^3 there is none
        "program Bratu 128^3, GAMG: KSPSolve with gpufmt": (0.05, 0.063),
        "program ex19, 7 refinements, fgmres and mg: KSPSolve": (0.075, 0.082),
        "ex14 128^3, GAMG: PCSetUp of all steps": (0.16, 2.6),
        "ex14 128^3, GAMG: KSPSolve": (0.05, 0.06),
        "ex14 128^3, GAMG: most memory of the device": (2.5, 9.75),
        "bratu3d 128^3, GAMG: PCSetUp of all steps": (0.11, 2.6),
        "bratu3d 128^3, GAMG: PtAP, numeric phases": (6.0, 60.0),
        "bratu3d 128^3, GAMG: most memory of the device": (2.75, 9.75),
        "bratu3d 200^3, GAMG: PCSetUp of all steps": (0.31, 10.0),
        "bratu3d 200^3, GAMG, 2 ranks: PCSetUp of all steps": (0.25, None),  # the peer fails there
        "bratu3d 200^3, GAMG, 4 ranks: PCSetUp of all steps": (0.125, 3.0),
        "bratu3d 200^3, GAMG: SNESSolve": (0.75, 12.0),
        "bratu3d 200^3, GAMG: whole program": (2.75, 14.0),
        "7-point 128^3, GAMG: PtAP, symbolic phases of the second set-up": (14.0, 100.0),
        "7-point 200^3: new values from a device, ready to multiply": pytest.approx((0.55, 0.8)),
        "GAMG: operator complexity, difference from agg's": pytest.approx((0.8, None)),
        "GAMG: iterations, difference from agg's": (1, None),
        "GAMG, 2 and 4 ranks: operator complexity, difference from agg's": pytest.approx((0.8, None)),
        "GAMG, 2 and 4 ranks: iterations, difference from agg's": (1, None),
    }
    assert found["GAMG: iterations, difference from agg's"].by == "gpufmt, bratu3d 200"


def test_products_from_c_that_take_longer_by_themselves_do_not_count():
    runs, what = golden_runs(), "real matrices back to back from C, slowest of those below 3.5 us"
    measured = found_figures(runs)[what]
    assert (measured.by, measured.value) == ("cage10", pytest.approx(3.2))
    runs["real"]["launch_seconds"] = 8e-6  # boyd1_kkt by itself: 11 - 8 us
    assert found_figures(runs)[what].by == "boyd1_kkt"


def test_share_of_a_copy_counts_the_bytes_of_blocks():
    (case, _) = golden_runs()["bsr"]["cases"]
    share = found_figures(golden_runs())["BSR, smallest share of a copy's speed over the block sizes"].value
    assert share == pytest.approx(100 * case["bsr_bytes"] / 1.5e-4 / 4e12)


def test_figures_are_not_taken_from_the_host():
    runs = golden_runs()
    for run in runs.values():
        run.get("copy_bytes_per_second", {}).pop("cuda", None)
        for case in run["cases"]:
            for entry in case.get("products", []) + case.get("storage", []):
                entry["place"] = "host"
            for entry in case.get("runs", []):
                entry["vec_type"] = "standard"
            case["vec_type"], case["place"] = "seq", "host"
    assert set(found_figures(runs).values()) == {None}


def test_figures_of_nothing():
    assert set(found_figures({}).values()) == {None}


def test_least_and_largest_values():
    lowest = targets.Target("a", 2.0, "", lambda runs: None, at_least=True)
    highest = targets.Target("b", 2.0, "", lambda runs: None)
    for value, reached in ((1.9, (False, True)), (2.0, (True, True)), (2.1, (True, False))):
        assert (lowest.reached(targets.Measured(value)), highest.reached(targets.Measured(value))) == reached


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (1234.5, "1230"), (199.6, "200"), (5.5, "5.50"), (0.26, "0.26"), (0.000527, "0.000527")],
)
def test_number(value, text):
    assert number(value) == text


def page_of(capsys, *words):
    capsys.readouterr()
    assert report.main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_report_is_the_golden_page(capsys):
    """After a wanted change: python benchmarks/report.py results.json --notes notes.md > performance.md."""
    page = page_of(capsys, FOLDER / "results.json", "--notes", FOLDER / "notes.md")
    assert page == (FOLDER / "performance.md").read_text()


def test_page_in_the_documentation_is_that_of_the_results(capsys):
    """After a wanted change: python benchmarks/report.py > docs/performance.md."""
    assert page_of(capsys) == (report.ROOT / "docs/performance.md").read_text()


def test_order_of_files_does_not_matter(capsys):
    files = report.committed_results()
    assert page_of(capsys, *files[::-1]) == page_of(capsys, *files)


def test_report_without_the_notes_named_is_refused():
    with pytest.raises(BenchError, match="absent.md: there is no such file"):
        report.main([str(FOLDER / "results.json"), "--notes", "absent.md"])


def test_report_of_the_figures_alone(capsys):
    found = page_of(capsys, FOLDER / "results.json", "--targets")
    assert found.startswith("## Figures to reach")
    assert found in (FOLDER / "performance.md").read_text()


def test_figures_of_one_run_stand_by_themselves(capsys):
    """Only on the page of the committed results, only what that run has, and not among the others."""
    heading = "## Set-up of GAMG in one run"
    before, after = page_of(capsys).split(heading)
    after = after.split("\n## ")[0]
    figure = "| bratu3d 200^3, GAMG, 2 ranks: PCSetUp of all steps | <= 0.22 s | 0.157 | pjds | - | yes |"
    assert figure in after and figure not in before
    assert "not measured" not in after and "bratu3d 200^3, GAMG, 4 ranks: PCSetUp of all steps" in before
    assert heading not in page_of(capsys, FOLDER / "results.json")


def test_what_the_benchmarks_write_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(galerkin, "SMALLEST_WIDTH", 30)
    path = tmp_path / "results.json"
    common = ["--host", "--json", str(path)]
    assert main(["bench", "mult", "--matrix", "7point:3", "--format", "pjds", *common]) == 0
    assert main(["bench", "bsr", "--block-size", "2", "--entries", "10", *common]) == 0
    products = ["--variant", "rmerge", "--without", "hypre", "--without", "gpufmt"]
    assert main(["bench", "spgemm", "--matrix", "7point:4", *products, *common]) == 0
    page = page_of(capsys, path)
    assert "| 7-point 3^3 | pjds | host |" in page
    assert "| 2 | 27-point 10^3 | 87808 |" in page
    for title in (*TITLES.values(), "Compression while rows are merged"):
        assert f"## {title}\n" in page
    assert "| 7-point 4^3 | 352 | " in page


def test_runs_over_the_ranks_have_a_page_of_their_own():
    runs = results.read_runs(report.ROOT / "benchmarks/results/scaling/h200-x2.json")
    assert all(report.kind_of(run) == "scaling" and report.run_sections(run) == [] for run in runs)
