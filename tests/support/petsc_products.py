"""Sparse products through petsc4py: matrices, the call for each product, and solves with GAMG."""

from __future__ import annotations

import ctypes

import numpy as np
from builders import CsrMatrix
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.plan import Product

METHODS = {
    Product.AB: "matMult",
    Product.ATB: "transposeMatMult",
    Product.ABT: "matTransposeMult",
    Product.PTAP: "ptap",
    Product.RART: "rart",
    Product.ABC: "matMatMult",
}
VIA = {
    Product.AB: "matmatmult_via",
    Product.ATB: "mattransposematmult_via",
    Product.ABT: "matmattransmult_via",
    Product.PTAP: "matptap_via",
    Product.RART: "matrart_via",
    Product.ABC: "matmatmatmult_via",
}


def petsc_matrix(given: CsrMatrix, mat_type="aijpjds"):
    csr = (
        given.rowptr.astype(PETSc.IntType),
        given.colidx.astype(PETSc.IntType),
        given.values.astype(PETSc.ScalarType),
    )
    A = PETSc.Mat().createAIJ((given.nrows, given.ncols), csr=csr, comm=PETSc.COMM_SELF)
    if mat_type != "aij":
        A.convert(mat_type)
    return A


def stencil_csr(n):
    """The 7-point Laplacian on n^3 points."""
    points = np.arange(n**3).reshape(n, n, n)
    off = [(np.delete(points, -1, a).ravel(), np.delete(points, 0, a).ravel()) for a in range(3)]
    rows = np.concatenate([points.ravel(), *(np.concatenate(pair) for pair in off)])
    columns = np.concatenate([points.ravel(), *(np.concatenate(pair[::-1]) for pair in off)])
    order = np.lexsort((columns, rows))
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows))])
    values = np.where(rows == columns, 6.0, -1.0)[order]
    return CsrMatrix(n**3, n**3, rowptr, columns[order], values)


def coupled_csr(n, block, seed=0):
    """`block` unknowns on each of n^3 points, coupled with each other; positive definite, diagonal blocks differ."""
    grid, within = stencil_csr(n), np.indices((block, block)).reshape(2, -1)
    coupling = 0.5 ** np.abs(within[0] - within[1]) + (within[0] == within[1])
    rows, columns = (
        np.add.outer(block * k, add).ravel() for k, add in zip((grid.rows, grid.colidx), within, strict=True)
    )
    scale = 1 + np.random.default_rng(seed).random(block * n**3)
    values = np.outer(grid.values, coupling).ravel() * scale[rows] * scale[columns]
    order = np.lexsort((columns, rows))
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows))])
    return CsrMatrix(block * n**3, block * n**3, rowptr, columns[order], values[order], block)


def multiply(product, matrices, result=None):
    method = getattr(matrices[0], METHODS[product])
    return method(*matrices[1:]) if result is None else method(*matrices[1:], result=result)


def other_values(matrices, operands, seed):
    """Give matrices new values in the same pattern; the operands with these."""
    rng = np.random.default_rng(seed)
    changed = []
    for A, m in zip(matrices, operands, strict=True):
        values = rng.standard_normal(m.values.size)
        A.setValuesCSR(m.rowptr.astype(PETSc.IntType), m.colidx.astype(PETSc.IntType), values.astype(PETSc.ScalarType))
        A.assemble()
        changed.append(CsrMatrix(m.nrows, m.ncols, m.rowptr, m.colidx, values))
    return changed


def scale_on_the_host(A, factor):
    """Multiply the values through PETSc's getter, as functions of PETSc and applications do."""
    library, handle, array = native_library.load(), ctypes.c_void_p(A.handle), ctypes.c_void_p()
    nnz = int(A.getInfo()["nz_used"])
    assert library.MatSeqAIJGetArray(handle, ctypes.byref(array)) == 0
    memory = (ctypes.c_char * (nnz * np.dtype(PETSc.ScalarType).itemsize)).from_address(array.value)
    values = np.frombuffer(memory, PETSc.ScalarType)
    values *= factor
    assert library.MatSeqAIJRestoreArray(handle, ctypes.byref(array)) == 0


def symbolic_phases():
    """How many symbolic phases of ours there have been."""
    return PETSc.Log.Event("GpufmtSymbolic").getPerfInfo()["count"]


def gamg_iterations(A, at_end=None):
    """Krylov iterations of three solves, the last two with other values; calls `at_end` while all exists."""
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setOperators(A)
    ksp.setType("cg")
    ksp.getPC().setType("gamg")
    ksp.setFromOptions()
    x, b = A.createVecs()
    b.set(1.0)
    counts = []
    for shift in (0.0, 0.01, 0.02):
        A.shift(shift)
        ksp.solve(b, x)
        counts.append(ksp.getIterationNumber())
    if at_end:
        at_end()
    ksp.destroy()
    return counts
