"""Steps of conjugate gradients of mixed precision against the same in NumPy."""

import numpy as np
import pytest
from krylov_steps import MANY_ROWS, NATURAL, PRECONDITIONED, UNPRECONDITIONED, answered, state_of
from places import SCALAR
from running_steps import RunningSteps

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.krylov.mixedcg import STATE, Array, Step, mixed_conjugate_gradients
from petsc_gpufmt.krylov.steps import Method
from petsc_gpufmt.planning.given import host_view

SIZES = (1, 300, MANY_ROWS)
FACTOR = 0.375
SINGLE = np.finfo(np.float32).eps


class Mixed(RunningSteps):
    """The steps for n rows, with a preconditioner D and a scaling S in Y, or without."""

    def __init__(self, backend, n, d=True, s=True, w=True, norm=PRECONDITIONED):
        random = np.random.default_rng(n)
        vectors = {name: random.standard_normal(n) for name in "xzw"}
        vectors["d"] = 0.5 + random.random(n) if d else None
        vectors["y"] = np.exp2(random.integers(-3, 4, n)) if s else None
        if not w:
            vectors["w"] = None
        super().__init__(backend, mixed_conjugate_gradients(n, backend), STATE, vectors)
        self.write(factor=FACTOR, norm=norm)
        self.eps = np.finfo(backend.scalar).eps

    def of(self, name, otherwise):
        return otherwise if self.vectors[Slot[name.upper()]] is None else self[name].astype(float)

    def inner(self, array):
        return self.backend.to_host(self.made.arrays[array])


@pytest.mark.parametrize("norm", [PRECONDITIONED, UNPRECONDITIONED, NATURAL])
@pytest.mark.parametrize(("d", "s", "w"), [(True, True, True), (True, False, False), (False, True, True), (False,) * 3])
def test_residuals_are_narrowed_and_summed(backend, d, s, w, norm):
    for n in SIZES:
        mixed = Mixed(backend, n, d, s, w, norm)
        mixed.run(Step.RESIDUAL)
        r = mixed["z"].astype(float) - mixed.of("w", 0.0)
        z, scaled = mixed.of("d", 1.0) * r, mixed.of("y", 1.0) * r
        squares = {PRECONDITIONED: z @ z, UNPRECONDITIONED: r @ r, NATURAL: r @ z}[norm]
        expected = [squares, r @ z if d else scaled @ scaled]
        assert np.allclose(mixed.state["sums"], expected, rtol=(n + 4) * mixed.eps, atol=0)
        found = mixed.inner(Array.R)
        assert found.dtype == np.float32 and np.allclose(found, FACTOR * scaled, rtol=4 * SINGLE, atol=SINGLE)


def test_sums_have_the_same_bits_in_every_run(backend):
    found = set()
    for _ in range(3):
        mixed = Mixed(backend, MANY_ROWS)
        mixed.run(Step.RESIDUAL)
        found.add((mixed.state.tobytes(), mixed.inner(Array.R).tobytes()))
    assert len(found) == 1


@pytest.mark.parametrize("s", [False, True])
def test_the_inner_preconditioner(backend, s):
    for n in SIZES:
        mixed = Mixed(backend, n, s=s)
        mixed.run(Step.NARROW)
        assert np.allclose(mixed.inner(Array.D), mixed["d"] / mixed.of("y", 1.0) ** 2, rtol=4 * SINGLE, atol=0)


@pytest.mark.parametrize("s", [False, True])
@pytest.mark.parametrize("step", [Step.CORRECT, Step.WIDEN])
def test_what_was_found_is_widened(backend, step, s):
    for n in SIZES:
        mixed = Mixed(backend, n, s=s)
        e = np.random.default_rng(7).standard_normal(n).astype(np.float32)
        mixed.put_array(Array.X, e.copy())
        if step == Step.WIDEN:
            mixed.put("x", np.full(n, np.nan))
        before = mixed["x"].astype(float)
        mixed.run(step)
        correction = mixed.of("y", 1.0) * e.astype(float) / FACTOR
        expected = correction if step == Step.WIDEN else before + correction
        assert np.allclose(mixed["x"], expected, rtol=8 * mixed.eps, atol=8 * mixed.eps)
        assert not mixed.inner(Array.X).any()


def test_what_was_found_is_zero_at_first(backend):
    mixed = Mixed(backend, 300)
    mixed.run(Step.WIDEN)
    assert not mixed["x"].any()


def test_powers_of_two_far_from_one_come_and_go(backend):
    """A scaling whose squares are not in the range of single precision."""
    if backend.scalar == np.float32:
        pytest.skip("single precision has no such numbers")
    mixed = Mixed(backend, 300)
    scaling = np.exp2(np.where(np.arange(300) % 2, -330.0, 330.0))
    mixed.put("y", scaling)
    mixed.put("d", scaling**2 * 1.5)
    mixed.put("z", mixed["z"] / scaling)
    mixed.put("w", mixed["w"] / scaling)
    mixed.run(Step.NARROW)
    mixed.run(Step.RESIDUAL)
    assert np.allclose(mixed.inner(Array.D), 1.5)
    residual = scaling * (mixed["z"] - mixed["w"])
    assert np.allclose(mixed.inner(Array.R), FACTOR * residual, rtol=4 * SINGLE, atol=SINGLE)
    assert np.isclose(mixed.state["sums"][1], 1.5 * residual @ residual)


def test_rows_that_are_none_leave_sums_of_zero(backend):
    mixed = Mixed(backend, 0)
    for step in Step:
        mixed.run(step)
    assert mixed.state["sums"].tolist() == [0, 0]


def test_an_answer_has_all_steps_the_state_and_arrays():
    with answered(Method.MIXED) as a:
        assert all(a.answer.steps[step].nlaunches == 1 for step in Step)
        state = state_of(a, STATE)
        state["norm"], state["factor"] = UNPRECONDITIONED, 0.5
        vectors = {Slot.Z: np.array([4, 6], SCALAR), Slot.W: np.array([1, 2], SCALAR), Slot.D: None, Slot.Y: None}
        a.launch(a.answer.steps[Step.RESIDUAL], vectors)
        assert state["sums"].tolist() == [25, 25]
        inner = host_view(a.answer.arrays[Array.R], 2, np.dtype(np.float32))
        assert inner.tolist() == [1.5, 2.0]
