"""How close numbers are to be, and how far solvers can go, in PETSc's precision."""

import math

import numpy as np
from petsc4py import PETSc

EPS, OF_DOUBLE = (float(np.finfo(scalar).eps) for scalar in (PETSc.ScalarType, np.float64))


def rounding(bound: float) -> float:
    """A bound that is meant for double precision, as it is for PETSc's scalars, where half of the digits agree."""
    return min(bound * EPS / OF_DOUBLE, max(bound, math.sqrt(EPS)))


def reachable(tolerance: float) -> float:
    """A relative tolerance of a solver for double precision, or the smallest that rounding lets residuals reach."""
    return max(tolerance, 32 * EPS)


def steps(number: int) -> int:
    """So many steps of a Krylov method in double precision, or those for which PETSc's scalars have digits.

    Rounding grows by what each step gains: at the last digit, basis and eigenvalues are those of rounding alone.
    """
    return round(number * math.log(EPS) / math.log(OF_DOUBLE))
