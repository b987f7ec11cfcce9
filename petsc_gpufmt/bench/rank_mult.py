"""MatMult on the ranks of this program, which ``bench scaling`` starts with a task, as JSON, and a file.

A product is timed by the host between barriers, in sequences that do not wait for the device. The file gets a line of
JSON for each case.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.bench.rank_cases import keep_cases
from petsc_gpufmt.bench.rank_rows import RankRows, make_rows, x_values
from petsc_gpufmt.choice.registry import FORMATS

WARM_UP, CALLS, SEQUENCES = 20, 50, 9
AS_MADE, CUT = "petsc", "segments"
"""Distributions: rows where they were made, and long block rows cut into segments."""

TASK_MODE = "task"


@dataclasses.dataclass(frozen=True)
class Task:
    """What all ranks do.

    Attributes
    ----------
    matrices : as `bench mult` names them
    weak : whether a stencil has as many planes on each rank as its name says
    matrix_type : of ours
    peer : type of PETSc's, or None
    modes : of the halo exchange
    distribution : "petsc", another method of petsc_gpufmt.distribute, or "segments"; the peer's is always "petsc"
    """

    matrices: tuple[str, ...]
    weak: bool
    matrix_type: str
    peer: str | None
    modes: tuple[str, ...]
    distribution: str


class Product:
    """z = A x with the rows of this rank as they are to be dealt out; its vectors."""

    def __init__(self, A: Any, x: Any, z: Any, call: Callable[[], None], back: Callable[[], Any], owned: list[Any]):
        self.A, self.x, self.z, self.call, self.back = A, x, z, call, back
        self._owned = [A, x, z, *owned]

    def destroy(self) -> None:
        for item in self._owned:
            item.destroy()


def make_product(rows: RankRows, matrix_type: str, distribution: str, comm: Any) -> Product:
    """The product of one type; x has the entries of `x_values`."""
    from petsc4py import PETSc

    from petsc_gpufmt import distribute

    made = PETSc.Mat().create(comm)
    made.setSizes(((rows.rowptr.size - 1, None),) * 2)
    made.setBlockSizes(rows.block_size, rows.block_size)
    made.setType(f"aij{matrix_type}" if matrix_type in FORMATS else matrix_type)
    made.setFromOptions()
    made.setPreallocationCSR((rows.rowptr, rows.colidx, rows.values))
    x, z = made.createVecs()
    x.setArray(x_values(range(*x.getOwnershipRange()), rows.values.dtype))
    if distribution == AS_MADE:
        return Product(made, x, z, lambda: made.mult(x, z), lambda: z, [])
    if distribution == CUT:
        cut = distribute.segments(made)
        sums = cut.matrix.createVecLeft()

        def call() -> None:
            cut.matrix.mult(x, sums)
            cut.reduction.mult(sums, z)

        return Product(cut.matrix, x, z, call, lambda: z, [made, sums, cut.reduction])
    dealt = distribute.rows(made, distribution)
    A, dealt_x = dealt.matrix(made), dealt.vector(x)
    dealt_z = A.createVecLeft()
    made.destroy()
    x.destroy()
    return Product(A, dealt_x, dealt_z, lambda: A.mult(dealt_x, dealt_z), lambda: dealt.back(dealt_z, z), [z])


def is_right(product: Product, expected: np.ndarray, comm: Any) -> bool:
    """Whether A x has all entries as expected, on all ranks."""
    from petsc_gpufmt.distribute.ranks import from_all

    product.z.set(np.nan)
    product.call()
    return not from_all([np.count_nonzero(product.back().getArray(readonly=True) != expected)], comm).any()


def measure(product: Product, comm: Any) -> list[float]:
    """Seconds of a product in each sequence."""
    wait = driver.synchronize_context if product.A.getVecType().endswith("cuda") else int
    for _ in range(WARM_UP):
        product.call()
    found = []
    for _ in range(SEQUENCES):
        wait()
        comm.barrier()
        start = time.perf_counter()
        for _ in range(CALLS):
            product.call()
        wait()
        comm.barrier()
        found.append((time.perf_counter() - start) / CALLS)
    return found


def mode_taken(A: Any, comm: Any) -> str:
    """The mode that the halo exchange of a matrix of ours has; known on rank 0."""
    from petsc4py import PETSc

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "view")
        viewer = PETSc.Viewer().createASCII(str(path), comm=comm)
        viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO_DETAIL)
        A.view(viewer)
        viewer.destroy()
        text = path.read_text() if comm.rank == 0 else ""
    words = text.partition("halo exchange in mode ")[2].split()
    return words[0] if words else ""


def cases(task: Task) -> Iterator[dict[str, Any]]:
    """Each matrix by the peer, then by our type in each mode; modes are one and the same on one rank."""
    from petsc4py import PETSc

    comm, database = PETSc.COMM_WORLD, PETSc.Options()
    scalar, index = native_library.real_types()
    peers = [(task.peer, None, AS_MADE)] if task.peer else []
    modes = task.modes if comm.size > 1 else (None,)
    contenders = [*peers, *((task.matrix_type, mode, task.distribution) for mode in modes)]
    for spec in task.matrices:
        rows = make_rows(spec, comm.rank, comm.size, task.weak, scalar, index)
        expected = rows.product()
        for matrix_type, mode, distribution in contenders:
            if mode:
                database["mat_halo_mode"] = mode
            product = make_product(rows, matrix_type, distribution, comm)
            right = is_right(product, expected, comm)
            seconds = measure(product, comm)
            right = right and is_right(product, expected, comm)
            yield {
                "matrix": spec,
                "ranks": comm.size,
                "weak": task.weak,
                "type": matrix_type,
                "ours": matrix_type != task.peer,
                "distribution": distribution,
                "mode": mode,
                "taken": mode_taken(product.A, comm) if mode else None,
                "rows": rows.size,
                "nnz": int(product.A.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"]),
                "seconds": statistics.median(seconds),
                "least_seconds": min(seconds),
                "largest_seconds": max(seconds),
                "correct": right,
            }
            product.destroy()


if __name__ == "__main__":
    task = Task(**json.loads(sys.argv[1]))
    if TASK_MODE in task.modes:
        import mpi4py.MPI  # noqa: F401 - before PETSc, which would ask for a lower level of threads than this mode needs
    keep_cases(lambda: cases(task), Path(sys.argv[2]))
