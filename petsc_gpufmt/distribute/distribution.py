"""Rows dealt to ranks: sizes, the permutation to the new order, and matrices and vectors in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from petsc_gpufmt.distribute import deal
from petsc_gpufmt.distribute.own_rows import OwnRows, check_matrix, own_rows
from petsc_gpufmt.distribute.partition import partitioned
from petsc_gpufmt.distribute.ranks import agree, agree_on, bounds_of, from_all
from petsc_gpufmt.distribute.report import Balance, halo_sizes
from petsc_gpufmt.errors import DistributionError

METHODS = ("petsc", "nonzeros", "cyclic", "partition")


class Distribution:
    """Which rows each rank gets, and in which order. `rows` makes it; calls of its methods are collective.

    Attributes
    ----------
    method : str, one of METHODS
    block_size : int, rows that stay together
    sizes : (int, int)
        Rows of this rank and of all, for ``Mat.setSizes`` and ``Vec.setSizes``.
    permutation : petsc4py.PETSc.IS
        The old global number of each of this rank's new rows.
    balance : Balance
    """

    def __init__(self, method: str, block_size: int, dealt: deal.Deal, balance: Balance, before: np.ndarray, comm: Any):
        from petsc4py import PETSc

        first, last = dealt.bounds[comm.getRank() : comm.getRank() + 2] * block_size
        self.method, self.block_size, self.balance = method, block_size, balance
        self.sizes = int(last - first), int(dealt.bounds[-1]) * block_size
        if dealt.order is None:
            self.permutation = PETSc.IS().createStride(last - first, first, 1, comm=comm)
        else:
            blocks = dealt.own(comm.getRank())[:, None] * block_size
            numbers = (blocks + np.arange(block_size)).ravel().astype(PETSc.IntType)
            self.permutation = PETSc.IS().createGeneral(numbers, comm=comm)
        self.permutation.setBlockSize(block_size)
        self._before, self._after = before, dealt.bounds * block_size
        self._stays = dealt.order is None and np.array_equal(self._before, self._after)
        self._scatter: Any = None

    def matrix(self, matrix: Any, columns: Distribution | None = None, result: Any = None) -> Any:
        """The matrix with its rows, and columns, in the new distribution; of the same type. Collective.

        Parameters
        ----------
        matrix : petsc4py.PETSc.Mat
            With its rows where they were when the distribution was made.
        columns : Distribution, optional
            That of the columns. Without it, those of a square matrix go as its rows, others stay where they are.
        result : petsc4py.PETSc.Mat, optional
            What an earlier call has made of the same pattern: it gets the new values.

        Null spaces and the options prefix do not go over. Raises DistributionError, on all ranks, if rows or columns
        are not where they were.
        """
        from petsc4py import PETSc

        check_matrix(matrix)
        _check_layout("rows of the matrix", matrix.getOwnershipRanges(), self._before)
        nrows, ncolumns = matrix.getSize()
        if columns is None and nrows == ncolumns:
            columns = self
        if columns is None:
            first, last = matrix.getOwnershipRangeColumn()
            column_permutation = PETSc.IS().createStride(last - first, first, 1, comm=matrix.getComm())
            column_permutation.setBlockSize(matrix.getBlockSizes()[1])
        else:
            if columns.sizes[1] != ncolumns:
                raise DistributionError(f"the matrix has {ncolumns} columns, their distribution {columns.sizes[1]}")
            column_permutation = columns.permutation
        if columns is self and self._stays:  # what MatCreateSubMatrix gives then is no copy
            return (
                matrix.duplicate(copy=True)
                if result is None
                else matrix.copy(result, PETSc.Mat.Structure.SAME_NONZERO_PATTERN)
            )
        return matrix.createSubMatrix(self.permutation, column_permutation, result)

    def vector(self, vector: Any, result: Any = None) -> Any:
        """A vector in the old order, in the new one. Collective.

        Parameters
        ----------
        vector : petsc4py.PETSc.Vec
        result : petsc4py.PETSc.Vec, optional; without it a new one of the same type

        Raises DistributionError, on all ranks, if a vector is not distributed as the rows were, or are.
        """
        return self._moved(vector, result, back=False)

    def back(self, vector: Any, result: Any = None) -> Any:
        """A vector in the new order, in the old one: parameters and errors as those of `vector`. Collective."""
        return self._moved(vector, result, back=True)

    def _moved(self, source: Any, result: Any, back: bool) -> Any:
        from petsc4py import PETSc

        before, after = (self._after, self._before) if back else (self._before, self._after)
        _check_layout("entries of the vector", source.getOwnershipRanges(), before)
        if result is None:
            rank = source.getComm().getRank()
            result = PETSc.Vec().create(source.getComm())
            result.setSizes((after[rank + 1] - after[rank], after[-1]), self.block_size)
            result.setType(source.getType())
        _check_layout("entries of the result", result.getOwnershipRanges(), after)
        if self._scatter is None:
            old, new = (result, source) if back else (source, result)
            self._scatter = PETSc.Scatter().create(old, self.permutation, new, None)
        mode = PETSc.ScatterMode.REVERSE if back else PETSc.ScatterMode.FORWARD
        self._scatter.scatter(source, result, PETSc.InsertMode.INSERT_VALUES, mode)
        return result


def _check_layout(what: str, ranges: np.ndarray, expected: np.ndarray) -> None:
    """All ranks know all ranges, so that they find the same."""
    if not np.array_equal(ranges, expected):
        raise DistributionError(
            f"{what} begin at {list(map(int, ranges))} on the ranks, those of the distribution at "
            f"{list(map(int, expected))}"
        )


def rows(pattern: Any, method: str = "nonzeros", block_size: int | None = None, comm: Any = None) -> Distribution:
    """Deal the rows of a matrix to the ranks. Collective.

    All ranks gather the lengths of all block rows: 30 bytes a block row on each.

    Parameters
    ----------
    pattern : petsc4py.PETSc.Mat, or n integers
        An assembled matrix of type aij or one of its kinds, or the lengths of the rows that this rank has now.
    method : str, one of METHODS
        "petsc": contiguous, as many rows on each; "nonzeros": contiguous, the largest number of non-zeros as small as
        can be; "cyclic": block rows by their lengths, in turns; "partition": by PETSc's MatPartitioning of a square
        matrix, with as many block rows on each and few edges cut: -mat_partitioning_type says by which package.
    block_size : int, optional
        Rows that stay together; without it that of the matrix, or 1.
    comm : petsc4py.PETSc.Comm, optional; for lengths alone: else PETSc's default one

    Raises DistributionError, on all ranks, for what does not suit, and UnsupportedError for "partition" if no package
    is there.
    """
    from petsc4py import PETSc

    matrix = pattern if isinstance(pattern, PETSc.Mat) else None
    if matrix is not None:
        check_matrix(matrix)
        comm, own = matrix.getComm(), own_rows(matrix)
        lengths, block_size = own.lengths, matrix.getBlockSizes()[0] if block_size is None else block_size
    else:
        comm, own = PETSc.Sys.getDefaultComm() if comm is None else comm, None
        lengths, block_size = np.asarray(pattern), 1 if block_size is None else block_size
    agree(_problem(method, block_size, lengths, matrix, np.iinfo(PETSc.IntType).max), comm)
    agree_on("method and block size", (METHODS.index(method), block_size), comm)
    before = bounds_of(lengths.size, comm)
    block_lengths = from_all(lengths.reshape(-1, block_size).sum(axis=1), comm)
    dealt = _deal(method, block_size, own, block_lengths, before, comm)
    halo = None if own is None else _halo(matrix, own, dealt, block_size, comm)
    balance = Balance(np.diff(dealt.bounds) * block_size, dealt.totals(block_lengths), halo)
    return Distribution(method, block_size, dealt, balance, before, comm)


def _problem(method: str, block_size: int, lengths: np.ndarray, matrix: Any, largest: int) -> str:
    """What this rank finds wrong with what it was given; nothing: an empty text."""
    if method not in METHODS:
        return f"method is {method!r}, and must be one of {', '.join(METHODS)}"
    if not isinstance(block_size, (int, np.integer)) or not 1 <= block_size <= largest:
        return f"block size is {block_size!r}, and must be a whole number from 1 on"
    if lengths.ndim != 1 or (lengths.size and not np.issubdtype(lengths.dtype, np.integer)):
        return f"lengths of rows are of type {lengths.dtype} and shape {lengths.shape}: give whole numbers in one row"
    if lengths.size and lengths.min() < 0:
        return f"a row has length {lengths.min()}"
    if _sum(lengths) > largest:
        return f"the rows of a rank have more than {largest} entries, which PETSc's integers do not hold"
    if lengths.size % block_size:
        return f"a rank has {lengths.size} rows, which are no whole blocks of {block_size}"
    if method == "partition" and (matrix is None or matrix.getSize()[0] != matrix.getSize()[1]):
        return "a partition needs the graph of a square matrix: take another method, or give the matrix"
    return ""


def _sum(lengths: np.ndarray) -> int:
    """Exact, where 64 bits may not hold it."""
    wide = lengths.astype(np.uint64)
    return (int((wide >> 32).sum()) << 32) + int((wide & 0xFFFFFFFF).sum())


def _deal(
    method: str, block_size: int, own: OwnRows | None, block_lengths: np.ndarray, before: np.ndarray, comm: Any
) -> deal.Deal:
    size = comm.getSize()
    if method == "nonzeros":
        return deal.by_lengths(block_lengths, size)
    if method == "cyclic":
        return deal.in_turns(block_lengths, size)
    if method == "partition" and own is not None:
        return deal.to_owners(partitioned(own, block_size, before // block_size, comm), size)
    return deal.in_equal_numbers(block_lengths.size, size)


def _halo(matrix: Any, own: OwnRows, dealt: deal.Deal, block_size: int, comm: Any) -> np.ndarray:
    """Entries that ranks will need of each other: columns of a square matrix go as its rows, others stay."""
    row_owners = np.repeat(dealt.owners(), block_size)
    first, last = matrix.getOwnershipRange()
    column_owners = row_owners
    if matrix.getSize()[0] != matrix.getSize()[1]:
        counts = np.diff(matrix.getOwnershipRangesColumn())
        column_owners = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
    return halo_sizes(np.repeat(row_owners[first:last], own.lengths), own.colidx, column_owners, comm)
