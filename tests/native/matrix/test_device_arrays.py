"""Arrays over the memory of vectors and matrices: what is written there is theirs, and what must not be is refused."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from bounds import rounding
from copies import copied_bytes
from fake_cupy import FakeCupy
from fake_driver import fake_driver
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.device_memory import memory_of
from petsc_gpufmt.device_arrays import LARGE, Access, array_module, diagonal, matrix_values, vector_array
from petsc_gpufmt.errors import GpufmtError, UnsupportedError

ROOT = Path(__file__).resolve().parents[3]
N = 30
LIBRARY = native_library.load()


@pytest.fixture(params=["host", "simulated", pytest.param("device", marks=pytest.mark.gpu)], autouse=True)
def place(request):
    """Where values lie; no managed arrays may be left behind."""
    gc.collect()
    before = LIBRARY.GpufmtManagedCount()
    if request.param != "device" and not LIBRARY.GpufmtManagedSimulate(request.param == "simulated"):
        pytest.skip("there is a device")
    yield request.param
    gc.collect()
    assert LIBRARY.GpufmtManagedCount() == before
    LIBRARY.GpufmtManagedSimulate(0)


def tridiagonal(mat_type="pjds"):
    A = PETSc.Mat().createAIJ(N, nnz=3, comm=PETSc.COMM_SELF)
    for i in range(N):
        for j in range(max(i - 1, 0), min(i + 2, N)):
            A.setValue(i, j, 1.0 + i + 0.1 * j)
    A.assemble()
    if mat_type != "aij":
        A.convert(mat_type)
    return A


def vector(entries):
    v = PETSc.Vec().createSeq(len(entries))
    v.setArray(np.asarray(entries, PETSc.ScalarType))
    return v


def product(A):
    x, y = A.createVecs()
    x.setArray(np.arange(1.0, N + 1, dtype=PETSc.ScalarType))
    A.mult(x, y)
    return y.getArray().copy()


def on_host(array):
    return array if isinstance(array, np.ndarray) else array.get()


def test_what_is_written_into_a_vector_is_there_and_counts_as_a_change():
    v = vector(np.arange(4.0))
    states = [v.stateGet()]
    with vector_array(v, "r") as entries, vector_array(v, "r") as again:
        assert entries.tolist() == again.tolist() == [0.0, 1.0, 2.0, 3.0]
        with pytest.raises(ValueError, match="read-only"):
            entries[0] = 5.0
    states.append(v.stateGet())
    with vector_array(v) as entries:
        entries *= 2.0
    with pytest.raises(ZeroDivisionError), vector_array(v, "w") as entries:
        entries[:2] = 7.0
        raise ZeroDivisionError
    states.append(v.stateGet())
    assert v.getArray().tolist() == [7.0, 7.0, 4.0, 6.0]
    assert states[0] == states[1] < states[2]
    with vector_array(vector([])) as entries:
        assert entries.shape == (0,)


def test_what_is_written_into_a_matrix_is_multiplied_and_read(place):
    """Twice: the second time the values are where the first has left them; a third time all of them are new."""
    A, B = tridiagonal(), tridiagonal("aij")
    product(A)
    for _ in range(2):
        state = A.stateGet()
        with matrix_values(A, "rw") as (values, offdiagonal):
            assert values.size == 3 * N - 2 and offdiagonal.size == 0
            values *= 2.0
        assert A.stateGet() > state
        B.scale(2.0)
        np.testing.assert_allclose(product(A), product(B), rtol=rounding(1e-14))
    assert LIBRARY.GpufmtManagedCount() == (place != "host")
    state = A.stateGet()
    with matrix_values(A, "r") as (values, _), matrix_values(A, "r"):
        np.testing.assert_array_equal(on_host(values), B.getValuesCSR()[2])
    assert A.stateGet() == state
    with matrix_values(A, "w") as (values, _):
        values[...] = 3.0
    np.testing.assert_array_equal(A.getValuesCSR()[2], np.full(3 * N - 2, 3.0))
    np.testing.assert_allclose(product(A)[1], 3.0 * (1 + 2 + 3))
    A.setValue(0, 0, 9.0)
    A.assemble()
    with matrix_values(A) as (values, _):
        values[1] = 1.0
    assert product(A)[0] == 9.0 + 2.0


def test_the_diagonal_is_a_copy_that_is_put_back_if_it_is_written():
    A = tridiagonal()
    with diagonal(A) as entries:
        np.testing.assert_allclose(on_host(entries), 1.0 + 1.1 * np.arange(N))
    with diagonal(A, "rw") as entries:
        entries += 1.0
    with pytest.raises(ZeroDivisionError), diagonal(A, "w") as entries:
        entries[...] = 0.0
        raise ZeroDivisionError
    np.testing.assert_allclose(A.getDiagonal().getArray(), 2.0 + 1.1 * np.arange(N))
    np.testing.assert_allclose(product(A)[0], 2.0 * 1.0 + 1.1 * 2.0)


def refused(error, text, access):
    with pytest.raises(error, match=text) as failure, access:
        pass
    assert "\n" not in str(failure.value)


def test_what_cannot_be_had_is_one_clear_line():
    A, v = tridiagonal(), vector(np.ones(4))
    refused(TypeError, "PETSc.Vec is needed here, and this is a Mat", vector_array(A))
    refused(TypeError, "PETSc.Mat is needed here, and this is a ndarray", matrix_values(np.ones(3)))
    refused(ValueError, "this PETSc.Mat was not created yet", matrix_values(PETSc.Mat()))
    for function, given in ((vector_array, v), (matrix_values, A), (diagonal, A)):
        refused(ValueError, "the mode is 'a', and it must be", function(given, "a"))
    refused(GpufmtError, "the matrix is of type seqaij: use the matrix's own", matrix_values(tridiagonal("aij")))
    refused(GpufmtError, "the vector has no entries yet", vector_array(PETSc.Vec().create(PETSc.COMM_SELF)))
    fresh = PETSc.Mat().createAIJ(3, nnz=1, comm=PETSc.COMM_SELF)
    fresh.setType("pjds")
    refused(GpufmtError, "the matrix is not assembled: give it values", matrix_values(fresh))
    refused(GpufmtError, "the matrix is not assembled", diagonal(fresh))
    LIBRARY.VecLockReadPush(ctypes.c_void_p(v.handle))
    refused(GpufmtError, "the vector is locked", vector_array(v))
    with vector_array(v, "r") as entries:
        assert entries.sum() == 4.0
    LIBRARY.VecLockReadPop(ctypes.c_void_p(v.handle))


@pytest.mark.parametrize(("outer", "inner"), [("r", "w"), ("w", "r"), ("rw", "rw")])
def test_nested_accesses_of_which_one_writes_are_refused(outer, inner):
    A, v = tridiagonal(), vector(np.ones(4))
    text = f'an access "{inner}" to a (vector|matrix) inside of an access "{outer}" to the same'
    with vector_array(v, outer), vector_array(vector(np.ones(2)), inner):
        refused(GpufmtError, text, vector_array(v, inner))
    with matrix_values(A, outer):
        refused(GpufmtError, text, matrix_values(A, inner))
        refused(GpufmtError, text, diagonal(A, inner))
    with vector_array(v, inner), matrix_values(A, inner):
        pass


def test_arrays_that_a_matrix_lost_while_they_were_written_are_an_error(place):
    A = tridiagonal()
    with pytest.raises(GpufmtError, match="the matrix got other arrays while its values were written"):  # noqa: SIM117
        with matrix_values(A, "w"):
            A.setPreallocationNNZ(5)
            A.setValue(0, 4, 1.0)
            A.assemble()
    with matrix_values(A, "rw") as (values, _):
        values *= 2.0
    x, y = A.createVecs()
    x.set(1.0)
    A.mult(x, y)
    assert y.getValue(0) == 2.0


def test_what_is_destroyed_meanwhile_stays_until_the_end():
    A, v = tridiagonal(), vector(np.ones(4))
    with matrix_values(A, "rw") as (values, _), vector_array(v) as entries:
        A.destroy()
        v.destroy()
        values += 1.0
        entries += 1.0
        assert entries.tolist() == [2.0] * 4


@pytest.fixture
def fake(monkeypatch, place):
    """What the library says of a device, over memory of the host; CuPy is NumPy."""
    if place != "host":
        pytest.skip("of a fake device")
    cupy = FakeCupy()
    cupy.calls = []
    real = native_library.call

    def call(name, *arguments):
        real(name, *arguments)
        cupy.calls.append(name)
        if name.endswith("Begin"):
            access = arguments[-1]._obj
            access.on_device, access.device, access.stream = 1, 3, 77

    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(native_library, "call", call)
    return cupy


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_arrays_of_a_device_are_cupys_on_its_stream(monkeypatch, mode, fake):
    v = vector(np.arange(4.0))
    with vector_array(v, mode) as entries:
        assert fake.entered[:2] == [("device", 3), ("stream", 77)]
        assert entries.owner.owner is v and "stream" in entries.owner.__cuda_array_interface__
        if mode == "rw":
            entries += 1.0
    assert fake.entered == [] and fake.calls == ["GpufmtVecAccessBegin", "GpufmtVecAccessEnd"]
    assert v.getArray().tolist() == [k + (mode == "rw") for k in range(4)]
    monkeypatch.setitem(sys.modules, "cupy", None)
    refused(UnsupportedError, "an array on the GPU needs CuPy", vector_array(v, mode))
    assert fake.calls[-1] == "GpufmtVecAccessEnd"


def test_large_arrays_that_cupy_makes_beside_them_take_the_memory_of_plans(fake):
    with fake_driver() as driver, vector_array(vector(np.arange(4.0)), "r"):
        allocate = fake.cuda.get_allocator()
        array = allocate(LARGE)
        assert list(driver.memory) == [array.mem.ptr] and driver.named("cuMemAllocFromPoolAsync")[0][-1] == 77
        assert (array.mem.size, array.mem.device_id, array.offset) == (LARGE, 3, 0)
        assert allocate(LARGE - 1) == f"{LARGE - 1} bytes of CuPy's"
        with vector_array(vector(np.ones(2)), "w"):
            assert fake.cuda.get_allocator() is allocate
        address = array.mem.ptr
        del array
        (of_a_plan,) = memory_of(3).empty([(LARGE, np.dtype(np.int8))], 77)
        assert of_a_plan.ptr == address and len(driver.memory) == 1
    assert fake.cuda.get_allocator() is fake.pool.malloc


def test_another_allocator_of_cupy_stays(fake):
    def other(nbytes):
        return None

    with fake.cuda.using_allocator(other), vector_array(vector(np.arange(4.0)), "r"):
        assert fake.cuda.get_allocator() is other


def test_memory_that_is_kept_is_given_back_where_an_array_has_no_room(fake):
    with fake_driver() as driver, vector_array(vector(np.arange(4.0)), "r"):
        allocate, driver.limit = fake.cuda.get_allocator(), 4 * LARGE
        kept = [allocate(LARGE), allocate(2 * LARGE)]
        del kept
        assert driver.used == 3 * LARGE
        array = allocate(driver.limit)
        assert list(driver.memory) == [array.mem.ptr]
        with pytest.raises(MemoryError, match="1048576 bytes was asked for, and device 3 has no room for it"):
            allocate(LARGE)


def test_the_library_and_python_agree_on_an_access():
    assert ctypes.sizeof(Access) == 8 * 8


def test_the_example_of_the_page_runs():
    text = (ROOT / "docs" / "usage.md").read_text().partition("## Arrays in Python")[2].partition("\n## ")[0]
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    A = tridiagonal()
    x, f = A.createVecs()
    x.set(0.5)
    exec(compile(program, "docs/usage.md", "exec"), {"A": A, "x": x, "f": f})
    np.testing.assert_allclose(f.getArray(), np.exp(0.5))
    B = tridiagonal("aij")
    B.scale(0.5)
    B.shift(np.exp(0.5))
    np.testing.assert_allclose(product(A), product(B), rtol=rounding(1e-7))


@pytest.mark.gpu
def test_nothing_is_copied_on_a_device(place):
    if place != "device":
        pytest.skip("for values on the device")
    PETSc.Log.begin()
    A = tridiagonal()
    x, y = A.createVecs()
    x.set(1.0)
    with matrix_values(A) as (values, _):
        values += 1.0
    A.mult(x, y)
    before = [copied_bytes(direction) for direction in ("ctog", "gtoc")]
    for _ in range(3):
        with matrix_values(A) as (values, _), vector_array(x, "rw") as entries:
            assert array_module(values).__name__ == array_module(entries).__name__ == "cupy"
            values *= 2.0
            entries *= 0.5
        A.mult(x, y)
        with vector_array(y, "r") as entries, diagonal(A) as numbers:
            assert entries.size == numbers.size
    assert [copied_bytes(direction) for direction in ("ctog", "gtoc")] == before
    B = tridiagonal("aij")
    csr = B.getValuesCSR()
    np.testing.assert_allclose(A.getValuesCSR()[2], 8.0 * (csr[2] + 1.0))


@pytest.mark.gpu
def test_cupy_keeps_nothing_of_large_arrays_that_it_makes_beside_them(place):
    if place != "device":
        pytest.skip("for values on the device")
    import cupy

    x, _ = tridiagonal().createVecs()
    x.set(1.0)
    pool, n = cupy.get_default_memory_pool(), LARGE
    before = pool.total_bytes()
    with vector_array(x, "rw") as entries:
        made = cupy.exp(cupy.zeros(n, PETSc.ScalarType) + entries[0]) * 2.0
        memory = memory_of(entries.device.id)
        entries[...] = made[:N]
    assert pool.total_bytes() - before < LARGE
    kept = memory.bytes_given_back()
    np.testing.assert_allclose(made.get(), 2.0 * np.exp(1.0), rtol=rounding(1e-14))  # it stays beyond the access
    del made
    assert memory.bytes_given_back() >= kept + n * PETSc.ScalarType().itemsize
    np.testing.assert_allclose(x.getArray(), 2.0 * np.exp(1.0), rtol=rounding(1e-14))
