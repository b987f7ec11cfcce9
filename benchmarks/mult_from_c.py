"""MatMult called by a C program, ``mult_from_c.c``: ``python benchmarks/mult_from_c.py``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt import library_path
from petsc_gpufmt.bench.command import add_output, optional_packages, show, timed
from petsc_gpufmt.bench.compiled import compile_program, known_types, run_program
from petsc_gpufmt.bench.contenders import SELLCUDA, TIMED_AT_ONCE
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import BenchMatrix, make_matrix
from petsc_gpufmt.bench.mult import Reference
from petsc_gpufmt.bench.places import host_place, matrix_types, random_vector
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.cli.outcome import program

SOURCE = Path(__file__).with_suffix(".c")
MATRICES = ("7point:50", "27point:20")
OURS = ("gpufmt", "pjds")
RUN_SECONDS = 180
PEERS = {"aij": (), "aijcusparse": ("seqaijcusparse",), "sellcuda": SELLCUDA.types}
"""Matrix type -> sequential types that an AIJ matrix is converted to."""


def conversions(matrix_type: str) -> tuple[str, ...]:
    """The types that an AIJ matrix goes through to become one of `matrix_type`, a peer or a format."""
    if matrix_type not in PEERS and matrix_type not in FORMATS:
        raise BenchError(f"--types {matrix_type}: choose from {', '.join((*PEERS, *FORMATS))}")
    return PEERS.get(matrix_type) or ((f"seqaij{matrix_type}",) if matrix_type in FORMATS else ())


def write_case(path: Path, matrix: BenchMatrix, rng: np.random.Generator) -> None:
    """A file in PETSc's binary form with the matrix, x, the right A x, and the rounding error allowed in each entry."""
    from petsc4py import PETSc

    csr = matrix.csr
    x = random_vector(csr.shape[1], csr.dtype, rng)
    reference = Reference.of(csr, x)
    # the vectors too: reading a vector of the program sets the block size of the matrix that it was made for
    same = {"bsize": matrix.block_size, "comm": PETSc.COMM_SELF}
    items = [PETSc.Mat().createAIJWithArrays(csr.shape, (csr.indptr, csr.indices, csr.data), **same)]
    items += [PETSc.Vec().createWithArray(array, **same) for array in (x, reference.z, reference.bound)]
    viewer = PETSc.Viewer().createBinary(str(path), mode="w", comm=PETSc.COMM_SELF)
    for item in items:
        item.view(viewer)
    for item in (viewer, *items):
        item.destroy()


def measure_from_c(program: Path, file: Path, matrix: BenchMatrix, matrix_type: str) -> dict[str, Any]:
    """One run of the program on a file of write_case(); its line of JSON as a dictionary."""
    options = ["-file", str(file)]
    if types := conversions(matrix_type):
        options += ["-types", ",".join(types)]
    if matrix_type == "gpufmt":
        options += [word for name, value in TIMED_AT_ONCE.items() for word in (f"-{name}", value)]
    output = run_program([str(program), "-dll_append", str(library_path()), *options], RUN_SECONDS).output
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise BenchError(
            f"{program} {' '.join(options)} printed {len(lines)} lines of JSON, one was expected:\n{output}"
        )
    return {
        "matrix": matrix.name,
        "nnz": int(matrix.csr.nnz),
        "ours": matrix_type in FORMATS,
        **json.loads(lines[0]),
    }


def case_line(case: dict[str, Any]) -> str:
    times = f"host {case['host_seconds'] * 1e6:9.3f} us, back to back {case['back_to_back_seconds'] * 1e6:9.3f} us"
    return f"  {case['matrix']:30}{case['mat_type']:18}{case['vec_type']:10}{times}"


@optional_packages()
def run(arguments: argparse.Namespace) -> int:
    recorder = Recorder("mult-from-c", arguments.json, arguments.commit)
    types = matrix_types(host_place())
    with timed("mult-from-c"), tempfile.TemporaryDirectory() as folder:
        executable = compile_program(SOURCE, Path(folder))
        for number, spec in enumerate(arguments.matrix or MATRICES):
            matrix, file = make_matrix(spec, *types), Path(folder, f"case{number}")
            write_case(file, matrix, types[2])
            for matrix_type in arguments.types or known_types(tuple(PEERS), OURS):
                case = measure_from_c(executable, file, matrix, matrix_type)
                recorder.add(case)
                show(case_line(case))
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mult_from_c.py", description="MatMult called by a C program.")
    parser.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help=f"as for `python -m petsc_gpufmt bench mult`; may be repeated (default {', '.join(MATRICES)})",
    )
    parser.add_argument(
        "--types", nargs="+", metavar="T", help="matrix types (default: this PETSc's own, gpufmt and pjds)"
    )
    add_output(parser)
    return parser


def main(words: list[str] | None = None) -> int:
    return run(make_parser().parse_args(words))


if __name__ == "__main__":
    sys.exit(program("mult_from_c", main))
