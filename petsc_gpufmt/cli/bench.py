"""``python -m petsc_gpufmt bench``: arguments of the benchmarks."""

from __future__ import annotations

import argparse
from pathlib import Path

from petsc_gpufmt.bench.command import MAX_IT, RTOL, add_output
from petsc_gpufmt.cli import bench_ksp, bench_parts, bench_report, bench_runs, bench_scaling

NEEDS_FORMAT = "format with options, such as pjds:slice_height=64; may be repeated"


def add_commands(parser: argparse.ArgumentParser) -> None:
    """The benchmarks as subcommands of `parser`."""
    commands = parser.add_subparsers(title="benchmarks", required=True)
    add_all(commands)
    add_mult(commands)
    add_bsr(commands)
    bench_parts.add_parts(commands)
    add_spgemm(commands)
    add_programs(commands)
    add_scaling(commands)
    add_ksp(commands)
    bench_report.add_report(commands)


def add_all(commands: argparse._SubParsersAction) -> None:
    everything = commands.add_parser(
        "all",
        help="mult, on a GPU also bsr, real matrices and spgemm",
    )
    everything.add_argument("--matrices", type=Path, metavar="FOLDER", help="folder with real matrices")
    everything.add_argument("--host", action="store_true", help="measure on the host only")
    add_output(everything, default=Path("results/results.json"))
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
    bench_report.add_plot(mult)
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
    bench_report.add_plot(bsr)
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
    bench_report.add_plot(spgemm)
    add_output(spgemm)
    spgemm.set_defaults(run=bench_runs.run_spgemm)


def add_programs(commands: argparse._SubParsersAction) -> None:
    programs = commands.add_parser(
        "programs", help="whole programs by wall clock, in turn with PETSc's own type and with ours"
    )
    which = programs.add_mutually_exclusive_group()
    which.add_argument(
        "--program",
        action="append",
        metavar="P",
        help="first, first-after-1s (one small product, alone and after a second of assembly), ex14-gamg, "
        "ex14-gamg-agg, ex14-jacobi, ex14-gpucg (ours with gpucg), ex19 or ex56 (PETSc's tutorials), bratu3d (the "
        "example), laplacian-7point, laplacian-27point (two set-ups of GAMG), new-values (and a product), or P:SIZE, "
        "such as ex14-gamg:64; may be repeated (default: all)",
    )
    which.add_argument("--program-set", metavar="SET", help="gamg: those that show the set-up of GAMG, in all sizes")
    programs.add_argument(
        "--type", action="append", metavar="T", help="type of ours; may be repeated (default: one or two a program)"
    )
    programs.add_argument(
        "--pairs", type=int, default=5, metavar="N", help="runs of each type that count (default %(default)s)"
    )
    programs.add_argument(
        "--cold",
        type=int,
        default=1,
        metavar="N",
        help="runs of ours with empty caches of compiled kernels (default %(default)s)",
    )
    programs.add_argument(
        "--petsc-source",
        type=Path,
        metavar="FOLDER",
        help="PETSc's source tree, with src/snes/tutorials (default: PETSC_SRC, or what lies beside the PETSc in use)",
    )
    programs.add_argument(
        "--seconds", type=float, default=120.0, metavar="S", help="time limit of one run (default %(default)g)"
    )
    programs.add_argument(
        "--examples",
        type=Path,
        default=Path("examples"),
        metavar="FOLDER",
        help="the examples of this package, where bratu3d.py is (default: %(default)s)",
    )
    programs.add_argument("--ranks", type=int, default=1, metavar="N", help="MPI ranks (default %(default)s)")
    programs.add_argument("--mpiexec", help="starts MPI programs (default: that of the MPI which PETSc links)")
    programs.add_argument("--host", action="store_true", help="measure on the host only")
    bench_report.add_plot(programs)
    add_output(programs)
    programs.set_defaults(run=bench_runs.run_programs)


def add_scaling(commands: argparse._SubParsersAction) -> None:
    scaling = commands.add_parser(
        "scaling", help="MatMult over the ranks, in each mode of the halo exchange, against PETSc's own type"
    )
    scaling.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help="7point:POINTS, 27point:POINTSxBLOCK, reservoir:REFINEMENT, a .mtx, .mtx.gz or .npz file; may be repeated",
    )
    scaling.add_argument(
        "--ranks", metavar="N", help="numbers of ranks, such as 1,2,4 (default: 1, 2, 4, ... as far as there are GPUs)"
    )
    scaling.add_argument("--weak", action="store_true", help="the stencil grows with the ranks: M is what each has")
    scaling.add_argument("--type", default="pjds", metavar="T", help="type of ours (default %(default)s)")
    scaling.add_argument(
        "--mode", action="append", metavar="M", help="of -mat_halo_mode; may be repeated (default: all)"
    )
    scaling.add_argument(
        "--distribution",
        default="petsc",
        metavar="D",
        help="of rows on ranks: petsc, nonzeros, cyclic, partition, or segments of long block rows "
        "(default %(default)s)",
    )
    scaling.add_argument("--without-peer", action="store_true", help="leave PETSc's own type out")
    scaling.add_argument(
        "--seconds", type=float, default=600.0, metavar="S", help="time limit of each number of ranks (default 600)"
    )
    scaling.add_argument("--mpiexec", help="starts MPI programs (default: that of the MPI which PETSc links)")
    scaling.add_argument("--host", action="store_true", help="measure on the host only")
    scaling.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw GF/s over the ranks beside the model's")
    add_output(scaling)
    scaling.set_defaults(run=bench_scaling.run_scaling)


def add_ksp(commands: argparse._SubParsersAction) -> None:
    ksp = commands.add_parser(
        "ksp", help="solvers: an iteration, and a solve to the same residual, against PETSc's methods and type"
    )
    ksp.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help="7point:POINTS or 27point:POINTS (a Laplacian), elasticity:NODES, a .mtx, .mtx.gz or .npz file with its "
        "values, or FILE*COPIES for copies along the diagonal, FILE* for 40 million nonzeros; may be repeated",
    )
    ksp.add_argument(
        "--method",
        action="append",
        metavar="M",
        help="cg, bcgs, gmres, fgmres: PETSc's with PETSc's type, PETSc's with ours, ours with ours; mixed: mixedcg "
        "against gpucg; may be repeated (default: cg)",
    )
    ksp.add_argument(
        "--outer",
        action="append",
        metavar="O",
        help="of -ksp_mixedcg_outer, for --method mixed; may be repeated (default: replacement)",
    )
    ksp.add_argument("--type", action="append", metavar="T", help="type of ours; may be repeated (default: gpufmt)")
    ksp.add_argument("--pc", default="jacobi", metavar="P", help="jacobi or none (default %(default)s)")
    ksp.add_argument(
        "--rtol", type=float, default=RTOL, metavar="R", help="residual of a solve, relative (default %(default)g)"
    )
    ksp.add_argument(
        "--max-it", type=int, default=MAX_IT, metavar="N", help="the most iterations of a solve (default %(default)s)"
    )
    ksp.add_argument("--ranks", default="1", metavar="N", help="numbers of ranks, such as 1,2,4 (default %(default)s)")
    ksp.add_argument(
        "--history", action="store_true", help="keep the true residuals of a solve, which is not one that is timed"
    )
    ksp.add_argument(
        "--seconds", type=float, default=900.0, metavar="S", help="time limit of each number of ranks (default 900)"
    )
    ksp.add_argument("--mpiexec", help="starts MPI programs (default: that of the MPI which PETSc links)")
    ksp.add_argument("--host", action="store_true", help="measure on the host only")
    bench_report.add_plot(ksp)
    add_output(ksp)
    ksp.set_defaults(run=bench_ksp.run_ksp)
