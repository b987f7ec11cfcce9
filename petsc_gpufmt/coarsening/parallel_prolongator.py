"""The tentative prolongator of aggregates that lie on several ranks: the rank of an aggregate factors all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, Struct, launch_1d
from petsc_gpufmt.coarsening.prolongator import BLOCK_THREADS, NUMBERS_A_THREAD, columns_of_nodes, tentative
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles


@dataclass(frozen=True)
class RankAggregates:
    """The aggregates of the nodes of a rank, counted through all ranks.

    Attributes
    ----------
    numbers : (nnodes,) array of the backend's index type, -1: none
    first, count : those that belong to this rank, as their roots are nodes of it
    """

    numbers: Any
    first: int
    count: int

    @property
    def nnodes(self) -> int:
        return int(self.numbers.size)

    def struct(self) -> Struct:
        """`OwnAggregates` of kernels/coarsening/parallel_prolongator.cu."""
        return Struct(np.int64(self.first), np.int64(self.count))


class ParallelTentative(NamedTuple):
    """The rows of a tentative prolongator on one rank.

    Attributes
    ----------
    own : CsrPattern of the columns of aggregates of this rank
    others : CsrPattern of those of other ranks, in the order of these
    values : (own.nnz + nreceived * block * nvectors,) array of scalars
        Those of `own`, then of each node that came from another rank what that has in `others`, node by node.
    elsewhere : (others.nnz,) array of scalars for the values of `others`, which other ranks send
    coarse : (nvectors * nvectors * count,) array of real numbers, as of `Tentative`
    """

    own: CsrPattern
    others: CsrPattern
    values: Any
    elsewhere: Any
    coarse: Any


class TentativeRows(NamedTuple):
    """Rows of a tentative prolongator one by one: those of a rank, then those of other ranks that it looks at.

    Attributes
    ----------
    numbers : (nrows + nghosts,) array of the backend's index type
        The aggregate of each, counted through all ranks; -1: none.
    values : ((nrows + nghosts) * nvectors,) array of scalars, zeros for rows without an aggregate
    fill : launches that write both for the rows of the rank, once the values of `ParallelTentative.elsewhere` are there
    """

    numbers: Any
    values: Any
    fill: list[Launch]


def elsewhere(aggregates: RankAggregates, backend: Backend) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of a rank whose aggregates are of others, ascending, and these, on the host. Waits for the device."""
    nnodes, index = aggregates.nnodes, backend.index
    if not nnodes:
        return np.zeros(0, index), np.zeros(0, index)
    ntiles = tiles(nnodes, NUMBERS_A_THREAD)
    control, nodes, numbers = backend.empty((2 + ntiles, COUNT), (nnodes, index), (nnodes, index), zeros=1)
    function = backend.function("coarsening/parallel_prolongator", "parallel_elsewhere", (NUMBERS_A_THREAD,))
    arguments = (np.int64(nnodes), aggregates.struct(), aggregates.numbers, nodes, numbers, control)
    backend.run([launch_1d(function, ntiles * SCAN_THREADS, SCAN_THREADS, arguments)])
    (count,) = backend.first(control, 1)  # waits for the device
    found, of_them = (np.array(backend.to_host(array[:count])) for array in (nodes, numbers))
    return found, of_them


def parallel_tentative(
    aggregates: RankAggregates,
    received: np.ndarray,
    ghosts: np.ndarray,
    block: int,
    near_null: Any,
    nvectors: int,
    backend: Backend,
) -> ParallelTentative:
    """The part of a rank of the prolongator of `tentative`, in which each aggregate has its nodes of all ranks.

    Waits for the device.

    Parameters
    ----------
    aggregates : RankAggregates
    received : (nreceived,) host array of the backend's index type
        Of each node that another rank has, and that belongs to an aggregate of this one, this, counted from 0.
    ghosts : (nghosts,) host array of the backend's index type
        The aggregates of other ranks that nodes of this one belong to, ascending.
    block, nvectors : as of `tentative`
    near_null : (nvectors * (nnodes + nreceived) * block,) array of real numbers, vector by vector, or None as there
        In the rows of this rank, then in those of the nodes that were received.

    Raises what `tentative` does.
    """
    nnodes, nreceived, index = aggregates.nnodes, int(received.size), backend.index
    here, there = backend.empty((nnodes + nreceived, index), (nnodes, index))
    if nnodes + nreceived:
        function = backend.function("coarsening/parallel_prolongator", "parallel_split", (BLOCK_THREADS,))
        given = (aggregates.numbers, backend.adopt(received), index.type(ghosts.size), backend.adopt(ghosts))
        arguments = (np.int64(nnodes), np.int64(nreceived), aggregates.struct(), *given, here, there)
        backend.run([launch_1d(function, nnodes + nreceived, BLOCK_THREADS, arguments)])
    made = tentative(here, aggregates.count, block, near_null, nvectors, backend)
    others, _ = columns_of_nodes(there, int(ghosts.size), block, nvectors, backend)
    values, of_others = backend.empty((made.pattern.nnz, backend.scalar), (others.nnz, backend.scalar))
    backend.run(made.numeric, {Slot.RESULT: values})
    nrows, nnz = nnodes * block, made.pattern.nnz - nreceived * block * nvectors
    rowptr, colidx = made.pattern.rowptr[: nrows + 1], made.pattern.colidx[:nnz]
    own = CsrPattern(nrows, made.pattern.ncols, rowptr, colidx, row_block=block, col_block=nvectors)
    return ParallelTentative(own, others, values, of_others, made.coarse)


def tentative_rows(
    aggregates: RankAggregates, made: ParallelTentative, nghosts: int, block: int, nvectors: int, backend: Backend
) -> TentativeRows:
    """Rows of the prolongator that `parallel_tentative` has made, with room for `nghosts` rows of other ranks."""
    nrows = aggregates.nnodes * block
    size = nrows + nghosts
    numbers, values = backend.empty((size, backend.index), (size * nvectors, backend.scalar))
    if not nrows:
        return TentativeRows(numbers, values, [])
    function = backend.function("coarsening/parallel_prolongator", "parallel_rows", (BLOCK_THREADS,))
    sizes = np.int64(nrows), *map(backend.index.type, (block, nvectors))
    parts = made.own.rowptr, made.values, made.others.rowptr, made.elsewhere
    arguments = (*sizes, aggregates.struct(), aggregates.numbers, *parts, numbers, values)
    return TentativeRows(numbers, values, [launch_1d(function, nrows, BLOCK_THREADS, arguments)])


@compiled_ahead("coarsening/parallel_prolongator")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    of_nodes = [(f"parallel_{what}", (BLOCK_THREADS,)) for what in ("split", "rows")]
    yield [("parallel_elsewhere", (NUMBERS_A_THREAD,)), *of_nodes]
