"""The matrices on which options are tried, one or more for each key of a format."""

from __future__ import annotations

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import make_matrix
from petsc_gpufmt.patterns.csr import CsrPattern

POWER_LAW = "powerlaw"
POWER_LAW_EXPONENT = 2.1  # of the share of rows with k entries, k^-2.1: 7 entries a row on average
POWER_LAW_LONGEST = 5000
SEED = 20160401


def blocked_grid(block_size: int, entries: int) -> str:
    """The 27-point grid of dense blocks that has about so many entries."""
    points = max(3, round((entries / 27 / block_size**2) ** (1 / 3)))
    return f"27point:{points}x{block_size}"


MATRICES = (
    *("7point:200", "7point:100", "7point:50", "27point:128", "27point:64", "27point:20"),
    *(blocked_grid(bs, 58_000_000) for bs in (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 45, 64)),
    *(f"{POWER_LAW}:1000000", f"{POWER_LAW}:50000"),
)
QUICK_MATRICES = (
    *("7point:50", "27point:64", "27point:20"),
    *(blocked_grid(bs, 4_000_000) for bs in (2, 3, 4, 5, 6, 8, 16, 32)),
    f"{POWER_LAW}:50000",
)


def make_pattern(spec: str, backend: Backend) -> CsrPattern:
    """The pattern that `spec` names, on `backend`: powerlaw:ROWS, or what `bench mult --matrix` takes."""
    kind, _, rows = spec.partition(":")
    rng = np.random.default_rng(SEED)
    if kind == POWER_LAW:
        if not rows.isdigit() or not int(rows):
            raise BenchError(f"--matrix {spec}: give the number of rows, such as {POWER_LAW}:50000")
        rowptr, colidx = power_law(int(rows), backend.index, rng)
        shape, block_size = (int(rows), int(rows)), 1
    else:
        matrix = make_matrix(spec, backend.scalar, backend.index, rng)
        rowptr, colidx, shape, block_size = matrix.csr.indptr, matrix.csr.indices, matrix.csr.shape, matrix.block_size
    (nrows, ncols), adopt = shape, backend.adopt
    return CsrPattern(nrows, ncols, adopt(rowptr), adopt(colidx), row_block=block_size, col_block=block_size)


def power_law(nrows: int, index: np.dtype, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Row pointer and sorted columns of a square matrix with few long and many short rows, in random order."""
    lengths = np.minimum(rng.zipf(POWER_LAW_EXPONENT, nrows), min(nrows, POWER_LAW_LONGEST))
    rowptr = np.zeros(nrows + 1, dtype=index)
    np.cumsum(lengths, out=rowptr[1:])
    columns = rng.integers(nrows, size=int(rowptr[-1])).astype(index)
    return rowptr, columns[np.lexsort((columns, np.repeat(np.arange(nrows), lengths)))]
