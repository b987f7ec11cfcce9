"""``python -m petsc_gpufmt bench``: arguments of the benchmarks."""

from __future__ import annotations

import argparse
from pathlib import Path

from petsc_gpufmt.cli import bench_runs

FROM_C_MATRICES = ("7point:50", "27point:20")
NEEDS_FORMAT = "format with options, such as pjds:slice_height=64; may be repeated"


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The benchmarks as subcommands of `parser`."""
    commands = parser.add_subparsers(title="benchmarks", required=True)
    add_all(commands)
    add_mult(commands)
    add_bsr(commands)
    add_spgemm(commands)
    add_from_c(commands)
    add_bratu(commands)
    add_report(commands)


def add_all(commands: argparse._SubParsersAction) -> None:
    everything = commands.add_parser(
        "all",
        help="what one process measures: mult, on a GPU bsr, real matrices and spgemm too; then the figures to reach",
    )
    everything.add_argument("--matrices", type=Path, metavar="FOLDER", help="folder with real matrices")
    everything.add_argument("--host", action="store_true", help="measure on the host only")
    everything.add_argument(
        "--json", type=Path, metavar="FILE", default=Path("results/results.json"), help="default: %(default)s"
    )
    add_commit(everything)
    everything.set_defaults(run=bench_runs.run_all)


def add_mult(commands: argparse._SubParsersAction) -> None:
    mult = commands.add_parser(
        "mult", help="MatMult from Python: the formats, PETSc's types and CuPy, checked and timed"
    )
    which = mult.add_mutually_exclusive_group()
    which.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help="7point:POINTS, 27point:POINTSxBLOCK, a .mtx, .mtx.gz or .npz file (its pattern), "
        "or FILE*COPIES for copies along the diagonal, FILE* for 40 million nonzeros; may be repeated",
    )
    which.add_argument(
        "--matrix-set",
        nargs=2,
        metavar=("SET", "FOLDER"),
        help="real: the matrices of a folder against PETSc's types; real-replicated: the same out of the cache",
    )
    formats = mult.add_mutually_exclusive_group()
    formats.add_argument(
        "--format", action="append", metavar="F", help=f"{NEEDS_FORMAT} (default: gpufmt and one more)"
    )
    formats.add_argument("--all-formats", action="store_true", help="every format as it is, on fewer matrices")
    mult.add_argument("--host", action="store_true", help="measure on the host only")
    mult.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="T",
        help="type to leave out, such as sellcuda; may be repeated",
    )
    add_output(mult)
    mult.set_defaults(run=bench_runs.run_mult)


def add_bsr(commands: argparse._SubParsersAction) -> None:
    bsr = commands.add_parser("bsr", help="matrices of dense blocks, over the block sizes, against cuSPARSE's BSR")
    bsr.add_argument(
        "--block-size", type=int, nargs="+", metavar="B", help="block sizes (default: fifteen from 2 to 64)"
    )
    bsr.add_argument(
        "--entries",
        type=int,
        metavar="N",
        help="up to so many, on at least 10^3 grid points (default: 59 million, on the host 2)",
    )
    bsr.add_argument("--host", action="store_true", help="measure on the host only")
    add_output(bsr)
    bsr.set_defaults(run=bench_runs.run_bsr)


def add_spgemm(commands: argparse._SubParsersAction) -> None:
    spgemm = commands.add_parser(
        "spgemm", help="sparse products: squares and Galerkin pyramids, against cuSPARSE, CuPy, PETSc, SciPy and hypre"
    )
    which = spgemm.add_mutually_exclusive_group()
    which.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help="as for mult; may be repeated (default: stencils of several sizes)",
    )
    which.add_argument(
        "--matrices", type=Path, metavar="FOLDER", help="folder with real matrices, measured after the default ones"
    )
    spgemm.add_argument(
        "--only", choices=bench_runs.PRODUCT_KINDS, help="A A alone, or P^T A P down a pyramid alone (default: both)"
    )
    spgemm.add_argument(
        "--variant",
        action="append",
        metavar="V",
        help="rmerge, or rmerge:accumulator=merge,merge_width=8 with options of the products; may be repeated "
        "(default: rmerge, each accumulator, each width)",
    )
    spgemm.add_argument("--host", action="store_true", help="measure on the host only")
    spgemm.add_argument(
        "--without", action="append", default=[], metavar="T", help="peer to leave out, such as SciPy; may be repeated"
    )
    add_output(spgemm)
    spgemm.set_defaults(run=bench_runs.run_spgemm)


def add_from_c(commands: argparse._SubParsersAction) -> None:
    from_c = commands.add_parser("mult-from-c", help="MatMult called by a C program")
    from_c.add_argument("source", type=Path, help="the program, benchmarks/mult_from_c.c")
    from_c.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help=f"as for mult; may be repeated (default {', '.join(FROM_C_MATRICES)})",
    )
    from_c.add_argument(
        "--types", nargs="+", metavar="T", help="matrix types (default: this PETSc's own, gpufmt and pjds)"
    )
    add_output(from_c)
    from_c.set_defaults(run=bench_runs.run_mult_from_c, default_matrices=FROM_C_MATRICES)


def add_bratu(commands: argparse._SubParsersAction) -> None:
    bratu = commands.add_parser(
        "bratu", help="PETSc's SNES tutorial ex14 with CG and Jacobi or GAMG, times from -log_view"
    )
    bratu.add_argument("source", type=Path, help="ex14.c of PETSc's src/snes/tutorials")
    bratu.add_argument(
        "--grid",
        type=int,
        nargs="+",
        default=[128, 200],
        metavar="N",
        help="grid points in each direction (default 128 200)",
    )
    bratu.add_argument("--ranks", type=int, default=1, metavar="N", help="MPI ranks (default 1)")
    formats = bratu.add_mutually_exclusive_group()
    formats.add_argument(
        "--types",
        nargs="+",
        metavar="T",
        help="matrix types; the first is the reference for the iterations (default: PETSc's own, gpufmt and pjds)",
    )
    formats.add_argument("--all-formats", action="store_true", help="PETSc's own type and every format")
    bratu.add_argument(
        "--pc", choices=bench_runs.PRECONDITIONERS, default="jacobi", help="preconditioner (default %(default)s)"
    )
    bratu.add_argument("--mpiexec", help="starts MPI programs (default: the one that PETSc was configured with)")
    bratu.add_argument("--seconds", type=float, default=300.0, metavar="S", help="time limit of one run (default 300)")
    add_output(bratu)
    bratu.set_defaults(run=bench_runs.run_bratu_benchmark)


def add_report(commands: argparse._SubParsersAction) -> None:
    report = commands.add_parser("report", help="turn results into Markdown")
    report.add_argument("results", nargs="+", type=Path, help="JSON files of the other benchmarks")
    report.add_argument(
        "--notes",
        type=Path,
        metavar="FILE",
        help="Markdown to include, with the reasons for figures that were missed "
        f"(default {bench_runs.NOTES}, if it is there)",
    )
    report.add_argument("--targets", action="store_true", help="only the table of the figures to reach")
    report.set_defaults(run=bench_runs.run_report)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the results to this file")
    add_commit(parser)


def add_commit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--commit", help="commit to name in the results (default: PETSC_GPUFMT_COMMIT, or what git says)"
    )
