"""Sums of a few numbers over the ranks of a matrix: through memory of other ranks and by messages, and who stops."""

import ctypes
import time

import numpy as np
from dense import COMM, default_mode, distribute, mode_instead_of, on_host
from failing import LIBRARY, OUT_OF_MEMORY, Allocations
from petsc4py import PETSc

from petsc_gpufmt.halo.peer import MOST_SUMS as MOST

MODE, TIMEOUT = "mat_halo_mode", "mat_halo_timeout"
OPTIONS = PETSc.Options()
LIBRARY_ERROR, OUT_OF_RANGE = 76, 63
LIBRARY.GpufmtSumsCreate.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
LIBRARY.GpufmtSumsRun.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
LIBRARY.GpufmtSumsDestroy.argtypes = (ctypes.c_void_p,)


class Sums:
    """Those of a matrix, of the first entries of a vector of a rank; `error` is the code of what failed in the end."""

    def __init__(self, comm=COMM):
        A = PETSc.Mat().createAIJ(((MOST, MOST * comm.size),) * 2, nnz=1, comm=comm)
        A.setType("mpiaijpjds" if comm.size > 1 else "aijpjds")
        A.setUp()
        A.assemble()
        self.vector, self.address, why_not = A.createVecs()[0], ctypes.c_void_p(), ctypes.c_char_p()
        self.error = LIBRARY.GpufmtSumsCreate(A.handle, ctypes.byref(self.address), ctypes.byref(why_not))
        assert bool(self.address) == (not self.error)
        self.why_not = why_not.value and why_not.value.decode()

    def run(self, parts):
        """What becomes of the parts of this rank."""
        array = np.full(MOST, np.nan, PETSc.ScalarType)
        array[: len(parts)] = parts
        self.vector.setArray(array)
        if on_device := self.vector.getType().endswith("cuda"):
            place = self.vector.getCUDAHandle()
        else:
            place = self.vector.getArray().ctypes.data
        self.error = LIBRARY.GpufmtSumsRun(self.address, len(parts), place, None)
        if on_device:
            self.vector.restoreCUDAHandle(place)
        return self.vector.getArray()[: len(parts)].copy()

    def destroy(self):
        assert LIBRARY.GpufmtSumsDestroy(ctypes.byref(self.address)) == 0 and not self.address


def in_order_of_ranks(parts):
    """Their sum over the first axis."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def check_many_sums(sums, count):
    """Through memory, these have the bits of sums in the order of ranks; by messages, the same on all ranks."""
    rng = np.random.default_rng(1)
    for k in range(count):
        n = rng.integers(1, MOST + 1)
        parts = rng.uniform(-1, 1, (COMM.size, n)).astype(PETSc.ScalarType)
        found, expected = sums.run(parts[COMM.rank]), in_order_of_ranks(parts)
        assert sums.error == 0
        if sums.why_not:
            np.testing.assert_allclose(found, expected, rtol=0, atol=COMM.size * np.finfo(found.dtype).eps)
        else:
            assert found.tobytes() == expected.tobytes(), f"sum {k} of {n}: {found} is not {expected}"
    assert len({found.tobytes() for found in COMM.tompi4py().allgather(found)}) == 1


def check_ways(way_of):
    """Each mode has the way of its halo exchange."""
    for mode, way in way_of.items():
        if mode:
            OPTIONS[MODE] = mode
        sums = Sums()
        assert sums.error == 0
        assert (sums.why_not is None) == (way == "peer" or COMM.size == 1), f"{mode} {way} {sums.why_not}"
        check_many_sums(sums, 10_000 // max(1, COMM.size - 1) if mode == "peer" else 100)
        sums.destroy()


def check_wrong_counts():
    sums = Sums()
    for n in (0, MOST + 1):
        assert LIBRARY.GpufmtSumsRun(sums.address, n, None, None) == OUT_OF_RANGE
    check_many_sums(sums, 3)
    sums.destroy()


def check_several_go_in_any_order():
    """Their memory is for the next ones, which other ranks may have made or not."""
    for k in range(6):
        several = [Sums() for _ in range(4)]
        for sums in several:
            check_many_sums(sums, 3)
        for n in (np.arange(4) + COMM.rank + k) % 4:
            several[n].destroy()


def check_a_rank_without_memory():
    """All ranks fail, and the next ones are right."""
    for rank in range(COMM.size):
        for failing in range(3):
            with Allocations("halo/sums.c", failing if rank == COMM.rank else None) as allocations:
                sums = Sums()
            assert sums.error == OUT_OF_MEMORY, f"{rank=} {failing=}"
            assert allocations.failed == (rank == COMM.rank)
            sums = Sums()
            check_many_sums(sums, 3)
            sums.destroy()


def check_a_rank_that_stops():
    """All others end with an error, each of them soon, and so does that rank when it comes back."""
    OPTIONS[TIMEOUT] = "0.5"
    stopped = COMM.size - 1
    sums = Sums()
    check_many_sums(sums, 3)
    for rank in (None, stopped):
        if (COMM.rank == stopped) == (rank is not None):
            begin, found = time.monotonic(), sums.run([1.0])
            if not sums.error:  # on a device it comes with the next one
                assert np.isnan(found).all()
                sums.run([1.0])
            assert sums.error == LIBRARY_ERROR and np.isnan(found).all()
            assert time.monotonic() - begin < 30
        COMM.barrier()
    dense = np.eye(COMM.size, dtype=PETSc.ScalarType)
    x, y = distribute(dense, "mpiaijpjds").createVecs()
    try:
        distribute(dense, "mpiaijpjds").mult(x, y)
        raise AssertionError("an exchange of ranks that have failed")
    except PETSc.Error as error:
        assert error.ierr == LIBRARY_ERROR
    OPTIONS.delValue(TIMEOUT)


check_ways({None: default_mode(), "overlap": "overlap", "peer": mode_instead_of("peer")})  # the last one stays
check_wrong_counts()
check_several_go_in_any_order()
if Sums().why_not is None and COMM.size > 1:  # not where ranks share a GPU
    check_a_rank_without_memory()
    check_a_rank_that_stops()  # last: the exchanges of these ranks have failed for good
else:
    assert COMM.size == 1 or not on_host()
