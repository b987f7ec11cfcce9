"""Matrices of SciPy as matrices of PETSc, their rows and columns dealt to the ranks as it is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import scipy.sparse
from petsc4py import PETSc


def dealt(
    matrix: Any, mat_type: str, comm: PETSc.Comm, rows: Sequence[int], columns: Sequence[int], block: int = 1
) -> PETSc.Mat:
    """Each rank of `comm` has so many rows and columns; all ranks give the whole matrix."""
    csr, rank = scipy.sparse.csr_matrix(matrix), comm.rank
    first = sum(rows[:rank])
    mine = csr[first : first + rows[rank]]
    mine.sort_indices()
    sizes = (rows[rank], csr.shape[0]), (columns[rank], csr.shape[1])
    pattern = (array.astype(PETSc.IntType) for array in (mine.indptr, mine.indices))
    csr_arrays = *pattern, mine.data.astype(PETSc.ScalarType)
    return PETSc.Mat().createAIJ(sizes, bsize=block, csr=csr_arrays, comm=comm).convert(mat_type)
