"""The four products in every distribution of rows: ranks without rows, one row in total, none at all, long and wide.

Then with plans that fail on one rank.
"""

import ctypes

import numpy as np
from dense import COMM, TYPE, check_products, csr, distribute, layouts, random_dense
from failing import LIBRARY, UNSUPPORTED, error_of, plan_failing

SHAPES = [
    *((0, 0), (1, 1), (0, 5), (5, 0), (1, 40), (40, 1)),
    *((31, 31), (33, 33), (150, 40), (40, 150)),
]


def check_layouts():
    for rows, columns in SHAPES:
        dense = random_dense(rows, columns)
        column_layouts = layouts(columns)
        for name, local_rows in layouts(rows).items():
            A = distribute(dense, TYPE, local_rows, column_layouts[name])
            check_products(A, dense, f"{rows} x {columns}, {name}")
            A.destroy()


def check_bound_holds_for_aij():
    """The oracle and its error bound are fair: PETSc's own type passes."""
    dense = random_dense(150, 40)
    check_products(distribute(dense, "aij"), dense, "oracle")


def check_rows_and_columns_distributed_differently():
    rows, columns = 90, 70
    dense = random_dense(rows, columns)
    column_layouts = list(layouts(columns).items())
    for k, (row_name, local_rows) in enumerate(layouts(rows).items()):
        column_name, local_columns = column_layouts[k - 1]
        A = distribute(dense, TYPE, local_rows, local_columns)
        check_products(A, dense, f"rows {row_name}, columns {column_name}")
        A.destroy()


def check_block_without_entries():
    """No entry in the off-diagonal block of any rank, then none in the diagonal block."""
    count = 12 * COMM.size
    dense = random_dense(count, count)
    inside = dense * 0
    for rank in range(COMM.size):
        own = slice(12 * rank, 12 * (rank + 1))
        inside[own, own] = dense[own, own]
    for part, name in ((inside, "diagonal blocks only"), (dense - inside, "off-diagonal blocks only")):
        A = distribute(part, TYPE, 12, 12)
        check_products(A, part, name)


KINDS = [(transposed, add) for transposed in (False, True) for add in (False, True)]


def multiply(A, transposed, add):
    """The error code of a product with ones, and its result."""
    x, z = A.createVecs()[:: -1 if transposed else 1]
    x.set(1.0)
    z.set(0.0)
    if add:
        return error_of(A.multTransposeAdd if transposed else A.multAdd, x, z, z), z
    return error_of(A.multTranspose if transposed else A.mult, x, z), z


def check_first_plan_fails_on_one_rank():
    """Whichever block of which rank it is, the product is an error on all ranks, and the next one is right."""
    dense = random_dense(40, 40)
    for transposed, add in KINDS:
        for block in range(min(COMM.size, 2)):
            for rank in range(COMM.size):
                A = distribute(dense)
                with plan_failing(block if rank == COMM.rank else None):
                    assert multiply(A, transposed, add)[0] == UNSUPPORTED, f"{transposed=} {add=} {block=} {rank=}"
                check_products(A, dense, f"after plan {block} failed on rank {rank}")


def check_later_plan_fails_on_one_rank():
    """A block whose pattern changed on one rank alone fails there alone, and nobody waits; the next product is right.

    What other ranks were to have from that block is not a number.
    """
    stored = random_dense(40, 40)
    dense = np.where(random_dense(40, 40, seed=3) != 0.0, 0.0, stored)
    for transposed, add in KINDS:
        for block in range(2):
            for rank in range(COMM.size):
                A = distribute(stored)
                first, last = A.getOwnershipRange()
                rowptr, columns, _ = csr(stored[first:last])
                values = dense[first:last][np.nonzero(stored[first:last])]
                A.setValuesCSR(rowptr, columns, values)
                A.assemble()
                check_products(A, dense, "before")
                if rank == COMM.rank:
                    eliminate_zeros(A, block)
                what = f"{transposed=} {add=} {block=} {rank=}"
                with plan_failing(0 if rank == COMM.rank else None):
                    error, z = multiply(A, transposed, add)
                assert error == (UNSUPPORTED if rank == COMM.rank else 0), what
                if not error:
                    first_failed, last_failed = A.getOwnershipRanges()[rank : rank + 2]
                    lacking = transposed and block == 1 and np.any(stored[first_failed:last_failed] != 0.0, axis=0)
                    expected = dense.sum(axis=0 if transposed else 1)
                    own = slice(*z.getOwnershipRange())
                    np.testing.assert_allclose(z.getArray(), np.where(lacking, np.nan, expected)[own], 1e-4, 1e-4)
                check_products(A, dense, f"after: {what}")


def eliminate_zeros(A, block):
    """Of the diagonal (0) or the off-diagonal block (1) of this rank."""
    blocks = [ctypes.c_void_p(), ctypes.c_void_p()]
    assert LIBRARY.MatMPIAIJGetSeqAIJ(ctypes.c_void_p(A.handle), *map(ctypes.byref, blocks), None) == 0
    assert LIBRARY.MatEliminateZeros(blocks[block], ctypes.c_bool(False)) == 0


check_bound_holds_for_aij()
check_layouts()
check_rows_and_columns_distributed_differently()
check_block_without_entries()
check_first_plan_fails_on_one_rank()
if COMM.size > 1:
    check_later_plan_fails_on_one_rank()
