"""PETSc's own GAMG of type agg on one rank: the order in which it visits rows, and its tentative prolongator."""

from __future__ import annotations

import numpy as np
from graphs import Graph
from petsc4py import PETSc


def agg_order(nrows: int) -> np.ndarray:
    """The order in which PCGAMGCoarsen_AGG visits the rows, by PETSc's random numbers."""
    random = PETSc.Random().create(PETSc.COMM_SELF)
    order, taken = np.arange(nrows), np.zeros(nrows, dtype=bool)
    for i in range(nrows):
        j = int(random.getValueReal() * nrows) % nrows
        if not taken[j] and j != i:
            order[i], order[j], taken[j] = order[j], order[i], True
    return order


def laplacian(graph: Graph, block: int = 1) -> PETSc.Mat:
    """Of a graph, for each component of a block; the blocks are dense."""
    n, lengths = graph.nrows * block, np.repeat(np.diff(graph.rowptr), block)
    rowptr = np.concatenate([[0], np.cumsum(lengths * block)])
    rows = np.repeat(np.arange(n), lengths * block)
    blocks = np.concatenate([np.tile(neighbours, block) for neighbours in graph.rows])
    columns = (blocks[:, None] * block + np.arange(block)).ravel()
    values = np.where(rows == columns, 1.0 + lengths[rows], np.where(rows % block == columns % block, -1.0, 0.01))
    csr = (rowptr.astype(PETSc.IntType), columns.astype(PETSc.IntType), values.astype(PETSc.ScalarType))
    A = PETSc.Mat().createAIJ((n, n), bsize=block, csr=csr, comm=PETSc.COMM_SELF)
    A.setOption(PETSc.Mat.Option.SYMMETRIC, True)
    return A


def of_agg(A: PETSc.Mat, distance: int, options: PETSc.Options, nsmooths: int = 0) -> PETSc.Mat:
    """The prolongator of the finest level, from a square graph at distance 2; without smoothing it is the tentative."""
    settings = {"agg_nsmooths": nsmooths, "aggressive_coarsening": distance - 1, "coarse_eq_limit": 1, "type": "agg"}
    for name, value in settings.items():
        options[f"aggregated_pc_gamg_{name}"] = value
    pc = PETSc.PC().create(A.getComm())
    pc.setOptionsPrefix("aggregated_")
    pc.setType("gamg")
    pc.setOperators(A)
    pc.setFromOptions()
    pc.setUp()
    return pc.getMGInterpolation(pc.getMGLevels() - 1)
