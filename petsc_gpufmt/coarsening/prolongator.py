"""Tentative prolongators: what a near-null space has in each aggregate, made orthonormal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Launch, Slot, Struct, launch_1d
from petsc_gpufmt.errors import IndexOverflowError, PatternError, UnsupportedError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles
from petsc_gpufmt.patterns.transpose import transposed

BLOCK_THREADS = 256
NUMBERS_A_THREAD = 4  # of the prefix sum
TURNS = 3  # in which nodes of an aggregate come
SHORT_TEAM = 8  # threads that factor an aggregate of one column; of more columns, a warp
FOUND = ("nmembers", "outside")  # of `Control` in kernels/coarsening/prolongator.cu, without the ticket


class Tentative(NamedTuple):
    """A tentative prolongator.

    Attributes
    ----------
    pattern : CsrPattern
    numeric : launches that write its values to RESULT
    coarse : (nvectors * ncols,) array of real numbers
        The near-null space of the coarse problem, column by column: R of each aggregate.
    """

    pattern: CsrPattern
    numeric: list[Launch]
    coarse: Any


def tentative(
    aggregates: Any, naggregates: int, block: int, near_null: Any, nvectors: int, backend: Backend, turns: Any = None
) -> Tentative:
    """The prolongator whose columns are an orthonormal basis of the near-null space in each aggregate.

    Its columns are Q, and the coarse near-null space R, of a QR factorization for each aggregate, with LAPACK's signs,
    which depend on the order of its rows. An aggregate with fewer rows than vectors has columns of zeros. Waits for the
    device.

    Parameters
    ----------
    aggregates : (nnodes,) array of the backend's index type, the aggregate of each node, -1: none
    naggregates : how many there are
    block : rows of a node
    near_null : (nvectors * nnodes * block,) array of real numbers, vector by vector; None: the constant vector, if
        `block` and `nvectors` are 1
    nvectors : columns of an aggregate
    turns : (nnodes,) array of 0, 1 and 2, or None
        The nodes of an aggregate are in the order of these numbers, and in theirs; None: in theirs.

    Raises UnsupportedError if sizes are below 1, or there are no vectors for blocks; PatternError if an aggregate is
    not one of `naggregates`; IndexOverflowError if the index type does not count the entries.
    """
    if block < 1 or nvectors < 1 or (near_null is None and block * nvectors > 1):
        given = "no vectors" if near_null is None else "vectors"
        raise UnsupportedError(
            f"a prolongator of {nvectors} columns for nodes of {block} rows from {given}: sizes are at least 1, "
            "and without vectors both are 1"
        )
    (coarse,) = backend.empty((nvectors * nvectors * naggregates, backend.real))
    pattern, nodes = columns_of_nodes(aggregates, naggregates, block, nvectors, backend)  # waits for the device
    if not naggregates:
        return Tentative(pattern, [], coarse)
    if near_null is None:
        return Tentative(pattern, _constant(pattern, coarse, backend), coarse)
    by_aggregates = transposed(nodes if turns is None else _in_turns(aggregates, nodes, turns, backend), backend)
    numeric = _orthogonalize(pattern, by_aggregates, naggregates, near_null, coarse, backend)
    (values,) = backend.empty((pattern.nnz, backend.scalar))
    backend.run(numeric, {Slot.RESULT: values})  # the coarse near-null space is known before values are asked for
    return Tentative(pattern, numeric, coarse)


def columns_of_nodes(
    aggregates: Any, naggregates: int, block: int, nvectors: int, backend: Backend
) -> tuple[CsrPattern, CsrPattern]:
    """The pattern in which each row has the columns of its node's aggregate, and that of nodes and aggregates.

    Parameters as of `tentative`. Waits for the device. Raises PatternError if an aggregate is not one of `naggregates`,
    IndexOverflowError if the index type does not count the entries.
    """
    index, nnodes = backend.index, int(aggregates.size)
    nrows, ncols = nnodes * block, naggregates * nvectors
    begins, nmembers = count_members(aggregates, naggregates, backend)  # waits for the device
    nnz = nmembers * block * nvectors
    check_entries(nnz, backend)
    members = _members(aggregates, begins, nmembers, backend)
    nodes = CsrPattern(nnodes, naggregates, begins, members)
    if block == nvectors == 1:
        return nodes, nodes
    rowptr, colidx = backend.empty((nrows + 1, index), (nnz, index), zeros=int(not nrows))
    expand = (*map(index.type, (nrows, block, nvectors)), begins, members, rowptr, colidx)
    if nrows:
        backend.run([_launch("prolongator_expand", nrows, (), expand, backend)])
    return CsrPattern(nrows, ncols, rowptr, colidx, row_block=block, col_block=nvectors), nodes


def count_members(aggregates: Any, naggregates: int, backend: Backend) -> tuple[Any, int]:
    """How many nodes before each of (nnodes + 1,) belong to an aggregate, and how many do. Waits for the device.

    Raises PatternError if an aggregate is not one of `naggregates`.
    """
    nnodes = aggregates.size
    if not nnodes:
        return backend.empty((1, backend.index), zeros=1)[0], 0
    (begins,) = backend.empty((nnodes + 1, backend.index))
    (control,) = backend.empty((len(FOUND) + 1 + tiles(nnodes, NUMBERS_A_THREAD), COUNT), zeros=1)
    count = backend.function("coarsening/prolongator", "prolongator_count", (NUMBERS_A_THREAD,))
    arguments = (np.int64(nnodes), backend.index.type(naggregates), aggregates, begins, control)
    backend.run([launch_1d(count, tiles(nnodes, NUMBERS_A_THREAD) * SCAN_THREADS, SCAN_THREADS, arguments)])
    nmembers, outside = backend.first(control, len(FOUND))  # waits for the device
    if outside:
        raise PatternError(f"nodes belong to aggregates that are not among the {naggregates} that there are")
    return begins, nmembers


def check_entries(nnz: int, backend: Backend) -> None:
    """Raise IndexOverflowError if the index type does not count so many entries of a prolongator."""
    if nnz > backend.largest_index:
        raise IndexOverflowError(
            f"a prolongator has {nnz} entries, a PetscInt of {8 * backend.index.itemsize} bits counts "
            f"{backend.largest_index}: use more ranks, or a PETSc configured with --with-64-bit-indices"
        )


def _members(aggregates: Any, begins: Any, nmembers: int, backend: Backend) -> Any:
    """The aggregates of the nodes that belong to one."""
    (members,) = backend.empty((nmembers, backend.index))
    if nmembers:
        fill = (backend.index.type(aggregates.size), aggregates, begins, members)
        backend.run([_launch("prolongator_members", aggregates.size, (), fill, backend)])
    return members


def _constant(pattern: CsrPattern, coarse: Any, backend: Backend) -> list[Launch]:
    """Launches for the values from the constant vector, whose norms are found now."""
    index, naggregates = backend.index, pattern.ncols
    (sizes,) = backend.empty((naggregates, COUNT), zeros=1)
    nnz = index.type(pattern.nnz)
    if not nnz:
        return []
    backend.run(
        [
            _launch("prolongator_sizes", pattern.nnz, (), (nnz, pattern.colidx, sizes), backend),
            _launch("prolongator_norms", naggregates, (), (index.type(naggregates), sizes, coarse), backend),
        ]
    )
    arguments = (nnz, pattern.colidx, coarse, Slot.RESULT)
    return [_launch("prolongator_constant", pattern.nnz, (), arguments, backend)]


def _in_turns(aggregates: Any, nodes: CsrPattern, turns: Any, backend: Backend) -> CsrPattern:
    """The pattern of `nodes` with TURNS columns for each aggregate, of which each node has that of its turn."""
    (keys,) = backend.empty((nodes.nnz, backend.index))
    if nodes.nnz:
        arguments = (backend.index.type(nodes.nrows), aggregates, turns, nodes.rowptr, keys)
        backend.run([_launch("prolongator_keys", nodes.nrows, (), arguments, backend)])
    return CsrPattern(nodes.nrows, TURNS * nodes.ncols, nodes.rowptr, keys)


def _orthogonalize(
    pattern: CsrPattern, by_aggregates: CsrPattern, naggregates: int, near_null: Any, coarse: Any, backend: Backend
) -> list[Launch]:
    """Launches for the values and the coarse near-null space from vectors.

    `by_aggregates` has the nodes of each aggregate, in as many rows as these have turns.
    """
    sizes = (naggregates, by_aggregates.nrows // naggregates, pattern.row_block, pattern.col_block, pattern.nrows)
    arrays = (by_aggregates.rowptr, by_aggregates.colidx, pattern.rowptr, near_null)
    team = SHORT_TEAM if pattern.col_block == 1 else WARP
    arguments = (Struct(*map(backend.index.type, sizes), *arrays), Slot.RESULT, coarse)
    return [_launch("prolongator_orthogonalize", naggregates * team, (team,), arguments, backend)]


def _launch(kernel: str, nthreads: int, template: tuple[int, ...], arguments: tuple, backend: Backend) -> Launch:
    function = backend.function("coarsening/prolongator", kernel, (BLOCK_THREADS, *template))
    return launch_1d(function, nthreads, BLOCK_THREADS, arguments)


@compiled_ahead("coarsening/prolongator")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file: those of scalar problems, and those of near-null spaces."""
    scalar = [(f"prolongator_{what}", (BLOCK_THREADS,)) for what in ("members", "sizes", "norms", "constant")]
    yield [("prolongator_count", (NUMBERS_A_THREAD,)), *scalar]
    teams = [("prolongator_orthogonalize", (BLOCK_THREADS, team)) for team in (SHORT_TEAM, WARP)]
    yield [("prolongator_expand", (BLOCK_THREADS,)), ("prolongator_keys", (BLOCK_THREADS,)), *teams]
