"""The matrices of Kreutzer et al. 2012: what is published of them, and matrices that are built to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from holstein_hubbard import HolsteinHubbard
from matrices_like import matrix_like, real_matrix, spread_lengths

from petsc_gpufmt.bench.matrices import BenchMatrix

if TYPE_CHECKING:
    from report import Setting

DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)
SMALL_RATIO = 100
"""With --small, matrices have so many times fewer rows."""


@dataclass(frozen=True)
class Published:
    """GF/s of a C2070 with ECC on: ELLPACK-R and pJDS, in single and in double precision."""

    single: tuple[float, float]
    double: tuple[float, float]


@dataclass(frozen=True)
class PaperMatrix:
    """What the paper says of a matrix, and what is assumed where it is silent.

    Attributes
    ----------
    nrows, mean : rows and mean row as section I-C gives them, rounded
    shortest, longest : rows; the longest is what mean and reduction imply, in whole grid points
    unknowns : of a grid point, whose rows are dense blocks
    concentration : of the lengths about their mean
    band : columns of a row lie in so many about the diagonal, in grid points
    reduction : table I, percent of ELLPACK's entries that pJDS does without
    """

    name: str
    nrows: int
    mean: float
    shortest: int
    longest: int
    unknowns: int
    concentration: float
    band: int
    reduction: float
    gflops: Published


MATRICES = (
    PaperMatrix("DLR1", 46_417 * 6, 144, 90, 174, 6, 120.0, 3000, 17.5, Published((18.0, 19.1), (12.9, 12.9))),
    PaperMatrix("DLR2", 108_396 * 5, 315, 50, 605, 5, 2.0, 6000, 48.0, Published((13.2, 12.1), (9.6, 9.5))),
    PaperMatrix("HMEp", 6_201_600, 15, 5, 23, 1, 2.0, 0, 36.0, Published((12.1, 11.6), (7.9, 7.5))),
    PaperMatrix("sAMG", 3_400_000, 7, 4, 22, 1, 2.0, 20_000, 68.4, Published((11.6, 12.6), (7.8, 8.5))),
)
HMEP = "HMEp"
UHBR_ROWS, UHBR_MEAN, UHBR_SHORTEST, UHBR_LONGEST, UHBR_BAND = 4_500_000, 123, 60, 190, 20_000


def point_lengths(matrix: PaperMatrix, small: bool) -> np.ndarray:
    """(points,) points that each point is coupled to: its row lengths in blocks of `unknowns`."""
    points = matrix.nrows // matrix.unknowns // (SMALL_RATIO if small else 1)
    shortest, longest = matrix.shortest // matrix.unknowns, matrix.longest // matrix.unknowns
    rng = np.random.default_rng(sum(map(ord, matrix.name)))
    return spread_lengths(points, matrix.mean / matrix.unknowns, shortest, longest, matrix.concentration, rng)


def row_lengths(matrix: PaperMatrix, setting: Setting) -> np.ndarray:
    """(nrows,) entries of each row, of the matrix in --matrices if it is there; with --small too, of all rows."""
    if matrix.name not in setting.kept:
        setting.kept[matrix.name] = _row_lengths(matrix, setting)
    return setting.kept[matrix.name]


def _row_lengths(matrix: PaperMatrix, setting: Setting) -> np.ndarray:
    if found := real_matrix(setting.matrices, matrix.name, DOUBLE, setting.place.backend.index, setting.rng):
        return np.diff(found.csr.indptr)
    if matrix.name == HMEP:
        return HolsteinHubbard().row_lengths()
    return np.repeat(point_lengths(matrix, small=False) * matrix.unknowns, matrix.unknowns)


def make(matrix: PaperMatrix, setting: Setting) -> BenchMatrix:
    """From --matrices if it is there, else made."""
    index = setting.place.backend.index
    if found := real_matrix(setting.matrices, matrix.name, DOUBLE, index, setting.rng):
        return found
    if matrix.name == HMEP:
        return (HolsteinHubbard(4, 8) if setting.small else HolsteinHubbard()).matrix(DOUBLE, index)
    lengths = point_lengths(matrix, setting.small)
    return matrix_like(matrix.name, lengths, matrix.band, DOUBLE, index, setting.rng, matrix.unknowns)


def make_uhbr(share: int, setting: Setting) -> BenchMatrix:
    """One in `share` of its rows: rows and mean are published, the shortest, the longest and the band are assumed."""
    nrows = UHBR_ROWS // share // (SMALL_RATIO if setting.small else 1)
    lengths = spread_lengths(nrows, UHBR_MEAN, UHBR_SHORTEST, UHBR_LONGEST, 4.0, setting.rng)
    return matrix_like("UHBR", lengths, UHBR_BAND, DOUBLE, setting.place.backend.index, setting.rng)
