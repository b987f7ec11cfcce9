"""Time that mults take on the device, without what the host takes to launch them."""

from __future__ import annotations

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.errors import GpufmtError
from petsc_gpufmt.formats.common.base import Format
from petsc_gpufmt.patterns.csr import CsrPattern

SEQUENCES = 2


class MultTimer:
    """Times z = A x of stored matrices on the device of `backend`."""

    def __init__(self, backend: Backend):
        self.backend = backend

    def seconds(self, stored: Format, csr: CsrPattern, mults: int) -> float:
        """Seconds a mult in a sequence of `mults`: the better of two sequences, after one that does not count.

        A sequence is one CUDA graph: launched one by one from Python, small mults would wait for the host.
        """
        backend, cuda = self.backend, self.backend.xp.cuda
        vectors = {
            Slot.X: backend.xp.zeros(csr.ncols, backend.scalar),
            Slot.Z: backend.xp.zeros(csr.nrows, backend.scalar),
        }
        launches = stored.plan(Operation.MULT)
        backend.run(launches, vectors)  # loads the kernels, which a capture does not allow everywhere
        cuda.get_current_stream().synchronize()  # device synchronisation: the matrix was stored on this stream
        with cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            for _ in range(mults):
                backend.run(launches, vectors)
            sequence = stream.end_capture()
            sequence.launch(stream)
            pairs = [(cuda.Event(), cuda.Event()) for _ in range(SEQUENCES)]
            for start, stop in pairs:
                start.record(stream)
                sequence.launch(stream)
                stop.record(stream)
            stream.synchronize()  # device synchronisation: the times are known, and the graph may go
        return min(cuda.get_elapsed_time(start, stop) for start, stop in pairs) * 1e-3 / mults


def is_limit(e: Exception) -> bool:
    """Whether a format or its options are beyond the matrix or the device: refused, too many registers or bytes."""
    names = {"CUDADriverError", "CompileException", "OutOfMemoryError"}  # of CuPy
    return isinstance(e, GpufmtError | MemoryError) or type(e).__name__ in names
