"""The command line: what users paste and what they read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launch import run

import petsc_gpufmt
from petsc_gpufmt.cli.main import main
from petsc_gpufmt.registry import FORMATS


def test_options_line_names_the_library(capsys):
    assert main(["options"]) == 0
    option, path = capsys.readouterr().out.split()
    assert option == "-dll_append"
    assert Path(path).is_absolute()
    assert Path(path).is_file()


@pytest.mark.slow
def test_options_line_gives_a_program_the_types():
    """A program that does not import the package gets the type from the printed line alone."""
    printed = run([sys.executable, "-m", "petsc_gpufmt", "options"])
    assert printed.status == 0, printed
    program = "from petsc4py import PETSc; A = PETSc.Mat().create(); A.setType('pjds'); print(A.getType())"
    found = run([sys.executable, "-c", program], PETSC_OPTIONS=printed.output.strip())
    assert found.status == 0, found
    assert found.output.split()[-1] == "seqaijpjds"


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
    for option in ("-mat_rmerge_accumulator <auto>", "-mat_rmerge_width <0>", "-mat_rmerge_buffer <0>"):
        assert option in text


@pytest.mark.parametrize("words", [[], ["bench"], ["bench", "other"]])
def test_missing_command_prints_usage(capsys, words):
    with pytest.raises(SystemExit) as leaving:
        main(words)
    assert leaving.value.code == 2
    assert "usage: python -m petsc_gpufmt" in capsys.readouterr().err


@pytest.mark.slow
def test_errors_are_one_line(capsys):
    assert main(["bench", "mult", "--host", "--matrix", "absent.mtx"]) == 1
    text = capsys.readouterr().err
    assert text.startswith("petsc_gpufmt: --matrix absent.mtx")
    assert text.count("\n") == 1
