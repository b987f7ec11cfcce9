"""GAMG's set-up of type gpufmt on several ranks: the same aggregates on any number of them, prolongators that have the
near-null space, as many iterations as with PETSc's set-up, and errors that all ranks share."""

import re
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import numpy as np
import scipy.sparse
from dense import COMM, FORMAT, TYPE, layouts, own_rows, rounding, scalars
from failing import LIBRARY, OUT_OF_MEMORY, Allocations, error_of
from petsc4py import PETSc

from petsc_gpufmt.bench.matrices import stencil_pattern
from petsc_gpufmt.coarsening import parallel_smoothed
from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

OPTIONS = PETSc.Options()
TENTATIVE = {"pc_gamg_gpufmt_order": "hash", "pc_gamg_agg_nsmooths": 0}
PETSC_ERR_USER_INPUT = 83
EPS = 100 * np.finfo(PETSc.RealType).eps
TOGETHER = (Ask.PARALLEL_AGGREGATES, Ask.ELSEWHERE, Ask.PARALLEL_TENTATIVE, Ask.STORE, Ask.PARALLEL_SMOOTHED)
"""What can fail in a set-up, in this order: the store of the matrix stays for the next one."""
SMOOTHED = {"pc_gamg_gpufmt_order": "hash", "pc_gamg_eigenvalues": "0.1,2.0"}  # estimates depend on the number of ranks
BY_PRODUCTS = {"pc_gamg_agg_view_initial_prolongation": "ascii:/dev/null"}


def of_ones(ones):
    """Positive definite, with the pattern of a symmetric matrix of ones."""
    degrees = np.asarray(ones.sum(axis=1)).ravel()
    return (scipy.sparse.diags_array(degrees + 0.05) - ones).tocsr()


def stencil(n):
    indptr, indices = stencil_pattern("7point", n, np.dtype(np.int32))
    return of_ones(scipy.sparse.csr_matrix((np.ones(indices.size), indices, indptr)))


def points_anywhere(n, neighbours=9.0):
    """Random points of a square, joined to those that are near; every seventh row has nothing but its diagonal."""
    points = np.random.default_rng(5).random((n, 2))
    near = ((points[:, None] - points) ** 2).sum(axis=2) < neighbours / (np.pi * n)
    lone = np.arange(n) % 7 == 3
    near[lone] = near[:, lone] = False
    return of_ones(scipy.sparse.csr_matrix(near | np.eye(n, dtype=bool)).astype(float))


def chain(n):
    return of_ones(scipy.sparse.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr())


MATRICES = {
    "stencil": stencil(7),
    "points anywhere": points_anywhere(400),
    "chain": chain(50),
    "one row": scipy.sparse.identity(1, format="csr"),
    "lone rows": scipy.sparse.identity(9, format="csr"),
}


@contextmanager
def options(**values):
    for name, value in values.items():
        OPTIONS[name] = value
    try:
        yield
    finally:
        for name in values:
            OPTIONS.delValue(name)


def distribute(matrix, comm=COMM, matrix_type=TYPE, local=None, block=1, near_null=()):
    """The rows of a sparse matrix on the ranks; `near_null` are columns of all rows."""
    rows = matrix.shape[0]
    local = (layouts(rows // block)["balanced"] * block if comm.size > 1 else rows) if local is None else local
    first, last = own_rows(local) if comm.size > 1 else (0, rows)
    own = matrix[first:last].tocsr()
    A = PETSc.Mat().create(comm)
    A.setSizes(((local, rows), (local, rows)), bsize=block)
    A.setType(matrix_type)
    A.setPreallocationCSR((own.indptr.astype(PETSc.IntType), own.indices.astype(PETSc.IntType), scalars(own.data)))
    A.assemble()
    if len(near_null):
        vectors = [A.createVecRight() for _ in near_null]
        for vector, values in zip(vectors, near_null, strict=True):
            vector.setArray(scalars(values[first:last]))
        A.setNearNullSpace(PETSc.NullSpace().create(vectors=vectors, comm=comm))
    return A


def orthonormal(count, size):
    """Random vectors; a null space of others is an error where PETSc has its own checks."""
    columns = np.random.default_rng(7).uniform(0.5, 1.5, (size, count))
    return np.linalg.qr(columns)[0].T.astype(PETSc.ScalarType)


def solver(A):
    ksp = PETSc.KSP().create(A.getComm())
    ksp.setOperators(A)
    ksp.setType("cg")
    ksp.getPC().setType("gamg")
    ksp.setErrorIfNotConverged(True)
    ksp.setFromOptions()
    return ksp


def solve(ksp):
    x, b = ksp.getOperators()[0].createVecs()
    b.set(1.0)
    ksp.solve(b, x)
    return x


def prolongator(A):
    """The rows of the finest prolongator on this rank; None if there is no second level."""
    ksp = solver(A)
    ksp.setUp()
    pc = ksp.getPC()
    made = None
    if pc.getMGLevels() > 1:
        P = pc.getMGInterpolation(pc.getMGLevels() - 1)
        indptr, indices, data = P.getValuesCSR()
        made = scipy.sparse.csr_matrix((data, indices, indptr), shape=(P.getLocalSize()[0], P.getSize()[1]))
        assert P.getType() == A.getType()
    ksp.destroy()
    return made


def all_rows(local):
    return scipy.sparse.vstack(COMM.tompi4py().allgather(local)).tocsr()


def view(ksp):
    """What -ksp_view says of the set-up of each level, from the finest on."""
    with TemporaryDirectory() as own:
        name = COMM.tompi4py().bcast(f"{own}/view.txt")
        viewer = PETSc.Viewer().createASCII(name, comm=COMM)
        ksp.view(viewer)
        viewer.destroy()
        COMM.barrier()
        with open(name) as written:
            text = written.read()
        COMM.barrier()
    return re.findall(r"gpufmt, level \d+ from the finest: (.*)", text)


def check_aggregates_do_not_depend_on_the_number_of_ranks():
    for name, matrix in MATRICES.items():
        for aggressive in (0, 1):
            with options(**TENTATIVE, pc_gamg_aggressive_coarsening=aggressive):
                expected = prolongator(distribute(matrix, PETSc.COMM_SELF))
                runs = {layout: {"local": local} for layout, local in layouts(matrix.shape[0]).items()}
                runs["one rank"] = {"comm": PETSc.COMM_SELF, "matrix_type": "mpiaij" + FORMAT}
                for run, given in runs.items():
                    found = prolongator(distribute(matrix, **given))
                    what = f"{name}, {aggressive} aggressive levels, {run}"
                    if expected is None:
                        assert found is None, what
                        continue
                    first, last = own_rows(found.shape[0]) if run != "one rank" else (0, matrix.shape[0])
                    rows = expected[first:last]
                    for array in ("indptr", "indices", "data"):
                        assert np.array_equal(getattr(found, array), getattr(rows, array)), f"{what}: {array}"


def check_near_null_spaces():
    """Columns are orthonormal and have the vectors in them, in all rows that belong to an aggregate."""
    for block, nvectors in ((1, 1), (1, 2), (2, 2), (2, 3)):
        matrix = scipy.sparse.kron(MATRICES["points anywhere"], np.eye(block) + 0.1).tocsr()
        vectors = orthonormal(nvectors, matrix.shape[0])
        with options(**TENTATIVE):
            expected = prolongator(distribute(matrix, PETSc.COMM_SELF, block=block, near_null=vectors))
            found = all_rows(prolongator(distribute(matrix, block=block, near_null=vectors)))
        assert np.array_equal(found.indptr, expected.indptr) and np.array_equal(found.indices, expected.indices)
        member = np.diff(found.indptr) > 0
        assert 0.8 < member.mean() < 1.0
        identity = (found.T @ found).toarray()
        assert np.abs(identity - np.eye(len(identity))).max() < EPS, (block, nvectors)
        again = found @ (found.T @ vectors.T)
        assert np.abs(again - vectors.T)[member].max() < 10 * EPS, (block, nvectors)
        projected = [M @ (M.T @ np.sin(np.arange(matrix.shape[0]))) for M in (found, expected)]
        assert np.abs(projected[0] - projected[1]).max() < 10 * EPS, (block, nvectors)


def assert_same_pattern(found, expected, what):
    for array in ("indptr", "indices"):
        assert np.array_equal(getattr(found, array), getattr(expected, array)), f"{what}: {array}"


def check_smoothed_prolongators():
    """Those of a scalar problem have the same bits on any number of ranks, and all are those of products."""
    for name, matrix in MATRICES.items():
        with options(**SMOOTHED):
            expected = prolongator(distribute(matrix, PETSc.COMM_SELF))
            with options(**BY_PRODUCTS):
                product = prolongator(distribute(matrix))
            if expected is None:
                assert product is None, name
                continue
            for layout, local in layouts(matrix.shape[0]).items():
                found = prolongator(distribute(matrix, local=local))
                rows, what = expected[slice(*own_rows(found.shape[0]))], f"{name}, {layout}"
                assert_same_pattern(found, rows, what)
                assert np.array_equal(found.data, rows.data), what
                if layout == "balanced":
                    assert_same_pattern(found, product, what)
                    assert np.allclose(found.data, product.data, rtol=0, atol=EPS), what


def check_smoothed_near_null_spaces():
    for block, nvectors, nsmooths in ((1, 2, 1), (2, 1, 2), (3, 6, 1)):
        ones = MATRICES["points anywhere"] if block < 3 else MATRICES["stencil"]
        matrix = scipy.sparse.kron(ones, np.eye(block) + 0.1).tocsr()
        vectors = orthonormal(nvectors, matrix.shape[0])
        for layout in ("balanced", "none_on_middle")[: COMM.size]:
            given = {"local": layouts(ones.shape[0])[layout] * block, "block": block, "near_null": vectors}
            with options(**SMOOTHED, pc_gamg_agg_nsmooths=nsmooths):
                found = prolongator(distribute(matrix, **given))
                with options(**BY_PRODUCTS):
                    product = prolongator(distribute(matrix, **given))
            what = f"blocks of {block}, {nvectors} vectors, {nsmooths} steps, {layout}"
            assert_same_pattern(found, product, what)
            assert np.allclose(found.data, product.data, rtol=0, atol=EPS), what


def check_a_row_too_long_for_one_rank_is_so_for_all():
    longest = parallel_smoothed.LONGEST_ROW
    with options(**SMOOTHED):
        ksp = solver(distribute(MATRICES["stencil"]))
        ksp.setUp()
        assert "products" not in view(ksp)[0]
        ksp.destroy()
        expected = prolongator(distribute(MATRICES["stencil"]))
        if COMM.rank == COMM.size - 1:
            parallel_smoothed.LONGEST_ROW = 5
        ksp = solver(distribute(MATRICES["stencil"]))
        ksp.setUp()
        found = prolongator(distribute(MATRICES["stencil"]))
        parallel_smoothed.LONGEST_ROW = longest
    assert "; smoothed by products, because a row of the matrix is too long" in view(ksp)[0]
    assert_same_pattern(found, expected, "too long")
    assert np.allclose(found.data, expected.data, rtol=0, atol=EPS)
    ksp.destroy()


def check_it_converges_as_with_agg():
    found = {}
    for matrix_type in ("aij", TYPE):
        ksp = solver(distribute(stencil(20), matrix_type=matrix_type))
        solve(ksp)
        pc = ksp.getPC()
        operators = [pc.getMGSmoother(k).getOperators()[0] for k in range(pc.getMGLevels())]
        entries = [A.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"] for A in operators]
        found[matrix_type] = ksp.getIterationNumber(), sum(entries) / entries[-1]
        ksp.destroy()
    (expected, complexity), (iterations, ours) = found.values()
    assert abs(iterations - expected) <= 1 and abs(ours / complexity - 1) < 0.02, found


def check_ranks_without_coarse_rows():
    """Coarse levels are gathered on fewer ranks; agg coarsens them, and all ranks have the same number of vectors."""
    matrix = scipy.sparse.kron(points_anywhere(600), np.eye(2) + 0.1).tocsr()
    vectors = orthonormal(3, matrix.shape[0])
    found = []
    for matrix_type in ("aij", TYPE):
        with options(pc_gamg_gpufmt_order="petsc", pc_gamg_coarse_eq_limit=10):
            ksp = solver(distribute(matrix, matrix_type=matrix_type, block=2, near_null=vectors))
            solve(ksp)
        operators = [ksp.getPC().getMGSmoother(k).getOperators()[0] for k in range(ksp.getPC().getMGLevels())]
        assert len(operators) > 3
        assert COMM.size == 1 or 0 in COMM.tompi4py().allgather(operators[1].getLocalSize()[0])
        assert [A.getBlockSize() for A in operators] == [3] * (len(operators) - 1) + [2]
        found.append((ksp.getIterationNumber(), [A.getSizes() for A in operators]))
        ksp.destroy()
    assert found[0] == found[1], found


def check_set_ups_that_follow():
    """With new values, and all anew; managed arrays change nothing."""
    matrix, found = MATRICES["points anywhere"], []
    for managed in (0, 1):
        LIBRARY.GpufmtManagedSimulate(managed)  # changes nothing where there is a device
        with options(pc_gamg_reuse_interpolation=False, pc_gamg_coarse_eq_limit=10, pc_gamg_gpufmt_order="hash"):
            A = distribute(matrix)
            ksp = solver(A)
            for _ in range(3):
                x = solve(ksp)
                A.shift(0.25)
            found.append(x.getArray().copy())
            ksp.destroy()
    LIBRARY.GpufmtManagedSimulate(0)
    assert np.allclose(*found, rtol=rounding(1e-10), atol=0)


def check_what_is_said(several):
    one_sided = MATRICES["stencil"].tocoo()
    kept = (one_sided.row < one_sided.col + 40) | (one_sided.col % 3 > 0)
    one_sided = scipy.sparse.csr_matrix((one_sided.data[kept], (one_sided.row[kept], one_sided.col[kept])))
    of_agg = "graph of agg, because the pattern of the matrix is not symmetric with a complete diagonal"
    cases = [
        (MATRICES["stencil"], {"pc_gamg_gpufmt_order": "hash"}, "in the order of a hash, in "),
        (one_sided, {"pc_gamg_gpufmt_order": "hash"}, of_agg),
        (
            MATRICES["stencil"],
            {"pc_gamg_gpufmt_order": "hash", "pc_gamg_threshold": 0.01},
            "graph of agg, because the threshold is 0.01",
        ),
    ]
    if several:
        named = "set-up of agg, because agg's order of the rows of several ranks was named"
        degrees = "set-up of agg, because rows are to be in the order of their degrees, and not of a hash"
        cases += [
            (MATRICES["stencil"], {}, f"rows on {COMM.size} ranks at distance 2"),
            (MATRICES["stencil"], {"pc_gamg_gpufmt_order": "petsc"}, named),
            (MATRICES["stencil"], {"pc_gamg_mis_k_minimum_degree_ordering": True}, degrees),
        ]
    for matrix, more, words in cases:
        with options(**more):
            ksp = solver(distribute(matrix))
            ksp.setUp()
            said = view(ksp)
            assert said and words in said[0], (words, said)
            ksp.destroy()
    with options(pc_gamg_gpufmt_order="random"):
        assert error_of(solver(distribute(MATRICES["chain"])).setUp) == PETSC_ERR_USER_INPUT


@contextmanager
def failing_on_last_rank(ask):
    kind = requests.KINDS[ask]

    def fill(*arguments):
        raise ValueError("on purpose")

    if COMM.rank == COMM.size - 1:
        requests.KINDS[ask] = kind._replace(fill=fill)
    try:
        yield
    finally:
        requests.KINDS[ask] = kind


def check_errors_are_shared():
    A = distribute(MATRICES["stencil"])
    ksp = solver(A)
    references = A.getRefCount()
    for ask in TOGETHER:
        with failing_on_last_rank(ask):
            codes = set(COMM.tompi4py().allgather(error_of(ksp.setUp)))
            assert len(codes) == 1 and 0 not in codes, (ask, codes)
            assert A.getRefCount() == references, ask
    solve(ksp)
    ksp.destroy()
    LIBRARY.GpufmtManagedSimulate(1)  # changes nothing where there is a device
    # the product of the second step is ours then, and so is what scales its rows
    with options(matmatmult_via="rmerge", pc_gamg_agg_nsmooths=2):
        ksp = solver(distribute(MATRICES["stencil"]))
        with failing_on_last_rank(Ask.SCALE_AND_ADD):
            codes = set(COMM.tompi4py().allgather(error_of(ksp.setUp)))
        assert len(codes) == 1 and 0 not in codes, codes
        solve(ksp)
    ksp.destroy()
    PETSc.garbage_cleanup(COMM)
    LIBRARY.GpufmtManagedSimulate(0)


def check_memory_fails_on_one_rank():
    """Each allocation of what ranks do together in turn: an error on all ranks, none waits; then it is made."""
    number, failed = 0, True
    with options(**SMOOTHED):
        ksp = solver(distribute(MATRICES["stencil"]))
        while failed:
            with Allocations("native/gamg/", number if COMM.rank == COMM.size - 1 else None) as allocations:
                error = error_of(ksp.setUp)
            failed = COMM.tompi4py().allreduce(allocations.failed)
            assert error == (OUT_OF_MEMORY if failed else 0), f"allocation {number}"
            number += 1
        assert number > 8
        solve(ksp)
    ksp.destroy()


check_aggregates_do_not_depend_on_the_number_of_ranks()
check_near_null_spaces()
check_smoothed_prolongators()
check_smoothed_near_null_spaces()
check_it_converges_as_with_agg()
check_ranks_without_coarse_rows()
check_set_ups_that_follow()
check_what_is_said(COMM.size > 1)
if COMM.size > 1:
    check_a_row_too_long_for_one_rank_is_so_for_all()
    check_errors_are_shared()
    check_memory_fails_on_one_rank()
