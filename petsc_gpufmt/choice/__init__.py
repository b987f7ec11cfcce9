"""Which format a matrix is stored in: the table of formats, and the type that chooses among them."""
