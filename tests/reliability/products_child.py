"""Products with random matrices, row by row; started by products.py: BEGIN JSON, on some ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init(["products"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402

COMM = PETSc.COMM_WORLD.tompi4py()
EPS = np.finfo(np.float64).eps
REPEATED, ZERO = 0.05, 0.03
"""Shares of the entries that are given once more, and that are 0."""


class Coordinates(NamedTuple):
    """Entries of a matrix, those of a row in any order, some of them more than once; the same on all ranks."""

    shape: tuple[int, int]
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    @property
    def transposed(self) -> Coordinates:
        return Coordinates(self.shape[::-1], self.columns, self.rows, self.values)

    def sums(self, terms: np.ndarray) -> np.ndarray:
        """Of one number of each entry, over those of each row, in extended precision."""
        order = np.argsort(self.rows, kind="stable")
        begins = np.concatenate([[0], np.cumsum(np.bincount(self.rows, minlength=self.shape[0]))])
        found, filled = np.zeros(self.shape[0], np.longdouble), np.diff(begins) > 0
        if terms.size:
            found[filled] = np.add.reduceat(terms[order].astype(np.longdouble), begins[:-1][filled])
        return found


def drawn(chance: np.random.Generator, nrows: int) -> Coordinates:
    """Rows of about one length, of very different ones, few long ones, most without entries; columns near or not."""
    ncols = int(chance.choice([nrows, 1 + chance.integers(2 * nrows), 1 + chance.integers(50)]))
    kind = chance.integers(5)
    if kind == 0:
        lengths = chance.integers(0, 12, nrows)
    elif kind == 1:
        lengths = np.minimum(chance.pareto(1.2, nrows) * 3, 2000).astype(int)
    elif kind == 2:
        lengths = np.where(chance.random(nrows) < 0.002, 3000, chance.integers(0, 4, nrows))
    elif kind == 3:
        lengths = np.where(chance.random(nrows) < 0.1, chance.integers(1, 9, nrows), 0)
    else:
        lengths = np.repeat(chance.integers(0, 5, -(-nrows // 3)) * 3, 3)[:nrows]
    rows = np.repeat(np.arange(nrows), lengths)
    columns = chance.integers(0, ncols, rows.size)
    if chance.random() < 0.5:  # about the diagonal
        columns = (rows * ncols // nrows + chance.integers(-40, 41, rows.size)) % ncols
    values = chance.standard_normal(rows.size) * 10.0 ** chance.integers(-8, 9, rows.size)
    values[chance.random(rows.size) < ZERO] = 0.0
    again = np.flatnonzero(chance.random(rows.size) < REPEATED)
    order = chance.permutation(rows.size + again.size)
    return Coordinates(
        (nrows, ncols), *(np.concatenate([array, array[again]])[order] for array in (rows, columns, values))
    )


def matrix_of(entries: Coordinates, mat_type: str) -> PETSc.Mat:
    """Each rank gives a part of the entries, wherever their rows are."""
    A = PETSc.Mat().create(comm=PETSc.COMM_WORLD)
    A.setSizes(entries.shape)
    A.setType(mat_type)
    mine = slice(COMM.rank, None, COMM.size)
    A.setPreallocationCOO(*(array[mine].astype(PETSc.IntType) for array in (entries.rows, entries.columns)))
    A.setValuesCOO(entries.values[mine])
    return A


def fill(v: PETSc.Vec, numbers: np.ndarray) -> None:
    v.setArray(numbers[slice(*v.getOwnershipRange())])


def wrong_rows(
    entries: Coordinates, x: np.ndarray, y: PETSc.Vec, added: np.ndarray | float = 0.0, parts: int = 1
) -> np.ndarray:
    """Rows of this rank in which `y` is not `added` + A x to within what is promised; ranks add up so many parts."""
    terms = entries.values.astype(np.longdouble) * x[entries.columns]
    exact = entries.sums(terms) + added
    lengths = np.bincount(entries.rows, minlength=entries.shape[0])
    bound = (lengths + 1 + parts) * EPS * (entries.sums(abs(terms)) + abs(added))
    mine = slice(*y.getOwnershipRange())
    return mine.start + np.flatnonzero(~(abs(y.array_r - exact[mine]) <= bound[mine]))


def faults(entries: Coordinates, mat_type: str, chance: np.random.Generator, planted: bool) -> list[str]:
    """What is wrong with products of this matrix, on this rank."""
    A = matrix_of(entries, mat_type)
    x, y = A.createVecs()
    back = x.duplicate()
    given, added = (chance.standard_normal(n) for n in entries.shape[::-1])
    told = []

    def tell(what: str, wrong: np.ndarray) -> None:
        if wrong.size:
            told.append(f"{what}: {wrong.size} rows of {entries.shape[0]} x {entries.shape[1]}, the first {wrong[0]}")

    fill(x, given)
    y.set(np.nan)
    A.mult(x, y)
    if planted and y.getLocalSize():
        size = abs(y.array_r)
        y.setArray(np.where(size == size.max(), y.array_r * (1 + 1e-10), y.array_r))
    tell("mult", wrong_rows(entries, given, y))
    clean = y.array_r.copy()
    fill(y, added)
    A.multAdd(x, y, y)
    tell("multAdd", wrong_rows(entries, given, y, added))
    fill(y, added)
    back.set(np.nan)
    A.multTranspose(y, back)
    tell("multTranspose", wrong_rows(entries.transposed, added, back, parts=COMM.size))
    fill(back, given)
    A.multTransposeAdd(y, back, back)
    tell("multTransposeAdd", wrong_rows(entries.transposed, added, back, given, COMM.size))

    spoiled = chance.choice(given.size, min(3, given.size), replace=False)
    given[spoiled] = [np.inf, np.nan, -np.inf][: spoiled.size]
    fill(x, given)
    A.mult(x, y)
    mine = slice(*y.getOwnershipRange())
    reached = entries.sums(np.isin(entries.columns, spoiled).astype(int))[mine] > 0
    same = y.array_r.view(np.uint64) == clean.view(np.uint64)
    tell("NaN in x", mine.start + np.flatnonzero(np.where(reached, np.isfinite(y.array_r), ~same & ~planted)))
    for thing in (A, x, y, back):
        thing.destroy()
    return told


def main() -> None:
    given = json.loads(sys.argv[2])
    child = Child(int(sys.argv[1]), COMM.rank == 0, limit=100.0, agree=lambda flag: COMM.bcast(flag))
    for mat_type in given["types"]:
        titles = [f"{mat_type}, seed {given['seed']}, batch {k}" for k in range(given["batches"])]
        for title in child.tries(mat_type, titles):
            chance = np.random.default_rng([given["seed"], titles.index(title)])
            few = chance.integers(1, 9)  # rows, and ranks that have none of them
            cuts = np.unique([few, *chance.integers(few, given["rows"], chance.integers(4))])
            for nrows in np.diff([0, *cuts, given["rows"]]):
                told = faults(drawn(chance, int(nrows)), mat_type, chance, given["planted"])
                for line in sum(COMM.allgather(told), []):
                    child.bad(mat_type, f"{title}: {line}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
