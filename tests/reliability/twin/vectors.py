"""Operations that only look at a matrix: products with vectors, parts of it, what it says about itself."""

from __future__ import annotations

import ctypes

import numpy as np
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library
from reliability.twin.matrices import COMM, Sibling, same_layouts
from reliability.twin.operations import Step, all_entries, looks, once, rows_long
from reliability.twin.petsc_faults import left_out

LIBRARY = native_library.load()


def local(v: PETSc.Vec) -> np.ndarray:
    """Its entries here; it is destroyed."""
    values = v.getArray(readonly=True).copy()
    v.destroy()
    return values


def dense_rows(A: PETSc.Mat) -> np.ndarray:
    """The rows of this rank with all their columns."""
    rowptr, columns, values = A.getValuesCSR()
    rows = np.zeros((rowptr.size - 1, A.getSize()[1]), PETSc.ScalarType)
    np.add.at(rows, (np.repeat(np.arange(rowptr.size - 1), np.diff(rowptr)), columns), values)
    return rows


def entries(s: Sibling, A: PETSc.Mat) -> list:
    """All that there is to compare of a matrix; not the order in a row, which PETSc may change in copies."""
    rowptr, columns, _ = A.getValuesCSR()
    order = np.lexsort((columns, np.repeat(np.arange(rowptr.size - 1), np.diff(rowptr))))
    return [A.getSizes(), A.getBlockSizes(), rowptr.tolist(), columns[order].tolist(), dense_rows(A)]


@looks(rows_long)
def mult(s: Sibling, step: Step):
    y, x = s.A.createVecLeft(), s.vector(step.rng)
    s.A.mult(x, y)
    x.destroy()
    return local(y)


@looks(rows_long)
def mult_twice_as_values_change(s: Sibling, step: Step):
    """The second time with values that a store has to be refreshed with; then the first ones again."""
    x, y, z = s.vector(step.rng), s.A.createVecLeft(), s.A.createVecLeft()
    s.A.mult(x, y)
    s.A.scale(2.0)
    s.A.mult(x, z)
    s.A.scale(0.5)
    x.destroy()
    return [local(y), local(z)]


@looks(rows_long)
def mult_add(s: Sibling, step: Step):
    x, y = s.vector(step.rng), s.vector(step.rng, right=False)
    z = y if step.rng.random() < 0.5 else s.vector(step.rng, right=False)
    s.A.multAdd(x, y, z)
    x.destroy()
    return local(z)


@looks(rows_long)
def mult_transpose(s: Sibling, step: Step):
    x, y = s.vector(step.rng, right=False), s.A.createVecRight()
    s.A.multTranspose(x, y)
    x.destroy()
    return local(y)


@looks(rows_long)
def mult_transpose_add(s: Sibling, step: Step):
    x, y = s.vector(step.rng, right=False), s.vector(step.rng)
    z = y if step.rng.random() < 0.5 else s.vector(step.rng)
    s.A.multTransposeAdd(x, y, z)
    x.destroy()
    return local(z)


@looks(rows_long)
def mult_hermitian(s: Sibling, step: Step):
    x, y = s.vector(step.rng, right=False), s.A.createVecRight()
    s.A.multHermitian(x, y)
    x.destroy()
    return local(y)


@looks(rows_long)
def mult_of_virtual_transpose(s: Sibling, step: Step):
    transposed = PETSc.Mat().createTranspose(s.A)
    x, y = s.vector(step.rng, right=False), s.A.createVecRight()
    transposed.mult(x, y)
    transposed.destroy()
    x.destroy()
    return local(y)


@looks(rows_long)
def mult_by_several_vectors(s: Sibling, step: Step):
    """A product with a dense matrix; PETSc 3.25 crashes where a rank has none of its rows (mpimatmatmult.c:501)."""
    if PETSc.Sys.getVersion()[:2] == (3, 25) and COMM.size > 1 and 0 in np.diff(s.A.getOwnershipRangesColumn()):
        return None
    several = PETSc.Mat().createDense((s.A.getSizes()[1], 3), comm=COMM)
    several.setUp()
    first, last = several.getOwnershipRange()
    several.getDenseArray()[:] = s.given(step.rng.uniform(-1, 1, (several.getSize()[0], 3))[first:last])
    several.assemble()
    products = s.A.matMult(several)
    result = products.getDenseArray(readonly=True).copy()
    products.destroy()
    several.destroy()
    return result


@looks()
def diagonal(s: Sibling, step: Step):
    return local(s.A.getDiagonal())


@looks(rows_long)
def row_sums(s: Sibling, step: Step):
    return local(s.A.getRowSum())


@looks(all_entries)
def norms(s: Sibling, step: Step):
    kinds = (PETSc.NormType.NORM_1, PETSc.NormType.FROBENIUS, PETSc.NormType.NORM_INFINITY)
    return [np.array([s.A.norm(kind)], PETSc.ScalarType) for kind in kinds]


@looks(rows_long)
def row_extremes(s: Sibling, step: Step):
    """Off by no more than the row's entry that may be off most."""
    result = []
    if not s.A.getSize()[1]:
        return left_out("MatGetRowMax() and its like without columns")
    for name in ("MatGetRowMax", "MatGetRowMaxAbs", "MatGetRowMin", "MatGetRowMinAbs"):
        v = s.A.createVecLeft()
        function = getattr(LIBRARY, name if s.structured else "MatGetRowMaxAbs")
        code = function(ctypes.c_void_p(s.A.handle), ctypes.c_void_p(v.handle), None)
        result += [code, local(v)] if not code else [code, None]
    return result


@looks()
def row(s: Sibling, step: Step):
    """Of this rank, as MatGetRow() gives it."""
    first, last = s.A.getOwnershipRange()
    where = step.rng.random()
    if first == last:
        return None
    columns, values = s.A.getRow(first + int(where * (last - first)))
    full = np.zeros(s.A.getSize()[1], PETSc.ScalarType)
    full[columns] = values
    return [np.sort(columns).tolist(), full]


@looks()
def row_pointers(s: Sibling, step: Step):
    if COMM.size > 1 or s.A.getType().startswith("mpi"):
        return None
    left_out("MatGetColumnIJ() after MatTranspose() in place")
    return [a.tolist() for a in s.A.getRowIJ()]


@looks()
def some_values(s: Sibling, step: Step):
    first, last = s.A.getOwnershipRange()
    columns = step.rng.permutation(s.A.getSize()[1])[:5].astype(PETSc.IntType)
    return s.A.getValues(np.arange(first, last, 2, dtype=PETSc.IntType), columns)


@looks()
def column(s: Sibling, step: Step):
    where = step.rng.random()
    return local(s.A.getColumnVector(int(where * s.A.getSize()[1]))) if s.A.getSize()[1] else None


@looks()
def what_it_says(s: Sibling, step: Step):
    """Sizes, layouts, vectors, options, counters."""
    A = s.A
    right, left = A.createVecs()
    said = [A.getSizes(), A.getBlockSizes(), A.getOwnershipRange(), A.getOwnershipRangeColumn(), A.isAssembled()]
    said += [v.getSizes() for v in (right, left)]
    said += [v.getBlockSize() for v in (right, left)]
    said += [A.getInfo(kind)["nz_used"] for kind in (PETSc.Mat.InfoType.LOCAL, PETSc.Mat.InfoType.GLOBAL_SUM)]
    said += [int(A.getInfo()["mallocs"]) >= 0]
    said += [getattr(A, name)() for name in ("getName", "getOptionsPrefix")] if A.getName().startswith("named") else []
    for v in (right, left):
        v.destroy()
    return repr(said)


@looks()
def zero_rows_found(s: Sibling, step: Step):
    found = s.A.findZeroRows()
    rows = found.getIndices().tolist() if found else []
    return rows if s.structured else None


@looks()
def structurally_symmetric(s: Sibling, step: Step):
    return s.A.isStructurallySymmetric()


@looks()
def equal_to_a_copy(s: Sibling, step: Step):
    copied = s.A.duplicate(copy=True)
    same = s.A.equal(copied)
    copied.scale(2.0)
    other = s.A.equal(copied)
    copied.destroy()
    return [same, other]


@looks()
def overlap(s: Sibling, step: Step):
    """Rows that are neighbours of some rows."""
    m, n = s.A.getSize()
    if not same_layouts(s.A):
        return left_out("MatIncreaseOverlap() of a matrix that is not square")
    chosen = np.flatnonzero(step.rng.random(m) < 0.2).astype(PETSc.IntType)
    first, last = s.A.getOwnershipRange()
    rows = PETSc.IS().createGeneral(chosen[(chosen >= first) & (chosen < last)], comm=PETSc.COMM_SELF)
    s.A.increaseOverlap(rows, 1 + step.number % 2)
    found = sorted(rows.getIndices().tolist())  # their order is that in which messages arrive
    rows.destroy()
    return found


@looks(once)
def diagonal_block(s: Sibling, step: Step):
    block = s.A.getDiagonalBlock()
    return [block.getSizes(), dense_rows(block)]
