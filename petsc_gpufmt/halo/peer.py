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


def together(arrays: Sequence[np.ndarray], dtype: np.dtype, backend: Backend) -> list[Any]:
    """Arrays of the host on the backend, in one piece of memory: to send them one by one takes longer."""
    all_of_them = backend.adopt(np.concatenate(arrays).astype(dtype, copy=False))
    ends = np.cumsum([array.size for array in arrays]).tolist()
    return [all_of_them[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def first_blocks(messages: np.ndarray) -> np.ndarray:
    """The first block of each message, which has one for its flag if it has no entries; and how many there are."""
    return np.concatenate([[0], np.cumsum(np.maximum(ceil_div(messages[:, -1], ITEMS * BLOCK_THREADS), 1))])


def plan_exchange(
    messages: Sequence[np.ndarray],
    index: np.ndarray,
    arrivals: Sequence[Arrival],
    neighbours: Neighbours,
    backend: Backend,
) -> dict[PeerStep, list[Launch]]:
    """The launches of each step.

    SEND writes entries of X into the memory of other ranks, and raises flags there to the number ALPHA; after WAIT,
    what neighbours send in exchange ALPHA is there, or NaN is. SEND_BACK sends X, sums for all ghosts, and after
    WAIT_BACK those of others are there. ADD adds them to Z, in the order of ranks. A rank without neighbours waits too,
    which tells it of failures of others.

    Parameters
    ----------
    messages : two (nneighbours, 5) int64
        Entries for ghosts of other ranks, and sums that go back: address in the memory of the other rank, scalars from
        there to what is written in exchanges with odd numbers, address of the flag, first entry among those that are
        sent, their count.
    index : (nsent,) indices, on the host
        The entries of X that are sent; entry e of the sums that arrive is for index[e].
    arrivals : of ghosts, and of sums
    """
    blocks = [first_blocks(m) for m in messages]
    order = np.argsort(index, kind="stable")
    rows, begins = np.unique(index[order], return_index=True)
    numbers = (index, rows, np.append(begins, index.size), order)
    entries, *terms = together(numbers, backend.index, backend)
    words = (*(m.ravel() for m in messages), *blocks, neighbours.flags, neighbours.ranks, neighbours.failures)
    sent, sent_back, first, first_back, flags, ranks, failures = together(words, WORD, backend)
    (tickets,) = backend.empty((len(neighbours.flags), np.dtype(np.uint32)), zeros=1)

    def send(sent: Any, first: Any, nblocks: int, entries: Any) -> list[Launch]:
        if not nblocks:
            return []
        function = backend.function("halo/peer", "peer_send", (BLOCK_THREADS,))
        sender = Struct(sent, first, len(neighbours.flags), entries, tickets)
        return [Launch(function, (nblocks, 1, 1), (BLOCK_THREADS, 1, 1), (sender, Slot.X, Slot.ALPHA))]

    def wait(arrival: Arrival) -> list[Launch]:
        function = backend.function("halo/peer", "peer_wait", (BLOCK_THREADS,))
        receiver = Struct(
            *(flags, flags.size, ranks, neighbours.rank, neighbours.limit),
            *(arrival.address, arrival.stride, arrival.size),
            *(failures, failures.size, neighbours.report),
        )
        return [Launch(function, (1, 1, 1), (BLOCK_THREADS, 1, 1), (receiver, Slot.ALPHA))]

    def add(arrival: Arrival) -> list[Launch]:
        if not rows.size:
            return []
        function = backend.function("halo/peer", "peer_add", (BLOCK_THREADS,))
        arguments = (rows.size, *terms, arrival.address, arrival.stride, Slot.Z, Slot.ALPHA)
        return [launch_1d(function, rows.size, BLOCK_THREADS, arguments)]

    return {
        PeerStep.SEND: send(sent, first, int(blocks[0][-1]), entries),
        PeerStep.WAIT: wait(arrivals[0]),
        PeerStep.SEND_BACK: send(sent_back, first_back, int(blocks[1][-1]), None),
        PeerStep.WAIT_BACK: wait(arrivals[1]),
        PeerStep.ADD: add(arrivals[1]),
    }


@compiled_ahead("halo/peer")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file: a product, direct or transposed, needs three of them."""
    yield [(kernel, (BLOCK_THREADS,)) for kernel in ("peer_send", "peer_wait", "peer_add")]
