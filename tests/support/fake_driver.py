"""A CUDA driver without a device: its memory is the host's, and its kernels are those of the emulation."""
# ruff: noqa: N802  methods have the names of the driver's functions

from __future__ import annotations

import contextlib
import ctypes as c
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from emulation.backend import LAUNCH, EmulatedBackend

from petsc_gpufmt.backends import driver
from petsc_gpufmt.backends.plan import address
from petsc_gpufmt.planning import given

CONTEXT, POOL, MODULE, FIRST_STREAM, FIRST_EVENT = 0xC0, 0xB0, 0xA0, 0x50, 0xE0
OUT_OF_MEMORY, INVALID_CONTEXT, NOT_FOUND = 2, 201, 500
ERRORS = {
    OUT_OF_MEMORY: (b"CUDA_ERROR_OUT_OF_MEMORY", b"out of memory"),
    INVALID_CONTEXT: (b"CUDA_ERROR_INVALID_CONTEXT", b"invalid device context"),
    NOT_FOUND: (b"CUDA_ERROR_NOT_FOUND", b"named symbol not found"),
}
ATTRIBUTES = {16: 4, 39: 128, 75: 9, 76: 0, 115: 1}
DO_NOTHING = {
    "cuMemPoolSetAttribute",
    "cuStreamDestroy_v2",
    "cuStreamBeginCapture_v2",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphLaunch",
    "cuEventRecord",
    "cuEventDestroy_v2",
}
NEEDS_CONTEXT = ("cuMem", "cuLaunch", "cuModule", "cuCtxSynchronize", "cuStreamCreate", "cuEventCreate")


LAUNCH_KERNEL = c.CFUNCTYPE(c.c_int, c.c_void_p, *[c.c_uint] * 7, *[c.c_void_p] * 3)


class FakeFunction:
    """One function: its arguments are converted as ctypes does, noted by name, and passed on."""

    def __init__(self, fake: FakeDriver, name: str):
        self.fake, self.name, self.carry_out = fake, name, getattr(FakeDriver, f"_{name}", None)
        self.argtypes: tuple[Any, ...] = ()
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        if self.argtypes:
            assert len(arguments) == len(self.argtypes), self.name
            for kind, argument in zip(self.argtypes, arguments, strict=True):
                kind.from_param(argument)
        fake = self.fake
        fake.calls.append((self.name, *(a for a in arguments if isinstance(a, int | bytes))))
        if self.name in fake.failing:
            return fake.failing[self.name]
        if self.name.startswith(NEEDS_CONTEXT) and not fake.contexts:
            return INVALID_CONTEXT
        return self.carry_out(fake, *arguments) or 0 if self.carry_out else 0


class FakeDriver:
    """What `driver.libraries` is to return, twice.

    Attributes
    ----------
    calls : (name, the arguments that are numbers or bytes) of each call
    failing : error codes of functions that fail
    memory : what is allocated, by its address; host memory that nothing was written to is full of 0xFF
    contexts : those of the thread, the current one last
    limit : bytes that there are
    launched : called with where the addresses of a launch's arguments begin
    """

    def __init__(self, pools: bool = True):
        self.attributes = {**ATTRIBUTES, driver.MEMORY_POOLS_SUPPORTED: int(pools)}
        self.calls: list[tuple[Any, ...]] = []
        self.failing: dict[str, int] = {}
        self.memory: dict[int, Any] = {}
        self.contexts: list[int] = [CONTEXT]
        self.limit = 1 << 30
        self.launched: Callable[[int], None] = lambda parameters: None
        self.fetched: list[tuple[int, bytes]] = []  # copies to the host that are under way
        self.busy = False  # since the device was waited for
        self.reserved = 0
        self._kept: list[Any] = []
        self._streams = iter(range(FIRST_STREAM, 1 << 20))
        self._events = iter(range(FIRST_EVENT, 1 << 20))

    def __getattr__(self, name: str) -> Any:
        if name == "cuLaunchKernel":  # which C calls
            return LAUNCH_KERNEL(self._launch)
        if name not in DO_NOTHING and not hasattr(FakeDriver, f"_{name}"):
            raise AttributeError(name)
        function = FakeFunction(self, name)
        setattr(self, name, function)
        return function

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        """The calls of some functions, in their order."""
        return [call for call in self.calls if call[0] in names]

    @property
    def used(self) -> int:
        return sum(len(memory) for memory in self.memory.values())

    def _cuInit(self, flags):
        assert flags == 0

    def _cuGetErrorName(self, code, name):
        name._obj.value = ERRORS[code][0] if code in ERRORS else None

    def _cuGetErrorString(self, code, text):
        text._obj.value = ERRORS[code][1] if code in ERRORS else None

    def _cuDeviceGetCount(self, count):
        count._obj.value = 1

    def _cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = self.attributes[attribute]

    def _cuDeviceGetName(self, name, size, device):
        name.value = b"NVIDIA Fake"

    def _cuDeviceTotalMem_v2(self, nbytes, device):
        nbytes._obj.value = self.limit

    def _cuDevicePrimaryCtxRetain(self, context, device):
        context._obj.value = CONTEXT + device

    def _cuCtxGetCurrent(self, context):
        context._obj.value = self.contexts[-1] if self.contexts else None

    def _cuCtxSetCurrent(self, context):
        self.contexts[-1:] = [context]

    def _cuCtxPushCurrent_v2(self, context):
        self.contexts.append(context)

    def _cuCtxPopCurrent_v2(self, context):
        context._obj.value = self.contexts.pop()

    def _cuCtxSynchronize(self):
        self._deliver()
        self.busy = False

    def _cuStreamSynchronize(self, stream):
        self._deliver()

    def _deliver(self):
        for to, content in self.fetched:
            c.memmove(to, content, len(content))
        self.fetched = []

    def _cuMemPoolCreate(self, pool, properties):
        fields = properties._obj
        assert (fields.allocation, fields.handles, fields.location) == (1, 0, 1)
        pool._obj.value = POOL + fields.device

    def _cuMemPoolGetAttribute(self, pool, attribute, value):
        value._obj.value = {5: self.reserved, 7: self.used, 8: self.reserved}[attribute]

    def _cuMemPoolTrimTo(self, pool, least):
        assert least == 0
        self.reserved = self.used

    def _cuMemAllocFromPoolAsync(self, address, nbytes, pool, stream):
        code = self._allocate(address, nbytes)
        self.reserved = max(self.reserved, self.used)
        return code

    def _cuMemAlloc_v2(self, address, nbytes):
        assert not self.attributes[driver.MEMORY_POOLS_SUPPORTED]
        return self._allocate(address, nbytes)

    def _allocate(self, address, nbytes):
        assert nbytes > 0
        if self.used + nbytes > self.limit:
            return OUT_OF_MEMORY
        memory = c.create_string_buffer(b"\xff" * nbytes, nbytes)
        self.memory[c.addressof(memory)] = memory
        address._obj.value = c.addressof(memory)
        return 0

    def _cuMemFreeAsync(self, address, stream):
        self._free(address)

    def _cuMemFree_v2(self, address):
        assert not (self.busy and self.attributes[driver.MEMORY_POOLS_SUPPORTED]), "memory in use is freed"
        self._free(address)

    def _free(self, address):
        freed = self.memory.pop(address)
        c.memset(address, 0xDD, len(freed))
        self._kept.append(freed)  # a late use finds 0xDD there

    def _cuMemAllocHost_v2(self, address, nbytes):
        self._kept.append(c.create_string_buffer(nbytes))
        address._obj.value = c.addressof(self._kept[-1])

    def _cuMemGetInfo_v2(self, free, total):
        free._obj.value, total._obj.value = self.limit - self.reserved, self.limit

    def _cuMemsetD8Async(self, address, byte, nbytes, stream):
        self.busy = True
        c.memset(address, byte, nbytes)

    def _cuMemcpyDtoHAsync_v2(self, to, address, nbytes, stream):
        self.fetched.append((to, c.string_at(address, nbytes)))

    def _cuModuleLoadData(self, module, image):
        module._obj.value = MODULE

    def _cuModuleGetFunction(self, function, module, name):
        if name == b"missing":
            return NOT_FOUND
        function._obj.value = MODULE + 1
        return 0

    def _launch(self, function, *rest):
        *shape, shared, stream, parameters, extra = rest
        assert extra is None
        self.calls.append(("launch", function, tuple(shape[:3]), tuple(shape[3:]), shared, stream or 0))
        if "cuLaunchKernel" in self.failing:
            return self.failing["cuLaunchKernel"]
        self.busy = True
        self.launched(parameters)
        if function > MODULE + 1:
            grid, block = (c.c_uint32 * 3)(*shape[:3]), (c.c_uint32 * 3)(*shape[3:])
            message = LAUNCH(function)(grid, block, c.cast(parameters, c.POINTER(c.c_void_p)))
            assert not message, message
        return 0

    def _cuStreamCreate(self, stream, flags):
        stream._obj.value = next(self._streams)

    def _cuStreamEndCapture(self, stream, graph):
        graph._obj.value = 0x6A

    def _cuGraphInstantiateWithFlags(self, executable, graph, flags):
        assert graph.value == 0x6A
        executable._obj.value = 0x6E

    def _cuEventCreate(self, event, flags):
        event._obj.value = next(self._events)

    def _cuEventSynchronize(self, event):
        self._deliver()

    def _cuEventElapsedTime(self, milliseconds, start, stop):
        milliseconds._obj.value = float(stop)


@contextlib.contextmanager
def fake_driver(emulation_folder: Any = None, pools: bool = True) -> Iterator[FakeDriver]:
    """A fake in the place of the driver; with a folder, backends have the emulation's kernels and can upload."""
    fake = FakeDriver(pools)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "libraries", lambda: (fake, fake))
        patch.setattr(driver, "FUNCTIONS", driver.Functions())
        patch.setattr("petsc_gpufmt.backends.device_memory._memories", {})
        if emulation_folder is not None:
            patch.setattr("petsc_gpufmt.backends.backend.device_function", emulated_function(emulation_folder))
            patch.setattr("petsc_gpufmt.backends.native_library.upload", upload)
        forget = (driver.device_name, driver.resident_threads, driver.compute_capability, driver.primary_context)
        for function in (*forget, given.cuda_backend):
            function.cache_clear()
        yield fake
        for function in (*forget, given.cuda_backend):
            function.cache_clear()


def emulated_function(folder: Any) -> Callable[..., int]:
    """In the place of `device_function`."""

    def function(stem, kernel, template_arguments, scalar, index, device):
        return EmulatedBackend(scalar, index, folder).function(stem, kernel, template_arguments)

    return function


def upload(dev_array: Any, host_array: Any, stream: int) -> None:
    """In the place of `native_library.upload`."""
    c.memmove(address(dev_array), host_array.ctypes.data, host_array.nbytes)
