"""Where a format lives and runs: on the host, or on a CUDA device."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.backends.compile import device_function
from petsc_gpufmt.backends.cupy_state import borrowed_stream, simple_reductions
from petsc_gpufmt.backends.device_array import DeviceArray
from petsc_gpufmt.backends.device_memory import memory_of
from petsc_gpufmt.backends.plan import WORD_OF, Launch, Slot, Struct, address, argument_word
from petsc_gpufmt.backends.program import Prepared, Program
from petsc_gpufmt.errors import UnsupportedError

WORD = np.dtype(np.int64)


class Backend(ABC):
    """What a format may ask for.

    Attributes
    ----------
    name : "host", "cuda", ...
    xp : numpy or cupy; on a device it is imported at its first use, which plans with default options do without
    scalar, index : NumPy dtypes of values and indices
    real : that of the magnitudes of values
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
        self.real = np.empty(0, self.scalar).real.dtype
        self.largest_index = (1 << (8 * self.index.itemsize - 1)) - 1

    def by_value(self, number: complex) -> Any:
        """A scalar as an argument: of 16 bytes, it passes in two words."""
        scalar = self.scalar.type(number)
        return Struct(scalar.real, scalar.imag) if scalar.itemsize > WORD.itemsize else scalar

    @property
    def alpha(self) -> Any:
        """The argument for the scalar that is only known at replay."""
        return Struct(Slot.ALPHA, Slot.ALPHA_IMAG) if self.scalar.itemsize > WORD.itemsize else Slot.ALPHA

    @abstractmethod
    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        """What to launch: a kernel of ``kernels/<stem>.cu`` with its template arguments, or its host counterpart."""

    @abstractmethod
    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        """Carry out launches now; `slots` holds the arrays that fill their slots."""

    def prepared(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> Callable[[], None]:
        """What carries out launches each time it is called; their arguments, which have to stay, are looked at once."""
        return functools.partial(self.run, launches, slots)

    def carry_out(self, program: Program, blocks: Sequence[int], given: Sequence[Any]) -> None:
        """Carry out the steps of a program now: with so many blocks each, none if it is left out, and what it names."""
        self.run(program.launches(self.function, blocks, given))

    def adopt(self, array: Any, *, keep: bool = False) -> Any:
        """A one-dimensional host array as an array of this backend; a copy if it is to be kept while `array` may go.

        An array of a device is taken for one of this backend.
        """
        return array.copy() if keep else array

    def view(self, pointer: int | None, size: int, dtype: np.dtype) -> Any:
        """Memory of the caller on the device as an array of this backend; UnsupportedError where there is no device."""
        raise UnsupportedError("arrays of a device are given to the host: copy them to the host first")

    @abstractmethod
    def to_host(self, array: Any) -> np.ndarray:
        """The array as a NumPy array."""

    def first(self, array: Any, count: int, meanwhile: Callable[[], None] | None = None) -> list[int]:
        """The first `count` entries of an integer array, at most 4096 bytes; waits for the launches so far.

        `meanwhile` is called before the wait: for what it launches the host does not wait. It asks for no numbers.
        """
        numbers = self.to_host(array[:count]).tolist()
        if meanwhile is not None:
            meanwhile()
        return numbers

    def told(self, count: int) -> Any:
        """(count,) int64, at most 4096 bytes, that launches write and `first` reads; not filled.

        On a device they are in memory of the host, and no copy is waited for. One such array is in use at a time.
        """
        return self.empty((count, WORD))[0]

    def empty(self, *arrays: tuple[int, np.dtype], zeros: int = 0) -> list[Any]:
        """Arrays of (size, dtype) each, the first `zeros` of them full of zeros, the others not filled.

        On a device those that are filled share an allocation, and the others.
        """
        made = [self.xp.empty(size, dtype=dtype) for size, dtype in arrays]
        for filled in made[:zeros]:
            filled.fill(0)
        return made

    def clear(self, array: Any) -> None:
        """Fill an array with zeros, in the order of launches."""
        array.fill(0)

    def in_turns(self, nthreads: int) -> int:
        """Threads of a launch that takes the work of `nthreads` in turns: no more than run at once."""
        return min(nthreads, self.resident_threads or nthreads)

    def free_bytes(self) -> int | None:
        """Bytes that can still be taken; None where that is not limited by a device."""
        return None

    def keeps(self, nbytes: int) -> bool:
        """Whether so many of these have been set aside for this process, as is known without asking the device."""
        return False


def argument_block(launch: Launch, slots: dict[Slot, Any] | None) -> tuple[ctypes.Array, ctypes.Array]:
    """The words of a launch, its slots filled from arrays, and where each argument begins in them: 8 bytes both.

    The addresses hold while the words live.
    """
    (members, first_words), slots = launch.flattened(), slots or {}
    block = ctypes.c_uint64 * len(members)
    words = block(*[argument_word(slots[a] if type(a) is Slot else a) for a in members])
    first = ctypes.addressof(words)
    return words, block(*[first + 8 * word for word in first_words])


class HostBackend(Backend):
    """C functions of the native library, compiled from ``kernels/host/``; template arguments do not apply to them."""

    name = "host"
    xp = np
    resident_threads = 0
    simd_width = 8

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        return native_library.host_function(kernel, self.scalar, self.index)

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        for launch in launches:
            words, params = argument_block(launch, slots)  # params point into words
            grid, block = (SHAPE(*shape) for shape in (launch.grid, launch.block))
            HOST_FUNCTION(launch.function)(*map(ctypes.addressof, (grid, block, params)))

    def to_host(self, array: Any) -> np.ndarray:
        return np.asarray(array)


SHAPE = ctypes.c_uint32 * 3
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class CudaBackend(Backend):
    """Kernels and memory of one device, through its driver. CuPy is imported where `xp` is used and nowhere else.

    Arrays are those of `empty` and `adopt`; all that takes them takes CuPy's too.

    Attributes
    ----------
    device : its number
    memory : where arrays are
    stream : what is queued goes there: the default stream, or that of a ``with`` statement with `on`
    """

    name = "cuda"

    def __init__(self, scalar: Any, index: Any, device: int):
        super().__init__(scalar, index)
        self.device, self.memory, self.stream = device, memory_of(device), 0
        if driver.current_context() is None:
            driver.set_context(self.memory.context)
        self.model, self.resident_threads = driver.device_name(device), driver.resident_threads(device)
        self._launcher = driver.Launcher()
        self._functions: dict[tuple[str, str, tuple[int, ...]], int] = {}
        self._prepared: dict[Program, Prepared] = {}
        self._scope: contextlib.ExitStack | None = None

    @contextlib.contextmanager
    def on(self, stream: int) -> Iterator[CudaBackend]:
        """This backend with its device current, and launches, memory and CuPy on the stream of that handle."""
        with driver.current(self.memory.context), contextlib.ExitStack() as scope:
            outside, xp = (self.stream, self._scope), self.__dict__.pop("xp", None)
            self.stream, self._scope = stream, scope
            try:
                yield self
            finally:
                self.stream, self._scope = outside
                self.__dict__.pop("xp", None)
                if xp is not None:
                    self.__dict__["xp"] = xp

    @functools.cached_property
    def xp(self) -> Any:
        """CuPy; within `on` with the device and the stream current in it, and simple reductions."""
        try:
            import cupy
        except ImportError as e:
            raise UnsupportedError(
                f"storing a matrix this way on the GPU needs CuPy, and importing it failed ({e}): "
                "pip install petsc_gpufmt[cuda13] (or [cuda12]), or stay on the host with -device_enable none"
            ) from e
        if self._scope is not None:
            self._scope.enter_context(cupy.cuda.Device(self.device))
            self._scope.enter_context(borrowed_stream(cupy.cuda, self.stream, self.device))
            self._scope.enter_context(simple_reductions(cupy))
        return cupy

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        known = self._functions.get((stem, kernel, template_arguments))
        if known is None:
            known = device_function(stem, kernel, template_arguments, self.scalar, self.index, self.device)
            self._functions[stem, kernel, template_arguments] = known
        return known

    def run(
        self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None, *, stream: int | None = None
    ) -> None:
        """As of every backend; on another stream than that of `on` if one is given."""
        self._queueing(launches, slots)(self.stream if stream is None else stream)

    def prepared(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> Callable[[], None]:
        queue = self._queueing(launches, slots)
        return lambda: queue(self.stream)

    def _queueing(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None) -> Callable[[int], None]:
        """What queues launches on a stream."""
        heads: list[int] = []
        words: list[int] = []
        for launch in launches:
            members, first_words = launch.flattened()
            if slots:
                members = [slots[a] if type(a) is Slot else a for a in members]
            blocks, *grid = launch.grid
            place = len(words)
            arguments = [place + 1 + word for word in first_words]
            heads += driver.head(launch.function, place, grid, launch.block, launch.shared_bytes, arguments)
            words.append(blocks)
            words += [a.ptr if type(a) is DeviceArray else WORD_OF[type(a)](a) for a in members]
        arrays = array("Q", heads), array("Q", words)

        def queue(stream: int) -> None:
            (heads_at, _), (words_at, _) = [numbers.buffer_info() for numbers in arrays]
            self._launcher.launch(len(launches), heads_at, words_at, stream)

        return queue

    def carry_out(self, program: Program, blocks: Sequence[int], given: Sequence[Any]) -> None:
        prepared = self._prepared.get(program)
        if prepared is None:
            prepared = self._prepared[program] = Prepared(program, self.function)
        prepared.launch(blocks, given, self.stream)

    def adopt(self, array: Any, *, keep: bool = False) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        if array.ndim != 1:
            raise ValueError(f"an array of {array.ndim} dimensions: those of a device have one")
        (adopted,) = self.empty((array.size, array.dtype))
        native_library.upload(adopted, np.ascontiguousarray(array), self.stream)
        return adopted

    def view(self, pointer: int | None, size: int, dtype: np.dtype) -> Any:
        return DeviceArray(self.memory, pointer or 0, size, dtype)

    def to_host(self, array: Any) -> np.ndarray:
        if isinstance(array, DeviceArray):
            fetched = np.empty(array.size, array.dtype)
            self.memory.to_host(array.ptr, fetched, self.stream)
            return fetched
        return array if isinstance(array, np.ndarray) else self.xp.asnumpy(array)

    def told(self, count: int) -> Any:
        return DeviceArray(self.memory, self.memory.told, count, WORD)

    def first(self, array: Any, count: int, meanwhile: Callable[[], None] | None = None) -> list[int]:
        return self.memory.first(address(array), count, array.dtype, self.stream, meanwhile)

    def empty(self, *arrays: tuple[int, np.dtype], zeros: int = 0) -> list[Any]:
        if not zeros:
            return self.memory.empty(arrays, self.stream)
        full, others = self.memory.zeros(arrays[:zeros], self.stream), arrays[zeros:]
        return full + self.memory.empty(others, self.stream) if others else full

    def clear(self, array: Any) -> None:
        if array.size:
            driver.fill(address(array), 0, array.nbytes, self.stream)

    def synchronize(self) -> None:
        """Wait for the launches so far."""
        driver.synchronize_stream(self.stream)  # device synchronisation: what this method is for

    def free_bytes(self) -> int | None:
        return driver.free_bytes() + self.memory.pooled_bytes()

    def keeps(self, nbytes: int) -> bool:
        return self.memory.keeps(nbytes)
