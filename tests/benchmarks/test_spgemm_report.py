"""What the page says of sparse products and of the Bratu problem with GAMG."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scipy.sparse")

import report  # noqa: E402
import targets  # noqa: E402

from petsc_gpufmt.bench import results  # noqa: E402
from petsc_gpufmt.bench.report import spgemm_tables  # noqa: E402

FOLDER = Path(__file__).parent


def golden_runs():
    return {run["name"]: run for run in results.read_runs(FOLDER / "results.json")}


def figure(what, runs):
    measured = next(target for target in targets.TARGETS if target.what == what).find(runs)
    return measured and (measured.by, pytest.approx(measured.value), measured.best_peer)


def square(name):
    return next(c for c in golden_runs()["spgemm"]["cases"] if c["kind"] == "square" and c["matrix"]["name"] == name)


def test_times_are_those_of_ours_without_options():
    runs = golden_runs()
    both = "A A, 7-point 100^3, both phases"
    assert figure(both, runs) == ("rmerge", 0.7, pytest.approx(2.3))  # not a wrong peer, nor one on the host
    assert figure("A A, 7-point 100^3, numeric phase", runs) == ("gpufmt", 0.23, pytest.approx(2.1))
    runs["spgemm"]["cases"][0]["products"][0]["correct"] = False
    assert figure(both, runs)[0] == "gpufmt"
    assert figure("A A, 27-point 64^3, both phases", runs) is None


def test_first_call_is_that_of_a_type_of_petsc():
    what, runs = "A A through PETSc, 7-point 100^3, first call with the upload", golden_runs()
    assert figure(what, runs) == ("gpufmt", 4.5, pytest.approx(75))
    for product in square("7-point 100^3")["products"]:
        assert ("first_seconds" in product) == (product["name"] in ("gpufmt", "aijcusparse"))


def test_ratios_of_products_in_the_mean():
    runs = golden_runs()
    small = "A A of the real matrices with less than 20 million terms: best peer over ours, geometric mean"
    assert figure(small, runs) == ("1 matrices", 4.1, None)
    pyramids = "P^T A P down pyramids of {}: best peer over ours, geometric mean"
    assert figure(pyramids.format("stencils"), runs) == ("1 matrices", 3.0, None)
    assert figure(pyramids.format("real matrices"), runs) is None
    for case in runs["spgemm"]["cases"]:
        for product in case["products"]:
            product["place"] = "host"
    assert figure(small, runs) is None


def test_cost_of_storing_a_small_matrix():
    build = next(target for target in targets.TARGETS if target.what == "pjds built on the device, 27-point 20^3")
    runs = golden_runs()
    case = next(case for case in runs["mult"]["cases"] if case["matrix"]["name"] == "27-point 20^3")
    product = next(p for p in case["products"] if (p["name"], p["place"]) == ("pjds", "cuda"))
    assert build.find(runs).value == pytest.approx(0.0006 / product["median_seconds"])
    case["storage"] = []
    assert build.find(runs) is None


def test_galerkin_times_are_those_of_the_bratu_problem_with_gamg():
    runs = golden_runs()
    assert figure("Bratu 128^3, GAMG: PtAP, symbolic phases", runs) == ("gpufmt", 35, pytest.approx(113))
    assert figure("Bratu 128^3, GAMG: PtAP, numeric phases", runs) == ("gpufmt", 9, pytest.approx(52))
    del runs["bratu, GAMG"]
    assert figure("Bratu 128^3, GAMG: PtAP, numeric phases", runs) is None


def test_ranks_that_converge_are_counted():
    what, runs = "Bratu 200^3, GAMG: of 1, 2 and 4 ranks, converges on", golden_runs()
    assert figure(what, runs) == ("gpufmt", 2, 1)
    runs["bratu, GAMG, 4 ranks"] = runs["bratu, GAMG, 2 ranks"]
    assert figure(what, runs) == ("gpufmt", 3, 1)


def test_real_matrices_in_sum():
    found = spgemm_tables.real_squares(golden_runs()["spgemm"])
    assert (found["matrices"], found["missing"], found["compared"]) == (3, 0, 2)
    assert found["geometric_mean_ratio"] == pytest.approx((4.1 * 1.25) ** 0.5)
    assert (found["worst_matrix"], found["share_matrix"]) == ("bcsstk32", "bcsstk32")
    assert found["worst_share"] == pytest.approx(0.3)
    assert -1 <= found["correlation"] <= 1
    assert spgemm_tables.real_squares({"cases": []}) == {}


def test_real_matrices_that_we_lack_are_counted():
    run = golden_runs()["spgemm"]
    real = [case for case in run["cases"] if case["real"]]
    real[0]["products"][0]["correct"] = False
    real[1]["products"][0] = {"name": "rmerge", "place": "cuda", "ours": True, "skipped": "why", "failed": True}
    found = spgemm_tables.real_squares(run)
    assert (found["missing"], found["compared"]) == (2, 0)
    assert "worst_ratio" not in found
    assert figure("A A of the real matrices: not computed or wrong", {"spgemm": run}) == ("", 2, None)
    assert spgemm_tables.real_text(found).startswith("Real matrices: 1 of 3 squared")


def test_share_of_memory_is_that_of_the_fastest_peer_with_known_memory():
    case = square("7-point 100^3")
    assert spgemm_tables.memory_share(case) == pytest.approx(0.01)
    products = {product["name"]: product for product in case["products"]}
    products["cuSPARSE ALG2"]["correct"] = True
    assert spgemm_tables.memory_share(case) == pytest.approx(0.1)
    del products["rmerge"]["extra_bytes"]
    assert spgemm_tables.memory_share(case) is None
    assert spgemm_tables.memory_share(square("cnr-2000")) is None


def test_who_failed_and_why_stands_below_the_table():
    text = spgemm_tables.failures(golden_runs()["spgemm"]["cases"][:4])
    assert "- hypre on all matrices: this PETSc was configured without hypre\n" in text
    assert "- aijcusparse on cnr-2000: PETSc error 76: insufficient resources\n" in text
    assert spgemm_tables.failures([{"products": [], "matrix": {"name": "a"}}]) == ""


def test_cells():
    assert spgemm_tables.cell({"skipped": "why", "failed": False}, "cold_seconds", 1) == "failed"
    assert spgemm_tables.cell({"skipped": "not asked"}, "cold_seconds", 1) == "-"
    assert spgemm_tables.cell({"cold_seconds": 1.0, "correct": False}, "cold_seconds", 1) == "WRONG RESULT"
    assert spgemm_tables.cell({"cold_seconds": 0.002, "correct": True}, "cold_seconds", 1e-3) == "2.00"
    assert spgemm_tables.cell({"cold_seconds": 0.002, "correct": True}, "numeric_seconds", 1e-3) == "-"


def test_results_without_sparse_products_are_shown():
    """Files that were written before there were any."""
    old = [run for run in golden_runs().values() if run["name"] not in ("spgemm",) and "GAMG" not in run["name"]]
    page = report.make_report(old, "")
    assert "Sparse products" not in page
    assert "PtAP symbolic" not in page
    assert "| A A, 7-point 100^3, both phases | <= 0.8 ms | not measured | - | - | - |" in page
