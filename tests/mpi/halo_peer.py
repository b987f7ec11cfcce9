"""The halo exchange through memory of other ranks: many exchanges, of several matrices and groups, and who stops."""

import time

import dense as support
import numpy as np
from dense import COMM, check_products, distribute, halo_mode, layouts, mode_instead_of, on_host, random_dense, scalars
from failing import OUT_OF_MEMORY, Allocations, error_of
from launch import petsc_checks
from petsc4py import PETSc

MODE, TIMEOUT = "mat_halo_mode", "mat_halo_timeout"
OPTIONS = PETSc.Options()
OPTIONS[MODE] = "peer"
TYPE = "mpiaij" + support.FORMAT
LIBRARY_ERROR, USER_INPUT = 76, 95


def chain(count):
    """Entries beside the diagonal, and one more: rank 0 sends to the last rank, and gets nothing from it."""
    dense = np.diag(np.full(count, 0.5)) + np.diag(np.full(count - 1, 0.25), 1) + np.diag(np.full(count - 1, -0.25), -1)
    dense[-1, 0] += 0.125
    return dense.astype(PETSc.ScalarType)


def one_way(count):
    """Rows need entries of earlier ranks alone, and none of their neighbours'."""
    dense = np.eye(count)
    dense[-1, : count // 2] = 1
    return dense.astype(PETSc.ScalarType)


def in_turn(matrices, count):
    """Each product changes what the next one sends: an exchange that comes too late, or too early, shows in the end."""
    vectors = [A.createVecs() for A in matrices]
    for x, _ in vectors:
        support.random_vector(x, 3)
    for k in range(count):
        for A, (x, y) in zip(matrices, vectors, strict=True):
            if k % 3 == 2:
                A.multTranspose(x, y)
                A.multAdd(y, x, x)
            else:
                A.mult(x, y)
                A.multTransposeAdd(y, x, x)
            x.scale(0.5)
    return b"".join(x.getArray().tobytes() for x, _ in vectors)


def check_many_exchanges():
    """Those of several matrices in turn, against messages."""
    found = {}
    for mode in ("peer", "overlap"):
        OPTIONS[MODE] = mode
        matrices = [distribute(matrix(9 * COMM.size + 1), TYPE) for matrix in (chain, one_way)]
        found[mode] = in_turn(matrices, 500)
    assert found["peer"] == found["overlap"]
    OPTIONS[MODE] = "peer"


def check_long_local_parts():
    """On a device their exchange is beside PETSc's stream."""
    own = 500 if on_host() else 450_000
    first, count = own * COMM.rank, own * COMM.size
    columns = np.arange(first, first + own)[:, None] + np.arange(-3, 4)
    inside = (columns >= 0) & (columns < count)
    pointers = np.concatenate([[0], np.cumsum(inside.sum(axis=1))]).astype(PETSc.IntType)
    found = {}
    for mode in ("peer", "overlap"):
        OPTIONS[MODE] = mode
        A = PETSc.Mat().create(COMM)
        A.setSizes(((own, count), (own, count)))
        A.setType(TYPE)
        A.setPreallocationCSR((pointers, columns[inside].astype(PETSc.IntType), scalars(np.cos(columns[inside]) / 7)))
        A.assemble()
        found[mode] = in_turn([A], 50)
    assert found["peer"] == found["overlap"]
    OPTIONS[MODE] = "peer"


def check_a_copy_with_the_same_scatter():
    """Its exchanges are its own, and it outlives the first."""
    A = distribute(chain(20), TYPE)
    check_products(A, chain(20), "a matrix")
    matrices = [A, A.duplicate(copy=True), A.duplicate(copy=True)]
    OPTIONS[MODE] = "overlap"
    in_messages = [distribute(chain(20), TYPE) for _ in matrices]
    expected = in_turn(in_messages, 20)
    OPTIONS[MODE] = "peer"
    assert in_turn(matrices, 20) == expected
    for A in matrices[:2]:
        A.destroy()
    check_products(matrices[2], chain(20), "a copy")


def check_matrices_go_in_any_order():
    """Their memory is for the next ones, which other ranks may have made or not."""
    dense = random_dense(50, 50, seed=2)
    for k in range(6):
        matrices = [distribute(dense, TYPE) for _ in range(4)]
        for A in matrices:
            x, y = A.createVecs()
            A.mult(x, y)
        for n in (np.arange(4) + COMM.rank + k) % 4:
            matrices[n].destroy()
        check_products(distribute(dense, TYPE), dense, "memory of others")


def check_memory_grows():
    """More than the first piece of memory that ranks share has room for."""
    own = 300_000
    count = own * COMM.size
    rows = np.arange(own * COMM.rank, own * (COMM.rank + 1), dtype=PETSc.IntType)
    A = PETSc.Mat().create(COMM)
    A.setSizes(((own, count), (own, count)))
    A.setType(TYPE)
    A.setPreallocationCSR(
        (np.arange(own + 1, dtype=PETSc.IntType), count - 1 - rows, np.full(own, 2.0, PETSc.ScalarType))
    )
    A.assemble()
    x, y = A.createVecs()
    x.setArray(rows.astype(PETSc.ScalarType))
    for _ in range(3):
        for mult in (A.mult, A.multTranspose):
            mult(x, y)
            assert np.array_equal(y.getArray(), 2.0 * (count - 1 - rows))


def matrix_on(comm):
    """0, 1, 2, ..., row by row."""
    n = 5 * comm.size
    A = PETSc.Mat().createAIJ(((5, n), (5, n)), nnz=(n, n), comm=comm)
    A.setType(TYPE)
    first, last = A.getOwnershipRange()
    A.setValues(range(first, last), range(n), np.arange(first * n, last * n, dtype=PETSc.ScalarType))
    A.assemble()
    return A


def check_sums_of_rows(A):
    x, y = A.createVecs()
    x.set(1.0)
    A.mult(x, y)
    n = A.getSize()[0]
    assert np.array_equal(y.getArray(), np.arange(n * n).reshape(n, n).sum(axis=1)[slice(*A.getOwnershipRange())])


def check_the_first_exchange_of_a_communicator_without_memory():
    """Whatever one rank lacks, all ranks fail, and the next product is right."""
    A = matrix_on(COMM.tompi4py().Split(0, -COMM.rank))
    x, y = A.createVecs()
    failed, number = True, 0
    while failed:
        with Allocations("halo/arena", number if COMM.rank == COMM.size - 1 else None) as allocations:
            error = error_of(A.mult, x, y)
        failed = COMM.tompi4py().allreduce(allocations.failed)
        assert error == (OUT_OF_MEMORY if failed else 0), f"allocation {number}"
        number += 1
    assert number > 2
    check_sums_of_rows(A)


def check_other_communicators():
    """Pairs of ranks, and all of them in another order."""
    world = COMM.tompi4py()
    for comm in (world.Split(COMM.rank // 2), world.Split(0, -COMM.rank)):
        A = matrix_on(comm)
        check_sums_of_rows(A)
        A.destroy()


def check_a_matrix_that_is_bound_to_the_host():
    """With a device, its ghosts still arrive there, and blocks on the host see the new ones."""
    dense = random_dense(40, 40)
    A = distribute(dense, TYPE)
    check_products(A, dense, "before")
    x, y = A.createVecs()
    for bound in (True, False):
        A.bindToCPU(bound)
        for seed in (1, 2, 3):
            values = support.random_vector(x, seed)
            A.mult(x, y)
            support.assert_close(y, dense @ values, np.full(40, 1e-4), f"{bound=} {seed=}")
        check_products(A, dense, f"{bound=}")


def check_scatters_of_other_types():
    """One that does not tell who sends what leaves the exchange to PETSc."""
    dense = random_dense(30, 30)
    for sf_type, mode in (("neighbor", "peer"), ("window", "overlap")):
        OPTIONS["sf_type"] = sf_type
        A = distribute(dense, TYPE)
        check_products(A, dense, sf_type)
        assert halo_mode(A) == mode, sf_type
    OPTIONS.delValue("sf_type")


def check_bad_limit():
    OPTIONS[TIMEOUT] = "-1"
    A = distribute(random_dense(20, 20), TYPE)
    x, y = A.createVecs()
    try:
        A.mult(x, y)
        raise AssertionError("-mat_halo_timeout -1 is no error")
    except PETSc.Error as error:
        assert error.ierr == USER_INPUT and "-mat_halo_timeout -1.: choose seconds" in str(error), error
    OPTIONS.delValue(TIMEOUT)
    check_products(A, random_dense(20, 20), "after an error")


def check_a_rank_without_memory():
    """All ranks fail, and the next product is right."""
    dense = random_dense(30, 30)
    for rank in range(COMM.size):
        for file, failing in [("halo.c", 0), ("arena.c", 0), *(("peer_setup.c", n) for n in range(4))]:
            A = distribute(dense, TYPE)
            x, y = A.createVecs()
            with Allocations(f"halo/{file}", failing if rank == COMM.rank else None) as allocations:
                assert error_of(A.mult, x, y) == OUT_OF_MEMORY, f"{rank=} {file} {failing=}"
            assert allocations.failed == (rank == COMM.rank)
            check_products(A, dense, f"after allocation {failing} of {file} failed on rank {rank}")


def first_error(matrices, vectors):
    """The first error in a few products. On a device it comes with a product that begins after the one that failed."""
    for _ in range(COMM.size + 1):
        for A, (x, y) in zip(matrices, vectors, strict=True):
            try:
                A.mult(x, y)
            except PETSc.Error as error:
                return error
            y.getArray()  # waits for the device
    return None


def check_a_rank_that_stops():
    """All others end with an error, each of them soon, and so does that rank when it comes back."""
    OPTIONS[TIMEOUT] = "0.5"
    stopped = COMM.size - 1
    matrices = [distribute(chain(6 * COMM.size), TYPE) for _ in range(2)]
    vectors = [A.createVecs() for A in matrices]  # which all ranks make together
    for A, (x, y) in zip(matrices, vectors, strict=True):
        A.mult(x, y)
    for rank in (None, stopped):
        if rank in (None, COMM.rank) and (COMM.rank == stopped) == (rank is not None):
            begin, error = time.monotonic(), first_error(matrices, vectors)
            assert error is not None and error.ierr == LIBRARY_ERROR, error
            assert "waited more than 0.5 seconds for entries of x, or sums, that rank" in str(error), error
            assert time.monotonic() - begin < 30
        COMM.barrier()


def check_a_solver_with_a_late_rank():
    """It ends on all ranks, and none takes what did not come for a solution: an error, or on a device NaN."""
    OPTIONS[TIMEOUT] = "0.5"
    comm = COMM.tompi4py().Split(0, -COMM.rank)  # has memory of its own, so that other exchanges go on afterwards
    n = 50 * comm.size
    A = PETSc.Mat().createAIJ(((50, n), (50, n)), nnz=3, comm=comm)
    A.setType(TYPE)
    for row in range(*A.getOwnershipRange()):
        columns = [c for c in (row - 1, row, row + 1) if 0 <= c < n]
        A.setValues([row], columns, [2.0 if c == row else -1.0 for c in columns])
    A.assemble()
    x, b = A.createVecs()
    b.set(1.0)
    solver = PETSc.KSP().create(comm)
    solver.setOperators(A)
    solver.setType("gmres")  # whose monitor is followed by a product, with no sum over ranks in between
    solver.getPC().setType("none")
    solver.setMonitor(lambda _, its, __: time.sleep(1.5) if its == 3 and COMM.rank == 0 else None)
    error = error_of(solver.solve, b, x)
    assert error == LIBRARY_ERROR or (not error and solver.reason < 0), f"{error=} {solver.reason=}"
    assert error == LIBRARY_ERROR or not on_host()
    assert first_error([A], [A.createVecs()]).ierr == LIBRARY_ERROR
    OPTIONS.delValue(TIMEOUT)


if COMM.size > 1:
    check_many_exchanges()
    check_long_local_parts()
    check_a_copy_with_the_same_scatter()
    check_matrices_go_in_any_order()
    check_memory_grows()
    check_the_first_exchange_of_a_communicator_without_memory()
    check_other_communicators()
    check_a_matrix_that_is_bound_to_the_host()
    if on_host():  # PETSc's windows are
        check_scatters_of_other_types()
    check_bad_limit()
    for name, local in layouts(40).items():
        A = distribute(random_dense(40, 40), TYPE, local, local)
        check_products(A, random_dense(40, 40), name)
    if halo_mode(A) == "peer":  # not where ranks share a GPU
        check_a_rank_without_memory()
        # where all ranks are neighbours, or an error comes a product later; with its own checks PETSc waits for all
        if (COMM.size == 2 or not on_host()) and not petsc_checks():
            check_a_solver_with_a_late_rank()
        check_a_rank_that_stops()  # last: the exchanges of these ranks have failed for good
    else:
        assert mode_instead_of("peer") == "overlap"
