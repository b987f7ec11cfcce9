"""MatMult of matrices of dense blocks, over the block sizes: ``bsr`` against cuSPARSE's BSR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from petsc_gpufmt.bench.contenders import Contender, PetscContender, format_contender
from petsc_gpufmt.bench.cusparse_bsr import ORDERS, CusparseBsrContender
from petsc_gpufmt.bench.matrices import BenchMatrix, make_matrix
from petsc_gpufmt.bench.mult import measure_mults, timed_case
from petsc_gpufmt.bench.places import Place

BLOCK_SIZES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 45, 64)
ENTRIES = {"cuda": 59_000_000, "host": 2_000_000}
FEWEST_POINTS = 10


def grid_points(block_size: int, entries: int) -> int:
    """Most grid points in each direction with which a 27-point stencil, of (3 n - 2)^3 blocks, has up to `entries`."""
    return max(FEWEST_POINTS, int(((entries / block_size**2) ** (1 / 3) + 2) / 3))


def bsr_bytes(matrix: BenchMatrix) -> int:
    """Bytes that MatMult in BSR must move: values, an index for each block and block row, x and z once."""
    csr, size = matrix.csr, matrix.block_size
    scalar, index = csr.data.itemsize, csr.indptr.itemsize
    nrows, ncols = csr.shape
    return csr.nnz * scalar + (csr.nnz // size**2 + nrows // size + 1) * index + (nrows + ncols) * scalar


def bsr_contenders(place: str) -> list[Contender]:
    """Our format and its peers: cuSPARSE in both orders of the entries of a block, on the host PETSc's own type."""
    ours = format_contender("bsr", place)
    if place == "cuda":
        return [ours, *(CusparseBsrContender(f"cuSPARSE BSR, {order}", place, order=order) for order in ORDERS)]
    return [ours, PetscContender("baij", place, types=("seqbaij",))]


def measure_block_size(
    block_size: int,
    entries: int,
    contenders: Sequence[Contender],
    places: dict[str, Place],
    types: tuple[np.dtype, np.dtype, np.random.Generator],
    show: Callable[[str], None],
) -> dict[str, Any]:
    """MatMult of the 27-point stencil of blocks of one size; `types` are those of bench/matrices.py."""
    matrix = make_matrix(f"27point:{grid_points(block_size, entries)}x{block_size}", *types)
    nbytes = bsr_bytes(matrix)

    def measure() -> dict[str, Any]:
        return {
            "bsr_bytes": nbytes,
            "products": measure_mults(matrix, contenders, places, nbytes, types[2], show),
        }

    return timed_case(matrix, measure, show)
