"""Operations that attacks disturb: what each begins with, what it does, and which numbers tell a right result."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from petsc4py import PETSc
from petsc_products import VIA

COUNT, COARSE = 48, 20
Things = dict[str, Any]
OPTIONS = {
    **{name: "rmerge" for name in VIA.values()},
    "pc_gamg_coarse_eq_limit": 8,
    "pc_gamg_process_eq_limit": 1,
    "ksp_max_it": 30,
    "options_left": "no",
}
SOLVERS = ("gpucg", "gpubcgs", "gpugmres", "mixedcg", "gpuchebyshev")


class Operation(NamedTuple):
    """`prepare` makes what it begins with, by name; `act` may change what is named in `changes`, and makes the rest."""

    group: str
    prepare: Callable[[Maker], Things]
    act: Callable[[Things], None]
    changes: tuple[str, ...] = ()


class Maker:
    """Small matrices of a type on a communicator, with the same entries however many ranks there are."""

    def __init__(self, mat_type: str, comm: Any, count: int = COUNT):
        self.mat_type, self.comm, self.count, self.coarse = mat_type, comm, count, count * COARSE // COUNT

    def empty(self, nrows: int, ncols: int, mat_type: str = "") -> Any:
        A = PETSc.Mat().create(self.comm)
        A.setSizes(((None, nrows), (None, ncols)))
        A.setType(mat_type or self.mat_type)
        return A

    def filled(self, nrows: int, ncols: int, offsets: tuple[int, ...], mat_type: str = "") -> Any:
        """Row i has entries beside column i of a matrix stretched to its shape; diagonally dominant where square."""
        A = self.empty(nrows, ncols, mat_type)
        A.setPreallocationNNZ(len(offsets))
        rows = np.arange(*A.getOwnershipRange())
        for row in rows:
            columns = sorted({int(row * ncols / nrows + offset) % ncols for offset in offsets})
            values = [len(offsets) + 0.25 * (row % 3) if c == row else -0.9 - 0.1 * (c % 2 == row % 2) for c in columns]
            A.setValues([row], columns, values)
        A.assemble()
        return A

    def square(self, mat_type: str = "") -> Any:
        return self.filled(self.count, self.count, (-6, -1, 0, 1, 6), mat_type)

    def tall(self) -> Any:
        return self.filled(self.count, self.coarse, (0, 1, 3))

    def wide(self) -> Any:
        return self.filled(self.coarse, self.count, (0, 1, 3))


def vector(v: Any, seed: int) -> Any:
    """A vector filled with numbers of its places."""
    v.setArray(np.cos(seed + np.arange(*v.getOwnershipRange())).astype(PETSc.ScalarType))
    return v


def with_vectors(make: Maker) -> Things:
    A = make.square()
    x, y = A.createVecs()
    return {"A": A, "x": vector(x, 1), "y": vector(y, 2), "z": A.createVecLeft()}


def from_aij(make: Maker) -> Things:
    return {"A": make.square("aij"), "to": make.mat_type}


def convert(things: Things) -> None:
    things["made"] = PETSc.Mat()
    things["A"].convert(things["to"], things["made"])


def create(things: Things) -> None:
    make = things["make"]
    things["made"] = A = make.empty(make.count, make.count)
    A.setPreallocationNNZ(3)
    for row in range(*A.getOwnershipRange()):
        A.setValues([row], sorted({row, (row + 1) % make.count, (row + 9) % make.count}), [3.0, -1.0, -0.5])
    A.assemble()


def add(structure: Any) -> Callable[[Things], None]:
    return lambda things: things["A"].axpy(0.5, things["B"], structure=structure)


def to_add(offsets: tuple[int, ...]) -> Callable[[Maker], Things]:
    return lambda make: {"A": make.square(), "B": make.filled(make.count, make.count, offsets)}


def product(name: str, first: str, second: str) -> dict[str, Operation]:
    """Its two phases, and the second one again with other values."""

    def prepare(make: Maker) -> Things:
        return {k: getattr(make, {"A": "square", "P": "tall", "R": "wide"}[k])() for k in (first, second)}

    def act(things: Things) -> None:
        things["made"] = getattr(things[first], name)(things[second])

    def prepare_again(make: Maker) -> Things:
        things = prepare(make)
        things["C"] = getattr(things[first], name)(things[second])
        things[first].scale(2.0)
        return things

    def again(things: Things) -> None:
        getattr(things[first], name)(things[second], result=things["C"])

    group = "sparse products"
    return {name: Operation(group, prepare, act), f"{name} again": Operation(group, prepare_again, again, ("C",))}


def coordinates(A: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three entries in each row of this rank, one of them twice, and one in a row of another rank, if there is any."""
    rows = np.repeat(np.arange(*A.getOwnershipRange()), 4).astype(PETSc.IntType)
    cols = (rows + np.tile([0, 1, 1, 7], rows.size // 4)) % A.getSize()[1]
    rows[::16] = (rows[::16] + A.getSize()[0] // 2) % A.getSize()[0]
    return rows, cols.astype(PETSc.IntType), (1.0 + np.arange(rows.size) % 5).astype(PETSc.ScalarType)


def preallocate_coo(things: Things) -> None:
    rows, cols, _ = coordinates(things["A"])
    things["A"].setPreallocationCOO(rows, cols)


def coo_set(make: Maker) -> Things:
    things = {"A": make.empty(make.count, make.count)}
    preallocate_coo(things)
    return things


def preallocated_and_set(things: Things) -> None:
    preallocate_coo(things)
    set_coo(things)


def set_coo(things: Things) -> None:
    things["A"].setValuesCOO(coordinates(things["A"])[2], PETSc.InsertMode.INSERT_VALUES)


def zero_rows(things: Things) -> None:
    A = things["A"]
    A.zeroRows(np.arange(*A.getOwnershipRange(), 5, dtype=PETSc.IntType), 2.0)


def view(things: Things) -> None:
    viewer = PETSc.Viewer().createASCII("/dev/null", comm=things["A"].comm)
    try:
        viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO_DETAIL)
        things["A"].view(viewer)
    finally:
        viewer.destroy()


def part_of_rows(things: Things) -> None:
    A = things["A"]
    first, last = A.getOwnershipRange()
    rows = PETSc.IS().createStride((last - first) // 2, first, 2, comm=A.comm)
    try:
        things["made"] = A.createSubMatrix(rows, rows)
    finally:
        rows.destroy()


def solver(ksp_type: str, pc_type: str = "jacobi") -> Callable[[Maker], Things]:
    def prepare(make: Maker) -> Things:
        things = with_vectors(make)
        things["ksp"] = ksp = PETSc.KSP().create(make.comm)
        ksp.setOperators(things["A"])
        ksp.setType(ksp_type)
        ksp.getPC().setType(pc_type)
        ksp.setTolerances(rtol=1e-10, max_it=30)
        ksp.setFromOptions()
        return things

    return prepare


def gamg_set_up(make: Maker) -> Things:
    things = solver("cg", "gamg")(make)
    things["ksp"].setUp()
    return things


def solve(things: Things) -> None:
    things["z"].set(0.0)
    things["ksp"].solve(things["x"], things["z"])


OF_ALL_TYPES = {
    "create": Operation("create and convert", lambda make: {"make": make}, create),
    "convert": Operation("create and convert", from_aij, convert),
    "duplicate": Operation(
        "create and convert",
        lambda make: {"A": make.square()},
        lambda t: t.update(made=t["A"].duplicate(copy=True)),
    ),
    "mult": Operation("products with a vector", with_vectors, lambda t: t["A"].mult(t["x"], t["z"]), ("z",)),
    "multTranspose": Operation(
        "products with a vector", with_vectors, lambda t: t["A"].multTranspose(t["x"], t["z"]), ("z",)
    ),
    "multAdd": Operation(
        "products with a vector", with_vectors, lambda t: t["A"].multAdd(t["x"], t["y"], t["z"]), ("z",)
    ),
}
STRUCTURES = PETSc.Mat.Structure
OPERATIONS: dict[str, Operation] = {
    **OF_ALL_TYPES,
    "convert back": Operation("create and convert", lambda make: {"A": make.square(), "to": "aij"}, convert),
    "transpose": Operation(
        "create and convert", lambda make: {"A": make.square()}, lambda t: t.update(made=t["A"].transpose(PETSc.Mat()))
    ),
    "submatrix": Operation("create and convert", lambda make: {"A": make.square()}, part_of_rows),
    "view": Operation("create and convert", lambda make: {"A": make.square()}, view),
    "axpy same": Operation("sums and scaling", to_add((-6, -1, 0, 1, 6)), add(STRUCTURES.SAME_NONZERO_PATTERN), ("A",)),
    "axpy subset": Operation("sums and scaling", to_add((-1, 0, 6)), add(STRUCTURES.SUBSET_NONZERO_PATTERN), ("A",)),
    "axpy different": Operation(
        "sums and scaling", to_add((-9, 0, 4)), add(STRUCTURES.DIFFERENT_NONZERO_PATTERN), ("A",)
    ),
    "axpy unknown": Operation("sums and scaling", to_add((-9, 0, 4)), add(STRUCTURES.UNKNOWN_NONZERO_PATTERN), ("A",)),
    "zeroRows": Operation("sums and scaling", lambda make: {"A": make.square()}, zero_rows, ("A",)),
    "diagonalScale": Operation(
        "sums and scaling", with_vectors, lambda t: t["A"].diagonalScale(t["x"], t["y"]), ("A",)
    ),
    "shift": Operation("sums and scaling", with_vectors, lambda t: t["A"].shift(0.5), ("A",)),
    **product("matMult", "A", "P"),
    **product("transposeMatMult", "P", "A"),
    **product("matTransposeMult", "A", "R"),
    **product("ptap", "A", "P"),
    **product("rart", "A", "R"),
    "COO": Operation(
        "coordinates", lambda make: {"A": make.empty(make.count, make.count)}, preallocated_and_set, ("A",)
    ),
    "COO values": Operation("coordinates", coo_set, set_coo, ("A",)),
    "GAMG set-up": Operation("multigrid", solver("cg", "gamg"), lambda t: t["ksp"].setUp()),
    "GAMG solve": Operation("multigrid", gamg_set_up, solve, ("z",)),
    **{name: Operation("solvers", solver(name), solve, ("z",)) for name in SOLVERS},
}


def numbers_of(things: Things) -> dict[str, np.ndarray]:
    """All entries of this rank by name, as far as there are any."""
    found = {}
    for name, thing in things.items():
        if isinstance(thing, PETSc.Vec):
            found[name] = thing.array_r.copy()
        elif isinstance(thing, PETSc.Mat) and thing.handle and thing.assembled:
            rowptr, colidx, values = thing.getValuesCSR()
            found[name] = np.zeros((len(rowptr) - 1, thing.getSize()[1]))
            found[name][np.repeat(np.arange(len(rowptr) - 1), np.diff(rowptr)), colidx] = values
    return found


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], name: str) -> bool:
    return (
        name in found
        and found[name].shape == expected[name].shape
        and np.allclose(found[name], expected[name], rtol=1e-8, atol=1e-9)
    )


def differences(found: dict[str, np.ndarray], *allowed: dict[str, np.ndarray], names: Any = None) -> list[str]:
    """Names of what is like in none of the allowed ones."""
    names = allowed[0] if names is None else names
    return [
        f"{name} is wrong"
        for name in names
        if not any(same(found, expected, name) for expected in allowed if name in expected)
    ]


def wrong_products(things: Things) -> list[str]:
    """Which matrices do not multiply as their entries say; all ranks call this."""
    wrong, found = [], numbers_of(things)
    for name, A in things.items():
        if name not in found or not isinstance(A, PETSc.Mat):
            continue
        x, y = A.createVecs()
        everything = np.sin(1.0 + np.arange(x.getSize()))
        x.setArray(everything[slice(*x.getOwnershipRange())])
        A.mult(x, y)
        if not np.allclose(y.array_r, found[name] @ everything, rtol=1e-8, atol=1e-9):
            wrong.append(f"{name} multiplies wrong")
        x.destroy()
        y.destroy()
    return wrong


LOST: list[Things] = []
"""Solvers after an error: PETSc's MatMult() (src/mat/interface/matrix.c, from VecLockReadPush() to VecLockReadPop())
leaves its operand locked then, so that KSPReset() and KSPDestroy() fail on a work vector, and twice is a crash."""


def usable(operation: Operation, make: Maker, things: Things) -> Things:
    """What an operation is tried with again after an error: the same, but for solvers, which are made anew."""
    if "ksp" not in things:
        return things
    LOST.append(dict(things))
    return operation.prepare(make)


def take_interrupts() -> None:
    """One that waits is raised and forgotten here."""
    try:
        for _ in range(1000):
            signal.getsignal(signal.SIGINT)
    except KeyboardInterrupt:
        pass


def destroy(things: Things) -> None:
    for name in reversed(things):
        if isinstance(things[name], PETSc.Object):
            things[name].destroy()
