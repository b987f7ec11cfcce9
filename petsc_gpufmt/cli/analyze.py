"""``python -m petsc_gpufmt analyze``: arguments of the analysis of one matrix, and how it ends."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from petsc_gpufmt.backends import driver
from petsc_gpufmt.bench.command import check_writable, optional_packages
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.cli.outcome import NOT_DONE
from petsc_gpufmt.errors import GpufmtError, UnsupportedError

DEFAULT_GPU = "h200"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "matrix",
        metavar="MATRIX",
        help="a file, Matrix Market (.mtx, .mtx.gz), SciPy (.npz) or PETSc binary, or a generator: 7point:POINTS, "
        "27point:POINTSxBLOCK, reservoir:REFINEMENT, powerlaw:ROWS",
    )
    parser.add_argument(
        "--gpu",
        metavar="G",
        help="the GPU to predict for: h200, h100, or the memory's TB/s (default: the one that is here if it is known, "
        f"else {DEFAULT_GPU})",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it to this file")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the formats to this file, a row each")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw pattern, row lengths and a roofline, such as FILE.png"
    )
    parser.set_defaults(run=run_analyze)


def run_analyze(arguments: argparse.Namespace) -> int:
    """Analyse and print; what cannot be done is one line, and the exit status NOT_DONE."""
    try:
        with optional_packages():
            analyze(arguments)
    except (GpufmtError, BenchError) as e:
        print(f"petsc_gpufmt: {' '.join(str(e).split())}", file=sys.stderr)
        return NOT_DONE
    except MemoryError:
        print(f"petsc_gpufmt: {arguments.matrix}: it takes more memory than there is to analyse", file=sys.stderr)
        return NOT_DONE
    return 0


def analyze(arguments: argparse.Namespace) -> None:
    """What can be refused is looked at first: GPU, files to write, the head of the matrix."""
    from petsc_gpufmt.analysis.analysis import analyse
    from petsc_gpufmt.analysis.files import as_csv, as_json
    from petsc_gpufmt.analysis.plot import draw
    from petsc_gpufmt.analysis.source import read_source
    from petsc_gpufmt.analysis.text import lines
    from petsc_gpufmt.backends.native_library import petsc_types
    from petsc_gpufmt.bench.report.pictures import check_plot
    from petsc_gpufmt.scaling.machine import find_gpu

    here = gpu_here()
    gpu = find_gpu(arguments.gpu or here or DEFAULT_GPU)
    if arguments.plot:
        check_plot(arguments.plot)
    taken = {Path(arguments.matrix).absolute(): "MATRIX"}
    for option in ("json", "csv", "plot"):
        if path := getattr(arguments, option):
            other = taken.setdefault(path.absolute(), f"--{option}")
            if other != f"--{option}":
                raise BenchError(f"--{option} {path}: this file is {other}; name another one")
            check_writable(f"--{option}", path)
    source = read_source(arguments.matrix, *petsc_types())
    analysis = analyse(source, petsc_types(), gpu)
    print("\n".join(lines(analysis)))
    if here:
        print(f"measured    by `petsc-gpufmt bench mult --matrix {arguments.matrix}` on the GPU that is here")
    for path, text in ((arguments.json, as_json), (arguments.csv, as_csv)):
        if path:
            path.write_text(text(analysis))
    if arguments.plot:
        draw(analysis, source.matrix, arguments.plot)


def gpu_here() -> str | None:
    """How the model calls the GPU of this machine; None without one, or if the model does not know it."""
    from petsc_gpufmt.scaling.machine import gpu_called

    try:
        return gpu_called(driver.device_name(0)) if driver.device_count() else None
    except (UnsupportedError, driver.DriverError):
        return None
