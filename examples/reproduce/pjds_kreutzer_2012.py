"""Tables and figures of the pJDS paper, each published number beside ours.

    python pjds_kreutzer_2012.py --json docs/reproduction/pjds_kreutzer_2012.json --page    # all, on a GPU
    python pjds_kreutzer_2012.py --small --host                                            # seconds, on the host
    python pjds_kreutzer_2012.py --table table-1 --matrices FOLDER                          # its matrices, if there

Kreutzer, Hager, Wellein, Fehske, Basermann, Bishop, "Sparse matrix-vector multiplication on GPGPU clusters: a new
storage format and a scalable implementation", 2012. HMEp is made exactly, from its physics (holstein_hubbard.py). The
others were never published: they are built to what the paper says of them (pjds_matrices.py). Files HMEp, sAMG, DLR1 or
DLR2 in --matrices, such as DLR1.mtx.gz, are taken in their place.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from holstein_hubbard import FOURIER, HolsteinHubbard
from measure import GivenMatrix, Transfers, gflops, median_seconds
from pjds_matrices import DOUBLE, HMEP, MATRICES, SINGLE, UHBR_MEAN, PaperMatrix, make, row_lengths
from pjds_scaling import figure_5
from report import LESS, OUT_OF_TIME, SAME, Chart, Found, Paper, Part, Setting, line, main, unmeasured

from petsc_gpufmt.formats.common.columns import FULL_ONLY
from petsc_gpufmt.formats.common.sliced_rows import cut
from petsc_gpufmt.patterns.csr import CsrPattern, RowCounts
from petsc_gpufmt.scaling.code_balance import balanced_nnz_per_row, code_balance, split_balance

PAPER = Paper("pjds_kreutzer_2012", "Kreutzer et al., Sparse matrix-vector multiplication on GPGPU clusters, 2012")
WARP = 32  # the paper's b_r
AS_PUBLISHED = {"slice_height": WARP, "sigma_window": -1, "index": FULL_ONLY, "threads_per_row": 1}
"""All rows in one window, sorted; column numbers of 32 bits; a thread for each row."""

MODES_UNKNOWN = "which orthonormal phonon modes is not published: general and Fourier ones enclose it"
NROWS_ROUNDED = 0.005
BUILT = (
    "HMEp is made from its physics, N exactly; sAMG, DLR1 and DLR2 are built to the N, mean and longest row and dense "
    "blocks that are published or follow from what is, with random columns about the diagonal: not the paper's own."
)
WITH_TRANSFERS = {"DLR1": 10.9, "HMEp": 3.7, "sAMG": 2.3}
"""Section III: GF/s in double precision with x and z over PCIe."""


def storage(lengths: np.ndarray, setting: Setting) -> tuple[int, int, int]:
    """Entries that the matrix has, that pJDS stores, and that ELLPACK stores; no columns are made for that."""
    backend = setting.places["host"].backend
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(backend.index)
    nnz, nrows, longest = int(rowptr[-1]), lengths.size, int(lengths.max())
    counts = RowCounts(longest, nnz, descends=True, padding=(0, 0), lengths=())
    no_columns = np.broadcast_to(backend.index.type(0), nnz)  # columns play no part
    pattern = CsrPattern(nrows, 1, rowptr, no_columns, counts=counts)
    return nnz, cut(pattern, nrows, WARP, backend).nstored, -(-nrows // WARP) * WARP * longest


def table_1_storage(setting: Setting) -> Iterator[Found]:
    """Reductions, and padding; of HMEp in both kinds of modes."""
    yield BUILT
    for matrix in MATRICES:
        lengths = row_lengths(matrix, setting)
        yield line(f"{matrix.name}: rows", matrix.nrows, lengths.size, "", SAME, NROWS_ROUNDED)
        yield from reduction(matrix, matrix.name, lengths, setting)
    fourier = HolsteinHubbard(modes=FOURIER).row_lengths()
    yield from reduction(MATRICES[2], "HMEp in Fourier modes", fourier, setting)


def reduction(matrix: PaperMatrix, name: str, lengths: np.ndarray, setting: Setting) -> Iterator[Found]:
    nnz, pjds, ellpack = storage(lengths, setting)
    why = MODES_UNKNOWN if matrix.name == HMEP else ""
    yield line(f"{name}: mean row", matrix.mean, nnz / lengths.size, "entries", SAME, remark=why)
    yield line(f"{name}: data reduction against ELLPACK", matrix.reduction, 100 * (1 - pjds / ellpack), "%", remark=why)
    yield line(f"{name}: padding of pJDS", (0.0, 0.01), 100 * (pjds / nnz - 1), "%", LESS, 0)


def table_1(setting: Setting) -> Iterator[Found]:
    """GF/s in each precision; ELLPACK-R, pJDS as published, and pJDS with the options of this package."""
    yield BUILT
    yield "Published: C2070, ECC on. The ratio of the two formats says more of the method than GF/s of another GPU."
    bars: dict[str, Any] = {}
    ratios = []
    for matrix in MATRICES:
        if setting.out_of_time():
            yield unmeasured(f"{matrix.name}: all", None, OUT_OF_TIME)
            continue
        made = make(matrix, setting)
        for scalar, published in ((SINGLE, matrix.gflops.single), (DOUBLE, matrix.gflops.double)):
            with setting.place_for(scalar) as place:
                found = yield from speeds(matrix.name, GivenMatrix(made.csr, place, setting.rng), setting)
                place.free_memory()
            precision = word(scalar)
            what = f"{matrix.name}, {precision}: "
            ratio = found["pjds"] / found["ellpackr"]
            ratios.append(ratio)
            yield line(f"{what}ELLPACK-R", published[0], found["ellpackr"], "GF/s")
            yield line(f"{what}pJDS", published[1], found["pjds"], "GF/s")
            yield line(f"{what}pJDS over ELLPACK-R", published[1] / published[0], ratio, "", tolerance=0.1)
            yield line(f"{what}pJDS with default options", None, found["pjds, default"], "GF/s")
            for name, value in found.items():
                names, values = bars.setdefault(f"{name}, {precision}", ([], []))
                names.append(matrix.name)
                values.append(value)
    if ratios:
        yield line("pJDS over ELLPACK-R, least (abstract: 91 %)", 0.91, min(ratios), "")
        yield line("pJDS over ELLPACK-R, most (abstract: 130 %)", 1.30, max(ratios), "")
    yield Chart("gflops", "Table I on this machine", "bars", "", "GF/s", bars)


def word(scalar: np.dtype) -> str:
    return "single" if scalar == SINGLE else "double"


def speeds(name: str, given: GivenMatrix, setting: Setting) -> Generator[Found, None, dict[str, float]]:
    """GF/s of each format; in double precision a line with transfers, too."""
    found = {}
    for label, options in (("ellpackr", {}), ("pjds", AS_PUBLISHED), ("pjds, default", {})):
        call = given.mult(given.store(label.partition(",")[0], options))
        found[label] = gflops(given.nnz, median_seconds(setting, call))
        if label == "pjds" and given.place.backend.scalar == DOUBLE:
            yield with_transfers(name, setting, given, call)
    return found


def with_transfers(name: str, setting: Setting, given: GivenMatrix, call: Any) -> Found:
    """A line of section III."""
    what, published = f"{name}, double: pJDS with x and z over PCIe", WITH_TRANSFERS.get(name)
    if setting.place.name == "host":
        return unmeasured(what, published, "there is no bus between the host and itself", "GF/s")
    transfers = Transfers(given, call)
    seconds = median_seconds(setting, transfers)
    given.check(what, transfers.host_z)
    return line(what, published, gflops(given.nnz, seconds), "GF/s")


def figure_3(setting: Setting) -> Iterator[Found]:
    """Row lengths; what the text says of the histograms."""
    yield BUILT
    series, lengths = {}, {matrix.name: row_lengths(matrix, setting) for matrix in MATRICES}
    for name, of in lengths.items():
        counts = np.bincount(of)
        taken = np.flatnonzero(counts)
        series[name] = (taken.tolist(), (counts[taken] / of.size).tolist())
    for name in lengths:
        of_one = {name: series[name]}
        title = f"Row lengths of {name}"
        yield Chart(f"figure_3_{name.lower()}", title, "steps", "entries of a row", "share of the rows", of_one, "y")
    dlr1, samg = lengths["DLR1"], lengths["sAMG"]
    yield line("DLR1: longest over shortest row", 2, dlr1.max() / dlr1.min(), "", SAME, 0.1)
    share = 100 * float((dlr1 >= 0.8 * dlr1.max()).mean())
    yield line("DLR1: rows of at least 0.8 of the longest", 80, share, "%", SAME, 0.1, "the lengths are assumed")
    yield line("sAMG: longest over shortest row (more than 4)", 4, samg.max() / samg.min())
    short = 100 * float((samg <= samg.max() / 2).mean())
    yield line("sAMG: rows of at most half the longest (most of them)", 50, short, "%")


def equations(setting: Setting) -> Iterator[Found]:
    """The numbers that section II-B draws from equations (1) to (4)."""
    cases: tuple[tuple[str, float, float, float, float | None], ...] = (
        ("(3) half of the time, ratio 20, x read once", 25, 1, 20, None),
        ("(3) half of the time, ratio 10, alpha 1", 7, 1, 10, 1.0),
        ("(4) a tenth of the time, ratio 10, alpha 1", 80, 10, 10, 1.0),
        ("(4) a tenth of the time, ratio 20, x read once", 266, 10, 20, None),
    )
    for what, published, times, ratio, alpha in cases:
        yield line(f"N_nzr {what}", published, balanced_nnz_per_row(times, ratio, alpha), "", SAME, 0.04)
    yield line("(1) bytes a flop, N_nzr 144, alpha 1", 6 + 4 + 8 / 144, code_balance(144, 1.0), "", SAME, 1e-12)
    more = 100 * (split_balance(UHBR_MEAN, 1.0) / code_balance(UHBR_MEAN, 1.0) - 1)
    yield line("bytes more in two parts, UHBR (below 10 %)", (0.0, 10.0), more, "%", LESS, 0)


def figure_4(setting: Setting) -> Iterator[Found]:
    yield (
        "The timeline of a product with its exchange is measured, and drawn, by `benchmarks/halo_timeline.py`: see "
        "halo_timeline.svg of the documents. The paper draws what it means to do, and has no numbers there."
    )


PARTS = (
    Part("table-1-storage", "Table I: data reduction against ELLPACK", table_1_storage),
    Part("table-1", "Table I: GF/s, and with transfers (section III)", table_1),
    Part("figure-3", "Figure 3: row lengths", figure_3),
    Part("figure-4", "Figure 4: timeline", figure_4),
    Part("figure-5", "Figure 5: strong scaling", figure_5),
    Part("equations", "Section II-B: equations (1) to (4)", equations),
)

if __name__ == "__main__":
    sys.exit(main(__doc__, PAPER, PARTS))
