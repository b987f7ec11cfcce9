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
    layouts,
    pattern_version,
    random_pattern,
    random_values,
    same_layouts,
    set_usual_options,
)
from reliability.twin.operations import Step, changes, rows_long
from reliability.twin.petsc_faults import assemble, left_out
from reliability.twin.vectors import local

BLOCK_ALONE = "MatGetRow() after MatDiagonalSet() or MatZeroRowsColumns()"
ERRORS = (Option.NEW_NONZERO_LOCATION_ERR, Option.NEW_NONZERO_ALLOCATION_ERR)
"""Options by which what was allowed becomes an error."""
ADD, INSERT = PETSc.InsertMode.ADD_VALUES, PETSc.InsertMode.INSERT_VALUES


@changes()
def scale(s: Sibling, step: Step):
    s.A.scale(s.given(step.one_of(-1.0, 0.75, -1.25, 2.0, 1.0)))


@changes()
def shift(s: Sibling, step: Step):
    if COMM.size > 1 and not same_layouts(s.A):
        return left_out("MatShift() of several ranks, columns dealt otherwise than rows")
    s.A.shift(s.given(step.one_of(0.5, -1.5)))


@changes()
def set_diagonal(s: Sibling, step: Step):
    rows, columns = s.A.getSize()
    if rows > columns and (COMM.size > 1 or PETSc.Sys.getVersion() < (3, 25)):  # which writes beyond the entries
        return left_out("MatDiagonalSet() of several ranks, more rows than columns")
    d = s.vector(step.rng, right=False)
    s.A.setDiagonal(d, step.one_of(ADD, INSERT))
    assemble(s.A, BLOCK_ALONE)
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
    set_usual_options(s.A)


@changes()
def add_same_pattern(s: Sibling, step: Step):
    structure = step.one_of("SAME", "SUBSET", "DIFFERENT", "UNKNOWN")
    if COMM.size > 1 and structure == "SAME":
        return left_out("SAME_NONZERO_PATTERN of several ranks")
    return _add(s, step, step.A, structure)


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
    if COMM.size > 1 and layouts(s.A) != layouts(s.B):
        return left_out("MatMatMult() and MatAXPY() of several ranks, sizes that fit on some")
    s.A.axpy(s.given(-0.5), s.B, s.structure("DIFFERENT"))
    set_usual_options(s.A)


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


def _chosen_rows(s: Sibling, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Some rows that this rank names, some of them of other ranks or named by several, and those of all ranks."""
    m = s.A.getSize()[0]
    rows = [np.flatnonzero(step.rng.random(m) < 0.25) for _ in range(COMM.size)]
    first, last = s.A.getOwnershipRange()
    of_all = np.unique(np.concatenate(rows)).astype(PETSc.IntType)
    if step.number % 2:
        return of_all[(of_all >= first) & (of_all < last)], of_all
    return rows[COMM.rank].astype(PETSc.IntType), of_all


def _zero(s: Sibling, step: Step, zero, fault) -> object:
    s.A.setOption(Option.KEEP_NONZERO_PATTERN, keep := step.one_of(True, False))
    factor = s.given(step.one_of(1.0, -2.0, 0.0))
    rows, of_all = _chosen_rows(s, step)
    if factor and (name := fault(s, step, of_all, keep)):
        return left_out(name)
    if step.rng.random() < 0.5:
        zero(rows, factor)
        assemble(s.A, BLOCK_ALONE)
        return None
    x, b = s.vector(step.rng), s.vector(step.rng, right=False)
    if not s.structured:
        x.scale(-1.0)  # what is subtracted from b makes it larger
    zero(rows, factor, x, b)
    assemble(s.A, BLOCK_ALONE)
    x.destroy()
    return s.given(local(b))


def _fault_of_zero_rows(s: Sibling, step: Step, rows: np.ndarray, keep: bool) -> str:
    """The fault of PETSc that MatZeroRows() would meet with a diagonal that is not 0, if it would."""
    rank_of_row = np.searchsorted(s.A.getOwnershipRanges(), step.A.rows, "right")
    in_diagonal_block = rank_of_row == np.searchsorted(s.A.getOwnershipRangesColumn(), step.A.columns, "right")
    if not keep and not np.isin(rows, step.A.rows[in_diagonal_block]).all():
        return "MatZeroRows() of rows without entries"
    if COMM.size > 1 and keep and not np.isin(rows, step.A.rows[step.A.rows == step.A.columns]).all():
        return "MatZeroRows() of several ranks, a diagonal entry lacking"
    return ""


@changes(rows_long)
def zero_rows(s: Sibling, step: Step):
    if not same_layouts(s.A):
        return None
    return _zero(s, step, s.A.zeroRows, _fault_of_zero_rows)


@changes(rows_long)
def zero_rows_and_columns(s: Sibling, step: Step):
    if s.A.getType().startswith("mpi") and not same_layouts(s.A):
        return left_out("MatZeroRowsColumns() of several ranks, columns dealt otherwise than rows")
    return _zero(s, step, s.A.zeroRowsColumns, lambda *_: "")


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
    set_usual_options(s.A)
    s.keep("coordinates", values.size, pattern_version(s.A))


@changes(rows_long)
def values_at_coordinates(s: Sibling, step: Step):
    """Again, while the entries are still those of the coordinates."""
    if "coordinates" not in s.kept:
        return
    count, _ = s.kept["coordinates"]
    values = random_values(step.rng, 4000)[COMM.rank :: COMM.size][:count]
    s.A.setValuesCOO(s.given(values), addv=step.one_of(ADD, INSERT))


@changes()
def store_and_retrieve(s: Sibling, step: Step):
    if "stored" in s.kept:
        return left_out("MatStoreValues() once more")
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
    if s.structured and hasattr(s.A, "eliminateZeros"):  # of petsc4py 3.26
        s.A.eliminateZeros(step.one_of(True, False))


@changes()
def conjugate(s: Sibling, step: Step):
    s.A.conjugate()
    s.A.realPart()


@changes()
def set_option(s: Sibling, step: Step):
    """None on symmetry: it is lost where PETSc makes the matrix anew for a sum, which ours may not have to."""
    others = (Option.NEW_NONZERO_LOCATIONS, Option.KEEP_NONZERO_PATTERN, Option.IGNORE_ZERO_ENTRIES)
    option, flag = step.one_of(*ERRORS, *others), step.one_of(True, False)
    if COMM.size > 1 and flag and option in ERRORS:
        return  # an error of PETSc's on one rank leaves the others waiting
    if s.structured:
        s.A.setOption(option, flag)


@changes()
def assemble_again(s: Sibling, step: Step):
    s.A.assemble()


@changes()
def bind_to_cpu(s: Sibling, step: Step):
    s.A.bindToCPU(step.one_of(True, False))
