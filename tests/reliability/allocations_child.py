"""Each allocation of each operation fails in turn; started by allocations.py: BEGIN JSON, on some ranks.

Where an allocation is made is `package`, `petsc` or `malloc`: by a call of PETSc's allocator in a file of the package, or in one of
PETSc, or by malloc and its like called in the package's library or in NumPy, which holds the planner's arrays.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support"), str(FOLDER.parent / "mpi")]

import petsc4py  # noqa: E402

petsc4py.init(["allocations", "-device_enable", "none"])

from failing import OUT_OF_MEMORY, Allocations  # noqa: E402
from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402
from reliability.operations import (  # noqa: E402
    OPERATIONS,
    OPTIONS,
    Maker,
    destroy,
    differences,
    numbers_of,
    wrong_products,
)

COMM = PETSc.COMM_WORLD.tompi4py()
FILES = {"package": "petsc_gpufmt/native/", "petsc": "src/"}
PLANTED = {}
"""Operations with a defect, for the test that an attack finds them."""


def leak(things):
    """Memory that nobody frees, if the next allocation fails."""
    address = ctypes.c_void_p()
    library = ctypes.CDLL(None)
    library.PetscMallocA.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]
    library.PetscMallocA.argtypes += [ctypes.c_size_t, ctypes.c_void_p]
    arguments = 1, 0, 7, b"Leaking", b"petsc_gpufmt/native/planted.c", 64
    assert library.PetscMallocA(*arguments, ctypes.byref(address)) in (0, OUT_OF_MEMORY)
    OPERATIONS["mult"].act(things)


PLANTED["planted leak"] = OPERATIONS["mult"]._replace(act=leak)
PLANTED["planted change"] = OPERATIONS["mult"]._replace(
    act=lambda things: (things["A"].scale(2.0), OPERATIONS["mult"].act(things), things["A"].scale(0.5))
)
PLANTED["planted crash"] = OPERATIONS["mult"]._replace(
    act=lambda things: (ctypes.string_at(0), OPERATIONS["mult"].act(things))
)


class PetscAllocator:
    """What PETSc's allocator is asked for in one place; and what of it is left when all is destroyed."""

    def __init__(self, where):
        self.files = FILES[where]

    def __enter__(self):
        self.watched = Allocations(self.files)
        self.watched.__enter__()
        return self

    def __exit__(self, *_):
        self.watched.__exit__()

    def arm(self, number):
        self.watched.failing, self.watched._count = number, 0

    def disarm(self):
        """How many there were since."""
        self.watched.failing = None
        return self.watched._count

    def left(self):
        return Counter(place for place in self.watched.alive.values())


class Malloc:
    """What malloc is asked for by the package's library and NumPy."""

    library = None

    def __init__(self, where):
        if Malloc.library is None:
            Malloc.library = library = ctypes.CDLL(None)
            library.FailingAllocationsSet.argtypes = [ctypes.c_long, ctypes.c_long]
            library.FailingAllocationsCount.restype = ctypes.c_long
            assert library.FailingAllocationsWatch(b"libpetscgpufmt") > 0
            assert library.FailingAllocationsWatch(b"_multiarray_umath") > 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.disarm()

    def arm(self, number):
        self.library.FailingAllocationsSet(number, 1 if number < 0 or number % 2 else 1 << 30)

    def disarm(self):
        count = self.library.FailingAllocationsCount()
        self.library.FailingAllocationsSet(-1, 0)
        return count

    def left(self):
        return Counter()


class Attempt:
    """An operation with allocation `number` failing on one rank; with -1, none fails."""

    def __init__(self, operation, mat_type, allocator, number, rank):
        self.things, self.before, self.after = {}, {}, {}
        self.bad = []
        with allocator:
            self.things = operation.prepare(Maker(mat_type, PETSc.COMM_WORLD))
            self.before = numbers_of(self.things)
            begun = set(self.things)
            allocator.arm(number if COMM.rank == rank or number < 0 else -1)
            self.error = self._error(operation)
            self.count = allocator.disarm()
            self.errors = COMM.allgather(self.error)
            self.after = numbers_of(self.things)
            if number >= 0:
                self._judge(operation, begun)
            destroy(self.things)
        allocator_left = allocator.left()
        self.left = allocator_left

    def _error(self, operation):
        try:
            operation.act(self.things)
        except PETSc.Error as e:
            return e.ierr
        except MemoryError:  # of NumPy, in petsc4py or in the operation itself
            return OUT_OF_MEMORY
        return 0

    def _judge(self, operation, begun):
        expected = EXPECTED[id(operation)]
        if any(code not in (0, OUT_OF_MEMORY) for code in self.errors):
            self.bad.append(f"errors {self.errors}")
        if not any(self.errors):
            self.bad += differences(self.after, expected)
        else:
            self.bad += differences(self.after, self.before, names=begun & set(self.before) - set(operation.changes))
            changed = set(operation.changes) & set(self.before) & set(self.after)
            self.bad += [
                f"{line}, and neither as before nor as wanted"
                for line in differences(self.after, self.before, expected, names=changed)
                if isinstance(self.things[line.split()[0]], PETSc.Mat)
            ]
            if all(self.errors):
                self._again(operation, expected, begun)
        self.bad += wrong_products(self.things)

    def _again(self, operation, expected, begun):
        """All ranks have failed: what there was before can be used as if nothing had been."""
        untouched = not differences(
            self.after, self.before, names={n for n in operation.changes if n in self.before and n != "z"}
        )
        if not all(COMM.allgather(untouched)):
            return
        destroy({name: thing for name, thing in self.things.items() if name not in begun})
        try:
            operation.act(self.things)
        except PETSc.Error as e:
            self.bad.append(f"fails again, with error {e.ierr}")
        else:
            self.bad += differences(numbers_of(self.things), expected)


EXPECTED = {}


def main():
    given = json.loads(sys.argv[2])
    for name, value in OPTIONS.items():
        PETSc.Options()[name] = value
    where, rank = given["where"], given["rank"]
    child = Child(int(sys.argv[1]), COMM.rank == 0, limit=15.0, agree=lambda flag: COMM.bcast(flag))
    allocator = Malloc(where) if where == "malloc" else PetscAllocator(where)
    step, offset = given["step"], given["offset"]
    for name, mat_type in given["jobs"]:
        operation = {**OPERATIONS, **PLANTED}[name]
        row = given["row"].format(operation.group)
        try:
            for _ in range(2):
                whole = Attempt(operation, mat_type, allocator, -1, rank)
        except PETSc.Error as e:
            child.bad(row, f"{name} of {mat_type} fails by itself: {str(e).splitlines()[-1]}")
            continue
        if any(whole.errors):
            child.tell(skipped=f"{name} of {mat_type}: {whole.errors}")
            continue
        EXPECTED[id(operation)] = whole.after
        count = COMM.bcast(whole.count, root=rank)
        names = {f"{name} of {mat_type}, allocation {n}": n for n in range((offset + len(name)) % step, count, step)}
        for title in child.tries(row, list(names)):
            attempt = Attempt(operation, mat_type, allocator, names[title], rank)
            bad = list(attempt.bad)
            left = attempt.left - whole.left
            if left and where != "petsc":
                bad.append(f"left behind: {', '.join(sorted(left))}")
            for at, lines in enumerate(COMM.allgather(bad)):
                if lines:
                    child.bad(row, f"{title}, rank {at}: {'; '.join(lines)}")
            for code in {code for code in attempt.errors if code}:
                child.tell(code=code)
            if len(set(attempt.errors)) > 1:
                child.tell(differ=f"{title}: {attempt.errors}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
