"""Patterns on which formats differ, and a device to choose formats for."""

import numpy as np
from builders import CsrMatrix

from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.bench.matrices import blocked_pattern, stencil_pattern
from petsc_gpufmt.patterns.csr import CsrPattern

H200_THREADS = 270336


class MadeUpDevice(HostBackend):
    """The host in the part of a GPU."""

    name = "device"
    model = "NVIDIA Test 100"
    resident_threads = H200_THREADS
    simd_width = 32


def pattern(matrix: CsrMatrix, backend, **block_sizes) -> CsrPattern:
    csr = matrix.pattern(np, backend.index)
    return CsrPattern(csr.nrows, csr.ncols, csr.rowptr, csr.colidx, **block_sizes) if block_sizes else csr


def of_arrays(rowptr, colidx, ncols, **block_sizes):
    return CsrPattern(rowptr.size - 1, ncols, rowptr, colidx, **block_sizes)


def stencil(name, n, backend, block_size=1, **block_sizes):
    arrays = stencil_pattern(name, n, backend.index)
    if block_size > 1:
        arrays = blocked_pattern(*arrays, block_size)
    return of_arrays(*arrays, n**3 * block_size, **block_sizes)


def long_rows(backend, nrows=20000, longest=20000, length=5):
    lengths = np.full(nrows, length)
    lengths[[7, nrows // 2]] = longest
    return scattered(lengths, max(nrows, longest), backend)


def scattered(lengths, ncols, backend):
    """Rows of these lengths with columns anywhere."""
    rng = np.random.default_rng(70)
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(backend.index)
    return of_arrays(rowptr, rng.integers(ncols, size=rowptr[-1]).astype(backend.index), ncols)
