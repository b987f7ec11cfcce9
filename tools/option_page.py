"""Prints docs/options.md: every option of the types, by PETSc's own -help, and the arguments of the commands.

Usage: python tools/option_page.py > docs/options.md
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "petsc_gpufmt" / "native"
HELP_LINE = re.compile(r"  -(?:(\w+)_PREFIX_)?(\w+):? <now (.*?) : formerly .*?>:? ?(.*) \(\w+\)")
CHOICE = re.compile(r"(.*?),? ?\(choose one of\) (.*)")

# Makes PETSc show the options of what is made here: prefixes are set late, since PETSc shows the options of one prefix
# once, and the creation of a matrix already shows some.
SHOW = """
import sys, petsc4py
petsc4py.init(["show", "-help", "-device_enable", "none"])
from petsc4py import PETSc
import petsc_gpufmt
def shown(thing, name):
    thing.setOptionsPrefix(f"{name}_PREFIX_")
    thing.setFromOptions()
for name in sys.argv[1].split():
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes(1)
    A.setType(f"mpiaij{name}")
    shown(A, name)
for name in sys.argv[2].split():
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setType(name)
    shown(ksp, name)
A = PETSc.Mat().createAIJ((1, 1), nnz=1, comm=PETSc.COMM_SELF)
A[0, 0] = 1
A.assemble()
A.convert("aijpjds")
for kind in ("AB", "AtB", "ABt", "PtAP", "RARt"):
    B = A.copy()
    {"AB": B.matMult, "AtB": B.transposeMatMult, "ABt": B.matTransposeMult, "PtAP": B.ptap, "RARt": B.rart}[kind](A)
B.matMatMult(A, A)
"""

SOLVERS = {
    "gpucg": "conjugate gradients",
    "gpubcgs": "BiCGStab",
    "gpugmres": "GMRES",
    "gpufgmres": "flexible GMRES",
    "gpuchebyshev": "Chebyshev's method",
    "mixedcg": "conjugate gradients in mixed precision",
}


class Option(NamedTuple):
    """A row of a table."""

    name: str
    values: str
    default: str
    meaning: str


PYTHON_OF_PROGRAMS = "usage.md#which-python-a-compiled-program-starts"

# What is read without a line under -help, because what reads it has no such place
NOT_SHOWN = (
    Option(
        "pc_gamg_gpufmt_order",
        "petsc, hash",
        "petsc on one rank, hash on several",
        "order in which GAMG's aggregates are found ([gamg.md](gamg.md))",
    ),
    Option(
        "pc_gamg_gpufmt_smoother",
        "petsc, fused",
        "fused",
        "who makes the steps of GAMG's smoothers ([gamg.md](gamg.md#smoothers))",
    ),
    Option(
        "gpufmt_interpolation",
        "0, 1",
        "1 on a GPU, else 0",
        "interpolations between DMDAs get the type of the coarse matrix ([usage.md](usage.md#multigrid))",
    ),
    Option(
        "gpufmt_start_early",
        "0, 1",
        "1 if there is a device, else 0",
        f"Python and kernels are loaded beside the assembly ([usage.md]({PYTHON_OF_PROGRAMS})); takes no prefix",
    ),
)

# Variables of the environment that programs and commands read
VARIABLES = {
    "PETSC_GPUFMT_PYTHON": f"the interpreter that a compiled program starts ([usage.md]({PYTHON_OF_PROGRAMS}))",
    "PETSC_GPUFMT_CACHE": "folder of tuned options and compiled kernels, in place of `~/.cache/petsc_gpufmt`",
    "PETSC_GPUFMT_ARCH": "architectures that a package is built with kernels for, or `none`; read by the build alone",
    "PETSC_GPUFMT_COMMIT": "the commit that measurements are said to be of, where there is no Git",
}

INTRODUCTION = """# Options

Printed by `tools/option_page.py`, which asks PETSc's `-help` and the commands themselves; a test finds it out of date.
Options of matrices, solvers and GAMG take the prefix of the object.

## Matrix formats
"""


def formats() -> list[str]:
    """Names of the formats, in the order of formats.def."""
    return re.findall(r"^GPUFMT_FORMAT\((\w+)\)", (NATIVE / "formats.def").read_text(), re.MULTILINE)


def shown_options() -> dict[str, list[Option]]:
    """The options that PETSc shows for each format and solver, and for "product"."""
    words = [" ".join(formats()), " ".join(SOLVERS)]
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, *words], capture_output=True, text=True, timeout=120, check=True
    )
    found: dict[str, dict[str, Option]] = {}
    for owner, name, default, meaning in HELP_LINE.findall(shown.stdout):
        values = ""
        if choice := CHOICE.fullmatch(meaning):
            meaning, values = choice[1], ", ".join(re.split(r",? ", choice[2]))
        default = {"FALSE": "0", "TRUE": "1"}.get(default, default)
        found.setdefault(owner or "product", {}).setdefault(name, Option(name, values, default, meaning))
    return {owner: list(options.values()) for owner, options in found.items()}


def table(options: list[Option]) -> Iterator[str]:
    yield "| option | default | values | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, values, default, meaning in options:
        yield f"| `-{name}` | {default} | {values} | {in_a_table(meaning)} |".replace("|  |", "| |")
    yield ""


def is_ours(name: str) -> bool:
    """Whether an option of a solver or product is of this package, and not inherited from PETSc's."""
    return bool(
        re.match(rf"ksp_({'|'.join(SOLVERS)})_|mat_rmerge_|mat_product_algorithm|mat\w+_(via|backend_cpu)$", name)
    )


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the commands, in their order."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for command in action.choices.values():
            yield from commands(command)


def arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        metavar = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
        metavar = metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
        takes = f" {metavar}" if action.option_strings and action.nargs != 0 else ""
        text = formatter._expand_help(action) if action.help else ""
        yield f"| `{in_a_table(name + takes)}` | {in_a_table(text)} |"


def in_a_table(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> Iterator[str]:
    from petsc_gpufmt.cli.main import make_parser

    shown = shown_options()
    names = formats()
    yield INTRODUCTION
    for name in names:
        yield f"### {name}\n"
        yield f"See [{name}](formats/{name}.md).\n"
        yield from table([option for option in shown[name] if option.name.startswith(f"mat_{name}_")])
    yield "## Products of parallel matrices\n"
    yield "Of all formats: [usage.md](usage.md#products-of-parallel-matrices). With a GPU the default mode is `peer`.\n"
    yield from table([option for option in shown[names[0]] if option.name.startswith("mat_halo_")])
    yield "## Sparse products\n"
    yield "[products.md](products.md); on the host the default algorithm is PETSc's.\n"
    yield from table([option for option in shown["product"] if is_ours(option.name)])
    yield "## Krylov solvers\n"
    yield "They take all options of the type that they are made of as well: [solvers.md](solvers.md).\n"
    for name, method in SOLVERS.items():
        yield f"### {name}\n"
        yield f"{method[0].upper()}{method[1:]}, `-ksp_type {name}`.\n"
        yield from table([option for option in shown[name] if is_ours(option.name)])
    yield "## Others\n"
    yield "Without a line under `-help`.\n"
    yield from table(list(NOT_SHOWN))
    yield "## Variables of the environment\n"
    yield "| variable | means |\n| --- | --- |"
    yield from (f"| `{name}` | {means} |" for name, means in VARIABLES.items())
    yield "\n## Commands\n"
    yield "`python -m petsc_gpufmt` is the same as `petsc-gpufmt`.\n"
    for command in commands(make_parser()):
        yield f"### {command.prog}\n"
        rows = list(arguments(command))
        yield "\n".join(["| argument | means |", "| --- | --- |", *rows, ""]) if rows else "Takes no arguments.\n"


def main() -> None:
    print("\n".join(page()).rstrip())


if __name__ == "__main__":
    main()
