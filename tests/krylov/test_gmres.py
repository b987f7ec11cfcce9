"""Steps of GMRES against the same in NumPy."""

import numpy as np
import pytest
from krylov_steps import COUNT, GOES_ON, MANY_ROWS, TEST, answered, state_of
from places import SCALAR, make_backend
from running_steps import RunningSteps
from summands import two_ranks

from petsc_gpufmt.backends.plan import Slot, address
from petsc_gpufmt.krylov import gmres
from petsc_gpufmt.krylov.gmres import Step, generalized_minimal_residuals, state_for
from petsc_gpufmt.krylov.steps import Method


class Cycle(RunningSteps):
    """The steps for n rows, a basis on the backend, and a product by a matrix of two diagonals."""

    def __init__(self, backend, n, restart, **state):
        random = np.random.default_rng(n)
        super().__init__(backend, generalized_minimal_residuals(n, backend, restart), state_for(restart), {})
        self.diagonal = 1 + 30 * random.random(n)
        self.residual = random.standard_normal(n)
        self.basis = [self.adopted(self.residual), *(self.adopted(np.full(n, np.nan)) for _ in range(restart))]
        norm = np.linalg.norm(self.residual)
        start = {"limit": -1.0, "divergence": np.inf, "haptol": 1e-30, "norm": norm, "next": norm, "most": restart}
        self.write(**{**start, "alone": 1, **state})

    def adopted(self, values):
        return self.backend.adopt(np.array(values, self.backend.scalar))

    def vector(self, k):
        return self.backend.to_host(self.basis[k]).astype(float)

    def write(self, **fields):
        """Fields of the state, and where the basis is."""
        super().write(**fields, basis=[address(v) for v in self.basis])

    def run(self, step, **vectors):
        self.vectors = {Slot[name]: vector for name, vector in vectors.items()}
        super().run(step)

    def multiply(self, v):
        return self.diagonal * v + 0.5 * np.roll(v, 1)

    def iterate(self, product=None):
        k = int(self.state["iteration"])
        self.run(Step.SCALE, W=self.basis[k])
        if k + 1 == len(self.basis):
            return
        self.basis[k + 1] = self.adopted(self.multiply(self.vector(k)) if product is None else product)
        self.write()
        self.run(Step.DOTS, W=self.basis[k + 1])
        self.run(Step.UPDATE, W=self.basis[k + 1])

    def bits(self):
        return [self.state.tobytes(), *(self.backend.to_host(v).tobytes() for v in self.basis)]


def check_iterations(cycle, count):
    """A basis with norm 1 whose products are the Hessenberg matrix, and the least squares problem with that."""
    eps = 1000 * np.finfo(cycle.backend.scalar).eps
    state, norm = cycle.state, np.linalg.norm(cycle.residual)
    cycle.run(Step.SCALE, W=cycle.basis[count])
    basis = np.array([cycle.vector(k) for k in range(count + 1)]).T
    hessenberg, rotated, right = np.zeros((count + 1, count)), np.zeros((count, count)), np.zeros(count)
    assert state["iteration"] == count
    for k, column in enumerate(state["columns"][:count]):
        hessenberg[: k + 1, k], hessenberg[k + 1, k], rotated[: k + 1, k] = (
            column["dots"][: k + 1],
            column["norm"],
            column["rotated"][: k + 1],
        )
        right[k] = column["entry"]
        expected = np.linalg.lstsq(hessenberg[: k + 2, : k + 1], norm * np.eye(k + 2)[0], rcond=None)[1]
        assert np.isclose(column["residual"] ** 2, expected[0], rtol=eps, atol=eps)
        assert np.isclose(column["cosine"] ** 2 + column["sine"] ** 2, 1)
        assert abs(column["next"]) == column["residual"]
        assert not column["happy"]
    assert np.allclose(basis.T @ basis, np.eye(count + 1), atol=10 * eps)
    products = np.array([cycle.multiply(basis[:, k]) for k in range(count)]).T
    assert np.allclose(products, basis @ hessenberg, atol=eps)
    assert np.allclose(rotated.T @ rotated, hessenberg.T @ hessenberg, rtol=eps, atol=eps)
    weights = np.linalg.lstsq(hessenberg, norm * np.eye(count + 1)[0], rcond=None)[0]
    assert np.allclose(np.linalg.solve(rotated, right), weights, rtol=eps, atol=eps * norm)


@pytest.mark.parametrize(("n", "count"), [(MANY_ROWS, 3), (500, 10)])
def test_iterations_are_those_of_numpy(backend, n, count):
    cycle = Cycle(backend, n, count + 1)
    for _ in range(count):
        cycle.iterate()
    check_iterations(cycle, count)


def test_columns_longer_than_a_block(request, monkeypatch):
    monkeypatch.setattr(gmres, "BLOCK_THREADS", 32)
    cycle = Cycle(make_backend(request, "emulation", np.float64, np.int32), 90, 70)
    cycle.diagonal = np.arange(90) + 1.0  # that residuals of many iterations are not of rounding alone
    for _ in range(68):
        cycle.iterate()
    state = cycle.state
    hessenberg, rotated = np.zeros((69, 68)), np.zeros((68, 68))
    for k, column in enumerate(state["columns"][:68]):
        hessenberg[: k + 1, k], hessenberg[k + 1, k], rotated[: k + 1, k] = (
            column["dots"][: k + 1],
            column["norm"],
            column["rotated"][: k + 1],
        )
    assert np.allclose(
        rotated.T @ rotated, hessenberg.T @ hessenberg, rtol=1e-10, atol=1e-10 * np.abs(hessenberg).max() ** 2
    )


def test_sums_have_the_same_bits_in_every_run(backend):
    found = set()
    for _ in range(3):
        cycle = Cycle(backend, MANY_ROWS, 3)
        cycle.iterate()
        cycle.iterate()
        columns = cycle.state["columns"]
        found.add((columns.tobytes(), *(cycle.vector(k).tobytes() for k in range(3))))
    assert len(found) == 1


def test_rows_that_are_none_leave_sums_of_zero(backend):
    cycle = Cycle(backend, 0, 2, alone=0, norm=1.0, next=1.0, square=5.0)
    cycle.iterate()
    assert (cycle.state["sums"][0], cycle.state["square"]) == (0, 0)


@pytest.mark.parametrize(
    ("changed", "stop"),
    [
        ({"limit": 1e9}, TEST),
        ({"divergence": 1e-9}, TEST),
        ({"most": 1}, COUNT),
        ({"most": 2}, GOES_ON),
        ({"limit": 1e-30}, GOES_ON),
    ],
)
def test_an_iteration_may_be_the_last(backend, changed, stop):
    cycle = Cycle(backend, 300, 4, **changed)
    cycle.iterate()
    assert cycle.state["stop"] == stop
    before = cycle.bits()
    cycle.run(Step.SCALE, W=cycle.basis[1])
    cycle.run(Step.DOTS, W=cycle.basis[2])
    cycle.run(Step.UPDATE, W=cycle.basis[2])
    cycle.run(Step.END)
    assert (before == cycle.bits()) == (stop != GOES_ON)


@pytest.mark.parametrize("flexible", [0, 1])
@pytest.mark.parametrize("left", [0.0, 1e-3, 0.5])
def test_a_breakdown_is_found_as_by_petsc(backend, left, flexible):
    """The product is in the space but for `left`. KSPGMRES takes 0 for no breakdown, since its bound is 0 then too."""
    cycle = Cycle(backend, 4, 2, haptol=1e-2, norm=1.0, next=0.5, flexible=flexible)
    cycle.basis[0] = cycle.adopted([1, 0, 0, 0])
    cycle.iterate(np.array([2, 0, left, 0]))
    state, column = cycle.state, cycle.state["columns"][0]
    assert column["happy"] == (left == 1e-3 or (left == 0 and flexible))
    assert np.isclose(column["norm"], left)
    assert state["stop"] == (TEST if column["happy"] else GOES_ON)
    length = np.hypot(2, left)
    expected = (
        (0, 0, 0.5, 0, 2) if column["happy"] else (2 / length, left / length, 1 / length, left / 2 / length, length)
    )
    found = [column[name] for name in ("cosine", "sine", "entry", "residual")] + [column["rotated"][0]]
    assert np.allclose(found, expected, rtol=1e-6)
    assert np.isclose(abs(state["next"]), 0.5 if column["happy"] else left / 2 / length)


def test_a_matrix_of_zeros_leaves_no_rotation(backend):
    cycle = Cycle(backend, 300, 3)
    cycle.iterate(np.zeros(300))
    column = cycle.state["columns"][0]
    assert (column["cosine"], column["sine"], column["norm"], column["rotated"][0]) == (0, 0, 0, 0)
    assert cycle.state["stop"] == TEST


@pytest.mark.parametrize("flexible", [0, 1])
def test_a_vector_of_zeros_is_scaled_as_by_petsc(backend, flexible):
    cycle = Cycle(backend, 10, 1, norm=0.0, flexible=flexible)
    cycle.basis[0] = cycle.adopted(np.zeros(10))
    with np.errstate(invalid="ignore"):
        cycle.run(Step.SCALE, W=cycle.basis[0])
    assert np.array_equal(cycle.vector(0), np.full(10, np.nan if flexible else 0.0), equal_nan=True)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_may_be_the_end(backend, number):
    cycle = Cycle(backend, 300, 3)
    product = np.ones(300)
    product[7] = number
    cycle.iterate(product)
    column = cycle.state["columns"][0]
    assert cycle.state["stop"] == TEST
    assert not np.isfinite(column["dots"][0]) and not column["happy"]


def test_ranks_end_an_iteration_once_their_sums_are_there(backend):
    cycle, alone = Cycle(backend, 300, 3, alone=0), Cycle(backend, 300, 3)
    alone.iterate()
    cycle.iterate()
    assert cycle.state["iteration"] == 0
    cycle.run(Step.END)
    assert cycle.state["columns"].tobytes() == alone.state["columns"].tobytes()
    assert cycle.state["iteration"] == 1


@pytest.mark.parametrize("n", [0, 300, MANY_ROWS])
def test_the_sum_within_an_update_has_the_bits_of_one_by_a_launch(backend, doubles, n):
    found = []
    for within in (False, True):
        cycle = Cycle(backend, n, 3, alone=0)
        cycle.iterate()
        other, own = two_ranks(doubles, [(3.7,)], flags=1)
        if within:
            cycle.write(square=0.0)
            cycle.run(Step.UPDATE_OF_RANKS, W=cycle.basis[1], ALPHA=np.int64(0), **tables_of(own))
        else:
            cycle.run(Step.UPDATE, W=cycle.basis[1])
            cycle.write(square=own.sum(np.array([cycle.state["square"]]))[0])
            cycle.run(Step.END)
        assert own.told() == [0, 0, 1] and cycle.state["iteration"] == 1
        vectors = [backend.to_host(vector).tobytes() for vector in cycle.basis if vector is not None]
        found.append([cycle.state["columns"].tobytes(), *vectors, backend.to_host(other.arrived).tobytes()])
    assert found[0] == found[1]


def test_a_rank_that_has_failed_ends_the_iterations_of_all(backend, doubles):
    cycle = Cycle(backend, 300, 3, alone=0)
    cycle.iterate()
    _, own = two_ranks(doubles, [(3.7,)], flags=1)
    for _ in range(2):  # the second time nothing is sent
        cycle.run(Step.UPDATE_OF_RANKS, W=None, ALPHA=np.int64(1), **tables_of(own))
        assert cycle.state["stop"] and np.isnan(cycle.state["square"])
        assert own.told() == [0, 0, 1]


def tables_of(rank):
    return {slot.name: table for slot, table in rank.slots.items()}


@pytest.mark.parametrize("n", [1, MANY_ROWS])
@pytest.mark.parametrize("step", [Step.ADD, Step.SET])
def test_a_solution_is_a_sum_with_weights(backend, n, step):
    cycle = Cycle(backend, n, 4)
    cycle.basis = [cycle.adopted(np.random.default_rng(k).standard_normal(n)) for k in range(5)]
    terms, weights = [2, 0, 4], [0.5, -2.0, 3.0]
    cycle.write(
        nterms=3,
        weights=[*weights, np.nan, np.nan],
        terms=[*(address(cycle.basis[k]) for k in terms), 0, 0],
    )
    start = np.arange(float(n)) if step == Step.ADD else np.full(n, np.nan)
    x = cycle.adopted(start)
    cycle.run(step, X=x)
    expected = sum(w * cycle.vector(k) for w, k in zip(weights, terms, strict=True))
    eps = 10 * np.finfo(backend.scalar).eps
    assert np.allclose(backend.to_host(x), expected + (start if step == Step.ADD else 0), rtol=eps, atol=10 * eps)


def test_an_answer_has_all_steps_and_the_state():
    with answered(Method.GMRES, restart=3) as a:
        assert all(a.answer.steps[step].nlaunches == 1 for step in Step)
        state = state_of(a, state_for(3))
        state["norm"] = 2
        w = np.array([1, 2], SCALAR)
        a.launch(a.answer.steps[Step.SCALE], {Slot.W: w})
        assert w.tolist() == [0.5, 1]
