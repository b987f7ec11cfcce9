"""Operations that make other matrices: transposes, copies, conversions, parts."""

from __future__ import annotations

import numpy as np
from petsc4py import PETSc

from reliability.twin.matrices import COMM, Sibling, layouts, same_layouts, saved_and_loaded, set_usual_options
from reliability.twin.operations import Step, changes, looks, rows_long
from reliability.twin.petsc_faults import left_out
from reliability.twin.vectors import entries


@changes()
def transpose_in_place(s: Sibling, step: Step):
    s.A.transpose()
    set_usual_options(s.A)


@changes()
def transpose_to_spare(s: Sibling, step: Step):
    s.replace(s.A.transpose(PETSc.Mat()), "B")
    return entries(s, s.B)


@looks()
def transpose_with_reuse(s: Sibling, step: Step):
    """The same transpose is filled once more while PETSc takes the pattern for the same."""
    if "transpose" in s.kept:
        transposed, pattern = s.kept["transpose"]
        if pattern.state == step.A.state and pattern.same(step.A) and s.structured:
            s.A.transpose(transposed)
            return entries(s, transposed)
    transposed = s.A.transpose(PETSc.Mat())
    s.keep("transpose", transposed, step.A)
    return entries(s, transposed)


@changes()
def duplicate(s: Sibling, step: Step):
    """A copy takes the place of the matrix, which becomes the spare one."""
    copied = s.A.duplicate(copy=True)
    s.replace(s.A.duplicate(copy=step.one_of(True, False)), "B")
    s.replace(copied)
    return entries(s, s.B)


@changes()
def swap(s: Sibling, step: Step):
    s.A, s.B = s.B, s.A


@changes()
def copy_to_spare(s: Sibling, step: Step):
    if layouts(s.A) != layouts(s.B):
        return None
    if step.A.same(step.B):
        structure = step.one_of("SAME", "DIFFERENT")
        if COMM.size > 1 and structure == "SAME":
            return left_out("SAME_NONZERO_PATTERN of several ranks")
        s.A.copy(s.B, s.structure(structure))
    else:
        set_usual_options(s.B)
        s.A.copy(s.B, s.structure("DIFFERENT"))
    set_usual_options(s.B)
    return entries(s, s.B)


@changes()
def copy_to_new(s: Sibling, step: Step):
    s.replace(s.A.copy(), "B")
    return entries(s, s.B)


@changes()
def convert_to_aij_and_back(s: Sibling, step: Step):
    way = step.one_of("in place", "out of place", "half")
    if way == "in place":
        s.A.convert(s.plain)
        s.A.scale(2.0)
        s.A.convert(s.mat_type)
    elif way == "half":
        other = s.A.convert(s.plain, PETSc.Mat())
        s.replace(other.convert(s.mat_type))
    else:
        other = s.A.convert(s.plain, PETSc.Mat())
        s.replace(other.convert(s.mat_type, PETSc.Mat()))
        other.destroy()


@changes()
def convert_to_another_format(s: Sibling, step: Step):
    """And, later, on from there."""
    s.A.convert(s.other_type(step.number))
    s.mat_type = s.other_type(step.number)


@changes()
def convert_by_another_type(s: Sibling, step: Step):
    """Of PETSc, whose conversions go by way of aij."""
    through = step.one_of("baij", "sell")
    if s.A.getType().startswith("mpi") and through == "sell":
        return left_out("MatConvert() from a type without MatGetRow()")
    set_usual_options(s.A)
    left_out("MatConvert() to baij of several ranks, MAT_NEW_NONZERO_LOCATIONS false")
    other = s.A.convert(through, PETSc.Mat())
    s.replace(other.convert(s.mat_type, PETSc.Mat()), "B")
    other.destroy()
    return entries(s, s.B)


@changes()
def save_and_load(s: Sibling, step: Step):
    s.replace(saved_and_loaded(s.A, s.mat_type))


def _index_sets(s: Sibling, step: Step) -> tuple[PETSc.IS, PETSc.IS]:
    """Some of this rank's rows, and some columns, those of this rank first to last."""
    sets = []
    for range_, count in zip((s.A.getOwnershipRange(), s.A.getOwnershipRangeColumn()), s.A.getSize(), strict=True):
        chosen = np.flatnonzero(step.rng.random(count) < 0.6)
        own = chosen[(chosen >= range_[0]) & (chosen < range_[1])].astype(PETSc.IntType)
        sets.append(PETSc.IS().createGeneral(own, comm=COMM))
    return sets[0], sets[1]


@looks()
def submatrix(s: Sibling, step: Step):
    """Filled once more with other values, as MAT_REUSE_MATRIX does."""
    rows, columns = _index_sets(s, step)
    part = s.A.createSubMatrix(rows, columns)
    first = entries(s, part)
    s.A.scale(2.0)
    part = s.A.createSubMatrix(rows, columns, part)
    second = entries(s, part)
    s.A.scale(0.5)
    for made in (part, rows, columns):
        made.destroy()
    return [first, second]


@changes()
def submatrix_from_here_on(s: Sibling, step: Step):
    """All rows and columns, once in their order and once in another one on each rank."""
    if COMM.size > 1 and step.number % 2:
        return left_out("MatAXPY() of several ranks, columns in another order")
    sets = []
    for first, last in (s.A.getOwnershipRange(), s.A.getOwnershipRangeColumn()):
        here = np.arange(first, last, dtype=PETSc.IntType)
        sets.append(PETSc.IS().createGeneral(here[::-1] if step.number % 2 else here, comm=COMM))
    s.replace(s.A.createSubMatrix(*sets))
    for made in sets:
        made.destroy()


@looks()
def submatrices(s: Sibling, step: Step):
    """Sequential ones, of rows of any rank, filled once more."""
    m, n = s.A.getSize()
    rows = np.flatnonzero(step.rng.random(m) < 0.5).astype(PETSc.IntType)
    columns = np.flatnonzero(step.rng.random(n) < 0.7).astype(PETSc.IntType)
    if not same_layouts(s.A) and (rows.size, columns.size) == (m, n) and COMM.size > 1:
        return left_out("MatCreateSubMatrices() of several ranks, columns dealt otherwise than rows")
    sets = [PETSc.IS().createGeneral(a, comm=PETSc.COMM_SELF) for a in (rows, columns)]
    parts = s.A.createSubMatrices([sets[0]], [sets[1]])
    first = entries(s, parts[0])
    s.A.scale(2.0)
    parts = s.A.createSubMatrices([sets[0]], [sets[1]], submats=parts)
    second = entries(s, parts[0])
    s.A.scale(0.5)
    for made in (*parts, *sets):
        made.destroy()
    return [first, second]


@changes()
def permute(s: Sibling, step: Step):
    """Rows and columns, each within its rank."""
    sets = []
    for range_, count in zip((s.A.getOwnershipRange(), s.A.getOwnershipRangeColumn()), s.A.getSize(), strict=True):
        order = np.argsort(step.rng.random(count)[slice(*range_)]) + range_[0]
        sets.append(PETSc.IS().createGeneral(order.astype(PETSc.IntType), comm=COMM))
        sets[-1].setPermutation()
    s.replace(s.A.permute(*sets))
    s.A.convert(s.mat_type)  # PETSc's of parallel matrices is of type aij, on one rank seqaij
    for made in sets:
        made.destroy()


@looks(rows_long)
def virtual_submatrix(s: Sibling, step: Step):
    if COMM.size > 1 and s.A.getBlockSizes() != (1, 1):
        return left_out("MatCreateSubMatrixVirtual() of several ranks, in blocks")
    rows, columns = _index_sets(s, step)
    part = PETSc.Mat().createSubMatrixVirtual(s.A, rows, columns)
    x, y = part.createVecs()
    s.filled(x, step.rng)
    part.mult(x, y)
    result = y.getArray().copy()
    for made in (part, rows, columns, x, y):
        made.destroy()
    return result


@changes()
def names_and_null_spaces(s: Sibling, step: Step):
    """Stay with the matrix when its type changes."""
    s.A.setName(f"named {step.number}")
    s.A.setOptionsPrefix(f"p{step.number}_")
    if not same_layouts(s.A):
        return None
    constant = PETSc.NullSpace().create(constant=True, comm=COMM)
    s.A.setNullSpace(constant)
    s.A.convert(s.mat_type)
    said = [s.A.getName(), s.A.getOptionsPrefix(), s.A.getNullSpace().hasConstant()]
    constant.destroy()
    return said


@changes()
def pattern_without_values(s: Sibling, step: Step):
    """A copy of the pattern gets values."""
    other = s.A.duplicate(copy=False)
    rowptr, columns, _ = s.A.getValuesCSR()
    values = s.given(step.rng.uniform(-1, 1, (s.A.getSize()[0], s.A.getSize()[1])))
    rows = np.repeat(np.arange(*s.A.getOwnershipRange()), np.diff(rowptr))
    other.setValuesCSR(rowptr, columns, values[rows, columns])
    other.assemble()
    s.replace(other, "B")
    return entries(s, s.B)
