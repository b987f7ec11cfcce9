"""Products of matrices that pass limits; started by limits.py: BEGIN JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init(["limits"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402

REFUSALS = (PETSc.Error(55).ierr, PETSc.Error(56).ierr)  # PETSC_ERR_MEM, PETSC_ERR_SUP
SLICE = 32
"""Rows that share their padding in a slice of pJDS, and of which one is long."""


def padded(rows, longest):
    """CSR arrays of a matrix that needs `rows * longest` stored entries where rows are not sorted."""
    first = np.arange(rows)
    lengths = np.where(first % SLICE == 0, longest, 1)
    return of_lengths(np.minimum(first, rows - longest), lengths), rows


def with_a_long_row(entries, rows):
    """CSR arrays of some rows of one entry, but for one that has so many."""
    lengths = np.ones(rows, np.int64)
    lengths[rows // 2] = entries
    return of_lengths(np.zeros(rows, np.int64), lengths), entries


def of_lengths(first, lengths):
    """Rows of entries side by side, with whole numbers whose sums are exact."""
    rowptr = np.concatenate([[0], np.cumsum(lengths)])
    cols = np.repeat(first - rowptr[:-1], lengths)
    cols += np.arange(rowptr[-1])
    return rowptr.astype(PETSc.IntType), cols.astype(PETSc.IntType), 1.0 + cols % 3


def product_of(mat_type, csr, ncols, off_by):
    """What is wrong with a product, '' if nothing is."""
    rowptr, cols, values = csr
    A = PETSc.Mat().createAIJ((rowptr.size - 1, ncols), csr=csr, comm=PETSc.COMM_SELF)
    x, y = A.createVecs()
    numbers = np.arange(ncols) % 5.0
    x.setArray(numbers)
    expected = np.add.reduceat(values * numbers[cols], rowptr[:-1])
    try:
        A = A.convert(mat_type)
        x_there, y = A.createVecs()
        x_there.setArray(numbers)
        A.mult(x_there, y)
    except PETSc.Error as e:
        words = str(e).splitlines()[-1]
        return "" if e.ierr in REFUSALS and "GB" in words else f"error {e.ierr}: {words[:200]}"
    wrong = np.flatnonzero(y.array_r != expected + off_by)
    A.destroy()
    return f"{wrong.size} rows, row {wrong[0]} is {y.array_r[wrong[0]]}, not {expected[wrong[0]]}" if wrong.size else ""


MATRICES = {"padded": padded, "long row": with_a_long_row, "long row, padded": with_a_long_row}


def main():
    given = json.loads(sys.argv[2])
    child = Child(int(sys.argv[1]), True, limit=given["seconds"], seconds=given["seconds"])
    for row, kind, arguments, types, options in given["cases"]:
        made = None
        for mat_type in child.tries(row, types):
            for name, value in options.items():
                PETSc.Options()[name] = value
            made = made or MATRICES[kind](*arguments)
            if bad := product_of(mat_type, *made, given["off_by"]):
                child.bad(row, f"{mat_type}: {bad}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
