"""``bench ksp``: who is measured, how, and what is made of the times."""

from __future__ import annotations

import dataclasses
import json

import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import ksp, rank_ksp  # noqa: E402
from petsc_gpufmt.bench.rank_ksp import Contender, Task, few_and_many  # noqa: E402
from petsc_gpufmt.bench.results import read_runs  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402

RATHER = "-ksp_mixedcg_outer flexible, -ksp_rtol 1e-09, ranks 1 2"


@pytest.mark.mpi
def test_solvers_from_end_to_end(tmp_path, capsys):
    path = tmp_path / "results.json"
    words = ["--matrix", "7point:8", "--matrix", "elasticity:4", "--type", "aijpjds", "--rtol", "1e-9"]
    words += ["--method", "cg", "--method", "gmres", "--method", "mixed", "--outer", "flexible"]
    assert main(["bench", "ksp", "--host", "--ranks", "1,2", *words, "--json", str(path)]) == 0
    (run,) = read_runs(path)
    assert run["name"] == f"ksp, cg, gmres, mixed, pjds, {RATHER}" and run["gpu_aware"] is True
    labels = ["cg, aij", "cg, pjds", "gpucg, pjds", "gmres, aij", "gmres, pjds", "gpugmres, pjds"]
    labels.append("mixedcg (flexible), pjds")
    found = [(case["matrix"], case["ranks"], case["label"]) for case in run["cases"]]
    assert found == [
        (matrix, ranks, label) for ranks in (1, 2) for matrix in ("7point:8", "elasticity:4") for label in labels
    ]
    for case in run["cases"]:
        assert case["correct"] and case["reason"] == 2 and case["residual"] <= 1.1e-9
        assert 0 < case["least_solve_seconds"] <= case["solve_seconds"] <= case["largest_solve_seconds"]
        few, many = case["timed_iterations"]
        assert few < many <= max(60, case["iterations"]) and many % (30 if "gmres" in case["ksp"] else 8) == 0
        assert (case["rows"], case["nnz"]) == ((512, 3200) if case["matrix"] == "7point:8" else (192, 9000))
        assert bool(case["said"]) == (case["ksp"] not in ("cg", "gmres")) and "history" not in case
    of_one, of_two = run["cases"][:7], run["cases"][14:21]
    for one, two in zip(of_one, of_two, strict=True):
        assert abs(one["iterations"] - two["iterations"]) <= (6 if one["outer"] else 1)
    output = capsys.readouterr().out
    assert "7point:8 on 2 ranks, gpucg, pjds: " in output
    assert "gpugmres, pjds against gmres, aij: " in output and "solves to the same residual" in output


@pytest.mark.slow
def test_histories_are_true_residuals_of_solves(tmp_path):
    path = tmp_path / "results.json"
    words = ["--matrix", "7point:8", "--method", "mixed", "--type", "pjds", "--pc", "none", "--history"]
    assert main(["bench", "ksp", "--host", *words, "--json", str(path)]) == 0
    (run,) = read_runs(path)
    assert run["name"] == "ksp, mixed, pjds, -pc_type none"
    double, mixed = run["cases"]
    assert [count for count, _ in double["history"]] == list(range(double["iterations"] + 1))
    assert double["history"][0] == mixed["history"][0] == [0, 1.0]
    assert double["history"][-1][1] == pytest.approx(double["residual"], rel=1e-3)
    counts, residuals = zip(*mixed["history"], strict=True)
    assert len(counts) < 10 and counts[-1] == mixed["iterations"] and list(counts) == sorted(counts)
    assert residuals[-1] == pytest.approx(mixed["residual"], rel=1e-3)


@pytest.mark.slow
def test_copies_of_a_file_with_its_values(tmp_path):
    line = scipy_sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (40, 40), format="csr")
    scipy_sparse.save_npz(tmp_path / "line.npz", line)
    path = tmp_path / "results.json"
    assert main(["bench", "ksp", "--host", "--matrix", f"{tmp_path}/line.npz*3", "--json", str(path)]) == 0
    (run,) = read_runs(path)
    assert run["name"] == "ksp, cg, gpufmt, files"
    assert {(case["matrix"], case["rows"], case["nnz"]) for case in run["cases"]} == {("line x3", 120, 354)}


@pytest.mark.slow
def test_a_solve_that_misses_the_residual_is_wrong_unless_petscs_misses_it(capsys):
    words = ["bench", "ksp", "--host", "--matrix", "7point:8", "--type", "pjds", "--max-it", "4"]
    assert main([*words, "--method", "mixed"]) == 1
    output = capsys.readouterr().out
    assert "ended by reason -3" in output
    assert output.count("WRONG: 7point:8 on 1 rank, ") == 2 and ": reason -3, residual " in output
    assert main(words) == 0


@pytest.mark.slow
def test_matrices_that_break_a_method_down_leave_its_iterations_out(tmp_path, capsys):
    scipy_sparse.save_npz(tmp_path / "indefinite.npz", scipy_sparse.diags([1.0, -1.0] * 20, format="csr"))
    assert main(["bench", "ksp", "--host", "--matrix", f"{tmp_path}/indefinite.npz", "--pc", "none"]) == 0
    output = capsys.readouterr().out
    assert output.count("an iteration was not timed; ") == 3 and output.count("ended by reason -10") == 3


def test_contenders_of_methods():
    found = ksp.make_contenders(["cg", "mixed"], ["gpufmt", "bsr"], "aijcusparse", ["replacement", "flexible"])
    assert [(contender.label, contender.against) for contender in found] == [
        ("cg, aijcusparse", None),
        ("cg, gpufmt", "cg, aijcusparse"),
        ("gpucg, gpufmt", "cg, aijcusparse"),
        ("cg, bsr", "cg, aijcusparse"),
        ("gpucg, bsr", "cg, aijcusparse"),
        ("mixedcg (replacement), gpufmt", "gpucg, gpufmt"),
        ("mixedcg (flexible), gpufmt", "gpucg, gpufmt"),
        ("mixedcg (replacement), bsr", "gpucg, bsr"),
        ("mixedcg (flexible), bsr", "gpucg, bsr"),
    ]
    alone = ksp.make_contenders(["mixed"], ["gpufmt"], "aij", ["replacement"])
    assert [(contender.ksp, contender.against) for contender in alone] == [
        ("gpucg", None),
        ("mixedcg", "gpucg, gpufmt"),
    ]
    assert set(ksp.METHODS) | set(ksp.METHODS.values()) >= set(rank_ksp.RESTARTED)


def test_tasks_travel_as_json():
    contenders = (Contender("cg", "aij"), Contender("gpucg", "pjds", None, "cg, aij"))
    task = Task(("7point:3",), contenders, "none", 1e-6, 9, True)
    read = Task.of_json(json.dumps(dataclasses.asdict(task)))
    assert read.contenders == task.contenders and (read.pc, read.rtol, read.history) == ("none", 1e-6, True)


def test_iterations_that_are_timed():
    assert few_and_many(5000, False) == (40, 240) and few_and_many(5000, True) == (30, 240)
    assert few_and_many(100, False) == (32, 96) and few_and_many(33, False) == (8, 32)
    assert few_and_many(33, True) == (30, 60) and few_and_many(100, True) == (30, 90)
    assert few_and_many(15, False) == (5, 15) and few_and_many(1, False) is None and few_and_many(0, True) == (30, 60)


def some_case(label, **changes):
    case = {"matrix": "7point:9", "ranks": 1, "label": label, "ksp": label.split(",")[0].split(" ")[0], "against": None}
    case |= {"iteration_seconds": 2e-5, "least_iteration_seconds": 1.9e-5, "largest_iteration_seconds": 3e-5}
    case |= {"solve_seconds": 1e-3, "least_solve_seconds": 9e-4, "largest_solve_seconds": 2e-3, "said": ""}
    return case | {"iterations": 50, "reason": 2, "residual": 9e-9, "rtol": 1e-8, "correct": True} | changes


CASES = [
    some_case("cg, aijcusparse"),
    some_case("gpucg, gpufmt", against="cg, aijcusparse", iteration_seconds=1e-5, solve_seconds=8e-4),
    some_case("mixedcg (flexible), gpufmt", against="gpucg, gpufmt", iteration_seconds=8e-6, solve_seconds=1e-3),
]
OTHERS = [case | {"matrix": "27point:9"} for case in CASES]


def test_runs_are_kept_apart_by_what_is_not_as_by_default():
    def name(ranks=(1,), outers=("replacement",), gpu_aware=True, **changes):
        given = {"matrices": ("7point:3",), "contenders": (), "pc": "jacobi", "rtol": 1e-8, "max_it": 10_000}
        return ksp.run_name(Task(**given | {"history": False} | changes), ["mixed"], ["pjds"], gpu_aware, ranks, outers)

    assert name() == "ksp, mixed, pjds"
    assert name(ranks=[1, 2], outers=["flexible"]) == "ksp, mixed, pjds, -ksp_mixedcg_outer flexible, ranks 1 2"
    assert name(rtol=1e-6, pc="none", gpu_aware=False) == (
        "ksp, mixed, pjds, -pc_type none, -ksp_rtol 1e-06, MPI not GPU-aware"
    )
    assert name(max_it=9) == "ksp, mixed, pjds, -ksp_max_it 9"


def test_products_of_ours_are_wrong_where_the_peer_is_right():
    ours = some_case("cg, gpufmt", against="cg, aijcusparse", correct=False)
    wrong = ksp.wrong_cases([CASES[0], ours, CASES[1] | {"correct": False}])
    assert [line.partition(":9 on 1 rank, ")[2].partition(":")[0] for line in wrong] == ["cg, gpufmt", "gpucg, gpufmt"]
    assert ksp.wrong_cases([CASES[0] | {"correct": False}, ours]) == []


def test_mixed_precision_follows_what_it_is_compared_with():
    both = [
        ksp.make_contenders(methods, ["pjds"], "aij", ["flexible"]) for methods in (["mixed", "cg"], ["cg", "mixed"])
    ]
    assert both[0] == both[1] and [c.against for c in both[0]] == [None, "cg, aij", "cg, aij", "gpucg, pjds"]


def test_summary_says_how_many_times_as_fast():
    others = [OTHERS[0], OTHERS[1] | {"iteration_seconds": 4e-5}, OTHERS[2] | {"iteration_seconds": None}]
    head, *lines = ksp.summary_lines([*CASES, *others])
    assert head.split()[:3] == ["matrix", "ranks", "solver"]
    assert lines[1].split() == "7point:9 1 gpucg, gpufmt 10.00 2.00 50 0.800 1.25 cg, aijcusparse".split()
    assert lines[5].split()[-8:] == "gpufmt - - 50 1.000 0.80 gpucg, gpufmt".split()
    assert lines[6:] == [
        "gpucg, gpufmt against cg, aijcusparse: iterations 1.00 times as fast (2 cases), "
        "solves to the same residual 1.25 times as fast (2 cases)",
        "mixedcg (flexible), gpufmt against gpucg, gpufmt: iterations 1.25 times as fast (1 case), "
        "solves to the same residual 0.80 times as fast (2 cases)",
    ]


def test_solves_that_miss_the_residual_are_not_compared():
    missed = [CASES[0], CASES[1] | {"correct": False, "reason": -3}]
    assert ksp.ratios(missed[1], missed) == (2.0, None)
    assert "(19.00 to 30.00); 50 iterations in 0.800 ms (0.900 to 2.000), ended by reason -3" in ksp.case_line(
        missed[1]
    )
    (line,) = ksp.wrong_cases(missed)
    assert line == "7point:9 on 1 rank, gpucg, gpufmt: reason -3, residual 9.00e-09 and not 1e-08"
    assert ksp.wrong_cases([missed[0] | {"correct": False}, missed[1]]) == []
    assert ksp.mean_lines(missed) == [
        "gpucg, gpufmt against cg, aijcusparse: iterations 2.00 times as fast (1 case)",
    ]


def test_times_that_are_lost_in_noise_are_left_out():
    assert set(rank_ksp.spread("iteration", [-1e-6, -2e-6, 5e-6]).values()) == {None}
    assert rank_ksp.spread("iteration", [-1e-6, 2e-6, 5e-6])["least_iteration_seconds"] == 0
    assert rank_ksp.spread("solve", [2.0, 1.0, 3.0]) == {
        "solve_seconds": 2.0,
        "least_solve_seconds": 1.0,
        "largest_solve_seconds": 3.0,
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--method", "gpucg"], "--method gpucg: choose from cg, bcgs, gmres, fgmres, mixed"),
        (["--method", "mixed", "--outer", "none"], "--outer none: choose from replacement, refinement, flexible"),
        (["--outer", "flexible"], "--outer flexible: it belongs to --method mixed"),
        (["--pc", "gamg"], "--pc gamg: choose from jacobi, none"),
        (["--type", "csr"], "--type csr: this is no type of ours"),
        (["--rtol", "0"], "--rtol 0: give a number between 0 and 1, such as 1e-8"),
        (["--max-it", "0"], "--max-it 0: give at least 1"),
        (["--ranks", "0"], "--ranks 0: give FIRST:LAST"),
        (["--seconds", "0"], "--seconds 0: give at least 1"),
        (["--matrix", "elasticity:1"], "--matrix elasticity:1: give the nodes"),
        (["--matrix", "absent.mtx"], "--matrix absent.mtx: there is no such file"),
        (["--mpiexec", "/absent/mpiexec", "--ranks", "2"], "/absent/mpiexec"),
        (["--json", "/proc/none/ksp.json"], "--json /proc/none/ksp.json: cannot be written"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(capsys, words, text):
    assert main(["bench", "ksp", "--host", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("petsc_gpufmt: ") and text in error and error.count("\n") == 1
