"""Arrays in the memory of a device, with no arithmetic: what computes with them is a kernel."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np


class DeviceArray:
    """One-dimensional, contiguous entries in the memory of a device.

    A slice ``a[i:j]`` is a view, and keeps the memory. NumPy's operators, comparisons and functions are refused, so
    that nothing waits for a device by mistake. CuPy takes these arrays as they are: ``cupy.asarray(a)``.

    Attributes
    ----------
    memory : what owns the memory, which is given back after the last array over it
    ptr : address of the first entry; 0 for an empty array
    size : number of entries
    dtype : NumPy dtype of the entries
    """

    __slots__ = ("dtype", "memory", "ptr", "size")

    def __init__(self, memory: Any, ptr: int, size: int, dtype: np.dtype):
        self.memory, self.ptr, self.size, self.dtype = memory, ptr if size else 0, size, dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an entry."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return self.size * self.dtype.itemsize

    def __getitem__(self, key: slice) -> DeviceArray:
        """The entries of a slice with step 1; TypeError for any other key."""
        if type(key) is not slice or key.step not in (None, 1):
            self._refuse()
        begin, end, _ = key.indices(self.size)
        return DeviceArray(self.memory, self.ptr + begin * self.dtype.itemsize, max(0, end - begin), self.dtype)

    def __repr__(self) -> str:
        return f"DeviceArray({self.size} {self.dtype} at {self.ptr:#x})"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; its stream is the one that plans were last made on."""
        return {
            "shape": (self.size,),
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "version": 3,
            "stream": self.memory.stream or 1,  # 1 is the legacy default stream, whose handle is 0
        }

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "an array in the memory of a device has slices a[i:j] alone: compute with a kernel, "
            "or bring it to the host with Backend.to_host"
        )

    __array__ = __bool__ = __eq__ = __iter__ = _refuse
    __array_ufunc__ = None
    __hash__ = object.__hash__
