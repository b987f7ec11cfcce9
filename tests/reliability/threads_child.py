"""Threads with matrices of their own; started by threads.py: BEGIN JSON."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init(["threads"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402
from reliability.operations import Maker  # noqa: E402

OFTEN = 1e-5
"""Seconds after which Python goes on with another thread, so that they meet in many places."""
NEW_AFTER = 20
"""Products after which a thread makes another matrix, and so another plan."""


def expected(A, x):
    rowptr, colidx, values = A.getValuesCSR()
    return np.add.reduceat(values * x[colidx], rowptr[:-1])


def products(number, mat_type, count, bad, planted):
    """What one thread does; `planted` is a defect, for the test that the attack finds it."""
    A = None
    try:
        for k in range(count):
            if k % NEW_AFTER == 0:
                if A is not None:
                    A.destroy()
                A = Maker(mat_type, PETSc.COMM_SELF, 40 + 8 * number).square()
                x, y = A.createVecs()
            x.setArray(np.cos(number + k + np.arange(x.getSize())))
            A.scale(-1.0)
            A.mult(x, y)
            if planted and (number, k) == (1, 3):
                y.scale(1.0 + 1e-9)
            if not np.allclose(y.getArray(), expected(A, x.getArray()), rtol=1e-13, atol=1e-13):
                bad.append(f"thread {number}, product {k}: wrong")
                return
    except Exception as e:
        bad.append(f"thread {number}: {type(e).__name__}: {str(e).splitlines()[-1]}")


def main():
    given = json.loads(sys.argv[2])
    sys.setswitchinterval(OFTEN)
    child = Child(int(sys.argv[1]), True, limit=100.0)
    for mat_type in given["types"]:
        for title in child.tries(mat_type, [f"{given['threads']} threads with {mat_type}"]):
            bad = []
            arguments = mat_type, given["products"], bad, given["planted"]
            threads = [threading.Thread(target=products, args=(k, *arguments)) for k in range(given["threads"])]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for line in bad:
                child.bad(mat_type, f"{title}: {line}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
