"""A few blocks of what long runs repeat, and memory that does not come back, which the attack has to find."""

import pytest

from reliability import long_runs

pytestmark = pytest.mark.slow


def ignore(_):
    pass


SMALL = {
    "create, convert, multiply, destroy": 400,
    "products": 2000,
    "sparse products": 200,
    "set-ups and solves of GAMG": 40,
    "alive at once": 400,
}


def test_memory_comes_back():
    rows = long_runs.try_all(SMALL, 1, ignore, seconds=100.0)
    assert {row.what.removesuffix(", one rank"): row.tried for row in rows} == SMALL
    assert [line for row in rows for line in row.failures] == []


def test_a_choice_of_what_is_repeated(monkeypatch):
    asked = []
    monkeypatch.setattr(long_runs, "try_all", lambda numbers, ranks, _: asked.append((numbers, ranks)) or [])
    long_runs.run(0.1, 0, ignore, ["products", "4 ranks"])
    long_runs.run(0.1, 0, ignore, ["create, convert, multiply, destroy", "2 ranks"])
    assert asked == [({"products": 100_000}, 4), ({"create, convert, multiply, destroy": 10_000}, 2)]
    with pytest.raises(SystemExit, match="--only '3 ranks': choose of create, .*, one rank, 2 ranks, 4 ranks"):
        long_runs.run(0.1, 0, ignore, ["3 ranks"])


@pytest.mark.mpi
def test_what_is_not_destroyed_comes_back_on_two_ranks():
    (row,) = long_runs.try_all({"without destroy()": 400}, 2, ignore, seconds=100.0)
    assert (row.tried, row.failures) == (400, [])


@pytest.mark.mpi
def test_the_attack_finds_a_product_with_other_bits():
    (row,) = long_runs.try_all({"planted bit": 200}, 2, ignore, seconds=100.0)
    assert any("rank 1: " in line and "entries were not always" in line for line in row.failures), row


@pytest.mark.parametrize(("name", "words"), [("planted hoard", "bytes more than"), ("planted plan", " 10 plans")])
def test_the_attack_finds(name, words):
    (row,) = long_runs.try_all({name: 1000 if name == "planted hoard" else 100}, 1, ignore, seconds=100.0)
    assert any(words in line for line in row.failures), row
