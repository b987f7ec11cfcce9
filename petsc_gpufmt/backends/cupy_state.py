"""What plans set in CuPy while they are made: PETSc's stream, and which kernels reduce arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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


@contextlib.contextmanager
def simple_reductions(cupy: Any) -> Iterator[None]:
    """CuPy reduces arrays by kernels of its own, not by templates of CUB.

    Those take a second to compile and 18 ms to load in each process, for each kind of reduction; a plan has a dozen.
    """
    before = cupy._core.get_reduction_accelerators()
    cupy._core.set_reduction_accelerators([])
    try:
        yield
    finally:
        cupy._core.set_reduction_accelerators(before)
