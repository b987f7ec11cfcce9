"""The tables of docs/which_solvers.md: each preconditioner and each method of PETSc with our types and with aij."""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import launch
import pytest
from petsc4py import PETSc
from petsc_config import find_petsc

pytestmark = [pytest.mark.petsc, pytest.mark.slow]
PAGE = (Path(__file__).parents[2] / "docs" / "which_solvers.md").read_text()
PROGRAM = Path(__file__).parent / "every_solver.py"
OTHERWISE = {"pc": "-ksp_type gmres", "ksp": "-pc_type jacobi"}
NEED_A_PROGRAM = {"galerkin", "shell", "patch", "mpi"}
OF_PACKAGES = {"hypre", "ml", "amgx", "spai", "parms", "hpddm", "h2opus", "wb"} | {
    f"{name}viennacl{where}" for name in ("sa", "rowscaling", "chowilu") for where in ("", "cuda")
}
FACTORIZATIONS = re.compile(r"#define PETSC_HAVE_(MUMPS|SUPERLU|SUPERLU_DIST|SUITESPARSE|STRUMPACK|PASTIX|MKL_\w*) 1")


class Row(NamedTuple):
    """`cells` are those of one rank and of two."""

    name: str
    options: list[str]
    cells: dict[int, str]


def rows(kind: str) -> list[Row]:
    """Of the table of preconditioners, "pc", or of methods, "ksp"; options with the type among them."""
    (table,) = re.findall(rf"^\| `-{kind}_type` \|.*\n\| --- .*\n((?:\| .*\n)+)", PAGE, re.MULTILINE)
    found = []
    for line in table.splitlines():
        name, options, one, two, _ = (cell.strip(" `") for cell in line.strip("|").split(" |"))
        words = [*OTHERWISE[kind].split(), f"-{kind}_type", name, *options.split()]
        found.append(Row(f"{kind} {name}", words, {1: one, 2: two}))
    return found


ROWS = [*rows("pc"), *rows("ksp")]


def registered(kind: str) -> set[str]:
    """The types that PETSc has here."""
    library = ctypes.CDLL(PETSc.__file__)
    names, count = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_int()
    types = ctypes.c_void_p.in_dll(library, f"{kind.upper()}List")
    assert library.PetscFunctionListGet(types, ctypes.byref(names), ctypes.byref(count)) == 0
    return {names[k].decode() for k in range(count.value)}


@pytest.mark.parametrize("kind", ["pc", "ksp"])
def test_each_type_of_petsc_has_a_row(kind):
    import petsc_gpufmt  # noqa: F401  ours as well

    named = {row.name.split()[1] for row in rows(kind)}
    assert registered(kind) <= named | NEED_A_PROGRAM | OF_PACKAGES
    if kind == "pc":
        assert all(f"`{name}`" in PAGE for name in NEED_A_PROGRAM)


def same(ours: dict, theirs: dict) -> bool:
    close = abs(ours["iterations"] - theirs["iterations"]) <= max(1, 0.02 * theirs["iterations"])
    return ours["reason"] == theirs["reason"] and close and ours["distance"] <= 1e-6


def cell(ours: dict, theirs: dict) -> str:
    """What the table should say of a solve."""
    if "error" in ours:
        return "neither" if "error" in theirs else "no"
    return "as aij" if "error" not in theirs and same(ours, theirs) else f"{ours}, and with aij {theirs}"


@pytest.mark.parametrize(
    ("ranks", "types"), [(1, ("gpufmt", "pjds")), pytest.param(2, ("gpufmt",), marks=pytest.mark.mpi)]
)
def test_solvers_do_what_their_rows_say(ranks, types, tmp_path):
    listed = tmp_path / "solvers.json"
    here = [row for row in ROWS if row.name.split()[1] in registered(row.name.split()[0])]
    assert len(here) > 80
    listed.write_text(json.dumps([row[:2] for row in here]))
    run = launch.run([sys.executable, PROGRAM, listed, "aij", *types], ranks=ranks, PYTHONSAFEPATH="")
    assert run.status == 0, str(run)
    outcomes = [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]
    by_solver = {(each["name"], each["type"]): each for each in outcomes}
    said = {(row.name, mat_type): row.cells[ranks] for row in here for mat_type in types}
    found = {key: cell(by_solver[key], by_solver[key[0], "aij"]) for key in said}
    if any(FACTORIZATIONS.search(path.read_text()) for path in find_petsc().configuration_files):
        found = {key: "neither" if said[key] == "neither" and what == "as aij" else what for key, what in found.items()}
    assert found == said


def test_a_second_matrix_of_aij_serves_what_asks_for_the_name():
    import petsc_gpufmt  # noqa: F401

    A = PETSc.Mat().createAIJ((2, 2), csr=([0, 2, 4], [0, 1, 0, 1], [2, 1, 1, 2]), comm=PETSc.COMM_SELF)
    P = A.copy()
    A.convert("aijpjds")
    for operators, works in (((A, A), False), ((A, P), True)):
        pc = PETSc.PC().create(PETSc.COMM_SELF)
        pc.setType("cp")
        pc.setOperators(*operators)
        if works:
            pc.setUp()
            continue
        with pytest.raises(PETSc.Error, match="Currently only handles SeqAIJ matrices"):
            pc.setUp()
