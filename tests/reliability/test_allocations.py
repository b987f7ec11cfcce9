"""Allocations that fail in turn, and defects put in on purpose that the attack has to find."""

import pytest

from reliability import allocations


def ignore(_):
    pass


def tried(where, jobs, step=1, ranks=1, seed=0):
    rows = allocations.try_all(where, ranks, [[name, "aijpjds"] for name in jobs], step, seed, ignore)
    return sum(row.tried for row in rows), [line for row in rows for line in row.failures]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "step"), [("package", 1), ("petsc", 5), ("malloc", 5)], ids=["package", "petsc", "malloc"]
)
def test_an_operation_whose_memory_runs_out_fails_and_works_again(where, step):
    names = ["convert", "duplicate", "axpy same", "matMult", "ptap", "rart", "COO"]
    names += [] if where == "petsc" else ["GAMG set-up", "gpucg"]
    number, failures = tried(where, names, step)
    assert number > 3 and not failures, failures


@pytest.mark.slow
@pytest.mark.mpi
def test_memory_that_runs_out_on_one_of_two_ranks():
    names = ["transposeMatMult", "ptap", "GAMG set-up"]
    number, failures = tried("package", names, 9, ranks=2)
    assert number > 20 and not failures, failures


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), [("planted leak", "left behind"), ("planted crash", "status")])
def test_the_attack_finds(name, words):
    _, failures = tried("package", [name])
    assert any(words in line for line in failures), failures
