"""Matrices in PETSc's binary files: the head is looked at before PETSc reads the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.errors import BenchError

MATRIX, VECTOR = 1211216, 1211214
"""Class ids, the first number of a file: MAT_FILE_CLASSID and VEC_FILE_CLASSID."""

DENSE = -1
"""In place of the number of entries: MATRIX_BINARY_FORMAT_DENSE."""

HEAD = 4
"""Numbers of the head: class id, rows, columns, entries. Then come lengths of rows, columns and values."""


def class_id(path: Path) -> int:
    """The class id with which a file of PETSc begins, 0 for another file; OSError if it cannot be read."""
    with open(path, "rb") as file:
        head = np.frombuffer(file.read(8).ljust(8, b"\0"), dtype=">i4")
    first = int(head[0] or head[1])  # with indices of 64 bits the first four bytes are zeros
    return first if first in (MATRIX, VECTOR) else 0


def sizes(path: Path, scalar: np.dtype, index: np.dtype) -> tuple[int, int, int]:
    """Rows, columns and entries of the matrix in a file; BenchError if PETSc could not read it."""
    number = index.newbyteorder(">")
    head = np.fromfile(path, dtype=number, count=HEAD)
    if class_id(path) != MATRIX:
        raise BenchError(f"{path}: a vector of PETSc; give a file that MatView wrote")
    if head.size < HEAD or head[0] != MATRIX:
        raise BenchError(
            f"{path}: its head is not that of a matrix with {index} indices, which this PETSc has: "
            "write it again with this PETSc"
        )
    nrows, ncols, nnz = (int(n) for n in head[1:])
    if nnz == DENSE:
        raise BenchError(f"{path}: a dense matrix; convert it to type aij before MatView writes it")
    if min(nrows, ncols, nnz) < 0:
        raise BenchError(f"{path}: its head says {nrows} x {ncols} with {nnz} entries; the file is damaged")
    needed, there = (HEAD + nrows) * index.itemsize + nnz * (index.itemsize + scalar.itemsize), path.stat().st_size
    if there < needed:
        raise BenchError(
            f"{path}: truncated, or of another precision: {nrows} x {ncols} with {nnz} entries take {needed} bytes "
            f"with {scalar} values and {index} indices, the file has {there}"
        )
    return nrows, ncols, nnz


def load(path: Path, scalar: np.dtype, index: np.dtype) -> tuple[scipy.sparse.csr_matrix, int]:
    """The matrix in a file, read by PETSc, and its block size; BenchError for a file that does not hold one."""
    from petsc4py import PETSc

    nrows, ncols, nnz = sizes(path, scalar, index)
    _check_pattern(path, nrows, ncols, nnz, index)
    try:
        viewer = PETSc.Viewer().createBinary(str(path), "r", comm=PETSc.COMM_SELF)
        matrix = PETSc.Mat().create(PETSc.COMM_SELF)
        matrix.setType(PETSc.Mat.Type.SEQAIJ)
        matrix.load(viewer)
    except PETSc.Error as e:
        raise BenchError(f"{path}: PETSc cannot load it (error {e.ierr})") from e
    rowptr, columns, values = matrix.getValuesCSR()
    block_size = matrix.getBlockSize()
    viewer.destroy()
    matrix.destroy()
    return scipy.sparse.csr_matrix((values, columns, rowptr), shape=(nrows, ncols)), block_size


def _check_pattern(path: Path, nrows: int, ncols: int, nnz: int, index: np.dtype) -> None:
    """BenchError for lengths and columns that PETSc would take as they are, and then read where nothing is."""
    number, start = index.newbyteorder(">"), HEAD * index.itemsize
    lengths = np.fromfile(path, dtype=number, count=nrows, offset=start)
    if lengths.min(initial=0) < 0 or lengths.sum(dtype=np.int64) != nnz:
        raise BenchError(f"{path}: the lengths of its rows do not add up to the {nnz} entries of its head")
    columns = np.fromfile(path, dtype=number, count=nnz, offset=start + nrows * index.itemsize)
    if nnz and not 0 <= columns.min() <= columns.max() < ncols:
        raise BenchError(
            f"{path}: column indices lie in [{columns.min()}, {columns.max()}], outside of {ncols} columns"
        )
