"""Products of matrices of dense blocks over the block sizes: KSPARSE's kernels, our choice, and peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from evchyb_times import peer_seconds
from ksparse_matrices import TableRow, pattern, promoted
from measure import GivenMatrix, gflops, median_seconds
from report import OUT_OF_TIME
from time_share import share_is_over

from petsc_gpufmt.bench.bsr import bsr_contenders
from petsc_gpufmt.bench.contenders import HOST_PEERS, SELLCUDA, Contender, CupyContender
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.formats.bsr.parameters import NEVER

if TYPE_CHECKING:
    from report import Setting

BLOCK_SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16)
SMALL_SIZES = (2, 7, 8)
MOST_ENTRIES = 40_000_000
"""Of a promoted matrix: larger ones take seconds to be made."""

MOST_SELL_ENTRIES = 12_000_000
"""PETSc takes seconds to convert more."""

PAPER_LIMIT = 16
"""Lambda of the balanced kernel, section 6.3."""

UNBALANCED, BALANCED, DEFAULT = "KSPARSE", "balanced KSPARSE", "default options"
OURS = {UNBALANCED: {"lambda": NEVER}, BALANCED: {"lambda": PAPER_LIMIT}, DEFAULT: {}}
BSR, HYB, SELLP = "cuSPARSE-BSR", "cuSPARSE-HYB", "MAGMA-SELLP"
STANDS_FOR = {
    "cuda": {BSR: ("cuSPARSE BSR, column", "cuSPARSE BSR, row"), HYB: ("CuPy csr",), SELLP: ("sellcuda", "our pjds")},
    "host": {BSR: ("baij",), HYB: ("aij",), SELLP: ("our pjds",)},
}
"""Peer of the paper -> who is measured in its place; the fastest of several counts."""


@dataclass
class Sweep:
    """GF/s of one matrix: contender -> block size -> GF/s."""

    real: bool
    nrows: int
    nnz: int
    longest: int
    speeds: dict[str, dict[int, float]] = field(default_factory=dict)
    missing: str = ""

    def sizes(self) -> list[int]:
        return sorted(self.speeds[UNBALANCED])

    def ratios(self, name: str, others: Sequence[str]) -> dict[int, float]:
        """Block size -> how many times as fast as the fastest of `others` that were measured there."""
        found = {}
        for size, speed in self.speeds[name].items():
            known = [self.speeds[other][size] for other in others if size in self.speeds.get(other, {})]
            if known:
                found[size] = speed / max(known)
        return found


def peers_of(matrix: BenchMatrix, setting: Setting) -> list[Contender]:
    """cuSPARSE's BSR in both orders, CSR, and sliced ELLPACK; on the host PETSc's."""
    place = setting.place.name
    blocked = [contender for contender in bsr_contenders(place) if not contender.ours]
    if place == "host":
        return [*blocked, *HOST_PEERS]
    sell = [SELLCUDA] if matrix.csr.nnz <= MOST_SELL_ENTRIES else []
    return [*blocked, CupyContender("CuPy csr", "cuda"), *sell]


def speeds_of(matrix: BenchMatrix, setting: Setting) -> dict[str, float]:
    """GF/s of everyone; each product is compared with A x once."""
    nnz = matrix.csr.nnz
    given = GivenMatrix(matrix.csr, setting.place, setting.rng, matrix.block_size)
    found = {name: _speed(given, "bsr", options, setting) for name, options in OURS.items()}
    found["our pjds"] = _speed(given, "pjds", {}, setting)
    x, reference = given.host_x, given.reference
    del given
    setting.place.free_memory()
    for contender in peers_of(matrix, setting):
        if seconds := peer_seconds(contender, matrix, x, reference, setting):
            found[contender.name] = gflops(nnz, seconds)
    return found


def _speed(given: GivenMatrix, name: str, options: dict, setting: Setting) -> float:
    return gflops(given.nnz, median_seconds(setting, given.mult(given.store(name, options))))


def sweep(row: TableRow, setting: Setting) -> Sweep:
    """All block sizes of one matrix; measured once for all parts."""
    key = f"sweep of {row.name}"
    if key not in setting.kept:
        rowptr, columns, real = pattern(row, setting)
        found = Sweep(real, rowptr.size - 1, columns.size, int(np.diff(rowptr).max()))
        for size in SMALL_SIZES if setting.small else BLOCK_SIZES:
            if columns.size * size**2 > MOST_ENTRIES:
                break
            if share_is_over(setting, "sweeps"):
                found.missing = OUT_OF_TIME
                break
            for name, speed in speeds_of(promoted(row.name, rowptr, columns, size, setting), setting).items():
                found.speeds.setdefault(name, {})[size] = speed
        setting.kept[key] = found
    return setting.kept[key]
