"""The peer for sparse products: SpGEMM of cuSPARSE's generic interface, with each of its three algorithms."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

import scipy.sparse

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import address
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
from petsc_gpufmt.bench.places import Place
from petsc_gpufmt.bench.spgemm_contender import PreparedProduct, SpgemmContender, host_csr, once_each
from petsc_gpufmt.bench.spgemm_tasks import ProductTask, sorted_transpose

ALGORITHMS = {"ALG1": 3, "ALG2": 4, "ALG3": 5}
"""Name -> value of cusparseSpGEMMAlg_t."""

ESTIMATING = ("ALG2", "ALG3")
"""Algorithms that are asked for the size of their second buffer beforehand."""

CHUNK_FRACTION = 0.2
"""Share of the terms that ALG3 works on at once, that of cuSPARSE's own example."""

RELEASE = "12.0"

_SIZE = POINTER(c_size_t)
_PRODUCT_TYPES = [c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p]
PROTOTYPES: dict[str, Sequence[Any]] = {
    "cusparseCreateCsr": [POINTER(c_void_p), *[c_int64] * 3, *[c_void_p] * 3, *[c_int] * 4],
    "cusparseCsrSetPointers": [c_void_p] * 4,
    "cusparseSpMatGetSize": [c_void_p, *[POINTER(c_int64)] * 3],
    "cusparseSpGEMM_createDescr": [POINTER(c_void_p)],
    "cusparseSpGEMM_destroyDescr": [c_void_p],
    "cusparseSpGEMM_workEstimation": [*_PRODUCT_TYPES, _SIZE, c_void_p],
    "cusparseSpGEMM_estimateMemory": [*_PRODUCT_TYPES, c_float, _SIZE, c_void_p, _SIZE],
    "cusparseSpGEMM_compute": [*_PRODUCT_TYPES, _SIZE, c_void_p],
    "cusparseSpGEMM_copy": _PRODUCT_TYPES,
}


@dataclass
class DeviceCsr:
    """A CSR matrix on the device: its shape, its arrays, its descriptor in cuSPARSE."""

    shape: tuple[int, int]
    rowptr: Any
    columns: Any
    values: Any
    descriptor: c_void_p


class CusparseSpgemmRun(PreparedProduct):
    """Products on `backend`; `stream` is the address of the CUDA stream. P^T of P^T A P is made beforehand."""

    has_numeric = False

    def __init__(self, cusparse: Cusparse, task: ProductTask, algorithm: str, backend: Backend, stream: int):
        self.cusparse, self.algorithm, self.backend, self.kind = cusparse, algorithm, backend, task.kind
        self.one, self.zero = (SCALARS[backend.scalar.itemsize](value) for value in (1.0, 0.0))
        self.kept, self.made = Handles(cusparse), Handles(cusparse)
        self.C: Any = None
        try:
            self.handle = self.kept.create("cusparseCreate", "cusparseDestroy")
            cusparse.call("cusparseSetStream", self.handle, stream)
            self.left, self.right = once_each(task.operands, self._on_device)
            self.transpose = self._on_device(sorted_transpose(task.operands[1])) if self.kind == "PtAP" else None
        except BenchError:
            self.close()
            raise

    def _on_device(self, operand: scipy.sparse.csr_matrix) -> DeviceCsr:
        arrays = (self.backend.xp.asarray(array) for array in (operand.indptr, operand.indices, operand.data))
        return self._matrix(self.kept, operand.shape, *arrays)

    def _matrix(self, handles: Handles, shape: tuple[int, int], rowptr: Any, columns: Any, values: Any) -> DeviceCsr:
        index = INDEX_TYPES[self.backend.index.itemsize]
        descriptor = handles.create(
            *("cusparseCreateCsr", "cusparseDestroySpMat", *shape, values.size),
            *(address(array) for array in (rowptr, columns, values)),
            *(index, index, INDEX_BASE_ZERO, VALUE_TYPES[self.backend.scalar.itemsize]),
        )
        return DeviceCsr(shape, rowptr, columns, values, descriptor)

    def _product(self, left: DeviceCsr, right: DeviceCsr) -> DeviceCsr:
        """left right: work estimation, computation in buffers of the sizes that were asked for, copy of the result."""
        xp, backend, call = self.backend.xp, self.backend, self.cusparse.call
        shape = left.shape[0], right.shape[1]
        rowptr = xp.empty(shape[0] + 1, dtype=backend.index)
        nothing = (xp.empty(0, dtype=kind) for kind in (backend.index, backend.scalar))
        C = self._matrix(self.made, shape, rowptr, *nothing)
        task = self.made.create("cusparseSpGEMM_createDescr", "cusparseSpGEMM_destroyDescr")
        arguments = (
            *(self.handle, NON_TRANSPOSE, NON_TRANSPOSE, ctypes.addressof(self.one), left.descriptor),
            *(right.descriptor, ctypes.addressof(self.zero), C.descriptor),
            *(VALUE_TYPES[backend.scalar.itemsize], ALGORITHMS[self.algorithm], task),
        )
        size, second = c_size_t(), c_size_t()
        call("cusparseSpGEMM_workEstimation", *arguments, ctypes.byref(size), None)
        work = self._buffer(size)
        call("cusparseSpGEMM_workEstimation", *arguments, ctypes.byref(size), address(work))
        if self.algorithm in ESTIMATING:
            estimate = (*arguments, CHUNK_FRACTION, ctypes.byref(size))
            call("cusparseSpGEMM_estimateMemory", *estimate, None, None)
            estimation = self._buffer(size)
            call("cusparseSpGEMM_estimateMemory", *estimate, address(estimation), ctypes.byref(second))
            del estimation
        else:
            call("cusparseSpGEMM_compute", *arguments, ctypes.byref(second), None)
        buffer = self._buffer(second)
        call("cusparseSpGEMM_compute", *arguments, ctypes.byref(second), address(buffer))
        nrows, ncols, nnz = c_int64(), c_int64(), c_int64()
        call("cusparseSpMatGetSize", C.descriptor, *(ctypes.byref(number) for number in (nrows, ncols, nnz)))
        C.columns, C.values = (xp.empty(nnz.value, dtype=kind) for kind in (backend.index, backend.scalar))
        call("cusparseCsrSetPointers", C.descriptor, *(address(array) for array in (C.rowptr, C.columns, C.values)))
        call("cusparseSpGEMM_copy", *arguments)
        return C

    def _buffer(self, size: c_size_t) -> Any:
        return self.backend.xp.empty(max(1, size.value), dtype="int8")

    def cold(self) -> None:
        product = self._product(self.left, self.right)
        self.C = product if self.transpose is None else self._product(self.transpose, product)

    def numeric(self) -> None:
        raise BenchError("cusparseSpGEMM has no numeric phase of its own")

    def drop(self) -> None:
        self.C = None
        self.made.close()

    def result(self) -> scipy.sparse.csr_matrix:
        C = self.C
        return host_csr(C.shape, *(self.backend.to_host(array) for array in (C.rowptr, C.columns, C.values)))

    def close(self) -> None:
        self.drop()
        self.kept.close()
        self.left = self.right = self.transpose = None


@dataclass(frozen=True)
class CusparseSpgemm(SpgemmContender):
    """cuSPARSE with one of its algorithms; its buffers come from CuPy's pool."""

    algorithm: str = "ALG1"

    in_pool = True

    def prepare(self, task: ProductTask, place: Place) -> PreparedProduct:
        cusparse = Cusparse(loaded_library(), PROTOTYPES, RELEASE)
        stream = place.backend.xp.cuda.get_current_stream().ptr
        return CusparseSpgemmRun(cusparse, task, self.algorithm, place.backend, stream)
