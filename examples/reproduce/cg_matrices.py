"""Matrices like those of Cevahir, Nukada, Matsuoka 2009: the ones that the paper names, and real ones.

The paper has 42 symmetric positive definite matrices of the University of Florida collection. Rows and non-zeros of
those that its text names are those of the collection, their row lengths are assumed to be near the mean; columns lie
about the diagonal, or anywhere where the text says so (F1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matrices_like import matrix_like, real_matrix, spread_lengths

from petsc_gpufmt.bench.matrices import BenchMatrix

if TYPE_CHECKING:
    from report import Setting

SMALL_RATIO = 200


@dataclass(frozen=True)
class PaperMatrix:
    """Rows and non-zeros; dense blocks; block columns of the band, 0 for anywhere; what the text says of its rate."""

    name: str
    nrows: int
    nnz: int
    block: int
    band: int
    said: str


NAMED = (
    PaperMatrix("s3dkq4m2", 90_449, 4_820_891, 6, 250, "one of the fastest"),
    PaperMatrix("exdata_1", 6_001, 2_269_501, 1, 0, "slower than the average"),
    PaperMatrix("G3_circuit", 1_585_478, 7_660_826, 1, 4000, "slower than the average"),
    PaperMatrix("thermal2", 1_228_045, 8_580_313, 1, 4000, "slower than the average"),
    PaperMatrix("crankseg_2", 63_838, 14_148_858, 3, 2000, ""),
    PaperMatrix("F1", 343_791, 26_837_113, 3, 0, "slower than the average"),
    PaperMatrix("nd24k", 72_000, 28_715_634, 3, 1500, "slower than the average"),
)
REAL = ("bcsstk13", "bcsstk16", "ex15", "shallow_water1", "fem_top_heat", "motorbike_p", "fem_bottom_p1")
"""Files of --matrices that are positive definite; those of the collection may be among the paper's 42."""


def make(matrix: PaperMatrix, setting: Setting) -> tuple[BenchMatrix, bool]:
    """The matrix, and whether it is the paper's own: from --matrices if it is there, else built."""
    backend = setting.place.backend
    types = np.dtype(np.float64), backend.index, setting.rng
    if not setting.small and (found := real_matrix(setting.matrices, matrix.name, *types)):
        return found, True
    blocks, block = matrix.nrows // matrix.block // (SMALL_RATIO if setting.small else 1), matrix.block
    mean = min(matrix.nnz / matrix.nrows / block, blocks / 2)
    rng = np.random.default_rng(sum(map(ord, matrix.name)))
    lengths = spread_lengths(blocks, mean, max(1, int(mean / 2)), int(np.ceil(1.5 * mean)), 6.0, rng)
    return matrix_like(matrix.name, lengths, matrix.band or blocks, *types, block), False


def matrices(setting: Setting) -> Iterator[tuple[BenchMatrix, bool, str]]:
    """Each matrix, whether it is a real one, and what the text says of its rate; the smallest first."""
    types = np.dtype(np.float64), setting.place.backend.index, setting.rng
    for name in REAL:
        if found := real_matrix(setting.matrices, name, *types):
            yield found, True, ""
    for matrix in NAMED[:3] if setting.small else NAMED:
        yield *make(matrix, setting), matrix.said
