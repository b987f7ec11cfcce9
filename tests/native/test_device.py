"""The matrix types on a CUDA device, through petsc4py."""

import contextlib
import ctypes
import sys
from pathlib import Path

import builders
import launch
import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from copies import copied_bytes
from petsc_products import petsc_matrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.cupy_state import borrowed_stream
from petsc_gpufmt.choice.registry import FORMATS

pytestmark = pytest.mark.gpu

FOLDER = Path(__file__).parents[1] / "support" / "programs"
ROWS, COLUMNS = 700, 500
OPERATIONS = ("mult", "multAdd", "multAdd in place", "multTranspose", "multTransposeAdd", "multTransposeAdd in place")


@pytest.fixture(scope="module")
def petsc():
    import petsc4py

    petsc4py.init()
    from petsc4py import PETSc

    import petsc_gpufmt  # noqa: F401

    return PETSc


@pytest.fixture(params=FORMATS)
def pair(petsc, request):
    """A matrix in a format and the same matrix as plain AIJ."""
    source = builders.from_row_lengths(np.random.default_rng(31).integers(0, 30, ROWS), COLUMNS, seed=32)
    A = petsc_matrix(source, "aij")
    B = A.duplicate(copy=True)
    A.convert(request.param)
    yield A, B
    A.destroy()
    B.destroy()


def vector(petsc, size, kind, seed):
    v = petsc.Vec().create(petsc.COMM_SELF)
    v.setSizes(size)
    v.setType(kind)
    v.setArray(np.random.default_rng(seed).standard_normal(size).astype(petsc.ScalarType))
    return v


def apply(matrix, operation, x, y, z):
    """Carry out an operation and return the vector that holds its result."""
    name = operation.split()[0]
    if name in ("mult", "multTranspose"):
        getattr(matrix, name)(x, z)
        return z
    if "in place" in operation:
        getattr(matrix, name)(x, y, y)
        return y
    getattr(matrix, name)(x, y, z)
    return z


def operands(petsc, operation, kinds):
    transposed = "Transpose" in operation
    sizes = (ROWS, COLUMNS, COLUMNS) if transposed else (COLUMNS, ROWS, ROWS)
    return [vector(petsc, n, kind, seed) for n, kind, seed in zip(sizes, kinds, (33, 34, 35), strict=True)]


def assert_same_product(petsc, pair, operation, kinds):
    A, B = pair
    result = apply(A, operation, *operands(petsc, operation, kinds)).getArray().copy()
    expected = apply(B, operation, *operands(petsc, operation, ("seq",) * 3)).getArray()
    np.testing.assert_allclose(result, expected, rtol=rounding(1e-12), atol=rounding(1e-10))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_products_on_the_device_equal_those_of_aij(petsc, pair, operation):
    assert_same_product(petsc, pair, operation, ("seqcuda",) * 3)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "kinds", [("seq", "seqcuda", "seqcuda"), ("seqcuda", "seq", "seq"), ("seqcuda", "seq", "seqcuda")]
)
def test_vectors_of_both_memories_may_meet(petsc, pair, operation, kinds):
    assert_same_product(petsc, pair, operation, kinds)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_matrix_bound_to_the_cpu_multiplies_device_vectors(petsc, pair, operation):
    pair[0].bindToCPU(True)
    assert_same_product(petsc, pair, operation, ("seqcuda",) * 3)


def test_vectors_made_from_the_matrix_live_on_the_device(petsc, pair):
    assert [v.getType() for v in pair[0].createVecs()] == ["seqcuda", "seqcuda"]


def row_sums(matrix):
    ones, sums = matrix.createVecs()
    ones.set(1.0)
    matrix.mult(ones, sums)
    return sums.getArray()


def test_new_values_cost_one_upload_and_no_plan(petsc, pair):
    from petsc_gpufmt.planning import planner

    petsc.Log.begin()
    A, B = pair
    x, z = A.createVecs()
    x.set(1.0)
    A.mult(x, z)
    tokens = settled_tokens()
    A.scale(2.0)
    B.scale(2.0)
    before = copied_bytes("ctog")
    A.mult(x, z)
    values = A.getInfo()["nz_used"] * np.dtype(petsc.ScalarType).itemsize
    assert copied_bytes("ctog") - before == values
    A.mult(x, z)
    assert copied_bytes("ctog") - before == values
    assert planner.owned_tokens() == tokens
    np.testing.assert_allclose(z.getArray(), row_sums(B), rtol=rounding(1e-12), atol=rounding(1e-10))


def test_a_new_pattern_is_planned_again(petsc, pair):
    A, B = pair
    x, z = A.createVecs()
    x.set(1.0)
    A.mult(x, z)
    for M in pair:
        M.setOption(petsc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
        M.setValue(5, 7, 3.5, addv=True)
        M.assemble()
    A.mult(x, z)
    np.testing.assert_allclose(z.getArray(), row_sums(B), rtol=rounding(1e-12), atol=rounding(1e-10))


def test_products_return_the_same_bits_every_time(petsc, pair):
    A, _ = pair
    x, z = A.createVecs()
    x.setRandom()
    w = z.duplicate()
    w.setRandom()
    A.mult(x, z)
    first = z.getArray().tobytes()
    A.multTranspose(w, x)
    first_transposed = x.getArray().tobytes()
    for _ in range(200):
        x.setArray(np.random.default_rng(36).standard_normal(COLUMNS).astype(petsc.ScalarType))
        A.multTranspose(w, x)
        assert x.getArray().tobytes() == first_transposed
    assert first


def make_busy(stream):
    """Some 20 ms of work on a CUDA stream; what it works on is to be kept so long."""
    import cupy

    work = cupy.ones(1 << 26)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        for _ in range(50):
            work *= 1.0
    return work


def test_an_array_in_pinned_memory_may_change_when_its_upload_returns(petsc):
    """Though the stream is still busy with what came before."""
    import cupy
    import cupyx

    host, stream = cupyx.zeros_pinned(1 << 18), cupy.cuda.Stream(non_blocking=True)
    dev = cupy.ones(host.size)
    busy = make_busy(stream)
    native_library.upload(dev, host, stream.ptr)
    host[:] = 2.0
    stream.synchronize()
    assert busy[0] == 1.0
    assert not dev.any()


def test_a_matrix_may_go_while_another_stream_still_multiplies_it(petsc):
    """What is stored next, on the first stream, must not take its memory before."""
    import cupy

    source = builders.from_row_lengths(np.full(ROWS, 20), ROWS, seed=33)
    A, B = (petsc_matrix(source, "pjds") for _ in range(2))
    B.scale(3.0)
    x, z = A.createVecs()
    x.set(1.0)
    A.mult(x, z)
    expected, first = z.getArray().copy(), petsc.DeviceContext.getCurrent()
    second = petsc.DeviceContext().create()
    second.setStreamType("nonblocking")
    second.setUp()
    petsc.DeviceContext.setCurrent(second)
    pointer = ctypes.c_void_p()
    assert native_library.load().PetscGetCurrentCUDAStream(ctypes.byref(pointer)) == 0
    busy = make_busy(borrowed_stream(cupy.cuda, pointer.value, 0))
    A.mult(x, z)
    A.destroy()
    petsc.DeviceContext.setCurrent(first)
    y = x.duplicate()
    B.mult(x, y)
    second.synchronize()
    assert busy[0] == 1.0
    np.testing.assert_allclose(z.getArray(), expected, rtol=rounding(1e-12))


def test_destroying_a_matrix_gives_its_memory_back(petsc, pair):
    from petsc_gpufmt.planning import planner

    A = pair[0].duplicate(copy=True)
    before = settled_tokens()
    x, z = A.createVecs()
    A.mult(x, z)
    A.multTranspose(z, x)
    assert planner.owned_tokens() == before + 2
    A.destroy()
    assert planner.owned_tokens() == before


def test_out_of_device_memory_is_one_clear_error_and_loses_nothing(petsc, pair, monkeypatch):
    from petsc_gpufmt.backends import driver
    from petsc_gpufmt.backends.device_memory import trim_all

    A, B = pair
    x, z = A.createVecs()
    x.set(1.0)

    def refuse(pool, nbytes, stream):
        raise driver.DriverMemoryError(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")

    trim_all()  # what is kept for later would do
    with monkeypatch.context() as patch, pytest.raises(petsc.Error) as failure:
        patch.setattr(driver, "allocate_from_pool", refuse)
        A.mult(x, z)
    assert failure.value.ierr == 55  # PETSC_ERR_MEM
    A.mult(x, z)
    np.testing.assert_allclose(z.getArray(), row_sums(B), rtol=rounding(1e-12), atol=rounding(1e-10))


def test_memory_of_plans_stays_in_one_pool_until_that_is_trimmed(petsc):
    from petsc_gpufmt.backends import driver
    from petsc_gpufmt.backends.device_memory import memory_of, trim_all

    def pool(attribute):
        return driver.pool_bytes(memory._pool, attribute)

    memory, size = memory_of(0), 1 << 26
    with driver.current(memory.context):
        trim_all()
        used = pool(driver.USED_BYTES)
        (a,) = memory.empty(((size, np.dtype(np.int8)),), 0)
        reserved = pool(driver.RESERVED_BYTES)
        assert pool(driver.USED_BYTES) >= used + size
        del a
        assert memory.pooled_bytes() >= size - used  # not all that is in use is among what the driver has reserved
        (a,) = memory.empty(((size, np.dtype(np.int8)),), 0)
        assert pool(driver.RESERVED_BYTES) == reserved
        del a
        trim_all()
        assert pool(driver.USED_BYTES) == used and memory.pooled_bytes() < size


WITHOUT_CUPY = """
import sys
import numpy as np
import petsc4py
petsc4py.init(["program", "-options_left", "no", "-mat_gpufmt_timed_after", "3"])
from petsc4py import PETSc
import petsc_gpufmt
n = 600
A = PETSc.Mat().createAIJ((n, n), nnz=9, bsize=3, comm=PETSc.COMM_SELF)
rows = np.arange(n, dtype=PETSc.IntType)
for i in range(n):
    columns = np.unique((i // 3 * 3 + np.array([0, 1, 2, 30, 31, 32, 300, 301, 302], PETSc.IntType)) % n)
    A.setValues(i, columns, np.full(columns.size, 1.0 / columns.size, PETSc.ScalarType))
A.assemble()
A.convert("MAT_TYPE")
x, z = A.createVecs()
x.set(1.0)
for _ in range(5):
    A.mult(x, z)
A.multTranspose(x, z)
C = A.matMult(A)
D = A.ptap(A)
C.mult(x, z)
assert abs(z.max()[1] - 1.0) < 100 * np.finfo(PETSc.ScalarType).eps, z.max()
C.diagonalScale(x, x)
C.axpy(2.0, A, structure=PETSc.Mat.Structure.SUBSET)
D.mult(x, z)
print("imported:", *(name for name in ("cupy", "scipy") if name in sys.modules))
"""


@pytest.mark.parametrize("mat_type", ["pjds", "bsr", "evchyb", "gpufmt"])
def test_plans_with_default_options_import_no_cupy(mat_type):
    program = [sys.executable, "-c", WITHOUT_CUPY.replace("MAT_TYPE", mat_type)]
    for _ in range(2):  # the first run may have to compile kernels, by CuPy's binding of NVRTC
        finished = launch.run(program)
        assert finished.status == 0, str(finished)
    assert finished.output.strip() == "imported:", str(finished)


def test_an_array_of_the_package_is_one_of_cupy_without_a_copy(petsc):
    import cupy

    from petsc_gpufmt.backends.backend import CudaBackend

    backend = CudaBackend(np.float64, petsc.IntType, device=0)
    a = backend.adopt(np.arange(1000.0))
    seen = cupy.asarray(a[10:20])
    assert seen.data.ptr == a.ptr + 80 and seen.tolist() == list(range(10, 20))
    assert cupy.asarray(a[5:5]).size == 0
    backend.clear(a)
    del a
    assert not seen.any()
    assert backend.first(cupy.arange(5), 3) == [0, 1, 2] and backend.to_host(cupy.arange(3)).tolist() == [0, 1, 2]


@contextlib.contextmanager
def full_device(leave):
    """All of the memory that is free is taken, but for about `leave` bytes."""
    import cupy

    runtime, taken = cupy.cuda.runtime, []
    try:
        for parts in (1, 2, 4, 8, 16, 32):  # what is free is not always in one piece
            with contextlib.suppress(runtime.CUDARuntimeError):
                while (free := runtime.memGetInfo()[0]) > 1.5 * leave:
                    taken.append(runtime.malloc((free - leave) // parts))
        yield
    finally:
        for memory in taken:
            runtime.free(memory)


@pytest.mark.whole_device
def test_out_of_device_memory_in_a_refresh_loses_nothing(petsc):
    from petsc_gpufmt.backends.device_memory import free_pools

    n = 2_000_000
    rowptr, colidx = np.arange(n + 1), np.arange(n)
    values = np.full(n, 2.0, petsc.ScalarType)
    csr = (rowptr.astype(petsc.IntType), colidx.astype(petsc.IntType), values)
    A = petsc.Mat().createAIJ((n, n), csr=csr, comm=petsc.COMM_SELF)
    A.convert("aijpjds")
    x, z = A.createVecs()
    x.set(1.0)
    A.mult(x, z)
    A.scale(3.0)
    free_pools()
    with full_device(leave=values.nbytes // 2), pytest.raises(petsc.Error) as failure:
        A.mult(x, z)  # the refresh needs all of them
    assert failure.value.ierr == 55  # PETSC_ERR_MEM
    A.mult(x, z)
    assert z.norm(petsc.NormType.INFINITY) == 6.0
    for o in (A, x, z):
        o.destroy()


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.mpi)])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_steady_krylov_loop_copies_no_vectors(format_name, ranks):
    finished = launch.run([sys.executable, FOLDER / "ksp_copies.py", "-format", format_name], ranks=ranks)
    assert finished.status == 0, str(finished)


@pytest.mark.parametrize("kind", ["seqcuda", "seq"])
@pytest.mark.parametrize("multiplied", [False, True])
def test_the_diagonal_is_that_of_aij_wherever_the_vector_lives(petsc, kind, multiplied):
    plan = petsc.Log.Event("GpufmtPlan")
    source = builders.from_row_lengths(np.random.default_rng(36).integers(0, 30, ROWS), ROWS, seed=37)
    A = petsc_matrix(source, "aij")
    diagonal = vector(petsc, ROWS, "seq", 38)
    A.getDiagonal(diagonal)
    expected = diagonal.getArray().copy()
    for name in FORMATS:
        B = A.convert(name, petsc.Mat())
        result = vector(petsc, ROWS, kind, 39)
        if multiplied:
            row_sums(B)
        before = plan.getPerfInfo()["count"]

        B.getDiagonal(result)

        assert result.getArray().tolist() == expected.tolist(), name
        assert plan.getPerfInfo()["count"] == before, name  # nothing is stored for the diagonal alone
        B.destroy()


def test_a_diagonal_on_the_device_copies_nothing_once_the_values_are_there(petsc, pair):
    A, _ = pair
    square = A.transposeMatMult(A)
    A.destroy()
    row_sums(square)
    result = vector(petsc, COLUMNS, "seqcuda", 40)
    before = copied_bytes("ctog"), copied_bytes("gtoc")

    square.getDiagonal(result)

    assert (copied_bytes("ctog"), copied_bytes("gtoc")) == before
