"""Symmetric patterns to be coarsened, and what PETSc's GAMG of type agg makes of them, in a few lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from petsc_gpufmt.bench.matrices import stencil_pattern


class Graph(NamedTuple):
    """Neighbours of each row, itself among them, in ascending order; int64 arrays."""

    rowptr: np.ndarray
    colidx: np.ndarray

    @property
    def nrows(self) -> int:
        return self.rowptr.size - 1

    @property
    def rows(self) -> list[np.ndarray]:
        return np.split(self.colidx, self.rowptr[1:-1]) if self.nrows else []


def of_edges(nrows: int, ends: np.ndarray, others: np.ndarray) -> Graph:
    own = np.arange(nrows)
    entries = np.unique(np.concatenate([ends * nrows + others, others * nrows + ends, own * nrows + own]))
    counts = np.bincount(entries // max(nrows, 1), minlength=nrows)
    return Graph(np.concatenate([[0], np.cumsum(counts)]), entries % max(nrows, 1))


def grid(stencil: str, n: int) -> Graph:
    return Graph(*(a.astype(np.int64) for a in stencil_pattern(stencil, n, np.dtype(np.int64))))


def geometric(nrows: int, radius: float, seed: int) -> Graph:
    """Points anywhere in a cube; those that are close to each other are neighbours."""
    points = np.random.default_rng(seed).random((nrows, 3))
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    return of_edges(nrows, *np.nonzero(distances < radius))


def with_lone_rows(graph: Graph, seed: int) -> Graph:
    """As if some rows were of Dirichlet's conditions: nothing but their diagonal is left of them."""
    ends = np.repeat(np.arange(graph.nrows), np.diff(graph.rowptr))
    lone = np.random.default_rng(seed).random(graph.nrows) < 0.15
    kept = ~lone[ends] & ~lone[graph.colidx]
    return of_edges(graph.nrows, ends[kept], graph.colidx[kept])


def star(nrows: int) -> Graph:
    return of_edges(nrows, np.zeros(nrows - 1, dtype=np.int64), np.arange(1, nrows))


def path(nrows: int) -> Graph:
    return of_edges(nrows, np.arange(nrows - 1), np.arange(1, nrows))


def nothing(nrows: int) -> Graph:
    return of_edges(nrows, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "7-point": lambda: grid("7point", 9),
    "27-point": lambda: grid("27point", 7),
    "geometric": lambda: geometric(600, 0.14, seed=110),
    "with lone rows": lambda: with_lone_rows(grid("7point", 8), seed=111),
    "long rows": lambda: star(700),
    "path": lambda: path(300),
    "lone rows": lambda: nothing(70),
    "one row": lambda: nothing(1),
    "no rows": lambda: nothing(0),
}


@cache
def graph(name: str) -> Graph:
    return GRAPHS[name]()


def some_order(nrows: int) -> np.ndarray:
    return np.random.default_rng(112).permutation(nrows)


def greedy_aggregates(graph: Graph, order: np.ndarray, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """As agg finds them, one root after another: the aggregate of each row, -1: none; and the turn of each row.

    A root comes first, then what it found, then what another root found that is further away.
    """
    rows = graph.rows
    within = rows
    if distance == 2:
        within = [np.unique(np.concatenate([rows[j] for j in row])) if row.size else row for row in rows]
    root = np.full(graph.nrows, -1)
    for i in order:
        if root[i] < 0 and within[i].size > 1:
            free = within[i][root[within[i]] < 0]
            root[free] = root[i] = i
    roots, first = np.flatnonzero(root == np.arange(graph.nrows)), root.copy()
    if distance == 2:  # rows go to the root next to them
        for i in roots:
            root[rows[i][~np.isin(rows[i], roots)]] = i
    number = np.full(graph.nrows + 1, -1)
    number[roots] = np.arange(roots.size)
    turns = np.where(root == np.arange(graph.nrows), 0, np.where(root == first, 1, 2))
    return number[root], turns
