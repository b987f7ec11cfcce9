"""Where products run in this process: the host, and PETSc's device and stream if there is one."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.backends.backend import Backend, CudaBackend, HostBackend
from petsc_gpufmt.backends.cupy_state import borrowed_stream
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.timing import DeviceTimer, HostTimer, Timer
from petsc_gpufmt.errors import UnsupportedError

SEED = 20120917
COPY_BYTES = {"host": 1 << 27, "cuda": 1 << 30}


class Place:
    """One place: its timer, its backend for building formats, and the type of its vectors."""

    def __init__(self, timer: Timer, backend: Backend, vector_type: str):
        self.name, self.timer, self.backend, self.vector_type = timer.place, timer, backend, vector_type

    def free_memory(self) -> None:
        """Give back what CuPy and the package keep for later: the next contender allocates by itself."""
        if isinstance(self.backend, CudaBackend):
            self.backend.xp.get_default_memory_pool().free_all_blocks()
            self.backend.memory.trim()

    def pool_bytes(self) -> int:
        """Bytes of the device that CuPy holds, and the most that arrays of the package have had; 0 on the host."""
        if not isinstance(self.backend, CudaBackend):
            return 0
        return self.backend.xp.get_default_memory_pool().total_bytes() + self.backend.memory.most_used_bytes()

    def copy_bandwidth(self) -> float:
        """Bytes per second of a large copy, bytes read and bytes written both counted: the ceiling of every product."""
        xp, count = self.backend.xp, COPY_BYTES[self.name] // 8
        source, target = xp.ones(count), xp.zeros(count)
        seconds = self.timer.times(lambda: xp.copyto(target, source)).median
        return 2 * source.nbytes / seconds


def gpu_reason() -> str | None:
    """Why programs with this PETSc run on no GPU, None if they can."""
    from petsc4py import PETSc

    if not PETSc.Sys.hasExternalPackage("cuda"):
        return "this PETSc was configured without CUDA"
    try:
        return None if driver.device_count() else "there is no GPU"
    except (UnsupportedError, driver.DriverError) as e:
        return f"no GPU answers ({e})"


def device_reason() -> str | None:
    """Why no device can be measured in this process, None if one can: peers and timers need CuPy."""
    reason = gpu_reason()
    if reason is None:
        try:
            import cupy  # noqa: F401
        except ImportError as e:
            return f"CuPy cannot be imported ({e})"
    return reason


def petsc_stream() -> int:
    """Address of the CUDA stream that PETSc uses now; its device must have been started."""
    stream = ctypes.c_void_p()
    code = native_library.load().PetscGetCurrentCUDAStream(ctypes.byref(stream))
    if code:
        raise BenchError(f"PETSc error {code} on asking for its CUDA stream: its message is above")
    return stream.value or 0


def host_place() -> Place:
    scalar, index = native_library.real_types()
    return Place(HostTimer(), HostBackend(scalar, index), "seq")


@contextlib.contextmanager
def device_place() -> Iterator[Place]:
    """PETSc's device, with its stream that of the backend and current in CuPy."""
    import cupy
    from petsc4py import PETSc

    scalar, index = native_library.real_types()
    vector = PETSc.Vec().create(PETSc.COMM_SELF)
    vector.setSizes(1)
    vector.setType("seqcuda")
    vector.set(0.0)  # starts PETSc's device
    vector.destroy()
    device = cupy.cuda.Device()
    with (
        borrowed_stream(cupy.cuda, petsc_stream(), device.id) as stream,
        CudaBackend(scalar, index, device.id).on(petsc_stream()) as backend,
    ):
        yield Place(DeviceTimer(stream), backend, "seqcuda")


@contextlib.contextmanager
def available_places(host_only: bool) -> Iterator[dict[str, Place]]:
    """Name -> place: the host always, the device if there is one and it was not excluded."""
    places = {"host": host_place()}
    if host_only or device_reason():
        yield places
        return
    with device_place() as device:
        places["cuda"] = device
        yield places


def best_place(places: dict[str, Place]) -> str:
    """Where sets of large matrices are measured."""
    return "cuda" if "cuda" in places else "host"


def matrix_types(host: Place) -> tuple[np.dtype, np.dtype, np.random.Generator]:
    """Type of values, type of indices and a generator of random numbers, as bench/matrices.py takes them."""
    return host.backend.scalar, host.backend.index, np.random.default_rng(SEED)


def random_vector(size: int, scalar: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Entries in [-0.5, 0.5)."""
    return rng.random(size, dtype=scalar) - scalar.type(0.5)


def synchronised(place: Place, call: Any) -> Any:
    """The value of `call`, after all that it queued has ended."""
    value = call()
    if place.name == "cuda":
        place.backend.xp.cuda.get_current_stream().synchronize()
    return value
