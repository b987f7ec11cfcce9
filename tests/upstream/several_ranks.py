"""What tests of several ranks do on each of them; started as `mpiexec -n 2 python several_ranks.py NAME`."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init([sys.argv[0], *sys.argv[2:]])

import scipy.sparse  # noqa: E402
from dealt import dealt  # noqa: E402
from matrices import check_mult, random  # noqa: E402
from petsc4py import PETSc  # noqa: E402

from petsc_gpufmt.planning.planner import owned_tokens  # noqa: E402

COMM = PETSc.COMM_WORLD
TYPE = "aijpjds"


def parallel(matrix: scipy.sparse.spmatrix, rows: list[int], columns: list[int]) -> PETSc.Mat:
    """With so many rows and columns on each rank."""
    return dealt(matrix, TYPE, COMM, rows, columns)


def whole(v: PETSc.Vec) -> np.ndarray:
    """All entries, on every rank."""
    return np.concatenate(COMM.tompi4py().allgather(v.array_r.copy()))


def check_products(A: PETSc.Mat, matrix: scipy.sparse.spmatrix) -> None:
    x, y = A.createVecs()
    first, last = x.getOwnershipRange()
    x.setArray(np.random.default_rng(1).standard_normal(x.getSize())[first:last].astype(PETSc.ScalarType))
    y.set(np.nan)
    A.mult(x, y)
    check_mult(whole(y), matrix, whole(x))
    back = x.duplicate()
    back.set(np.nan)
    A.multTranspose(y, back)
    check_mult(whole(back), matrix.T, whole(y), COMM.size + 1)


def all_columns_on_the_last_rank() -> None:
    matrix = random(410, 31, 0.2, seed=1)
    check_products(parallel(matrix, [220, 190], [0, 31]), matrix)
    check_products(parallel(matrix.T.tocsr(), [0, 31], [220, 190]), matrix.T.tocsr())


def many_more_columns_than_rows() -> None:
    for rows, columns in (([3, 3], [11, 11]), ([11, 11], [3, 3]), ([1, 5], [9, 2])):
        matrix = random(sum(rows), sum(columns), 0.4, seed=2)
        check_products(parallel(matrix, rows, columns), matrix)


def one_row_and_one_column() -> None:
    row = scipy.sparse.csr_matrix(np.arange(1.0, 13.0)[None, :])
    for of_the_long_side in ([4, 4, 4], [0, 12, 0], [6, 0, 6]):
        for of_the_other in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
            R, C = parallel(row, of_the_other, of_the_long_side), parallel(row.T, of_the_long_side, of_the_other)
            inner, outer = R.matMult(C), C.matMult(R)
            assert scipy_rows(inner).toarray().sum() == 650.0
            assert (scipy_rows(outer) != row.T @ row).nnz == 0


def scipy_rows(A: PETSc.Mat) -> scipy.sparse.csr_matrix:
    """All rows of a matrix, on every rank."""
    rowptr, colidx, values = A.getValuesCSR()
    mine = scipy.sparse.csr_matrix((values, colidx, rowptr), shape=(rowptr.size - 1, A.getSize()[1]))
    return scipy.sparse.vstack(COMM.tompi4py().allgather(mine), "csr")


def laplacian(n: int) -> scipy.sparse.csr_matrix:
    line = scipy.sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (n, n))
    return scipy.sparse.csr_matrix(scipy.sparse.kronsum(line, line))


def solve(A: PETSc.Mat) -> tuple[int, np.ndarray]:
    """Iterations of cg with GAMG, and the solution."""
    ksp = PETSc.KSP().create(COMM)
    ksp.setOperators(A)
    ksp.setType("cg")
    ksp.getPC().setType("gamg")
    ksp.setTolerances(rtol=1e-10)
    x, b = A.createVecs()
    b.set(1.0)
    ksp.solve(b, x)
    assert ksp.getConvergedReason() > 0
    return ksp.getIterationNumber(), whole(x)


def multigrid_where_a_rank_has_no_rows() -> None:
    matrix = laplacian(24)
    blocks = scipy.sparse.csr_matrix(scipy.sparse.kron(matrix, [[1.0, 0.1], [0.1, 1.0]]))
    for rows in ([576, 576], [1152, 0], [0, 1152]):
        A = parallel(blocks, rows, rows)
        A.setBlockSize(2)
        _, x = solve(A)
        assert np.linalg.norm(blocks @ x - 1.0) <= 1e-8 * np.sqrt(1152)


def multigrid_on_one_rank_and_on_two() -> None:
    matrix = laplacian(40)
    alone, x_alone = solve(parallel(matrix, [1600, 0], [1600, 0]))
    together, x = solve(parallel(matrix, [800, 800], [800, 800]))
    assert abs(alone - together) <= 1, (alone, together)
    assert np.allclose(x, x_alone, rtol=1e-8)


def multigrid_as_with_aij() -> None:
    A = parallel(laplacian(40), [800, 800], [800, 800])
    ours, x = solve(A)
    theirs, x_of_aij = solve(A.convert("aij"))
    assert abs(ours - theirs) <= 1, (ours, theirs)
    assert np.allclose(x, x_of_aij, rtol=1e-8)


def nothing_is_destroyed() -> None:
    def lose() -> None:
        A = parallel(laplacian(12), [72, 72], [72, 72])
        x, y = A.createVecs()
        A.mult(x, y)

    lose()
    PETSc.garbage_cleanup()
    before = owned_tokens()
    for _ in range(100):
        lose()
    assert owned_tokens() > before
    PETSc.garbage_cleanup()
    assert owned_tokens() == before


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    PETSc.garbage_cleanup()
