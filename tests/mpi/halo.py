"""Modes of the halo exchange: the same bits in all of them, for every format; what ends with a matrix or with PETSc."""

import contextlib
import ctypes
import time
from pathlib import Path

from mpi4py import MPI  # before PETSc, which would ask for a lower level of threads

# isort: split
import dense as support
import numpy as np
from dense import (
    COMM,
    check_products,
    csr,
    default_mode,
    distribute,
    halo_mode,
    layouts,
    mode_instead_of,
    own_rows,
    random_dense,
    scalars,
)
from failing import LIBRARY, UNSUPPORTED, error_of, plan_failing
from petsc4py import PETSc

from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.formats.pjds import Pjds

MODES = ("overlap", "vector", "task", "peer")
OPTION, TIMEOUT = "mat_halo_mode", "mat_halo_timeout"
LIBRARY_ERROR, USER_INPUT = 76, 95
OPTIONS = PETSc.Options()
TYPE = "mpiaij" + support.FORMAT


def in_mode(mode, dense, matrix_type=TYPE, *local):
    """A matrix with a mode that its first product finds; parallel on one rank, too."""
    OPTIONS[OPTION] = mode
    A = distribute(dense, matrix_type, *local)
    x, y = A.createVecs()
    A.mult(x, y)
    return A


def products(A, seed=1):
    """This rank's part of the four products, of random vectors, as one array.

    Transposed ones on a device only where PETSc's atomic sums have one order: they have one term of another rank.
    """
    results = []
    for transposed in (False, True):
        if transposed and COMM.size > 2 and "cuda" in A.getVecType():
            continue
        x, y = A.createVecs()[:: -1 if transposed else 1]
        support.random_vector(x, seed)
        support.random_vector(y, seed + 1)
        z = y.duplicate()
        (A.multTranspose if transposed else A.mult)(x, z)
        results.append(z.getArray().copy())
        (A.multTransposeAdd if transposed else A.multAdd)(x, y, z)
        results.append(z.getArray().copy())
        (A.multTransposeAdd if transposed else A.multAdd)(x, y, y)
        results.append(y.getArray().copy())
    return np.concatenate(results)


def check_bits():
    dense = random_dense(61, 61)
    names = list(layouts(61))
    for k, name in enumerate(FORMATS):
        local = layouts(61)[names[k % len(names)]]
        expected = None
        for mode in MODES:
            A = in_mode(mode, dense, "mpiaij" + name, local, local)
            found = products(A)
            expected = found if expected is None else expected
            assert found.tobytes() == expected.tobytes(), f"{name} {mode}"
            if mode == "task":
                check_products(A, dense, mode)
            A.destroy()


def check_shapes():
    """Ranks without rows, without neighbours, with nothing but neighbours."""
    count = 12 * COMM.size
    inside = np.kron(np.eye(COMM.size), random_dense(12, 12))
    outside = random_dense(count, count)
    outside[inside != 0] = 0
    for mode in MODES:
        for dense in (np.zeros((count, count)), inside, outside, random_dense(1, 40), random_dense(40, 1)):
            check_products(in_mode(mode, dense.astype(PETSc.ScalarType)), dense, mode)


def check_many_products():
    """Each product changes what the next one sends: an exchange that is late, or early, shows in the end."""
    dense = random_dense(70, 70) / 40
    matrices = [in_mode(mode, dense) for mode in MODES]
    vectors = [A.createVecs() for A in matrices]
    for x, _ in vectors:
        support.random_vector(x, 5)
    for _ in range(150):
        for A, (x, y) in zip(matrices, vectors, strict=True):
            A.mult(x, y)
            y.scale(1 / 2)
            A.multAdd(y, x, x)
    results = [x.getArray().tobytes() for x, _ in vectors]
    assert results == results[:1] * len(MODES)
    for A in matrices[:: 1 if COMM.size % 2 else -1]:
        A.destroy()


def check_long_messages():
    """They are cut where MPI may not read the memory of a device."""
    gpu_aware = ctypes.c_bool.in_dll(LIBRARY, "use_gpu_aware_mpi")
    before, gpu_aware.value = gpu_aware.value, False
    own = 70_000
    first, count = own * COMM.rank, own * COMM.size
    rows = np.arange(first, first + own, dtype=PETSc.IntType)
    columns = np.stack([rows, (rows + own - COMM.rank) % count, (rows - own) % count], axis=1)  # two long messages
    found = []
    for mode in ("overlap", "task"):
        OPTIONS[OPTION] = mode
        A = PETSc.Mat().create(COMM)
        A.setSizes(((own, count), (own, count)))
        A.setType(TYPE)
        A.setPreallocationCSR(
            (np.arange(0, 3 * own + 1, 3, dtype=PETSc.IntType), columns.ravel(), scalars(np.cos(columns.ravel())))
        )
        A.assemble()
        x, y = A.createVecs()
        x.setArray(np.sin(rows).astype(PETSc.ScalarType))
        for _ in range(3):
            A.mult(x, y)
            A.multAdd(y, x, x)
        found.append(x.getArray().tobytes())
        A.destroy()
    assert found[0] == found[1]
    gpu_aware.value = before


def check_new_patterns_and_types():
    before, after = random_dense(40, 40), random_dense(40, 40, seed=4)
    first, last = own_rows(layouts(40)["balanced"])
    for mode in MODES:
        A = in_mode(mode, before)
        A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
        A.setValuesCSR(*csr(after[first:last]))
        A.assemble()
        both = np.where(after != 0, after, before)
        check_products(A, both, f"{mode}, new entries")
        check_products(A.duplicate(copy=True), both, f"{mode}, a copy")
        check_products(A.convert("mpiaijcsrscalar"), both, f"{mode}, another format")
        A.convert("mpiaij")
        check_products(A.convert(TYPE), both, f"{mode}, aij in between")


def check_first_plan_fails_on_one_rank():
    dense = random_dense(40, 40)
    for mode in MODES:
        OPTIONS[OPTION] = mode
        for rank in range(COMM.size):
            A = distribute(dense, TYPE)
            x, y = A.createVecs()
            with plan_failing(0 if rank == COMM.rank else None):
                assert error_of(A.mult, x, y) == UNSUPPORTED, f"{mode} {rank=}"
            check_products(A, dense, f"{mode}, after a plan failed on rank {rank}")


def check_nonlocal_part_is_added():
    """By the plan for what is added, which looks at rows with entries alone: without it, the local part is left."""
    count = 12 * COMM.size
    dense = random_dense(count, count)
    inside = np.where(np.kron(np.eye(COMM.size), np.ones((12, 12))) > 0, dense, 0)
    original, Pjds.add = Pjds.add, lambda self: []
    A = in_mode("overlap", dense, "mpiaijpjds", 12, 12)
    Pjds.add = original
    x, y = A.createVecs()
    x.set(1.0)
    A.mult(x, y)
    np.testing.assert_allclose(y.getArray(), inside.sum(axis=1)[slice(*y.getOwnershipRange())], 1e-4, 1e-4)


def check_option():
    dense = random_dense(30, 30)
    for mode in MODES:
        assert halo_mode(in_mode(mode, dense)) == mode_instead_of(mode)
    OPTIONS.delValue(OPTION)
    A = distribute(dense, TYPE)
    check_products(A, dense, "default")
    assert halo_mode(A) == default_mode()
    A = distribute(dense, TYPE)
    A.bindToCPU(True)
    check_products(A, dense, "default on the host")
    assert halo_mode(A) == "overlap"
    OPTIONS["mine_" + OPTION] = "vector"
    A = distribute(dense, TYPE)
    A.setOptionsPrefix("mine_")
    check_products(A, dense, "prefix")
    assert halo_mode(A) == "vector"
    OPTIONS[OPTION] = "eager"
    A = distribute(dense, TYPE)
    x, y = A.createVecs()
    try:
        A.mult(x, y)
        raise AssertionError("-mat_halo_mode eager is no error")
    except PETSc.Error as error:
        assert error.ierr == USER_INPUT, error
        assert "-mat_halo_mode eager: choose one of overlap, vector, task, peer" in str(error), error
    OPTIONS[OPTION] = "vector"
    check_products(A, dense, "after an error")


def threads():
    """How many threads of this process drive exchanges."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            names.append((task / "comm").read_text())
    return names.count("gpufmt halo\n")


def check_thread_ends_with_the_last_matrix():
    dense = random_dense(30, 30)
    matrices = [in_mode("task", dense) for _ in range(3)]
    for A in matrices:
        assert threads() == 1
        A.destroy()
    deadline = time.monotonic() + 10.0
    while threads() and time.monotonic() < deadline:  # one that was joined is listed until the kernel has ended it
        time.sleep(0.001)
    assert threads() == 0
    check_products(in_mode("task", dense), dense, "once more")


def check_a_rank_that_stops():
    """The others wait for its message no longer than they should, and nor does it for theirs when it comes back."""
    OPTIONS[TIMEOUT] = "0.5"
    stopped = COMM.size - 1
    A = in_mode("task", np.ones((3 * COMM.size, 3 * COMM.size)))
    x, y = A.createVecs()
    for rank in (None, stopped):
        if (COMM.rank == stopped) == (rank is not None):
            if rank == stopped:
                A.mult(x, y)  # all has been sent
            for _ in range(2):
                try:
                    A.mult(x, y)
                    raise AssertionError("a message that nobody has sent")
                except PETSc.Error as error:
                    late = 0 if rank == stopped else stopped
                    assert error.ierr == LIBRARY_ERROR, error
                    assert f"Rank {COMM.rank} waited more than 0.5 seconds for entries" in str(error), error
                    assert f"that rank {late} sends" in str(error), error
        COMM.barrier()
    OPTIONS.delValue(TIMEOUT)


assert MPI.Query_thread() >= MPI.THREAD_SERIALIZED
check_thread_ends_with_the_last_matrix()
check_bits()
check_shapes()
check_many_products()
check_long_messages()
check_new_patterns_and_types()
check_first_plan_fails_on_one_rank()
check_nonlocal_part_is_added()
check_option()
if COMM.size > 1:
    check_a_rank_that_stops()
for last in ("peer", "task"):
    in_mode(last, random_dense(30, 30)).incRef()  # PETSc ends with memory of others, and the thread, still held
