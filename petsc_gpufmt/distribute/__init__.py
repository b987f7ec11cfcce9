"""Rows of a parallel matrix on ranks: ways to deal them out, and how even they are.

For any petsc4py program and any matrix of type aij or one of its kinds. `docs/distribution.md` has an example.
"""

from petsc_gpufmt.distribute.cut_rows import Segments, segments
from petsc_gpufmt.distribute.distribution import METHODS, Distribution, rows
from petsc_gpufmt.distribute.report import Balance, balance

__all__ = ["METHODS", "Balance", "Distribution", "Segments", "balance", "rows", "segments"]
