"""Results of parallel products whose blocks have managed arrays: every way to change them acts as on type aij.

Where there is no device, ordinary memory takes the place of managed one.
"""

import gc

import numpy as np
from dense import COMM, FORMAT, TYPE, csr, random_dense
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library

COUNT = 40
LIBRARY = native_library.load()
Option = PETSc.Mat.Option


def on_the_diagonal(A):
    A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    first, last = A.getOwnershipRange()
    for row in range(first, last):
        A.setValue(row, row, 1.0, addv=True)
    A.assemble()


def new_nonzeros(A):
    A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    first, last = A.getOwnershipRange()
    if first < last:
        A.setValues([first], range(COUNT), np.ones((1, COUNT)), addv=True)
    A.assemble()


def from_the_other_ranks(A):
    """New nonzeros in the first and the last row, sent by all ranks."""
    A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    A.setValues([0, COUNT - 1], range(COUNT), np.ones((2, COUNT)), addv=True)
    A.assemble()


def zero_rows(A):
    A.zeroRows(range(*A.getOwnershipRange(), 3), diag=2.0)


def zero_rows_and_columns(A):
    A.zeroRowsColumns(range(*A.getOwnershipRange(), 3), diag=2.0)


def shift(A):
    A.shift(2.0)


def set_diagonal(A):
    d = A.createVecLeft()
    d.setArray(np.sin(np.arange(*d.getOwnershipRange())))
    A.setDiagonal(d)
    A.setDiagonal(d, PETSc.InsertMode.ADD_VALUES)


def zero(A):
    A.zeroEntries()
    A.shift(1.0)


def scale(A):
    A.scale(-3.0)


def add_other_pattern(A):
    other = A.duplicate(copy=False)
    new_nonzeros(other)
    A.axpy(2.0, other, structure=PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)


def scale_rows_and_columns(A):
    left, right = A.createVecLeft(), A.createVecRight()
    for v in (left, right):
        v.setArray(1.0 + np.cos(np.arange(*v.getOwnershipRange())) ** 2)
    A.diagonalScale(left, None)
    A.diagonalScale(left, right)


def entries_of(A, every):
    """A matrix with every so many of the entries of A, and other values: some ghost columns have none."""
    entries = to_dense(A)
    places = np.zeros((A.getLocalSize()[0], COUNT))
    rows, columns = np.nonzero(entries)
    kept = columns % every == rows % 2
    places[rows[kept], columns[kept]] = np.cos(1.0 + rows[kept] + columns[kept])
    return places


def add_some_entries(A):
    """The second time, where every rank knows the places; then others."""
    for every in (2, 2, 3):
        other = matrix_of_rows(entries_of(A, every), A.getType())
        A.axpy(2.0, other, structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)
        A.aypx(0.5, other, structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)


def add_the_same_entries(A):
    A.axpy(2.0, A.duplicate(copy=True), structure=PETSc.Mat.Structure.SAME_NONZERO_PATTERN)


def add_the_same_entries_unannounced(A):
    for structure in (PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN, PETSc.Mat.Structure.UNKNOWN_NONZERO_PATTERN):
        A.axpy(2.0, A.duplicate(copy=True), structure=structure)


def allow_new_nonzeros(A):
    """Our results do, and have ordinary arrays once they are told to."""
    if A.getType() in ("seqaij", "mpiaij"):
        A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)


def add_a_new_entry_on_one_rank(A):
    allow_new_nonzeros(A)
    rows = entries_of(A, 2)
    if A.getOwnershipRange()[1] == COUNT:
        rows[-1] = 5.0
    A.axpy(2.0, matrix_of_rows(rows, A.getType()), structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)


def add_a_new_column_on_one_rank(A):
    """To a row that has other ghost columns."""
    allow_new_nonzeros(A)
    rows = np.zeros((A.getLocalSize()[0], COUNT))
    if COMM.rank == COMM.size // 2:
        rows[0, COUNT - 1] = 5.0
    A.axpy(2.0, matrix_of_rows(rows, A.getType()), structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)


def assemble(A):
    A.assemble()


STAY_MANAGED = (
    *(scale, scale_rows_and_columns, add_some_entries, add_the_same_entries),
    *(add_the_same_entries_unannounced, assemble, shift, set_diagonal, zero),
)


def from_the_first_rank_alone(A):
    """New nonzeros in the last row: its owner sets none and is told nothing before they arrive."""
    allow_new_nonzeros(A)
    if COMM.rank == 0:
        A.setValues([COUNT - 1], range(COUNT), np.ones((1, COUNT)), addv=True)
    A.assemble()


def convert(A):
    A.convert("aij")
    new_nonzeros(A)


def matrix(dense):
    first = PETSc.Mat().create(COMM)
    first.setSizes((COUNT, COUNT))
    first.setUp()
    begin, end = first.getOwnershipRange()
    return matrix_of_rows(dense[begin:end], TYPE)


def matrix_of_rows(dense, mat_type):
    A = PETSc.Mat().createAIJ(((len(dense), COUNT), (len(dense), COUNT)), csr=csr(dense), comm=COMM)
    A.convert(mat_type)
    return A


def to_dense(A):
    return A.convert("dense", PETSc.Mat()).getDenseArray().copy()


def check_an_operand_of_type_aij_with_blocks_of_ours(options):
    """As -mat_seqaij_type makes them: the result is of type aij, its arrays are ordinary ones."""
    B = matrix(np.eye(COUNT))
    options["mat_seqaij_type"] = f"seqaij{FORMAT}"
    A = matrix_of_rows(to_dense(B), "aij")
    options.delValue("mat_seqaij_type")
    C = A.matMult(B)
    assert C.getType() == A.getType()
    on_the_diagonal(C)
    np.testing.assert_array_equal(to_dense(C), 2.0 * to_dense(B))
    C.destroy()


WRITERS = (
    *(on_the_diagonal, new_nonzeros, from_the_other_ranks, from_the_first_rank_alone, zero_rows),
    *(zero_rows_and_columns, add_other_pattern, convert, *STAY_MANAGED, add_a_new_entry_on_one_rank),
)


def main():
    options = PETSc.Options()
    options["matmatmult_via"] = "rmerge"
    LIBRARY.GpufmtManagedSimulate(1)  # changes nothing where there is a device
    check_an_operand_of_type_aij_with_blocks_of_ours(options)
    factor = matrix(random_dense(COUNT, COUNT, seed=5) + 3.0 * np.eye(COUNT))  # MatZeroRows() fails for empty rows
    band = matrix(np.eye(COUNT) + np.eye(COUNT, k=1) + np.eye(COUNT, k=-1))
    runs = [(factor, write) for write in WRITERS] + [(band, add_a_new_column_on_one_rank), (band, add_some_entries)]
    for given, write in runs:
        C = given.matMult(given)
        assert LIBRARY.GpufmtManagedCount() > 0
        same = C.convert("aij", PETSc.Mat())
        before = LIBRARY.GpufmtManagedCount()
        for _ in range(2):
            write(C)
            write(same)
        gc.collect()
        assert write not in STAY_MANAGED or LIBRARY.GpufmtManagedCount() == before, write.__name__
        np.testing.assert_allclose(to_dense(C), to_dense(same), err_msg=write.__name__)
        x, z = C.createVecs()
        x.set(1.0)
        C.mult(x, z)
        np.testing.assert_allclose(z.getArray(), to_dense(same).sum(axis=1), atol=1e-9)
        C.destroy()
    factor.destroy()
    band.destroy()
    gc.collect()
    assert LIBRARY.GpufmtManagedCount() == 0


main()
