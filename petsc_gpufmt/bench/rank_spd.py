"""The rows of a symmetric positive definite matrix that a rank makes, and of a right-hand side for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.io

from petsc_gpufmt.bench.elasticity import BLOCK, elasticity_pattern, elasticity_values
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import (
    check_matrix,
    check_sizes,
    file_and_copies,
    file_sizes,
    grid_and_block,
    read_pattern,
    replicated,
    replications,
    reservoir_refinement,
    stencil_pattern,
    stencil_steps,
)
from petsc_gpufmt.bench.rank_rows import RankRows
from petsc_gpufmt.distribute.deal import in_equal_numbers

ELASTICITY = "elasticity"
LEAST_NODES = 2


def elasticity_nodes(spec: str) -> int | None:
    """The nodes in each direction that `spec` names; None for another matrix."""
    name, _, nodes = spec.partition(":")
    if name != ELASTICITY:
        return None
    if not (nodes.isascii() and nodes.isdigit() and int(nodes) >= LEAST_NODES):
        raise BenchError(f"--matrix {spec}: give the nodes in each direction, {LEAST_NODES} at least: {ELASTICITY}:60")
    return int(nodes)


def is_file(spec: str) -> bool:
    """Whether `spec` names a file, or copies of one."""
    return not (elasticity_nodes(spec) or grid_and_block(spec))


def check_spd_matrix(spec: str, index: np.dtype) -> None:
    """BenchError for a matrix that make_spd_rows() would refuse, as far as that is known before it is made."""
    if nodes := elasticity_nodes(spec):
        nrows = nodes**3 * BLOCK
        check_sizes(f"--matrix {spec}", nrows, nrows, nrows * 27 * BLOCK, index)
        return
    grid = grid_and_block(spec)
    if (grid and grid[2] > 1) or reservoir_refinement(spec):
        raise BenchError(f"--matrix {spec}: it has no values that are positive definite; choose {ELASTICITY}:60")
    check_matrix(spec, index)
    if grid:
        return
    path, _ = file_and_copies(spec)
    nrows, ncols, _ = file_sizes(path)
    if nrows != ncols:
        raise BenchError(f"--matrix {spec}: it is {nrows} x {ncols}; choose a square matrix")
    if path.suffix != ".npz" and (field := scipy.io.mminfo(path)[4]) not in ("real", "integer", "unsigned-integer"):
        raise BenchError(f"--matrix {spec}: its values are {field}; choose a matrix of real numbers")


def make_spd_rows(spec: str, rank: int, size: int, scalar: np.dtype, index: np.dtype) -> RankRows:
    """Rows of a rank of `size`: whole planes of a grid, or as many rows as the others have."""
    if nodes := elasticity_nodes(spec):
        planes = _planes(nodes, rank, size)
        pattern = elasticity_pattern(nodes, index, planes)
        return RankRows(*pattern, elasticity_values(nodes, scalar, planes), nodes**3 * BLOCK, BLOCK)
    if grid := grid_and_block(spec):
        stencil, points, _ = grid
        planes = _planes(points, rank, size)
        rowptr, colidx = stencil_pattern(stencil, points, index, planes)
        return RankRows(
            rowptr, colidx, _laplacian(stencil, rowptr, colidx, planes.start * points**2, scalar), points**3, 1
        )
    path, copies = file_and_copies(spec)
    read = read_pattern(path, index)
    copies = copies or replications(read.nnz)
    rowptr, colidx = replicated(read, copies)
    first, last = in_equal_numbers(rowptr.size - 1, size).bounds[rank : rank + 2]
    entries = range(rowptr[first], rowptr[last])
    values = read.data.astype(scalar)[np.arange(entries.start, entries.stop) % max(1, read.nnz)]
    own = rowptr[first : last + 1] - rowptr[first]
    return RankRows(own, colidx[entries.start : entries.stop].copy(), values, rowptr.size - 1, 1)


def check_names(specs: Sequence[str]) -> None:
    """BenchError for files that results would give one name: cases are told apart by it."""
    known: dict[tuple[str, int | None], str] = {}
    for spec in filter(is_file, specs):
        path, copies = file_and_copies(spec)
        other = known.setdefault((_stem(path), copies), spec)
        if other != spec:
            raise BenchError(
                f"--matrix {spec}: results would call it {_stem(path)}, as {other}; rename one of the files"
            )


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def matrix_name(spec: str, nrows: int) -> str:
    """For tables: that of a stencil or of elasticity, or of a file without its folder, with the copies of `nrows`."""
    if not is_file(spec):
        return spec
    path, _ = file_and_copies(spec)
    copies = nrows // max(1, file_sizes(path)[0])
    return _stem(path) + (f" x{copies}" if copies > 1 else "")


def _planes(points: int, rank: int, size: int) -> range:
    first, last = in_equal_numbers(points, size).bounds[rank : rank + 2]
    return range(first, last)


def _laplacian(stencil: str, rowptr: np.ndarray, colidx: np.ndarray, first_row: int, scalar: np.dtype) -> np.ndarray:
    """-1 for each neighbour, and on the diagonal as many as an inner point has: beyond the grid the solution is 0."""
    values = np.full(colidx.size, -1, dtype=scalar)
    rows = np.repeat(np.arange(first_row, first_row + rowptr.size - 1, dtype=colidx.dtype), np.diff(rowptr))
    values[colidx == rows] = len(stencil_steps(stencil)) - 1
    return values


def right_hand_side(rows: range, scalar: np.dtype) -> np.ndarray:
    """Entries in [-0.5, 0.5) with these global numbers: a hash of the number (splitmix64), on any number of ranks."""
    with np.errstate(over="ignore"):
        words = np.arange(rows.start + 1, rows.stop + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return ((words >> np.uint64(11)) * 2.0**-53 - 0.5).astype(scalar)
