"""The backend of a device, over a fake driver with the kernels of the emulation; CuPy only where it is asked for."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from answers import Answer, requested_place
from builders import shape
from emulation.backend import EmulatedBackend
from fake_cupy import FakeCupy
from fake_driver import CONTEXT, fake_driver

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import CudaBackend
from petsc_gpufmt.backends.device_array import DeviceArray
from petsc_gpufmt.backends.plan import Launch, ScaleAndAdd, Slot, Struct
from petsc_gpufmt.choice.mult_timer import MultTimer, is_limit
from petsc_gpufmt.errors import OutOfMemoryError, UnsupportedError
from petsc_gpufmt.planning import abi, planner

SHIM = Path(__file__).resolve().parents[1] / "emulation" / "kernels"
SCALAR, INDEX = native_library.petsc_types()
STREAM = 0x51


@pytest.fixture
def fake(emulation_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # to import it is an error
    with fake_driver(emulation_folder) as made:
        yield made


@pytest.fixture
def backend(fake):
    return CudaBackend(np.float64, np.int32, device=0)


@pytest.fixture
def cupy(fake, monkeypatch):
    module = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.fixture
def block_sum(emulation_folder):
    return EmulatedBackend(np.float64, np.int32, emulation_folder, kernels=SHIM).function("shim", "block_sum", (256,))


def test_what_is_known_of_the_device(backend):
    assert (backend.model, backend.resident_threads, backend.simd_width) == ("NVIDIA Fake", 512, 32)


def test_arrays_go_there_and_back(fake, backend):
    given = np.arange(10, dtype=np.int32)

    a = backend.adopt(given, keep=True)
    given[:] = 0

    assert type(a) is DeviceArray and backend.to_host(a[3:6]).tolist() == [3, 4, 5]
    assert backend.first(a[8:], 2) == [8, 9]
    assert backend.adopt(a) is a
    assert backend.adopt(np.arange(20, dtype=np.int32)[::2]).size == 10
    assert backend.to_host(backend.adopt(np.arange(20)[::2])).tolist() == list(range(0, 20, 2))
    nothing = backend.adopt(np.zeros(0))
    assert (nothing.ptr, backend.to_host(nothing).dtype) == (0, np.dtype(np.float64))


def test_an_array_of_two_dimensions_is_refused(backend):
    with pytest.raises(ValueError, match="an array of 2 dimensions: those of a device have one"):
        backend.adopt(np.zeros((2, 2)))


def test_arrays_are_cleared_on_the_stream(fake, backend):
    with backend.on(STREAM):
        a, nothing = backend.empty((5, np.dtype(np.int64)), (0, np.dtype(np.int64)))
        backend.clear(a[1:3])
        backend.clear(nothing)

        assert backend.to_host(a).tolist() == [-1, 0, 0, -1, -1]
    assert fake.named("cuMemsetD8Async") == [("cuMemsetD8Async", a.ptr + 8, 0, 16, STREAM)]


def test_arrays_begin_as_zeros_where_that_is_asked_for(fake, backend):
    a, nothing, b, c = backend.empty((3, np.dtype(np.int64)), (0, INDEX), (70, INDEX), (2, INDEX), zeros=3)

    assert backend.to_host(a).tolist() == [0] * 3 and backend.to_host(b).tolist() == [0] * 70 and nothing.size == 0
    assert backend.to_host(c).tolist() == [-1, -1]
    (only,) = backend.empty((2, INDEX), zeros=1)
    assert backend.to_host(only).tolist() == [0, 0] and len(fake.named("cuMemsetD8Async")) == 1


def test_launches_fill_their_slots_and_go_to_the_stream(fake, backend, block_sum):
    x = backend.adopt(np.arange(3 * 256, dtype=np.float64))
    (sums,) = backend.empty((3, np.dtype(np.float64)))
    launches = [Launch(block_sum, (3, 1, 1), (256, 1, 1), (x, Slot.Z))]

    with backend.on(STREAM):
        backend.run(launches, {Slot.Z: sums})

    assert backend.to_host(sums).tolist() == np.arange(3 * 256).reshape(3, 256).sum(axis=1).tolist()
    assert fake.named("launch") == [("launch", block_sum, (3, 1, 1), (256, 1, 1), 0, STREAM)]


def test_prepared_launches_are_carried_out_each_time_on_the_stream_of_then(fake, backend, block_sum):
    x = backend.adopt(np.arange(256, dtype=np.float64))
    (sums,) = backend.empty((1, np.dtype(np.float64)))
    call = backend.prepared([Launch(block_sum, (1, 1, 1), (256, 1, 1), (x, Slot.Z))], {Slot.Z: sums})
    assert not fake.named("launch")

    call()
    backend.clear(sums)
    with backend.on(STREAM):
        call()

    assert backend.to_host(sums).tolist() == [255 * 128]
    assert [call[-1] for call in fake.named("launch")] == [0, STREAM]


def test_arguments_of_every_type_are_passed(fake, backend, cupy):
    words = []

    def launched(parameters):
        addresses = (ctypes.c_uint64 * 7).from_address(parameters)
        words.extend(ctypes.c_uint64.from_address(address).value for address in addresses)
        words.append(ctypes.c_uint64.from_address(addresses[6] + 8).value)

    fake.launched = launched
    a, host = backend.adopt(np.arange(4.0)), np.arange(3)
    struct = Struct(np.int64(-1), a)
    backend.run([Launch(1, (1, 1, 1), (1, 1, 1), (a, a[1:], a[4:], None, np.float32(1), host, struct))])

    one = int(np.float32(1).view(np.uint32))
    assert words == [a.ptr, a.ptr + 8, 0, 0, one, host.ctypes.data, 2**64 - 1, a.ptr]


def test_memory_that_can_still_be_taken_counts_what_is_kept_for_later(fake, backend):
    (a,) = backend.empty((1000, np.dtype(np.int32)))
    before = backend.free_bytes()
    assert (backend.memory.pooled_bytes(), before) == (0, fake.limit - 4096) and not backend.keeps(1)

    del a

    assert backend.free_bytes() == before + 4096 and backend.keeps(4096) and not backend.keeps(4097)


def test_outside_of_a_plan_all_is_on_the_default_stream(fake, backend, block_sum):
    """Also after a plan on a stream that may be gone."""
    with backend.on(STREAM):
        backend.empty((1, backend.index))
    x, sums = backend.empty((256, backend.scalar), (1, backend.scalar))
    backend.clear(x)
    backend.run([Launch(block_sum, (1, 1, 1), (256, 1, 1), (x, sums))])

    assert backend.to_host(sums).tolist() == [0.0]
    names = ("cuMemAllocFromPoolAsync", "cuMemsetD8Async", "launch", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize")
    assert [call[-1] for call in fake.named(*names)] == [STREAM, 0, 0, 0, 0, 0]


def test_the_context_is_made_current_where_there_is_none(fake):
    fake.contexts = []
    backend = CudaBackend(np.float64, np.int32, device=0)
    assert fake.contexts == [CONTEXT]
    fake.contexts = [0xEE]  # of another device, say

    with backend.on(STREAM):
        assert fake.contexts == [0xEE, CONTEXT]

    assert fake.contexts == [0xEE]


def test_cupy_is_imported_at_its_first_use_with_device_and_stream(backend, cupy):
    with backend.on(STREAM):
        assert not cupy.entered
        assert backend.xp.arange(3).tolist() == [0, 1, 2]
        assert cupy.entered == [("device", 0), ("stream", STREAM)] and cupy.accelerators == []
        assert backend.xp is backend.xp

    assert not cupy.entered and cupy.accelerators == [1, 2]
    with backend.on(0x52):
        assert backend.xp is cupy and cupy.entered == [("device", 0), ("stream", 0x52)]


def test_cupy_is_as_before_after_a_plan_that_failed(backend, cupy):
    with pytest.raises(ZeroDivisionError), backend.on(STREAM):
        assert backend.xp is cupy
        raise ZeroDivisionError

    assert not cupy.entered and cupy.accelerators == [1, 2] and backend.xp is cupy


def test_outside_of_a_plan_cupy_keeps_its_own_stream(backend, cupy):
    assert backend.xp is cupy and not cupy.entered
    with backend.on(STREAM):
        assert backend.xp is cupy and cupy.entered
    assert backend.xp is cupy and not cupy.entered


def test_arrays_of_cupy_are_taken(backend, cupy):
    x = cupy.arange(4)

    assert backend.adopt(cupy.asarray(backend.adopt(np.arange(4.0))))[1:].size == 3
    assert backend.to_host(x) is x


def test_where_cupy_is_missing_its_use_says_how_to_get_it(backend):
    with pytest.raises(
        UnsupportedError, match=r"needs CuPy, .*pip install petsc_gpufmt\[cuda13\].*-device_enable none$"
    ):
        backend.xp  # noqa: B018  a property


def scaled_columns(stream=STREAM, columns=(0, 2, 1)):
    """The answer to a request for a plan that scales columns."""
    colidx = np.array(columns, INDEX)
    request = abi.ScaleAndAddRequestStruct(requested_place("cuda"), ScaleAndAdd.SCALE_COLUMNS)
    request.target = abi.OperandStruct(3, 3, colidx.size, None, colidx.ctypes.data)
    return Answer(abi.Ask.SCALE_AND_ADD, request, abi.ScaleAndAddAnswerStruct(), {"stream": stream})


def test_a_plan_is_made_without_cupy_on_the_stream_of_petsc(fake):
    values, x = np.array([1.0, 2.0, 3.0], SCALAR), np.array([1.0, 10.0, 100.0], SCALAR)

    with scaled_columns() as a:
        assert a.error == (0, "")
        a.launch(a.answer.scale_and_add, {Slot.X: x, Slot.RESULT: values})

    assert values.tolist() == [1, 200, 30]
    assert [call[-1] for call in fake.named("cuMemAllocFromPoolAsync")] == [STREAM]
    assert sys.modules["cupy"] is None


def test_a_format_that_needs_cupy_says_how_to_get_it(fake):
    matrix = shape("banded")
    rowptr, colidx = matrix.rowptr.astype(INDEX), matrix.colidx.astype(INDEX)
    request = abi.StoreRequestStruct(requested_place("cuda"), format=b"jds", options=b"")
    request.nrows, request.ncols, request.nnz = matrix.nrows, matrix.ncols, colidx.size
    request.rowptr, request.colidx = rowptr.ctypes.data, colidx.ctypes.data

    with Answer(abi.Ask.STORE, request, abi.StoreAnswerStruct(), {}) as a:
        assert a.error[0] == UnsupportedError.petsc_code
        assert "on cuda: storing a matrix this way on the GPU needs CuPy" in a.error[1]


def test_memory_of_a_plan_is_used_again_after_its_release(fake):
    with scaled_columns() as a:
        first = a.answer.scale_and_add.launches[0].words[1]

    with scaled_columns() as a:
        assert first == a.answer.scale_and_add.launches[0].words[1] and len(fake.memory) == 1


def test_memory_that_runs_out_is_looked_for_in_the_pool_once_more(fake):
    with scaled_columns(columns=range(3)) as a:
        assert a.error[0] == 0
    fake.limit = 0

    with scaled_columns(columns=range(1000)) as a:
        assert a.error[0] == OutOfMemoryError.petsc_code
        assert "out of memory (CUDA_ERROR_OUT_OF_MEMORY: out of memory, in cuMemAllocFromPoolAsync)" in a.error[1]
        assert "-mat_bind_below" in a.error[1]

    assert fake.named("cuMemPoolTrimTo") and not fake.memory


def test_the_planner_ends_with_the_memory_of_the_device(fake, monkeypatch):
    monkeypatch.setattr(planner, "_owned", {})
    a = scaled_columns()
    assert len(fake.memory) == 1 and a.token

    class Library:
        """Forgets nothing: the plans of other tests stay."""

        def GpufmtForgetPlanner(self):  # noqa: N802  as in C
            return None

        GpufmtTrim = GpufmtForgetPlanner

    monkeypatch.setattr(native_library, "load", Library)
    fake.contexts = []
    planner._shutdown()

    assert not fake.memory and fake.named("cuMemPoolTrimTo")


def test_mults_are_timed_as_a_graph(fake, backend, block_sum):
    class Csr:
        nrows, ncols = 1, 256

        def counted(self, backend):
            return self, SimpleNamespace(nonempty_rows=1)

    class Stored:
        def plan(self, operation):
            return [Launch(block_sum, (1, 1, 1), (256, 1, 1), (Slot.X, Slot.Z))]

    with backend.on(STREAM):
        seconds = MultTimer(backend).seconds(Stored(), Csr(), mults=4)

    streams = [call[-1] for call in fake.named("launch")]
    assert streams[0] == STREAM and len(set(streams[1:])) == 1 and streams[1] != STREAM and len(streams) == 5
    assert seconds > 0


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuMemAllocFromPoolAsync"])
def test_what_the_driver_refuses_is_a_limit_of_a_format(fake, backend, name):
    fake.failing[name] = 701
    with pytest.raises(Exception, match="CUDA error 701") as e:
        backend.run([Launch(1, (1, 1, 1), (1, 1, 1), tuple(backend.empty((1, backend.index))))])
    assert is_limit(e.value)
