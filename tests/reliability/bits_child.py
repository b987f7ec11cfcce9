"""Repeats each operation and compares the bits of its results; started by same_bits.py: BEGIN JSON, on some ranks.

The first process writes the digest of each job beside `digests`, the next one compares its own with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init(["same_bits"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402
from reliability.operations import OPERATIONS, OPTIONS, Maker, destroy  # noqa: E402

COMM = PETSc.COMM_WORLD.tompi4py()


class Irregular(Maker):
    """Rows of very different lengths, and values of different sizes: another order of additions has other bits."""

    def filled(self, nrows, ncols, offsets, mat_type=""):
        A = self.empty(nrows, ncols, mat_type)
        A.setPreallocationCSR(rows(*A.getOwnershipRange(), nrows, ncols, offsets))
        A.assemble()
        return A


@cache
def rows(first, end, nrows, ncols, offsets):
    """Some rows of such a matrix, as CSR: with fewer offsets, the pattern is part of that with more."""
    rowptr, colidx, entries = [0], [], []
    for row in range(first, end):
        chance = np.random.default_rng([row, nrows, ncols])
        more = chance.integers(ncols, size=ncols // 3 if row % 97 == 5 else chance.integers(6))
        near = [row * ncols // nrows + offset for offset in offsets]
        columns = np.unique(np.concatenate([near, more]) % ncols)
        values = chance.uniform(0.1, 1.0, columns.size) * 10.0 ** chance.integers(-3, 1, columns.size)
        if nrows == ncols:
            values[columns == row] = 1.0 + values.sum()
            values[columns != row] *= -1
        rowptr.append(rowptr[-1] + columns.size)
        colidx.append(columns)
        entries.append(values)
    return np.array(rowptr, PETSc.IntType), np.concatenate(colidx).astype(PETSc.IntType), np.concatenate(entries)


def arrays(thing):
    """What a result consists of, on this rank."""
    if isinstance(thing, PETSc.Vec):
        return [thing.array_r]
    if isinstance(thing, PETSc.Mat) and thing.handle and thing.assembled:
        return thing.getValuesCSR()
    if isinstance(thing, PETSc.KSP):
        found = [thing.getConvergenceHistory()]
        pc = thing.getPC()
        if pc.getType() == "gamg" and pc.handle:
            for level in range(pc.getMGLevels()):
                matrices = [pc.getMGSmoother(level).getOperators()[0]]
                matrices += [pc.getMGInterpolation(level)] if level else []
                found += [array for A in matrices for array in A.getValuesCSR()]
        return found
    return []


def digest(things):
    """Of the bytes of all results, on all ranks."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(things):
        for array in arrays(things[name]):
            found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return " ".join(COMM.allgather(found.hexdigest()))


def prepared(operation, make):
    things = operation.prepare(make)
    if "ksp" in things:
        things["ksp"].setConvergenceHistory(reset=True)
    return things


def sometimes(things):
    """An operation with a defect, for the test that the attack finds it."""
    OPERATIONS["mult"].act(things)
    sometimes.calls += 1
    if sometimes.calls == 5:
        off_by_a_bit(things["z"])


def by_process(things):
    OPERATIONS["mult"].act(things)
    if os.environ["PYTHONHASHSEED"] == "1":
        off_by_a_bit(things["z"])


def off_by_a_bit(v):
    v.setValue(1, np.nextafter(v.getValue(1), np.inf))
    v.assemble()


sometimes.calls = 0
PLANTED = {
    "planted now and then": OPERATIONS["mult"]._replace(act=sometimes),
    "planted in a process": OPERATIONS["mult"]._replace(act=by_process),
}


def repeated(operation, make, repeats):
    """The digest of the first result, and which repeats differ."""
    first, wrong, things = "", [], None
    for number in range(repeats):
        anew = things is None or number % 2 == 0 or operation.changes != ("z",)
        if anew:
            if things is not None:
                destroy(things)
            things = prepared(operation, make)
        operation.act(things)
        found = digest(things)
        first = first or found
        if found != first:
            wrong.append(number)
    destroy(things)
    return first, wrong


def main():
    given = json.loads(sys.argv[2])
    for name, value in {**OPTIONS, "mat_gpufmt_timed_after": 0}.items():
        PETSc.Options()[name] = value
    child = Child(int(sys.argv[1]), COMM.rank == 0, limit=50.0, agree=lambda flag: COMM.bcast(flag))
    path = Path(given["digests"])
    known = COMM.bcast(json.loads(path.read_text()) if path.exists() else {})
    for name, mat_type in given["jobs"]:
        operation = {**OPERATIONS, **PLANTED}[name]
        title = f"{name} of {mat_type}"
        for _ in child.tries(f"{operation.group} of {mat_type}", [title]):
            make = Irregular(mat_type, PETSc.COMM_WORLD, given["count"])
            first, wrong = repeated(operation, make, given["repeats"])
            if wrong:
                child.bad(f"{operation.group} of {mat_type}", f"{title}: other bits in repeats {wrong[:20]}")
            if known.setdefault(title, first) != first:
                child.bad(f"{operation.group} of {mat_type}", f"{title}: other bits than in the other process")
            if COMM.rank == 0:
                path.write_text(json.dumps(known))
    child.tell(end=True)


if __name__ == "__main__":
    main()
