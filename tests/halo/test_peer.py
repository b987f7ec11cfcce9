"""Exchanges through memory of other ranks, with all ranks in one process: what arrives, and what fails."""

from threading import Thread

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from builders import scalars
from places import SCALAR, make_backend
from summands import LIMIT, WORD, Summand, words_of

from petsc_gpufmt.backends.plan import PeerStep, Slot, address, ceil_div
from petsc_gpufmt.halo.peer import BLOCK_ENTRIES, BLOCK_THREADS, ITEMS, MOST_SUMS, RANKS_AT_ONCE, exchange_launches
from petsc_gpufmt.planning import abi

PLACES = [
    pytest.param(("host", SCALAR, np.int32), id="host"),
    pytest.param(("emulation", np.float64, np.int32), id="emulation"),
    pytest.param(("emulation", np.float32, np.int64), id="emulation, single"),
    pytest.param(("emulation", np.complex128, np.int32), id="emulation, complex"),
    pytest.param(("cuda", np.float64, np.int32), marks=pytest.mark.gpu, id="cuda"),
    pytest.param(("cuda", np.float32, np.int64), marks=pytest.mark.gpu, id="cuda, single"),
    pytest.param(("cuda", np.complex128, np.int32), marks=pytest.mark.gpu, id="cuda, complex"),
]
MANY = 2 * ITEMS * BLOCK_THREADS + 7  # entries of a message in several blocks
# Entries of x that rank r sends to rank s: needed[s][r]. Rank 3 has no neighbours; rank 2 gets nothing, and sends some
# entries to several ranks.
NEEDED = [
    [[], list(range(0, 2 * MANY, 2)), [0, 1, 7], [], []],
    [[3, 5, MANY], [], [1, 7, 9], [], []],
    [[], [], [], [], []],
    [[], [], [], [], []],
    [[], [], [1, 2 * MANY - 1], [], []],
]


class Rank:
    """What a rank has: x, ghosts and sums for even and for odd exchanges, flags that others raise.

    `exchanges` have been so far.
    """

    def __init__(self, number, needed, backend, size, exchanges=0):
        self.number, self.backend, self.nranks = number, backend, len(needed)
        self.index = np.concatenate([needed[s][number] for s in range(self.nranks)]).astype(backend.index)
        self.counts_sent = [len(needed[s][number]) for s in range(self.nranks)]
        self.counts = [len(needed[number][s]) for s in range(self.nranks)]
        self.neighbours = [s for s in range(self.nranks) if self.counts[s] or self.counts_sent[s]]
        self.x = scalars(np.random.default_rng(number).uniform(-1, 1, size), backend.scalar)
        self.stride, self.stride_back = sum(self.counts) + 3, self.index.size + 5
        self.ghosts, self.sums = backend.empty(
            (2 * self.stride, backend.scalar), (2 * self.stride_back, backend.scalar), zeros=2
        )
        words = np.zeros(
            self.nranks + 3, WORD
        )  # flags, a failure, that for the host, and the number of the last exchange
        words[-1] = exchanges
        self.words = backend.adopt(words)
        self.entries = backend.adopt(self.index)
        self.launches = exchange_launches(backend)

    def message(self, other, counts, index, arrays, stride, first_there):
        first, itemsize = sum(counts[: other.number]), self.backend.scalar.itemsize
        if index:
            index += first * self.backend.index.itemsize
        target, flag = address(arrays) + first_there * itemsize, address(other.words) + 8 * self.number
        return abi.PeerMessageStruct(target, stride, flag, index, first, counts[other.number], 0)

    def arrivals(self, arrays, stride, count, failures):
        word = address(self.words)
        return abi.PeerArrivalsStruct(
            *(word, 1, len(self.neighbours), self.number, LIMIT, address(arrays), stride, count, self.nranks),
            *(address(failures), *(word + 8 * (self.nranks + k) for k in range(3))),
        )

    def plan(self, ranks):
        """The tables that kernels read, for entries and for sums that go back."""
        adopt, here, others = self.backend.adopt, self.number, [ranks[s] for s in self.neighbours]
        index = address(self.entries)
        direct = [self.message(o, self.counts_sent, index, o.ghosts, o.stride, sum(o.counts[:here])) for o in others]
        back = [self.message(o, self.counts, None, o.sums, o.stride_back, sum(o.counts_sent[:here])) for o in others]
        self.messages = [adopt(words_of(m)) for m in (direct, back)]
        self.longest = [max([m.count for m in messages], default=0) for messages in (direct, back)]
        self.failures = adopt(np.array([address(r.words) + 8 * self.nranks for r in ranks], dtype=WORD))
        both = (self.ghosts, self.stride, sum(self.counts)), (self.sums, self.stride_back, self.index.size)
        numbers = np.array(self.neighbours, dtype=WORD)
        self.waited_for = [adopt(np.append(words_of([self.arrivals(*b, self.failures)]), numbers)) for b in both]

    def run(self, step, back=False, **arrays):
        sent = 0 if step is PeerStep.ADD else back
        if step is not PeerStep.WAIT:
            if not self.neighbours:
                return
            blocks = max(1, ceil_div(self.longest[sent], BLOCK_ENTRIES[step]))
            self.launches[step].grid = (blocks, len(self.neighbours), 1)
        slots = {Slot[name.upper()]: array for name, array in arrays.items()}
        tables = {Slot.MESSAGES: self.messages[sent], Slot.ARRIVALS: self.waited_for[back]}
        self.backend.run([self.launches[step]], {**slots, **tables})

    def arrived(self, what, stride, count, exchange):
        begin = exchange % 2 * stride
        return self.backend.to_host(what)[begin : begin + count]

    def told(self):
        """Failures, here and for the host, and the number of the last exchange."""
        return self.backend.to_host(self.words)[self.nranks :].tolist()


@pytest.fixture(params=PLACES)
def backend(request):
    return make_backend(request, *request.param)


def make_ranks(backend, exchanges=0):
    made = [Rank(r, NEEDED, backend, 2 * MANY, exchanges) for r in range(len(NEEDED))]
    for rank in made:
        rank.plan(made)
    return made


@pytest.fixture
def ranks(backend):
    return make_ranks(backend)


def exchange(ranks, number):
    """Entries of x to all ghosts; those of exchange k are (k + 1) x."""
    for rank in ranks:
        rank.run(PeerStep.SEND, x=rank.backend.adopt(rank.x * (number + 1)))
    for rank in ranks:
        rank.run(PeerStep.WAIT)


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
            assert rank.told() == [0, 0, number]


def test_an_exchange_leaves_what_the_one_before_has_brought(ranks):
    exchange(ranks, 1)
    exchange(ranks, 2)
    for rank in ranks:
        found = rank.arrived(rank.ghosts, rank.stride, sum(rank.counts), 1)
        assert found.tobytes() == (expected_ghosts(ranks, rank) * 2).astype(found.dtype).tobytes()


def test_a_rank_without_entries_sends_what_is_not_a_number(ranks):
    exchange(ranks, 1)
    for rank in ranks:
        rank.run(PeerStep.SEND, x=rank.backend.adopt(rank.x) if rank.number else None)
    for rank in ranks:
        rank.run(PeerStep.WAIT)
        found, counts = rank.arrived(rank.ghosts, rank.stride, sum(rank.counts), 2), rank.counts[0]
        assert np.isnan(found[:counts]).all() and not np.isnan(found[counts:]).any()
        assert rank.told() == [0, 0, 2]


def test_sums_go_back_and_are_added_in_the_order_of_ranks(backend):
    ranks = make_ranks(backend, exchanges=3)
    sums = [scalars(np.random.default_rng(50 + r.number).uniform(-1, 1, sum(r.counts)), r.x.dtype) for r in ranks]
    for number in (4, 5):
        for rank in ranks:
            rank.run(PeerStep.SEND, back=True, x=rank.backend.adopt(sums[rank.number]))
        for rank in ranks:
            result = rank.backend.adopt(rank.x.copy())
            rank.run(PeerStep.WAIT, back=True)
            rank.run(PeerStep.ADD, back=True, z=result)
            assert rank.told() == [0, 0, number]
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
            rank.run(PeerStep.SEND, x=rank.backend.adopt(rank.x))
    waits = ranks[0]
    waits.run(PeerStep.WAIT)

    failure = 1 << 32 | 2  # rank 0 has waited for rank 1
    assert waits.told() == [failure, failure, 2]
    assert np.isnan(waits.arrived(waits.ghosts, waits.stride, sum(waits.counts), 2)).all()
    assert not np.isnan(waits.arrived(waits.ghosts, waits.stride, sum(waits.counts), 1)).any()
    assert [rank.told() for rank in ranks[1:]] == [[failure, 0, 1]] * (len(ranks) - 1)
    late.run(PeerStep.SEND, x=late.backend.adopt(late.x))
    for rank in ranks[1:]:  # they have what they wait for, or no neighbours, and hear of it
        rank.run(PeerStep.WAIT)
        assert rank.told() == [failure, failure, 2]


def test_an_answer_has_the_launches_of_all_steps():
    """Of a rank that is its own neighbour."""
    before, count = settled_tokens(), 3
    x, ghosts, words = np.array([1, 2, 3, 4], SCALAR), np.zeros(2 * count, SCALAR), np.zeros(4, WORD)
    place = requested_place()
    index = np.array([0, 2, 3], np.dtype(f"i{place.index_bytes}"))
    flag, failure, report, number = (words[k:].ctypes.data for k in range(4))
    failures = np.array([failure], WORD)
    message = abi.PeerMessageStruct(ghosts.ctypes.data, count, flag, index.ctypes.data, 0, count, 0)
    back = abi.PeerMessageStruct(ghosts.ctypes.data, count, flag, None, 0, count, 0)
    arrivals = abi.PeerArrivalsStruct(
        *(flag, 8, 1, 0, LIMIT, ghosts.ctypes.data, count, count, 1, failures.ctypes.data, failure, report, number)
    )
    waited_for = np.append(words_of([arrivals]), np.zeros(1, WORD))
    with Answer(abi.Ask.PEER, abi.PeerRequestStruct(place), abi.PeerAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        assert list(a.answer.block_entries) == [BLOCK_ENTRIES[step] for step in PeerStep]

        def launch(step, message=message, **vectors):
            slots = {Slot[name.upper()]: vector for name, vector in vectors.items()}
            tables = {Slot.MESSAGES: words_of([message]), Slot.ARRIVALS: waited_for}
            a.launch(a.answer.steps[step], {**slots, **tables})

        launch(PeerStep.SEND, x=x)
        launch(PeerStep.WAIT)
        assert ghosts.tolist() == [0, 0, 0, 1, 3, 4] and words.tolist() == [1, 0, 0, 1]
        launch(PeerStep.SEND, back, x=x)
        launch(PeerStep.WAIT)
        launch(PeerStep.ADD, z=x)
        assert x.tolist() == [2, 2, 5, 7]
    assert settled_tokens() == before


def in_order_of_ranks(parts):
    """Their sum over the first axis."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


@pytest.mark.parametrize("nranks", [1, 3, RANKS_AT_ONCE + 3])
def test_a_rank_sums_what_all_have_sent_and_sends_its_own(backend, nranks):
    """The others have sent for two sums: no rank waits here."""
    parts = np.random.default_rng(nranks).uniform(-1, 1, (2, nranks, MOST_SUMS)).astype(backend.scalar)
    here = nranks // 2
    sent, flags = parts.copy(), np.full(nranks, 2)
    sent[:, here], flags[here] = np.nan, 0
    ranks = [Summand(r, nranks, backend) for r in range(nranks)]
    ranks[here] = rank = Summand(here, nranks, backend, sent, flags)
    rank.plan(ranks)
    for exchange, n in ((1, 5), (2, MOST_SUMS)):
        found = rank.sum(parts[exchange % 2, here, :n])
        assert found.tobytes() == in_order_of_ranks(parts[exchange % 2])[:n].tobytes()
        assert rank.told() == [0, 0, exchange]
        for other in ranks:
            arrived = backend.to_host(other.arrived).reshape(2, nranks, MOST_SUMS)[exchange % 2, here]
            assert arrived[:n].tobytes() == parts[exchange % 2, here, :n].tobytes() and np.isnan(arrived[n:]).all()
            assert backend.to_host(other.words)[here] == exchange
    for other in ranks[:here] + ranks[here + 1 :]:
        assert np.isnan(np.delete(backend.to_host(other.arrived).reshape(2, nranks, MOST_SUMS), here, axis=1)).all()
        assert other.told() == [0, 0, 0]


def test_numbers_that_do_not_come_are_a_failure_of_all_ranks(backend):
    parts = np.ones((2, 3, MOST_SUMS), backend.scalar)
    ranks = [Summand(0, 3, backend, parts, [0, 1, 0]), *(Summand(r, 3, backend) for r in (1, 2))]
    ranks[0].plan(ranks)
    for exchange in (1, 2):
        assert np.isnan(ranks[0].sum(parts[0, 0])).all()
        failure = 1 << 32 | 3  # rank 0 has waited for rank 2
        assert ranks[0].told() == [failure, failure, exchange]
        assert [rank.told() for rank in ranks[1:]] == [[failure, 0, 0]] * 2
    ranks[2].plan(ranks)
    assert np.isnan(ranks[2].sum(parts[0, 0])).all()  # it has heard of that
    assert ranks[2].told() == [failure, failure, 1]


def test_ranks_that_run_at_once_have_the_same_sums_in_the_order_of_ranks():
    backend, nranks, count = make_backend(None, "host"), 4, 300
    rng = np.random.default_rng(3)
    parts, sizes = rng.uniform(-1, 1, (count, nranks, MOST_SUMS)).astype(SCALAR), rng.integers(1, MOST_SUMS + 1, count)
    ranks, found = [Summand(r, nranks, backend) for r in range(nranks)], [[] for _ in range(nranks)]
    for rank in ranks:
        rank.plan(ranks, limit=10**11)

    def run(rank):
        found[rank.number] += [rank.sum(parts[k, rank.number, : sizes[k]]).tobytes() for k in range(count)]

    threads = [Thread(target=run, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    expected = [in_order_of_ranks(parts[k])[: sizes[k]].tobytes() for k in range(count)]
    assert found == [expected] * nranks
