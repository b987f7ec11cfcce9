"""Small halo exchanges on GPUs, for compute-sanitizer: products of parallel matrices in every mode, direct and back.

Sums over ranks go the same ways.

Run it on several ranks, each of which is a program of its own for compute-sanitizer; with a GPU for each rank, those of
the mode `peer` write into each other's memory. Exits with status 1 if a product is wrong.
"""

import ctypes
import sys

import petsc4py
from mpi4py import MPI  # before PETSc, which would ask for a lower level of threads than a mode needs

petsc4py.init(["small_halo", *(["-device_enable", "none", "-options_left", "no"] if "--host" in sys.argv else [])])

import numpy as np  # noqa: E402
import scipy.sparse  # noqa: E402
from petsc4py import PETSc  # noqa: E402
from small_programs import command_line, place_of  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from petsc_gpufmt.backends import native_library  # noqa: E402
from petsc_gpufmt.bench.places import SEED  # noqa: E402
from petsc_gpufmt.halo.peer import MOST_SUMS  # noqa: E402

COMM = PETSc.COMM_WORLD
MODES = ("overlap", "vector", "task", "peer")
OWN = 3000  # rows of a rank: a message of so many entries takes several blocks
EXCHANGES = 3  # of each kind: those with even and with odd numbers have other places


def small_matrices(rng):
    """Name -> square matrix of small whole numbers, whose sums are exact, and how many of its rows this rank has."""
    n = COMM.size

    def random(rows, density):
        matrix = scipy.sparse.random(rows, rows, density, format="csr", random_state=rng)
        matrix.data[:] = rng.integers(1, 9, matrix.nnz)
        return matrix

    reversed_identity = scipy.sparse.identity(OWN * n, format="csr")[::-1]
    alone = scipy.sparse.block_diag([random(20, 0.3) for _ in range(n)], format="csr")
    return {
        "one row a rank": (random(n, 1.0), 1),
        "long messages": (reversed_identity + random(OWN * n, 0.0005), OWN),
        "one way": (scipy.sparse.tril(random(40 * n, 0.1), format="csr"), 40),
        "nothing to send": (alone, 20),
        "rows on the last rank": (random(50, 0.2), 50 * (COMM.rank == n - 1)),
    }


def distributed(matrix, own):
    """The PETSc matrix with these rows, `own` of them on this rank."""
    last = MPI.COMM_WORLD.scan(own)
    rows = matrix[last - own : last]
    rows.sort_indices()
    A = PETSc.Mat().create(COMM)
    A.setSizes(((own, matrix.shape[0]),) * 2)
    A.setType("mpiaijpjds")
    pattern = (a.astype(PETSc.IntType) for a in (rows.indptr, rows.indices))
    A.setPreallocationCSR((*pattern, rows.data.astype(PETSc.ScalarType)))
    return A


def products_are_right(matrix, own, rng):
    """Whether all products are those of the host, exchange after exchange."""
    A = distributed(matrix, own)
    x, y = A.createVecs()
    z, here, right = y.duplicate(), slice(*y.getOwnershipRange()), True
    for _ in range(EXCHANGES):
        values = [rng.integers(-9, 9, matrix.shape[0]).astype(PETSc.ScalarType) for _ in range(2)]
        for vector, entries in zip((x, y), values, strict=True):
            vector.setArray(entries[here])
        for stored, mult, add in ((matrix, A.mult, A.multAdd), (matrix.T, A.multTranspose, A.multTransposeAdd)):
            expected = stored @ values[0]
            mult(x, z)
            right &= np.array_equal(z.getArray(readonly=True), expected[here])
            add(x, y, z)
            right &= np.array_equal(z.getArray(readonly=True), (values[1] + expected)[here])
    A.destroy()
    return MPI.COMM_WORLD.allreduce(right, MPI.LAND)


def sums_are_right(rng):
    """Whether sums over ranks of 1 to MOST_SUMS numbers are those of the host."""
    A = distributed(scipy.sparse.identity(MOST_SUMS * COMM.size, format="csr"), MOST_SUMS)
    x, library, sums, why_not = A.createVecs()[0], native_library.load(), ctypes.c_void_p(), ctypes.c_char_p()
    assert library.GpufmtSumsCreate(ctypes.c_void_p(A.handle), ctypes.byref(sums), ctypes.byref(why_not)) == 0
    right = True
    for n in range(1, MOST_SUMS + 1):
        parts = rng.integers(-9, 9, (COMM.size, MOST_SUMS)).astype(PETSc.ScalarType)
        x.setArray(parts[COMM.rank])
        on_device = x.getType().endswith("cuda")
        place = x.getCUDAHandle() if on_device else x.getArray().ctypes.data
        assert library.GpufmtSumsRun(sums, ctypes.c_int64(n), ctypes.c_void_p(place), None) == 0
        if on_device:
            x.restoreCUDAHandle(place)
        found, expected = x.getArray(readonly=True), parts.sum(axis=0)
        right &= np.array_equal(found[:n], expected[:n]) and np.array_equal(found[n:], parts[COMM.rank, n:])
    assert library.GpufmtSumsDestroy(ctypes.byref(sums)) == 0
    return MPI.COMM_WORLD.allreduce(right, MPI.LAND)


def small_results():
    """Name -> whether the products of a matrix in a mode are right, and sums"""
    results, options = {}, PETSc.Options()
    for mode in MODES:
        options["mat_halo_mode"] = mode
        rng = np.random.default_rng(SEED)
        for name, (matrix, own) in small_matrices(rng).items():
            results[f"{mode}, {name}"] = products_are_right(matrix, own, rng)
        results[f"{mode}, sums"] = sums_are_right(rng)
    return results


def main():
    arguments = command_line(__doc__).parse_args()
    with place_of("small_halo", arguments.host):
        found = small_results()
    if COMM.rank == 0:
        for name, right in found.items():
            print(f"{name:30} {'right' if right else 'WRONG'}")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
