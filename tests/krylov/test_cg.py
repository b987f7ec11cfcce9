"""Steps of conjugate gradients against the same in NumPy, and steps that sum over ranks against those that do not."""

import mmap
import multiprocessing

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
from summands import Summand, two_ranks

from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.halo.peer import MOST_SUMS
from petsc_gpufmt.krylov import steps
from petsc_gpufmt.krylov.cg import RECORD, STATE, Step, conjugate_gradients
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

    def product(self, diagonal=None):
        self.run(Step.DIRECTION)
        if diagonal is not None:
            self.put("d", np.full(self.b.size, diagonal))
        self.put("w", self.matrix * self["p"])
        self.run(Step.CURVATURE)

    def update(self, update=Step.UPDATE, update_sums=Step.UPDATE_SUMS, dots=Step.DOTS):
        if self.vectors[Slot.Z] is None:
            self.run(update_sums)
        else:
            self.run(update)
            self.precondition()
            self.run(dots)

    def iterate(self, diagonal=None):
        self.product(diagonal)
        self.update()


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


NUMBERS = (7.25, 0.1), (3.7, 11.3)  # of the other rank: p w in two parts, r z and squares


class Rank(Solver):
    """One of two ranks, whose sums are those over both ranks, within steps or by launches of their own.

    The other rank is ahead: it has sent `sent`, two numbers in each of two exchanges. Only `flags` exchanges are there.
    """

    def __init__(self, backend, doubles, n, sent=NUMBERS, flags=2, preconditioner="D", **state):
        super().__init__(backend, n, preconditioner, alone=0, **state)
        self.begin()
        self.other, self.own = two_ranks(doubles, sent, flags)
        self.vectors |= {**self.own.slots, Slot.ALPHA: np.int64(0)}

    def sum(self, first):
        sums = self.state["sums"]
        sums[first : first + 2] = self.own.sum(sums[first : first + 2])
        self.write(sums=sums)

    def iterate_by_launches(self):
        self.product()
        self.sum(0)
        self.update()
        self.sum(2)
        self.run(Step.END)

    def iterate_within(self):
        self.product()
        self.update(Step.UPDATE_OF_RANKS, Step.UPDATE_SUMS_OF_RANKS, Step.DOTS_OF_RANKS)

    def left(self):
        """All bits that an iteration leaves."""
        arrays = [self.own.words, self.own.arrived, self.other.words, self.other.arrived]
        memory = [self.backend.to_host(array).tobytes() for array in arrays]
        return [self.state.tobytes(), *(self[name].tobytes() for name in "xrp"), *memory]

    def sent(self):
        """What the other rank has got, of both exchanges."""
        return self.backend.to_host(self.other.arrived).reshape(2, 2, MOST_SUMS)[[1, 0], 1, :2]


@pytest.mark.parametrize("norm", [PRECONDITIONED, NATURAL])
@pytest.mark.parametrize(("n", "preconditioner"), [(MANY_ROWS, "D"), (500, "Z"), (700, None), (0, None)])
def test_sums_within_steps_have_the_bits_of_sums_by_launches(backend, doubles, n, preconditioner, norm):
    found = []
    for iterate in (Rank.iterate_by_launches, Rank.iterate_within):
        rank = Rank(backend, doubles, n, preconditioner=preconditioner, norm=norm)
        rank.write(rz=2.5)
        iterate(rank)
        assert rank.own.told() == [0, 0, 2]
        assert rank.state["iteration"] == 1 and rank.state["sums"][0] != NUMBERS[0][0] or n == 0
        found.append(rank.left())
    assert found[0] == found[1]


@pytest.mark.parametrize("preconditioner", ["D", "Z"])
def test_where_the_curvature_ends_the_iterations_nothing_more_is_sent(backend, doubles, preconditioner):
    rank = Rank(
        backend, doubles, MANY_ROWS, ((-1e15, 0), (1, 1)), preconditioner=preconditioner, curvature=1.0, iteration=1
    )
    rank.write(rz_before=1.0)
    rank.put("p", np.ones(MANY_ROWS))
    x, r = rank["x"], rank["r"]
    for _ in range(2):
        rank.iterate_within()
        assert rank.state["stop"] == CURVATURE and rank.state["records"][1]["curvature"] == rank.state["sums"][0] < 0
        assert np.array_equal(rank["x"], x) and np.array_equal(rank["r"], r)
        assert rank.own.told() == [0, 0, 1]
        assert np.isfinite(rank.sent()[0]).all() and np.isnan(rank.sent()[1]).all()


def test_a_rank_that_has_failed_sends_what_is_not_a_number_and_stops(backend, doubles):
    for step, preconditioner in ((Step.UPDATE_SUMS_OF_RANKS, "D"), (Step.DOTS_OF_RANKS, "Z")):
        rank = Rank(backend, doubles, 300, preconditioner=preconditioner)
        rank.product()
        rank.vectors |= {**dict.fromkeys((Slot.X, Slot.R, Slot.P, Slot.W, Slot.D, Slot.Z)), Slot.ALPHA: np.int64(1)}
        rank.run(step)
        assert rank.state["stop"] and np.isnan(rank.sent()[0]).all()
        assert rank.own.told() == [0, 0, 1]


@pytest.mark.parametrize("flags", [0, 1])
def test_sums_that_do_not_come_end_the_iterations(backend, doubles, flags):
    rank = Rank(backend, doubles, MANY_ROWS, flags=flags)
    rank.iterate_within()
    failure = 2 << 32 | 1  # rank 1 has waited for rank 0
    assert rank.state["stop"] == (TEST if flags else CURVATURE)
    assert rank.own.told() == [failure, failure, 1 + flags]
    assert rank.other.told() == [failure, 0, 0]
    rank.write(stop=GOES_ON)
    rank.iterate_within()  # it does not wait again
    assert rank.state["stop"] == CURVATURE


def shared_memory(array):
    """A copy that processes have in common which are made later."""
    shared = np.frombuffer(mmap.mmap(-1, max(1, array.nbytes)), array.dtype, array.size)
    shared[:] = array
    return shared


def solve_as_rank(solver, own, records):
    solver.vectors |= {**own.slots, Slot.ALPHA: np.int64(0)}
    solver.run(Step.FIRST_DOTS)
    sums = solver.state["sums"]
    sums[2:] = own.sum(sums[2:])
    solver.write(rz=sums[2])
    for _ in range(records.size + 2):  # the last ones do nothing
        solver.run(Step.DIRECTION)
        solver.put("w", solver.matrix * solver["p"])
        solver.run(Step.CURVATURE)
        solver.run(Step.UPDATE_SUMS_OF_RANKS)
    assert solver.state["stop"] == COUNT
    records[:] = solver.state["records"][: records.size]


@pytest.mark.parametrize("place", ["host", "emulation"])
def test_ranks_that_run_at_once_have_the_same_records(request, place):
    """As processes, since an emulated device is one for each."""
    nranks, n, count = 2, 600, 12
    backend = make_backend(request, place, np.float64, np.int32)
    solvers = [Solver(backend, n + r, alone=0, most=count) for r in range(nranks)]
    ranks = [Summand(r, nranks, backend, memory=shared_memory) for r in range(nranks)]
    records = [shared_memory(np.zeros(count, RECORD)) for _ in range(nranks)]
    for rank in ranks:
        rank.plan(ranks, limit=0)
    context = multiprocessing.get_context("fork")
    arguments = zip(solvers, ranks, records, strict=True)
    processes = [context.Process(target=solve_as_rank, args=argument) for argument in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * nranks
    assert [rank.told() for rank in ranks] == [[0, 0, 1 + 2 * count]] * nranks
    assert records[0].tobytes() == records[1].tobytes()
    whole = Solver(backend, n)
    for name in ("b", "matrix", "diagonal"):
        setattr(whole, name, np.concatenate([getattr(solver, name) for solver in solvers]))
    _, rows = reference(whole, count)
    for record, (curvature, rz, _) in zip(records[0], rows, strict=True):
        assert np.allclose([record["curvature"], record["rz"]], [curvature, rz], rtol=1e-9)


def test_blocks_that_wait_for_ranks_come_in_one_wave(monkeypatch):
    """132 multiprocessors have six of them each at once."""
    monkeypatch.setattr(steps, "MOST_BLOCKS", 1024)
    launches = conjugate_gradients(10**7, HostBackend(SCALAR, np.dtype(np.int32))).launches
    grids = {step: launches[step][0].grid[0] for step in (Step.UPDATE_SUMS, Step.UPDATE_SUMS_OF_RANKS)}
    assert grids[Step.UPDATE_SUMS] > 6 * 132 >= grids[Step.UPDATE_SUMS_OF_RANKS] > 5 * 132


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
