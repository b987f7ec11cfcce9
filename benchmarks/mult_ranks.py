"""MatMult of a stencil on several ranks, each with whole planes: ``mpiexec -n 4 python benchmarks/mult_ranks.py``.

A product is timed by the host between barriers, in sequences that do not wait for the device. Rank 0 writes the
results. ``PETSC_OPTIONS="-use_gpu_aware_mpi 0"`` is for an MPI that cannot read the memory of a device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import mpi4py.MPI  # noqa: F401 - before PETSc, which would ask for a lower level of threads than -mat_halo_mode task needs
import numpy as np
from petsc4py import PETSc

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.bench.command import add_output, finish, show
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import grid_and_block, stencil_pattern
from petsc_gpufmt.bench.results import Recorder
from petsc_gpufmt.cli.outcome import program
from petsc_gpufmt.scaling.partition import Layout

MATRICES = ("7point:128", "27point:128", "7point:200")
MODES = ("overlap",)
WARM_UP, CALLS, SEQUENCES = 20, 50, 9
COMM = PETSc.COMM_WORLD


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mult_ranks.py", description="Time MatMult on several ranks.")
    parser.add_argument(
        "--matrix",
        action="append",
        metavar="M",
        help=f"such as 7point:200; may be repeated (default: {' '.join(MATRICES)})",
    )
    parser.add_argument("--weak", action="store_true", help="each rank has as many planes as M has")
    parser.add_argument(
        "--mode", action="append", metavar="M", help="of -mat_halo_mode; may be repeated (default: overlap)"
    )
    parser.add_argument("--type", default="pjds", help="matrix type (default %(default)s)")
    add_output(parser)
    return parser


def slab(stencil: str, planes: int, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row pointer, columns and values of the planes of this rank, with a 1 in each entry."""
    layout = Layout(planes, COMM.size)
    mine = range(int(layout.start(COMM.rank)), int(layout.start(COMM.rank + 1)))
    scalar, index = native_library.petsc_types()
    rowptr, columns = stencil_pattern(stencil, points, index, mine, planes)
    return rowptr, columns, np.ones(columns.size, dtype=scalar)


def make_matrix(rows: tuple[np.ndarray, np.ndarray, np.ndarray], matrix_type: str) -> PETSc.Mat:
    A = PETSc.Mat().create(COMM)
    A.setSizes(((rows[0].size - 1, None),) * 2)
    A.setType(f"aij{matrix_type}")
    A.setFromOptions()
    A.setPreallocationCSR(rows)
    return A


def measure(A: PETSc.Mat, wait: Callable[[], None]) -> tuple[float, float]:
    """(seconds of a product, sum of the entries of A times a vector of ones)."""
    x, z = A.createVecs()
    x.set(1.0)
    for _ in range(WARM_UP):
        A.mult(x, z)
    found = []
    for _ in range(SEQUENCES):
        wait()
        COMM.barrier()
        start = time.perf_counter()
        for _ in range(CALLS):
            A.mult(x, z)
        wait()
        COMM.barrier()
        found.append((time.perf_counter() - start) / CALLS)
    total = z.sum()
    for vector in (x, z):
        vector.destroy()
    return statistics.median(found), float(total)


def main(words: list[str] | None = None) -> int:
    arguments = make_parser().parse_args(words)
    database = PETSc.Options()
    gpu_aware = database.getBool("use_gpu_aware_mpi", True)
    ranks = f"{COMM.size} rank{'s' * (COMM.size > 1)}"
    recorder = Recorder(f"mult in slabs, {ranks}", arguments.json, arguments.commit) if COMM.rank == 0 else None
    wrong = []
    for spec in arguments.matrix or MATRICES:
        grid = grid_and_block(spec)
        if grid is None or grid[2] > 1:
            raise BenchError(f"--matrix {spec}: give a stencil and its grid points, such as 7point:200")
        stencil, points, _ = grid
        rows = slab(stencil, points * (COMM.size if arguments.weak else 1), points)
        for mode in arguments.mode or MODES:
            database["mat_halo_mode"] = mode
            A = make_matrix(rows, arguments.type)
            wait = driver.synchronize_context if A.getVecType().endswith("cuda") else int
            seconds, total = measure(A, wait)
            nnz = int(A.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"])
            A.destroy()
            if total != nnz:
                wrong.append(f"{spec}, {mode}: entries sum up to {total:.0f} in place of {nnz}")
            if recorder:
                facts: dict[str, Any] = {"matrix": spec, "ranks": COMM.size, "mode": mode, "weak": arguments.weak}
                recorder.add({**facts, "type": arguments.type, "seconds": seconds}, gpu_aware=gpu_aware)
                show(f"{spec} on {ranks}, {mode}: {seconds * 1e6:.1f} us, {2e-9 * nnz / seconds:.0f} GF/s")
    return finish(wrong if recorder else [])


if __name__ == "__main__":
    sys.exit(program("mult_ranks", main))
