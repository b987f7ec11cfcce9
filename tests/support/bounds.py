"""How close numbers are to be, in PETSc's precision."""

import numpy as np
from petsc4py import PETSc


def rounding(bound: float) -> float:
    """A bound that is meant for double precision, as it is for PETSc's scalars."""
    of_double = np.finfo(np.float64).eps
    return min(bound * float(np.finfo(PETSc.ScalarType).eps / of_double), max(bound, 1e-3))
