"""Faults of PETSc's own, which type aij has alone: operations that would meet one leave it out by its name."""

from __future__ import annotations

from petsc4py import PETSc

FAULTS = {
    "MatZeroRows() of rows without entries": (
        "src/mat/impls/aij/seq/aij.c:2093",
        "inserts the diagonal of such a row, which may replace the array, and writes those of later rows into the "
        "one that was freed; of a parallel matrix, where the diagonal block has such rows",
    ),
    "MatZeroRows() of several ranks, a diagonal entry lacking": (
        "src/mat/impls/aij/mpi/mpiaij.c:870",
        "returns an error on that rank, while the others wait for it in the assembly",
    ),
    "MatDiagonalSet() of several ranks, more rows than columns": (
        "src/mat/utils/axpy.c:393",
        "goes beyond the last column, an error on that rank, while the others wait for it in the assembly",
    ),
    "MatGetRow() after MatDiagonalSet() or MatZeroRowsColumns()": (
        "src/mat/impls/aij/mpi/mpiaij.c:1687",
        "keeps arrays for the longest row until the next assembly, which these two leave out, and writes beyond them",
    ),
    "MatShift() of several ranks, columns dealt otherwise than rows": (
        "src/mat/utils/gcreate.c:54",
        "restores an option of the off-diagonal block, which a new nonzero has replaced meanwhile",
    ),
    "MatGetRowMax() and its like without columns": (
        "src/mat/impls/aij/seq/aij.c:3091",
        "take empty rows for dense ones, and read their first entry",
    ),
    "MatZeroRowsColumns() of several ranks, columns dealt otherwise than rows": (
        "src/mat/impls/aij/mpi/mpiaij.c:961",
        "marks rows in a vector of the columns, and beyond it",
    ),
    "MatGetColumnIJ() after MatTranspose() in place": (
        "src/mat/impls/aij/seq/inode.c:18",
        "looks for rows of equal columns, which the new data of the matrix do not have: an error",
    ),
    "MatStoreValues() once more": (
        "src/mat/impls/aij/seq/aij.c:3666",
        "keeps the array of an earlier call, which has no room for more entries",
    ),
    "MatSetValuesCOO() after other entries": (
        "src/mat/impls/aij/seq/aij.c:4740",
        "goes over the entries that there are by now, with places of those that there were",
    ),
    "MatPtAP() and MatRARt() of a matrix that is not square": (
        "src/mat/interface/matproduct.c:431",
        "compare one of the two sizes alone, and read beyond P",
    ),
    "MatAXPY() of several ranks, columns in another order": (
        "src/mat/impls/aij/mpi/mpiaij.c:2033",
        "merges the columns that MatCreateSubMatrix() may leave unsorted, and counts more entries than a row can have",
    ),
    "SAME_NONZERO_PATTERN of several ranks": (
        "src/mat/impls/aij/mpi/mpiaij.c:2062",
        "compares the off-diagonal blocks, whose columns may stay when their entries go: an error on that rank",
    ),
    "MatMatMult() and MatAXPY() of several ranks, sizes that fit on some": (
        "src/mat/impls/aij/mpi/mpiaij.c:5830",
        "compares them on each rank by itself, and returns an error on one, while the others wait for it",
    ),
    "MAT_REUSE_MATRIX of products of several ranks, other columns in the off-diagonal block": (
        "src/mat/impls/aij/mpi/mpimatmatmult.c:1728",
        "numbers them as the matrix of the first product did, which may have kept columns whose entries had gone: "
        "wrong products, and memory beyond",
    ),
    "MatConvert() to baij of several ranks, MAT_NEW_NONZERO_LOCATIONS false": (
        "src/mat/impls/aij/mpi/mmaij.c:174",
        "makes the off-diagonal block of the converted matrix anew, and ignores its entries as new ones",
    ),
    "MatCreateSubMatrices() of several ranks, columns dealt otherwise than rows": (
        "src/mat/impls/aij/mpi/mpiov.c:1138",
        "counts columns from the first row of the rank where all rows and columns are asked for",
    ),
    "MatCreateSubMatrices() of rows that there are not": (
        "src/mat/impls/aij/seq/aij.c:2480",
        "reads beyond the rows, and of a parallel type (mpiov.c:2276) beyond the last rank, and writes there",
    ),
    "MatConvert() from a type without MatGetRow()": (
        "src/mat/impls/shell/shellcnv.c:62",
        "makes columns by products, and leaves stored zeros out, for a type that it has no converter for",
    ),
    "MatCreateSubMatrixVirtual() of several ranks, in blocks": (
        "src/mat/impls/submat/submat.c:230",
        "takes the matrix's block sizes for the part, an error on ranks that they do not fit, while the others wait",
    ),
    "MatIncreaseOverlap() of a matrix that is not square": (
        "src/mat/impls/aij/seq/aij.c:2780",
        "takes columns for rows",
    ),
}
"""By name: the line of PETSc 3.26.1, and what it does there."""


def left_out(name: str) -> None:
    """What an operation returns that would meet this fault."""
    assert name in FAULTS, name


def assemble(A: PETSc.Mat, fault: str) -> None:
    """The assembly without which a parallel matrix would meet this fault."""
    assert fault in FAULTS, fault
    if A.getType().startswith("mpi"):
        A.assemble()
