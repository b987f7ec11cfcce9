"""Halo exchanges in which kernels write into memory of other ranks, which native/halo/ has mapped here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import WORD, Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, PeerStep, Slot, Struct, ceil_div, launch_1d

BLOCK_THREADS = 256
ITEMS = 4  # entries of a thread of peer_send
MESSAGE_WORDS = 5  # Message in kernels/halo/peer.cu


class Arrival(NamedTuple):
    """Where other ranks write, in the memory of this one: addresses.

    Attributes
    ----------
    address : int
        Of (2, stride) scalars, for exchanges with even and with odd numbers, of which the first `size` arrive.
    stride, size : int
    """

    address: int
    stride: int
    size: int


class Neighbours(NamedTuple):
    """What the neighbours and this rank know of each other; addresses are those by which this rank reaches memory.

    Attributes
    ----------
    flags : (nneighbours,) int64
        Addresses of the flags that they raise, in the memory of this rank.
    ranks : (nneighbours,) int64
    rank : int
        This one.
    failures : (nranks,) int64
        Address of the word of each rank that tells it of a failure.
    report : int
        Address of that which tells the host of this one.
    limit : int
        Ticks after which a flag is given up, of the device's clock, or nanoseconds on the host; 0: none.
    """

    flags: np.ndarray
    ranks: np.ndarray
    rank: int
    failures: np.ndarray
    report: int
    limit: int


def send(messages: np.ndarray, index: Any, backend: Backend) -> list[Launch]:
    """Launches that write entries of X into the memory of other ranks, and raise the flags to the number ALPHA.

    Parameters
    ----------
    messages : (nneighbours, 5) int64
        Address in the memory of the other rank, entries from there to what is written in exchanges with odd numbers,
        address of the flag, first entry among those that are sent, their count.
    index : array of the backend's index type, or None
        Which entry of X each is that is sent; None: the one of its number.
    """
    if not len(messages):
        return []
    blocks = np.concatenate([[0], np.cumsum(np.maximum(ceil_div(messages[:, -1], ITEMS * BLOCK_THREADS), 1))])
    (tickets,) = backend.empty((len(messages), np.dtype(np.uint32)), zeros=1)
    function = backend.function("halo/peer", "peer_send", (BLOCK_THREADS,))
    tables = [backend.adopt(table.astype(WORD).ravel()) for table in (messages, blocks)]
    sender = Struct(*tables, len(messages), index, tickets)
    return [Launch(function, (int(blocks[-1]), 1, 1), (BLOCK_THREADS, 1, 1), (sender, Slot.X, Slot.ALPHA))]


def wait(neighbours: Neighbours, arrival: Arrival, backend: Backend) -> list[Launch]:
    """Launches after which what the neighbours send in exchange ALPHA is there, or NaN in its place.

    A rank without neighbours is told of failures of others by this.
    """
    nflags = len(neighbours.flags)
    tables = [backend.adopt(table) for table in (neighbours.flags, neighbours.ranks, neighbours.failures)]
    function = backend.function("halo/peer", "peer_wait", (BLOCK_THREADS,))
    receiver = Struct(
        *(tables[0], nflags, tables[1], neighbours.rank, neighbours.limit),
        *(arrival.address, arrival.stride, arrival.size),
        *(tables[2], len(neighbours.failures), neighbours.report),
    )
    return [Launch(function, (1, 1, 1), (BLOCK_THREADS, 1, 1), (receiver, Slot.ALPHA))]


def add(index: np.ndarray, arrival: Arrival, backend: Backend) -> list[Launch]:
    """Launches that add what has arrived in exchange ALPHA to Z, entry e to Z[index[e]], in the order of the entries.

    `index` is on the host.
    """
    if not index.size:
        return []
    places = np.argsort(index, kind="stable")
    rows, begins = np.unique(index[places], return_index=True)
    tables = (rows, np.append(begins, index.size), places)
    arrays = [backend.adopt(table.astype(backend.index)) for table in tables]
    function = backend.function("halo/peer", "peer_add", (BLOCK_THREADS,))
    arguments = (rows.size, *arrays, arrival.address, arrival.stride, Slot.Z, Slot.ALPHA)
    return [launch_1d(function, rows.size, BLOCK_THREADS, arguments)]


def plan_exchange(
    messages: Sequence[np.ndarray],
    index: np.ndarray,
    arrivals: Sequence[Arrival],
    neighbours: Neighbours,
    backend: Backend,
) -> dict[PeerStep, list[Launch]]:
    """The launches of each step.

    Parameters
    ----------
    messages : two (nneighbours, 5) int64
        Entries that go to ghosts of other ranks, and sums that go back to theirs, as for `send`.
    index : (nsent,) indices, on the host
        The entries that are sent.
    arrivals : of ghosts, and of sums
    """
    ghosts, sums = arrivals
    return {
        PeerStep.SEND: send(messages[0], backend.adopt(index, keep=True), backend),
        PeerStep.WAIT: wait(neighbours, ghosts, backend),
        PeerStep.SEND_BACK: send(messages[1], None, backend),
        PeerStep.WAIT_BACK: wait(neighbours, sums, backend),
        PeerStep.ADD: add(index, sums, backend),
    }


@compiled_ahead("halo/peer")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file: a product, direct or transposed, needs three of them."""
    yield [(kernel, (BLOCK_THREADS,)) for kernel in ("peer_send", "peer_wait", "peer_add")]
