"""The command line: what users paste and what they read."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_driver import fake_driver
from launch import run

import petsc_gpufmt
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.cli.info import gpu_rows, numpy_rows
from petsc_gpufmt.cli.main import main
from petsc_gpufmt.errors import UnsupportedError


def test_options_line_names_the_library(capsys):
    assert main(["options"]) == 0
    option, path = capsys.readouterr().out.split()
    assert option == "-dll_append"
    assert Path(path).is_absolute()
    assert Path(path).is_file()


@pytest.mark.slow
def test_options_line_gives_a_program_the_types(capsys, monkeypatch, tmp_path):
    """A program that does not import the package gets the type from the printed line alone."""
    library = tmp_path / "with blanks" / "libpetscgpufmt.so"
    library.parent.mkdir()
    shutil.copy(petsc_gpufmt.library_path(), library)
    monkeypatch.setattr(petsc_gpufmt.cli.main, "library_path", lambda: library)
    assert main(["options"]) == 0
    printed = capsys.readouterr().out.strip()
    program = "from petsc4py import PETSc; A = PETSc.Mat().create(); A.setType('pjds'); print(A.getType())"
    found = run([sys.executable, "-c", program], PETSC_OPTIONS=f"{printed} -options_left")
    assert found.status == 0, found
    assert "seqaijpjds" in found.output and "not used" not in found.output, found


def test_options_line_cannot_be_given_for_a_path_with_a_comma(capsys, monkeypatch):
    monkeypatch.setattr(petsc_gpufmt.cli.main, "library_path", lambda: Path("/a,b/libpetscgpufmt.so"))
    assert main(["options"]) == 2
    assert "PETSc cannot load /a,b/libpetscgpufmt.so" in capsys.readouterr().err


def test_info_lists_gpus_and_whether_cupy_is_there(monkeypatch):
    with fake_driver() as fake:
        gpu = ("GPU 0", "NVIDIA Fake, 1 GiB, compute capability 9.0")
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="14.0"))
        assert gpu_rows() == [gpu, ("CuPy", "14.0")]
        monkeypatch.setitem(sys.modules, "cupy", None)
        assert gpu_rows()[0] == gpu and "formats and options that are not defaults need it" in gpu_rows()[1][1]
        fake.failing["cuDeviceGetCount"] = 201
        assert gpu_rows() == [("GPU", "none (CUDA_ERROR_INVALID_CONTEXT: invalid device context, in cuDeviceGetCount)")]


@pytest.mark.parametrize("compiled", [True, False])
def test_info_says_where_each_process_compiles_numpy(monkeypatch, tmp_path, compiled):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    kept = Path(importlib.util.cache_from_source(np.__file__))
    if compiled:
        kept.parent.mkdir(parents=True)
        kept.touch()
    ((label, text),) = numpy_rows()
    assert label == "NumPy" and text.startswith(np.__version__)
    assert (f"python -m compileall -q {Path(np.__file__).parent}" in text) == (not compiled)


def test_info_without_a_driver(monkeypatch):
    def libraries():
        raise UnsupportedError("no driver")

    with fake_driver():
        monkeypatch.setattr("petsc_gpufmt.backends.driver.libraries", libraries)
        assert gpu_rows() == [("GPU", "none: NVIDIA's driver is not there")]


def test_info_lists_versions_library_and_formats(capsys):
    from petsc4py import PETSc

    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert petsc_gpufmt.__version__ in text
    assert str(petsc_gpufmt.library_path()) in text
    assert ".".join(map(str, PETSc.Sys.getVersion())) in text
    for name, cls in FORMATS.items():
        assert f"-mat_type {name}" in text
        for option, default in cls.default_options.items():
            assert f"-mat_{name}_{option} <{default}>" in text
    assert "-mat_bsr_kernel <auto> k1 k2 k3\n" in text
    for option in ("-mat_rmerge_accumulator <auto>", "-mat_rmerge_width <0>", "-mat_rmerge_buffer <0>"):
        assert option in text


@pytest.mark.parametrize("words", [[], ["bench"], ["bench", "other"]])
def test_missing_command_prints_usage(capsys, words):
    with pytest.raises(SystemExit) as leaving:
        main(words)
    assert leaving.value.code == 2
    assert "usage: petsc-gpufmt" in capsys.readouterr().err


@pytest.mark.slow
def test_errors_are_one_line(capsys):
    assert main(["bench", "mult", "--host", "--matrix", "absent.mtx"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("petsc_gpufmt: --matrix absent.mtx")
    assert text.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error():
    finished = run(["sh", "-c", f"{sys.executable} -m petsc_gpufmt info | true"])
    assert (finished.status, finished.output) == (0, ""), finished


ENDED = """
import sys
from petsc_gpufmt.bench.compiled import run_program
from petsc_gpufmt.cli import outcome
def work():
    from petsc4py import PETSc
    run_program(["sh", "-c", f"echo $$ >{sys.argv[1]}.new; mv {sys.argv[1]}.new {sys.argv[1]}; exec sleep 60"], 60)
sys.exit(outcome.program("ended", work))
"""


def test_a_command_that_is_ended_ends_what_it_has_started(tmp_path):
    file = tmp_path / "process"
    command = subprocess.Popen([sys.executable, "-c", ENDED, str(file)], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not file.exists() and command.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    command.terminate()
    _, error = command.communicate(timeout=60)
    assert (command.returncode, error) == (128 + signal.SIGTERM, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_a_missing_package_is_named():
    program = (
        "import sys; sys.modules['scipy'] = None\n"
        "from petsc_gpufmt.cli.main import main\n"
        "sys.exit(main(['tune', '--quick']) + main(['bench', 'mult', '--host', '--matrix', '7point:3']))\n"
    )
    finished = run([sys.executable, "-c", program])
    line = "petsc_gpufmt: this command needs scipy, which is not installed: pip install scipy\n"
    assert (finished.status, finished.output) == (2 + 2, 2 * line), finished


def test_a_source_tree_that_hides_the_installed_package_says_so(tmp_path):
    package = Path(petsc_gpufmt.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "setup.py").touch()
    finished = run([sys.executable, "-m", package.name, "options"], cwd=tmp_path, PYTHONSAFEPATH="")
    assert finished.status == 1 and finished.output.count("\n") == 1, finished
    assert f"the source tree {tmp_path} shadows a petsc_gpufmt that is installed" in finished.output
