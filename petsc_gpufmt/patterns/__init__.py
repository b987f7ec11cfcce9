"""Patterns of sparse matrices, and values that are moved and changed along them."""
