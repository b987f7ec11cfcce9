"""What kernels write into memory of other ranks, which native/halo/ has mapped here: halo exchanges, and sums."""

from __future__ import annotations

from collections.abc import Iterator

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, PeerStep, Slot, Struct

BLOCK_THREADS = 256
ITEMS = 4  # entries of a thread of peer_send
MOST_SUMS = 8  # GPUFMT_MOST_SUMS in native/gpufmt_plan.h, and in kernels/common/peers.cuh
RANKS_AT_ONCE = 8  # of peer_sums: few threads come together soon
BLOCK_ENTRIES = {PeerStep.SEND: ITEMS * BLOCK_THREADS, PeerStep.WAIT: 1, PeerStep.ADD: BLOCK_THREADS, PeerStep.SUM: 1}


def exchange_launches(backend: Backend) -> dict[PeerStep, Launch]:
    """The launch of each step, the same for all exchanges on a backend; who launches SEND and ADD sets the grid.

    SEND writes the MESSAGES, entries of X, into the memory of other ranks, and raises flags there to the number of the
    exchange. Without X it writes NaN. After WAIT, what neighbours send in it is at the ARRIVALS, or NaN is. A rank
    without neighbours waits too, which tells it of failures of others. ADD adds what has arrived to the entries of Z
    that the MESSAGES take, in the order of ranks.

    MESSAGES are PeerMessageStructs (planning/abi.py), those of a lower rank before those of a higher one. ARRIVALS is
    one PeerArrivalsStruct, and the numbers of the ranks that send. A grid has BLOCK_ENTRIES of the longest message in a
    block, times messages; that of WAIT is one block.

    SUM is an exchange of its own, of MESSAGES to all ranks: Z becomes the sum of what they have in X, each of ALPHA
    numbers, at most MOST_SUMS, or NaN.

    The number of the last exchange is in memory: WAIT and SUM count it, so launches may be recorded and run many times.
    """
    steps = {
        PeerStep.SEND: ("peer_send", (Slot.MESSAGES, Slot.ARRIVALS, Slot.X)),
        PeerStep.WAIT: ("peer_wait", (Slot.ARRIVALS,)),
        PeerStep.ADD: ("peer_add", (Slot.MESSAGES, Slot.ARRIVALS, Slot.Z)),
    }
    launches = {
        step: Launch(
            backend.function("halo/peer", kernel, (BLOCK_THREADS,)), (1, 1, 1), (BLOCK_THREADS, 1, 1), arguments
        )
        for step, (kernel, arguments) in steps.items()
    }
    function = backend.function("halo/peer", "peer_sums", (RANKS_AT_ONCE,))
    arguments = (Struct(Slot.MESSAGES, Slot.ARRIVALS), Slot.X, Slot.Z, Slot.ALPHA)
    return {**launches, PeerStep.SUM: Launch(function, (1, 1, 1), (MOST_SUMS * RANKS_AT_ONCE, 1, 1), arguments)}


@compiled_ahead("halo/peer")
def default_kernels() -> Iterator[list[Instance]]:
    """All of the file: a product, direct or transposed, needs three of them."""
    exchange: list[Instance] = [(kernel, (BLOCK_THREADS,)) for kernel in ("peer_send", "peer_wait", "peer_add")]
    yield [*exchange, ("peer_sums", (RANKS_AT_ONCE,))]
