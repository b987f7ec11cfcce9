"""The matrices of table II of Abdelfattah et al. 2016: as published, and with the same rows and non-zeros.

Of each the paper has the rows and the non-zeros, and pictures of the structure. Lengths of rows are assumed: within
`shortest` and `longest`, and so many `long_rows` of the longest, for which figure 19 is the reason in shermanACb.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from evchyb_matrices import with_sum
from matrices_like import columns_about_diagonal, real_matrix

from petsc_gpufmt.bench.matrices import BenchMatrix, blocked_pattern, check_sizes, with_random_values

if TYPE_CHECKING:
    from report import Setting

SEED = 20160422
SMALL_RATIO = 40
"""With --small, matrices have so many times fewer rows."""


@dataclass(frozen=True)
class TableRow:
    """A line of table II, what is assumed of its rows, and what table III and section 6.3 have of it.

    Attributes
    ----------
    band : columns of a row lie in so many about the diagonal; 0 for anywhere
    speedups : of KSPARSE over cuSPARSE-BSR, cuSPARSE-HYB and MAGMA-SELLP; of the balanced one where rows are cut
    balanced : the most that the balanced kernel is faster than the other; None where it has no clear advantage
    """

    name: str
    figure: int
    nrows: int
    nnz: int
    shortest: int
    longest: int
    long_rows: int
    band: int
    speedups: tuple[float, float, float]
    balanced: float | None = None


TABLE_II = (
    TableRow("airfoil_2d", 10, 14_214, 259_688, 9, 23, 0, 1500, (3.17, 1.77, 1.55)),
    TableRow("bauru5727", 11, 40_366, 145_019, 1, 21, 0, 0, (3.54, 2.31, 1.61)),
    TableRow("cage10", 12, 11_397, 150_645, 5, 25, 0, 0, (3.23, 1.93, 1.54)),
    TableRow("cavity21", 13, 4_562, 131_735, 9, 62, 0, 600, (3.09, 2.48, 1.54)),
    TableRow("coater2", 14, 9_540, 207_308, 1, 36, 0, 1000, (3.16, 2.44, 1.55)),
    TableRow("hvdc1", 15, 24_842, 158_426, 1, 13, 0, 0, (3.45, 1.92, 1.55)),
    TableRow("lhr07", 16, 7_337, 154_660, 1, 64, 0, 0, (3.16, 23.13, 2.05)),
    TableRow("rajat22", 17, 39_899, 195_429, 1, 12, 4, 0, (8.86, 2.26, 3.11), 6.18),
    TableRow("shermanACb", 18, 18_510, 145_149, 1, 10, 4, 0, (30.25, 2.38, 10.50), 15.0),
)
LONG_SHARE = 0.1
"""Of all rows: non-zeros in each of the long rows."""

RESERVOIR_ROWS, RESERVOIR_NONZEROS = 2_058_000, 113_464_400


def row_lengths(row: TableRow, small: bool) -> np.ndarray:
    """(nrows,) non-zeros of each row, all together as many as the table has, many short ones and few long ones."""
    rng = np.random.default_rng(SEED + row.figure)
    nrows, nnz = (n // (SMALL_RATIO if small else 1) for n in (row.nrows, row.nnz))
    long_row = int(LONG_SHARE * nrows)
    others = with_sum(rng, nrows - row.long_rows, nnz - row.long_rows * long_row, row.shortest, row.longest)
    return rng.permutation(np.concatenate([others, np.full(row.long_rows, long_row)]))


def sizes(row: TableRow, setting: Setting) -> tuple[int, int, bool]:
    """Rows and non-zeros, with --small too of the whole matrix, and whether they are the paper's own."""
    backend = setting.place.backend
    if found := real_matrix(setting.matrices, row.name, backend.scalar, backend.index, setting.rng):
        return found.csr.shape[0], int(found.csr.nnz), True
    lengths = row_lengths(row, small=False)
    return lengths.size, int(lengths.sum()), False


def pattern(row: TableRow, setting: Setting) -> tuple[np.ndarray, np.ndarray, bool]:
    """Row pointer and columns, and whether they are the paper's own: from --matrices if it is there, else built."""
    backend = setting.place.backend
    folder = None if setting.small else setting.matrices
    if found := real_matrix(folder, row.name, backend.scalar, backend.index, setting.rng):
        return found.csr.indptr, found.csr.indices, True
    lengths = row_lengths(row, setting.small)
    band = row.band or lengths.size
    return *columns_about_diagonal(lengths, lengths.size, band, backend.index, setting.rng), False


def promoted(name: str, rowptr: np.ndarray, columns: np.ndarray, size: int, setting: Setting) -> BenchMatrix:
    """The matrix with a dense block of `size` x `size` in place of each non-zero, as section 6.2 makes it."""
    backend = setting.place.backend
    nrows = (rowptr.size - 1) * size
    check_sizes(f"{name}, {size} x {size} blocks", nrows, nrows, columns.size * size**2, backend.index)
    blocks = blocked_pattern(rowptr, columns, size) if size > 1 else (rowptr, columns)
    return BenchMatrix(
        f"{name}, {size} x {size}", with_random_values(*blocks, nrows, backend.scalar, setting.rng), size
    )
