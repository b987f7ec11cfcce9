"""Sparse products C = A B: which entries C has (symbolic), and their values (numeric)."""
