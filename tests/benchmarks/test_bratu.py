"""The Bratu problem: what is read from its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import bratu
import log_view
import pytest
from bratu import agreement, matmult_seconds, read_iterations

from petsc_gpufmt.bench import results
from petsc_gpufmt.bench.errors import BenchError

FOLDER = Path(__file__).parent
OUTPUT = (
    "[0]PETSC ERROR: #1 MatProductSymbolic_Other() at file.c:3\n[0]PETSC ERROR: #2 MatProductSymbolic() at other.c:4\n"
)


def golden_runs():
    return {run["name"]: run for run in results.read_runs(FOLDER / "results.json")}


def test_log_view_csv(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "Stage Name,Event Name,Rank,Count,Time,FLOP,2\n"
        "Main,MatMult,0,10,1.0,5\n"
        "Main,MatMult,1,10,1.5,5\n"
        "Second,MatMult,0,3,0.75,5\n"
        "Main,KSPSolve,0,0,0.,0\n"
        "Main,Other,0,1,9.,0\n"
    )
    assert log_view.read_csv_events(path, ("MatMult", "KSPSolve")) == {"MatMult": {"count": 13, "seconds": 1.75}}


def test_log_view_gpu_columns(tmp_path):
    path = tmp_path / "log.txt"
    line = "1 1.0 3.1e+00 1.0 2.1e+10 1.0 0.0e+00 99 99  0  0  0  6800"
    path.write_text(f"MatMult {line}\n")
    assert log_view.read_gpu_columns(path, ("MatMult",)) == {}  # a PETSc without a GPU prints no such columns

    path.write_text(
        "GPU - CpuToGpu - - GpuToCpu - GPU\n"
        f"MatMult {line}   12345      5 1.50e+02    0 0.00e+00 100\n"
        f"KSPSolve {line}     n/a      7 2.50e+00    1 8.00e-06 99\n"
    )
    columns = log_view.read_gpu_columns(path, ("MatMult", "KSPSolve"))
    assert columns["MatMult"]["gpu_mflop_per_second"] == 12345
    assert columns["MatMult"]["to_gpu_megabytes"] == 150
    assert columns["KSPSolve"]["gpu_mflop_per_second"] is None
    assert columns["KSPSolve"]["to_gpu_count"] == 7
    assert columns["KSPSolve"]["gpu_flop_percent"] == 99


def test_iterations_of_ex14():
    output = (
        "  Linear solve converged due to CONVERGED_RTOL iterations 40\n"
        "  Linear solve converged due to CONVERGED_RTOL iterations 41\n"
        "Number of SNES iterations = 2 fnorm 1e-9\n"
    )
    assert read_iterations(output) == {"newton_iterations": 2, "krylov_iterations": 81}
    with pytest.raises(BenchError, match="did not print"):
        read_iterations("Linear solve did not converge")


def test_different_iterations_are_reported():
    def entry(name, newton, krylov):
        return {"mat_type": name, "newton_iterations": newton, "krylov_iterations": krylov}

    assert agreement([entry("aij", 3, 500), entry("pjds", 3, 502)]) == []
    assert len(agreement([entry("aij", 3, 500), entry("pjds", 4, 500), entry("other", 3, 520)])) == 2


def test_parts_of_matmult():
    run = golden_runs()["bratu"]["cases"][0]["runs"][1]
    assert matmult_seconds(run) == {"total": 0.26, "plan": 0.02, "refresh": 0.01}


@pytest.mark.parametrize(("output", "text"), [(OUTPUT, "fails in MatProductSymbolic_Other"), ("no end\nx", "no end")])
def test_why_a_type_fails_with_gamg(monkeypatch, output, text):
    def fail(*arguments):
        raise BenchError(output)

    monkeypatch.setattr(bratu, "run_bratu", fail)
    setting = bratu.Setting(Path("ex14"), 8, 2, "gamg", None, 1.0)
    entry = bratu.measure_bratu(setting, "aijcusparse")
    assert entry["skipped"] == text
    assert text in bratu.entry_line(entry)
    for matrix_type, preconditioner in (("gpufmt", "gamg"), ("aijcusparse", "jacobi")):
        with pytest.raises(BenchError):
            bratu.measure_bratu(replace(setting, preconditioner=preconditioner), matrix_type)


def test_types_that_failed_are_not_compared():
    def entry(name, krylov):
        return {"mat_type": name, "newton_iterations": 3, "krylov_iterations": krylov}

    failed = {"mat_type": "aijcusparse", "skipped": "why"}
    assert bratu.agreement([failed, entry("gpufmt", 24), entry("pjds", 25)]) == []  # one iteration is allowed
    assert len(bratu.agreement([failed, entry("gpufmt", 24), entry("pjds", 26)])) == 1
    assert bratu.agreement([failed]) == []


def test_phases_of_galerkin_products():
    (_, ours) = golden_runs()["bratu, GAMG"]["cases"][0]["runs"]
    assert bratu.galerkin_seconds(ours, "symbolic") == 0.035
    assert bratu.galerkin_seconds(golden_runs()["bratu"]["cases"][0]["runs"][0], "numeric") is None
    assert "PtAP symbolic 35.0 ms, PtAP numeric 9.0 ms" in bratu.entry_line(ours)


def test_preconditioners_have_runs_and_options_of_their_own(monkeypatch, tmp_path):
    recorded = []

    def one_run(setting, matrix_type):
        (_, ours) = golden_runs()["bratu, GAMG"]["cases"][0]["runs"]
        return ours | {"mat_type": matrix_type, "preconditioner": setting.preconditioner}

    monkeypatch.setattr(bratu, "measure_bratu", one_run)
    monkeypatch.setattr(bratu, "compile_program", lambda source, folder: Path("ex14"))
    for words, name in ((["--pc", "gamg", "--ranks", "2"], "bratu, GAMG, 2 ranks"), ([], "bratu")):
        path = tmp_path / f"{name}.json"
        command = ["ex14.c", "--grid", "8", "--types", "gpufmt", "--json", str(path), *words]
        assert bratu.main(command) == 0
        (run,) = results.read_runs(path)
        assert run["name"] == name
        recorded.append(run["cases"][0]["runs"][0]["preconditioner"])
    assert recorded == ["gamg", "jacobi"]
