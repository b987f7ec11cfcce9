"""Time that mults take on the device, without what the host takes to launch them."""

from __future__ import annotations

from typing import Any

from petsc_gpufmt.backends.cuda_graph import graph_seconds
from petsc_gpufmt.backends.driver import DriverError
from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.errors import GpufmtError
from petsc_gpufmt.formats.common.base import Format
from petsc_gpufmt.formats.pjds import is_mostly_empty
from petsc_gpufmt.patterns.csr import CsrPattern

SEQUENCES = 2


class MultTimer:
    """Times mults on the device of `backend`, a CudaBackend: z = A x, or z = z + A x if rows are mostly empty."""

    def __init__(self, backend: Any):
        self.backend = backend

    def seconds(self, stored: Format, csr: CsrPattern, mults: int) -> float:
        """Seconds a mult in a sequence of `mults`: the better of two sequences, after one that does not count.

        A sequence is one CUDA graph: launched one by one from Python, small mults would wait for the host.
        """
        backend = self.backend
        x, z = backend.empty((csr.ncols, backend.scalar), (csr.nrows, backend.scalar))
        backend.clear(x)
        backend.clear(z)
        mostly_empty = is_mostly_empty(csr.nrows, csr.counted(backend)[1].nonempty_rows)
        vectors = {Slot.X: x, Slot.Y: z, Slot.Z: z}
        launches = stored.plan(Operation.ADD if mostly_empty else Operation.MULT)
        backend.run(launches, vectors)  # loads the kernels, which a capture does not allow everywhere
        backend.synchronize()  # device synchronisation: the matrix was stored on this stream, and mults use another

        def queue(stream: int) -> None:
            for _ in range(mults):
                backend.run(launches, vectors, stream=stream)

        return graph_seconds(queue, SEQUENCES) / mults


def is_limit(e: Exception) -> bool:
    """Whether a format or its options are beyond the matrix or the device: refused, too many registers or bytes."""
    return isinstance(e, GpufmtError | MemoryError | DriverError)
