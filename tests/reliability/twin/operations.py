"""The table of operations, and what an operation is given.

An operation is a function of a sibling and a `Step`. What it returns is compared: arrays of reals within the bound, all
else exactly. It takes all that is random from the step, so each sibling does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from reliability.twin.matrices import Pattern, Sibling


@dataclass
class Step:
    """`number` is all that an operation is drawn from; `A` and `B` are the patterns that type aij has before it."""

    number: int
    rng: np.random.Generator
    A: Pattern
    B: Pattern

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]


Operate = Callable[[Sibling, Step], Any]


@dataclass(frozen=True)
class Operation:
    """`rounds`: how many roundings in a row what it returns takes, of a matrix with m rows and n columns.

    Those stay with the matrix if it `writes`. `doubles`: its operands are results of earlier operations.
    """

    function: Operate
    rounds: Callable[[int, int], int]
    writes: bool = False
    doubles: bool = False


def once(m: int, n: int) -> int:
    return 2


def rows_long(m: int, n: int) -> int:
    """Sums over a row or a column."""
    return max(m, n) + 3


def rows_long_twice(m: int, n: int) -> int:
    """Sums of products of three factors."""
    return 2 * max(m, n) + 6


def all_entries(m: int, n: int) -> int:
    return m * n + 3


OPERATIONS: dict[str, Operation] = {}


def _adder(writes: bool) -> Callable:
    def with_arguments(rounds: Callable[[int, int], int] = once, doubles: bool = False):
        def add(function: Operate) -> Operate:
            OPERATIONS[function.__name__] = Operation(function, rounds, writes, doubles)
            return function

        return add

    return with_arguments


looks = _adder(writes=False)
changes = _adder(writes=True)
