"""The benchmarks: their checks, what they write, and the page made of it. No test looks at a time."""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import log_view, matrices, mult, places, programs, results, storage, summary, targets, timing  # noqa: E402
from petsc_gpufmt.bench.bratu import agreement, matmult_seconds, read_iterations  # noqa: E402
from petsc_gpufmt.bench.environment import without_paths  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.markdown import number  # noqa: E402
from petsc_gpufmt.cli import bench_runs  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "bench"


def rng():
    return np.random.default_rng(977)


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch):
    """No test looks at a time."""
    monkeypatch.setattr(timing, "HOST_SECONDS", 0.01)
    monkeypatch.setitem(places.COPY_BYTES, "host", 1 << 16)


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
    from petsc_gpufmt.bench.contenders import PetscProduct

    right = PetscProduct.result

    def wrong_for_pjds(product):
        z = right(product)
        if product.A.getType() == "seqaijpjds":
            z[-1] += 1e-9
        return z

    arguments = ["bench", "mult", "--host", "--matrix", "7point:4"]
    assert main(arguments) == 0
    monkeypatch.setattr(PetscProduct, "result", wrong_for_pjds)
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
        assert min(storage.in_products(entry, case["products"])[name] for name in ("build", "refresh")) > 0


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
        assert main(["bench", benchmark, "--host", "--json", str(path)]) == 1
        message = capsys.readouterr().err
        assert f"{path}" in message and complaint in message
        assert message.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_interrupted_benchmark_keeps_what_it_measured(tmp_path, monkeypatch, capsys):
    """Ctrl-C while the second matrix is measured."""
    from petsc_gpufmt.bench.contenders import PetscProduct

    def interrupted(product):
        if product.A.getSize()[0] == 64:
            signal.raise_signal(signal.SIGINT)
        return call(product)

    call, path = PetscProduct.call, tmp_path / "results.json"
    monkeypatch.setattr(PetscProduct, "call", interrupted)
    matrices_asked = [word for points in (3, 4, 5) for word in ("--matrix", f"7point:{points}")]
    assert main(["bench", "mult", "--host", *matrices_asked, "--json", str(path)]) == 130
    assert capsys.readouterr().err == "petsc_gpufmt: interrupted\n"
    (run,) = results.read_runs(path)
    assert [case["matrix"]["name"] for case in run["cases"]] == ["7-point 3^3"]


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
    assert main(["bench", *words, "--host", "--without", "sellcud"]) == 1
    message = capsys.readouterr().err
    assert re.fullmatch(f"petsc_gpufmt: --without sellcud: nobody has this name, choose from {choices}\n", message)


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


def test_programs_that_fail_or_hang_are_reported():
    with pytest.raises(BenchError, match="status 3"):
        programs.run_program(["bash", "-c", "exit 3"], 20)
    with pytest.raises(BenchError, match="no end after"):
        programs.run_program(["sleep", "60"], 0.2)
    with pytest.raises(BenchError, match="cannot be started"):
        programs.run_program(["/absent/program"], 20)


def test_configure_options_are_told_without_paths():
    options = "--prefix=/opt/petsc --with-cuda=1 COPTFLAGS=-O3 --with-blas-lib=/usr/lib/libblas.so --with-fc=0"
    assert without_paths(options) == "--with-cuda=1 COPTFLAGS=-O3 --with-fc=0"


def test_programs_do_not_see_what_a_library_has_put_into_the_environment():
    """MPI does so when Python initialises it, and an mpiexec that sees it fails."""
    ctypes.CDLL(None).setenv(b"GPUFMT_SET_BY_A_LIBRARY", b"1", 1)
    assert "GPUFMT_SET_BY_A_LIBRARY" not in programs.run_program(["env"], 20)


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
            case["vec_type"] = "seq"
    assert set(found_figures(runs).values()) == {None}


def test_figures_of_nothing():
    assert set(found_figures({}).values()) == {None}


def test_least_and_largest_values():
    lowest = targets.Target("a", 2.0, "", lambda runs: None, at_least=True)
    highest = targets.Target("b", 2.0, "", lambda runs: None)
    for value, reached in ((1.9, (False, True)), (2.0, (True, True)), (2.1, (True, False))):
        assert (lowest.reached(targets.Measured(value)), highest.reached(targets.Measured(value))) == reached


def comparable(matrix, ours, **peers):
    """A case with our time and those of peers; None for one that was skipped."""
    entries = [{"name": "gpufmt", "place": "cuda", "ours": True, "median_seconds": ours}]
    entries += [{"name": "pjds", "place": "cuda", "ours": True, "median_seconds": 1e-9}]
    entries += [{"name": "aij", "place": "host", "ours": False, "median_seconds": 1e-9}]
    for name, seconds in peers.items():
        entry = {"name": name, "place": "cuda", "ours": False}
        entries.append(entry | ({"skipped": "why"} if seconds is None else {"median_seconds": seconds}))
    return {"matrix": {"name": matrix}, "products": entries}


def test_summary_of_a_set():
    cases = [comparable("a", 1.0, one=2.0, two=8.0), comparable("b", 4.0, one=None, two=2.0), comparable("c", 1.0)]
    found = summary.summarise(cases, "gpufmt")
    assert (found["matrices"], found["worst_matrix"]) == (2, "b")
    assert found["geometric_mean_seconds"] == pytest.approx(2)
    assert found["peer_geometric_mean_seconds"] == pytest.approx(2)
    assert found["geometric_mean_ratio"] == pytest.approx(1)
    assert found["worst_ratio"] == pytest.approx(0.5)
    assert "worst 0.500 on b" in summary.summary_line(found)
    assert summary.summarise(cases, "bsr") == summary.summarise([], "gpufmt") == {}


def test_wrong_products_are_not_compared():
    case = comparable("a", 4.0, wrong=1.0, right=8.0)
    products = {product["name"]: product for product in case["products"]}
    products["wrong"]["correct"], products["right"]["correct"] = False, True
    compared = summary.compare(case, "gpufmt")
    assert (compared.peer, compared.ratio) == ("right", 2)
    products["right"]["correct"] = False
    assert summary.compare(case, "gpufmt") is None
    products["right"]["correct"], products["gpufmt"]["correct"] = True, False
    assert summary.compare(case, "gpufmt") is None


def test_parts_of_matmult():
    run = golden_runs()["bratu"]["cases"][0]["runs"][1]
    assert matmult_seconds(run) == {"total": 0.26, "plan": 0.02, "refresh": 0.01}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (1234.5, "1230"), (199.6, "200"), (5.5, "5.50"), (0.26, "0.26"), (0.000527, "0.000527")],
)
def test_number(value, text):
    assert number(value) == text


def test_report_is_the_golden_page(capsys):
    """After a wanted change: python -m petsc_gpufmt bench report results.json --notes notes.md > performance.md."""
    files = [str(FOLDER / "results.json"), "--notes", str(FOLDER / "notes.md")]
    assert main(["bench", "report", *files]) == 0
    assert capsys.readouterr().out == (FOLDER / "performance.md").read_text()


def test_report_without_the_notes_named_is_refused(capsys):
    assert main(["bench", "report", str(FOLDER / "results.json"), "--notes", "absent.md"]) == 1
    assert "absent.md: there is no such file" in capsys.readouterr().err


def test_report_of_the_figures_alone(capsys):
    assert main(["bench", "report", str(FOLDER / "results.json"), "--targets"]) == 0
    page = (FOLDER / "performance.md").read_text()
    found = capsys.readouterr().out
    assert found.startswith("## Figures to reach")
    assert found in page


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
    assert main(["bench", "report", str(path)]) == 0
    assert f"| {run['cases'][1]['matrix']['name']} | " in capsys.readouterr().out


def test_unknown_set_is_refused(tmp_path, capsys):
    assert main(["bench", "mult", "--host", "--matrix-set", "large", str(tmp_path)]) == 1
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
    assert main(["bench", "report", str(path)]) == 0
    assert "| 2 | 27-point 10^3 | 87808 |" in capsys.readouterr().out
    assert main(["bench", "bsr", "--host", "--block-size", "0"]) == 1
    assert "--block-size 0: give positive numbers" in capsys.readouterr().err


@pytest.mark.slow
def test_every_format_is_measured(tmp_path, monkeypatch):
    from petsc_gpufmt.registry import FORMATS

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


def test_all_with_a_device_ends_with_the_figures(tmp_path, monkeypatch, capsys):
    """Which benchmarks are run, and on what, where there is a device; none of them is."""

    def record(arguments):
        names = [name for name in ("matrix_set", "block_size", "variant") if hasattr(arguments, name)]
        called.append((names[0], getattr(arguments, names[0]), arguments.json))
        return 0

    called = []
    path = tmp_path / "results.json"
    shutil.copy(FOLDER / "results.json", path)
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
    assert "| 7-point 200^3 | <= 175 us | 170.0 | gpufmt | 306.0 | yes |" in capsys.readouterr().out


@pytest.mark.slow
def test_mult_from_c(tmp_path):
    path = tmp_path / "results.json"
    write_pattern(tmp_path / "wide.npz", 21, 31)
    specs = ("7point:4", "27point:3x2", str(tmp_path / "wide.npz"))
    command = ["bench", "mult-from-c", str(ROOT / "benchmarks/mult_from_c.c"), "--json", str(path)]
    command += [word for spec in specs for word in ("--matrix", spec)]
    assert main([*command, "--types", "aij", "pjds"]) == 0
    (run,) = results.read_runs(path)
    keys = ("matrix", "nnz", "block_size", "mat_type", "ours")
    assert [tuple(case[key] for key in keys) for case in run["cases"]] == [
        (*matrix, *type_and_ours)
        for matrix in (("7-point 4^3", 352, 1), ("27-point 3^3, 2 x 2 blocks", 1372, 2), ("wide", 326, 1))
        for type_and_ours in (("seqaij", False), ("seqaijpjds", True))
    ]
    assert all(case["error_over_bound"] <= 1 for case in run["cases"])


@pytest.mark.slow
def test_wrong_product_from_c_is_reported(tmp_path, monkeypatch):
    from petsc_gpufmt.bench import mult_from_c
    from petsc_gpufmt.bench.mult import Reference

    class Wrong:
        @staticmethod
        def of(matrix, x):
            right = Reference.of(matrix, x)
            return Reference(right.z + 1e-9, right.bound)

    monkeypatch.setattr(mult_from_c, "Reference", Wrong)
    command = ["bench", "mult-from-c", str(ROOT / "benchmarks/mult_from_c.c"), "--matrix", "7point:4"]
    with pytest.raises(BenchError, match="The product is wrong"):
        bench_runs.run_mult_from_c(parsed([*command, "--types", "pjds"]))


def parsed(words):
    from petsc_gpufmt.cli.main import make_parser

    return make_parser().parse_args(words)


def test_unknown_type_from_c_is_refused():
    from petsc_gpufmt.bench.mult_from_c import conversions

    assert conversions("sellcuda") == ("seqsell", "seqsellcuda")
    assert conversions("aij") == ()
    assert conversions("pjds") == ("seqaijpjds",)
    with pytest.raises(BenchError, match="--types other: choose from aij"):
        conversions("other")


def test_gpu_script_refuses_unknown_steps(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    with pytest.raises(BenchError, match="there is no step 'measure'"):
        programs.run_program(["env", f"OUT={tmp_path}", "bash", str(ROOT / "benchmarks/run_on_gpu.sh"), "measure"], 30)


@pytest.mark.slow
def test_small_products_are_right_on_the_host():
    command = [sys.executable, str(ROOT / "benchmarks/small_products.py"), "--host"]
    output = programs.run_program(["env", f"PYTHONPATH={ROOT}", *command], 120)
    assert "uneven rows, some empty" in output
