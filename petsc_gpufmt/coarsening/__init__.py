"""Coarsening of a matrix for multigrid: aggregates of its rows, and prolongators from them."""
