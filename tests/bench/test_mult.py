"""Benchmarks of MatMult: their checks, and what they write."""

from __future__ import annotations

import argparse
import json
import re
import signal

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import matrices, mult, places, results, storage, summary  # noqa: E402
from petsc_gpufmt.bench.environment import without_paths  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.cli import bench_runs  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402


def rng():
    return np.random.default_rng(977)


def test_reference_tells_rounding_from_errors():
    matrix = scipy_sparse.random(200, 100, 0.1, format="csr", random_state=rng())
    x = rng().random(100)
    reference = mult.Reference.of(matrix, x)
    backwards = np.array([(matrix[i].toarray().ravel() * x)[::-1].sum() for i in range(200)])
    assert 0 < reference.error(backwards) <= 1

    row = int(np.argmax(np.diff(matrix.indptr)))
    for wrong in (reference.z[row] * (1 + 1e-12), np.nan, np.inf):
        z = reference.z.copy()
        z[row] = wrong
        assert reference.error(z) > 1


def test_reference_wants_zero_in_an_empty_row():
    matrix = scipy_sparse.csr_matrix((np.ones(1), np.zeros(1, int), np.array([0, 1, 1])), shape=(2, 1))
    reference = mult.Reference.of(matrix, np.ones(1))
    assert reference.error(np.array([1.0, 0.0])) == 0
    assert reference.error(np.array([1.0, 1e-300])) > 1


def test_csr_bytes_of_a_square_matrix():
    matrix = scipy_sparse.random(50, 50, 0.1, format="csr", random_state=rng())
    assert mult.csr_bytes(matrix) == 12 * matrix.nnz + 4 * 51 + 16 * 50


def test_wrong_product_is_reported(capsys, monkeypatch):
    """A product that is off by more than rounding has to end `bench mult` with status 1."""
    from petsc_gpufmt.bench.contenders import PetscMult

    right = PetscMult.result

    def wrong_for_pjds(product):
        z = right(product)
        if product.A.getType() == "seqaijpjds":
            z[-1] += 1e-9
        return z

    arguments = ["bench", "mult", "--host", "--matrix", "7point:4"]
    assert main(arguments) == 0
    monkeypatch.setattr(PetscMult, "result", wrong_for_pjds)
    assert main(arguments) == 1
    assert "WRONG: 7-point 4^3, pjds on host" in capsys.readouterr().out


def test_mult_writes_results_and_keeps_other_runs(tmp_path):
    path = tmp_path / "new" / "results.json"
    results.save_run(path, {"name": "other", "cases": [1]})
    arguments = ["bench", "mult", "--host", "--matrix", "27point:5", "--matrix", "7point:3", "--json", str(path)]
    assert main([*arguments, "--commit", "abc"]) == 0
    assert main([*arguments, "--commit", "def"]) == 0

    runs = {run["name"]: run for run in results.read_runs(path)}

    assert list(runs) == ["other", "mult"]
    run = runs["mult"]
    assert run["environment"]["commit"] == "def"
    assert run["environment"]["petsc_configure_options"] != "unknown"
    assert [case["matrix"]["name"] for case in run["cases"]] == ["27-point 5^3", "7-point 3^3"]
    for case in run["cases"]:
        assert [(p["name"], p["correct"]) for p in case["products"]] == [("pjds", True), ("aij", True)]
        (entry,) = case["storage"]
        assert entry["stats"]["nnz"] == case["matrix"]["nnz"]
        assert min(storage.in_mults(entry, case["products"])[name] for name in ("build", "refresh")) > 0


def test_results_of_another_schema_are_refused(tmp_path):
    path = tmp_path / "results.json"
    for text, complaint in ((json.dumps({"schema": 99}), "schema 99"), ("[]", "schema list"), ("{", "not a file of")):
        path.write_text(text)
        with pytest.raises(BenchError, match=complaint):
            results.read_runs(path)


@pytest.mark.parametrize("benchmark", ["mult", "bsr", "spgemm"])
def test_results_that_cannot_be_kept_are_found_out_before_measuring(tmp_path, monkeypatch, capsys, benchmark):
    monkeypatch.setattr(places, "available_places", lambda host_only: pytest.fail("measured"))
    file = tmp_path / "file"
    file.write_text("no results")
    for path, complaint in ((file / "results.json", "cannot be written ("), (file, "not a file of")):
        assert main(["bench", benchmark, "--host", "--json", str(path)]) == 2
        message = capsys.readouterr().err
        assert f"{path}" in message and complaint in message
        assert message.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("interruptible")
def test_interrupted_benchmark_keeps_what_it_measured(tmp_path, monkeypatch, capsys):
    """Ctrl-C while the second matrix is measured."""
    from petsc_gpufmt.bench.contenders import PetscMult

    def interrupted(product):
        if product.A.getSize()[0] == 64:
            signal.raise_signal(signal.SIGINT)
        return call(product)

    call, path = PetscMult.call, tmp_path / "results.json"
    monkeypatch.setattr(PetscMult, "call", interrupted)
    matrices_asked = [word for points in (3, 4, 5) for word in ("--matrix", f"7point:{points}")]
    assert main(["bench", "mult", "--host", *matrices_asked, "--json", str(path)]) == 130
    assert capsys.readouterr().err == "petsc_gpufmt: interrupted\n"
    (run,) = results.read_runs(path)
    assert [case["matrix"]["name"] for case in run["cases"]] == ["7-point 3^3"]


@pytest.mark.parametrize("benchmark", ["mult", "spgemm"])
def test_matrices_that_cannot_be_made_are_found_out_before_measuring(monkeypatch, capsys, benchmark):
    monkeypatch.setattr(places, "available_places", lambda host_only: pytest.fail("measured"))
    for spec, complaint in (("absent.mtx", "no such file"), ("7point:9999", "too many"), ("7point:x", "grid points")):
        assert main(["bench", benchmark, "--host", "--matrix", "7point:3", "--matrix", spec]) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"petsc_gpufmt: --matrix {spec}: ") and complaint in message
        assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        (["mult"], "gpufmt, pjds, bsr, aijcusparse ALG1, aijcusparse ALG2, sellcuda, CuPy csr, aij"),
        (["mult", "--format", "jds"], "jds, aijcusparse ALG1, aijcusparse ALG2, sellcuda, CuPy csr, aij"),
        (["mult", "--matrix-set", "real", "."], "aijcusparse ALG1, aijcusparse ALG2, sellcuda, aij"),
        (["spgemm"], "rmerge, .*cuSPARSE ALG1, .*SciPy, aij"),
    ],
)
def test_unknown_names_are_not_left_out(monkeypatch, capsys, words, choices):
    monkeypatch.setattr(places, "available_places", lambda host_only: pytest.fail("measured"))
    assert main(["bench", *words, "--host", "--without", "sellcud"]) == 2
    message = capsys.readouterr().err
    assert re.fullmatch(f"petsc_gpufmt: --without sellcud: nobody has this name, choose from {choices}\n", message)


def test_configure_options_are_told_without_paths():
    options = "--prefix=/opt/petsc --with-cuda=1 COPTFLAGS=-O3 --with-blas-lib=/usr/lib/libblas.so --with-fc=0"
    assert without_paths(options) == "--with-cuda=1 COPTFLAGS=-O3 --with-fc=0"


def write_pattern(path, *shape):
    scipy_sparse.save_npz(path, scipy_sparse.random(*shape, 0.5, format="csr", random_state=rng()))


@pytest.mark.parametrize("replicate", [False, True])
def test_set_of_matrices(tmp_path, monkeypatch, capsys, replicate):
    monkeypatch.setattr(matrices, "REAL_NONZEROS", 1)
    monkeypatch.setattr(matrices, "REPLICATED_NONZEROS", 600)
    write_pattern(tmp_path / "a.npz", 20, 30)
    write_pattern(tmp_path / "b.npz", 30, 20)
    name, path = "real-replicated" if replicate else "real", tmp_path / "results.json"
    command = ["bench", "mult", "--host", "--matrix-set", name, str(tmp_path), "--format", "pjds"]
    assert main([*command, "--json", str(path)]) == 0
    (run,) = results.read_runs(path)
    assert run["name"] == name
    assert [case["matrix"]["name"] for case in run["cases"]] == (["a x2", "b x2"] if replicate else ["a", "b"])
    assert [p["name"] for p in run["cases"][0]["products"]] == ["pjds", "aij"]
    assert all(p["correct"] for case in run["cases"] for p in case["products"])
    assert "slice height" in run["cases"][0]["products"][0]["stored_as"]
    assert run["summary"] == summary.summarise(run["cases"], "pjds")
    assert run["summary"]["matrices"] == 2
    assert run["launch_seconds"] > 0
    assert "pjds on 2 matrices" in capsys.readouterr().out


def test_unknown_set_is_refused(tmp_path, capsys):
    assert main(["bench", "mult", "--host", "--matrix-set", "large", str(tmp_path)]) == 2
    assert "--matrix-set large: choose from real, real-replicated" in capsys.readouterr().err


def test_block_sizes(tmp_path, capsys):
    path = tmp_path / "results.json"
    command = ["bench", "bsr", "--host", "--block-size", "1", "2", "--entries", "10", "--json", str(path)]
    assert main(command) == 0
    (run,) = results.read_runs(path)
    assert [case["matrix"]["block_size"] for case in run["cases"]] == [1, 2]
    for case in run["cases"]:
        assert [(p["name"], p["correct"]) for p in case["products"]] == [("bsr", True), ("baij", True)]
        assert case["products"][0]["bytes_per_second"] == pytest.approx(
            case["bsr_bytes"] / case["products"][0]["median_seconds"]
        )
    assert main(["bench", "bsr", "--host", "--block-size", "0"]) == 2
    assert "--block-size 0: give positive numbers" in capsys.readouterr().err


@pytest.mark.slow
def test_every_format_is_measured(tmp_path, monkeypatch):
    from petsc_gpufmt.choice.registry import FORMATS

    monkeypatch.setitem(bench_runs.ALL_FORMATS_MATRICES, "host", ("7point:3",))
    path = tmp_path / "results.json"
    assert main(["bench", "mult", "--host", "--all-formats", "--without", "aij", "--json", str(path)]) == 0
    (run,) = results.read_runs(path)
    assert run["name"] == "mult, all formats"
    assert [p["name"] for p in run["cases"][0]["products"]] == list(FORMATS)
    assert main(["bench", "mult", "--host", "--all-formats", "--matrix", "7point:3", "--json", str(path)]) == 0


def test_all_measures_what_the_host_can(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(matrices.DEFAULT_MATRICES, "host", ("7point:3",))
    path = tmp_path / "results.json"
    assert main(["bench", "all", "--host", "--json", str(path)]) == 0
    (run,) = results.read_runs(path)
    assert [case["matrix"]["name"] for case in run["cases"]] == ["7-point 3^3"]


def test_all_with_a_device(tmp_path, monkeypatch):
    """Which benchmarks are run, and on what, where there is a device; none of them is."""

    def record(arguments):
        names = [name for name in ("matrix_set", "block_size", "variant") if hasattr(arguments, name)]
        called.append((names[0], getattr(arguments, names[0]), arguments.json))
        return 0

    called = []
    path = tmp_path / "results.json"
    monkeypatch.setattr(places, "device_reason", lambda: None)
    monkeypatch.setattr(bench_runs, "run_mult", record)
    monkeypatch.setattr(bench_runs, "run_bsr", record)
    monkeypatch.setattr(bench_runs, "run_spgemm", record)
    arguments = argparse.Namespace(json=path, commit=None, host=False, matrices=tmp_path)
    assert bench_runs.run_all(arguments) == 0
    assert [what[:2] for what in called] == [
        ("matrix_set", None),
        ("block_size", None),
        ("matrix_set", ("real", tmp_path)),
        ("matrix_set", ("real-replicated", tmp_path)),
        ("variant", None),
    ]
    assert {file for *_, file in called} == {path}
