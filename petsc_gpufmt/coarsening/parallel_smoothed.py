"""Smoothed prolongators of matrices that lie on several ranks: each makes its rows, in two blocks of columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch, Struct
from petsc_gpufmt.coarsening.parallel_aggregates import RankGraph
from petsc_gpufmt.coarsening.smoothed import LONGEST_ROW, blocks_of_columns, values_of_block
from petsc_gpufmt.errors import PatternError
from petsc_gpufmt.patterns.csr import CsrPattern


class ParallelSmoothed(NamedTuple):
    """The rows of a smoothed prolongator on one rank.

    Attributes
    ----------
    own : CsrPattern of the columns of aggregates of this rank
    others : CsrPattern of those of other ranks, in the order of `ghosts`
    ghosts : (nghosts,) host array of the backend's index type
        The aggregates of other ranks that these rows may have, counted through all ranks, ascending.
    numeric : for each of both blocks, launches for RESULT = P0 + ALPHA diag(X) A P0
        A_VALUES and B_VALUES are those of both blocks of A, ALPHA is a scalar.
    """

    own: CsrPattern
    others: CsrPattern
    ghosts: np.ndarray
    numeric: tuple[list[Launch], list[Launch]]


def parallel_smoothed(
    matrix: RankGraph,
    nlow: int,
    numbers: Any,
    tentative: Any,
    owned: tuple[int, int],
    ghosts: np.ndarray,
    nvectors: int,
    backend: Backend,
) -> ParallelSmoothed | None:
    """A step of smoothing applied to a tentative prolongator P0 of several ranks; None if a row is too long for it.

    The sums of an entry have the order of the columns of A, counted through all ranks: values have the same bits on any
    number of ranks. Waits for the device.

    Parameters
    ----------
    matrix : RankGraph of A, whose longest rows are known
    nlow : ghosts that are rows of ranks before this one, of which they come first
    numbers, tentative : aggregates and values of rows and ghosts, as of `TentativeRows`; values are read by launches
    owned : the first aggregate of this rank, and how many it has
    ghosts : (n,) host array of the backend's index type, aggregates of other ranks that rows of this one belong to
    nvectors : columns of an aggregate

    Raises PatternError if the sizes do not fit, IndexOverflowError if the index type does not count the entries.
    """
    nrows, index, (first, naggregates) = matrix.nrows, backend.index, owned
    size = nrows + matrix.nghosts
    if nvectors < 1 or matrix.own.ncols != nrows or (numbers.size, tentative.size) != (size, size * nvectors):
        raise PatternError(
            f"{nrows} rows with {matrix.own.ncols} columns of a rank and {matrix.nghosts} of others are to smooth "
            f"{nvectors} columns for each aggregate of {numbers.size} rows"
        )
    if matrix.longest > LONGEST_ROW:
        return None
    of_ghosts = backend.to_host(numbers[nrows:])  # waits for the device
    elsewhere = of_ghosts[(of_ghosts >= 0) & ((of_ghosts < first) | (of_ghosts >= first + naggregates))]
    ghosts = _ascending(np.concatenate([ghosts, elsewhere]))
    ncols = naggregates * nvectors, int(ghosts.size) * nvectors
    if not nrows:
        own, beside = (CsrPattern(0, n, *backend.empty((1, index), (0, index), zeros=1)) for n in ncols)
        return ParallelSmoothed(own, beside, ghosts, ([], []))
    others = (matrix.others.rowptr, matrix.others.colidx) if matrix.others and matrix.others.nnz else (None, None)
    smoothing = Struct(
        *map(index.type, (nrows, 1, nvectors)),
        *(matrix.own.rowptr, matrix.own.colidx, numbers, None),
        *map(np.int64, owned),
        *(*others, *map(index.type, (nlow, ghosts.size)), backend.adopt(ghosts, keep=True)),
    )
    blocks = blocks_of_columns(smoothing, 2, matrix.nnz / nrows, backend)
    own, beside = (CsrPattern(nrows, n, *arrays) for n, arrays in zip(ncols, blocks, strict=True))
    here, there = (values_of_block(smoothing, 2, k, part, tentative, backend) for k, part in enumerate((own, beside)))
    return ParallelSmoothed(own, beside, ghosts, ([here], [there]))


def _ascending(numbers: np.ndarray) -> np.ndarray:
    """Each of the numbers once; np.unique imports other modules when it is first called, which takes longer."""
    numbers = np.sort(numbers)
    return numbers[np.append(True, numbers[1:] != numbers[:-1])[: numbers.size]]
