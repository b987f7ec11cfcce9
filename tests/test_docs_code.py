"""Code on the pages: commands have the arguments they are given, Python and C compile, first programs run."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
import sys
from pathlib import Path

import launch
import pytest
from petsc_config import find_petsc

import petsc_gpufmt
from petsc_gpufmt.cli.main import make_parser

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md")], key=str)
COMMAND = re.compile(r"(?:petsc-gpufmt|python -m petsc_gpufmt)((?: +[^\s#|;&`)]+)*)")
OUTER = {"-", "..."}
# What fragments of C name without declaring it
DECLARED = """Mat A, P; Vec x, b, coordinates; KSP ksp; PC pc; DM da; MatNullSpace modes;
  PetscInt n = 1, ncoo = 0, nboundary = 0, *rows = NULL, *columns = NULL, *boundary = NULL;
  PetscScalar *values = NULL;"""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Words of the commands of ours in blocks of a shell and in the text, `python benchmarks/...` not among them."""
    text = page.read_text()
    text = re.sub(r"^```(?:c|fortran|python|json)\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    fences = "\n".join(re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)).replace("\\\n", " ")
    quoted = "\n".join(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text))
    lines = [line for line in f"{fences}\n{quoted}".splitlines() if "petsc_gpufmt" in line or "petsc-gpufmt" in line]
    return [shlex.split(found.rstrip('"')) for line in lines for found in COMMAND.findall(line)]


the_parser = functools.cache(make_parser)


def fault(words: list[str]) -> str | None:
    """What is wrong with the arguments of a command, None if nothing is; a command may be named without them."""
    parser = the_parser()
    if words and words[-1] in OUTER:
        words = words[:-1]
    stack: list[argparse.ArgumentParser] = [parser]
    for word in words:  # the parser of the command that is meant
        choices = [a.choices for a in stack[-1]._actions if isinstance(a, argparse._SubParsersAction)]
        if not choices:
            break
        if word not in choices[0]:
            return f"there is no command {word}"
        stack.append(choices[0][word])
    if len(words) < len(stack):
        return None
    try:
        parser.parse_args(words)
    except SystemExit:
        return f"arguments of petsc-gpufmt {' '.join(words)}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_have_the_arguments_that_pages_give_them(page, capsys):
    faults = [fault(words) for words in commands(page)]
    assert not [each for each in faults if each], capsys.readouterr().err


def test_wrong_commands_are_found(capsys):
    assert len(commands(DOCS / "analyze.md")) > 3
    assert fault(["analyse", "FILE.mtx"]) == "there is no command analyse"
    assert fault(["model", "7point:200", "--rank-count", "8"]) and fault(["bench", "mult", "--matrices", "FILE"])
    assert fault(["bench"]) is None and fault(["tune", "--quick"]) is None
    capsys.readouterr()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_on_pages_compiles(page):
    for code in blocks(page, "python"):
        compile(code, str(page), "exec")


def run_python(code: str, folder: Path, *words: str, ranks: int | None = None) -> str:
    (folder / "first.py").write_text(code)
    run = launch.run([sys.executable, "first.py", *words], ranks=ranks, cwd=folder)
    assert run.status == 0, str(run)
    return run.output


@pytest.mark.slow
@pytest.mark.parametrize("page", ["python", "dm", "several_gpus"])
def test_python_of_pages_runs_in_their_order(page, tmp_path):
    run_python("\n".join(blocks(DOCS / "howto" / f"{page}.md", "python")), tmp_path)


def in_functions(fragments: list[str]) -> str:
    """Fragments of C as a file."""
    heads = "#include <petscksp.h>\n#include <petscdm.h>\n#include <petscdmda.h>\n"
    functions = [
        f"PetscErrorCode Fragment{k}(void);\nPetscErrorCode Fragment{k}(void)\n{{\n  {DECLARED}\n"
        f"  PetscFunctionBeginUser;\n{code}\n  PetscFunctionReturn(PETSC_SUCCESS);\n}}\n"
        for k, code in enumerate(fragments)
    ]
    return heads + "\n".join(functions)


@pytest.mark.slow
def test_c_on_pages_compiles(tmp_path):
    found = [code for page in PAGES for code in blocks(page, "c")]
    programs = [code for code in found if "int main(" in code]
    fragments = [re.sub(r"(?m)^#include.*\n|PetscCall\(PetscInitialize.*\n", "", code) for code in found]
    fragments = [code for code, whole in zip(fragments, found, strict=True) if whole not in programs]
    assert len(programs) >= 2 and len(fragments) >= 6
    sources = [*programs, "#include <petsc_gpufmt.h>\n" + in_functions(fragments)]
    for k, code in enumerate(sources):
        (tmp_path / f"page{k}.c").write_text(code)
    compiled = launch.run(
        [*compiler(), "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused", "-Wno-uninitialized", *tmp_path.glob("*.c")]
    )
    assert compiled.status == 0, str(compiled)


@pytest.mark.slow
def test_the_fortran_program_compiles_and_runs(tmp_path):
    headers = [path.read_text() for path in find_petsc().configuration_files if path.name == "petscconf.h"]
    if "PETSC_USE_FORTRAN_BINDINGS" not in "".join(headers):
        pytest.skip("this PETSc has no Fortran bindings")
    (code,) = blocks(DOCS / "howto" / "fortran.md", "fortran")
    (tmp_path / "poisson2d.F90").write_text(code)  # the name that the makefile of the examples has
    made = launch.run(
        ["make", "-f", ROOT / "examples/fortran/Makefile", "poisson2d"], cwd=tmp_path, PYTHON=sys.executable
    )
    assert made.status == 0, str(made)
    run = launch.run(["./poisson2d"], cwd=tmp_path)
    assert run.status == 0, str(run)


def compiler() -> list[str]:
    """The compiler of PETSc, with what finds its headers and ours."""
    petsc = find_petsc()
    return [*petsc.compiler, *petsc.include_flags, f"-I{petsc_gpufmt.library_path().parent}"]


@pytest.mark.slow
@pytest.mark.mpi
def test_the_first_solve_is_as_its_page_says(tmp_path):
    page = DOCS / "first_solve.md"
    (python,), (c,) = blocks(page, "python"), blocks(page, "c")
    said = re.search(r"the largest value (\S+)\.", page.read_text())[1]
    parallel = run_python(python, tmp_path, "-mat_type", "pjds", ranks=2)
    assert "type mpiaijpjds" in parallel and f"largest value {said}" in parallel
    alone = run_python(python, tmp_path)
    assert "type seqaijgpufmt" in alone and f"largest value {said}" in alone
    analyzed = launch.run([sys.executable, "-m", "petsc_gpufmt", "analyze", "first.petsc"], cwd=tmp_path)
    assert analyzed.status == 0 and "pjds" in analyzed.output, str(analyzed)
    (tmp_path / "first.c").write_text(c)
    folder, petsc = petsc_gpufmt.library_path().parent, find_petsc().library_directory
    links = [
        f"-L{folder}",
        "-lpetscgpufmt",
        f"-Wl,-rpath,{folder}",
        f"-L{petsc}",
        "-lpetsc",
        f"-Wl,-rpath,{petsc}",
        "-lm",
    ]
    compiled = launch.run([*compiler(), "first.c", "-o", "first", *links], cwd=tmp_path)
    assert compiled.status == 0, str(compiled)
    run = launch.run(["./first", "-ksp_type", "cg", "-pc_type", "gamg", "-ksp_view"], cwd=tmp_path)
    assert run.status == 0 and "storage:" in run.output, str(run)
    ours, theirs = (re.search(r"type seqaijgpufmt, \d+ iterations, .*", text)[0] for text in (run.output, alone))
    assert ours == theirs
