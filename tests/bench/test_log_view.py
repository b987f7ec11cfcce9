"""What is read from what PETSc prints of a run."""

from __future__ import annotations

import pytest

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.log_view import agreement, read_complexity, read_csv_events, read_gpu_columns, read_iterations


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
    assert read_csv_events(path, ("MatMult", "KSPSolve")) == {"MatMult": {"count": 13, "seconds": 1.75}}


def test_log_view_gpu_columns(tmp_path):
    path = tmp_path / "log.txt"
    line = "1 1.0 3.1e+00 1.0 2.1e+10 1.0 0.0e+00 99 99  0  0  0  6800"
    path.write_text(f"MatMult {line}\n")
    assert read_gpu_columns(path, ("MatMult",)) == {}  # a PETSc without a GPU prints no such columns

    path.write_text(
        "GPU - CpuToGpu - - GpuToCpu - GPU\n"
        f"MatMult {line}   12345      5 1.50e+02    0 0.00e+00 100\n"
        f"KSPSolve {line}     n/a      7 2.50e+00    1 8.00e-06 99\n"
    )
    columns = read_gpu_columns(path, ("MatMult", "KSPSolve"))
    assert columns["MatMult"]["gpu_mflop_per_second"] == 12345
    assert columns["MatMult"]["to_gpu_megabytes"] == 150
    assert columns["KSPSolve"]["gpu_mflop_per_second"] is None
    assert columns["KSPSolve"]["to_gpu_count"] == 7
    assert columns["KSPSolve"]["gpu_flop_percent"] == 99


def test_iterations_of_solvers():
    output = (
        "  Linear solve converged due to CONVERGED_RTOL iterations 40\n"
        "  Linear solve converged due to CONVERGED_RTOL iterations 41\n"
        "Nonlinear solve converged due to CONVERGED_FNORM_RELATIVE iterations 2\n"
    )
    assert read_iterations(output) == {"newton_iterations": 2, "krylov_iterations": 81}
    assert read_iterations(output.splitlines()[0]) == {"newton_iterations": 0, "krylov_iterations": 40}
    for other in ("", output + "Linear solve did not converge due to DIVERGED_ITS iterations 10\n"):
        with pytest.raises(BenchError, match="did not print"):
            read_iterations(other)


def test_operator_complexity_of_the_last_view():
    view = "      Complexity:    grid = 1.06{0}    operator = 1.1{0}\n"
    assert read_complexity(view.format(1) + view.format(2)) == {"operator_complexity": 1.12}
    assert read_complexity("PC Object: 1 MPI process") == {}


def test_different_iterations_are_reported():
    def entry(name, newton, krylov):
        return {"mat_type": name, "newton_iterations": newton, "krylov_iterations": krylov}

    assert agreement([entry("aij", 3, 500), entry("pjds", 3, 502)]) == []
    assert len(agreement([entry("aij", 3, 500), entry("pjds", 4, 500), entry("other", 3, 520)])) == 2


def test_types_that_failed_are_not_compared():
    def entry(name, krylov):
        return {"mat_type": name, "newton_iterations": 3, "krylov_iterations": krylov}

    failed = {"mat_type": "aijcusparse", "skipped": "why"}
    assert agreement([failed, entry("gpufmt", 24), entry("pjds", 25)]) == []  # one iteration is allowed
    assert len(agreement([failed, entry("gpufmt", 24), entry("pjds", 26)])) == 1
    assert agreement([failed]) == []
