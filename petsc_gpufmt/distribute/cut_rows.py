"""Long block rows cut into segments, which are dealt out, and the sums over segments (Abdelfattah et al. 2016, 5.6)."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.distribute.deal import LENGTH, in_turns, prefix_of
from petsc_gpufmt.distribute.own_rows import check_matrix
from petsc_gpufmt.distribute.ranks import agree, agree_on, from_all
from petsc_gpufmt.distribute.report import balance
from petsc_gpufmt.errors import IndexOverflowError

SHORTEST_LIMIT = 16  # of the paper's values for lambda the smaller


class Segments:
    """A matrix A as the product R S: y = R (S x). `segments` makes it.

    Attributes
    ----------
    matrix : petsc4py.PETSc.Mat
        S: a row for each segment of a row of A, longest segments first dealt to the ranks in turns; columns as those
        of A.
    reduction : petsc4py.PETSc.Mat
        R: ones where a segment is of a row; rows as those of A, columns as the rows of S.
    limit : int, lambda: blocks of a segment at most
    balance : Balance, of S
    """

    def __init__(self, matrix: Any, reduction: Any, limit: int, digest: bytes):
        self.matrix, self.reduction, self.limit, self.balance = matrix, reduction, limit, balance(matrix)
        self._digest = digest

    def update(self, matrix: Any) -> None:
        """Take over new values of A. Collective.

        Raises DistributionError, on all ranks, if its pattern is not what it was.
        """
        check_matrix(matrix)
        rowptr, colidx, values = matrix.getValuesCSR()
        changed = _digest(rowptr, colidx) != self._digest
        agree("the pattern has changed: cut the rows again" if changed else "", self.matrix.getComm())
        self.matrix.setValuesCOO(values)


class Cut(NamedTuple):
    """Segments of all block rows, in order.

    Attributes
    ----------
    lengths : (nsegments,) int64, blocks of each
    segment_ptr : (nblock_rows + 1,) int64
        Block row i has the segments from segment_ptr[i] on, up to segment_ptr[i + 1]; an empty one has none.
    """

    lengths: np.ndarray
    segment_ptr: np.ndarray


def segments(matrix: Any, limit: int | None = None) -> Segments:
    """Cut block rows into segments of at most `limit` blocks, and deal those to the ranks in turns. Collective.

    Parameters
    ----------
    matrix : petsc4py.PETSc.Mat
        A, of type aij or one of its kinds, assembled; its block sizes say what a block is. S and R are of its type.
    limit : int, optional
        Lambda; without it, twice the mean of the block rows that are not empty, and at least 16.

    Raises DistributionError, on all ranks, for another matrix or limit, IndexOverflowError for more rows of segments
    than PETSc's integers count.
    """
    from petsc4py import PETSc

    check_matrix(matrix)
    comm, largest = matrix.getComm(), int(np.iinfo(PETSc.IntType).max)
    _check_limit(limit, largest, comm)
    rowptr, colidx, values = matrix.getValuesCSR()
    bs, column_bs = matrix.getBlockSizes()
    (first, last), ncolumns = matrix.getOwnershipRange(), matrix.getSize()[1]
    places, counts = places_in_block_rows(rowptr, colidx, bs, column_bs, ncolumns)
    counts = from_all(counts, comm)
    limit = limit or automatic_limit(counts)
    cut = cut_block_rows(counts, limit, largest // bs)
    dealt = in_turns(cut.lengths, comm.getSize())
    numbers, own = dealt.new_numbers(), dealt.own(comm.getRank()).size
    of_rows = (last - first, matrix.getSize()[0])
    of_segments = (own * bs, numbers.size * bs)

    rows = np.repeat(np.arange(first, last), np.diff(rowptr))
    of_entries = numbers[cut.segment_ptr[rows // bs] + places // limit] * bs + rows % bs
    layouts = of_segments, (matrix.getLocalSize()[1], ncolumns)
    cut_matrix = _from_coordinates(matrix, layouts, (bs, column_bs), of_entries, colidx, values)

    rows = np.arange(first, last)
    counts = np.diff(cut.segment_ptr)[rows // bs]
    among = np.arange(counts.sum()) - np.repeat(prefix_of(counts)[:-1], counts)
    rows = np.repeat(rows, counts)
    columns = numbers[cut.segment_ptr[rows // bs] + among] * bs + rows % bs
    ones = np.ones(columns.size, dtype=PETSc.ScalarType)
    reduction = _from_coordinates(matrix, (of_rows, of_segments), (bs, bs), rows, columns, ones)
    return Segments(cut_matrix, reduction, int(limit), _digest(rowptr, colidx))


def _check_limit(limit: Any, largest: int, comm: Any) -> None:
    wrong = limit is not None and not (isinstance(limit, (int, np.integer)) and 1 <= limit <= largest)
    agree(f"limit is {limit!r}, and must be a whole number from 1 on" if wrong else "", comm)
    agree_on("limits", (limit or 0,), comm)


def automatic_limit(counts: np.ndarray) -> int:
    """Lambda for block rows of so many blocks."""
    filled = np.count_nonzero(counts)
    return max(SHORTEST_LIMIT, ceil_div(2 * int(counts.sum(dtype=np.int64)), filled) if filled else 0)


def places_in_block_rows(
    rowptr: np.ndarray, colidx: np.ndarray, bs: int, column_bs: int, ncolumns: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each entry, which block of its block row it is in, counted from 0; and the blocks of each block row."""
    if bs == column_bs == 1:
        counts = np.diff(rowptr)
        return np.arange(colidx.size) - np.repeat(rowptr[:-1], counts), counts
    nblock_columns = ceil_div(ncolumns, column_bs)
    block_row = np.repeat(np.arange(rowptr.size - 1) // bs, np.diff(rowptr))
    blocks, block_of_entry = np.unique(block_row * nblock_columns + colidx // column_bs, return_inverse=True)
    counts = np.bincount(blocks // max(nblock_columns, 1), minlength=(rowptr.size - 1) // bs)
    return block_of_entry - prefix_of(counts)[block_row], counts


def cut_block_rows(counts: np.ndarray, limit: int, largest: int) -> Cut:
    """Cut block rows of so many blocks; IndexOverflowError if that makes more than `largest` segments."""
    of_block_rows = ceil_div(counts.astype(LENGTH), limit)
    segment_ptr = prefix_of(of_block_rows)
    if segment_ptr[-1] > largest:
        raise IndexOverflowError(
            f"block rows cut at {limit} blocks are {segment_ptr[-1]} segments, more than the {largest} that PETSc's "
            "integers hold: set a larger limit"
        )
    lengths = np.full(segment_ptr[-1], limit, dtype=LENGTH)
    filled = of_block_rows > 0
    lengths[segment_ptr[1:][filled] - 1] = counts[filled] - (of_block_rows[filled] - 1) * limit
    return Cut(lengths, segment_ptr)


def _from_coordinates(
    like: Any, layouts: Any, block_sizes: tuple[int, int], rows: np.ndarray, columns: np.ndarray, values: np.ndarray
) -> Any:
    """A matrix of the type of another, with the values at coordinates that any rank may give."""
    from petsc4py import PETSc

    made = PETSc.Mat().create(like.getComm())
    made.setSizes(layouts)
    made.setBlockSizes(*block_sizes)
    made.setType(like.getType())
    made.setPreallocationCOO(rows.astype(PETSc.IntType), columns.astype(PETSc.IntType))
    made.setValuesCOO(values)
    return made


def _digest(*arrays: np.ndarray) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.tobytes())
    return digest.digest()
