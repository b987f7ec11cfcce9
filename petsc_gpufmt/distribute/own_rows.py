"""The rows of a matrix on this rank, as NumPy arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.errors import DistributionError

TYPES = ("seqaij", "mpiaij")


class OwnRows(NamedTuple):
    """The pattern of a rank's rows: row pointer, and columns by their global numbers."""

    rowptr: np.ndarray
    colidx: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.rowptr)


def check_matrix(matrix: Any) -> None:
    """Raise DistributionError, on all ranks, unless the matrix is assembled and of type aij or one of its kinds."""
    mat_type = matrix.getType()
    if not str(mat_type).startswith(TYPES):
        raise DistributionError(f"a matrix of type {mat_type} is not of type aij, nor of one of its kinds: convert it")
    if not matrix.isAssembled():
        raise DistributionError("the matrix is not assembled, so its pattern is not known")


def own_rows(matrix: Any) -> OwnRows:
    """The pattern of this rank's rows. Collective."""
    return OwnRows(*matrix.getRowIJ())
