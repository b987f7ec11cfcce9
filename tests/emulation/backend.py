"""A backend that runs the device kernels on the host, and looks at what they do to memory."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt import abi
from petsc_gpufmt.backend import Backend
from petsc_gpufmt.compile import compile_flags, instance_name, kernel_directory
from petsc_gpufmt.plan import Launch, Slot

SHIM = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 120
GUARD_BYTES = 4096
GUARD = 0xFF  # NaN as floating-point, -1 as index
# Larger arrays are passed to kernels as they are: tests of large indices reserve memory without touching it.
GUARDED_BYTES = 1 << 26
GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
THREADS_PER_BLOCK_LIMIT = 1024

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_void_p)
)


class EmulationError(Exception):
    """A kernel did what a device forbids."""


def cxx_compiler() -> str | None:
    """The C++ compiler: $CXX or c++; None if there is none."""
    return shutil.which(os.environ.get("CXX", "c++"))


@functools.cache
def compile_instance(build: Path, source: Path, name: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """Compile the kernel instance `name` of `source` into a library in the folder `build`, and load it."""
    runtime = build / "libfibers.so"
    common = [cxx_compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", f"-I{SHIM}"]
    if not runtime.exists():
        compile_library([*common, SHIM / "fibers.cpp", "-o", runtime])
    library = build / f"{source.stem}-{len(list(build.iterdir()))}.so"
    defines = [f"-DKERNEL={name}", f'-DKERNEL_FILE="{source}"']
    # one copy of a kernel's shared memory for each library, though several hold templates of one name
    compile_library([*common, *flags, *defines, "-fno-gnu-unique", SHIM / "instance.cpp", runtime, "-o", library])
    return ctypes.CDLL(str(library))


def compile_library(command: list[Any]) -> None:
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    if process.returncode:
        raise EmulationError(f"{' '.join(process.args)}\n{process.stderr}")


class EmulatedBackend(Backend):
    """Kernels of `kernels` compiled into `build`.

    `resident_threads` is what the emulated device claims: 0 makes a thread a row the best choice, a large number
    makes threads share rows where rows are long enough.
    """

    name = "emulation"
    xp = np

    def __init__(self, scalar: Any, index: Any, build: Path, resident_threads: int = 0, kernels: Path | None = None):
        super().__init__(scalar, index)
        self.build, self.resident_threads = build, resident_threads
        self.kernels = kernels or kernel_directory()

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        flags = (*compile_flags(self.scalar, self.index), f"-I{self.kernels}")
        name = instance_name(kernel, template_arguments)
        library = compile_instance(self.build, self.kernels / f"{stem}.cu", name, flags)
        return ctypes.cast(library.launch, ctypes.c_void_p).value or 0

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        for launch in launches:
            check_geometry(launch)
            arrays = [(slots or {})[a] if isinstance(a, Slot) else a for a in launch.arguments]
            guarded = {id(a): Guarded(a) for a in arrays if isinstance(a, np.ndarray) and 0 < a.nbytes <= GUARDED_BYTES}
            arguments = tuple(guarded[id(a)].inner if id(a) in guarded else a for a in arrays)
            struct = abi.LaunchStruct()
            kept = abi.export_launch(replace(launch, arguments=arguments), struct)
            message = LAUNCH(launch.function)(struct.grid, struct.block, struct.params)
            del kept
            if message:
                raise EmulationError(message.decode())
            for array in guarded.values():
                array.check_and_copy_back()

    def to_host(self, array: Any) -> np.ndarray:
        return np.asarray(array)


class Guarded:
    """A copy of an array between two zones that no kernel may write to."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.bytes = np.full(array.nbytes + 2 * GUARD_BYTES, GUARD, dtype=np.uint8)
        self.inner = self.bytes[GUARD_BYTES:-GUARD_BYTES].view(array.dtype).reshape(array.shape)
        self.inner[...] = array

    def check_and_copy_back(self) -> None:
        for name, zone in (("before", self.bytes[:GUARD_BYTES]), ("after", self.bytes[-GUARD_BYTES:])):
            if bool((zone != GUARD).any()):
                raise EmulationError(f"out-of-bounds write {name} an array of {self.array.size} {self.array.dtype}")
        if self.array.flags.writeable:
            self.array[...] = self.inner
        elif not np.array_equal(self.array, self.inner, equal_nan=self.array.dtype.kind == "f"):
            raise EmulationError(f"write to a read-only array of {self.array.size} {self.array.dtype}")


def check_geometry(launch: Launch) -> None:
    """Raise EmulationError for a launch that a device would refuse."""
    for what, sizes, limits in (("grid", launch.grid, GRID_LIMITS), ("block", launch.block, BLOCK_LIMITS)):
        if not all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True)):
            raise EmulationError(f"{what} {sizes} is outside 1 to {limits}")
    if math.prod(launch.block) > THREADS_PER_BLOCK_LIMIT:
        raise EmulationError(f"{math.prod(launch.block)} threads a block, the limit is {THREADS_PER_BLOCK_LIMIT}")
