"""Where a format lives and runs: on the host, or on a CUDA device."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from petsc_gpufmt import native_library
from petsc_gpufmt.compile import device_function
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.plan import Launch, Slot, argument_word


class Backend(ABC):
    """What a format may ask for.

    Attributes
    ----------
    name : "host", "cuda", ...
    xp : numpy or cupy
    scalar, index : NumPy dtypes of values and indices
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

    def free_bytes(self) -> int | None:
        """Bytes that can still be taken; None where that is not limited by a device."""
        return None


def argument_block(launch: Launch, slots: dict[Slot, Any] | None) -> tuple[ctypes.Array, ctypes.Array]:
    """The argument words of a launch, its slots filled from arrays, and the address of each: 8 bytes both.

    The addresses hold while the words live.
    """
    filled = ((slots or {})[a] if isinstance(a, Slot) else a for a in launch.arguments)
    block = ctypes.c_uint64 * len(launch.arguments)
    words = block(*map(argument_word, filled))
    first = ctypes.addressof(words)
    return words, block(*range(first, first + ctypes.sizeof(words), 8))


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
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class CudaBackend(Backend):
    """Kernels compiled by CuPy for one device, launched on the stream that is current in CuPy."""

    name = "cuda"

    def __init__(self, scalar: Any, index: Any, device: int):
        super().__init__(scalar, index)
        try:
            import cupy
        except ImportError as e:
            raise UnsupportedError(
                f"storing a matrix on the GPU needs CuPy, and importing it failed ({e}): "
                "pip install petsc_gpufmt[cuda13] (or [cuda12]), or stay on the host with -device_enable none"
            ) from e
        self.xp = cupy
        self.device = device
        properties = cupy.cuda.runtime.getDeviceProperties(device)
        self.model = properties["name"].decode()
        self.resident_threads = properties["multiProcessorCount"] * properties["maxThreadsPerMultiProcessor"]

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        return device_function(stem, kernel, template_arguments, self.scalar, self.index, self.device)

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        from cupy.cuda import driver

        stream = self.xp.cuda.get_current_stream().ptr
        for launch in launches:
            words, params = argument_block(launch, slots)  # params point into words
            shape = *launch.grid, *launch.block, launch.shared_bytes
            driver.launchKernel(launch.function, *shape, stream, ctypes.addressof(params), 0)

    def adopt(self, array: np.ndarray, *, keep: bool = False) -> Any:
        adopted = self.xp.empty(array.shape, dtype=array.dtype)
        native_library.upload(adopted, array, self.xp.cuda.get_current_stream().ptr)
        return adopted

    def to_host(self, array: Any) -> np.ndarray:
        return self.xp.asnumpy(array)

    def free_bytes(self) -> int | None:
        free, _ = self.xp.cuda.runtime.memGetInfo()
        return free + self.xp.get_default_memory_pool().free_bytes()
