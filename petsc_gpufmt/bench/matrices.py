"""The matrices of the benchmarks: stencils on cubic grids, plain or of dense blocks, a reservoir, and files."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrix_files import file_sizes, of_a_matrix, read_matrix

STENCILS = {"7point": 1, "27point": 3}
"""Stencil name -> how many of the three coordinates of a neighbour may differ from those of the point."""

DEFAULT_MATRICES = {
    "cuda": ("7point:200", "7point:100", "7point:50", "27point:128", "27point:64", "27point:20", "27point:60x3"),
    "host": ("7point:100", "7point:50", "27point:64", "27point:20"),
}

SPECS = (
    "STENCIL:POINTS or STENCIL:POINTSxBLOCK with one of "
    f"{', '.join(STENCILS)}, reservoir:REFINEMENT, a .mtx, .mtx.gz or .npz file, or FILE*COPIES"
)
RESERVOIR = "reservoir"
RESERVOIR_PLANES, RESERVOIR_POINTS, RESERVOIR_BLOCK = 3, 7, 7
"""Cells of SPE5 in height, cells in length and width, and unknowns of a cell."""

SUFFIXES = (".mtx", ".mtx.gz", ".npz")
VALUE_BYTES = 8

REPLICATED_NONZEROS = 40_000_000
"""Copies of a file are made until there are so many: then the matrix is far larger than the cache of a GPU."""

REAL_NONZEROS = 100_000
"""Smallest matrix of a folder that is measured: with fewer entries, only the launch of a kernel is."""


@dataclass(frozen=True)
class BenchMatrix:
    """A matrix, its name for tables, and the size of its dense blocks (1 if it has none) for MatSetBlockSize()."""

    name: str
    csr: scipy.sparse.csr_matrix
    block_size: int = 1


def stencil_steps(stencil: str) -> list[tuple[int, ...]]:
    """From a point to those of its row, in lexicographic order."""
    differing = STENCILS[stencil]
    return [step for step in itertools.product((-1, 0, 1), repeat=3) if np.count_nonzero(step) <= differing]


def stencil_pattern(
    stencil: str, n: int, index: np.dtype, rows: range | None = None, planes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Row pointer and column indices, sorted within rows, of a stencil on n^3 grid points, cut off at the boundary.

    Of the planes `rows` alone, if asked; and on `planes` planes of n^2 points.
    """
    steps = stencil_steps(stencil)
    planes = n if planes is None else planes
    height = np.arange(planes) if rows is None else np.arange(rows.start, rows.stop)
    points = np.arange(n)
    inside = {step: (points + step >= 0) & (points + step < n) for step in (-1, 0, 1)}
    above = {step: (height + step >= 0) & (height + step < planes) for step in (-1, 0, 1)}
    shape = (height.size, n, n)
    exists = np.empty((*shape, len(steps)), dtype=bool)
    columns = np.empty((*shape, len(steps)), dtype=index)
    point = (height.astype(index)[:, None] * n**2 + np.arange(n**2, dtype=index)).reshape(shape)
    for k, (dz, dy, dx) in enumerate(steps):  # lexicographic order of the steps is the order of the columns
        exists[..., k] = above[dz][:, None, None] & inside[dy][:, None] & inside[dx]
        np.add(point, (dz * n + dy) * n + dx, out=columns[..., k])
    rowptr = np.zeros(height.size * n**2 + 1, dtype=index)
    np.cumsum(exists.sum(axis=3).ravel(), out=rowptr[1:])
    return rowptr, columns[exists]


def blocked_pattern(rowptr: np.ndarray, columns: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The pattern with each entry in place of a dense block: kron(pattern, ones)."""
    index = columns.dtype
    lengths = np.repeat(np.diff(rowptr), block_size)  # blocks in each row of the result
    starts = np.repeat(rowptr[:-1], block_size)
    blocks_before = np.zeros(lengths.size + 1, dtype=index)
    np.cumsum(lengths, out=blocks_before[1:])
    blocks = np.arange(blocks_before[-1], dtype=index)
    blocks += np.repeat(starts - blocks_before[:-1], lengths)
    inside = np.arange(block_size, dtype=index)
    expanded = (columns[blocks] * index.type(block_size))[:, None] + inside
    return blocks_before * index.type(block_size), expanded.ravel()


def reservoir_pattern(refinement: int, index: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Row pointer and columns of the blocks of a reservoir: the grid of SPE5, each cell cut into `refinement` cells
    in each direction, as a porous medium and its fractures.

    A block row is a cell of one of the two, which lie side by side. It has blocks for the cell and up to six
    neighbours, and one for the same cell of the other. Cut into ten, with blocks of 7 x 7, these are the 2,058,000 rows
    and 113,464,400 nonzeros of spe5Ref_dpdp (Abdelfattah et al. 2016, table II).
    """
    planes, points = RESERVOIR_PLANES * refinement, RESERVOIR_POINTS * refinement
    rowptr, columns = stencil_pattern("7point", points, index, range(planes), planes)
    ncells = planes * points**2
    cells = scipy.sparse.csr_matrix((np.ones(columns.size, dtype=np.int8), columns, rowptr), (ncells, ncells))
    one, other = np.identity(2, dtype=np.int8), 1 - np.identity(2, dtype=np.int8)
    every_cell = scipy.sparse.identity(ncells, dtype=np.int8)
    blocks = scipy.sparse.kron(cells, one, "csr") + scipy.sparse.kron(every_cell, other, "csr")
    blocks.sort_indices()
    return blocks.indptr.astype(index), blocks.indices.astype(index)


def stencil_matrix(
    stencil: str, n: int, scalar: np.dtype, index: np.dtype, rng: np.random.Generator, block_size: int = 1
) -> scipy.sparse.csr_matrix:
    """A stencil on n^3 grid points, of dense blocks if asked, with random values."""
    rowptr, columns = stencil_pattern(stencil, n, index)
    if block_size > 1:
        rowptr, columns = blocked_pattern(rowptr, columns, block_size)
    return with_random_values(rowptr, columns, n**3 * block_size, scalar, rng)


def with_random_values(
    rowptr: np.ndarray, columns: np.ndarray, ncols: int, scalar: np.dtype, rng: np.random.Generator
) -> scipy.sparse.csr_matrix:
    """A matrix with sorted rows and values in [-0.5, 0.5): a misplaced one shows in a product."""
    values = rng.random(columns.size, dtype=scalar)
    values -= scalar.type(0.5)
    matrix = scipy.sparse.csr_matrix((rowptr.size - 1, ncols), dtype=scalar)
    matrix.data, matrix.indices, matrix.indptr = values, columns, rowptr  # the constructor would check every entry
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def read_pattern(path: Path, index: np.dtype) -> scipy.sparse.csr_matrix:
    """The pattern in a Matrix Market file (.mtx, .mtx.gz) or a SciPy one (.npz); stored zeros belong to it."""
    checked_sizes(path, index)
    with of_a_matrix(path):
        matrix = read_matrix(path)
        matrix.sum_duplicates()
        nrows, ncols = matrix.shape
        check_sizes(f"--matrix {path}", nrows, ncols, matrix.nnz, index)
        matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
    return matrix


def checked_sizes(path: Path, index: np.dtype) -> tuple[int, int, int]:
    """What `file_sizes` says; BenchError if the file is missing, is not one of a matrix, or that is too large."""
    if not path.is_file():
        raise BenchError(f"--matrix {path}: there is no such file; give {SPECS}")
    with of_a_matrix(path):
        sizes = file_sizes(path)
    check_sizes(f"--matrix {path}", *sizes, index)
    return sizes


def replicated(pattern: scipy.sparse.csr_matrix, copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Row pointer and columns of kron(identity, pattern)."""
    nrows, ncols = pattern.shape
    index = pattern.indices.dtype
    check_sizes(f"{copies} copies", copies * nrows, copies * ncols, copies * pattern.nnz, index)
    copy = np.arange(copies, dtype=index)[:, None]
    columns = pattern.indices + copy * index.type(ncols)
    rowptr = np.zeros(copies * nrows + 1, dtype=index)
    rowptr[1:] = (pattern.indptr[1:] + copy * index.type(pattern.nnz)).ravel()
    return rowptr, columns.ravel()


def replications(nnz: int) -> int:
    """As many copies as REPLICATED_NONZEROS asks for."""
    return max(1, ceil_div(REPLICATED_NONZEROS, max(1, nnz)))


def make_matrix(spec: str, scalar: np.dtype, index: np.dtype, rng: np.random.Generator) -> BenchMatrix:
    """The matrix that `spec` names: one of SPECS. Files give the pattern; values are random throughout."""
    if grid := grid_and_block(spec):
        _check_stencil(spec, *grid, index)
        return _stencil(*grid, scalar, index, rng)
    if refinement := reservoir_refinement(spec):
        check_matrix(spec, index)
        return _reservoir(refinement, scalar, index, rng)
    path, copies = file_and_copies(spec)
    pattern = read_pattern(path, index)
    if copies is None:
        copies = replications(pattern.nnz)
    return _from_pattern(path.name.split(".")[0], pattern, copies, scalar, rng)


def check_matrix(spec: str, index: np.dtype) -> tuple[int, int, int]:
    """Rows, columns and most entries of what `spec` names, as far as that is known before it is read or made.

    BenchError for what make_matrix() would refuse.
    """
    if grid := grid_and_block(spec):
        return _check_stencil(spec, *grid, index)
    if refinement := reservoir_refinement(spec):
        nrows = 2 * RESERVOIR_PLANES * RESERVOIR_POINTS**2 * refinement**3 * RESERVOIR_BLOCK
        check_sizes(f"--matrix {spec}", nrows, nrows, 8 * nrows * RESERVOIR_BLOCK, index)
        return nrows, nrows, 8 * nrows * RESERVOIR_BLOCK
    return checked_sizes(file_and_copies(spec)[0], index)


def file_and_copies(spec: str) -> tuple[Path, int | None]:
    """File and copies that `spec` names; None for as many as REPLICATED_NONZEROS asks for."""
    path, star, copies = spec.partition("*")
    if copies and not (copies.isdigit() and int(copies)):
        raise BenchError(
            f"--matrix {spec}: give a number of copies after *, or none for {REPLICATED_NONZEROS} nonzeros"
        )
    return Path(path), int(copies) if copies else None if star else 1


def grid_and_block(spec: str) -> tuple[str, int, int] | None:
    """Stencil, grid points in each direction and block size that `spec` names; None if it names no stencil."""
    stencil, _, size = spec.partition(":")
    if stencil not in STENCILS:
        return None
    numbers = re.fullmatch(r"(\d+)(?:x(\d+))?", size)
    n, block_size = (int(numbers[1]), int(numbers[2] or 1)) if numbers else (0, 0)
    if not n or not block_size:
        raise BenchError(f"--matrix {spec}: give the grid points in each direction, such as {stencil}:50, or 50x3")
    return stencil, n, block_size


def reservoir_refinement(spec: str) -> int | None:
    """Into how many cells in each direction those of the reservoir are cut that `spec` names; None for another one."""
    name, _, refinement = spec.partition(":")
    if name != RESERVOIR:
        return None
    if not (refinement.isascii() and refinement.isdigit() and int(refinement)):
        raise BenchError(f"--matrix {spec}: give into how many cells in each direction cells are cut: {RESERVOIR}:10")
    return int(refinement)


def _check_stencil(spec: str, stencil: str, n: int, block_size: int, index: np.dtype) -> tuple[int, int, int]:
    nrows = n**3 * block_size
    sizes = nrows, nrows, nrows * len(stencil_steps(stencil)) * block_size
    check_sizes(f"--matrix {spec}", *sizes, index)
    return sizes


def _stencil(
    stencil: str, n: int, block_size: int, scalar: np.dtype, index: np.dtype, rng: np.random.Generator
) -> BenchMatrix:
    name = f"{stencil.replace('point', '-point')} {n}^3"
    if block_size > 1:
        name += f", {block_size} x {block_size} blocks"
    return BenchMatrix(name, stencil_matrix(stencil, n, scalar, index, rng, block_size), block_size)


def _reservoir(refinement: int, scalar: np.dtype, index: np.dtype, rng: np.random.Generator) -> BenchMatrix:
    rowptr, columns = blocked_pattern(*reservoir_pattern(refinement, index), RESERVOIR_BLOCK)
    matrix = with_random_values(rowptr, columns, rowptr.size - 1, scalar, rng)
    return BenchMatrix(f"reservoir, refined {refinement} times", matrix, RESERVOIR_BLOCK)


def _from_pattern(
    name: str, pattern: scipy.sparse.csr_matrix, copies: int, scalar: np.dtype, rng: np.random.Generator
) -> BenchMatrix:
    rowptr, columns = (pattern.indptr, pattern.indices) if copies == 1 else replicated(pattern, copies)
    matrix = with_random_values(rowptr, columns, copies * pattern.shape[1], scalar, rng)
    return BenchMatrix(name if copies == 1 else f"{name} x{copies}", matrix)


def folder_matrices(
    folder: Path, replicate: bool, scalar: np.dtype, index: np.dtype, rng: np.random.Generator
) -> Iterator[BenchMatrix]:
    """Every file of a folder that holds at least REAL_NONZEROS entries, in the order of names, replicated if asked."""
    paths = sorted(path for path in folder.glob("*") if path.name.endswith(SUFFIXES))
    if not paths:
        raise BenchError(f"{folder}: no {', '.join(SUFFIXES)} file there; name a folder with matrices")
    for path in paths:
        pattern = read_pattern(path, index)
        if pattern.nnz >= REAL_NONZEROS:
            copies = replications(pattern.nnz) if replicate else 1
            yield _from_pattern(path.name.split(".")[0], pattern, copies, scalar, rng)


def check_sizes(what: str, nrows: int, ncols: int, nnz: int, index: np.dtype) -> None:
    """BenchError if a matrix with up to `nnz` nonzeros is beyond the indices or the memory."""
    sizes = f"{what}: {nrows} x {ncols} with up to {nnz} nonzeros"
    if max(nrows, ncols, nnz) > np.iinfo(index).max:
        raise BenchError(
            f"{sizes} are too many for the {index} of this PETSc: "
            "choose a smaller matrix or a PETSc with 64-bit indices"
        )
    needed = nnz * (index.itemsize + VALUE_BYTES) + nrows * index.itemsize + (nrows + ncols) * VALUE_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise BenchError(
            f"{sizes} take {needed / 1e9:.0f} GB and this machine has {memory / 1e9:.0f} GB: choose a smaller matrix"
        )
