"""The peer cuSPARSE for sparse products, with a stand-in for the library that multiplies on the host."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import cusparse, cusparse_spgemm  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.places import host_place  # noqa: E402
from petsc_gpufmt.bench.spgemm_tasks import galerkin_product, matrix_product  # noqa: E402

SCALAR, INDEX = np.dtype(np.float64), np.dtype(np.int32)
SIZES = {"cusparseSpGEMM_workEstimation": 24, "cusparseSpGEMM_estimateMemory": 40}

ACTIONS = {
    "cusparseSpGEMM_workEstimation": "estimate_work",
    "cusparseSpGEMM_estimateMemory": "estimate_memory",
    "cusparseSpGEMM_compute": "compute",
    "cusparseSpMatGetSize": "get_size",
    "cusparseCsrSetPointers": "set_pointers",
    "cusparseSpGEMM_copy": "copy",
}


def array(address, dtype, size):
    memory = (ctypes.c_char * (size * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(memory, dtype=dtype)


class FakeCusparse:
    """Hands out numbers as handles and multiplies by way of the addresses it was given, where cuSPARSE would."""

    def __init__(self, failing=None, missing=None):
        self.calls, self.alive, self.failing, self.matrices = [], set(), failing, {}
        for name in {**cusparse.COMMON_PROTOTYPES, **cusparse_spgemm.PROTOTYPES}:
            if name != missing:
                setattr(self, name, self.function(name))
        self.cusparseGetErrorString = lambda status: b"insufficient resources"

    def function(self, name):
        def called(*arguments):
            self.calls.append((name, *arguments))
            if name == self.failing:
                return 11
            if "reate" in name:
                handle = len(self.calls)
                self.alive.add(handle)
                arguments[0]._obj.value = handle
                if name == "cusparseCreateCsr":
                    self.matrices[handle] = list(arguments[1:])
            elif "estroy" in name:
                self.alive.remove(arguments[0].value)
            elif name in ACTIONS:
                getattr(self, ACTIONS[name])(*arguments)
            return 0

        return called

    def stored(self, descriptor):
        nrows, ncols, nnz, rowptr, columns, values, *_ = self.matrices[descriptor.value]
        arrays = array(values, SCALAR, nnz), array(columns, INDEX, nnz), array(rowptr, INDEX, nrows + 1)
        return scipy_sparse.csr_matrix(arrays, shape=(nrows, ncols))

    def estimate_work(self, *arguments):
        assert arguments[3] and array(arguments[3], SCALAR, 1)[0] == 1  # alpha
        assert array(arguments[6], SCALAR, 1)[0] == 0  # beta
        self.buffer_or_size("cusparseSpGEMM_workEstimation", *arguments[-2:])

    def estimate_memory(self, *arguments):
        self.buffer_or_size("cusparseSpGEMM_estimateMemory", *arguments[-3:-1])
        if arguments[-2]:
            arguments[-1]._obj.value = 56

    def compute(self, *arguments):
        if arguments[-1] is None:
            arguments[-2]._obj.value = 56
        else:
            assert arguments[-2]._obj.value == 56
            self.product = self.stored(arguments[4]) @ self.stored(arguments[5])

    def buffer_or_size(self, name, size, buffer):
        if buffer is None:
            size._obj.value = SIZES[name]
        else:
            assert size._obj.value == SIZES[name]

    def get_size(self, descriptor, nrows, ncols, nnz):
        nrows._obj.value, ncols._obj.value, nnz._obj.value = *self.product.shape, self.product.nnz

    def set_pointers(self, descriptor, *pointers):
        self.matrices[descriptor.value][2:6] = [self.product.nnz, *pointers]

    def copy(self, *arguments):
        nrows, _, nnz, rowptr, columns, values, *_ = self.matrices[arguments[7].value]
        array(rowptr, INDEX, nrows + 1)[:] = self.product.indptr
        array(columns, INDEX, nnz)[:], array(values, SCALAR, nnz)[:] = self.product.indices, self.product.data


def random(nrows, ncols):
    matrix = scipy_sparse.random(nrows, ncols, 0.2, format="csr", random_state=np.random.default_rng(3))
    matrix.sort_indices()
    return matrix


def prepared(task, algorithm="ALG1", **fake):
    place, library = host_place(), FakeCusparse(**fake)
    if (place.backend.scalar, place.backend.index) != (SCALAR, INDEX):
        pytest.skip("the arrays of the stand-in are double and 32-bit")
    loaded = cusparse.Cusparse(library, cusparse_spgemm.PROTOTYPES, cusparse_spgemm.RELEASE)
    return library, cusparse_spgemm.CusparseSpgemmRun(loaded, task, algorithm, place.backend, 77)


def names(library):
    return [call[0].removeprefix("cusparseSpGEMM_") for call in library.calls]


@pytest.mark.parametrize("algorithm", cusparse_spgemm.ALGORITHMS)
def test_product(algorithm):
    task = matrix_product(random(30, 40), random(40, 20))
    library, run = prepared(task, algorithm)
    for _ in range(2):
        run.drop()
        run.cold()
        assert task.reference.error(run.result(), sort=True) <= 1
    given = next(call for call in library.calls if call[0] == "cusparseCreateCsr")
    assert given[2:5] == (30, 40, task.operands[0].nnz)
    assert given[8:] == (2, 2, 0, 1)  # 32-bit indices from 0, double values
    assert next(call for call in library.calls if call[0] == "cusparseSetStream")[2] == 77
    work = next(call for call in library.calls if call[0] == "cusparseSpGEMM_workEstimation")
    assert work[9:11] == (1, {"ALG1": 3, "ALG2": 4, "ALG3": 5}[algorithm])
    assert ("estimateMemory" in names(library)) == (algorithm != "ALG1")
    run.close()
    assert not library.alive


def test_square_has_one_matrix():
    A = random(20, 20)
    library, run = prepared(matrix_product(A, A))
    assert names(library).count("cusparseCreateCsr") == 1
    run.close()


def test_galerkin_product():
    task = galerkin_product(random(30, 30), random(30, 8))
    library, run = prepared(task)
    run.cold()
    assert task.reference.error(run.result(), sort=True) <= 1
    run.close()
    assert not library.alive


@pytest.mark.parametrize("failing", ["cusparseSetStream", "cusparseSpGEMM_compute"])
def test_refusal_is_told_and_nothing_is_left(failing):
    library = FakeCusparse(failing=failing)
    loaded = cusparse.Cusparse(library, cusparse_spgemm.PROTOTYPES, cusparse_spgemm.RELEASE)
    A = random(10, 10)
    with pytest.raises(BenchError, match=f"{failing}: insufficient resources"):
        run = cusparse_spgemm.CusparseSpgemmRun(loaded, matrix_product(A, A), "ALG1", host_place().backend, 0)
        try:
            run.cold()
        finally:
            run.close()
    assert not library.alive


def test_old_cusparse_is_told():
    library = FakeCusparse(missing="cusparseSpGEMM_estimateMemory")
    with pytest.raises(BenchError, match="no cusparseSpGEMM_estimateMemory: CUDA 12.0"):
        cusparse.Cusparse(library, cusparse_spgemm.PROTOTYPES, cusparse_spgemm.RELEASE)
