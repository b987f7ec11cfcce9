"""Mean latency of loads of x and of the matrix, by cache hit rates: Guo, Gropp, Olson 2016, section 3.2.

A load takes the clock cycles of the level that has it. What misses the first level asks the second, what misses that
one, memory.
"""

from __future__ import annotations

from typing import NamedTuple


class Levels(NamedTuple):
    """Clock cycles of a load from each level."""

    first: float
    second: float
    memory: float


X_LEVELS, MATRIX_LEVELS = Levels(110, 220, 600), Levels(110, 230, 600)
"""Of the paper's Kepler GPU: C_t, C_L2t and C_d of the texture cache, through which it reads x, and C_L1, C_L2_L1 and
C_d of the other loads. C_L1 is not given there, as no load hit it, and is taken for C_t: since Volta both are one."""


def mean_latency(first_hits: float, second_hits: float, levels: Levels) -> float:
    """C_X or C_A, in clock cycles: C_1 h_1 + C_2 h_2 (1 - h_1) + C_d (1 - h_2) (1 - h_1).

    Hit rates are shares from 0 to 1, of the second level of what the first has missed; ValueError for others.
    """
    for rate in (first_hits, second_hits):
        if not 0 <= rate <= 1:
            raise ValueError(f"hit rate {rate:g}: choose a share from 0 to 1")
    missed = 1 - first_hits
    return levels.first * first_hits + (levels.second * second_hits + levels.memory * (1 - second_hits)) * missed
