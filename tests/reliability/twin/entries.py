"""Operations that change values, or put in and take away entries."""

from __future__ import annotations

import numpy as np
from petsc4py import PETSc

from reliability.twin.matrices import (
    AIJ,
    COMM,
    Option,
    Pattern,
    Sibling,
    nonzero_state,
    random_pattern,
    random_values,
    take_new_nonzeros,
)
from reliability.twin.operations import Step, changes, rows_long
from reliability.twin.vectors import local

ADD, INSERT = PETSc.InsertMode.ADD_VALUES, PETSc.InsertMode.INSERT_VALUES


@changes()
def scale(s: Sibling, step: Step):
    s.A.scale(s.given(step.one_of(-1.0, 0.75, -1.25, 2.0, 1.0)))


@changes()
def shift(s: Sibling, step: Step):
    s.A.shift(s.given(step.one_of(0.5, -1.5)))


@changes()
def set_diagonal(s: Sibling, step: Step):
    d = s.vector(step.rng, right=False)
    s.A.setDiagonal(d, step.one_of(ADD, INSERT))
    d.destroy()


@changes()
def diagonal_scale(s: Sibling, step: Step):
    left, right = s.vector(step.rng, right=False), s.vector(step.rng)
    which = step.one_of(0, 1, 2)
    s.A.diagonalScale(None if which == 1 else left, None if which == 2 else right)
    left.destroy()
    right.destroy()


def _add(s: Sibling, step: Step, pattern: Pattern, structure: str, mat_type: str | None = None) -> None:
    other = s.matrix(pattern, step.rng, s.A.getSizes(), mat_type)
    factor = s.given(step.one_of(-0.5, 1.0, 0.75))
    add = step.one_of(s.A.axpy, s.A.aypx)
    add(factor, other, s.structure(structure))
    other.destroy()
    take_new_nonzeros(s.A)


@changes()
def add_same_pattern(s: Sibling, step: Step):
    _add(s, step, step.A, step.one_of("SAME", "SUBSET", "DIFFERENT", "UNKNOWN"))


@changes()
def add_part_of_pattern(s: Sibling, step: Step):
    _add(s, step, step.A.some(step.rng), step.one_of("SUBSET", "DIFFERENT", "UNKNOWN"))


@changes()
def add_other_pattern(s: Sibling, step: Step):
    _add(s, step, random_pattern(step.rng, *s.A.getSize()), step.one_of("DIFFERENT", "UNKNOWN"))


def _add_of_other_type(s: Sibling, step: Step, mat_type: str) -> None:
    """PETSc adds other types by rows, into a layout that it gives the same blocks of rows and columns."""
    rows, columns = s.A.getBlockSizes()
    if rows == columns:
        _add(s, step, step.A.some(step.rng), step.one_of("SUBSET", "DIFFERENT"), mat_type)


@changes()
def add_of_type_aij(s: Sibling, step: Step):
    """Of another type of PETSc to type aij."""
    _add_of_other_type(s, step, s.plain + ("perm" if s.kind == AIJ else ""))


@changes()
def add_of_another_format(s: Sibling, step: Step):
    _add_of_other_type(s, step, s.other_type(step.number))


@changes()
def add_spare(s: Sibling, step: Step):
    s.A.axpy(s.given(-0.5), s.B, s.structure("DIFFERENT"))
    take_new_nonzeros(s.A)


@changes()
def add_itself(s: Sibling, step: Step):
    s.A.axpy(s.given(0.5), s.A, s.structure("SAME"))


@changes()
def zero_entries(s: Sibling, step: Step):
    """Then other values in the same places."""
    s.A.zeroEntries()
    _insert(s, s.A, step, step.A, INSERT)


def _insert(s: Sibling, A: PETSc.Mat, step: Step, pattern: Pattern, mode, everywhere: bool = False) -> None:
    """Values at these places, each given by the owner of the row, or by another rank."""
    values = s.given(random_values(step.rng, pattern.rows.size))
    first, last = A.getOwnershipRange()
    mine = (pattern.rows >= first) & (pattern.rows < last)
    if everywhere:
        mine = np.arange(pattern.rows.size) % COMM.size == COMM.rank
    for row, column, value in zip(pattern.rows[mine], pattern.columns[mine], values[mine], strict=True):
        A.setValue(row, column, value, addv=mode)
    A.assemble()


@changes()
def set_values(s: Sibling, step: Step):
    _insert(s, s.A, step, step.A.some(step.rng), step.one_of(ADD, INSERT), step.one_of(True, False))


@changes()
def set_new_values(s: Sibling, step: Step):
    if step.rng.random() < 0.8:
        s.A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    m, n = s.A.getSize()
    count = 6 if m * n else 0
    rows, columns = step.rng.integers(0, max(m, 1), count), step.rng.integers(0, max(n, 1), count)
    different = np.unique(rows * max(n, 1) + columns)
    pattern = Pattern(different // max(n, 1), different % max(n, 1))
    _insert(s, s.A, step, pattern, step.one_of(ADD, INSERT), step.one_of(True, False))


@changes(rows_long)
def add_values_of_all_ranks(s: Sibling, step: Step):
    """All ranks add to the same entries, in several calls."""
    some = step.A.some(step.rng)
    values = s.given(random_values(step.rng, some.rows.size))
    for row, column, value in zip(some.rows[:20], some.columns[:20], values, strict=False):
        s.A.setValues([row], [column], [value], addv=True)
        s.A.setValues([row], [column], [value], addv=True)
    s.A.assemble()


@changes()
def set_values_by_rows(s: Sibling, step: Step):
    rowptr, columns, values = s.A.getValuesCSR()
    s.A.setValuesCSR(rowptr, columns, s.given(-0.5) * values, addv=step.one_of(True, False))
    s.A.assemble()


@changes()
def flush_between(s: Sibling, step: Step):
    """Adding and inserting with a flush between them."""
    first, last = s.A.getOwnershipRange()
    own = step.A.rows[(step.A.rows >= first) & (step.A.rows < last)]
    columns = step.A.columns[(step.A.rows >= first) & (step.A.rows < last)]
    for mode in (True, False):
        if own.size:
            s.A.setValue(own[0], columns[0], s.given(-1.5), addv=mode)
            s.A.setValue(own[-1], columns[-1], s.given(-0.5), addv=mode)
        s.A.assemble(PETSc.Mat.AssemblyType.FLUSH)
    s.A.assemble()


@changes()
def set_values_in_blocks(s: Sibling, step: Step):
    """Those of one block row."""
    (block, block_column), (m, n) = s.A.getBlockSizes(), s.A.getSize()
    s.A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    values = s.given(random_values(step.rng, block * block_column))
    where = step.rng.random(2)
    if m and n and COMM.rank == step.number % COMM.size:
        places = [int(where[0] * (m // block))], [int(where[1] * (n // block_column))]
        s.A.setValuesBlocked(*places, values, addv=step.one_of(ADD, INSERT))
    else:
        step.one_of(ADD, INSERT)
    s.A.assemble()


def _chosen_rows(s: Sibling, step: Step) -> np.ndarray:
    """Some rows, named by any rank, some of them by several."""
    m = s.A.getSize()[0]
    rows = [np.flatnonzero(step.rng.random(m) < 0.25) for _ in range(COMM.size)]
    first, last = s.A.getOwnershipRange()
    if step.number % 2:
        rows = np.concatenate(rows)
        return np.unique(rows[(rows >= first) & (rows < last)]).astype(PETSc.IntType)
    return rows[COMM.rank].astype(PETSc.IntType)


def _zero(s: Sibling, step: Step, zero) -> object:
    s.A.setOption(Option.KEEP_NONZERO_PATTERN, step.one_of(True, False))
    factor = s.given(step.one_of(1.0, -2.0, 0.0))
    rows = _chosen_rows(s, step)
    if step.rng.random() < 0.5:
        zero(rows, factor)
        return None
    x, b = s.vector(step.rng), s.vector(step.rng, right=False)
    if not s.structured:
        x.scale(-1.0)  # what is subtracted from b makes it larger
    zero(rows, factor, x, b)
    x.destroy()
    return s.given(local(b))


@changes(rows_long)
def zero_rows(s: Sibling, step: Step):
    if s.A.getSizes()[0] != s.A.getSizes()[1]:
        return None
    return _zero(s, step, s.A.zeroRows)


@changes(rows_long)
def zero_rows_and_columns(s: Sibling, step: Step):
    if s.A.getSizes()[0] != s.A.getSizes()[1]:
        return None  # MatZeroRowsColumns_SeqAIJ() of PETSc 3.26 writes outside of its arrays
    return _zero(s, step, s.A.zeroRowsColumns)


@changes(rows_long)
def new_coordinates(s: Sibling, step: Step):
    """With repeats, and some that are left out; whosever rows they are."""
    m, n = s.A.getSize()
    pattern = random_pattern(step.rng, m, n)
    repeats = step.rng.integers(1, 4)
    rows, columns = (np.tile(a, repeats)[COMM.rank :: COMM.size] for a in (pattern.rows, pattern.columns))
    left_out = np.arange(rows.size) % 11 == 10
    rows = np.where(left_out, -1, rows).astype(PETSc.IntType)
    s.A.setPreallocationCOO(rows, np.array(columns, PETSc.IntType))
    values = s.given(random_values(step.rng, pattern.rows.size * repeats))[COMM.rank :: COMM.size]
    s.A.setValuesCOO(values)
    take_new_nonzeros(s.A)
    s.keep("coordinates", values.size, s.A.handle, nonzero_state(s.A))


@changes(rows_long)
def values_at_coordinates(s: Sibling, step: Step):
    """Again, while the entries are still those of the coordinates."""
    if "coordinates" not in s.kept:
        return
    count, _, _ = s.kept["coordinates"]
    values = random_values(step.rng, 4000)[COMM.rank :: COMM.size][:count]
    s.A.setValuesCOO(s.given(values), addv=step.one_of(ADD, INSERT))


@changes()
def store_and_retrieve(s: Sibling, step: Step):
    if "stored" in s.kept:
        return  # MatStoreValues_SeqAIJ() of PETSc 3.26 keeps its array when there are more entries
    s.keep("stored")
    s.A.setOption(Option.NEW_NONZERO_LOCATIONS, False)
    try:
        s.A.storeValues()
        s.A.scale(3.0)
        s.A.retrieveValues()
    finally:
        s.A.setOption(Option.NEW_NONZERO_LOCATIONS, True)


@changes()
def eliminate_zeros(s: Sibling, step: Step):
    if s.structured:
        s.A.eliminateZeros(step.one_of(True, False))


@changes()
def conjugate(s: Sibling, step: Step):
    s.A.conjugate()
    s.A.realPart()


@changes()
def set_option(s: Sibling, step: Step):
    option = step.one_of(
        *(Option.NEW_NONZERO_LOCATIONS, Option.NEW_NONZERO_LOCATION_ERR, Option.NEW_NONZERO_ALLOCATION_ERR),
        *(Option.KEEP_NONZERO_PATTERN, Option.IGNORE_ZERO_ENTRIES, Option.SYMMETRIC, Option.STRUCTURALLY_SYMMETRIC),
        Option.UNUSED_NONZERO_LOCATION_ERR,
    )
    flag = step.one_of(True, False)
    if s.structured and (option not in (Option.SYMMETRIC, Option.STRUCTURALLY_SYMMETRIC) or not flag):
        s.A.setOption(option, flag)


@changes()
def assemble_again(s: Sibling, step: Step):
    s.A.assemble()


@changes()
def bind_to_cpu(s: Sibling, step: Step):
    s.A.bindToCPU(step.one_of(True, False))
