"""Meets one of PETSc's own faults, with type aij alone; says `right` if PETSc does what it should.

python tests/reliability/petsc_fault_child.py "MatGetRowMax() and its like without columns"
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
from petsc4py import PETSc  # noqa: E402

COMM, RANK, SIZE = PETSc.COMM_WORLD, PETSc.COMM_WORLD.rank, PETSc.COMM_WORLD.size
NOT_CONFORMING = 60  # PETSC_ERR_ARG_SIZ


def matrix(entries: list[tuple[int, int]], rows: int, columns: int, mat_type: str = "aij", block: int = 1) -> PETSc.Mat:
    """Of so many rows and columns on this rank, with entries 5 at places that count from its first row and column."""
    A = PETSc.Mat().create(COMM)
    A.setSizes(((rows, PETSc.DECIDE), (columns, PETSc.DECIDE)), bsize=block)
    A.setType(mat_type)
    A.setUp()
    first, _ = A.getOwnershipRange()
    first_column, _ = A.getOwnershipRangeColumn()
    for i, j in entries:
        A.setValue(first + i, (first_column + j) % A.getSize()[1], 5.0)
    A.assemble()
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    return A


def zero_rows_without_entries() -> bool:
    A = matrix([(i, 0) for i in range(1, 40)], 40, 40)
    A.zeroRows(np.arange(40, dtype=PETSc.IntType), 1.0)
    return bool(np.all(A.getDiagonal().getArray() == 1.0))


def zero_rows_without_diagonal() -> bool:
    A = matrix([(0, 0)] if RANK == 0 else [(0, 1)], 2, 2)
    A.setOption(PETSc.Mat.Option.KEEP_NONZERO_PATTERN, True)
    A.zeroRows([A.getOwnershipRange()[0]], 1.0)
    return True


def diagonal_of_more_rows_than_columns() -> bool:
    A = matrix([(0, 0)], 3, 2)
    A.setDiagonal(A.createVecLeft())
    return True


def shift_where_columns_are_dealt_otherwise() -> bool:
    A = matrix([], 4, 6 if RANK == 0 else 2)
    A.shift(1.0)
    return A.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"] == 4 * SIZE


def row_max_without_columns() -> bool:
    A = PETSc.Mat().createAIJ((3, 0), nnz=0, comm=COMM)
    A.assemble()
    v = A.createVecLeft()
    ctypes.CDLL(PETSc.__file__).MatGetRowMin(ctypes.c_void_p(A.handle), ctypes.c_void_p(v.handle), None)
    return True


def columns_after_transpose() -> bool:
    """Rows are alike by twos, and columns are not."""
    pairs = ((0, 3, 5), (1, 3, 4), (2, 4, 5))
    A = matrix([(2 * k + i, j) for k in range(3) for i in range(2) for j in pairs[k]], 6, 6)
    A.transpose()
    A.getColumnIJ()
    return True


def galerkin_product_of_what_is_not_square() -> bool:
    A, P = matrix([(3, 1)], 4, 2), matrix([(1, 0)], 2, 2)
    try:
        A.ptap(P)
    except PETSc.Error as error:
        return error.ierr == NOT_CONFORMING
    return False


def add_with_columns_in_another_order() -> bool:
    A = matrix([(0, j) for j in range(10)], 1, (1, 9)[RANK])
    sets = [PETSc.IS().createGeneral(np.arange(*A.getOwnershipRange(), dtype=PETSc.IntType), comm=COMM)]
    sets.append(PETSc.IS().createGeneral(np.arange(*A.getOwnershipRangeColumn(), dtype=PETSc.IntType)[::-1], comm=COMM))
    A.createSubMatrix(*sets).axpy(1.0, A, PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)
    return True


def same_pattern_of_other_columns() -> bool:
    A = matrix([(0, 0), (0, 2), (1, 1), (1, 3)], 2, 2)
    A.zeroRows([1], 1.0)
    A.axpy(1.0, matrix([(0, 0), (0, 2), (1, 1)] + [(1, 3)] * RANK, 2, 2), PETSc.Mat.Structure.SAME_NONZERO_PATTERN)
    return True


def product_with_other_columns() -> bool:
    """The first matrix keeps a column outside the diagonal block that has no entry any more, the second has none."""
    A, P = matrix([(0, 0), (0, 2), (1, 1), (1, 3)], 2, 2), matrix([(0, 0), (1, 1)], 2, 2)
    A.zeroRows([A.getOwnershipRange()[0]], 0.0)
    same = PETSc.Mat().createAIJ(A.getSizes(), csr=A.getValuesCSR(), comm=COMM)
    return same.matMult(P, result=A.matMult(P)).equal(same.matMult(P))


def convert_from_a_type_without_rows() -> bool:
    A = matrix([(0, 0), (0, 1), (1, 1)], 2, 2, "mpiaij")
    A.zeroEntries()
    perm = A.convert("mpisell", PETSc.Mat()).convert("mpiaijperm", PETSc.Mat())
    return perm.getInfo()["nz_used"] == A.getInfo()["nz_used"]


def part_of_a_matrix_in_blocks() -> bool:
    A = matrix([(0, 0)], 6, 6, block=3)
    rows = PETSc.IS().createGeneral(A.getOwnershipRange()[0] + np.arange(3 + RANK, dtype=PETSc.IntType), comm=COMM)
    PETSc.Mat().createSubMatrixVirtual(A, rows, rows)
    return True


SHOWN: dict[str, tuple[int, Callable[[], bool]]] = {
    "MatZeroRows() of rows without entries": (1, zero_rows_without_entries),
    "MatZeroRows() of several ranks, a diagonal entry lacking": (2, zero_rows_without_diagonal),
    "MatDiagonalSet() of several ranks, more rows than columns": (2, diagonal_of_more_rows_than_columns),
    "MatShift() of several ranks, columns dealt otherwise than rows": (2, shift_where_columns_are_dealt_otherwise),
    "MatGetRowMax() and its like without columns": (1, row_max_without_columns),
    "MatGetColumnIJ() after MatTranspose() in place": (1, columns_after_transpose),
    "MatPtAP() and MatRARt() of a matrix that is not square": (1, galerkin_product_of_what_is_not_square),
    "MatAXPY() of several ranks, columns in another order": (2, add_with_columns_in_another_order),
    "SAME_NONZERO_PATTERN of several ranks": (2, same_pattern_of_other_columns),
    "MAT_REUSE_MATRIX of products of several ranks, other columns in the off-diagonal block": (
        2,
        product_with_other_columns,
    ),
    "MatConvert() from a type without MatGetRow()": (1, convert_from_a_type_without_rows),
    "MatCreateSubMatrixVirtual() of several ranks, in blocks": (2, part_of_a_matrix_in_blocks),
}
"""On how many ranks, and by what. Not shown are those that end well or not as memory happens to be."""


def main() -> int:
    signal.alarm(30)  # ranks may wait for one that has failed
    try:
        right = SHOWN[sys.argv[1]][1]()
    except PETSc.Error as error:
        print(f"rank {RANK}: {error}", flush=True)
        COMM.tompi4py().Abort(2)
    if RANK == 0:
        print("right" if right else "wrong", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
