"""Steps of conjugate gradients against the same in NumPy."""

import numpy as np
import pytest
from krylov_steps import (
    COUNT,
    CURVATURE,
    GOES_ON,
    MANY_ROWS,
    NATURAL,
    NONE,
    PRECONDITIONED,
    TEST,
    UNPRECONDITIONED,
    answered,
    state_of,
)
from places import PLACES_AND_TYPES, SCALAR, make_backend
from running_steps import RunningSteps

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.krylov.cg import STATE, Step, conjugate_gradients
from petsc_gpufmt.krylov.steps import RECORDS, Method


@pytest.fixture(params=[*PLACES_AND_TYPES, pytest.param(("host", np.float32, np.int32), id="host, single")])
def backend(request):
    return make_backend(request, *request.param)


class Solver(RunningSteps):
    """The steps for n rows, vectors on the backend, and a product by a diagonal matrix in place of a sparse one."""

    def __init__(self, backend, n, preconditioner="D", **state):
        random = np.random.default_rng(n)
        self.matrix = (1 + random.random(n)).astype(backend.scalar)
        self.b = random.standard_normal(n).astype(backend.scalar)
        self.diagonal = (0.5 + random.random(n)).astype(backend.scalar)
        vectors = {"x": np.zeros(n), "r": self.b, "p": np.full(n, np.nan), "w": np.full(n, np.nan)}
        vectors["d"] = self.diagonal if preconditioner == "D" else None
        vectors["z"] = np.full(n, np.nan) if preconditioner == "Z" else None
        super().__init__(backend, conjugate_gradients(n, backend), STATE, vectors)
        self.write(**{"limit": -1.0, "divergence": np.inf, "most": 1000, "norm": PRECONDITIONED, "alone": 1, **state})

    def precondition(self):
        if self.vectors[Slot.Z] is not None:
            self.put("z", self.diagonal * self["r"])

    def begin(self):
        self.precondition()
        self.run(Step.FIRST_DOTS)
        self.write(rz=self.state["sums"][2])

    def iterate(self, diagonal=None):
        self.run(Step.DIRECTION)
        if diagonal is not None:
            self.put("d", np.full(self.b.size, diagonal))
        self.put("w", self.matrix * self["p"])
        self.run(Step.CURVATURE)
        if self.vectors[Slot.Z] is None:
            self.run(Step.UPDATE_SUMS)
        else:
            self.run(Step.UPDATE)
            self.precondition()
            self.run(Step.DOTS)


def reference(solver, count):
    """x and (p.w, r.z, norms by kind) of iterations of the same solver in double precision."""
    x, r = np.zeros(solver.b.size), solver.b.astype(float)
    d = 1.0 if solver.vectors[Slot.D] is None and solver.vectors[Slot.Z] is None else solver.diagonal.astype(float)
    p, rz, rows = d * r, r @ (d * r), []
    for _ in range(count):
        w = solver.matrix * p
        curvature = p @ w
        x, r = x + rz / curvature * p, r - rz / curvature * w
        z, before, rz = d * r, rz, r @ (d * r)
        rows.append((curvature, rz, {NONE: 0, PRECONDITIONED: z @ z, UNPRECONDITIONED: r @ r, NATURAL: rz}))
        p = z + rz / before * p
    return x, rows


@pytest.mark.parametrize("norm", [NONE, PRECONDITIONED, UNPRECONDITIONED, NATURAL])
@pytest.mark.parametrize(("n", "preconditioner"), [(MANY_ROWS, "D"), (500, "Z"), (1, None), (700, None)])
def test_iterations_are_those_of_numpy(backend, n, preconditioner, norm):
    solver, count = Solver(backend, n, preconditioner, norm=norm), 3 if n > 1 else 1
    solver.begin()
    for _ in range(count):
        solver.iterate()
    x, rows = reference(solver, count)
    eps = 100 * np.finfo(backend.scalar).eps
    assert np.allclose(solver["x"], x, rtol=eps, atol=eps)
    state = solver.state
    assert state["iteration"] == count
    for record, (curvature, rz, squares) in zip(state["records"], rows, strict=False):
        assert np.allclose(record["curvature"], curvature, rtol=eps, atol=eps)
        assert np.allclose(record["rz"], rz, rtol=eps, atol=eps)
        assert np.allclose(record["norm"] ** 2, squares[norm], rtol=eps, atol=eps)


def test_sums_have_the_same_bits_in_every_run(backend):
    found = set()
    for _ in range(3):
        solver = Solver(backend, MANY_ROWS)
        solver.begin()
        solver.iterate()
        found.add((solver.state.tobytes(), solver["x"].tobytes(), solver["r"].tobytes()))
    assert len(found) == 1


def test_rows_that_are_none_leave_sums_of_zero(backend):
    solver = Solver(backend, 0, alone=0)
    solver.begin()
    solver.iterate()
    assert solver.state["sums"].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "stop"),
    [
        ({"limit": 1e3}, TEST),
        ({"divergence": 1e-3}, TEST),
        ({"most": 1}, COUNT),
        ({"most": 2}, GOES_ON),
        ({"limit": 1e-30}, GOES_ON),
    ],
)
def test_an_iteration_may_be_the_last(backend, changed, stop):
    solver = Solver(backend, 300, **changed)
    solver.begin()
    solver.iterate()
    assert solver.state["stop"] == stop
    before = [solver.state.tobytes(), *(solver[name].tobytes() for name in "xrp")]
    solver.iterate()
    assert (before == [solver.state.tobytes(), *(solver[name].tobytes() for name in "xrp")]) == (stop != GOES_ON)


@pytest.mark.parametrize("matrix", [0.0, np.nan, np.inf])
def test_a_product_without_a_curvature_stops_before_the_update(backend, matrix):
    solver = Solver(backend, 300)
    solver.begin()
    solver.matrix[:] = matrix
    solver.iterate()
    assert solver.state["stop"] == CURVATURE
    assert solver.state["iteration"] == 0
    assert not solver["x"].any()
    assert np.array_equal(solver["r"], solver.b)
    assert np.array_equal(solver.state["records"][0]["curvature"], solver.state["sums"][0], equal_nan=True)


def test_a_change_of_sign_stops_and_a_negative_matrix_does_not(backend):
    solver = Solver(backend, 300)
    solver.matrix *= -1
    solver.begin()
    solver.iterate()
    assert solver.state["stop"] == GOES_ON
    solver.matrix *= -1
    solver.iterate()
    assert solver.state["stop"] == CURVATURE
    assert solver.state["iteration"] == 1


def test_r_z_of_another_sign_or_zero_may_be_the_end(backend):
    for diagonal in (-1.0, 0.0, np.nan):
        solver = Solver(backend, 300)
        solver.begin()
        solver.iterate(diagonal)
        assert solver.state["stop"] == TEST


def test_ranks_end_an_iteration_once_their_sums_are_there(backend):
    solver = Solver(backend, 300, alone=0)
    solver.begin()
    solver.iterate()
    assert solver.state["iteration"] == 0
    sums = solver.state["sums"] * 2 + [0, 3, 0, 0]
    solver.write(sums=sums)
    solver.run(Step.END)
    state = solver.state
    assert state["iteration"] == 1
    assert (state["records"][0]["curvature"], state["rz"]) == (sums[0] + sums[1], sums[2])
    assert np.isclose(state["records"][0]["norm"], np.sqrt(sums[3]))


def test_records_come_round(backend):
    solver = Solver(backend, 10, iteration=RECORDS + 4)
    solver.begin()
    solver.write(rz_before=1.0, curvature=1.0)
    solver.put("p", np.ones(10))
    solver.iterate()
    state = solver.state
    assert state["records"][4]["rz"] == state["rz"] != 0
    assert not state["records"][5]["rz"]


def test_an_answer_has_all_steps_and_the_state():
    with answered(Method.CG) as a:
        assert all(a.answer.steps[step].nlaunches == 1 for step in Step)
        state = state_of(a, STATE)
        state["norm"], state["alone"] = NATURAL, 1
        vectors = {Slot.R: np.array([1, 2], SCALAR), Slot.D: None, Slot.Z: np.array([3, 4], SCALAR)}
        a.launch(a.answer.steps[Step.FIRST_DOTS], vectors)
        assert state["sums"].tolist() == [0, 0, 11, 25]
