"""The Bratu problem: what is read from its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import bratu
import pytest
from bratu import matmult_seconds

from petsc_gpufmt.bench import results
from petsc_gpufmt.bench.errors import BenchError

FOLDER = Path(__file__).parent
OUTPUT = (
    "[0]PETSC ERROR: #1 MatProductSymbolic_Other() at file.c:3\n[0]PETSC ERROR: #2 MatProductSymbolic() at other.c:4\n"
)


def golden_runs():
    return {run["name"]: run for run in results.read_runs(FOLDER / "results.json")}


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
