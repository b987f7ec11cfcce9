"""Reciprocals of a diagonal, and products by them, against NumPy."""

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from krylov_steps import MANY_ROWS
from places import SCALAR

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.krylov.jacobi import jacobi
from petsc_gpufmt.planning import abi, krylov_abi
from petsc_gpufmt.planning.given import host_view

CHANGES = [({}, 0), ({7: 0.0, MANY_ROWS - 1: -2.0}, 2), ({0: np.nan}, 1), ({3: -0.0, 5: np.inf}, 1)]


@pytest.mark.parametrize(("changed", "count"), CHANGES)
@pytest.mark.parametrize("onto", ["x", "z"])
def test_reciprocals_are_made_and_signs_looked_at(backend, changed, count, onto):
    x = np.random.default_rng(1).uniform(0.5, 2.0, MANY_ROWS).astype(backend.scalar)
    x[list(changed)] = list(changed.values())
    made, expected = jacobi(backend), np.divide(1, x, out=x.copy(), where=x != 0)
    for _ in range(2):  # what counts is ready for the next time
        arrays = {"x": backend.adopt(x.copy()), "z": backend.adopt(np.full_like(x, np.nan))}
        backend.run(made.reciprocals, {Slot.ALPHA: np.int64(x.size), Slot.X: arrays["x"], Slot.Z: arrays[onto]})
        assert np.array_equal(backend.to_host(arrays[onto]), expected, equal_nan=True)
        assert backend.to_host(made.not_positive)[0] == count


@pytest.mark.parametrize("nrows", [0, 1, MANY_ROWS])
@pytest.mark.parametrize("onto", ["d", "x", "z"])
def test_products_are_made_entry_by_entry(backend, nrows, onto):
    d, x = np.random.default_rng(nrows).standard_normal((2, nrows)).astype(backend.scalar)
    arrays = {"d": backend.adopt(d.copy()), "x": backend.adopt(x.copy()), "z": backend.adopt(np.full_like(x, np.nan))}
    slots = {Slot.ALPHA: np.int64(nrows), Slot.D: arrays["d"], Slot.X: arrays["x"], Slot.Z: arrays[onto]}
    backend.run(jacobi(backend).products, slots)
    assert np.array_equal(backend.to_host(arrays[onto]), d * x)


def test_an_answer_has_both_plans():
    before, request = settled_tokens(), krylov_abi.JacobiRequestStruct(requested_place())
    d, x, z = np.full(6, 3.0, dtype=SCALAR), np.arange(6, dtype=SCALAR), np.empty(6, dtype=SCALAR)
    with Answer(abi.Ask.JACOBI, request, krylov_abi.JacobiAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        a.launch(a.answer.products, {Slot.ALPHA: np.int64(6), Slot.D: d, Slot.X: x, Slot.Z: z})
        assert z.tolist() == (3.0 * x).tolist()
        a.launch(a.answer.reciprocals, {Slot.ALPHA: np.int64(6), Slot.X: d, Slot.Z: z})
        assert np.allclose(z, 1 / 3.0) and host_view(a.answer.not_positive, 1, SCALAR)[0] == 0.0
        a.launch(a.answer.reciprocals, {Slot.ALPHA: np.int64(6), Slot.X: x, Slot.Z: z})
        assert host_view(a.answer.not_positive, 1, SCALAR)[0] == 1.0
    assert settled_tokens() == before
