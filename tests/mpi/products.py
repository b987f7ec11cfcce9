"""The four products in every distribution of rows: ranks without rows, one row in total, none at all, long and wide."""

from dense import COMM, TYPE, check_products, distribute, layouts, random_dense

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


check_bound_holds_for_aij()
check_layouts()
check_rows_and_columns_distributed_differently()
check_block_without_entries()
