"""Block rows dealt out by a partition of the graph of the matrix, which packages of PETSc find."""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.distribute.own_rows import OwnRows
from petsc_gpufmt.distribute.ranks import agree, from_all
from petsc_gpufmt.errors import UnsupportedError

PACKAGES = ("parmetis", "ptscotch", "chaco", "party")
OPTION = "mat_partitioning_type"


def check_packages() -> str:
    """The value of `OPTION`, or nothing; UnsupportedError if it is not set and no package is there."""
    from petsc4py import PETSc

    chosen = PETSc.Options().getString(OPTION, "")
    if not chosen and not any(map(PETSc.Sys.hasExternalPackage, PACKAGES)):
        raise UnsupportedError(
            f"a partition of the graph was asked for, and this PETSc has none of {', '.join(PACKAGES)}: configure it "
            f'with --download-ptscotch or --download-parmetis, or take "nonzeros"'
        )
    return chosen


def partitioned(own: OwnRows, block_size: int, bounds: np.ndarray, comm: Any) -> np.ndarray:
    """The rank for each block row, found by PETSc's MatPartitioning, known on all ranks. Collective.

    `bounds` are those of the ranks' block rows as they are. Raises UnsupportedError if no package is there, and
    DistributionError if PETSc does not partition, both on all ranks.
    """
    from petsc4py import PETSc

    if comm.getSize() == 1 or not bounds[-1]:
        return np.zeros(bounds[-1], dtype=PETSc.IntType)
    chosen = check_packages()
    graph = block_graph(own, block_size, bounds, comm)
    partitioning, parts = PETSc.MatPartitioning().create(comm), PETSc.IS()
    partitioning.setAdjacency(graph)
    problem = ""
    try:
        partitioning.setFromOptions()
        partitioning.apply(parts)
    except PETSc.Error as e:
        said = str(e).splitlines()[-1].partition("] ")[2]
        problem = f"PETSc's partitioning fails: {said}; the option -{OPTION} is {chosen or 'not set'}"
    agree(problem, comm)
    return from_all(parts.getIndices(), comm)


def block_graph(own: OwnRows, block_size: int, bounds: np.ndarray, comm: Any) -> Any:
    """The blocks of a square matrix as a graph: symmetric, as packages want it, and without loops: of type mpiadj."""
    from petsc4py import PETSc

    rank = comm.getRank()
    rows = bounds[rank] + np.repeat(np.arange(own.rowptr.size - 1), own.lengths) // block_size
    columns = own.colidx // block_size
    edges = [a[rows != columns].astype(PETSc.IntType) for a in (rows, columns)]
    graph = PETSc.Mat().create(comm)
    local, everything = bounds[rank + 1] - bounds[rank], bounds[-1]
    graph.setSizes(((local, everything), (local, everything)))
    graph.setType(PETSc.Mat.Type.AIJ)
    graph.setPreallocationCOO(np.concatenate(edges), np.concatenate(edges[::-1]))
    graph.setValuesCOO(np.ones(2 * edges[0].size, dtype=PETSc.ScalarType))
    return graph.convert(PETSc.Mat.Type.MPIADJ)
