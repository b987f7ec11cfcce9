"""`petsc-gpufmt analyze`: what is printed and written, and how it ends."""

import csv
import json
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fake_driver import fake_driver

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_files import write_petsc_binary  # noqa: E402

from petsc_gpufmt.analysis import analysis, plot  # noqa: E402
from petsc_gpufmt.backends.native_library import petsc_types  # noqa: E402
from petsc_gpufmt.bench.report import pictures  # noqa: E402
from petsc_gpufmt.choice.registry import STORAGE_FORMATS  # noqa: E402
from petsc_gpufmt.cli import analyze  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402
from petsc_gpufmt.errors import UnsupportedError  # noqa: E402

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """What is said does not depend on the machine of the test."""
    monkeypatch.setattr(analyze, "gpu_here", lambda: None)


@pytest.fixture
def nothing_long(monkeypatch):
    monkeypatch.setattr(analysis, "find_facts", lambda *arguments: pytest.fail("was analysed"))


def refused(capsys, *words):
    """The one line with which the command ends."""
    assert main(["analyze", *map(str, words)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("petsc_gpufmt: ")
    return line


def test_a_generator(capsys):
    assert main(["analyze", "7point:8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("7point:8: 512 x 512, 3200 entries")
    assert "NVIDIA H200, predicted; bytes and padding are counted" in lines
    assert lines[-1] == "paste      -mat_type pjds -vec_type cuda"
    assert [name for name in STORAGE_FORMATS if not any(line.startswith(name) for line in lines)] == []


def test_the_page_shows_what_is_printed(capsys, monkeypatch, tmp_path):
    if petsc_types() != (np.float64, np.int32):
        pytest.skip("the page is of double precision with 32-bit indices")
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", str(tmp_path))  # no options of this user
    page = (Path(__file__).resolve().parents[2] / "docs" / "analyze.md").read_text()
    (words, shown) = re.search(r"(?s)\$ petsc-gpufmt (analyze [^\n]+)\n(.*?)```", page).groups()
    assert main(words.split()) == 0
    assert capsys.readouterr().out == shown


def test_a_file_of_petsc_with_blocks(capsys, tmp_path):
    path = write_petsc_binary(tmp_path / "a.petsc", scipy_sparse.kron(scipy_sparse.identity(9), np.ones((4, 4))), 4)
    assert main(["analyze", str(path), "--gpu", "h100"]) == 0
    printed = capsys.readouterr().out
    assert "the matrix tells 4 x 4" in printed and "NVIDIA H100 80GB HBM3, predicted" in printed


def test_json_and_csv(capsys, tmp_path):
    files = {name: tmp_path / f"a.{name}" for name in ("json", "csv")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert main(["analyze", "27point:5x3", "--gpu", "2.0", *options]) == 0
    found = json.loads(files["json"].read_text(), parse_constant=lambda name: pytest.fail(name))
    assert found["facts"]["nnz"] == 9 * 13**3 and found["facts"]["block_size"] == 3
    assert found["gpu"]["bandwidth"] == 2e12
    assert found["paste"] in capsys.readouterr().out
    with open(files["csv"], newline="") as file:
        rows = list(csv.DictReader(file))
    assert (
        [row["name"] for row in rows] == [row["name"] for row in found["formats"]] == ["aijcusparse", *STORAGE_FORMATS]
    )
    assert [row["name"] for row in rows if row["picked"] == "1"] == [found["pick"]["name"]]
    for row, same in zip(rows, found["formats"], strict=True):
        assert float(row["seconds"]) == same["seconds"] and int(row["bytes_held"]) == same["bytes_held"]


def test_a_plot(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(pictures, "check_plot", lambda path: drawn.append(path))
    monkeypatch.setattr(plot, "draw", lambda analysis, matrix, path: drawn.append((analysis.name, matrix.nnz, path)))
    assert main(["analyze", "7point:2", "--plot", str(tmp_path / "a.png")]) == 0
    assert drawn == [tmp_path / "a.png", ("7point:2", 32, tmp_path / "a.png")]


def test_a_plot_without_matplotlib(capsys, monkeypatch, tmp_path, nothing_long):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "--plot needs matplotlib" in refused(capsys, "7point:2", "--plot", tmp_path / "a.png")


@pytest.mark.parametrize("option", ["json", "csv"])
def test_files_are_looked_at_first(capsys, tmp_path, nothing_long, option):
    place = tmp_path / "absent" / "a"
    assert f"--{option} {place}: cannot be written (No such file" in refused(capsys, "7point:2", f"--{option}", place)


def test_a_refusal_leaves_files_as_they_are(capsys, tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.csv"
    old.write_text("mine")
    refused(capsys, "absent.mtx", "--json", old, "--csv", new)
    assert old.read_text() == "mine" and not new.exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["absent.mtx"], "absent.mtx: there is no such file, nor a generator of that name; give 7point:POINTS"),
        (["."], ".: there is no such file"),
        (["7point:99999"], "choose a smaller matrix"),
        (["7point:2", "--gpu", "abacus"], "--gpu abacus: choose h200"),
    ],
)
def test_bad_input_is_one_line(capsys, nothing_long, words, complaint):
    assert complaint in refused(capsys, *words)


def test_damaged_files_are_one_line(capsys, tmp_path, nothing_long):
    whole = write_petsc_binary(tmp_path / "a.petsc", scipy_sparse.identity(9))
    whole.write_bytes(whole.read_bytes()[:-1])
    assert "truncated" in refused(capsys, whole)
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04")
    assert "not a sparse matrix" in refused(capsys, tmp_path / "a.npz")
    with open(tmp_path / "b.npz", "wb") as file:
        np.save(file, np.ones(3))
    assert "not a sparse matrix" in refused(capsys, tmp_path / "b.npz")


def test_files_do_not_take_the_place_of_others(capsys, tmp_path, nothing_long):
    file = tmp_path / "a.mtx"
    assert "this file is MATRIX" in refused(capsys, file, "--json", file)
    assert "this file is --json" in refused(capsys, "7point:2", "--json", file, "--csv", file)


def test_what_is_missing_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    for module in ("analysis", "facts"):  # are imported again, and need it
        monkeypatch.delitem(sys.modules, f"petsc_gpufmt.analysis.{module}")
    assert "this command needs scipy" in refused(capsys, "7point:2")


def test_memory_that_runs_out_is_one_line(capsys, monkeypatch):
    def fails(*arguments):
        raise MemoryError

    monkeypatch.setattr(analysis, "find_facts", fails)
    assert "more memory than there is" in refused(capsys, "7point:2")


@contextmanager
def machine_with(monkeypatch, **driver):
    monkeypatch.undo()  # of no_gpu
    with fake_driver():
        for name, function in driver.items():
            monkeypatch.setattr(analyze.driver, name, function)
        yield


def test_the_gpu_that_is_here_is_predicted_for(capsys, monkeypatch):
    with machine_with(monkeypatch, device_count=lambda: 1, device_name=lambda device: "NVIDIA H100 80GB HBM3"):
        assert main(["analyze", "7point:2"]) == 0
        printed = capsys.readouterr().out
        assert "NVIDIA H100 80GB HBM3, predicted" in printed
        assert "petsc-gpufmt bench mult --matrix 7point:2" in printed.splitlines()[-1]
        assert main(["analyze", "7point:2", "--gpu", "h200"]) == 0
        assert "NVIDIA H200, predicted" in capsys.readouterr().out


def test_without_a_gpu_that_is_known(monkeypatch):
    def no_driver():
        raise UnsupportedError("no driver")

    with machine_with(monkeypatch, device_count=lambda: 1, device_name=lambda device: "NVIDIA Fake"):
        assert analyze.gpu_here() is None
    for count in (lambda: 0, no_driver):
        with machine_with(monkeypatch, device_count=count):
            assert analyze.gpu_here() is None


def test_options_that_are_told_are_those_of_petsc(options):
    """-mat_block_size is PETSc's, and has to be known by MatSetFromOptions()."""
    from petsc4py import PETSc

    options["mat_block_size"] = 3
    matrix = PETSc.Mat().create(PETSc.COMM_SELF)
    matrix.setSizes(6)
    matrix.setFromOptions()
    matrix.setUp()
    assert matrix.getBlockSize() == 3
