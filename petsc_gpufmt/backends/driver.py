"""The CUDA driver, through ctypes: what plans, kernels and their measurement need of it."""

from __future__ import annotations

import contextlib
import ctypes as c
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.errors import UnsupportedError

# What cuda.h calls CU_DEVICE_ATTRIBUTE_...
MULTIPROCESSORS, THREADS_A_MULTIPROCESSOR = 16, 39
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
MEMORY_POOLS_SUPPORTED = 115
# and CU_MEMPOOL_ATTR_...
RELEASE_THRESHOLD, RESERVED_BYTES, USED_BYTES, MOST_USED_BYTES = 4, 5, 7, 8
PINNED_ALLOCATION, ON_A_DEVICE = 1, 1
EVENT_WITHOUT_TIME = 2

MOST_ARGUMENTS = 64  # of a launch

_POINTER, _SIZE, _INT, _UINT = c.c_void_p, c.c_size_t, c.c_int, c.c_uint
# Arguments of the functions that are used. The first return at once, and are called with Python's lock held: to let go
# of it takes as long, and another thread would keep it for milliseconds.
QUICK: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxSetCurrent": (_POINTER,),
    "cuDeviceGetAttribute": (_POINTER, _INT, _INT),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuGetErrorName": (_INT, _POINTER),
    "cuGetErrorString": (_INT, _POINTER),
    "cuLaunchKernel": (_POINTER, *(_UINT,) * 7, _POINTER, _POINTER, _POINTER),
    "cuMemAllocFromPoolAsync": (_POINTER, _SIZE, _POINTER, _POINTER),
    "cuMemFreeAsync": (c.c_uint64, _POINTER),
    "cuMemPoolGetAttribute": (_POINTER, _INT, _POINTER),
    "cuMemPoolSetAttribute": (_POINTER, _INT, _POINTER),
    "cuMemsetD8Async": (c.c_uint64, c.c_ubyte, _SIZE, _POINTER),
}
PATIENT: dict[str, tuple[Any, ...]] = {
    "cuCtxSynchronize": (),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGetName": (_POINTER, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuDeviceTotalMem_v2": (_POINTER, _INT),
    "cuEventCreate": (_POINTER, _UINT),
    "cuEventDestroy_v2": (_POINTER,),
    "cuEventElapsedTime": (_POINTER, _POINTER, _POINTER),
    "cuEventSynchronize": (_POINTER,),
    "cuGraphDestroy": (_POINTER,),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGraphInstantiateWithFlags": (_POINTER, _POINTER, c.c_ulonglong),
    "cuGraphLaunch": (_POINTER, _POINTER),
    "cuInit": (_UINT,),
    "cuMemAllocHost_v2": (_POINTER, _SIZE),
    "cuMemAlloc_v2": (_POINTER, _SIZE),
    "cuMemFree_v2": (c.c_uint64,),
    "cuMemGetInfo_v2": (_POINTER, _POINTER),
    "cuMemPoolCreate": (_POINTER, _POINTER),
    "cuMemPoolTrimTo": (_POINTER, _SIZE),
    "cuMemcpyDtoHAsync_v2": (_POINTER, c.c_uint64, _SIZE, _POINTER),
    "cuModuleGetFunction": (_POINTER, _POINTER, c.c_char_p),
    "cuModuleLoadData": (_POINTER, c.c_char_p),
    "cuStreamBeginCapture_v2": (_POINTER, _INT),
    "cuStreamCreate": (_POINTER, _UINT),
    "cuStreamDestroy_v2": (_POINTER,),
    "cuStreamEndCapture": (_POINTER, _POINTER),
    "cuStreamSynchronize": (_POINTER,),
}


class DriverError(Exception):
    """A function of the driver failed; `name` is that of its error, such as CUDA_ERROR_OUT_OF_MEMORY."""

    def __init__(self, code: int, name: str, text: str):
        super().__init__(f"{name}: {text}")
        self.code, self.name = code, name


class DriverMemoryError(DriverError, MemoryError):
    """The device has no memory for what was asked."""


@functools.cache
def libraries() -> tuple[Any, Any]:
    """The driver, initialised, for functions that are called with Python's lock held, and for the others.

    Raises UnsupportedError if it is not there, and DriverError if it finds no device.
    """
    try:
        quick, patient = c.PyDLL("libcuda.so.1"), c.CDLL("libcuda.so.1")
    except OSError as e:
        raise UnsupportedError(
            f"storing a matrix on the GPU needs NVIDIA's driver, and opening its library failed ({e}): "
            "install the driver, or stay on the host with -device_enable none"
        ) from e
    if code := patient.cuInit(0):
        raise _error(code, "cuInit", quick)
    return quick, patient


class Functions(dict[str, Callable[..., int]]):
    """The driver's functions by name, each looked up once."""

    def __missing__(self, name: str) -> Callable[..., int]:
        quick, patient = libraries()
        try:
            function: Any = getattr(quick if name in QUICK else patient, name)
        except AttributeError as e:
            raise UnsupportedError(
                f"NVIDIA's driver has no function {name}: install the driver of CUDA 12 or newer"
            ) from e
        function.argtypes, function.restype = QUICK.get(name) or PATIENT[name], _INT
        self[name] = function
        return self[name]


FUNCTIONS = Functions()


def _error(code: int, what: str, library: Any) -> DriverError:
    """The driver's name and text for an error code of the function `what`."""
    known_name, known_text = c.c_char_p(), c.c_char_p()
    library.cuGetErrorName(code, c.byref(known_name))
    library.cuGetErrorString(code, c.byref(known_text))
    name = (known_name.value or b"CUDA error %d" % code).decode()
    text = (known_text.value or b"unknown error").decode()
    return (DriverMemoryError if "OUT_OF_MEMORY" in name else DriverError)(code, name, f"{text}, in {what}")


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; DriverError if it fails."""
    if code := FUNCTIONS[name](*arguments):
        raise _error(code, name, libraries()[0])


def function_address(name: str) -> int:
    """Where a function of the driver is, for the native library."""
    function: Any = FUNCTIONS[name]
    return c.cast(function, _POINTER).value or 0


def answer(kind: Any, name: str, *arguments: Any) -> Any:
    """What a function writes where its first argument points, of a ctypes type; None for a null pointer."""
    written = kind()
    call(name, c.byref(written), *arguments)
    return written.value


# Devices and contexts


def device_count() -> int:
    """Number of devices that this process sees."""
    return answer(_INT, "cuDeviceGetCount")


def device_attribute(device: int, attribute: int) -> int:
    """One of CU_DEVICE_ATTRIBUTE_..."""
    return answer(_INT, "cuDeviceGetAttribute", attribute, device)


@functools.cache
def device_name(device: int) -> str:
    """Such as "NVIDIA H200"."""
    name = c.create_string_buffer(256)
    call("cuDeviceGetName", name, len(name), device)
    return name.value.decode()


def device_bytes(device: int) -> int:
    """All of its memory."""
    return answer(_SIZE, "cuDeviceTotalMem_v2", device)


@functools.cache
def resident_threads(device: int) -> int:
    """The threads that a device runs at once."""
    return device_attribute(device, MULTIPROCESSORS) * device_attribute(device, THREADS_A_MULTIPROCESSOR)


@functools.cache
def compute_capability(device: int) -> tuple[int, int]:
    """Major and minor: (9, 0) for an H200."""
    return device_attribute(device, CAPABILITY_MAJOR), device_attribute(device, CAPABILITY_MINOR)


@functools.cache
def primary_context(device: int) -> int:
    """The context of a device that PETSc, CuPy and the CUDA runtime use; kept until the process ends."""
    return answer(_POINTER, "cuDevicePrimaryCtxRetain", device)


def current_context() -> int | None:
    """The context of the calling thread; None if it has none."""
    return answer(_POINTER, "cuCtxGetCurrent")


def set_context(context: int) -> None:
    """Make a context that of the calling thread."""
    call("cuCtxSetCurrent", context)


@contextlib.contextmanager
def current(context: int) -> Iterator[None]:
    """A context, current in the calling thread."""
    if current_context() == context:
        yield
        return
    call("cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        answer(_POINTER, "cuCtxPopCurrent_v2")


def synchronize_context() -> None:
    """Wait for all that was queued on the device."""
    call("cuCtxSynchronize")  # device synchronisation: what this function is for


def synchronize_stream(stream: int) -> None:
    """Wait for what was queued on a stream."""
    call("cuStreamSynchronize", stream)  # device synchronisation: what this function is for


def create_event() -> int:
    """An event that takes no time stamps; kept until the process ends."""
    return answer(_POINTER, "cuEventCreate", EVENT_WITHOUT_TIME)


def record_event(event: int, stream: int) -> None:
    """An event passes when what was queued on a stream has been done."""
    call("cuEventRecord", event, stream)


def synchronize_event(event: int) -> None:
    """Wait until an event has passed."""
    call("cuEventSynchronize", event)  # device synchronisation: what this function is for


# Memory


class _PoolProperties(c.Structure):
    _fields_ = [
        ("allocation", _INT),
        ("handles", _INT),
        ("location", _INT),
        ("device", _INT),
        ("security", _POINTER),
        ("reserved", c.c_ubyte * 64),
    ]


def create_pool(device: int) -> int:
    """A memory pool that keeps what is given back until it is trimmed."""
    properties = _PoolProperties(allocation=PINNED_ALLOCATION, location=ON_A_DEVICE, device=device)
    pool = answer(_POINTER, "cuMemPoolCreate", c.byref(properties))
    set_pool_bytes(pool, RELEASE_THRESHOLD, 2**64 - 1)
    return pool


def set_pool_bytes(pool: int, attribute: int, nbytes: int) -> None:
    """Set RELEASE_THRESHOLD of a pool, or MOST_USED_BYTES to 0, from where it rises again."""
    call("cuMemPoolSetAttribute", pool, attribute, c.byref(c.c_uint64(nbytes)))


def pool_bytes(pool: int, attribute: int) -> int:
    """RESERVED_BYTES, USED_BYTES or MOST_USED_BYTES of a pool."""
    nbytes = c.c_uint64()
    call("cuMemPoolGetAttribute", pool, attribute, c.byref(nbytes))
    return nbytes.value


def trim_pool(pool: int) -> None:
    """Give back to the device all that no array uses."""
    call("cuMemPoolTrimTo", pool, 0)


def allocate_from_pool(pool: int, nbytes: int, stream: int) -> int:
    """Address of `nbytes` > 0 bytes, which may be used in the order of a stream."""
    return answer(c.c_uint64, "cuMemAllocFromPoolAsync", nbytes, pool, stream)


def free_in_order(address: int, stream: int) -> None:
    """Give memory back to its pool, after what was queued on a stream."""
    call("cuMemFreeAsync", address, stream)


def allocate(nbytes: int) -> int:
    """Address of `nbytes` > 0 bytes that are in no pool."""
    return answer(c.c_uint64, "cuMemAlloc_v2", nbytes)


def free(address: int) -> None:
    """Give back memory, from a pool or not, that nothing queued uses any more."""
    call("cuMemFree_v2", address)


def allocate_pinned(nbytes: int) -> int:
    """Address of host memory to which the device can write; kept until the process ends."""
    return answer(_POINTER, "cuMemAllocHost_v2", nbytes)


def free_bytes() -> int:
    """Bytes of the current device that nobody has taken."""
    available, total = _SIZE(), _SIZE()
    call("cuMemGetInfo_v2", c.byref(available), c.byref(total))
    return available.value


def fill(address: int, byte: int, nbytes: int, stream: int) -> None:
    """Set each byte, in the order of a stream."""
    call("cuMemsetD8Async", address, byte, nbytes, stream)


def copy_to_host(to: int, address: int, nbytes: int, stream: int) -> None:
    """Queue a copy to host memory; it may still be under way when this returns."""
    call("cuMemcpyDtoHAsync_v2", to, address, nbytes, stream)


# Kernels


def load_module(image: bytes) -> int:
    """Handle of a module from a cubin, a fatbin or PTX, in the current context."""
    return answer(_POINTER, "cuModuleLoadData", image)


def module_function(module: int, name: str) -> int:
    """Handle of the kernel with a mangled name in a module."""
    return answer(_POINTER, "cuModuleGetFunction", module, name.encode())


class Launcher:
    """Queues kernels, several by one call.

    What launches are is in two arrays of 8-byte numbers. Each has a `head`, with places among the words: those of its
    number of blocks, and of each of its arguments, which begin there.
    """

    def __init__(self) -> None:
        self._kernel, self._launch_all = function_address("cuLaunchKernel"), native_library.launch_all()

    def launch(self, nlaunches: int, heads: int, words: int, stream: int) -> None:
        """Queue kernels, whose heads and words are at these addresses; those with no blocks are left out.

        DriverError at the first that is refused.
        """
        if code := self._launch_all(self._kernel, nlaunches, heads, words, stream):
            raise _error(code, "cuLaunchKernel", libraries()[0])


def head(
    function: int,
    blocks: int,
    grid: Sequence[int],
    block: tuple[int, int, int],
    shared_bytes: int,
    arguments: Sequence[int],
) -> tuple[int, ...]:
    """What native/runtime/launches.c knows of a launch; `grid` in the other dimensions than that of `blocks`.

    ValueError for more arguments than MOST_ARGUMENTS.
    """
    if len(arguments) > MOST_ARGUMENTS:
        raise ValueError(f"a kernel with {len(arguments)} arguments: at most {MOST_ARGUMENTS} can be passed")
    return function, blocks, *grid, *block, shared_bytes, len(arguments), *arguments
