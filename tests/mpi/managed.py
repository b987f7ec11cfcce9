"""Results of parallel products whose blocks have managed arrays: every way to change them acts as on type aij.

Where there is no device, ordinary memory takes the place of managed one.
"""

import gc

import numpy as np
from dense import COMM, TYPE, csr, random_dense
from petsc4py import PETSc

from petsc_gpufmt import native_library

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


def scale(A):
    A.scale(-3.0)


def add_other_pattern(A):
    other = A.duplicate(copy=False)
    new_nonzeros(other)
    A.axpy(2.0, other, structure=PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)


def convert(A):
    A.convert("aij")
    new_nonzeros(A)


def matrix(dense):
    first = PETSc.Mat().create(COMM)
    first.setSizes((COUNT, COUNT))
    first.setUp()
    begin, end = first.getOwnershipRange()
    A = PETSc.Mat().createAIJ(((end - begin, COUNT), (end - begin, COUNT)), csr=csr(dense[begin:end]), comm=COMM)
    A.convert(TYPE)
    return A


def to_dense(A):
    return A.convert("dense", PETSc.Mat()).getDenseArray().copy()


def main():
    options = PETSc.Options()
    options["matmatmult_via"] = "rmerge"
    LIBRARY.GpufmtManagedSimulate(1)  # changes nothing where there is a device
    factor = matrix(random_dense(COUNT, COUNT, seed=5) + 3.0 * np.eye(COUNT))  # MatZeroRows() fails for empty rows
    for write in (
        *(on_the_diagonal, new_nonzeros, from_the_other_ranks, zero_rows, zero_rows_and_columns, shift, scale),
        *(add_other_pattern, convert),
    ):
        C = factor.matMult(factor)
        assert LIBRARY.GpufmtManagedCount() > 0
        same = C.convert("aij", PETSc.Mat())
        for _ in range(2):
            write(C)
            write(same)
        np.testing.assert_allclose(to_dense(C), to_dense(same), err_msg=write.__name__)
        x, z = C.createVecs()
        x.set(1.0)
        C.mult(x, z)
        np.testing.assert_allclose(z.getArray(), to_dense(same).sum(axis=1), atol=1e-9)
        C.destroy()
    factor.destroy()
    gc.collect()
    assert LIBRARY.GpufmtManagedCount() == 0


main()
