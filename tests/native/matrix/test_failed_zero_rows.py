"""MatZeroRowsColumns() of PETSc may fail after it has written values: products are those of the values that it left."""

import numpy as np
import pytest
from petsc4py import PETSc

import petsc_gpufmt  # noqa: F401


def test_products_see_what_a_failure_left():
    csr = ([0, 1, 3, 4], [1, 0, 1, 2], [1.0, 2.0, 3.0, 4.0])
    A = PETSc.Mat().createAIJ((3, 3), csr=csr, comm=PETSc.COMM_SELF)
    A.convert("pjds")
    x, y = A.createVecs()
    x.set(1.0)
    A.mult(x, y)
    with pytest.raises(PETSc.Error):
        A.zeroRowsColumns([0], 5.0)
    A.mult(x, y)
    np.testing.assert_array_equal(y.getArray(), A.getValues(range(3), range(3)).sum(axis=1))
