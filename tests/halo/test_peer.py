"""Halo exchanges through memory of other ranks, with all ranks in one process: what arrives, and what fails."""

import ctypes

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from places import SCALAR, make_backend

from petsc_gpufmt.backends.plan import PeerStep, Slot, address
from petsc_gpufmt.halo.peer import BLOCK_THREADS, ITEMS, Arrival, Neighbours, plan_exchange
from petsc_gpufmt.planning import abi

PLACES = [
    pytest.param(("host", SCALAR, np.int32), id="host"),
    pytest.param(("emulation", np.float64, np.int32), id="emulation"),
    pytest.param(("emulation", np.float32, np.int64), id="emulation, single"),
    pytest.param(("cuda", np.float64, np.int32), marks=pytest.mark.gpu, id="cuda"),
    pytest.param(("cuda", np.float32, np.int64), marks=pytest.mark.gpu, id="cuda, single"),
]
WORD = np.dtype(np.int64)
LIMIT = 1_000_000  # ticks, or nanoseconds
MANY = 2 * ITEMS * BLOCK_THREADS + 7  # entries of a message in several blocks
# entries of x that rank r sends to rank s: needed[s][r]; rank 3 has no neighbours, rank 2 gets nothing
NEEDED = [
    [[], list(range(0, 2 * MANY, 2)), [1, 0], []],
    [[5, 3, 5, MANY], [], [7], []],
    [[], [], [], []],
    [[], [], [], []],
]


class Rank:
    """What a rank has: x, ghosts and sums for even and for odd exchanges, flags that others raise."""

    def __init__(self, number, needed, backend, size):
        self.number, self.backend, self.nranks = number, backend, len(needed)
        self.index = np.concatenate([needed[s][number] for s in range(self.nranks)]).astype(backend.index)
        self.counts_sent = [len(needed[s][number]) for s in range(self.nranks)]
        self.counts = [len(needed[number][s]) for s in range(self.nranks)]
        self.neighbours = [s for s in range(self.nranks) if self.counts[s] or self.counts_sent[s]]
        self.x = np.random.default_rng(number).uniform(-1, 1, size).astype(backend.scalar)
        self.stride, self.stride_back = sum(self.counts) + 3, self.index.size + 5
        self.ghosts, self.sums = backend.empty(
            (2 * self.stride, backend.scalar), (2 * self.stride_back, backend.scalar), zeros=2
        )
        (self.words,) = backend.empty((self.nranks + 2, WORD), zeros=1)  # flags, a failure, and that for the host

    def plan(self, ranks):
        word = address(self.words)

        def message(other, first, count, arrays, stride, first_there):
            target = address(arrays) + first_there * self.backend.scalar.itemsize
            return target, stride, address(other.words) + 8 * self.number, first, count

        here, others = self.number, [ranks[s] for s in self.neighbours]
        messages = [
            message(
                o,
                sum(self.counts_sent[: o.number]),
                self.counts_sent[o.number],
                o.ghosts,
                o.stride,
                sum(o.counts[:here]),
            )
            for o in others
        ]
        back = [
            message(
                o, sum(self.counts[: o.number]), self.counts[o.number], o.sums, o.stride_back, sum(o.counts_sent[:here])
            )
            for o in others
        ]
        failures = [address(r.words) + 8 * self.nranks for r in ranks]
        neighbours = Neighbours(
            np.array([word + 8 * s for s in self.neighbours], dtype=WORD),
            np.array(self.neighbours, dtype=WORD),
            *(here, np.array(failures, dtype=WORD), word + 8 * (self.nranks + 1), LIMIT),
        )
        arrivals = [
            Arrival(address(self.ghosts), self.stride, sum(self.counts)),
            Arrival(address(self.sums), self.stride_back, self.index.size),
        ]
        tables = [np.array(m, dtype=WORD).reshape(-1, 5) for m in (messages, back)]
        self.steps = plan_exchange(tables, self.index, arrivals, neighbours, self.backend)

    def run(self, step, exchange, **arrays):
        slots = {Slot[name.upper()]: array for name, array in arrays.items()}
        self.backend.run(self.steps[step], {**slots, Slot.ALPHA: np.int64(exchange)})

    def arrived(self, what, stride, count, exchange):
        begin = exchange % 2 * stride
        return self.backend.to_host(what)[begin : begin + count]

    def told(self):
        return self.backend.to_host(self.words)[self.nranks :].tolist()


@pytest.fixture(params=PLACES)
def ranks(request):
    name, scalar, index = request.param
    backend = make_backend(request, name, scalar, index)
    made = [Rank(r, NEEDED, backend, 2 * MANY) for r in range(len(NEEDED))]
    for rank in made:
        rank.plan(made)
    return made


def exchange(ranks, number):
    """Entries of x to all ghosts; those of exchange k are (k + 1) x."""
    for rank in ranks:
        rank.run(PeerStep.SEND, number, x=rank.backend.adopt(rank.x * (number + 1)))
    for rank in ranks:
        rank.run(PeerStep.WAIT, number)


def expected_ghosts(ranks, rank):
    entries = [ranks[s].x[NEEDED[rank.number][s]] for s in range(len(ranks))]
    return np.concatenate(entries) if sum(rank.counts) else rank.x[:0]


def test_entries_come_to_the_ghosts_of_those_who_need_them(ranks):
    for number in (1, 2, 3):
        exchange(ranks, number)
        for rank in ranks:
            found = rank.arrived(rank.ghosts, rank.stride, sum(rank.counts), number)
            assert found.tobytes() == (expected_ghosts(ranks, rank) * (number + 1)).astype(found.dtype).tobytes()
            flags = rank.backend.to_host(rank.words)[: len(ranks)]
            assert [r for r, flag in enumerate(flags) if flag == number] == rank.neighbours
            assert rank.told() == [0, 0]


def test_an_exchange_leaves_what_the_one_before_has_brought(ranks):
    exchange(ranks, 1)
    exchange(ranks, 2)
    for rank in ranks:
        found = rank.arrived(rank.ghosts, rank.stride, sum(rank.counts), 1)
        assert found.tobytes() == (expected_ghosts(ranks, rank) * 2).astype(found.dtype).tobytes()


def test_sums_go_back_and_are_added_in_the_order_of_ranks(ranks):
    sums = [np.random.default_rng(50 + r.number).uniform(-1, 1, sum(r.counts)).astype(r.x.dtype) for r in ranks]
    for number in (4, 5):
        for rank in ranks:
            rank.run(PeerStep.SEND_BACK, number, x=rank.backend.adopt(sums[rank.number]))
        for rank in ranks:
            result = rank.backend.adopt(rank.x.copy())
            rank.run(PeerStep.WAIT_BACK, number)
            rank.run(PeerStep.ADD, number, z=result)
            expected = rank.x.copy()
            for s in range(len(ranks)):
                begin = sum(ranks[s].counts[: rank.number])
                for k, entry in enumerate(NEEDED[s][rank.number]):
                    expected[entry] += sums[s][begin + k]
            assert rank.backend.to_host(result).tobytes() == expected.tobytes()


def test_a_flag_that_does_not_come_is_a_failure_of_all_ranks(ranks):
    exchange(ranks, 1)
    late = ranks[1]
    for rank in ranks:
        if rank is not late:
            rank.run(PeerStep.SEND, 2, x=rank.backend.adopt(rank.x))
    waits = ranks[0]
    waits.run(PeerStep.WAIT, 2)

    failure = 1 << 32 | 2  # rank 0 has waited for rank 1
    assert waits.told() == [failure, failure]
    assert np.isnan(waits.arrived(waits.ghosts, waits.stride, sum(waits.counts), 2)).all()
    assert not np.isnan(waits.arrived(waits.ghosts, waits.stride, sum(waits.counts), 1)).any()
    assert [rank.told() for rank in ranks[1:]] == [[failure, 0]] * 3
    late.run(PeerStep.SEND, 2, x=late.backend.adopt(late.x))
    for rank in ranks[1:]:  # they have what they wait for, or no neighbours, and hear of it
        rank.run(PeerStep.WAIT, 2)
        assert rank.told() == [failure, failure]


def test_an_answer_has_the_plans_of_all_steps():
    """Of a rank that is its own neighbour."""
    before, count = settled_tokens(), 3
    x, ghosts, words = np.array([1, 2, 3, 4], SCALAR), np.zeros(2 * count, SCALAR), np.zeros(3, WORD)
    request = abi.PeerRequestStruct(requested_place(), 1, count)
    message = abi.PeerMessageStruct(ghosts.ctypes.data, count, words.ctypes.data, 0, count)
    index = np.array([3, 0, 3], np.dtype(f"i{request.place.index_bytes}"))
    tables = [np.array([n], WORD) for n in (words.ctypes.data, 0, words[1:].ctypes.data)]
    request.messages[0] = request.messages[1] = ctypes.addressof(message)
    request.index, request.report = index.ctypes.data, words[2:].ctypes.data
    request.flags, request.ranks, request.failures = (table.ctypes.data for table in tables)
    request.rank, request.nranks, request.limit = 0, 1, LIMIT
    for arrival in request.arrivals:
        arrival.address, arrival.stride, arrival.count = ghosts.ctypes.data, count, count
    with Answer(abi.Ask.PEER, request, abi.PeerAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        a.launch(a.answer.steps[PeerStep.SEND], {Slot.X: x, Slot.ALPHA: np.int64(1)})
        a.launch(a.answer.steps[PeerStep.WAIT], {Slot.ALPHA: np.int64(1)})
        assert ghosts.tolist() == [0, 0, 0, 4, 1, 4] and words.tolist() == [1, 0, 0]
        a.launch(a.answer.steps[PeerStep.SEND_BACK], {Slot.X: x, Slot.ALPHA: np.int64(2)})
        a.launch(a.answer.steps[PeerStep.WAIT_BACK], {Slot.ALPHA: np.int64(2)})
        a.launch(a.answer.steps[PeerStep.ADD], {Slot.Z: x, Slot.ALPHA: np.int64(2)})
        assert x.tolist() == [3, 2, 3, 8]
    assert settled_tokens() == before
