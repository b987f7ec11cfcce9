"""The matrices of tables 1.1 and 3.1 of Gremse et al. 2015, as published, and matrices built to what is published.

Built are rows, mean and longest row, and for meshes dense blocks. Columns lie at random in a band about the diagonal,
as wide as gives the published compression of A A where one does: found by bisection, and kept here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matrices_like import matrix_like, real_matrix, spread_lengths

from petsc_gpufmt.bench.matrices import BenchMatrix, make_matrix

if TYPE_CHECKING:
    from report import Setting

SMALL_RATIO = 400
LEAST_ROWS = 300
"""With --small, matrices have so many times fewer rows, but not fewer than these."""

MOUSE_GRID = "7point:97"
SMALL_GRID = "7point:10"


class First(NamedTuple):
    """A line of table 3.1: `share` of the first product in the time of all, `setup` in its own, both in percent."""

    gflops: float
    cache: float
    compression: float
    iterations: int
    share: float
    setup: float


@dataclass(frozen=True)
class TableRow:
    """A line of table 1.1, and how such a matrix is built.

    Attributes
    ----------
    workload : flops of A A in millions
    block : rows of dense blocks
    band : block columns of a block row lie in so many; 0 for anywhere
    stem : of its file, if it is another name
    """

    name: str
    nrows: int
    nnz: int
    longest: int
    mean: float
    workload: float
    compression: float
    first: First
    block: int = 1
    band: int = 0
    stem: str = ""


TABLE_1_1 = (
    TableRow(
        *("cantilever", 62_451, 4_007_383, 78, 64.2, 539.0, 15.5, First(6.0, 32.0, 6.0, 2, 66, 34), 3, 47),
        stem="cant",  # codespell:ignore cant
    ),
    TableRow(
        "economics", 206_500, 1_273_389, 44, 6.2, 15.1, 1.1, First(0.9, 2.9, 1.1, 2, 63, 44), 1, 132, "mac_econ_fwd500"
    ),
    TableRow("epidemiology", 525_825, 2_100_225, 4, 4.0, 16.8, 1.6, First(3.2, 1.9, 1.6, 1, 100, 64), 1, 7, "mc2depi"),
    TableRow("harbor", 46_835, 2_374_001, 145, 50.7, 313.0, 19.8, First(7.0, 20.8, 7.0, 2, 66, 35), 5, 29, "rma10"),
    TableRow("mouse280", 901_972, 6_227_648, 7, 6.9, 86.3, 2.0, First(4.4, 1.7, 2.0, 1, 100, 49)),
    TableRow(
        "protein", 36_417, 4_344_765, 204, 119.3, 1110.7, 28.3, First(8.2, 27.4, 8.2, 2, 68, 33), 3, 86, "pdb1HYS"
    ),
    TableRow("qcd", 49_152, 1_916_928, 39, 39.0, 149.5, 6.9, First(4.2, 7.7, 3.9, 2, 54, 40), 1, 119, "qcd5_4"),
    TableRow("ship", 140_874, 7_813_404, 102, 55.5, 901.3, 18.7, First(8.0, 10.6, 7.9, 2, 64, 34), 6, 17, "shipsec1"),
    TableRow("spheres", 83_334, 6_010_480, 81, 72.1, 927.7, 17.5, First(6.1, 14.4, 6.1, 2, 63, 34), 3, 53, "consph"),
    TableRow(
        "windtunnel", 217_918, 11_634_424, 180, 53.4, 1252.1, 19.1, First(8.4, 19.6, 8.2, 2, 69, 33), 6, 30, "pwtk"
    ),
    TableRow(
        "accelerator", 121_192, 2_624_331, 81, 21.7, 159.8, 4.3, First(2.4, 1.6, 3.1, 2, 71, 33), 3, 44, "cop20k_A"
    ),
    TableRow("amazon0312", 400_727, 3_200_440, 10, 8.0, 56.8, 2.0, First(1.7, 0.7, 2.0, 1, 100, 38), 1, 22),
    TableRow("ca-CondMat", 23_133, 186_936, 280, 8.1, 8.3, 1.8, First(0.8, 1.3, 1.5, 3, 36, 42), 1, 280),
    TableRow("cit-Patents", 3_774_768, 16_518_948, 770, 4.4, 164.3, 1.2, First(0.8, 0.4, 1.2, 3, 54, 33), 1, 770),
    TableRow("circuit", 170_998, 958_936, 353, 5.6, 17.4, 1.7, First(1.1, 2.3, 1.6, 3, 43, 41), 1, 353, "scircuit"),
    TableRow("email-Enron", 36_692, 367_662, 1_383, 10.0, 103.0, 1.7, First(1.3, 2.9, 1.4, 3, 50, 35)),
    TableRow("p2p-Gnutella31", 62_586, 147_892, 78, 2.4, 1.1, 1.0, First(0.3, 1.1, 1.0, 2, 49, 55)),
    TableRow("roadNet-CA", 1_971_281, 5_533_214, 12, 2.8, 35.0, 1.4, First(1.2, 1.2, 1.4, 1, 100, 42), 1, 12),
    TableRow(
        "webbase1m",
        1_000_005,
        3_105_536,
        4_700,
        3.1,
        139.0,
        1.4,
        First(1.6, 6.6, 1.3, 4, 42, 34),
        1,
        4700,
        "webbase-1M",
    ),
    TableRow("web-Google", 916_428, 5_105_039, 456, 5.6, 121.4, 2.0, First(1.2, 0.5, 2.0, 3, 58, 32), 1, 456),
    TableRow("wiki-Vote", 8_297, 103_689, 893, 12.5, 9.1, 2.5, First(0.8, 14.3, 1.5, 3, 42, 40)),
)
REGULAR = 10
"""The first of these are the somewhat regular ones, the others the more irregular ones."""


def make(row: TableRow, setting: Setting) -> tuple[BenchMatrix, bool]:
    """The matrix, and whether it is the paper's own: from --matrices if it is there, else built."""
    backend = setting.place.backend
    types = backend.scalar, backend.index, setting.rng
    for stem in {row.name, row.stem or row.name} if not setting.small else ():
        if found := real_matrix(setting.matrices, stem, *types):
            return BenchMatrix(row.name, found.csr), True
    if row.name == "mouse280":
        return BenchMatrix(row.name, make_matrix(SMALL_GRID if setting.small else MOUSE_GRID, *types).csr), False
    blocks = row.nrows // row.block
    if setting.small:
        blocks = max(LEAST_ROWS // row.block, blocks // SMALL_RATIO)
    rng = np.random.default_rng(sum(map(ord, row.name)))
    mean, longest = row.mean / row.block, min(row.longest // row.block, blocks)
    lengths = np.full(blocks, round(mean))
    if longest > mean:
        shortest = max(1, int(mean / 2)) if row.block > 1 else 1
        lengths = spread_lengths(blocks, mean, shortest, longest, 6.0, rng)
    return matrix_like(row.name, lengths, row.band or blocks, *types, row.block), False
