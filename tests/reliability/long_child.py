"""Operations that are repeated for a long time; started by long_runs.py: BEGIN JSON, on some ranks."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import numpy as np  # noqa: E402
import petsc4py  # noqa: E402

petsc4py.init(["long_runs"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from petsc_gpufmt.backends import device_memory, driver  # noqa: E402
from petsc_gpufmt.planning import planner  # noqa: E402
from petsc_gpufmt.planning.given import cuda_backend  # noqa: E402
from reliability.children import Child  # noqa: E402
from reliability.operations import OPTIONS, Maker, destroy, solver, vector  # noqa: E402

WORLD = PETSc.COMM_WORLD
COMM = WORLD.tompi4py()
LIBC = ctypes.CDLL(None)
DEALT_WITH = 100
"""Matrices that may wait to be destroyed together with those of other ranks."""


class Pieces:
    """What the operations take: a matrix of each type as CSR arrays and, for those that keep one, as a matrix."""

    def __init__(self, types):
        self.types, self.make = types, Maker("aij", WORLD)
        pattern = self.make.square()
        self.sizes, self.csr = pattern.getSizes(), pattern.getValuesCSR()
        self.x, self.y = pattern.createVecs()
        vector(self.x, 1)
        pattern.destroy()
        self.made = [self.matrix(k) for k in range(len(types))]
        self.firsts, self.difference, self.differences = {}, self.y.duplicate(), self.y.duplicate()
        self.differences.set(0.0)
        self.tall = Maker("aijpjds", WORLD).tall()
        self.solver = None

    def matrix(self, number):
        A = PETSc.Mat().createAIJ(self.sizes, csr=self.csr, comm=WORLD)
        return A.convert(self.types[number % len(self.types)])

    def of(self, number):
        return self.made[number % len(self.made)]

    def compare(self, what, number):
        """Keeps in mind whether y is what it was the first time, without waiting for a device."""
        key = what, number % len(self.made)
        if key not in self.firsts:
            self.firsts[key] = self.y.copy()
        self.difference.waxpy(-1.0, self.firsts[key], self.y)
        self.difference.pointwiseMult(self.difference, self.difference)
        self.differences.axpy(1.0, self.difference)

    def differ(self):
        """Entries of this rank that have differed since this was asked last."""
        count = np.count_nonzero(self.differences.array_r)  # what is not a number is not 0
        self.differences.set(0.0)
        return count


def cycle(pieces, number):
    A = pieces.matrix(number)
    A.mult(pieces.x, pieces.y)
    A.destroy()


def product(pieces, number):
    pieces.of(number).mult(pieces.x, pieces.y)
    pieces.compare("mult", number)


def transposed(pieces, number):
    pieces.of(number).multTranspose(pieces.x, pieces.y)
    pieces.compare("multTranspose", number)


def new_values(pieces, number):
    A = pieces.of(number)
    A.scale(-1.0)
    A.mult(pieces.x, pieces.y)


def sparse_product(pieces, number):
    A = pieces.of(number)
    C = A.matMult(pieces.tall)
    A.scale(-1.0)
    A.matMult(pieces.tall, result=C)
    C.destroy()


def multigrid(pieces, number):
    """A solve after a set-up with new values; each tenth is from the beginning, with a matrix of the next type."""
    if number % 10 == 0:
        destroy(pieces.solver or {})
        mat_type = pieces.types[number // 10 % len(pieces.types)]
        pieces.solver = solver("cg", "gamg")(Maker(mat_type, WORLD))
    things = pieces.solver
    things["A"].scale(2.0 if number % 2 else 0.5)
    things["z"].set(0.0)
    things["ksp"].solve(things["x"], things["z"])


def forgotten(pieces, number):
    pieces.matrix(number).mult(pieces.x, pieces.y)
    if number % DEALT_WITH == 0:
        PETSc.garbage_cleanup()


def alive(pieces, count):
    made = [pieces.matrix(k) for k in range(count)]
    for A in made:
        A.mult(pieces.x, pieces.y)
    for A in made:
        A.destroy()


def hoard(pieces, number):
    """With a defect, for the test that the attack finds it."""
    product(pieces, number)
    hoard.kept.append(bytearray(20_000))


def wrong_bit(pieces, number):
    """With a defect, too."""
    if number == 7 and COMM.rank == COMM.size - 1:
        with pieces.x as x:
            x[-1] = np.nextafter(x[-1], 2.0)
    product(pieces, number)


def keep_a_plan(pieces, number):
    A = pieces.matrix(number)
    A.mult(pieces.x, pieces.y)
    hoard.kept.append(A)


hoard.kept = []
OPERATIONS = {
    "create, convert, multiply, destroy": cycle,
    "products": product,
    "transposed products": transposed,
    "new values and a product": new_values,
    "sparse products": sparse_product,
    "set-ups and solves of GAMG": multigrid,
    "without destroy()": forgotten,
    "alive at once": alive,
    "planted hoard": hoard,
    "planted plan": keep_a_plan,
    "planted bit": wrong_bit,
}


def resident():
    """Bytes of this process that are in memory, once what can go has gone."""
    PETSc.garbage_cleanup()
    gc.collect()
    LIBC.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def on_device():
    """Bytes that plans have on a device, 0 where there is none."""
    if not cuda_backend.cache_info().currsize:
        return 0
    device_memory.trim_all()
    memory = device_memory.memory_of(0)
    return 0 if memory._pool is None else driver.pool_bytes(memory._pool, driver.USED_BYTES)


def repeated(operation, pieces, size):
    if operation is alive:
        operation(pieces, size)
        return
    for number in range(size):
        operation(pieces, number)


def main():
    given = json.loads(sys.argv[2])
    for name, value in OPTIONS.items():
        PETSc.Options()[name] = value
    seconds = given["seconds"]
    child = Child(
        int(sys.argv[1]), COMM.rank == 0, limit=seconds, agree=lambda flag: COMM.bcast(flag), seconds=seconds / 2
    )
    for name, size in given["sizes"].items():
        operation, before = OPERATIONS[name], None
        for title in child.tries(name, [f"{name}, block {k} of {size}" for k in range(given["blocks"])]):
            pieces = before[3] if before else Pieces(given["types"])
            repeated(operation, pieces, size)
            differ = COMM.allgather(pieces.differ())
            for rank, count in enumerate(differ):
                if count:
                    child.bad(name, f"{title}, rank {rank}: {count} entries were not always what they were at first")
            now = resident(), planner.owned_tokens(), on_device()
            if before is None:
                before = (*now, pieces)
                continue
            grown = COMM.allgather([now[0] - before[0], now[1] - before[1], now[2] - before[2]])
            for rank, (memory, plans, device) in enumerate(grown):
                if memory > given["most"] or plans or device:
                    text = f"{memory} bytes more than after the first block, {plans} plans, {device} bytes on a device"
                    child.bad(name, f"{title}, rank {rank}: {text}")
    child.tell(end=True)


if __name__ == "__main__":
    main()
