"""The matrices of the benchmarks: stencils on cubic grids, and files."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse

from petsc_gpufmt.bench.errors import BenchError

STENCILS = {"7point": 1, "27point": 3}
"""Stencil name -> how many of the three coordinates of a neighbour may differ from those of the point."""

DEFAULT_MATRICES = {
    "cuda": ("7point:200", "7point:100", "7point:50", "27point:128", "27point:64", "27point:20"),
    "host": ("7point:100", "7point:50", "27point:64", "27point:20"),
}


def stencil_pattern(stencil: str, n: int, index: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Row pointer and column indices, sorted within rows, of a stencil on n^3 grid points, cut off at the boundary."""
    differing = STENCILS[stencil]
    steps = [step for step in itertools.product((-1, 0, 1), repeat=3) if np.count_nonzero(step) <= differing]
    if n**3 * len(steps) > np.iinfo(index).max:
        raise BenchError(
            f"{stencil}:{n} has up to {n**3 * len(steps)} nonzeros, too many for the {index} of this PETSc: "
            "choose a smaller grid or a PETSc with 64-bit indices"
        )
    points = np.arange(n)
    inside = {step: (points + step >= 0) & (points + step < n) for step in (-1, 0, 1)}
    exists = np.empty((n, n, n, len(steps)), dtype=bool)
    columns = np.empty((n, n, n, len(steps)), dtype=index)
    point = np.arange(n**3, dtype=index).reshape(n, n, n)
    for k, (dz, dy, dx) in enumerate(steps):  # lexicographic order of the steps is the order of the columns
        exists[..., k] = inside[dz][:, None, None] & inside[dy][:, None] & inside[dx]
        np.add(point, (dz * n + dy) * n + dx, out=columns[..., k])
    rowptr = np.zeros(n**3 + 1, dtype=index)
    np.cumsum(exists.sum(axis=3).ravel(), out=rowptr[1:])
    return rowptr, columns[exists]


def stencil_matrix(
    stencil: str, n: int, scalar: np.dtype, index: np.dtype, rng: np.random.Generator
) -> scipy.sparse.csr_matrix:
    """A stencil on n^3 grid points with random values, so that a misplaced value shows."""
    rowptr, columns = stencil_pattern(stencil, n, index)
    values = rng.random(columns.size, dtype=scalar) - scalar.type(0.5)
    return _csr(values, columns, rowptr, n**3)


def _csr(values: np.ndarray, columns: np.ndarray, rowptr: np.ndarray, ncols: int) -> scipy.sparse.csr_matrix:
    matrix = scipy.sparse.csr_matrix((rowptr.size - 1, ncols), dtype=values.dtype)
    matrix.data, matrix.indices, matrix.indptr = values, columns, rowptr  # the constructor would check every entry
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def read_matrix(path: Path, scalar: np.dtype, index: np.dtype) -> scipy.sparse.csr_matrix:
    """A matrix from a Matrix Market file (.mtx, .mtx.gz) or from scipy.sparse.save_npz() (.npz)."""
    if not path.is_file():
        raise BenchError(
            f"--matrix {path}: there is no such file, and it is not STENCIL:POINTS with one of {', '.join(STENCILS)}"
        )
    try:
        matrix = scipy.sparse.load_npz(path) if path.suffix == ".npz" else scipy.io.mmread(path)
    except (ValueError, OSError, KeyError) as e:
        raise BenchError(
            f"--matrix {path}: not a sparse matrix in Matrix Market (.mtx, .mtx.gz) or SciPy (.npz) form: {e}"
        ) from e
    if np.iscomplexobj(matrix):
        raise BenchError(
            f"--matrix {path}: its values are complex, the matrix types are for real PETSc: choose another file"
        )
    matrix = scipy.sparse.csr_matrix(matrix, dtype=scalar)
    matrix.sum_duplicates()
    if matrix.nnz > np.iinfo(index).max:
        raise BenchError(f"--matrix {path}: {matrix.nnz} nonzeros are too many for the {index} of this PETSc")
    matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
    return matrix


def make_matrix(
    spec: str, scalar: np.dtype, index: np.dtype, rng: np.random.Generator
) -> tuple[str, scipy.sparse.csr_matrix]:
    """Name and CSR matrix for ``STENCIL:POINTS`` or a path."""
    stencil, _, points = spec.partition(":")
    if stencil not in STENCILS:
        return Path(spec).name.split(".")[0], read_matrix(Path(spec), scalar, index)
    if not points.isdigit() or int(points) < 1:
        raise BenchError(f"--matrix {spec}: give the grid points in each direction, such as {stencil}:50")
    n = int(points)
    return f"{stencil.replace('point', '-point')} {n}^3", stencil_matrix(stencil, n, scalar, index, rng)
