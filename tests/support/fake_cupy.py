"""CuPy without a device: NumPy, over the memory of a fake driver."""

from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np


class FakeCupy:
    """NumPy's functions; `asarray` takes what has the interface of CUDA's arrays. `entered` says what was set in it."""

    ndarray = np.ndarray

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.accelerators: list[int] = [1, 2]
        self.pool = SimpleNamespace(free_all_blocks=lambda: None, malloc=lambda nbytes: f"{nbytes} bytes of CuPy's")
        self._core = SimpleNamespace(
            get_reduction_accelerators=lambda: self.accelerators,
            set_reduction_accelerators=lambda given: setattr(self, "accelerators", given),
        )
        self.cuda = SimpleNamespace(
            Device=lambda number: self._while(("device", number)),
            Stream=SimpleNamespace(from_external=lambda owner: self._while(("stream", owner.__cuda_stream__()[1]))),
            get_allocator=lambda: dict(self.entered).get("allocator", self.pool.malloc),
            using_allocator=lambda allocate: self._while(("allocator", allocate)),
            UnownedMemory=lambda ptr, size, owner, device_id: SimpleNamespace(**vars()),
            MemoryPointer=lambda mem, offset: SimpleNamespace(**vars()),
            runtime=SimpleNamespace(CUDARuntimeError=RuntimeError),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def get_default_memory_pool(self) -> Any:
        return self.pool

    @contextlib.contextmanager
    def _while(self, what: Any) -> Any:
        self.entered.append(what)
        try:
            yield
        finally:
            self.entered.remove(what)

    def asarray(self, array: Any, dtype: Any = None) -> np.ndarray:
        if not hasattr(array, "__cuda_array_interface__"):
            return np.asarray(array, dtype)
        described = array.__cuda_array_interface__
        (size,), kind = described["shape"], np.dtype(described["typestr"])
        memory: Any = (ctypes.c_char * (size * kind.itemsize)).from_address(described["data"][0]) if size else b""
        view = np.frombuffer(memory, kind).view(Owning)
        view.owner = array
        return view if dtype is None else view.astype(dtype, copy=False)

    def asnumpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)


class Owning(np.ndarray):
    """A view that keeps what owns its memory."""

    owner: Any = None

    def __array_finalize__(self, base: Any) -> None:
        self.owner = self.owner if self.owner is not None else getattr(base, "owner", None)
