"""Ranks that sum numbers through memory of each other, several of them in one process."""

import numpy as np

from petsc_gpufmt.backends.plan import PeerStep, Slot, address
from petsc_gpufmt.halo.peer import MOST_SUMS, exchange_launches
from petsc_gpufmt.planning import abi

WORD = np.dtype(np.int64)
LIMIT = 1_000_000  # ticks, or nanoseconds


def words_of(structures):
    """Structures of a table, one after the other."""
    return np.frombuffer(b"".join(bytes(structure) for structure in structures), dtype=WORD)


class Summand:
    """What a rank has for sums: what arrives of all ranks for even and for odd exchanges, and flags.

    `sent` are numbers of other ranks that have come for both, shape (2, nranks, MOST_SUMS), by ranks that are ahead:
    `flags` are theirs. `memory` makes an array of what other ranks write to, of one from NumPy.
    """

    def __init__(self, number, nranks, backend, sent=None, flags=None, memory=None):
        self.number, self.nranks, self.backend = number, nranks, backend
        self.stride = nranks * MOST_SUMS
        words = np.zeros(nranks + 3, WORD)  # flags, a failure, that for the host, and the number of the last sum
        words[:nranks] = 0 if flags is None else flags
        arrived = np.full(2 * self.stride, np.nan) if sent is None else sent.ravel()
        self.words, self.arrived = map(memory or backend.adopt, (words, arrived.astype(backend.scalar)))

    def plan(self, ranks, limit=LIMIT):
        itemsize, here, word = self.backend.scalar.itemsize, self.number, address(self.words)
        messages = [
            abi.PeerMessageStruct(
                *(address(r.arrived) + here * MOST_SUMS * itemsize, r.stride, address(r.words) + 8 * here),
                *(None, 0, MOST_SUMS, 0),
            )
            for r in ranks
        ]
        self.failures = self.backend.adopt(np.array([address(r.words) + 8 * self.nranks for r in ranks], dtype=WORD))
        arrivals = abi.PeerArrivalsStruct(
            *(word, 1, self.nranks, here, limit, address(self.arrived), self.stride, self.stride, self.nranks),
            *(address(self.failures), *(word + 8 * (self.nranks + k) for k in range(3))),
        )
        waited_for = np.append(words_of([arrivals]), np.arange(self.nranks, dtype=WORD))
        self.slots = {Slot.MESSAGES: words_of(messages), Slot.ARRIVALS: waited_for}
        self.slots = {slot: self.backend.adopt(table) for slot, table in self.slots.items()}
        self.launch = exchange_launches(self.backend)[PeerStep.SUM]

    def sum(self, parts):
        """What becomes of the parts of this rank, in place."""
        array = self.backend.adopt(parts.copy())
        self.backend.run([self.launch], {**self.slots, Slot.X: array, Slot.Z: array, Slot.ALPHA: np.int64(parts.size)})
        return self.backend.to_host(array)

    def told(self):
        """Failures, here and for the host, and the number of the last sum."""
        return self.backend.to_host(self.words)[self.nranks :].tolist()


def two_ranks(backend, sent, flags=2):
    """Ranks 0 and 1. The first one is ahead: it has sent `sent`, for sums 1 and 2, of which only `flags` are there."""
    numbers = np.full((2, 2, MOST_SUMS), np.nan)
    for exchange, of_sum in enumerate(sent, 1):
        numbers[exchange % 2, 0, : len(of_sum)] = of_sum
    ranks = Summand(0, 2, backend), Summand(1, 2, backend, numbers, [flags, 0])
    for rank in ranks:
        rank.plan(ranks)
    return ranks
