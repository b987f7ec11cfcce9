"""The step of Chebyshev's iteration against the same in NumPy."""

from itertools import product

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from places import SCALAR, make_backend

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.krylov import steps
from petsc_gpufmt.krylov.chebyshev import Step, chebyshev_iteration
from petsc_gpufmt.krylov.steps import BLOCK_THREADS, ITEMS, Method
from petsc_gpufmt.planning import abi, krylov_abi

FEW_BLOCKS = 3
MANY_ROWS = 2 * FEW_BLOCKS * BLOCK_THREADS * ITEMS + 77  # a thread has several
FACTORS = (-0.3, 1.3, 0.7)

PLACES = [
    pytest.param(("host", SCALAR, np.int32), id="host"),
    pytest.param(("device_like", np.float64, np.int32), id="emulation"),
    pytest.param(("device_like", np.float32, np.int64), id="emulation, single"),
    pytest.param(("cuda", np.float64, np.int32), marks=pytest.mark.gpu, id="cuda"),
]


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    monkeypatch.setattr(steps, "MOST_BLOCKS", FEW_BLOCKS)


@pytest.fixture(params=PLACES)
def backend(request):
    return make_backend(request, *request.param)


def vectors(n, scalar):
    values = np.random.default_rng(n).standard_normal((5, n)).astype(scalar)
    return dict(zip("uxwdb", values, strict=True))


def run(backend, n, given, onto="z"):
    """z from the vectors `given`, which lies in the place of another, if `onto` names one."""
    slots = {Slot[k.upper()]: backend.adopt(v.copy()) for k, v in given.items()}
    absent = {Slot[k.upper()]: None for k in "uxwd" if k not in given}
    slots[Slot.Z] = slots[Slot[onto.upper()]] if onto != "z" else backend.adopt(np.full(n, np.nan, backend.scalar))
    factors = {s: backend.scalar.type(f) for s, f in zip((Slot.ALPHA, Slot.BETA, Slot.GAMMA), FACTORS, strict=True)}
    backend.run(chebyshev_iteration(n, backend).launches[Step.STEP], {**slots, **absent, **factors})
    return backend.to_host(slots[Slot.Z])


def expected(given):
    alpha, beta, gamma = FACTORS
    v = {**dict.fromkeys("uxw", 0.0), "d": 1.0, **{k: values.astype(float) for k, values in given.items()}}
    return alpha * v["u"] + beta * v["x"] + gamma * v["d"] * (v["b"] - v["w"])


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


def test_an_answer_has_the_step_and_no_state():
    before = settled_tokens()
    request = krylov_abi.KrylovRequestStruct(requested_place(), method=Method.CHEBYSHEV, nrows=2)
    with Answer(abi.Ask.KRYLOV, request, krylov_abi.KrylovAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        assert [plan.nlaunches for plan in a.answer.steps] == [1] + [0] * (len(a.answer.steps) - 1)
        assert not a.answer.state
        z = np.zeros(2, SCALAR)
        given = {Slot.B: np.array([1, 2], SCALAR), Slot.D: np.array([3, 4], SCALAR), Slot.Z: z}
        absent = dict.fromkeys((Slot.U, Slot.X, Slot.W))
        ones = dict.fromkeys((Slot.ALPHA, Slot.BETA, Slot.GAMMA), SCALAR.type(1))
        a.launch(a.answer.steps[Step.STEP], {**given, **absent, **ones})
        assert z.tolist() == [3, 8]
    assert settled_tokens() == before
