"""Each allocation of each operation fails in turn; started by allocations.py: BEGIN JSON, on some ranks.

Where an allocation is made is `package`, `petsc` or `malloc`: by PETSc's allocator in a file of the package, or in
one of PETSc, or by malloc and its like called in the package's library or in NumPy, which holds the planner's arrays.
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

from failing import FREE, LIBRARY, OUT_OF_MEMORY, Allocations  # noqa: E402
from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.children import Child  # noqa: E402
from reliability.operations import (  # noqa: E402
    LOST,
    OPERATIONS,
    OPTIONS,
    Maker,
    destroy,
    differences,
    numbers_of,
    usable,
    wrong_products,
)

COMM = PETSc.COMM_WORLD.tompi4py()
FILES = {"package": "petsc_gpufmt/native/", "petsc": "src/"}
LOSES = {
    "convert": "MatConvert() in src/mat/interface/matrix.c",
    "transpose": "MatTranspose_SeqAIJ() in src/mat/impls/aij/seq/symtranspose.c",
    "submatrix": "MatCreateSubMatrix_SeqAIJ() in src/mat/impls/aij/seq/aij.c",
    "axpy different": "MatAXPY_SeqAIJ() in src/mat/impls/aij/seq/aij.c",
    "axpy unknown": "MatAXPY_SeqAIJ() in src/mat/impls/aij/seq/aij.c",
    "GAMG set-up": "PCSetUp_GAMG() in src/ksp/pc/impls/gamg/gamg.c",
}
"""Where PETSc loses a matrix that it has made itself, if MatSetType() or what comes next fails: not counted."""
LOSES_WITHIN = {
    "MatCreateMPIAIJWithSeqAIJ()": "src/mat/impls/aij/mpi/mpiaij.c, with the blocks that it was given",
    "MatTranspose_MPIAIJ()": "src/mat/impls/aij/mpi/mpiaij.c",
    "MatSetPreallocationCOO_MPIAIJ()": "src/mat/impls/aij/mpi/mpiaij.c: its arrays of coordinates",
}
"""Likewise in operations of several ranks, where the error has come through this function."""
PLANTED = {}
"""Operations with a defect, for the test that an attack finds them."""


def leak(things):
    """Two pieces of memory; without the second, nobody frees the first."""
    pieces = ctypes.c_void_p(), ctypes.c_void_p()
    LIBRARY.PetscMallocA.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]
    LIBRARY.PetscMallocA.argtypes += [ctypes.c_size_t, ctypes.c_void_p]
    for piece in pieces:
        error = LIBRARY.PetscMallocA(1, 0, 7, b"Leaking", b"petsc_gpufmt/native/planted.c", 64, ctypes.byref(piece))
        if error:
            raise PETSc.Error(error)
    free = FREE(ctypes.c_void_p.in_dll(LIBRARY, "PetscTrFree").value)
    for piece in pieces:
        free(piece, 7, b"Leaking", b"petsc_gpufmt/native/planted.c")
    OPERATIONS["mult"].act(things)


def crash(things):
    try:
        leak(things)
    except PETSc.Error:
        ctypes.string_at(0)


PLANTED["planted leak"] = OPERATIONS["mult"]._replace(act=leak)
PLANTED["planted crash"] = OPERATIONS["mult"]._replace(act=crash)


class Code(ctypes.Structure):
    """Dl_info of the system's dladdr()."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


class UnderThePackage(Allocations):
    """Those that PETSc makes while a function of the package is under way; what PETSc makes by itself is its own."""

    most = 64

    def __init__(self, files):
        super().__init__(files)
        self._system, self._frames, self._code = ctypes.CDLL(None), (ctypes.c_void_p * self.most)(), Code()
        self._ours = {}

    def counts(self, file):
        if not super().counts(file):
            return False
        return any(map(self._is_ours, self._frames[: self._system.backtrace(self._frames, self.most)]))

    def _is_ours(self, address):
        if address not in self._ours:
            found = self._system.dladdr(ctypes.c_void_p(address), ctypes.byref(self._code))
            self._ours[address] = bool(found and self._code.file and b"libpetscgpufmt" in self._code.file)
        return self._ours[address]


class Together(UnderThePackage):
    """On several ranks not those under a function of PETSc that makes matrices of a rank and then goes on with others.

    Whatever the type, another rank waits there for one that has failed.
    """

    function = b"MatCreateSubMatrix"

    def counts(self, file):
        return Allocations.counts(self, file) and not super().counts(file)

    def _is_ours(self, address):
        if address not in self._ours:
            found = self._system.dladdr(ctypes.c_void_p(address), ctypes.byref(self._code))
            self._ours[address] = bool(found and self._code.name == self.function)
        return self._ours[address]


class PetscAllocator:
    """What PETSc's allocator is asked for in one place; and what of it is left when all is destroyed."""

    def __init__(self, where):
        self.where, self.files = where, FILES[where]

    def __enter__(self):
        kind = UnderThePackage if self.where == "petsc" else Together if COMM.size > 1 else Allocations
        self.watched = kind(self.files)
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

    def place(self):
        return self.watched.place

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

    def place(self):
        return ""

    def left(self):
        return Counter()


class Attempt:
    """An operation with allocation `number` failing on one rank; with -1, none fails."""

    def __init__(self, operation, mat_type, allocator, number, rank):
        self.things, self.before, self.after = {}, {}, {}
        self.bad, self.make = [], Maker(mat_type, PETSc.COMM_WORLD)
        self.lost = self.locked = False  # a matrix, and a vector of a solver, by PETSc
        with allocator:
            self.things = operation.prepare(self.make)
            self.before = numbers_of(self.things)
            begun = set(self.things)
            allocator.arm(number if COMM.rank == rank or number < 0 else -1)
            self.error = self._error(operation)
            self.count = allocator.disarm()
            self.errors = COMM.allgather(self.error)
            self.locked = any(COMM.allgather(self.locked))
            there = begun if any(self.errors) else set(self.things)
            self.after = numbers_of({name: thing for name, thing in self.things.items() if name in there})
            if number >= 0:
                self._judge(operation, begun)
            if self.locked:
                LOST.append(self.things)
                self.lost = True
            else:
                destroy(self.things)
        self.left, self.place = allocator.left(), allocator.place()

    def _error(self, operation):
        try:
            operation.act(self.things)
        except PETSc.Error as e:
            self.lost = any(name in str(e) for name in LOSES_WITHIN)
            self.locked = "ksp" in self.things and "MatMult" in str(e)
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
        self.bad += wrong_products({name: thing for name, thing in self.things.items() if name in self.after})

    def _again(self, operation, expected, begun):
        """All ranks have failed: what there was before can be used as if nothing had been."""
        untouched = not differences(
            self.after, self.before, names={n for n in operation.changes if n in self.before and n != "z"}
        )
        if not all(COMM.allgather(untouched)):
            return
        destroy({name: thing for name, thing in self.things.items() if name not in begun})
        things = usable(operation, self.make, self.things) if self.locked else self.things
        try:
            operation.act(things)
        except PETSc.Error as e:
            self.bad.append(f"fails again, with error {e.ierr}")
        else:
            self.bad += differences(numbers_of(things), expected)
        if things is not self.things:
            destroy(things)


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
            lost = attempt.lost or (name in LOSES and any("MatCreate()" in place for place in left))
            if left and where != "petsc" and not lost:
                bad.append(f"left behind: {', '.join(sorted(left))}")
            for at, lines in enumerate(COMM.allgather(bad)):
                if lines:
                    child.bad(row, f"{title}, rank {at}, {attempt.place}: {'; '.join(lines)}")
            for code in {code for code in attempt.errors if code}:
                child.tell(code=code)
            if len(set(attempt.errors)) > 1:
                child.tell(differ=f"{title}: {attempt.errors}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
