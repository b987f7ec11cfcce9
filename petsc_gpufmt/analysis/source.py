"""The matrix that is to be analysed: a generator's, or that of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from petsc_gpufmt.analysis import petsc_binary
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import (
    RESERVOIR,
    STENCILS,
    check_matrix,
    check_sizes,
    checked_sizes,
    grid_and_block,
    make_matrix,
    read_pattern,
    reservoir_refinement,
    with_random_values,
)
from petsc_gpufmt.tune.matrices import POWER_LAW, SEED, power_law

SPECS = (
    f"{', '.join(f'{name}:POINTS or {name}:POINTSxBLOCK' for name in STENCILS)}, {RESERVOIR}:REFINEMENT, "
    f"{POWER_LAW}:ROWS, or a file: Matrix Market (.mtx, .mtx.gz), SciPy (.npz) or PETSc binary"
)

POWER_LAW_MEAN = 8
"""No fewer than the entries of a row of a power law."""

COPIES = 4
"""The matrix, its transpose, and the largest format beside what it is made from."""


@dataclass(frozen=True)
class Source:
    """A matrix and where it is from.

    Attributes
    ----------
    name : as it was asked for
    matrix : columns ascend in each row, and none repeats; the indices are those of PETSc
    block_size : that the generator or the file tells, 1 if none
    has_values : whether values are those of a file; a generator's are random
    """

    name: str
    matrix: scipy.sparse.csr_matrix
    block_size: int = 1
    has_values: bool = True


def read_source(spec: str, scalar: np.dtype, index: np.dtype) -> Source:
    """The matrix that `spec` names, see SPECS; BenchError for what is none, before anything long is done."""
    try:
        return _read(spec, scalar, index)
    except BenchError as e:
        raise BenchError(str(e).removeprefix("--matrix ")) from e  # it is not an option here
    except MemoryError as e:
        raise BenchError(f"{spec}: it does not fit into the memory of this machine") from e


def _read(spec: str, scalar: np.dtype, index: np.dtype) -> Source:
    rng = np.random.default_rng(SEED)
    kind, _, size = spec.partition(":")
    if kind == POWER_LAW:
        if not (size.isascii() and size.isdigit() and int(size)):
            raise BenchError(f"{spec}: give the number of rows, such as {POWER_LAW}:50000")
        nrows = int(size)
        check_sizes(spec, nrows, nrows, POWER_LAW_MEAN * nrows, index)
        check_memory(spec, nrows, POWER_LAW_MEAN * nrows, scalar, index)
        matrix = with_random_values(*power_law(nrows, index, rng), nrows, scalar, rng)
        return Source(spec, merged(matrix), has_values=False)
    if grid_and_block(spec) or reservoir_refinement(spec):
        nrows, _, nnz = check_matrix(spec, index)
        check_memory(spec, nrows, nnz, scalar, index)
        made = make_matrix(spec, scalar, index, rng)
        return Source(spec, made.csr, made.block_size, has_values=False)
    return _read_file(Path(spec), scalar, index)


def _read_file(path: Path, scalar: np.dtype, index: np.dtype) -> Source:
    if not path.is_file():
        raise BenchError(f"{path}: there is no such file, nor a generator of that name; give {SPECS}")
    try:
        of_petsc = bool(petsc_binary.class_id(path))
    except OSError as e:
        raise BenchError(f"{path}: cannot be read ({e.strerror})") from e
    if of_petsc:
        nrows, ncols, nnz = petsc_binary.sizes(path, scalar, index)
        check_sizes(str(path), nrows, ncols, nnz, index)
        check_memory(str(path), max(nrows, ncols), nnz, scalar, index)
        matrix, block_size = petsc_binary.load(path, scalar, index)
        return Source(str(path), merged(matrix), block_size)
    nrows, ncols, nnz = checked_sizes(path, index)
    check_memory(str(path), max(nrows, ncols), nnz, scalar, index)
    matrix = read_pattern(path, index)
    check_memory(str(path), max(nrows, ncols), matrix.nnz, scalar, index)  # a head tells half of a symmetric matrix
    return Source(str(path), matrix)


def merged(matrix: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """The matrix as PETSc assembles it: columns ascend, and those that repeat are added up."""
    matrix.has_sorted_indices = matrix.has_canonical_format = False
    matrix.sum_duplicates()
    return matrix


def check_memory(what: str, nrows: int, nnz: int, scalar: np.dtype, index: np.dtype) -> None:
    """BenchError if what an analysis keeps at a time is more than the memory of this machine."""
    needed = COPIES * (nnz * (scalar.itemsize + index.itemsize) + nrows * (scalar.itemsize + index.itemsize))
    memory = memory_bytes()
    if needed > memory:
        raise BenchError(
            f"{what}: {nrows} rows and {nnz} entries take {needed / 1e9:.0f} GB to analyse, and this machine has "
            f"{memory / 1e9:.0f} GB: choose a smaller matrix"
        )


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
