"""Commands and their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from petsc_gpufmt.backends.native_library import library_path
from petsc_gpufmt.cli import analyze, bench, compile, info, model, outcome, tune
from petsc_gpufmt.errors import UnsupportedError


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="petsc-gpufmt", description="Sparse-matrix formats for GPUs as PETSc matrix types."
    )
    commands = parser.add_subparsers(title="commands", required=True)
    options = commands.add_parser(
        "options", help="print the PETSc options that give a compiled application the matrix types"
    )
    options.set_defaults(run=show_options)
    about = commands.add_parser("info", help="print versions, library, GPU, formats and their options")
    about.set_defaults(run=info.show_info)
    compile.add_arguments(commands.add_parser("compile", help="compile kernels ahead, for GPUs here or elsewhere"))
    tune.add_arguments(commands.add_parser("tune", help="find the fastest options of the formats for this GPU"))
    analyze.add_arguments(commands.add_parser("analyze", help="say what to expect of a matrix, without a GPU"))
    model.add_arguments(commands.add_parser("model", help="predict MatMult on many GPUs"))
    bench.add_commands(commands.add_parser("bench", help="measure products, solvers and whole programs"))
    return parser


def show_options(arguments: argparse.Namespace) -> int:
    """For ``PETSC_OPTIONS="$(python -m petsc_gpufmt options) -mat_type pjds"``."""
    print(f"-dll_append {in_petsc_options(str(library_path()))}")
    return 0


def in_petsc_options(path: str) -> str:
    """`path` as PETSC_OPTIONS takes it: a blank outside of double quotes ends a word, a comma a name of -dll_append."""
    if '"' in path or "," in path:
        raise UnsupportedError(f"PETSc cannot load {path}: install the package in a folder without comma and quote")
    return f'"{path}"' if " " in path else path


def main(words: Sequence[str] | None = None) -> int:
    """Run the command in `words` (default: of this process); the exit status."""
    arguments = make_parser().parse_args(words)
    return outcome.exit_status("petsc_gpufmt", lambda: arguments.run(arguments))


def program() -> int:
    """The program ``petsc-gpufmt``, and ``python -m petsc_gpufmt``; the exit status."""
    return outcome.program("petsc_gpufmt", main)
