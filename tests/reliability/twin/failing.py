"""Operations that must fail: with the same code for both types, and with the matrix as it was.

A code of PETSc is what they return, so a sequence goes on after them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from petsc4py import PETSc

from reliability.twin.matrices import COMM, Option, Pattern, Sibling, same_layouts
from reliability.twin.operations import Step, changes, looks
from reliability.twin.petsc_faults import left_out


def code_of(call: Callable, *arguments) -> int | str:
    """The PETSc error that a call ends with, 0 if it ends well, or the exception of petsc4py."""
    try:
        call(*arguments)
    except PETSc.Error as error:
        return error.ierr
    except (ValueError, TypeError) as error:
        return type(error).__name__
    return 0


def _longer(v: PETSc.Vec) -> PETSc.Vec:
    """A vector of one entry more on each rank."""
    longer = PETSc.Vec().create(COMM)
    longer.setSizes((v.getLocalSize() + 1, PETSc.DECIDE))
    longer.setType(PETSc.Vec.Type.STANDARD)
    return longer


@looks()
def vectors_of_wrong_sizes(s: Sibling, step: Step):
    right, left = s.A.createVecs()
    wrong_right, wrong_left = _longer(right), _longer(left)
    A = s.A
    found = [
        code_of(A.mult, wrong_right, left),
        code_of(A.mult, right, wrong_left),
        code_of(A.multAdd, right, wrong_left, left),
        code_of(A.multTranspose, wrong_left, right),
        code_of(A.multTranspose, left, wrong_right),
        code_of(A.multTransposeAdd, left, wrong_right, right),
        code_of(A.getDiagonal, wrong_left),
        code_of(A.getRowSum, wrong_left),
        code_of(A.diagonalScale, wrong_left, None),
        code_of(A.diagonalScale, None, wrong_right),
        code_of(A.setDiagonal, wrong_left),
    ]
    if same_layouts(A):
        found.append(code_of(A.mult, right, right))
    for v in (right, left, wrong_right, wrong_left):
        v.destroy()
    return found


@looks()
def matrices_of_wrong_sizes(s: Sibling, step: Step):
    (m, _), (n, _) = s.A.getSizes()
    other = PETSc.Mat().create(COMM)
    other.setSizes(((m + n + 1, PETSc.DECIDE), (m + n + 2, PETSc.DECIDE)))  # fits nowhere
    other.setType(s.mat_type)
    other.setUp()
    other.assemble()
    A, same = s.A, PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN
    square = s.A.getSize()[0] == s.A.getSize()[1]  # the other ones PETSc's MatPtAP() and MatRARt() do not refuse
    found = [
        code_of(A.axpy, 2.0, other, same),
        code_of(A.aypx, 2.0, other, same),
        code_of(A.copy, other, same),
        code_of(A.matMult, other),
        code_of(A.transposeMatMult, other),
        code_of(A.matTransposeMult, other),
        code_of(A.ptap, other) if square else None,
        code_of(A.rart, other) if square else None,
        code_of(A.equal, other),
        code_of(A.transpose, other),
    ]
    other.destroy()
    return found


@looks()
def places_outside(s: Sibling, step: Step):
    m, n = s.A.getSize()
    first, last = s.A.getOwnershipRange()
    found = [
        code_of(s.A.setValue, m, 0, 1.0),
        code_of(s.A.setValue, first, n, 1.0) if first < last else None,
        code_of(s.A.getRow, m),
        code_of(s.A.getValues, [0], [n]),
        code_of(s.A.zeroRows, [m + 2], 1.0),
        code_of(s.A.zeroRowsColumns, [m + 2], 1.0),
        _columns_outside(s.A) if s.A.getType().startswith("seq") else None,
        code_of(s.A.getColumnVector, n),
    ]
    s.A.assemble()
    return found


def _columns_outside(A: PETSc.Mat) -> int | str:
    """A column that there is not, in no row."""
    left_out("MatCreateSubMatrices() of rows that there are not")
    rows, columns = (PETSc.IS().createGeneral(places, comm=COMM) for places in ([], [A.getSize()[1] + 3]))
    code = code_of(A.createSubMatrices, [rows], [columns])
    rows.destroy()
    columns.destroy()
    return code


@looks()
def what_no_matrix_can(s: Sibling, step: Step):
    """Other sizes, types that do not exist, another block size once it is laid out, values of no coordinates."""
    (m, _), (n, _) = s.A.getSizes()
    found = [
        code_of(s.A.setSizes, ((m + 1, PETSc.DECIDE), (n, PETSc.DECIDE))),
        code_of(s.A.convert, "no such type"),
        code_of(s.A.setType, "no such type"),
        code_of(s.A.setBlockSize, 7) if _on_no_rank_divisible_by(7, s.A) else None,
        code_of(s.A.norm, PETSc.NormType.NORM_2),
    ]
    return found


def _on_no_rank_divisible_by(block: int, A: PETSc.Mat) -> bool:
    """Where rows or columns are, PETSc would take the block size on that rank alone."""
    ranges = A.getOwnershipRanges(), A.getOwnershipRangesColumn()
    return all(np.all(np.diff(some) % block > 0) for some in ranges)


@looks()
def unassembled(s: Sibling, step: Step):
    """Values are set, and the matrix is used before it is assembled."""
    first, last = s.A.getOwnershipRange()
    own = (step.A.rows >= first) & (step.A.rows < last)
    if not _somewhere_on_each_rank(step.A, s.A):
        return None
    row, column = int(step.A.rows[own][0]), int(step.A.columns[own][0])
    s.A.setValue(row, column, 0.0, addv=True)
    right, left = s.A.createVecs()
    found = [
        code_of(s.A.mult, right, left),
        code_of(s.A.scale, 3.0) if step.number % 2 else None,
        code_of(s.A.duplicate),
        code_of(s.A.norm),
        code_of(s.A.setValue, row, column, 1.0, False),
    ]
    s.A.assemble()
    right.destroy()
    left.destroy()
    return found


def _somewhere_on_each_rank(pattern: Pattern, A: PETSc.Mat) -> bool:
    ranges = A.getOwnershipRanges()
    counts = np.histogram(pattern.rows, bins=ranges)[0] if ranges[-1] and np.all(np.diff(ranges) > 0) else [0]
    return bool(np.all(np.asarray(counts) > 0))


@changes()
def new_nonzeros_that_are_refused(s: Sibling, step: Step):
    """On each rank one entry that the pattern lacks."""
    first, last = s.A.getOwnershipRange()
    n = s.A.getSize()[1]
    option = step.one_of(Option.NEW_NONZERO_LOCATION_ERR, Option.NEW_NONZERO_ALLOCATION_ERR)
    present = set(zip(step.A.rows.tolist(), step.A.columns.tolist(), strict=True))
    absent = [(i, j) for i in range(first, last) for j in range(n) if (i, j) not in present]
    found = None
    if s.structured:
        s.A.setOption(option, True)
        if absent:
            found = code_of(s.A.setValue, *absent[step.number % len(absent)], 1.0)
        s.A.assemble()
        s.A.setOption(option, False)
    return found


@looks()
def reuse_of_what_does_not_fit(s: Sibling, step: Step):
    """A transpose into a matrix that has another pattern, and no precursor."""
    m, n = s.A.getSizes()
    other = PETSc.Mat().create(COMM)
    other.setSizes((n, m))
    other.setType(s.mat_type)
    other.setUp()
    other.assemble()
    found = code_of(s.A.transpose, other)
    other.destroy()
    return found
