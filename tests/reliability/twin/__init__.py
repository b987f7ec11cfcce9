"""Sequences of operations on matrices that have to stay the same: one of type aij, one of a type of ours."""
