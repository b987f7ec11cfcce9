"""Halo exchanges in which kernels write into memory of other ranks, which native/halo/ has mapped here."""

from __future__ import annotations

from collections.abc import Iterator

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, PeerStep, Slot

BLOCK_THREADS = 256
ITEMS = 4  # entries of a thread of peer_send
BLOCK_ENTRIES = {PeerStep.SEND: ITEMS * BLOCK_THREADS, PeerStep.WAIT: 1, PeerStep.ADD: BLOCK_THREADS}


def exchange_launches(backend: Backend) -> dict[PeerStep, Launch]:
    """The launch of each step, the same for all exchanges on a backend; the grid is for who launches it.

    SEND writes the MESSAGES, entries of X, into the memory of other ranks, and raises flags there to the number ALPHA.
    Without X it writes NaN.
    After WAIT, what neighbours send in exchange ALPHA is at the ARRIVALS, or NaN is. A rank without neighbours waits
    too, which tells it of failures of others. ADD adds what has arrived to the entries of Z that the MESSAGES take, in
    the order of ranks.

    MESSAGES are PeerMessageStructs (planning/abi.py), those of a lower rank before those of a higher one. ARRIVALS is
    one PeerArrivalsStruct, and the numbers of the ranks that send. A grid has BLOCK_ENTRIES of the longest message in a
    block, times messages; that of WAIT is one block.
    """
    steps = {
        PeerStep.SEND: ("peer_send", (Slot.MESSAGES, Slot.X, Slot.ALPHA)),
        PeerStep.WAIT: ("peer_wait", (Slot.ARRIVALS, Slot.ALPHA)),
        PeerStep.ADD: ("peer_add", (Slot.MESSAGES, Slot.ARRIVALS, Slot.Z, Slot.ALPHA)),
    }
    return {
        step: Launch(
            backend.function("halo/peer", kernel, (BLOCK_THREADS,)), (1, 1, 1), (BLOCK_THREADS, 1, 1), arguments
        )
        for step, (kernel, arguments) in steps.items()
    }


@compiled_ahead("halo/peer")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file: a product, direct or transposed, needs three of them."""
    yield [(kernel, (BLOCK_THREADS,)) for kernel in ("peer_send", "peer_wait", "peer_add")]
