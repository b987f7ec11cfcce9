"""Times of mults by a format itself, in single and double precision, and with x and z sent over the bus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.backends.plan import Launch, Operation, Slot, address
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.mult import Reference
from petsc_gpufmt.bench.places import Place, random_vector
from petsc_gpufmt.bench.timing import Call
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.patterns.csr import CsrPattern

if TYPE_CHECKING:
    from report import Setting

CALLS = {"cuda": 40, "host": 2}


def median_seconds(setting: Setting, call: Call) -> float:
    """Median seconds of single calls, after as many that do not count."""
    timer, calls = setting.place.timer, CALLS[setting.place.name]
    timer.single(call, calls)
    return timer.single(call, calls)


def gflops(nnz: int, seconds: float) -> float:
    """Two flops for each entry of the matrix, none for padding."""
    return 2e-9 * nnz / seconds


class GivenMatrix:
    """A matrix in CSR where it is measured, for formats to be built from, with a random x and what A x is.

    Attributes
    ----------
    csr : on the host, with values of the type of `place`
    pattern, values, x, z : arrays of `place`
    """

    def __init__(self, matrix: scipy.sparse.csr_matrix, place: Place, rng: np.random.Generator, block_size: int = 1):
        self.place, backend = place, place.backend
        self.csr = matrix.astype(backend.scalar, copy=False)
        (nrows, ncols), adopt = matrix.shape, backend.adopt
        given = CsrPattern(
            nrows, ncols, adopt(matrix.indptr), adopt(matrix.indices), row_block=block_size, col_block=block_size
        )
        self.pattern = given.validated(backend)
        self.values = adopt(self.csr.data)
        self.host_x = random_vector(ncols, backend.scalar, rng)
        self.x, (self.z,) = adopt(self.host_x), backend.empty((nrows, backend.scalar))
        self.reference = Reference.of(self.csr, self.host_x)

    @property
    def nnz(self) -> int:
        return int(self.csr.nnz)

    def store(self, name: str, options: dict[str, Any] | None = None) -> Any:
        """The matrix in the format `name`, values in; `options` differ from the defaults."""
        stored = FORMATS[name].build(
            self.pattern, self.place.backend, {**FORMATS[name].default_options, **(options or {})}
        )
        self.place.backend.run(stored.plan(Operation.REFRESH), {Slot.VALUES: self.values})
        return stored

    def mult(self, stored: Any) -> Call:
        """z = A x as a call, checked once; BenchError if z is wrong."""
        call = self.call(stored.plan(Operation.MULT))
        call()
        self.check(stored.name, self.place.backend.to_host(self.z))
        return call

    def call(self, launches: Sequence[Launch]) -> Call:
        """What carries out launches with x and z in their slots, and keeps what they work on."""
        queue = self.place.backend.prepared(launches, {Slot.X: self.x, Slot.Z: self.z})

        def run(kept: Any = (launches, self)) -> None:
            queue()

        return run

    def check(self, what: str, z: np.ndarray) -> None:
        """BenchError unless `z` is A x within the bound of rounding."""
        error = self.reference.error(z)
        if error > 1:
            raise BenchError(f"{what}: z = A x is wrong by {error:.3g} times the bound of rounding")


class Transfers:
    """A mult as a call, with x sent to the device before it and z back after it, through memory that is pinned."""

    def __init__(self, given: GivenMatrix, mult: Call):
        import cupy
        import cupyx

        self.mult, self.device_x, self.device_z = mult, address(given.x), address(given.z)
        self.host_x = cupyx.empty_pinned(given.host_x.shape, given.host_x.dtype)
        self.host_z = cupyx.empty_pinned((given.z.size,), given.host_x.dtype)
        self.host_x[:] = given.host_x
        self.runtime, self.stream = cupy.cuda.runtime, cupy.cuda.get_current_stream().ptr

    def __call__(self) -> None:
        self._copy(self.device_x, self.host_x.ctypes.data, self.host_x.nbytes, self.runtime.memcpyHostToDevice)
        self.mult()
        self._copy(self.host_z.ctypes.data, self.device_z, self.host_z.nbytes, self.runtime.memcpyDeviceToHost)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self.runtime.memcpyAsync(target, source, nbytes, kind, self.stream)
