"""Steps of stabilised bi-conjugate gradients against the same in NumPy."""

import numpy as np
import pytest
from krylov_steps import (
    BREAKDOWN,
    COUNT,
    GOES_ON,
    MANY_ROWS,
    NONE,
    PRECONDITIONED,
    TEST,
    UNPRECONDITIONED,
    answered,
    state_of,
)
from places import SCALAR
from running_steps import RunningSteps
from summands import two_ranks

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.krylov.bcgs import STATE, Step, stabilized_biconjugate_gradients
from petsc_gpufmt.krylov.steps import RECORDS, Method


class Solver(RunningSteps):
    """The steps for n rows, preconditioned on a side by a diagonal or not, and a product by a diagonal matrix."""

    def __init__(self, backend, n, side=None, **state):
        random = np.random.default_rng(n)
        self.side = side
        self.matrix = (1 + random.random(n)).astype(backend.scalar)
        self.diagonal = (0.5 + random.random(n)).astype(backend.scalar) if side else None
        self.b = random.standard_normal(n).astype(backend.scalar)
        vectors = {name: np.full(n, np.nan) for name in "pw"}
        vectors |= {"x": np.zeros(n), "r": self.b, "y": self.b, "d": None, "z": None}
        super().__init__(backend, stabilized_biconjugate_gradients(n, backend), STATE, vectors)
        begins = {"rho": self.b.astype(float) @ self.b, "norm": PRECONDITIONED}
        self.write(**{"limit": -1.0, "divergence": np.inf, "most": 1000, "alone": 1, **begins, **state})

    def step(self, number, side):
        """A step where a preconditioner on a side is applied."""
        own = self.side == side
        self.put("d", self.diagonal if own else None)
        self.put("z", np.full(self.b.size, np.nan) if own and side == "right" else None)
        self.run(number)

    def product(self, name):
        """By the matrix, of a vector or of what the step before has made of it."""
        return self.matrix * self[name if self.vectors[Slot.Z] is None else "z"]

    def iterate(self, t=None):
        """One iteration; `t` in place of the second product."""
        self.step(Step.DIRECTION, "right")
        self.put("w", self.product("p"))
        self.step(Step.SHADOW, "left")
        self.step(Step.HALF, "right")
        v = self["w"].copy()
        self.put("w", self.product("r") if t is None else t)
        self.step(Step.DOTS, "left")
        self.run(Step.UPDATE)
        self.put("w", v)

    def everything(self):
        return [self.state.tobytes(), *(self[name].tobytes() for name in "xrp")]


def reference(solver, count):
    """x, and r.r and r.rp after each iteration, of the same solver in double precision."""
    matrix = solver.matrix.astype(float) * (1 if solver.side is None else solver.diagonal)
    rp = solver.b.astype(float)
    x, r, p, v, rho, alpha, omega, rows = np.zeros(rp.size), rp, 0 * rp, 0 * rp, 1.0, 1.0, 1.0, []
    for _ in range(count):
        before, rho = rho, r @ rp
        beta = rho / before * alpha / omega
        p = r + beta * (p - omega * v)
        v = matrix * p
        alpha = rho / (v @ rp)
        s = r - alpha * v
        t = matrix * s
        omega = (t @ s) / (t @ t)
        x, r = x + alpha * p + omega * s, s - omega * t
        rows.append((r @ r, r @ rp))
    return x, rows


@pytest.mark.parametrize("norm", [NONE, PRECONDITIONED, UNPRECONDITIONED])
@pytest.mark.parametrize(("n", "side"), [(MANY_ROWS, "left"), (500, "right"), (700, None)])
def test_iterations_are_those_of_numpy(backend, n, side, norm):
    solver, count = Solver(backend, n, side, norm=norm), 3
    for _ in range(count):
        solver.iterate()
    x, rows = reference(solver, count)
    eps = 100 * np.finfo(backend.scalar).eps
    assert np.allclose(solver["x"], x, rtol=eps, atol=eps)
    state = solver.state
    assert (state["iteration"], state["stop"]) == (count, GOES_ON)
    for record, (squares, rho) in zip(state["records"], rows, strict=False):
        scale = np.sqrt(rows[0][0])
        assert np.isclose(record["norm"], 0 if norm == NONE else np.sqrt(squares), rtol=eps, atol=eps * scale)
        assert np.isclose(record["rho"], rho, rtol=eps, atol=eps * n)


def test_sums_have_the_same_bits_in_every_run(backend):
    found = set()
    for _ in range(3):
        solver = Solver(backend, MANY_ROWS, "left")
        solver.iterate()
        found.add(tuple(solver.everything()))
    assert len(found) == 1


def test_rows_that_are_none_leave_sums_of_zero_to_other_ranks(backend):
    solver = Solver(backend, 0, alone=0)
    for step in (Step.DIRECTION, Step.SHADOW, Step.DOTS, Step.UPDATE):
        solver.run(step)
    assert solver.state["sums"].tolist() == [0] * 6


@pytest.mark.parametrize(
    ("changed", "stop"),
    [
        ({"limit": 1e3}, TEST),
        ({"divergence": 1e-3}, TEST),
        ({"rho": 0.0}, TEST),
        ({"most": 1}, COUNT),
        ({"most": 2}, GOES_ON),
        ({"limit": 1e-30}, GOES_ON),
    ],
)
def test_an_iteration_may_be_the_last(backend, changed, stop):
    solver = Solver(backend, 300, "left", **changed)
    solver.iterate()
    assert (solver.state["iteration"], solver.state["stop"]) == (1, stop)
    before = solver.everything()
    solver.iterate()
    assert (before == solver.everything()) == (stop != GOES_ON)


@pytest.mark.parametrize("side", ["left", "right", None])
def test_iterations_that_are_resumed_are_those_that_were_not_stopped(backend, side):
    stopped, straight = Solver(backend, 300, side, most=1), Solver(backend, 300, side)
    for solver in (stopped, straight):
        solver.iterate()
    stopped.iterate()
    stopped.write(stop=GOES_ON, most=1000)
    for solver in (stopped, straight):
        solver.iterate()
        solver.write(most=1000)
    assert stopped.state["iteration"] == 2
    assert stopped.everything() == straight.everything()


@pytest.mark.parametrize("matrix", [0.0, np.nan, np.inf])
def test_a_product_that_the_shadow_residual_does_not_see_is_a_breakdown(backend, matrix):
    solver = Solver(backend, 300)
    solver.matrix[:] = matrix
    solver.iterate()
    state = solver.state
    assert (state["stop"], state["iteration"]) == (BREAKDOWN, 0)
    assert state["sums"][0] == 0 or not np.isfinite(state["sums"][0])
    assert not solver["x"].any()
    assert np.array_equal(solver["r"], solver.b)


def test_a_singular_matrix_is_a_breakdown_and_x_stays(backend):
    solver = Solver(backend, 300)
    solver.iterate(t=np.zeros(300))
    state = solver.state
    assert (state["stop"], state["iteration"]) == (BREAKDOWN, 0)
    assert state["sums"][2] == 0 < state["sums"][3]
    assert not solver["x"].any()


@pytest.mark.parametrize("alone", [0, 1])
def test_a_residual_of_zero_half_way_is_a_solution(backend, alone):
    solver = Solver(backend, 300, alone=alone, rho=300.0)
    solver.matrix[:] = 2.0
    for name in "ry":
        solver.put(name, np.ones(300))
    solver.iterate()
    if not alone:
        solver.run(Step.END)
    state = solver.state
    assert (state["stop"], state["iteration"]) == (BREAKDOWN, 0)
    assert state["sums"][2] == state["sums"][3] == 0
    assert (solver["x"] == 0.5).all()


def test_ranks_end_an_iteration_once_their_sums_are_there(backend):
    solver = Solver(backend, 300, alone=0)
    solver.iterate()
    assert solver.state["iteration"] == 0
    sums = [*solver.state["sums"][:4], 9.0, 5.0]
    solver.write(sums=sums)
    solver.run(Step.END)
    state = solver.state
    assert state["iteration"] == 1
    assert tuple(state["records"][0]) == (3.0, 5.0)
    assert (state["alpha"], state["omega"]) == (state["rho_before"] / sums[0], sums[1] / sums[2])
    solver.write(stop=TEST)
    solver.run(Step.END)
    assert solver.state["iteration"] == 1


SUMS = {
    Step.SHADOW: (Step.SHADOW_OF_RANKS, slice(0, 1), (7.25,)),
    Step.DOTS: (Step.DOTS_OF_RANKS, slice(1, 4), (0.1, 3.7, 11.3)),
    Step.UPDATE: (Step.UPDATE_OF_RANKS, slice(4, 6), (0.7, 1.1)),
}
"""Steps that sum over ranks in the place of others, what they sum, and what another rank has."""


class Rank(Solver):
    """One of two ranks, whose sums are those of both: within steps, or by launches of their own."""

    def __init__(self, backend, doubles, n, within, side=None, failed=None):
        super().__init__(backend, n, side, alone=0)
        self.doubles, self.within, self.failed, self.memory = doubles, within, failed, []

    def run(self, number):
        if number not in SUMS:
            super().run(number)
            return
        of_ranks, made, parts = SUMS[number]
        other, own = two_ranks(self.doubles, [parts], flags=1)
        self.vectors |= {**own.slots, Slot.ALPHA: np.int64(number == self.failed)}
        stopped, vectors = self.state["stop"], self.vectors
        if self.within:
            if number == self.failed:
                self.vectors = {**vectors, **dict.fromkeys((Slot.X, Slot.R, Slot.P, Slot.W, Slot.Y, Slot.D))}
            super().run(of_ranks)
            self.vectors = vectors
        else:
            super().run(number)
            sums = self.state["sums"]
            sums[made] = own.sum(sums[made])
            self.write(sums=sums)
            if number is Step.UPDATE:
                super().run(Step.END)
        assert own.told() == [0, 0, 0 if stopped else 1]
        self.memory += [self.backend.to_host(array).tobytes() for array in (own.arrived, other.words, other.arrived)]


@pytest.mark.parametrize(("n", "side"), [(MANY_ROWS, "left"), (500, "right"), (700, None), (0, None)])
def test_sums_within_steps_have_the_bits_of_sums_by_launches(backend, doubles, n, side):
    found = []
    for within in (False, True):
        rank = Rank(backend, doubles, n, within, side)
        rank.write(rho=2.5)
        rank.iterate()
        assert rank.state["iteration"] == 1
        found.append([*rank.everything(), *rank.memory])
    assert found[0] == found[1]


@pytest.mark.parametrize("failed", SUMS)
def test_a_rank_that_has_failed_ends_the_iterations_of_all(backend, doubles, failed):
    rank = Rank(backend, doubles, 300, within=True, side="left", failed=failed)
    rank.iterate()
    assert rank.state["stop"] and np.isnan(rank.state["sums"][SUMS[failed][1]]).all()
    before = rank.everything()
    rank.iterate()  # nothing is sent
    assert rank.everything() == before


def test_records_come_round(backend):
    solver = Solver(backend, 10, iteration=RECORDS + 4, rho_before=1.0, alpha=1.0, omega=1.0)
    for name in "pw":
        solver.put(name, np.ones(10))
    solver.iterate()
    state = solver.state
    assert state["records"][4]["rho"] == state["rho"] != 0
    assert not state["records"][5]["rho"]


def test_an_answer_has_all_steps_and_the_state():
    with answered(Method.BCGS) as a:
        assert all(a.answer.steps[step].nlaunches == 1 for step in Step)
        state = state_of(a, STATE)
        vectors = {Slot.W: np.array([1, 2], SCALAR), Slot.Y: np.array([3, 4], SCALAR), Slot.D: None}
        a.launch(a.answer.steps[Step.SHADOW], vectors)
        assert state["sums"].tolist() == [11, 0, 0, 0, 0, 0]
