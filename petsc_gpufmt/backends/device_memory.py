"""Memory of a device for arrays: one pool, from which it is taken, and to which it comes back, in stream order."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.backends.device_array import DeviceArray

ALIGNMENT = 256  # bytes, of arrays that share an allocation
# Bytes up to which sizes are powers of two, and up to which these and the three quarters between them: what comes back
# then fits what is taken next, for which so many bytes are kept, and small pieces
SMALL, MEDIUM, MOST_KEPT = 1 << 12, 1 << 22, 1 << 26
# Bytes that are filled with zeros at once, and those that an array may take of them
ZEROS, MOST_ZEROS = 1 << 16, 1 << 13
MOST_FETCHED = 4096  # bytes, through pinned memory
NULL_STREAM = 0  # of CUDA, which is always there


class Allocation:
    """Memory that arrays share; with the last of them it is noted as given back."""

    __slots__ = ("__weakref__", "address", "memory", "nbytes")

    def __init__(self, memory: DeviceMemory, address: int, nbytes: int):
        self.memory, self.address, self.nbytes = memory, address, nbytes

    @property
    def stream(self) -> int:
        return self.memory.stream

    def __del__(self) -> None:
        # No call of the driver: this may run in any thread, in another context, in a child of fork(), and after PETSc
        # has ended. Nothing but this one step, since Python may go on with another thread in between.
        self.memory.coming_back.append((self.nbytes, self.address))


class DeviceMemory:
    """Memory of one device, for plans on one stream at a time. Functions of the driver need its context.

    One thread at a time calls it; arrays may go in any.

    Attributes
    ----------
    stream : the one that memory was last taken for; it comes back in the order of this stream
    context : the device's primary context
    told : address of MOST_FETCHED bytes of the host to which kernels write what it is to know
    coming_back : (bytes, address) of what no array uses any more. It is taken again for as many bytes; where there is
        too much of it, all but small pieces return to the pool before that is asked for more.
    """

    def __init__(self, device: int):
        self.context, self.stream = driver.primary_context(device), NULL_STREAM
        self.coming_back: deque[tuple[int, int]] = deque()
        self._given_back: dict[int, list[int]] = {}  # by bytes
        self._taken = False
        self._spare = 0  # bytes that the pool keeps for later, or fewer
        self._zeros: tuple[Allocation | None, int] = None, 0  # what was filled at once, and where the rest of it begins
        with driver.current(self.context):
            # where a device has no pools, memory is taken and given back at once, which waits for the device
            pools = driver.device_attribute(device, driver.MEMORY_POOLS_SUPPORTED)
            self._pool = driver.create_pool(device) if pools else None
            self.told = driver.allocate_pinned(2 * MOST_FETCHED)
            self._is_there = driver.create_event()
        self._pinned = self.told + MOST_FETCHED
        self._told_there, self._fetched = _memory_at(self.told), _memory_at(self._pinned)

    def empty(self, arrays: Sequence[tuple[int, np.dtype]], stream: int) -> list[DeviceArray]:
        """Arrays of (size, dtype) each, not filled, in one allocation, to be used on a stream.

        DriverError if memory runs out.
        """
        total = _total(arrays)
        if not total:
            return [DeviceArray(self, 0, 0, dtype) for _, dtype in arrays]
        memory = self.allocate(total, stream)
        return _in_turn(arrays, memory, memory.address)

    def allocate(self, nbytes: int, stream: int) -> Allocation:
        """At least so many bytes, which must not be none, to be used on a stream. DriverError if memory runs out."""
        nbytes = _rounded(nbytes)
        return Allocation(self, self._take(nbytes, stream), nbytes)

    def zeros(self, arrays: Sequence[tuple[int, np.dtype]], stream: int) -> list[DeviceArray]:
        """As `empty`, full of zeros: short arrays are parts of a piece that was filled at once."""
        total = _total(arrays)
        if total > MOST_ZEROS:
            made = self.empty(arrays, stream)
            driver.fill(min([array.ptr for array in made if array.size]), 0, total, stream)
            return made
        memory, begin = self._zeros
        if memory is None or begin + total > memory.address + ZEROS or stream != self.stream:
            begin = self._take(ZEROS, stream)
            memory = Allocation(self, begin, ZEROS)
            driver.fill(begin, 0, ZEROS, stream)
        self._zeros = memory, begin + total
        return _in_turn(arrays, memory, begin)

    def _take(self, nbytes: int, stream: int) -> int:
        if stream != self.stream:
            self._follow(stream)
        self._taken = True
        self._spare -= nbytes
        fitting = self._all_given_back().get(nbytes)
        if fitting:
            return fitting.pop()
        if nbytes > SMALL and self.bytes_given_back() > MOST_KEPT:
            self._return(SMALL)
        if self._pool is None:
            return driver.allocate(nbytes)
        return driver.allocate_from_pool(self._pool, nbytes, stream)

    def _follow(self, stream: int) -> None:
        """What has come back was last used on the stream before, which may have been destroyed: wait for the device."""
        if self._taken:
            driver.synchronize_context()  # device synchronisation: once for each change of PETSc's stream
        self.stream = stream

    def _return(self, largest_kept: int = 0) -> None:
        """Give what has come back to the pool, but for pieces of at most `largest_kept` bytes."""
        for nbytes in list(self._all_given_back()):
            addresses = self._given_back.pop(nbytes) if nbytes > largest_kept else None
            while addresses:
                if self._pool is None:
                    driver.free(addresses.pop())  # device synchronisation: by the driver
                else:
                    driver.free_in_order(addresses.pop(), self.stream)

    def trim(self) -> None:
        """Give back to the device all that no array uses. PETSc's stream need not exist any more."""
        if not self._taken:
            return
        with driver.current(self.context):
            driver.synchronize_context()  # device synchronisation: what is freed may have been in use
            self.stream, self._spare, self._zeros = NULL_STREAM, 0, (None, 0)
            self._return()
            if self._pool is not None:
                driver.synchronize_stream(NULL_STREAM)  # device synchronisation: only then it counts as free
                driver.trim_pool(self._pool)
                driver.set_pool_bytes(self._pool, driver.MOST_USED_BYTES, 0)

    def most_used_bytes(self) -> int:
        """The most bytes that were taken of the pool at a time since it was trimmed, with what is kept for later."""
        if not self._taken or self._pool is None:
            return 0
        return driver.pool_bytes(self._pool, driver.MOST_USED_BYTES)

    def pooled_bytes(self) -> int:
        """Bytes that the pool keeps for later."""
        if not self._taken or self._pool is None:
            return 0
        reserved, used = (driver.pool_bytes(self._pool, a) for a in (driver.RESERVED_BYTES, driver.USED_BYTES))
        self._spare = max(0, reserved - used + self.bytes_given_back())
        return self._spare

    def bytes_given_back(self) -> int:
        """Bytes that no array uses, but that the pool does not have yet."""
        return sum([nbytes * len(addresses) for nbytes, addresses in self._all_given_back().items()])

    def _all_given_back(self) -> dict[int, list[int]]:
        while self.coming_back:
            nbytes, address = self.coming_back.popleft()
            self._given_back.setdefault(nbytes, []).append(address)
        return self._given_back

    def keeps(self, nbytes: int) -> bool:
        """Whether the pool keeps so many bytes for later; the driver is asked only where that is not known."""
        return nbytes <= self._spare or nbytes <= self.pooled_bytes()

    def to_host(self, address: int, to: np.ndarray, stream: int) -> None:
        """Fill a host array from the device, after what was queued on a stream."""
        if to.size:
            driver.copy_to_host(to.ctypes.data, address, to.nbytes, stream)
            driver.synchronize_stream(stream)  # device synchronisation: the host reads next

    def first(
        self,
        address: int,
        count: int,
        dtype: np.dtype,
        stream: int,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[int]:
        """`count` integers at an address, told or copied; as `to_host`. ValueError above MOST_FETCHED bytes.

        For what `meanwhile` queues the host does not wait.
        """
        nbytes = count * dtype.itemsize
        if nbytes > MOST_FETCHED:
            raise ValueError(f"{nbytes} bytes are asked for at once: at most {MOST_FETCHED} can be")
        there = self._told_there
        if address != self.told:
            there = self._fetched
            driver.copy_to_host(self._pinned, address, nbytes, stream)
        if meanwhile is None:
            driver.synchronize_stream(stream)  # device synchronisation: the host reads next
        else:
            driver.record_event(self._is_there, stream)
            meanwhile()
            driver.synchronize_event(self._is_there)  # device synchronisation: the host reads next
        return there.cast(dtype.char)[:count].tolist()


def _memory_at(address: int) -> Any:
    """MOST_FETCHED bytes of the host."""
    memory: Any = (ctypes.c_ubyte * MOST_FETCHED).from_address(address)
    return memoryview(memory).cast("B")


def _total(arrays: Sequence[tuple[int, np.dtype]]) -> int:
    """Bytes of arrays that follow each other in an allocation."""
    total = 0
    for size, dtype in arrays:
        total += (int(size) * dtype.itemsize + ALIGNMENT - 1) & -ALIGNMENT  # a NumPy integer may overflow
    return total


def _in_turn(arrays: Sequence[tuple[int, np.dtype]], memory: Allocation, begin: int) -> list[DeviceArray]:
    """These arrays, one after the other from an address on."""
    made = []
    for size, dtype in arrays:
        size = int(size)
        made.append(DeviceArray(memory, begin, size, dtype))
        begin += (size * dtype.itemsize + ALIGNMENT - 1) & -ALIGNMENT
    return made


def _rounded(nbytes: int) -> int:
    """The bytes to take for so many, see SMALL and MEDIUM; large pieces are not rounded up."""
    if nbytes <= SMALL:
        return 1 << (nbytes - 1).bit_length()
    step = (1 << nbytes.bit_length()) >> 3
    return (nbytes + step - 1) & -step if nbytes <= MEDIUM else nbytes


_memories: dict[int, DeviceMemory] = {}
on_devices = threading.RLock()
"""Held while something is planned on a device, or its memory is taken or given back: Python may go on with another
thread that has matrices of its own, and all have one memory. A thread that holds it may plan within a plan."""


def memory_of(device: int) -> DeviceMemory:
    """The memory of a device: one pool a process."""
    if device not in _memories:
        _memories[device] = DeviceMemory(device)
    return _memories[device]


def trim_all() -> None:
    """Give back what no array uses, of all devices; one that has failed takes nothing back."""
    for memory in list(_memories.values()):
        with contextlib.suppress(driver.DriverError):
            memory.trim()


def free_pools() -> None:
    """Give memory that is kept for later back to the device: ours, and CuPy's where that was used."""
    native_library.trim()
    with on_devices:
        trim_all()
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # imported where there is no driver: nothing to free
        cupy.get_default_memory_pool().free_all_blocks()
