"""Lengths of rows: on the host, as device kernels, and as the planner answers the library."""

import numpy as np
import pytest
from answers import Answer, requested_place
from places import EVERY_PLACE, INDEX, make_backend

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.patterns.lengths import BLOCK_THREADS, MOST_BLOCKS, lengths
from petsc_gpufmt.planning import abi
from petsc_gpufmt.planning.given import host_view

MANY = BLOCK_THREADS * MOST_BLOCKS + 77
ROWS = {
    "none": [],
    "one": [5],
    "empty": [0] * 40,
    "some": [3, 0, 0, 7, 1],
    "of several blocks": np.arange(1000) % 11,
    "the longest is the last": [1] * 300 + [900],
    "more than threads": np.arange(MANY) % 3,
}


@pytest.fixture(params=EVERY_PLACE)
def backend(request):
    return make_backend(request, request.param)


def seen(rows):
    return [max(rows, default=0), np.count_nonzero(rows)]


def row_pointer(rows):
    return np.concatenate([[0], np.cumsum(rows)]).astype(INDEX)


def test_one_plan_for_patterns_of_any_size(backend):
    made = lengths(backend)
    for name, rows in ROWS.items():
        room, present = (backend.xp.full(len(rows) + 1, -7, dtype=INDEX) for _ in range(2))
        rowptr = backend.xp.asarray(row_pointer(rows))
        slots = {Slot.ALPHA: np.int64(len(rows)), Slot.X: rowptr, Slot.Y: room, Slot.Z: present}
        backend.run(made.launches, slots)
        for found in (room, present):
            assert backend.to_host(found).tolist() == [*rows, -7], name
        assert backend.to_host(made.seen).tolist() == seen(rows), name


def test_the_plan_of_an_answer():
    rows = ROWS["of several blocks"]
    request = abi.LengthsRequestStruct(requested_place())
    with Answer(abi.Ask.LENGTHS, request, abi.LengthsAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        room, present, rowptr = np.empty(rows.size, INDEX), np.empty(rows.size, INDEX), row_pointer(rows)
        a.launch(a.answer.lengths, {Slot.ALPHA: np.int64(rows.size), Slot.X: rowptr, Slot.Y: room, Slot.Z: present})
        np.testing.assert_array_equal(room, rows)
        np.testing.assert_array_equal(present, rows)
        assert host_view(a.answer.seen, 2, INDEX).tolist() == seen(rows)
