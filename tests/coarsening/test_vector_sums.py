"""Sums over vectors for estimates of eigenvalues, against NumPy."""

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from places import PLACES_AND_TYPES, SCALAR, make_backend

from petsc_gpufmt.backends.plan import Slot, address
from petsc_gpufmt.coarsening import vector_sums as module
from petsc_gpufmt.coarsening.vector_sums import BATCH, BLOCK_THREADS, MOST, vector_sums
from petsc_gpufmt.planning import abi, multigrid_abi
from petsc_gpufmt.planning.given import host_view

pytestmark = pytest.mark.real

FEW_PARTS = 40  # that are more than a warp adds up at once
MANY_ROWS = FEW_PARTS * BLOCK_THREADS + 77


@pytest.fixture(autouse=True)
def few_parts(monkeypatch):
    monkeypatch.setattr(module, "PARTS", FEW_PARTS)


def dots(backend, x, others):
    """What the launches make of x and the others, whose addresses are put where the library writes them."""
    made, others = vector_sums(backend), [backend.adopt(v) for v in others]
    words = backend.adopt(np.array([len(others), *map(address, others)], dtype=np.int64))
    for launch in made.dots:
        launch.arguments = tuple(words if a is made.vectors else a for a in launch.arguments)
    backend.run(made.dots, {Slot.ALPHA: np.int64(x.size), Slot.X: backend.adopt(x)})
    return backend.to_host(made.sums)[: len(others)]


@pytest.mark.parametrize(("nrows", "count"), [(0, 2), (1, 1), (300, BATCH + 1), (MANY_ROWS, BATCH), (40, MOST)])
@pytest.mark.parametrize("place", PLACES_AND_TYPES)
def test_dots_are_those_of_numpy(request, place, nrows, count):
    backend = make_backend(request, *place)
    x, *others = np.random.default_rng(nrows).standard_normal((1 + count, nrows)).astype(backend.scalar)
    found, expected = dots(backend, x, others), [x.astype(float) @ v.astype(float) for v in others]
    assert np.allclose(found, expected, rtol=0, atol=np.finfo(backend.scalar).eps * (10 + nrows))
    assert found.tobytes() == dots(backend, x, others).tobytes()


@pytest.mark.parametrize(
    ("changed", "count"), [({}, 0), ({7: 0.0, MANY_ROWS - 1: -2.0}, 2), ({0: np.nan}, 1), ({3: -0.0, 5: np.inf}, 1)]
)
@pytest.mark.parametrize("place", PLACES_AND_TYPES)
def test_entries_that_are_not_positive_are_counted(request, place, changed, count):
    backend = make_backend(request, *place)
    x = np.full(MANY_ROWS, 1e-30, dtype=backend.scalar)
    x[list(changed)] = list(changed.values())
    made = vector_sums(backend)
    backend.run(made.not_positive, {Slot.ALPHA: np.int64(x.size), Slot.X: backend.adopt(x)})
    assert backend.to_host(made.sums)[0] == count


def test_an_answer_has_both_plans():
    before, request = settled_tokens(), multigrid_abi.VectorSumsRequestStruct(requested_place())
    x, other = np.arange(6, dtype=SCALAR), np.full(6, 2.0, dtype=SCALAR)
    with Answer(abi.Ask.VECTOR_SUMS, request, multigrid_abi.VectorSumsAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        words, sums = host_view(a.answer.vectors, 2, np.dtype(np.int64)), host_view(a.answer.sums, 1, SCALAR)
        words[:] = 1, address(other)
        a.launch(a.answer.dots, {Slot.ALPHA: np.int64(6), Slot.X: x})
        assert sums[0] == 30.0
        a.launch(a.answer.not_positive, {Slot.ALPHA: np.int64(6), Slot.X: x})
        assert sums[0] == 1.0
    assert settled_tokens() == before
