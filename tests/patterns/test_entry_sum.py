"""Sums of entries of several arrays: on the host, as device kernel, and as the planner answers the library."""

import ctypes

import numpy as np
import pytest
from answers import Answer, failing, requested_place, settled_tokens
from emulation.backend import EmulatedBackend
from places import EVERY_PLACE, INDEX, SCALAR, make_backend

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.patterns import entry_sum
from petsc_gpufmt.planning import abi, planner

SOURCES = (Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES)
SIZES = (300, 70, 1)


@pytest.fixture(params=EVERY_PLACE)
def backend(request):
    return make_backend(request, request.param)


def sums(counts, sizes, seed=80):
    """(begins, index, values): random entries for sums of so many each."""
    random = np.random.default_rng(seed)
    begins = np.concatenate(([0], np.cumsum(counts))).astype(INDEX)
    index = random.integers(0, max(sum(sizes), 1), begins[-1]).astype(INDEX)
    return begins, index, random.uniform(-1, 1, sum(sizes)).astype(SCALAR)


def expected(begins, index, values):
    """Term after term, in their order, so to the last bit."""
    result = np.zeros(begins.size - 1, dtype=values.dtype)
    for t in range(result.size):
        terms = values[index[begins[t] : begins[t + 1]]]
        for k, term in enumerate(terms):
            result[t] = result[t] + term if k else term
    return result


def split(values, sizes):
    """The arrays that are counted through, by slot."""
    return dict(zip(SOURCES, np.split(values, np.cumsum(sizes)[:-1]), strict=True))


def run(backend, begins, index, values, sizes, start=None):
    """The sums as the plan makes them, added to what is there if `start` is given."""
    xp = backend.xp
    result = xp.full(index.size if begins is None else begins.size - 1, np.nan, dtype=backend.scalar)
    if start is not None:
        result = xp.asarray(start.copy())
    added = None if start is None else result
    on_backend = (None if begins is None else xp.asarray(begins, dtype=backend.index), xp.asarray(index, backend.index))
    arrays = {slot: xp.asarray(part, dtype=backend.scalar) for slot, part in split(values, sizes).items()}
    slots = {**arrays, Slot.Y: added, Slot.RESULT: result}
    backend.run(entry_sum.plan_entry_sum(*on_backend, sizes, backend), slots)
    return backend.to_host(result)


@pytest.mark.parametrize("ntargets", [1, 255, 1024, 2500])
def test_sums_in_their_order(backend, ntargets):
    counts = np.random.default_rng(ntargets).integers(0, 6, ntargets)
    begins, index, values = sums(counts, SIZES)
    assert run(backend, begins, index, values, SIZES).tobytes() == expected(begins, index, values).tobytes()


@pytest.mark.parametrize("sizes", [SIZES, (0, 70, 1), (300, 0, 0), (0, 0, 5)])
def test_one_entry_each(backend, sizes):
    begins, index, values = sums(np.ones(1500, dtype=int), sizes)
    assert run(backend, None, index, values, sizes).tobytes() == values[index].tobytes()
    assert run(backend, begins, index, values, sizes).tobytes() == values[index].tobytes()


@pytest.mark.parametrize("single", [True, False])
def test_sums_are_added_last_to_what_is_there(backend, single):
    counts = np.ones(1500, dtype=int) if single else np.arange(1500) % 5
    begins, index, values = sums(counts, SIZES)
    start = np.random.default_rng(81).uniform(-1, 1, counts.size).astype(SCALAR)
    result = run(backend, None if single else begins, index, values, SIZES, start)
    assert result.tobytes() == (expected(begins, index, values) + start).tobytes()


@pytest.mark.real
def test_one_long_sum_and_a_negative_zero(backend):
    begins, index, values = sums([3000, 1], SIZES)
    values[index[-1]] = -0.0
    result = run(backend, begins, index, values, SIZES)
    assert result.tobytes() == expected(begins, index, values).tobytes()
    assert np.signbit(result[1])


@pytest.mark.parametrize("added", [True, False])
def test_every_entry_by_itself(backend, added):
    values, start = (np.random.default_rng(82 + k).uniform(-1, 1, 1500).astype(backend.scalar) for k in (0, 1))
    result = backend.xp.asarray(start.copy())
    slots = {Slot.A_VALUES: backend.xp.asarray(values), Slot.B_VALUES: None, Slot.C_VALUES: None}
    plan = entry_sum.known_entry_sum(None, None, (values.size, 0, 0), backend)
    backend.run(plan, {**slots, Slot.Y: result if added else None, Slot.RESULT: result})
    assert backend.to_host(result).tobytes() == (values + start if added else values).tobytes()


def test_nothing_to_sum_takes_no_launch():
    backend, none = HostBackend(SCALAR, INDEX), np.zeros(0, dtype=INDEX)
    assert entry_sum.plan_entry_sum(None, none, (0, 0, 0), backend) == []
    assert entry_sum.plan_entry_sum(np.zeros(1, dtype=INDEX), none, (5, 0, 0), backend) == []
    assert entry_sum.known_entry_sum(None, None, (0, 0, 0), backend) == []


@pytest.mark.parametrize(
    ("begins", "index", "text"),
    [
        ([0, 2, 1, 3], [0, 1, 2], "must rise from 0 to 3"),
        ([0, 2], [0, 1, 2], "must rise from 0 to 3"),
        ([1, 3], [0, 1, 2], "must rise from 0 to 3"),
        ([0, 3], [0, 9, 2], "entries 0 to 9 of 9 are to be summed"),
        (None, [0, -1, 2], "entries -1 to 2 of 9 are to be summed"),
    ],
)
def test_sums_of_what_is_not_there_are_refused(begins, index, text):
    begins = None if begins is None else np.array(begins, dtype=INDEX)
    with pytest.raises(errors.PatternError, match=text):
        entry_sum.plan_entry_sum(begins, np.array(index, dtype=INDEX), (4, 5, 0), HostBackend(SCALAR, INDEX))


def test_kernels_alone_compute_with_arrays_of_a_device(emulation_folder):
    backend = EmulatedBackend(SCALAR, INDEX, emulation_folder, device_like=True)
    begins, index, _ = sums([1, 2, 0, 700], SIZES)
    given = backend.adopt(begins), backend.adopt(index)
    assert len(entry_sum.plan_entry_sum(*given, SIZES, backend)) == 1
    with pytest.raises(errors.PatternError, match=f"entries {index.min()} to {index.max()} of 9 are to be summed"):
        entry_sum.plan_entry_sum(*given, (4, 5, 0), backend)


class AnsweredEntrySum(Answer):
    """The plan of sums of entries."""

    def __init__(self, begins, index, sizes, **fields):
        self.arrays = begins, index
        request = abi.EntrySumRequestStruct(
            ntargets=index.size if begins is None else begins.size - 1,
            nterms=index.size,
            begins=None if begins is None else begins.ctypes.data,
            index=index.ctypes.data,
            sizes=(ctypes.c_int64 * 3)(*sizes),
            place=requested_place(),
        )
        super().__init__(abi.Ask.ENTRY_SUM, request, abi.EntrySumAnswerStruct(), fields)


@pytest.mark.parametrize("single", [False, True])
def test_the_plan_of_an_answer_sums_and_keeps_what_it_reads(single):
    before = settled_tokens()
    begins, index, values = sums(np.ones(90, dtype=int) if single else np.arange(90) % 4, SIZES)
    exact = expected(begins, index, values)
    with AnsweredEntrySum(None if single else begins, index, SIZES) as a:
        assert a.error == (0, "") and planner.owned_tokens() == before + 1
        begins[:], index[:] = -1, -1  # the library frees them
        result = np.full(exact.size, np.nan, dtype=SCALAR)
        a.launch(a.answer.sum, {**split(values, SIZES), Slot.Y: None, Slot.RESULT: result})
        assert result.tobytes() == exact.tobytes()
    assert planner.owned_tokens() == before


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    begins, index, _ = sums([1, 2], SIZES)
    with AnsweredEntrySum(begins, index, (1, 0, 0)) as a:
        assert a.token == 0 and a.error[0] == errors.PatternError.petsc_code
        assert a.error[1].startswith("2 sums of 3 entries on host: entries ") and "\n" not in a.error[1]


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, entry_sum, "plan_entry_sum", MemoryError("first try"))
    begins, index, _ = sums([1, 2], SIZES)
    with AnsweredEntrySum(begins, index, SIZES) as a:
        assert a.error == (0, "") and len(calls) == 2
