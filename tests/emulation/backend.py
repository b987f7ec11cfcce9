"""A backend that runs the device kernels on the host, and looks at what they do to memory."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.device_array import DeviceArray
from petsc_gpufmt.backends.device_memory import MOST_FETCHED
from petsc_gpufmt.backends.kernel_modules import instance_name
from petsc_gpufmt.backends.kernel_sources import compile_flags, kernel_directory
from petsc_gpufmt.backends.plan import Launch, Slot, Struct
from petsc_gpufmt.planning import abi

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
def cxx_version() -> str:
    return subprocess.run([cxx_compiler(), "--version"], capture_output=True, text=True, check=True).stdout


def source_texts(file: Path, seen: dict[Path, str] | None = None) -> dict[Path, str]:
    """The texts of a source file and of the files that it includes by name in quotes, from its folder or the shim's."""
    seen = {} if seen is None else seen
    seen[file] = file.read_text()
    for name in re.findall(r'^\s*#\s*include\s*"(.+?)"', seen[file], re.MULTILINE):
        for included in (kernel_directory() / name, file.parent / name, SHIM / name):
            if included.exists() and included not in seen:
                source_texts(included, seen)
    return seen


def compile_library(build: Path, stem: str, arguments: list[Any], sources: list[Path]) -> Path:
    """The library that the compiler makes with `arguments` from `sources`, in the folder `build`.

    It is kept there, and compiled again only after a change of the arguments, of $CXXFLAGS, which come before them, a
    source, what that includes, or the compiler.
    """
    more = shlex.split(os.environ.get("CXXFLAGS", ""))
    words = (cxx_compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", *more, f"-I{SHIM}", *arguments)
    command = [str(word) for word in words]
    key = repr((cxx_version(), command, [source_texts(source) for source in sources]))
    library = build / f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        build.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        command += ["-o", str(unfinished)]
        environment = {**os.environ, "LD_PRELOAD": ""}  # compilers do not run with a sanitizer
        process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        if process.returncode:
            raise EmulationError(f"{' '.join(command)}\n{process.stderr}")
        unfinished.replace(library)
    return library


@functools.cache
def load_instance(build: Path, source: Path, name: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """The kernel instance `name` of `source` as a library."""
    fibers, instance = SHIM / "fibers.cpp", SHIM / "instance.cpp"
    runtime = compile_library(build, "fibers", [fibers], [fibers])
    defines = [f"-DKERNEL={name}", f'-DKERNEL_FILE="{source}"']
    # one copy of a kernel's shared memory for each library, though several hold templates of one name
    arguments = [*flags, *defines, "-fno-gnu-unique", instance, runtime]
    return ctypes.CDLL(str(compile_library(build, source.stem, arguments, [instance, source])))


class EmulatedBackend(Backend):
    """Kernels of the folder `kernels`, compiled into the folder `build` and kept there.

    `resident_threads` is what the emulated device claims: 0 makes a thread a row the best choice, a large number
    makes threads share rows where rows are long enough. A backend that is `device_like` hands out arrays that offer no
    more than those of a device, filled with what shows that it was never written, and has no module `xp`.
    """

    name = "emulation"
    xp: Any = np

    def __init__(
        self,
        scalar: Any,
        index: Any,
        build: Path,
        resident_threads: int = 0,
        kernels: Path | None = None,
        device_like: bool = False,
    ):
        super().__init__(scalar, index)
        self.build, self.resident_threads = build, resident_threads
        self.kernels = kernels or kernel_directory()
        self.device_like = device_like
        if device_like:
            self.xp = NoModule()

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        flags = (*compile_flags(self.scalar, self.index), f"-I{self.kernels}")
        name = instance_name(kernel, template_arguments)
        library = load_instance(self.build, self.kernels / f"{stem}.cu", name, flags)
        return ctypes.cast(library.launch, ctypes.c_void_p).value or 0

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        for launch in launches:
            check_geometry(launch)
            guarded: dict[int, Guarded] = {}
            arguments = tuple(passed(a, slots or {}, guarded) for a in launch.arguments)
            plan = abi.PlanStruct()
            kept = abi.export_plan([replace(launch, arguments=arguments)], plan)
            struct = plan.launches[0]
            message = LAUNCH(launch.function)(struct.grid, struct.block, struct.params)
            del kept
            if message:
                raise EmulationError(message.decode())
            for array in guarded.values():
                array.check_and_copy_back()

    def empty(self, *arrays: tuple[int, np.dtype], zeros: int = 0) -> list[Any]:
        if not self.device_like:
            return super().empty(*arrays, zeros=zeros)
        made = [device_array(never_written(size, dtype)) for size, dtype in arrays]
        for array in made[:zeros]:
            self.clear(array)
        return made

    def clear(self, array: Any) -> None:
        (host_view(array) if isinstance(array, DeviceArray) else array).fill(0)

    def adopt(self, array: Any, *, keep: bool = False) -> Any:
        if not self.device_like:
            return super().adopt(array, keep=keep)
        return array if isinstance(array, DeviceArray) else device_array(np.array(array))

    def first(self, array: Any, count: int, meanwhile: Callable[[], None] | None = None) -> list[int]:
        if count * array.itemsize > MOST_FETCHED:
            raise EmulationError(f"{count} {array.dtype} are asked for at once: at most {MOST_FETCHED} bytes can be")
        return super().first(array, count, meanwhile)

    def to_host(self, array: Any) -> np.ndarray:
        return host_view(array).copy() if isinstance(array, DeviceArray) else np.asarray(array)


class NoModule:
    """In the place of the module `xp` where none may be used."""

    def __getattr__(self, name: str) -> Any:
        raise EmulationError(f"xp.{name} where arrays offer no more than those of a device")


def never_written(size: int, dtype: np.dtype) -> np.ndarray:
    """NaN, or the smallest integer; untouched memory if it is large."""
    if size * dtype.itemsize > GUARDED_BYTES:
        return np.empty(size, dtype)
    return np.full(size, np.nan if dtype.kind in "fc" else np.iinfo(dtype).min, dtype)


def device_array(array: np.ndarray) -> DeviceArray:
    """The memory of a contiguous one-dimensional array as that of a device."""
    if array.ndim != 1:
        raise EmulationError(f"an array of {array.ndim} dimensions where arrays are those of a device: they have one")
    return DeviceArray(array, array.ctypes.data, array.size, array.dtype)


def host_view(array: DeviceArray) -> np.ndarray:
    """What lies in the memory of an array that `device_array` has made, or in that of a slice."""
    begin = (array.ptr - array.memory.ctypes.data) // array.itemsize if array.size else 0
    return array.memory[begin : begin + array.size]


def passed(argument: Any, slots: dict[Slot, Any], guarded: dict[int, Guarded]) -> Any:
    """An argument with slots filled and small arrays replaced by copies, which are noted in `guarded`."""
    if isinstance(argument, Struct):
        return Struct(*(passed(member, slots, guarded) for member in argument))
    if isinstance(argument, Slot):
        argument = slots[argument]
    array = host_view(argument) if isinstance(argument, DeviceArray) else argument
    if not isinstance(array, np.ndarray) or not 0 < array.nbytes <= GUARDED_BYTES:
        return array
    if id(argument) not in guarded:
        guarded[id(argument)] = Guarded(array)
    return guarded[id(argument)].inner


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
        elif not np.array_equal(self.array, self.inner, equal_nan=self.array.dtype.kind in "fc"):
            raise EmulationError(f"write to a read-only array of {self.array.size} {self.array.dtype}")


def check_geometry(launch: Launch) -> None:
    """Raise EmulationError for a launch that a device would refuse."""
    for what, sizes, limits in (("grid", launch.grid, GRID_LIMITS), ("block", launch.block, BLOCK_LIMITS)):
        if not all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True)):
            raise EmulationError(f"{what} {sizes} is outside 1 to {limits}")
    if math.prod(launch.block) > THREADS_PER_BLOCK_LIMIT:
        raise EmulationError(f"{math.prod(launch.block)} threads a block, the limit is {THREADS_PER_BLOCK_LIMIT}")
