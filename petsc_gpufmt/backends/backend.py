"""Where a format lives and runs: on the host, or on a CUDA device."""

from __future__ import annotations

import ctypes
import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.compile import device_function
from petsc_gpufmt.backends.plan import WORD_OF, Launch, Slot, argument_word, ceil_div
from petsc_gpufmt.errors import UnsupportedError


class Backend(ABC):
    """What a format may ask for.

    Attributes
    ----------
    name : "host", "cuda", ...
    xp : numpy or cupy
    scalar, index : NumPy dtypes of values and indices
    largest_index : the largest number of the index dtype
    resident_threads : threads that run at once, the size of a launch that fills the device
    simd_width : rows that run in lockstep: the threads of a warp; on the host, the values of a cache line
    model : name of the GPU, such as "NVIDIA H200"; None where there is none
    """

    name: str
    xp: Any
    resident_threads: int
    model: str | None = None
    simd_width: int = 32

    def __init__(self, scalar: Any, index: Any):
        self.scalar, self.index = np.dtype(scalar), np.dtype(index)
        self.largest_index = (1 << (8 * self.index.itemsize - 1)) - 1

    @abstractmethod
    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        """What to launch: a kernel of ``kernels/<stem>.cu`` with its template arguments, or its host counterpart."""

    @abstractmethod
    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        """Carry out launches now; `slots` holds the arrays that fill their slots."""

    def adopt(self, array: np.ndarray, *, keep: bool = False) -> Any:
        """A host array as an array of this backend; a copy if it is to be kept while `array` may go."""
        return array.copy() if keep else array

    @abstractmethod
    def to_host(self, array: Any) -> np.ndarray:
        """The array as a NumPy array."""

    def first(self, array: Any, count: int) -> list[int]:
        """The first `count` entries of an integer array, at most MOST_FETCHED bytes; waits for the launches so far."""
        return self.to_host(array[:count]).tolist()

    def empty(self, *arrays: tuple[int, np.dtype]) -> list[Any]:
        """Arrays of (size, dtype) each, not filled; on a device they share an allocation."""
        return [self.xp.empty(size, dtype=dtype) for size, dtype in arrays]

    def clear(self, array: Any) -> None:
        """Fill an array with zeros, in the order of launches."""
        array.fill(0)

    def free_bytes(self) -> int | None:
        """Bytes that can still be taken; None where that is not limited by a device."""
        return None

    def pooled_bytes(self) -> int:
        """Of these, bytes that have been set aside for this process: known without asking the device."""
        return 0


def argument_block(launch: Launch, slots: dict[Slot, Any] | None) -> tuple[ctypes.Array, ctypes.Array]:
    """The words of a launch, its slots filled from arrays, and where each argument begins in them: 8 bytes both.

    The addresses hold while the words live.
    """
    members, slots = launch.members, slots or {}
    block = ctypes.c_uint64 * len(members)
    words = block(*[argument_word(slots[a] if type(a) is Slot else a) for a in members])
    first = ctypes.addressof(words)
    if members is launch.arguments:
        return words, block(*range(first, first + 8 * len(members), 8))
    return words, parameters(launch, first)


def parameters(launch: Launch, words: int) -> ctypes.Array:
    """The address of each argument of a launch with structs, whose words begin at the address `words`."""
    first_words = launch.first_words
    return (ctypes.c_uint64 * len(first_words))(*[words + 8 * word for word in first_words])


class HostBackend(Backend):
    """C functions of the native library, compiled from ``kernels/host/``; template arguments do not apply to them."""

    name = "host"
    xp = np
    resident_threads = 0
    simd_width = 8

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        return native_library.host_function(kernel)

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        native_library.check_types(self.scalar, self.index)
        for launch in launches:
            words, params = argument_block(launch, slots)  # params point into words
            grid, block = (SHAPE(*shape) for shape in (launch.grid, launch.block))
            HOST_FUNCTION(launch.function)(*map(ctypes.addressof, (grid, block, params)))

    def to_host(self, array: Any) -> np.ndarray:
        return np.asarray(array)


SHAPE = ctypes.c_uint32 * 3
MOST_WORDS = 64  # of a launch
MOST_FETCHED = 4096
ALIGNMENT = 256  # bytes, of arrays that share an allocation
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class CudaBackend(Backend):
    """Kernels compiled by CuPy for one device, launched on the stream that is current in CuPy."""

    name = "cuda"

    def __init__(self, scalar: Any, index: Any, device: int):
        super().__init__(scalar, index)
        try:
            import cupy
            import cupyx.scipy.special  # noqa: F401  as CuPy does when an array first meets a number, 0.3 s in a product then
            from cupy.cuda import driver
        except ImportError as e:
            raise UnsupportedError(
                f"storing a matrix on the GPU needs CuPy, and importing it failed ({e}): "
                "pip install petsc_gpufmt[cuda13] (or [cuda12]), or stay on the host with -device_enable none"
            ) from e
        self.xp, self._driver = cupy, driver
        self.device = device
        self.model, self.resident_threads = device_model(device)
        self._words = (ctypes.c_uint64 * MOST_WORDS)()  # of the launch that is being made
        first = ctypes.addressof(self._words)
        self._params = (ctypes.c_uint64 * MOST_WORDS)(*range(first, first + ctypes.sizeof(self._words), 8))

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        return device_function(stem, kernel, template_arguments, self.scalar, self.index, self.device)

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        launch_kernel, words = self._driver.launchKernel, self._words
        stream = self.xp.cuda.get_current_stream().ptr
        for launch in launches:
            members: Any = launch.members
            params = self._params if members is launch.arguments else parameters(launch, ctypes.addressof(words))
            if slots:
                members = [slots[a] if type(a) is Slot else a for a in members]
            words[: len(members)] = [WORD_OF[type(a)](a) for a in members]
            (nx, ny, nz), (x, y, z) = launch.grid, launch.block
            address = ctypes.addressof(params)
            launch_kernel(launch.function, nx, ny, nz, x, y, z, launch.shared_bytes, stream, address, 0)

    def adopt(self, array: np.ndarray, *, keep: bool = False) -> Any:
        adopted = self.xp.empty(array.shape, dtype=array.dtype)
        native_library.upload(adopted, array, self.xp.cuda.get_current_stream().ptr)
        return adopted

    def to_host(self, array: Any) -> np.ndarray:
        return self.xp.asnumpy(array)

    def first(self, array: Any, count: int) -> list[int]:
        cuda, stream = self.xp.cuda, self.xp.cuda.get_current_stream()
        pinned = self._pinned
        cuda.runtime.memcpyAsync(
            pinned.ptr, array.data.ptr, count * array.itemsize, cuda.runtime.memcpyDeviceToHost, stream.ptr
        )
        stream.synchronize()
        return np.frombuffer(pinned, dtype=array.dtype, count=count).tolist()

    @functools.cached_property
    def _pinned(self) -> Any:
        return self.xp.cuda.alloc_pinned_memory(MOST_FETCHED)

    def empty(self, *arrays: tuple[int, np.dtype]) -> list[Any]:
        begins, total = [], 0
        for size, dtype in arrays:
            begins.append(total)
            total += ceil_div(size * dtype.itemsize, ALIGNMENT) * ALIGNMENT
        memory, ndarray = self.xp.cuda.alloc(total), self.xp.ndarray
        return [ndarray(size, dtype, memory + begin) for (size, dtype), begin in zip(arrays, begins, strict=True)]

    def clear(self, array: Any) -> None:
        array.data.memset_async(0, array.nbytes)

    def free_bytes(self) -> int | None:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return free + self.pooled_bytes()

    def pooled_bytes(self) -> int:
        return self.xp.get_default_memory_pool().free_bytes()


@functools.cache
def device_model(device: int) -> tuple[str, int]:
    """Name of a CUDA device, and the threads that it runs at once."""
    from cupy.cuda import runtime

    properties = runtime.getDeviceProperties(device)
    return properties["name"].decode(), properties["multiProcessorCount"] * properties["maxThreadsPerMultiProcessor"]
