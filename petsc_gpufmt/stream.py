"""A CUDA stream of PETSc in the form that CuPy adopts."""

from __future__ import annotations

from typing import Any


class _Borrowed:
    """Speaks CuPy's protocol for streams that others own."""

    def __init__(self, pointer: int):
        self._pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._pointer


def borrowed_stream(cuda: Any, pointer: int, device: int) -> Any:
    """A CuPy stream, to be used in a ``with`` statement, for the stream at address `pointer`; `cuda` is cupy.cuda."""
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Borrowed(pointer))
    return cuda.ExternalStream(pointer, device)  # CuPy 13
