"""The graph that PETSc's GAMG of type agg coarsens: nodes of several rows, made symmetric, without weak entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct, launch_1d
from petsc_gpufmt.errors import PatternError
from petsc_gpufmt.patterns.coo import assemble
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles
from petsc_gpufmt.patterns.symmetry import is_symmetric

BLOCK_THREADS = 256
TEAM = 8  # threads that share a row
NUMBERS_A_THREAD = 4  # of the prefix sum
NO_THRESHOLD = -1.0


class StrengthGraph(NamedTuple):
    """A graph, if it is one that aggregates are found for: symmetric, with all entries of the diagonal.

    Attributes
    ----------
    pattern : CsrPattern whose longest row is known, or None
        It may be that of the matrix itself.
    summary : how it was made; or, where `pattern` is None, why it is left to agg
    """

    pattern: CsrPattern | None
    summary: str


class _Weighted(NamedTuple):
    """A pattern, and its values if there is a threshold."""

    pattern: CsrPattern
    values: Any

    @property
    def struct(self) -> Struct:
        """`Matrix` of kernels/coarsening/strength.cu."""
        p = self.pattern
        return Struct(p.rowptr.dtype.type(p.nrows), p.rowptr, p.colidx, self.values)


def strength_graph(
    matrix: CsrPattern,
    values: Any,
    backend: Backend,
    *,
    block: int = 1,
    symmetrize: bool = False,
    threshold: float = NO_THRESHOLD,
    keep_diagonal: bool = False,
    symmetric: bool = False,
) -> StrengthGraph:
    """The graph of a square matrix.

    The rows of a block are a node, and the sum of the absolute values of a block is the weight of its entry. Unless the
    graph is not to be made symmetric, it has (i, j) and (j, i) if the matrix has one of them, and their weight is the
    sum of both. Entries are left out whose weight, divided by the square roots of those of the diagonal in their row
    and in their column, is not above the threshold. Waits for the device.

    Parameters
    ----------
    matrix : CsrPattern whose longest row is known
    values : (nnz,) array of scalars; None if there is no threshold
    block : rows of a node
    symmetrize : whether the transpose is added; false where the values are known to be symmetric
    threshold : below 0: none, and no value is read
    keep_diagonal : entries of the diagonal are not left out
    symmetric : the pattern of the matrix is known to be, with all entries of the diagonal

    Raises PatternError if the matrix is not square, or its rows are not a multiple of `block`.
    """
    nrows, filtered = matrix.nrows, threshold >= 0
    if block < 1 or matrix.ncols != nrows or nrows % block:
        raise PatternError(f"the graph of a {nrows} x {matrix.ncols} matrix with blocks of {block} rows")
    certain = block == 1 and (symmetric or is_symmetric(matrix, backend))
    if not nrows or (certain and not filtered):
        return StrengthGraph(matrix, "the matrix")
    given = _Weighted(matrix, values if filtered else None)
    disordered, sparse, apart = _look_at_rows(given, block, backend)  # waits for the device
    if disordered:
        return StrengthGraph(None, "the columns of its rows do not ascend")
    if apart and not sparse:
        return StrengthGraph(None, f"it takes entries of several blocks of {block} for one")
    words = [f"blocks of {block} rows" if block > 1 else "the matrix"]
    if block > 1:
        given = _of_blocks(given, block, sparse, backend)
        certain = is_symmetric(given.pattern, backend)
    if symmetrize:
        if not certain and 2 * given.pattern.nnz > backend.largest_index:
            return StrengthGraph(None, f"a PetscInt does not count twice its {given.pattern.nnz} entries")
        pattern = given.pattern if certain else _with_transpose(given, backend)
        words += [] if certain else ["made symmetric"]
        given = _with_sums(given, pattern, backend) if filtered else _Weighted(pattern, None)
    pattern = given.pattern
    if filtered:
        pattern = _filtered(given, threshold, keep_diagonal, backend)
        share = 100 * pattern.nnz / max(given.pattern.nnz, 1)
        words.append(f"{share:.3g} % of its entries above {threshold:g}")
    if (filtered or not certain) and not is_symmetric(pattern, backend):
        return StrengthGraph(None, "its pattern is not symmetric with a complete diagonal")
    return StrengthGraph(pattern, ", ".join(words))


def _look_at_rows(matrix: _Weighted, block: int, backend: Backend) -> list[int]:
    """Fields of `Found` in kernels/coarsening/strength.cu. Waits for the device."""
    (found,) = backend.empty((3, COUNT), zeros=1)
    arguments = (matrix.struct, backend.index.type(block), found)
    backend.run([_over_rows("strength_check", matrix.pattern.nrows, arguments, backend)])
    return backend.first(found, 3)  # waits for the device


def _of_blocks(matrix: _Weighted, block: int, sparse: int, backend: Backend) -> _Weighted:
    """The graph of blocks, with the sums of their absolute values as weights. If they are not dense, waits."""
    pattern, index = matrix.pattern, backend.index
    nnodes, nnz = pattern.nrows // block, pattern.nnz
    sums = None
    if not sparse:
        nnz //= block * block
        rowptr, colidx = backend.empty((nnodes + 1, index), (nnz, index))
        if matrix.values is not None:
            (sums,) = backend.empty((nnz, backend.scalar))
        arguments = (matrix.struct, index.type(nnodes), index.type(block), rowptr, colidx, sums)
        backend.run([_over_rows("strength_dense_blocks", nnodes, arguments, backend)])
        longest = (pattern.longest or 0) // block
        return _Weighted(CsrPattern(nnodes, nnodes, rowptr, colidx, longest=longest), sums)
    rows, cols = backend.empty((nnz, index), (nnz, index))
    magnitudes = None
    if matrix.values is not None:
        (magnitudes,) = backend.empty((nnz, backend.scalar))
    coordinates = (matrix.struct, index.type(block), 0, rows, cols, magnitudes)
    backend.run([_over_rows("strength_coordinates", pattern.nrows, coordinates, backend)])
    assembly = assemble((nnodes, nnodes), rows, cols, backend)  # waits for the device
    if magnitudes is not None:
        (sums,) = backend.empty((assembly.pattern.nnz, backend.scalar))
        slots = {Slot.A_VALUES: magnitudes, Slot.B_VALUES: None, Slot.C_VALUES: None, Slot.Y: None, Slot.RESULT: sums}
        backend.run(assembly.plan_sum(backend), slots)
    return _Weighted(assembly.pattern.validated(backend), sums)  # waits for the device


def _with_transpose(matrix: _Weighted, backend: Backend) -> CsrPattern:
    """The pattern of a matrix and of its transpose. Waits for the device."""
    pattern, index = matrix.pattern, backend.index
    rows, cols = backend.empty((2 * pattern.nnz, index), (2 * pattern.nnz, index))
    arguments = (matrix.struct, index.type(1), 1, rows, cols, None)
    backend.run([_over_rows("strength_coordinates", pattern.nrows, arguments, backend)])
    shape = (pattern.nrows, pattern.ncols)
    return assemble(shape, rows, cols, backend).pattern.validated(backend)  # waits for the device


def _with_sums(matrix: _Weighted, pattern: CsrPattern, backend: Backend) -> _Weighted:
    """The sums of a matrix and of its transpose, in the pattern of both."""
    (sums,) = backend.empty((pattern.nnz, backend.scalar))
    arguments = (matrix.struct, pattern.rowptr, pattern.colidx, sums)
    backend.run([_over_rows("strength_add_transpose", pattern.nrows, arguments, backend)])
    return _Weighted(pattern, sums)


def _filtered(graph: _Weighted, threshold: float, keep_diagonal: bool, backend: Backend) -> CsrPattern:
    """The entries of a graph that are strong. Waits for the device."""
    nrows, index, ntiles = graph.pattern.nrows, backend.index, tiles(graph.pattern.nrows, NUMBERS_A_THREAD)
    (rowptr,) = backend.empty((nrows + 1, index))
    control, scales = backend.empty((3 + ntiles, COUNT), (nrows, backend.real), zeros=1)
    scale, sums = (
        backend.function("coarsening/strength", f"strength_{what}", (template,))
        for what, template in (("scales", BLOCK_THREADS), ("row_pointer", NUMBERS_A_THREAD))
    )
    strong = Struct(*graph.struct, scales, backend.real.type(threshold), int(keep_diagonal))
    backend.run(
        [
            launch_1d(scale, nrows, BLOCK_THREADS, (graph.struct, scales)),
            _over_rows("strength_count", nrows, (strong, rowptr), backend),
            launch_1d(sums, ntiles * SCAN_THREADS, SCAN_THREADS, (np.int64(nrows), rowptr, control)),
        ]
    )
    nnz, longest = backend.first(control, 2)  # waits for the device
    (colidx,) = backend.empty((nnz, index))
    backend.run([_over_rows("strength_columns", nrows, (strong, rowptr, colidx), backend)])
    return replace(graph.pattern, rowptr=rowptr, colidx=colidx, longest=longest, counts=None)


def _over_rows(kernel: str, nrows: int, arguments: tuple, backend: Backend) -> Launch:
    function = backend.function("coarsening/strength", kernel, (BLOCK_THREADS, TEAM))
    return launch_1d(function, nrows * TEAM, BLOCK_THREADS, arguments)


@compiled_ahead("coarsening/strength")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    over_rows = ("check", "dense_blocks", "coordinates", "add_transpose", "count", "columns")
    by_rows = [(f"strength_{what}", (BLOCK_THREADS, TEAM)) for what in over_rows]
    yield [*by_rows, ("strength_scales", (BLOCK_THREADS,)), ("strength_row_pointer", (NUMBERS_A_THREAD,))]
