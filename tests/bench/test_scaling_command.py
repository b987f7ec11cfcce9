"""``bench scaling``: rows of ranks, what starts them, what is made of their times."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import mpiexec, scaling  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.matrices import blocked_pattern, make_matrix, reservoir_pattern  # noqa: E402
from petsc_gpufmt.bench.rank_rows import check_ranks_matrix, make_rows, x_values  # noqa: E402
from petsc_gpufmt.bench.rank_start import Start  # noqa: E402
from petsc_gpufmt.bench.results import read_runs  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402

SCALAR, INDEX = np.dtype(np.float64), np.dtype(np.int32)


@pytest.mark.parametrize("spec", ["7point:5", "27point:4x3", "reservoir:1", "FILE"])
@pytest.mark.parametrize("size", [1, 3])
def test_rows_of_all_ranks_are_the_matrix(spec, size, tmp_path, monkeypatch):
    monkeypatch.setattr("petsc_gpufmt.bench.rank_rows.ROWS_AT_ONCE", 7)
    if spec == "FILE":
        spec = str(tmp_path / "some.npz")
        scipy_sparse.save_npz(spec, scipy_sparse.random(20, 20, 0.1, format="csr", random_state=3))
    whole = make_matrix(spec, SCALAR, INDEX, np.random.default_rng(5)).csr
    parts = [make_rows(spec, rank, size, False, SCALAR, INDEX) for rank in range(size)]
    assert all(part.size == whole.shape[0] for part in parts)
    np.testing.assert_array_equal(np.concatenate([part.colidx for part in parts]), whole.indices)
    np.testing.assert_array_equal(np.concatenate([np.diff(part.rowptr) for part in parts]), np.diff(whole.indptr))
    x = x_values(range(whole.shape[1]), SCALAR)
    for part in parts:
        own = scipy_sparse.csr_matrix((part.values, part.colidx, part.rowptr), (part.rowptr.size - 1, part.size))
        np.testing.assert_array_equal(part.product(), own @ x)


def test_a_stencil_that_grows_has_as_many_planes_on_each_rank():
    parts = [make_rows("7point:4", rank, 3, True, SCALAR, INDEX) for rank in range(3)]
    assert [part.rowptr.size - 1 for part in parts] == [64] * 3 and parts[0].size == 192
    assert sum(part.colidx.size for part in parts) == 7 * 192 - 2 * 16 - 4 * 48


def test_reservoir_has_the_sizes_of_the_papers_matrix():
    rowptr, columns = reservoir_pattern(10, INDEX)
    assert (7 * (rowptr.size - 1), 49 * columns.size) == (2_058_000, 113_464_400)


def test_reservoir_couples_each_cell_with_six_neighbours_and_the_same_cell_of_the_other_medium():
    rowptr, columns = reservoir_pattern(1, INDEX)
    pattern = scipy_sparse.csr_matrix((np.ones(columns.size), columns, rowptr))
    assert (pattern != pattern.T).nnz == 0 and pattern.has_sorted_indices
    inside = 2 * ((1 * 7 + 3) * 7 + 3)  # z, y, x = 1, 3, 3
    steps = np.array([-2 * 49, -2 * 7, -2, 0, 1, 2, 2 * 7, 2 * 49])
    np.testing.assert_array_equal(pattern[inside].indices, inside + steps)
    steps[3:5] = -1, 0
    np.testing.assert_array_equal(pattern[inside + 1].indices, inside + 1 + steps)
    corner = pattern[0].indices.tolist()
    assert corner == [0, 1, 2, 14, 98]
    made = make_matrix("reservoir:1", SCALAR, INDEX, np.random.default_rng(5))
    assert made.block_size == 7
    np.testing.assert_array_equal(made.csr.indices, blocked_pattern(rowptr, columns, 7)[1])


@pytest.mark.parametrize("distribution", ["petsc", "cyclic", "segments"])
@pytest.mark.mpi
def test_products_from_end_to_end(distribution, tmp_path, capsys):
    path = tmp_path / "results.json"
    words = ["--matrix", "7point:5", "--matrix", "reservoir:1", "--mode", "overlap", "--mode", "peer", "--type", "bsr"]
    command = ["bench", "scaling", "--host", "--ranks", "1,2", *words, "--json", str(path)]
    assert main([*command, "--distribution", distribution]) == 0
    (run,) = read_runs(path)
    assert run["name"] == ("scaling, bsr" if distribution == "petsc" else f"scaling, bsr, {distribution}")
    assert run["gpu_aware"] is True
    found = [(case["matrix"], case["ranks"], case["type"], case["mode"]) for case in run["cases"]]
    modes = {1: [None], 2: ["overlap", "peer"]}
    assert found == [
        (matrix, ranks, *contender)
        for ranks in (1, 2)
        for matrix in ("7point:5", "reservoir:1")
        for contender in [("aij", None), *(("bsr", mode) for mode in modes[ranks])]
    ]
    for case in run["cases"]:
        assert case["correct"] and 0 < case["least_seconds"] <= case["seconds"] <= case["largest_seconds"]
        assert case["taken"] == case["mode"] and case["nnz"] == (725 if case["matrix"] == "7point:5" else 97412)
        assert case["distribution"] == (distribution if case["ours"] else "petsc")
    output = capsys.readouterr().out
    assert output.count(" times as fast as aij") == 4 and "7point:5 on 2 ranks, bsr, peer: " in output


@pytest.mark.mpi
def test_weak_scaling_in_a_mode_with_a_thread_leaves_the_peer_out(tmp_path):
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not there")
    path = tmp_path / "results.json"
    words = ["--matrix", "27point:4", "--weak", "--mode", "task", "--without-peer"]
    assert main(["bench", "scaling", "--host", "--ranks", "3", *words, "--json", str(path)]) == 0
    (run,) = read_runs(path)
    (case,) = run["cases"]
    assert (run["name"], case["rows"], case["mode"], case["weak"]) == ("scaling, pjds, weak", 192, "task", True)


@pytest.mark.mpi
def test_what_was_measured_before_a_failure_is_kept(tmp_path):
    (damaged := tmp_path / "empty.npz").touch()
    task = scaling.Task(("7point:3", str(damaged)), False, "pjds", None, (), "petsc")
    kept = []
    with pytest.raises(BenchError, match=r"on 1 rank, rank 0: BenchError: --matrix .*empty.npz: not a sparse matrix"):
        Start(False, None, 60.0).run(task, 1, kept.append)
    assert [case["matrix"] for case in kept] == ["7point:3"]


def some_case(**changes):
    case = {"matrix": "7point:9", "ranks": 1, "weak": False, "type": "pjds", "ours": True, "distribution": "petsc"}
    case |= {"mode": None, "nnz": 1_000_000, "seconds": 1e-4, "least_seconds": 9e-5, "largest_seconds": 2e-4}
    case |= {"correct": True} | changes
    return {"taken": case["mode"]} | case


CASES = [
    some_case(),
    some_case(type="aijcusparse", ours=False, seconds=1.5e-4),
    some_case(ranks=2, type="aijcusparse", ours=False, seconds=1.2e-4),
    some_case(ranks=2, mode="overlap", seconds=8e-5),
    some_case(ranks=2, mode="peer", seconds=6.25e-5),
    some_case(ranks=4, mode="peer", taken="overlap", seconds=7e-5),
]


def test_lines_begin_on_one_rank_and_leave_out_modes_that_gave_way():
    found = [(name, [case["ranks"] for case in of_line]) for _, name, of_line in scaling.lines_of(CASES)]
    assert found == [("aijcusparse", [1, 2]), ("pjds, overlap", [1, 2]), ("pjds, peer", [1, 2])]
    assert "pjds, peer (taken: overlap): 70.0 us (90.0 to 200.0), 29 GF/s" in scaling.case_line(CASES[-1])


def test_sums_say_how_many_times_as_fast():
    heading, cusparse, overlap, peer = (line.split() for line in scaling.summary_lines(CASES))
    assert heading[:2] == ["matrix", "type,"]
    assert cusparse == ["7point:9", "aijcusparse", "2", "120.0", "17", "1.25", "0.62"]
    assert overlap[3:] == ["2", "80.0", "25", "1.25", "0.62", "1.50", "times", "as", "fast", "as", "aijcusparse"]
    assert peer[3:9] == ["2", "62.5", "32", "1.60", "0.80", "1.92"]
    weak = [some_case(weak=True), some_case(weak=True, ranks=2, mode="peer", seconds=1.25e-4)]
    assert scaling.summary_lines(weak)[1].split()[6:8] == ["1.60", "0.80"]
    assert scaling.summary_lines(CASES[:2]) == []


def test_one_rank_alone_is_a_line_of_its_own():
    assert [name for _, name, _ in scaling.lines_of(CASES[:2])] == ["pjds", "aijcusparse"]
    gave_way = [some_case(ranks=2, mode="peer", taken="overlap")]
    ((_, name, of_line),) = scaling.lines_of([some_case(), *gave_way])
    assert name == "pjds" and [case["ranks"] for case in of_line] == [1]
    assert list(scaling.lines_of(gave_way)) == []


def test_wrong_products_of_ours_are_said():
    wrong = [some_case(correct=False), some_case(type="aijcusparse", ours=False, correct=False)]
    (line,) = scaling.wrong_cases(wrong)
    assert line.startswith("7point:9 on 1 rank, pjds: ") and line.endswith("entries of z are wrong")


def test_results_are_kept_apart_by_what_they_are_of():
    def name(gpu_aware=True, **changes):
        given = {"matrices": (), "weak": False, "matrix_type": "pjds", "peer": None, "modes": ()}
        return scaling.run_name(scaling.Task(**(given | {"distribution": "petsc"} | changes)), gpu_aware)

    assert name() == "scaling, pjds" and name(weak=True) == "scaling, pjds, weak"
    assert name(False, distribution="cyclic") == "scaling, pjds, MPI not GPU-aware, cyclic"


def test_ranks_are_as_many_as_there_are_devices():
    assert [scaling.default_ranks(devices) for devices in (0, 1, 3, 4)] == [[1, 2], [1], [1, 2], [1, 2, 4]]


def test_a_mode_is_left_out_where_mpi_cannot_be_asked_for_its_threads(monkeypatch):
    monkeypatch.setattr(scaling.importlib.util, "find_spec", lambda name: None)
    assert scaling.default_modes() == ("vector", "overlap", "peer")
    with pytest.raises(BenchError, match="--mode task: mpi4py asks MPI for the threads of this mode, and is not there"):
        scaling.check_modes(["task"])


def test_a_partition_that_no_package_makes_is_refused_before_anything_starts(capsys, monkeypatch):
    monkeypatch.setattr("petsc_gpufmt.distribute.partition.PACKAGES", ("absent",))
    assert main(["bench", "scaling", "--host", "--ranks", "1,2", "--distribution", "partition"]) == 2
    error = capsys.readouterr().err
    assert "this PETSc has none of absent" in error and error.count("\n") == 1
    scaling.check_distribution("partition", 1)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--mode", "all"], "--mode all: choose from vector, overlap, task, peer"),
        (["--distribution", "random"], "--distribution random: choose from petsc, nonzeros, cyclic, partition, seg"),
        (["--type", "csr"], "--type csr: this is no type of ours"),
        (["--ranks", "0"], "--ranks 0: give FIRST:LAST"),
        (["--seconds", "0"], "--seconds 0: give at least 1"),
        (["--matrix", "7point:0"], "--matrix 7point:0: give the grid points"),
        (["--matrix", "reservoir:x"], "--matrix reservoir:x: give into how many cells in each direction"),
        (["--matrix", "reservoir:9999"], "are too many for the int"),
        (["--matrix", "absent.mtx"], "--matrix absent.mtx: there is no such file"),
        (["--matrix", "reservoir:2", "--weak"], "--weak with --matrix reservoir:2: only a stencil grows"),
        (["--mpiexec", "/absent/mpiexec", "--ranks", "2"], "/absent/mpiexec"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(capsys, words, text):
    assert main(["bench", "scaling", "--host", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("petsc_gpufmt: ") and text in error and error.count("\n") == 1


def test_matrices_that_do_not_suit_are_refused_before_anything_starts(tmp_path):
    scipy_sparse.save_npz(path := tmp_path / "wide.npz", scipy_sparse.random(3, 4, 0.5, format="csr"))
    for spec, weak, text in (
        (str(path), False, "it is 3 x 4; choose a square matrix"),
        (f"{path}*2", False, "copies of a matrix have no halo"),
        ("7point:200", True, "on 300 ranks there are more rows than the 2147483647 that int32 counts"),
    ):
        with pytest.raises(BenchError, match=re.escape(text)):
            check_ranks_matrix(spec, 300, weak, INDEX)


def stand_in(path, says):
    path.write_text(f"#!/bin/bash\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def mpiexecs(tmp_path, monkeypatch):
    """Sets what the library and three commands say of themselves: of MPIEXEC, PETSc's own, and that on PATH."""

    def say(library, variable, own, on_path):
        mpiexec.find_mpiexec.cache_clear()
        monkeypatch.setattr(mpiexec, "library_version", lambda: library)
        monkeypatch.setattr(mpiexec, "library_path", lambda: tmp_path / "mpi/lib/libmpi.so")
        monkeypatch.setattr(mpiexec, "petsc_variables", lambda: {"MPIEXEC": stand_in(tmp_path / "own", own)})
        (tmp_path / "on_path").mkdir(exist_ok=True)
        stand_in(tmp_path / "on_path/mpiexec", on_path)
        monkeypatch.setenv("PATH", f"{tmp_path / 'on_path'}:/usr/bin:/bin")
        if variable:
            monkeypatch.setenv("MPIEXEC", stand_in(tmp_path / "variable", variable) + " --bind-to none")
        else:
            monkeypatch.delenv("MPIEXEC", raising=False)
        return tmp_path

    yield say
    mpiexec.find_mpiexec.cache_clear()


HYDRA, OPEN_RTE = "HYDRA build details:", "mpiexec (OpenRTE) 4.1.4"


def test_mpiexec_is_of_the_mpi_that_is_linked(mpiexecs):
    open_mpi, mpich = "Open MPI v4.1.4, package: Debian", "MPICH Version: 5.0.2"
    folder = mpiexecs(open_mpi, None, HYDRA, OPEN_RTE)
    assert mpiexec.launcher(2, None) == ["mpiexec", "-n", "2"]
    assert mpiexec.launcher(1, None) == [] and mpiexec.launcher(3, "srun -G 3") == ["srun", "-G", "3", "-n", "3"]
    mpiexecs(mpich, None, HYDRA, OPEN_RTE)
    assert mpiexec.find_mpiexec() == str(folder / "own")
    mpiexecs(open_mpi, OPEN_RTE, OPEN_RTE, OPEN_RTE)
    assert mpiexec.launcher(2, None) == [str(folder / "variable"), "--bind-to", "none", "-n", "2"]
    mpiexecs("Some MPI 1.0", None, HYDRA, OPEN_RTE)
    assert mpiexec.find_mpiexec() == str(folder / "own")


def test_mpiexec_beside_the_library_is_wanted_more_than_that_of_the_configuration(mpiexecs):
    folder = mpiexecs("Open MPI v4.1.4", None, OPEN_RTE, OPEN_RTE)
    (folder / "mpi/bin").mkdir(parents=True)
    beside = stand_in(folder / "mpi/bin/mpiexec", OPEN_RTE)
    assert mpiexec.find_mpiexec() == beside
    stand_in(folder / "mpi/bin/mpiexec", HYDRA)
    mpiexec.find_mpiexec.cache_clear()
    assert mpiexec.find_mpiexec() == str(folder / "own")


def test_no_fitting_mpiexec_is_said_in_one_line(mpiexecs):
    folder = mpiexecs("Open MPI v4.1.4", None, HYDRA, "usage: mpiexec")
    with pytest.raises(BenchError) as error:
        mpiexec.find_mpiexec()
    found = f"({folder / 'own'}: MPICH; mpiexec: usage: mpiexec)"
    assert str(error.value) == (
        f"PETSc links Open MPI v4.1.4, and no mpiexec of Open MPI was found {found}: name one by --mpiexec or MPIEXEC"
    )
    mpiexecs("MPICH Version: 5.0.2", "HYDRA", OPEN_RTE, OPEN_RTE)
    (folder / "variable").unlink()
    with pytest.raises(BenchError, match=r"variable --bind-to none: does not start \(.*No such file"):
        mpiexec.find_mpiexec()


def test_the_mpi_of_this_machine_is_known():
    assert mpiexec.family_of(mpiexec.library_version()) in mpiexec.FAMILIES
    assert mpiexec.library_path().is_file() and "mpi" in mpiexec.library_path().name
