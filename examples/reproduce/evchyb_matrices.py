"""The matrices of table 3 of Guo, Gropp, Olson, as published, and matrices with the same statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matrices_like import matrix_like, real_matrix

from petsc_gpufmt.bench.matrices import BenchMatrix

if TYPE_CHECKING:
    from report import Setting

WARP, SPLIT_LENGTH = 32, 128
BAND = 3000
SEED = 20120917


@dataclass(frozen=True)
class TableRow:
    """A line of table 3, and what the text says of the matrix.

    Attributes
    ----------
    stem : of its file in the SuiteSparse Matrix Collection, in small letters
    split : I_split, the row at which the sorted matrix is split
    ell, vcsr : entries that both parts store, padding included
    added : padding in percent of the non-zeros
    peer : the better one of cuSPARSE's formats
    banded : whether columns lie about the diagonal, as of a mesh, or anywhere
    """

    name: str
    stem: str
    nrows: int
    nnz: int
    split: int
    ell: int
    vcsr: int
    added: float
    peer: str
    banded: bool = True

    def row_lengths(self) -> np.ndarray:
        """(nrows,) entries of each row; their sum and I_split are the table's, the entries of the parts nearly."""
        rng = np.random.default_rng(SEED)
        nlong, long_nnz = self.nrows - self.split, self.nnz - self.ell
        if long_nnz < (SPLIT_LENGTH + 1) * nlong:  # short rows that fill no slice are among them
            nlong = max(0, nlong - (WARP - 1))
            long_nnz = (SPLIT_LENGTH + WARP // 2) * nlong
        short = with_sum(rng, self.nrows - nlong, self.nnz - long_nnz, 1, SPLIT_LENGTH)
        long = with_sum(rng, nlong, long_nnz, SPLIT_LENGTH + 1, self.nrows)
        return rng.permutation(np.concatenate([short, long]))


def with_sum(rng: np.random.Generator, count: int, total: int, least: int, most: int) -> np.ndarray:
    """(count,) numbers from `least` to `most` with this sum, or the nearest: many small ones and few large ones."""
    if not count:
        return np.zeros(0, dtype=np.int64)
    mean = min(max(total / count, least), most)
    if 2 * mean < least + most:
        spread = least + rng.exponential(mean - least, count)
    else:
        spread = most - rng.exponential(most - mean, count)
    numbers = np.clip(np.rint(spread), least, most).astype(np.int64)
    total = min(max(total, count * least), count * most)
    while missing := total - int(numbers.sum()):
        room = np.flatnonzero(numbers < most if missing > 0 else numbers > least)
        chosen = rng.choice(room, min(room.size, abs(missing)), replace=False)
        numbers[chosen] += 1 if missing > 0 else -1
    return numbers


TABLE_3 = (
    TableRow("pdb1HYS", "pdb1hys", 36417, 4344765, 19936, 1922112, 2720768, 6.86, "CSR"),
    TableRow("pwtk", "pwtk", 217918, 11634424, 217888, 11633280, 3456, 0.02, "HYB"),
    TableRow("TSOPF_RS_b2383", "tsopf_rs_b2383", 38120, 16171169, 21728, 98976, 16220544, 0.92, "HYB"),
    TableRow("rma10-cfd", "rma10", 46835, 2374001, 46752, 2365664, 13088, 0.20, "CSR"),
    TableRow("audikw_1", "audikw_1", 943695, 77651847, 844096, 58302912, 21392800, 2.63, "CSR"),
    TableRow("cage14", "cage14", 1505785, 27130349, 1505728, 27128544, 3648, 0.01, "HYB"),
    TableRow("shipsec1", "shipsec1", 140874, 7813404, 140864, 7813824, 1280, 0.02, "HYB"),
    TableRow("webbase-1M", "webbase-1m", 1000005, 3105536, 999232, 2768192, 353120, 0.51, "HYB", False),
    TableRow("raefsky3", "raefsky3", 21200, 1488768, 21184, 1488384, 1536, 0.08, "HYB"),
    TableRow("cop20k_A", "cop20k_a", 121192, 2624331, 121184, 2624960, 768, 0.05, "HYB", False),
    TableRow("msdoor", "msdoor", 415863, 20240935, 415840, 20239808, 2208, 0.01, "HYB"),
    TableRow("ldoor", "ldoor", 952203, 46522475, 952192, 46522368, 1056, 0.00, "HYB"),
    TableRow("Circuit", "scircuit", 170998, 958936, 170944, 954272, 7744, 0.32, "HYB", False),
    TableRow("torso1", "torso1", 116158, 8516500, 113376, 1020384, 7501152, 0.06, "CSR"),
    TableRow("Stanford", "stanford", 281903, 2312497, 281728, 2283392, 35040, 0.26, "HYB", False),
    TableRow("att-pre2", "pre2", 659033, 5959282, 658240, 5476288, 494176, 0.19, "HYB"),
    TableRow("Economics", "mac_econ_fwd500", 206500, 1273389, 206496, 1273952, 256, 0.06, "HYB"),
    TableRow("ibm-dc1", "dc1", 116835, 766396, 116768, 595776, 172160, 0.20, "HYB", False),
    TableRow("indochina-2004", "indochina-2004", 7414866, 194109311, 7345728, 126110176, 69171328, 0.60, "CSR", False),
    TableRow("web-Google", "web-google", 916428, 5105039, 916352, 5093728, 15808, 0.09, "HYB", False),
    TableRow("Stanford_Berkeley", "stanford_berkeley", 683446, 7583376, 678400, 3638208, 4028832, 1.10, "HYB", False),
    TableRow("RM07R", "rm07r", 381689, 37464962, 311776, 24249408, 13792384, 1.54, "CSR"),
)


def make(row: TableRow, setting: Setting) -> tuple[BenchMatrix, bool]:
    """The matrix of --matrices if it is there, else one with these statistics; and whether it is the paper's own."""
    scalar, index = setting.place.backend.scalar, setting.place.backend.index
    if found := real_matrix(setting.matrices, row.stem, scalar, index, setting.rng):
        return BenchMatrix(row.name, found.csr), True
    band = BAND if row.banded else row.nrows
    return matrix_like(row.name, row.row_lengths(), band, scalar, index, setting.rng), False
