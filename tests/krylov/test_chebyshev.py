"""The step of Chebyshev's iteration against the same in NumPy."""

from itertools import product

import numpy as np
import pytest
from krylov_steps import MANY_ROWS, answered
from places import SCALAR

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.krylov.chebyshev import MOST_POINT_BLOCK, Step, chebyshev_iteration
from petsc_gpufmt.krylov.steps import Method

FACTORS = (-0.3, 1.3, 0.7)
POINT_BLOCKS = (2, 3, 4, 5, 6, 7, MOST_POINT_BLOCK)


def vectors(n, scalar):
    values = np.random.default_rng(n).standard_normal((5, n)).astype(scalar)
    return dict(zip("uxwdb", values, strict=True))


def run(backend, n, given, onto="z", point_block=0):
    """z from the vectors `given`, which lies in the place of another, if `onto` names one; d may have blocks."""
    slots = {Slot[k.upper()]: backend.adopt(v.copy()) for k, v in given.items()}
    absent = {Slot[k.upper()]: None for k in "uxwd" if k not in given}
    slots[Slot.Z] = slots[Slot[onto.upper()]] if onto != "z" else backend.adopt(np.full(n, np.nan, backend.scalar))
    factors = {s: backend.scalar.type(f) for s, f in zip((Slot.ALPHA, Slot.BETA, Slot.GAMMA), FACTORS, strict=True)}
    backend.run(chebyshev_iteration(n, backend, point_block).launches[Step.STEP], {**slots, **absent, **factors})
    return backend.to_host(slots[Slot.Z])


def expected(given, point_block=0):
    alpha, beta, gamma = FACTORS
    v = {**dict.fromkeys("uxw", 0.0), "d": 1.0, **{k: values.astype(float) for k, values in given.items()}}
    residual = v["b"] - v["w"]
    if point_block:  # column by column
        blocks, residuals = v["d"].reshape(-1, point_block, point_block), residual.reshape(-1, point_block)
        made = np.einsum("kji,kj->ki", blocks, residuals).ravel()
    else:
        made = v["d"] * residual
    return alpha * v["u"] + beta * v["x"] + gamma * made


def vectors_and_blocks(n, point_block, scalar):
    return {**vectors(n, scalar), "d": np.random.default_rng(n).standard_normal(n * point_block).astype(scalar)}


@pytest.mark.parametrize("there", ["".join(names) for names in product(*zip("uxwd", [""] * 4, strict=True))])
def test_a_step_is_that_of_numpy(backend, there):
    given = {name: v for name, v in vectors(700, backend.scalar).items() if name in there + "b"}
    eps = 20 * np.finfo(backend.scalar).eps
    assert np.allclose(run(backend, 700, given), expected(given), rtol=eps, atol=eps)


@pytest.mark.parametrize("n", [0, 1, MANY_ROWS])
@pytest.mark.parametrize("onto", ["u", "x", "z"])
def test_the_next_iterate_may_take_the_place_of_another(backend, n, onto):
    given, eps = vectors(n, backend.scalar), 20 * np.finfo(backend.scalar).eps
    assert np.allclose(run(backend, n, given, onto), expected(given), rtol=eps, atol=eps)


@pytest.mark.parametrize("point_block", POINT_BLOCKS)
@pytest.mark.parametrize("there", ["uxw", "xw", ""])
def test_a_step_with_blocks_is_that_of_numpy(backend, there, point_block):
    n, eps = 111 * point_block, 20 * MOST_POINT_BLOCK * np.finfo(backend.scalar).eps
    given = {k: v for k, v in vectors_and_blocks(n, point_block, backend.scalar).items() if k in there + "db"}
    found = run(backend, n, given, point_block=point_block)
    assert np.allclose(found, expected(given, point_block), rtol=eps, atol=eps)


@pytest.mark.parametrize("nblocks", [0, 1, MANY_ROWS])
@pytest.mark.parametrize("onto", ["u", "x", "z"])
def test_blocks_leave_the_next_iterate_in_the_place_of_another(backend, nblocks, onto):
    given, eps = vectors_and_blocks(3 * nblocks, 3, backend.scalar), 60 * np.finfo(backend.scalar).eps
    assert np.allclose(run(backend, 3 * nblocks, given, onto, 3), expected(given, 3), rtol=eps, atol=eps)


def test_an_answer_with_blocks():
    with answered(Method.CHEBYSHEV, point_block=2) as a:
        z = np.zeros(2, SCALAR)
        given = {Slot.B: np.array([1, 10], SCALAR), Slot.D: np.array([1, 2, 3, 4], SCALAR), Slot.Z: z}
        absent = dict.fromkeys((Slot.U, Slot.X, Slot.W))
        ones = dict.fromkeys((Slot.ALPHA, Slot.BETA, Slot.GAMMA), SCALAR.type(1))
        a.launch(a.answer.steps[Step.STEP], {**given, **absent, **ones})
        assert z.tolist() == [31, 42]


def test_an_answer_has_the_step_and_no_state():
    with answered(Method.CHEBYSHEV) as a:
        assert [plan.nlaunches for plan in a.answer.steps] == [1] + [0] * (len(a.answer.steps) - 1)
        assert not a.answer.state
        z = np.zeros(2, SCALAR)
        given = {Slot.B: np.array([1, 2], SCALAR), Slot.D: np.array([3, 4], SCALAR), Slot.Z: z}
        absent = dict.fromkeys((Slot.U, Slot.X, Slot.W))
        ones = dict.fromkeys((Slot.ALPHA, Slot.BETA, Slot.GAMMA), SCALAR.type(1))
        a.launch(a.answer.steps[Step.STEP], {**given, **absent, **ones})
        assert z.tolist() == [3, 8]
