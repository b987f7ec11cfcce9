"""The splitting of a left matrix into factors of short rows, for any library (Gremse et al., section 2.3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.spgemm import pieces
from petsc_gpufmt.bench.spgemm_tasks import row_lengths


def splitting(matrix: scipy.sparse.csr_matrix, width: int) -> Iterator[scipy.sparse.csr_matrix]:
    """G_1, G_2, ..., A_k of A = A_k ... G_2 G_1, rows of up to `width` entries in each (section 2.3)."""
    index = matrix.indices.dtype
    while row_lengths(matrix).max(initial=0) > width:
        bounds = pieces(matrix.indptr, width).astype(index)
        part = scipy.sparse.csr_matrix((bounds.size - 1, matrix.shape[1]), dtype=matrix.dtype)
        part.data, part.indices, part.indptr = matrix.data, matrix.indices, bounds
        yield part
        rest = scipy.sparse.csr_matrix((matrix.shape[0], bounds.size - 1), dtype=matrix.dtype)
        rest.indptr = np.searchsorted(bounds, matrix.indptr).astype(index)
        rest.indices, rest.data = np.arange(bounds.size - 1, dtype=index), np.ones(bounds.size - 1, matrix.dtype)
        matrix = rest
    yield matrix
