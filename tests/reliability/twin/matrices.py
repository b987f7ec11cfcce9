"""The matrices of a sequence, as three siblings: of type aij, of a type of ours, and of magnitudes.

All three go through the same operations. The third is of type aij, and whatever it is given is made positive: a program
of sums and products that rounds K times in a row is off by at most K times half of eps of what it gives there.
"""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library

COMM = PETSc.COMM_WORLD
WORLD = COMM.tompi4py()
AIJ, OURS, MAGNITUDES = "aij", "ours", "magnitudes"
WAYS = ("convert", "convert out of place", "options", "coo", "duplicate", "load", "parallel type")
Option = PETSc.Mat.Option


@dataclass
class Pattern:
    """Where a matrix has entries, on all ranks, as rows and columns in the order of the rows."""

    rows: np.ndarray
    columns: np.ndarray
    state: tuple[int, ...] = ()
    """By which PETSc knows whether it is still the same; a pattern made anew with the same entries is not.

    Of the twin, too: that of a parallel aij is a sum over blocks, and may come out as before.
    """
    ghosts: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """The columns of off-diagonal blocks on each of several ranks, some of them perhaps without entries.

    Of the twin, too: PETSc's conversion of type aij to baij drops those, and ours converts a copy.
    """

    @classmethod
    def of(cls, A: PETSc.Mat, *twins: PETSc.Mat) -> Pattern:
        rowptr, columns, _ = A.getValuesCSR()
        rows = np.repeat(np.arange(*A.getOwnershipRange()), np.diff(rowptr))
        ghosts = ()
        if COMM.size > 1:
            own = tuple(map(own_ghosts, (A, *twins)))
            *parts, ghosts = zip(*WORLD.allgather((rows, columns, own)), strict=True)
            rows, columns = map(np.concatenate, parts)
        return cls(rows, np.array(columns), (A.id, *map(nonzero_state, (A, *twins))), ghosts)

    def same(self, other: Pattern) -> bool:
        return np.array_equal(self.rows, other.rows) and np.array_equal(self.columns, other.columns)

    def some(self, rng: np.random.Generator) -> Pattern:
        """About half of the entries."""
        kept = rng.random(self.rows.size) < 0.5
        return Pattern(self.rows[kept], self.columns[kept])


@dataclass
class Sibling:
    """One of the three: its matrix A, another one B, and what operations keep for later ones.

    `plain` is the type of PETSc that its type is derived from: aij, or mpiaij even on one rank.
    """

    kind: str
    mat_type: str
    plain: str
    formats: tuple[str, ...]
    A: PETSc.Mat = None
    B: PETSc.Mat = None
    kept: dict[str, Any] = field(default_factory=dict)

    def given(self, values: Any) -> Any:
        return np.abs(values) if self.kind == MAGNITUDES else values

    @property
    def structured(self) -> bool:
        """Whether its pattern is that of type aij: magnitudes may have more, where others cancel or drop entries."""
        return self.kind != MAGNITUDES

    def structure(self, name: str) -> PETSc.Mat.Structure:
        return getattr(PETSc.Mat.Structure, (name if self.structured else "DIFFERENT") + "_NONZERO_PATTERN")

    def other_type(self, number: int) -> str:
        """One of our formats, or aij for the siblings that have none."""
        return f"{self.plain}{self.formats[number % len(self.formats)] if self.kind == OURS else ''}"

    def vector(self, rng: np.random.Generator, right: bool = True, A: PETSc.Mat | None = None) -> PETSc.Vec:
        A = self.A if A is None else A
        return self.filled(A.createVecRight() if right else A.createVecLeft(), rng)

    def filled(self, v: PETSc.Vec, rng: np.random.Generator) -> PETSc.Vec:
        values = rng.uniform(-1, 1, v.getSize()).astype(PETSc.ScalarType)
        v.setArray(self.given(values[slice(*v.getOwnershipRange())]))
        return v

    def matrix(self, pattern: Pattern, rng: np.random.Generator, sizes: Any, mat_type: str | None = None) -> PETSc.Mat:
        """A new matrix with these entries, of random values."""
        values = self.given(random_values(rng, pattern.rows.size))
        return assembled(mat_type or self.mat_type, pattern, values, sizes)

    def replace(self, A: PETSc.Mat, name: str = "A") -> None:
        """A (or B) is another matrix from now on."""
        old = getattr(self, name)
        setattr(self, name, A)
        set_usual_options(A)
        if old is not None:
            old.destroy()

    def keep(self, name: str, *what: Any) -> None:
        """For a later operation; in place of what had the name."""
        for old in self.kept.pop(name, ()):
            if isinstance(old, PETSc.Object):
                old.destroy()
        self.kept[name] = what

    def close(self) -> None:
        """After a difference, too, when PETSc refuses to destroy what is in the middle of something."""
        for name in list(self.kept):
            self.keep(name)
        for A in (self.A, self.B):
            if A is not None:
                A.destroy()


def layouts(A: PETSc.Mat) -> tuple[list[int], list[int]]:
    """How rows and columns are dealt to ranks, which all ranks know."""
    return A.getOwnershipRanges().tolist(), A.getOwnershipRangesColumn().tolist()


def same_layouts(A: PETSc.Mat) -> bool:
    """Whether rows and columns are dealt to ranks alike; all ranks agree."""
    rows, columns = layouts(A)
    return rows == columns


def nonzero_state(A: PETSc.Mat) -> int:
    state = ctypes.c_int64()
    native_library.load().MatGetNonzeroState(ctypes.c_void_p(A.handle), ctypes.byref(state))
    return state.value


def own_ghosts(A: PETSc.Mat) -> tuple[int, ...]:
    """The columns of this rank's off-diagonal block."""
    integer = np.ctypeslib.as_ctypes_type(PETSc.IntType)
    count, columns = integer(), ctypes.POINTER(integer)()
    native_library.load().MatGetGhosts(ctypes.c_void_p(A.handle), ctypes.byref(count), ctypes.byref(columns))
    return tuple(columns[: count.value])


def pattern_version(A: PETSc.Mat) -> tuple[int, int, float]:
    """Differs when the entries have become others; MatEliminateZeros() does not tell a parallel matrix's state."""
    return A.id, nonzero_state(A), A.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"]


def set_usual_options(A: PETSc.Mat) -> None:
    """Those that a matrix has which PETSc has made or filled anew depend on how, and differ with the types."""
    unusual = (Option.UNUSED_NONZERO_LOCATION_ERR, Option.KEEP_NONZERO_PATTERN, Option.IGNORE_ZERO_ENTRIES)
    for option in (*unusual, Option.NEW_NONZERO_ALLOCATION_ERR, Option.NO_OFF_PROC_ENTRIES):
        A.setOption(option, False)


def random_values(rng: np.random.Generator, count: int) -> np.ndarray:
    """PETSc's scalars of both signs and several magnitudes, some of them 0."""
    values = rng.uniform(0.1, 1, count) * rng.choice([-1.0, 1.0], count) * 4.0 ** rng.integers(-3, 3, count)
    return np.where(rng.random(count) < 0.04, 0.0, values).astype(PETSc.ScalarType)


def random_pattern(rng: np.random.Generator, nrows: int, ncols: int) -> Pattern:
    """Rows of very different lengths, some of them empty; with a diagonal or without."""
    density = rng.choice([0.0, 0.05, 0.2, 0.9], (nrows, 1), p=[0.15, 0.5, 0.25, 0.1])
    places = rng.random((nrows, ncols)) < density
    if rng.random() < 0.6:
        np.fill_diagonal(places, True)
    return Pattern(*(a.astype(PETSc.IntType) for a in np.nonzero(places)))


def random_split(rng: np.random.Generator, count: int, block: int = 1) -> tuple[int, int]:
    """This rank's number of rows, and all of them; ranks may have none."""
    blocks = count // block
    cuts = np.sort(rng.integers(0, blocks + 1, COMM.size - 1))
    if rng.random() < 0.6:
        cuts = np.arange(1, COMM.size) * blocks // COMM.size
    sizes = np.diff([0, *cuts, blocks]) * block
    return int(sizes[COMM.rank]), count


def own_csr(A: PETSc.Mat, pattern: Pattern, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    first, last = A.getOwnershipRange()
    own = (pattern.rows >= first) & (pattern.rows < last)
    counts = np.bincount(pattern.rows[own] - first, minlength=last - first)
    rowptr = np.concatenate([[0], np.cumsum(counts)]).astype(PETSc.IntType)
    return rowptr, pattern.columns[own].astype(PETSc.IntType), values[own]


def assembled(mat_type: str, pattern: Pattern, values: np.ndarray, sizes: Any, block: int = 1) -> PETSc.Mat:
    A = PETSc.Mat().create(COMM)
    A.setSizes(sizes, bsize=block)
    A.setType(mat_type)
    A.setUp()
    A.setPreallocationCSR(own_csr(A, pattern, values))
    A.assemble()
    return A


def made(way: str, s: Sibling, pattern: Pattern, values: np.ndarray, sizes: Any, block: int) -> PETSc.Mat:
    """A matrix of the sibling's type, made in one of WAYS."""
    values = s.given(values)
    if way == "options":
        A = PETSc.Mat().create(COMM)
        A.setSizes(sizes, bsize=block)
        A.setOptionsPrefix("twin_")
        options = PETSc.Options()
        options["twin_mat_type"] = s.mat_type
        A.setFromOptions()
        options.delValue("twin_mat_type")
        A.setUp()
        _, _, own = csr = own_csr(A, pattern, values)
        A.setPreallocationNNZ(int(sizes[1][1]))
        A.setValuesCSR(csr[0], csr[1], own)
        A.assemble()
        return A
    if way == "coo":
        A = PETSc.Mat().create(COMM)
        A.setSizes(sizes, bsize=block)
        A.setType(s.mat_type)
        mine = slice(COMM.rank, None, COMM.size)  # whosever rows they are
        A.setPreallocationCOO(*(np.tile(a[mine], 2).astype(PETSc.IntType) for a in (pattern.rows, pattern.columns)))
        A.setValuesCOO(np.concatenate([values[mine], 0.5 * values[mine]]))
        return A
    if way == "parallel type":
        return assembled(s.mat_type, pattern, values, sizes, block)
    A = assembled(s.plain, pattern, values, sizes, block)
    if way == "load":
        loaded = saved_and_loaded(A, s.mat_type)
        A.destroy()
        return loaded
    if way == "convert out of place":
        converted = A.convert(s.mat_type, PETSc.Mat())
        A.destroy()
        return converted
    A.convert(s.mat_type)
    if way == "duplicate":
        copied = A.duplicate(copy=True)
        A.destroy()
        return copied
    return A


def saved_and_loaded(A: PETSc.Mat, mat_type: str) -> PETSc.Mat:
    """A matrix of the same sizes, read from the file that A was written to."""
    with tempfile.TemporaryDirectory() as own:
        name = str(Path(WORLD.bcast(own), "matrix.bin"))
        viewer = PETSc.Viewer().createBinary(name, "w", comm=COMM)
        A.view(viewer)
        viewer.destroy()
        loaded = PETSc.Mat().create(COMM)
        loaded.setSizes(A.getSizes())
        loaded.setType(mat_type)
        viewer = PETSc.Viewer().createBinary(name, "r", comm=COMM)
        loaded.load(viewer)
        viewer.destroy()
        WORLD.barrier()
    return loaded
