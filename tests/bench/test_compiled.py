"""Compiled programs: built, run to their end or to a time limit, and what is said of those that fail."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest
from fake_driver import fake_driver

from petsc_gpufmt.backends import driver
from petsc_gpufmt.bench.compiled import ProgramError, compile_program, known_types, last_words, run_program
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.places import device_reason, gpu_reason

PETSC_OUTPUT = """\
1.0
[0]PETSC ERROR: --------------------- Error Message --------------------------------------------------------------
[0]PETSC ERROR: Invalid argument
[0]PETSC ERROR: The option is wrong
[0]PETSC ERROR: WARNING! There are unused option(s) set!
[0]PETSC ERROR: See https://petsc.org/release/faq/ for trouble shooting.
[0]PETSC ERROR: #1 MatMult() at file.c:3
"""


def test_programs_that_fail_or_hang_are_reported():
    with pytest.raises(ProgramError, match="status 3") as failed:
        run_program(["bash", "-c", "echo first; echo last; exit 3"], 20)
    assert failed.value.reason == "status 3, last"
    assert str(failed.value).splitlines()[1:] == ["first", "last"]
    with pytest.raises(ProgramError, match="no end after") as hung:
        run_program(["sleep", "60"], 0.2)
    assert hung.value.reason == "no end after 0 s"
    with pytest.raises(ProgramError, match="cannot be started"):
        run_program(["/absent/program"], 20)


def test_seconds_and_variables_of_a_program():
    finished = run_program(["bash", "-c", "sleep 0.1; echo $GPUFMT_OF_THIS_TEST"], 20, {"GPUFMT_OF_THIS_TEST": "value"})
    assert finished.output == "value\n"
    assert finished.seconds >= 0.1


def test_programs_do_not_see_what_a_library_has_put_into_the_environment():
    """MPI does so when Python initialises it, and an mpiexec that sees it fails."""
    ctypes.CDLL(None).setenv(b"GPUFMT_SET_BY_A_LIBRARY", b"1", 1)
    assert "GPUFMT_SET_BY_A_LIBRARY" not in run_program(["env"], 20).output


@pytest.mark.parametrize(
    ("output", "words"),
    [(PETSC_OUTPUT, "Invalid argument The option is wrong"), ("a\nb\n\n", "b"), ("x" * 999, "x" * 240), ("", "")],
)
def test_last_words(output, words):
    assert last_words(output) == words


def test_what_cannot_be_compiled_is_said_in_one_line(tmp_path, monkeypatch):
    source = tmp_path / "wrong.c"
    with pytest.raises(BenchError, match="wrong.c: there is no such file"):
        compile_program(source, tmp_path)
    source.write_text("int main(void) { return undeclared; }\n")
    with pytest.raises(BenchError, match="wrong.c does not compile.*undeclared") as wrong:
        compile_program(source, tmp_path)
    monkeypatch.setenv("MPICC", "/absent/mpicc")
    with pytest.raises(BenchError, match="wrong.c does not compile.*cannot be started.*MPICC") as missing:
        compile_program(source, tmp_path)
    assert [str(e.value).count("\n") for e in (wrong, missing)] == [0, 0]


def test_programs_run_on_a_gpu_without_cupy_but_nothing_is_measured_in_this_process(monkeypatch):
    from petsc4py import PETSc

    monkeypatch.setattr(PETSc, "Sys", SimpleNamespace(hasExternalPackage=lambda name: name == "cuda"))
    monkeypatch.setitem(sys.modules, "cupy", None)
    with fake_driver() as fake:
        assert gpu_reason() is None and "CuPy cannot be imported" in device_reason()
        assert known_types(("aijcusparse",), ["pjds"]) == ["aijcusparse", "pjds"]
        fake.failing["cuDeviceGetCount"] = 100
        assert gpu_reason().startswith("no GPU answers (CUDA") and device_reason() == gpu_reason()
        monkeypatch.setattr(driver, "device_count", lambda: 0)
        assert gpu_reason() == "there is no GPU"
        assert known_types(("aijcusparse",), ["pjds"]) == ["aij", "pjds"]
