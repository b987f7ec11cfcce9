"""Patterns of sums of matrices: on the host, as device kernels, and as the planner answers the library."""

import copy
import ctypes
import functools

import numpy as np
import pytest
from answers import Answer, failing, requested_place, settled_tokens
from emulation.backend import EmulatedBackend
from fake_driver import fake_driver
from places import EVERY_PLACE, INDEX, SCALAR, make_backend

from petsc_gpufmt import errors
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.patterns import union
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import abi, planner

pytestmark = pytest.mark.slow

SOURCES = (Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES)


@pytest.fixture(params=EVERY_PLACE)
def backend(request):
    return make_backend(request, request.param)


class Rows:
    """Random sorted rows of the given lengths, whose columns and rows lie somewhere in a sum."""

    def __init__(self, lengths, places, targets=None, seed=90, shifted=union.NONE_SHIFTED, rows=None):
        random = np.random.default_rng(seed)
        self.nrows, self.ncols = len(lengths), len(places)
        self.rowptr = np.concatenate(([0], np.cumsum(lengths))).astype(INDEX)
        columns = [np.sort(random.choice(self.ncols, length, replace=False)) for length in lengths]
        self.colidx = np.concatenate([*columns, []]).astype(INDEX)
        self.places = np.array(places, dtype=INDEX)
        self.targets = None if targets is None else np.array(targets, dtype=INDEX)
        self.shifted, self.rows = shifted, rows
        self.others = np.delete(self.places, np.s_[shifted.first : shifted.last])

    def target(self, row):
        """The row of the sum to which one belongs; -1: to none."""
        if self.targets is not None:
            return self.targets[row]
        if self.rows is None:
            return row
        first, last, outside = self.rows
        kept = [k for k in range(self.nrows) if (first <= k < last) != outside]
        return kept.index(row) if row in kept else -1

    def summand(self, xp):
        pattern = CsrPattern(self.nrows, self.ncols, xp.asarray(self.rowptr), xp.asarray(self.colidx))
        targets = None if self.targets is None else xp.asarray(self.targets)
        return union.Summand(pattern, xp.asarray(self.others), targets, self.shifted, self.rows)


def expected(nrows, inner, summands):
    """For each part: (rowptr, places, begins, index), entry after entry."""
    firsts = np.cumsum([0, *(s.colidx.size for s in summands)])
    parts = [([0], [], [0], []) for _ in range(2)]
    for i in range(nrows):
        terms: dict[int, list[int]] = {}
        for s, first in zip(summands, firsts, strict=False):
            for k in range(s.nrows):
                if s.target(k) == i:
                    for e in range(s.rowptr[k], s.rowptr[k + 1]):
                        terms.setdefault(int(s.places[s.colidx[e]]), []).append(int(first + e))
        for place in sorted(terms):
            _, places, begins, index = parts[not inner[0] <= place < inner[1]]
            places.append(place)
            index += terms[place]
            begins.append(len(index))
        for rowptr, places, _, _ in parts:
            rowptr.append(len(places))
    return [tuple(np.array(a, dtype=INDEX) for a in part) for part in parts]


def every(count, step=1, first=0):
    return range(first, count, step)


@functools.cache
def cases():
    """name: (shape, inner, summands)"""
    random = np.random.default_rng(91)
    lengths = random.integers(0, 12, 600)
    some = np.where(random.random(600) < 0.1, random.integers(0, 30, 600), 0)
    order = random.permutation(600)
    coarse = np.where(order < 250, order, -1)
    return {
        "one": ((600, 40), (0, 40), [Rows(lengths, every(40))]),
        "many rows and columns": (
            (2500, 3000),
            (900, 950),
            [Rows(np.arange(2500) % 5, every(3000)), Rows([4], every(9))],
        ),
        "one in two parts": ((600, 40), (11, 29), [Rows(lengths, every(40))]),
        "outer columns only": ((600, 40), (17, 17), [Rows(lengths, every(40))]),
        "blocks of a matrix": (
            (600, 70),
            (0, 70),
            [Rows(lengths, range(20, 50)), Rows(some, [*range(20), *range(50, 70)])],
        ),
        "columns in common": ((600, 60), (5, 55), [Rows(lengths, every(60, 2)), Rows(some, every(60), seed=92)]),
        "three": (
            (600, 60),
            (20, 40),
            [Rows(lengths, every(60, 2)), Rows(some, every(60), seed=92), Rows(lengths, every(60, 3), seed=93)],
        ),
        "rows elsewhere": (
            (250, 40),
            (0, 20),
            [Rows(lengths, every(40), coarse), Rows(some, every(40), coarse, seed=92)],
        ),
        "rows that come several times": (
            (300, 40),
            (10, 40),
            [
                Rows(lengths, every(40), order // 2),
                Rows(lengths[:300], every(40), seed=94),
                Rows([5] * 70, every(40), [7, 299] * 35),
            ],
        ),
        "rows of other lengths": (
            (9, 4000),
            (1000, 2000),
            [
                Rows([3000, 0, 1, 700, 0, 0, 9, 2, 4000], every(4000)),
                Rows([0, 0, 5, 4000, 0, 0, 0, 1, 50], every(4000)),
            ],
        ),
        "columns of a rank and rows of others": (
            (70, 90),
            (10, 60),
            [
                Rows(
                    [k % 9 for k in range(80)], range(5, 65), None, 92, union.Shifted(5, 55, 5), union.RowRange(10, 60)
                ),
                Rows([5] * 80, [2, *range(40, 70)], None, 93, union.NONE_SHIFTED, union.RowRange(20, 30, outside=True)),
                Rows([1, 8] * 35, range(10, 60), None, 94, union.Shifted(0, 50, 10), union.RowRange(0, 70)),
            ],
        ),
        "one without rows": ((600, 40), (0, 30), [Rows(lengths, every(40)), Rows([], [])]),
        "empty rows": ((5, 8), (2, 6), [Rows([0] * 5, every(8)), Rows([0, 0, 3, 0, 0], every(8))]),
        "no entries": ((5, 8), (2, 6), [Rows([0] * 5, every(8))]),
        "no rows": ((0, 8), (2, 6), [Rows([], every(8)), Rows([3], every(8), [-1])]),
        "to none": ((3, 8), (2, 6), [Rows([3, 2], every(8), [-1, -1])]),
    }


LARGE = "many rows and columns"


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow) if name == LARGE else name for name in cases()])
def case(request):
    return copy.deepcopy(cases()[request.param])  # for the test alone


def test_entries_and_terms(backend, case):
    shape, inner, summands = case
    parts, ghosts = union.merge(shape, inner, [s.summand(backend.xp) for s in summands], backend)
    ghosts = backend.to_host(ghosts)
    reference = expected(shape[0], inner, summands)
    assert ghosts.tolist() == np.unique(reference[1][1]).tolist()
    for part, numbers, (rowptr, places, begins, index) in zip(
        parts, (np.arange(inner[0], inner[1]), ghosts), reference, strict=True
    ):
        assert backend.to_host(part.rowptr).tolist() == rowptr.tolist()
        assert numbers[backend.to_host(part.colidx)].tolist() == places.tolist()
        assert backend.to_host(part.index).tolist() == index.tolist()
        if index.size == places.size:
            assert part.begins is None
        else:
            assert backend.to_host(part.begins).tolist() == begins.tolist()
        assert all(a is None or a.dtype == INDEX for a in (part.rowptr, part.colidx, part.begins, part.index))


def test_a_sum_keeps_the_memory_of_its_parts_alone(emulation_folder):
    with fake_driver(emulation_folder) as driver:
        device = CudaBackend(SCALAR, INDEX, device=0)
        summand = Rows([3, 2, 0], every(9000)).summand(Adopting(device))
        before = driver.used
        parts, _ = union.merge((3, 9000), (0, 5000), [summand], device)
        device.memory.trim()  # what no array uses is given back
        assert parts[0].rowptr.size == 4 and driver.used - before < 9000 * device.index.itemsize


def check_parts(shape, inner, summands, backend):
    """Those that a backend makes, whose arrays are its own."""
    parts, ghosts = union.merge(shape, inner, [s.summand(Adopting(backend)) for s in summands], backend)
    reference = expected(shape[0], inner, summands)
    for part, numbers, (rowptr, places, _, index) in zip(
        parts, (np.arange(*inner), backend.to_host(ghosts)), reference, strict=True
    ):
        assert backend.to_host(part.rowptr).tolist() == rowptr.tolist()
        assert numbers[backend.to_host(part.colidx)].tolist() == places.tolist()
        assert backend.to_host(part.index).tolist() == index.tolist()


@pytest.mark.parametrize("name", ["one in two parts", "many rows and columns"])
def test_kernels_alone_compute_with_arrays_of_a_device(name, emulation_folder):
    backend = EmulatedBackend(SCALAR, INDEX, emulation_folder, device_like=True)
    shape, inner, summands = cases()[name]
    summands = [copy.copy(s) for s in summands]
    summands[0].targets = np.arange(summands[0].nrows, dtype=INDEX)
    check_parts(shape, inner, summands, backend)


@pytest.mark.parametrize("name", ["columns of a rank and rows of others", "rows that come several times", "three"])
def test_programs_of_a_device(name, emulation_folder):
    with fake_driver(emulation_folder):
        check_parts(*cases()[name], CudaBackend(SCALAR, INDEX, device=0))


class Adopting:
    """A module whose arrays are those of a backend."""

    def __init__(self, backend):
        self.asarray = backend.adopt


@pytest.mark.parametrize("terms", [[2**31 - 1, 1, 0, 0], [0, 0, 2**30, 2**30]])
def test_more_terms_than_an_index_counts_are_refused(monkeypatch, terms):
    backend, rows = HostBackend(SCALAR, INDEX), Rows([3, 2], range(8))
    monkeypatch.setattr(backend, "largest_index", 2**31 - 1)
    monkeypatch.setattr(backend, "first", lambda array, count: terms)
    with pytest.raises(errors.IndexOverflowError, match=f"{sum(terms[:2])} and {sum(terms[2:])} terms, a PetscInt of"):
        union.merge((2, 8), (0, 8), [rows.summand(np)], backend)


class AnsweredUnion(Answer):
    """The pattern of a sum, and the plans of its values."""

    def __init__(self, shape, inner, summands, **fields):
        self.summands = summands
        request = abi.UnionRequestStruct(
            nrows=shape[0],
            ncols=shape[1],
            low=inner[0],
            high=inner[1],
            nsummands=len(summands),
            summands=(abi.SummandStruct * 3)(*map(self.summand, summands)),
            place=requested_place(),
        )
        super().__init__(abi.Ask.UNION, request, abi.UnionAnswerStruct(), fields)

    @staticmethod
    def summand(s):
        pattern = abi.OperandStruct(s.nrows, s.ncols, s.colidx.size, s.rowptr.ctypes.data, s.colidx.ctypes.data)
        targets = None if s.targets is None else s.targets.ctypes.data
        rows = s.rows or union.RowRange(0, s.nrows)
        return abi.SummandStruct(pattern, *s.shifted, s.others.ctypes.data, targets, *rows)

    def __exit__(self, *_):
        super().__exit__()
        for part in self.answer.parts:
            if part.token:
                planner._planner.release(part.token)

    @staticmethod
    def array(address, size):
        return (
            np.frombuffer((ctypes.c_char * (size * INDEX.itemsize)).from_address(address), INDEX)
            if size
            else np.zeros(0, INDEX)
        )


def test_an_answer_has_patterns_and_the_plans_of_their_values(case):
    shape, inner, summands = case
    before = settled_tokens()
    values = [np.cos(np.arange(s.colidx.size) + 10.0 * k).astype(SCALAR) for k, s in enumerate(summands)]
    slots = {slot: np.zeros(0, dtype=SCALAR) for slot in SOURCES} | dict(zip(SOURCES, values, strict=False))
    reference = expected(shape[0], inner, summands)
    with AnsweredUnion(shape, inner, summands) as a:
        assert a.error == (0, "") and planner.owned_tokens() == before + 3
        answer = a.answer
        for s in summands:
            s.rowptr[:], s.colidx[:], s.others[:] = -1, -1, -1
        ghosts = a.array(answer.ghosts, answer.nghosts)
        for part, numbers, (rowptr, places, begins, index) in zip(
            answer.parts, (np.arange(inner[0], inner[1]), ghosts), reference, strict=True
        ):
            assert (part.nnz, part.nterms) == (places.size, index.size)
            assert a.array(part.rowptr, shape[0] + 1).tolist() == rowptr.tolist()
            assert numbers[a.array(part.colidx, part.nnz)].tolist() == places.tolist()
            total = np.full(places.size, np.nan, dtype=SCALAR)
            a.launch(part.sum, {**slots, Slot.Y: None, Slot.RESULT: total})
            terms = np.concatenate(values)[index]
            exact = np.array(
                [sum(terms[b:e][1:], start=terms[b]) for b, e in zip(begins[:-1], begins[1:], strict=True)], SCALAR
            )
            assert total.tobytes() == exact.tobytes()
    assert planner.owned_tokens() == before


def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line():
    rows = Rows([3, 2], range(8))
    rows.colidx[0] = 9
    with AnsweredUnion((2, 8), (0, 8), [rows, Rows([1, 1], range(8))]) as a:
        assert a.token == 0 and a.error[0] == errors.PatternError.petsc_code
        assert not any(part.token for part in a.answer.parts)
        sizes = "2 x 8 with 5 nonzeros + 2 x 8 with 2 nonzeros"
        assert (
            a.error[1].startswith(f"pattern of a sum {sizes} on host: column indices lie in [")
            and "\n" not in a.error[1]
        )


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, union, "merge", MemoryError("first try"))
    with AnsweredUnion((2, 8), (0, 8), [Rows([3, 2], range(8))]) as a:
        assert a.error == (0, "") and len(calls) == 2
