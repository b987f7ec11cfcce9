"""The peer for blocked matrices: MatMult in BSR by cuSPARSE's generic interface (CUDA 13 and the last of 12).

CuPy does not offer them, so the library that this process has loaded already is called through ctypes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import address
from petsc_gpufmt.bench.contenders import Contender, Mult
from petsc_gpufmt.bench.cusparse import (
    INDEX_BASE_ZERO,
    INDEX_TYPES,
    NON_TRANSPOSE,
    SCALARS,
    VALUE_TYPES,
    Cusparse,
    Handles,
    loaded_library,
)
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.bench.places import Place

ORDERS = {"column": 1, "row": 2}
DEFAULT_ALGORITHM = 0
RELEASE = "12.6"

_MULT_TYPES = [c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int]
PROTOTYPES: dict[str, Sequence[Any]] = {
    "cusparseCreateBsr": [POINTER(c_void_p), *[c_int64] * 5, *[c_void_p] * 3, *[c_int] * 5],
    "cusparseCreateDnVec": [POINTER(c_void_p), c_int64, c_void_p, c_int],
    "cusparseDestroyDnVec": [c_void_p],
    "cusparseSpMV_bufferSize": [*_MULT_TYPES, POINTER(c_size_t)],
    "cusparseSpMV": [*_MULT_TYPES, c_void_p],
}


def block_arrays(matrix: BenchMatrix, xp: Any) -> tuple[Any, Any, Any]:
    """Block row pointer, block columns and values (block, row in it, column in it) of a fully blocked matrix."""
    size, csr = matrix.block_size, matrix.csr
    lengths = np.diff(csr.indptr)
    blocked = lengths.size % size == 0 and bool((lengths == np.repeat(lengths[::size], size)).all())
    left, right = csr.indices[::size], csr.indices[size - 1 :: size]
    if not blocked or (lengths % size).any() or (left % size).any() or (right - left != size - 1).any():
        raise BenchError(f"{matrix.name} does not consist of {size} x {size} blocks")
    rowptr = xp.asarray(csr.indptr[::size] // (size * size))
    nblocks = int(rowptr[-1])
    block = xp.arange(nblocks, dtype=xp.int64)
    block_row = xp.searchsorted(rowptr[1:], block, side="right")
    before = rowptr[block_row].astype(xp.int64)
    first = (before * size + (block - before)) * size  # of the entries of a block in the CSR arrays
    row_length = (rowptr[block_row + 1] - rowptr[block_row]).astype(xp.int64) * size
    inside = xp.arange(size, dtype=xp.int64)
    entries = first[:, None, None] + row_length[:, None, None] * inside[:, None] + inside
    columns = xp.asarray(csr.indices)[first] // size
    return rowptr, columns, xp.asarray(csr.data)[entries]


class CusparseBsrMult(Mult):
    """A mult with the arrays of block_arrays() on `backend`; `stream` is the address of the CUDA stream."""

    def __init__(
        self, cusparse: Cusparse, arrays: tuple[Any, Any, Any], x: Any, order: str, backend: Backend, stream: int
    ):
        self.cusparse, self.backend = cusparse, backend
        self.handles = Handles(cusparse)
        xp = backend.xp
        rowptr, columns, values = arrays
        if order == "column":
            values = xp.ascontiguousarray(values.transpose(0, 2, 1))
        nblocks, size, _ = values.shape
        scalar, index = values.dtype.itemsize, rowptr.dtype.itemsize
        self.x, self.z = x, xp.empty((rowptr.size - 1) * size, dtype=values.dtype)
        self.kept: Any = (rowptr, columns, values)
        one, zero = SCALARS[scalar](1.0), SCALARS[scalar](0.0)
        try:
            handle = self.handles.create("cusparseCreate", "cusparseDestroy")
            cusparse.call("cusparseSetStream", handle, stream)
            A = self.handles.create(
                *("cusparseCreateBsr", "cusparseDestroySpMat"),
                *(rowptr.size - 1, x.size // size, nblocks, size, size),
                *(address(array) for array in self.kept),
                *(INDEX_TYPES[index], INDEX_TYPES[index], INDEX_BASE_ZERO, VALUE_TYPES[scalar], ORDERS[order]),
            )
            x_vector, z_vector = (
                self.handles.create(
                    "cusparseCreateDnVec", "cusparseDestroyDnVec", vector.size, address(vector), VALUE_TYPES[scalar]
                )
                for vector in (self.x, self.z)
            )
            self.scalars = one, zero
            alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)
            self.arguments = (
                *(handle, NON_TRANSPOSE, alpha, A, x_vector, beta, z_vector),
                *(VALUE_TYPES[scalar], DEFAULT_ALGORITHM),
            )
            nbytes = c_size_t()
            cusparse.call("cusparseSpMV_bufferSize", *self.arguments, ctypes.byref(nbytes))
            self.buffer = xp.empty(max(1, nbytes.value), dtype=xp.int8)
            self.call()
        except BenchError:
            self.close()
            raise

    def call(self) -> None:
        self.cusparse.call("cusparseSpMV", *self.arguments, address(self.buffer))

    def result(self) -> np.ndarray:
        self.z.fill(np.nan)
        self.call()
        return self.backend.to_host(self.z).copy()

    def close(self) -> None:
        self.handles.close()
        self.kept = self.x = self.z = self.buffer = None


@dataclass(frozen=True)
class CusparseBsrContender(Contender):
    """cuSPARSE with the entries of a block in one order, "row" or "column"."""

    order: str = "row"

    def prepare(self, matrix: BenchMatrix, x: np.ndarray, place: Place) -> Mult:
        backend = place.backend
        cusparse = Cusparse(loaded_library(), PROTOTYPES, RELEASE)
        stream = backend.xp.cuda.get_current_stream().ptr
        arrays = block_arrays(matrix, backend.xp)
        return CusparseBsrMult(cusparse, arrays, backend.xp.asarray(x), self.order, backend, stream)
