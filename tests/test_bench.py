"""The benchmarks: their matrices, their checks, what they write, and the page made of it. No test looks at a time."""

from __future__ import annotations

import ctypes
import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")
scipy_io = pytest.importorskip("scipy.io")

from petsc_gpufmt.bench import log_view, matrices, mult, programs, results, storage, targets  # noqa: E402
from petsc_gpufmt.bench.bratu import agreement, matmult_seconds, read_iterations  # noqa: E402
from petsc_gpufmt.bench.contenders import format_contender, format_options  # noqa: E402
from petsc_gpufmt.bench.environment import without_paths  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.places import host_place  # noqa: E402
from petsc_gpufmt.bench.report import number  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "bench"
SCALAR, INDEX = np.dtype(np.float64), np.dtype(np.int32)


def rng():
    return np.random.default_rng(977)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(("stencil", "power"), [("7point", 1), ("27point", 3)])
def test_stencil_is_the_kronecker_one(stencil, power, n):
    step = scipy_sparse.diags([1.0, 1.0, 1.0], [-1, 0, 1], shape=(n, n))
    identity = scipy_sparse.identity(n)
    if power == 1:
        terms = [(step, identity, identity), (identity, step, identity), (identity, identity, step)]
    else:
        terms = [(step, step, step)]
    expected = sum(scipy_sparse.kron(scipy_sparse.kron(a, b), c) for a, b, c in terms).tocsr()
    expected.eliminate_zeros()
    expected.sort_indices()

    rowptr, columns = matrices.stencil_pattern(stencil, n, INDEX)

    assert rowptr.dtype == columns.dtype == INDEX
    np.testing.assert_array_equal(rowptr, expected.indptr)
    np.testing.assert_array_equal(columns, expected.indices)


def test_stencil_too_large_for_the_index_is_refused():
    with pytest.raises(BenchError, match="too many for the int32"):
        matrices.stencil_pattern("27point", 700, INDEX)


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz", ".npz"])
def test_matrix_files_are_read(tmp_path, suffix):
    matrix = scipy_sparse.random(30, 20, 0.2, format="csr", random_state=rng())
    path = tmp_path / f"given{suffix}"
    if suffix == ".npz":
        scipy_sparse.save_npz(path, matrix)
    else:
        opener = gzip.open if suffix == ".mtx.gz" else open
        with opener(path, "wb") as stream:
            scipy_io.mmwrite(stream, matrix)

    name, found = matrices.make_matrix(str(path), SCALAR, INDEX, rng())

    assert name == "given"
    assert found.indptr.dtype == found.indices.dtype == INDEX
    np.testing.assert_allclose(found.toarray(), matrix.toarray())


@pytest.mark.parametrize("spec", ["9point:4", "7point:", "7point:none", "absent.mtx"])
def test_unusable_matrix_says_what_to_give(spec):
    with pytest.raises(BenchError, match="--matrix"):
        matrices.make_matrix(spec, SCALAR, INDEX, rng())


def test_file_that_is_no_matrix_is_refused(tmp_path):
    path = tmp_path / "text.mtx"
    path.write_text("no matrix\n")
    with pytest.raises(BenchError, match="not a sparse matrix"):
        matrices.read_matrix(path, SCALAR, INDEX)


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


def test_format_variants():
    assert format_options("pjds:slice_height=64,sigma_window=-1") == ("pjds", {"slice_height": 64, "sigma_window": -1})
    assert format_contender("pjds:slice_height=64", "host").options == {"mat_pjds_slice_height": "64"}
    for variant in ("none", "pjds:slice_height=tall"):
        with pytest.raises(BenchError, match="--format"):
            format_options(variant)


def test_variant_reaches_the_matrix():
    """The option has to arrive in the store: a slice height that is not offered fails in the first product."""
    from petsc4py import PETSc

    place = host_place()
    matrix = matrices.stencil_matrix("7point", 3, place.backend.scalar, place.backend.index, rng())
    with pytest.raises(PETSc.Error):
        format_contender("pjds:slice_height=7", "host").prepare(matrix, np.ones(27), place)


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


def test_targets_read_the_right_entries():
    found = {target.what: target.find(golden_runs()) for target in targets.TARGETS}
    product = found["MatMult, 7-point 200^3"]
    assert (product.value, product.best_peer) == (pytest.approx(190), pytest.approx(306))
    from_c = found["host time of MatMult from C, 7-point 50^3"]
    assert (from_c.value, from_c.best_peer) == (pytest.approx(3.4), pytest.approx(5))
    assert found["format build on the device, worse of the two large matrices"].value == pytest.approx(30)
    assert found["value refresh without upload, worse of the two large matrices"].value == pytest.approx(1.5)
    bratu = found["Bratu 200^3, CG and Jacobi: MatMult total"]
    assert (bratu.value, bratu.best_peer) == (0.26, 0.502)
    assert found["MatMult, 27-point 128^3"] is None


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


@pytest.mark.slow
def test_mult_from_c(tmp_path):
    path = tmp_path / "results.json"
    command = ["bench", "mult-from-c", str(ROOT / "benchmarks/mult_from_c.c"), "--json", str(path)]
    assert main([*command, "--matrix", "7point:4", "--matrix", "27point:3", "--types", "aij", "pjds"]) == 0
    (run,) = results.read_runs(path)
    found = [(case["matrix"], case["mat_type"], case["nnz"]) for case in run["cases"]]
    assert found == [
        ("7-point 4^3", "seqaij", 352),
        ("7-point 4^3", "seqaijpjds", 352),
        ("27-point 3^3", "seqaij", 343),
        ("27-point 3^3", "seqaijpjds", 343),
    ]
    assert all(case["error_over_bound"] <= 1 for case in run["cases"])


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
