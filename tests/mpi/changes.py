"""Products after the values or the pattern of a matrix changed: every public way to change them, each applied twice.

The second application finds stores that the first one has already refreshed or planned again.
"""

import numpy as np
from dense import COMM, TYPE, check_products, csr, distribute, layouts, random_dense, rounding, scalars
from petsc4py import PETSc

from petsc_gpufmt.device_arrays import diagonal, matrix_values

COUNT = 45


def scale(A, dense):
    A.scale(-1.5)
    return -1.5 * dense


def diagonal_scale(A, dense):
    right, left = A.createVecs()
    weights = np.linspace(0.5, 2.0, COUNT)
    left.setArray(scalars(weights[slice(*left.getOwnershipRange())]))
    right.setArray(scalars(weights[::-1][slice(*right.getOwnershipRange())]))
    A.diagonalScale(left, right)
    return weights[:, None] * dense * weights[::-1]


def shift(A, dense):
    A.shift(3.0)
    return dense + 3.0 * np.eye(COUNT)


def set_diagonal(A, dense):
    diagonal = A.createVecLeft()
    first, last = diagonal.getOwnershipRange()
    diagonal.setArray(scalars(np.arange(first, last) + 1.0))
    A.setDiagonal(diagonal)
    result = dense.copy()
    np.fill_diagonal(result, np.arange(COUNT) + 1.0)
    return result


def insert_own_entries(A, dense):
    result = np.where(dense != 0.0, dense + 2.0, 0.0)
    first, last = A.getOwnershipRange()
    A.setValuesCSR(*csr(result[first:last]))
    A.assemble()
    return result


def add_to_entries_of_all_ranks(A, dense):
    """Each rank adds to existing entries of every rank."""
    rows, columns = np.nonzero(dense)
    for row, column in zip(rows[::7], columns[::7], strict=True):
        A.setValue(row, column, COMM.rank + 1.0, addv=PETSc.InsertMode.ADD_VALUES)
    A.assemble()
    result = dense.copy()
    result[rows[::7], columns[::7]] += COMM.size * (COMM.size + 1) / 2
    return result


def write_values_in_place(A, dense):
    """Those of both blocks, in memory of the host or of the device."""
    with matrix_values(A, "rw") as blocks:
        for values in blocks:
            values *= 0.5
    with diagonal(A, "rw") as entries:
        entries += 4.0
    return 0.5 * dense + 4.0 * np.eye(COUNT)


def zero_entries(A, dense):
    A.zeroEntries()
    check_products(A, 0.0 * dense, "zeroEntries")
    return insert_own_entries(A, dense)


def axpy_same_pattern(A, dense):
    double = distribute(2.0 * dense, A.getType(), *A.getLocalSize())
    A.axpy(0.25, double, PETSc.Mat.Structure.SAME_NONZERO_PATTERN)
    return 1.5 * dense


def axpy_other_pattern(A, dense):
    other = random_dense(COUNT, COUNT, seed=5)
    A.axpy(2.0, distribute(other, A.getType(), *A.getLocalSize()), PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)
    return dense + 2.0 * other


def axpy_aij(A, dense):
    other = random_dense(COUNT, COUNT, seed=6)
    A.axpy(-1.0, distribute(other, "aij", *A.getLocalSize()), PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)
    return dense - other


def copy_values(A, dense):
    distribute(4.0 * dense, A.getType(), *A.getLocalSize()).copy(A, PETSc.Mat.Structure.SAME_NONZERO_PATTERN)
    return 4.0 * dense


def zero_rows(A, dense):
    A.setOption(PETSc.Mat.Option.KEEP_NONZERO_PATTERN, True)
    result = dense.copy()
    result[::5] = 0.0
    result[range(0, COUNT, 5), range(0, COUNT, 5)] = 2.0
    A.zeroRows(own(A, range(0, COUNT, 5)), 2.0)
    return result


def zero_rows_dropping_entries(A, dense):
    result = dense.copy()
    result[::5] = 0.0
    A.zeroRows(own(A, range(0, COUNT, 5)), 0.0)
    return result


def zero_rows_and_columns(A, dense):
    chosen = range(1, COUNT, 6)
    result = dense.copy()
    result[chosen, :] = 0.0
    result[:, chosen] = 0.0
    result[chosen, chosen] = 1.0
    A.zeroRowsColumns(own(A, chosen), 1.0)
    return result


def new_entries(A, dense):
    """Entries outside the pattern, on every rank."""
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    result = dense.copy()
    free = np.argwhere(dense == 0.0)[::11]
    first, last = A.getOwnershipRange()
    for row, column in free:
        result[row, column] = row - 0.5 * column + 0.25
        if first <= row < last:
            A.setValue(row, column, result[row, column])
    A.assemble()
    return result


def store_and_retrieve_values(A, dense):
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_LOCATIONS, False)
    A.storeValues()
    A.scale(10.0)
    check_products(A, 10.0 * dense, "before retrieveValues")
    A.retrieveValues()
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_LOCATIONS, True)
    return dense


def drop_small_entries(A, dense):
    A.chop(0.3)
    return np.where(np.abs(dense) > 0.3, dense, 0.0)


def transpose_in_place(A, dense):
    A.transpose()
    return dense.T.copy()


def replace_by_coo(A, dense):
    """A new pattern by coordinates, entries given by any rank, values set twice."""
    other = random_dense(COUNT, COUNT, seed=9)
    rows, columns = (part[COMM.rank :: COMM.size].astype(PETSc.IntType) for part in np.nonzero(other))
    A.setPreallocationCOO(rows.copy(), columns.copy())  # PETSc may change them
    A.setValuesCOO(scalars(7.0 * other[rows, columns]))
    check_products(A, 7.0 * other, "first setValuesCOO")
    A.setValuesCOO(scalars(other[rows, columns]))
    A.setValuesCOO(scalars(other[rows, columns]), PETSc.InsertMode.ADD_VALUES)
    return 2.0 * other


def check_submatrices(A, dense):
    """All rows and columns on every rank, with new values in the matrix of an earlier call."""
    whole = PETSc.IS().createStride(COUNT, comm=PETSc.COMM_SELF)
    matrices = A.createSubMatrices([whole], [whole])
    x, z = matrices[0].createVecs()
    x.set(1.0)
    for factor in (1.0, -2.0):
        A.scale(factor)
        A.createSubMatrices([whole], [whole], submats=matrices)
        matrices[0].mult(x, z)
        np.testing.assert_allclose(z.getArray(), factor * dense.sum(axis=1), rtol=rounding(1e-12), atol=rounding(1e-12))
    (part,) = A.createSubMatrices(PETSc.IS().createStride(COUNT - 1, comm=PETSc.COMM_SELF))
    x = part.duplicate(copy=True).createVecRight()
    x.set(1.0)
    np.testing.assert_allclose((part * x).getArray(), (part.duplicate(copy=True) * x).getArray())


CHANGES = [
    *(scale, diagonal_scale, shift, set_diagonal, insert_own_entries, add_to_entries_of_all_ranks, zero_entries),
    *(axpy_same_pattern, axpy_other_pattern, axpy_aij, copy_values, zero_rows, zero_rows_dropping_entries),
    *(zero_rows_and_columns, new_entries, store_and_retrieve_values, drop_small_entries, transpose_in_place),
    *(replace_by_coo, write_values_in_place),
]


def own(A, rows):
    first, last = A.getOwnershipRange()
    return [row for row in rows if first <= row < last]


def main():
    dense = random_dense(COUNT, COUNT) + np.eye(COUNT)
    check_submatrices(distribute(dense, TYPE), dense)
    named = layouts(COUNT)
    for name in ["balanced", "none_on_middle"][: COMM.size]:
        local = named[name]
        for change in CHANGES:
            A = distribute(dense, TYPE, local, local)
            check_products(A, dense, "before the change")
            changed = change(A, dense)
            check_products(A, changed, f"{change.__name__}, {name}")
            changed = change(A, changed)
            check_products(A, changed, f"{change.__name__} again, {name}")
            assert TYPE in A.getType(), f"{change.__name__} turned the matrix into {A.getType()}"
            A.destroy()


main()
