"""Products of one matrix in EVC-HYB, reordered in each way and with constants, and by the peers of its paper.

In EVC-HYB rows are sorted. The paper's kernel leaves z in that order, and a pass of its own brings it back; the kernel
of this package stores each row of z where it belongs. The first is measured here by a matrix whose rows are in the
order of EVC-HYB already: none is moved, and the pass is a gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from evchyb_matrices import SPLIT_LENGTH, TABLE_3, make
from matrices_like import matrix_file
from measure import GivenMatrix, gflops, median_seconds

from petsc_gpufmt.bench.contenders import HOST_PEERS, SELLCUDA, Contender, CupyContender, aijcusparse
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.bench.mult import Reference
from petsc_gpufmt.formats.common.columns import FULL_ONLY
from petsc_gpufmt.formats.evchyb.order import ALL_ROWS
from petsc_gpufmt.patterns.csr import gather_values

if TYPE_CHECKING:
    from report import Setting

AS_PUBLISHED = {"split_length": SPLIT_LENGTH, "sigma_window": ALL_ROWS, "index": FULL_ONLY}
SMALL_NONZEROS, MOST_NONZEROS = 800_000, 30_000_000
"""Larger matrices of table 3 are not made to be measured with --small, and without it; files are always taken."""

MOST_SELL_NONZEROS = 12_000_000
"""PETSc takes seconds to convert more."""

IN_ORDER, AFTER, WITHIN, DEFAULT = "not reordered", "reordered by a pass", "reordered as stored", "default options"
WITHOUT = {"constant x": ("x",), "constant A": ("A",), "both constant": ("x", "A")}


@dataclass(frozen=True)
class Times:
    """Seconds of products of one matrix: of EVC-HYB in several ways, and of peers."""

    matrix: str
    nrows: int
    nnz: int
    ours: dict[str, float]
    peers: dict[str, float]

    @property
    def mean(self) -> float:
        return self.nnz / self.nrows

    def speed(self, name: str) -> float:
        return gflops(self.nnz, {**self.ours, **self.peers}[name])

    def speedup(self, name: str) -> float:
        """Over the fastest peer."""
        return min(self.peers.values()) / self.ours[name]

    @property
    def shares(self) -> dict[str, float]:
        """T_A, T_X and T_Y in seconds, and T_total, their sum: section 3.3."""
        y = self.ours["both constant"]
        parts = {"A": self.ours["constant x"] - y, "X": self.ours["constant A"] - y, "Y": y}
        return {**parts, "total": sum(parts.values())}


def sorted_rows(csr: scipy.sparse.csr_matrix) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """The rows in the order in which EVC-HYB has them, and (nrows,) the place of each row in it.

    So stored, no row is moved: the product leaves z as its parts have it, which the paper calls not reordered.
    """
    index = csr.indices.dtype
    order = np.argsort(np.diff(csr.indptr), kind="stable")
    places = np.empty(order.size, dtype=index)
    places[order] = np.arange(order.size)
    permuted = csr[order]
    permuted.indptr, permuted.indices = permuted.indptr.astype(index), permuted.indices.astype(index)
    return permuted, places


def times_of(matrix: BenchMatrix, setting: Setting, parts: bool = True) -> Times:
    """All products of a matrix, each compared with A x once; with `parts`, those with constants too."""
    found = times_in_order(matrix, setting, parts)
    given = GivenMatrix(matrix.csr, setting.place, setting.rng)
    for name, options in ((WITHIN, AS_PUBLISHED), (DEFAULT, {})):
        found[name] = median_seconds(setting, given.mult(given.store("evchyb", options)))
    x, reference = given.host_x, given.reference
    del given
    setting.place.free_memory()
    contenders = ((c.name, peer_seconds(c, matrix, x, reference, setting)) for c in peers_of(matrix, setting))
    peers = {name: seconds for name, seconds in contenders if seconds}
    return Times(matrix.name, matrix.csr.shape[0], matrix.csr.nnz, found, peers)


def times_in_order(matrix: BenchMatrix, setting: Setting, parts: bool) -> dict[str, float]:
    """Those of the matrix whose rows are in the order of EVC-HYB, without and with the pass that brings z back."""
    backend = setting.place.backend
    permuted, places = sorted_rows(matrix.csr)
    given = GivenMatrix(permuted, setting.place, setting.rng)
    stored = given.store("evchyb", AS_PUBLISHED)
    if stored.ell_rows is not None:
        raise BenchError(f"{matrix.name}: rows that are sorted by length were moved")
    mult, nrows = given.mult(stored), places.size
    place_of_row, (z,) = backend.adopt(places), backend.empty((nrows, backend.scalar))
    gather = given.call([gather_values(backend, nrows, place_of_row, given.z, z)])

    def both() -> None:
        mult()
        gather()

    found = {IN_ORDER: median_seconds(setting, mult), AFTER: median_seconds(setting, both)}
    if not np.array_equal(backend.to_host(z), backend.to_host(given.z)[places]):
        raise BenchError(f"{matrix.name}: the pass that reorders z is wrong")
    for name, operands in WITHOUT.items() if parts else ():
        found[name] = median_seconds(setting, given.call(stored.mult_with_constant(*operands)))
    return found


def peers_of(matrix: BenchMatrix, setting: Setting) -> Sequence[Contender]:
    if setting.place.name == "host":
        return HOST_PEERS
    sell = [SELLCUDA] if matrix.csr.nnz <= MOST_SELL_NONZEROS else []
    return [aijcusparse(1), CupyContender("CuPy csr", "cuda"), *sell]


def peer_seconds(
    contender: Contender, matrix: BenchMatrix, x: np.ndarray, reference: Reference, setting: Setting
) -> float | None:
    """Seconds of one product; None where the peer cannot have this matrix, or is wrong."""
    if contender.obstacle(matrix):
        return None
    try:
        mult = contender.prepare(matrix, x, setting.place)
    except BenchError:
        return None
    try:
        return median_seconds(setting, mult.call) if reference.error(mult.result()) <= 1 else None
    finally:
        mult.close()
        setting.place.free_memory()


def all_times(setting: Setting) -> dict[str, Times | str]:
    """Matrix of table 3 -> its times, or why there are none; measured at the first call, smallest matrices first."""
    if "times" not in setting.kept:
        kept: dict[str, Times | str] = {}
        most = SMALL_NONZEROS if setting.small else MOST_NONZEROS
        for row in sorted(TABLE_3, key=lambda row: row.nnz):
            if setting.out_of_time():
                kept[row.name] = "the time limit had passed"
                continue
            if row.nnz > most and not matrix_file(setting.matrices, row.stem):
                kept[row.name] = f"{row.nnz} entries: above {most} only a file in --matrices is measured"
                continue
            kept[row.name] = times_of(make(row, setting)[0], setting)
        setting.kept["times"] = {row.name: kept[row.name] for row in TABLE_3}
    return setting.kept["times"]


def measured(setting: Setting) -> list[Times]:
    return [times for times in all_times(setting).values() if isinstance(times, Times)]
