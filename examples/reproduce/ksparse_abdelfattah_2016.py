"""Tables and figures of the KSPARSE paper, each published number beside ours.

    python ksparse_abdelfattah_2016.py --json docs/reproduction/ksparse_abdelfattah_2016.json --page   # on a GPU
    python ksparse_abdelfattah_2016.py --small --host                                                # on the host
    python ksparse_abdelfattah_2016.py --figure figure-12 --matrices FOLDER                     # real matrices

Abdelfattah, Ltaief, Keyes, Dongarra, "Performance optimization of sparse matrix-vector multiplication for
multi-component PDE-based applications using GPUs", 2016. The reservoir of section 6.4 is made exactly; of the other
matrices those in --matrices are taken (cage10.mtx.gz, ...), the rest is built to the rows and non-zeros of table II.

cuSPARSE's HYB is gone: CSR of today's cuSPARSE stands for it. MAGMA's SELL-P is not installed: PETSc's sellcuda and our
pjds, sliced ELLPACK both, stand for it, the faster one counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
from bench_program import bench_cases, comma_separated, ranks_of
from ksparse_layout import figure_8
from ksparse_matrices import RESERVOIR_NONZEROS, RESERVOIR_ROWS, TABLE_II, TableRow, pattern, sizes
from ksparse_times import (
    BALANCED,
    BSR,
    DEFAULT,
    HYB,
    OURS,
    SELLP,
    STANDS_FOR,
    UNBALANCED,
    Sweep,
    speeds_of,
    sweep,
)
from measure import GivenMatrix, gflops, median_seconds
from report import LESS, OUT_OF_TIME, SAME, Chart, Found, Paper, Part, Setting, line, main, unmeasured

from petsc_gpufmt.bench.bsr import grid_points
from petsc_gpufmt.bench.matrices import make_matrix
from petsc_gpufmt.errors import OptionError

PAPER = Paper("ksparse_abdelfattah_2016", "Abdelfattah et al., SpMV for multi-component PDE-based applications, 2016")
PEERS = (BSR, HYB, SELLP)
PADDED = ((3, 4), (5, 6), (7, 8))
"""Block sizes that are compared with the next one, in which they could be padded."""

KERNEL_SIZES = (2, 3, 4, 5, 7, 8, 16, 24, 32, 45, 64)
SMALL_KERNEL_SIZES = (2, 5, 7, 45, 48)
KERNEL_ENTRIES, SMALL_POINTS = 20_000_000, 4
KERNELS = ("k1", "k2", "k3", "auto")
RANGES = {"k1": (2, 5), "k2": (5, 45), "k3": (45, 64)}
"""Section 5.1: block sizes of each kernel; K3 takes larger ones, too."""

MULTI_GPU_SIZE = 8
SPEEDUPS = {2: 1.93, 3: 2.83}
"""Section 6.4: of the reservoir on GPUs."""

STANDS = "CSR of cuSPARSE stands for its HYB, PETSc's sellcuda or our pjds for MAGMA's SELL-P, whichever is faster."
ASSUMED = "rows and non-zeros of table II; lengths and columns of rows assumed"


def table_2(setting: Setting) -> Iterator[Found]:
    """Rows and non-zeros of all matrices."""
    yield "Matrices that are not in --matrices are built: " + ASSUMED + "."
    for row in TABLE_II:
        nrows, nnz, real = sizes(row, setting)
        how = "the paper's own" if real else "built"
        tolerance = 0.0 if real else 0.01
        yield line(f"{row.name}: rows", row.nrows, nrows, "", SAME, tolerance, remark=how)
        yield line(f"{row.name}: non-zeros", row.nnz, nnz, "", SAME, tolerance, remark=how)
    what = "spe5Ref_dpdp"
    if setting.small:
        yield unmeasured(f"{what}: rows", RESERVOIR_ROWS, "too large for --small")
        return
    made = make_matrix("reservoir:10", setting.place.backend.scalar, setting.place.backend.index, setting.rng)
    setting.kept["reservoir"] = made
    exact = "made exactly, blocks of 7 x 7"
    yield line(f"{what}: rows", RESERVOIR_ROWS, made.csr.shape[0], "", SAME, 0, remark=exact)
    yield line(f"{what}: non-zeros", RESERVOIR_NONZEROS, made.csr.nnz, "", SAME, 0, remark=exact)


def kernels(setting: Setting) -> Iterator[Found]:
    """K1, K2 and K3 where each runs, and our choice, on a stencil of 27 blocks a block row; in both precisions."""
    yield "27-point stencils of dense blocks, about as many entries for each block size. The paper has no numbers here."
    block_sizes = SMALL_KERNEL_SIZES if setting.small else KERNEL_SIZES
    for scalar in (np.dtype(np.float64), np.dtype(np.float32)):
        word = "double" if scalar == np.float64 else "single"
        speeds: dict[str, dict[int, float]] = {kernel: {} for kernel in KERNELS}
        with setting.place_for(scalar) as place:
            for size in block_sizes:
                if setting.out_of_time():
                    yield unmeasured(f"{word}, {size} x {size}", None, OUT_OF_TIME)
                    continue
                points = SMALL_POINTS if setting.small else grid_points(size, KERNEL_ENTRIES)
                made = make_matrix(f"27point:{points}x{size}", scalar, place.backend.index, setting.rng)
                given = GivenMatrix(made.csr, place, setting.rng, size)
                for kernel in KERNELS:
                    try:
                        stored = given.store("bsr", {"kernel": kernel} if kernel != "auto" else {})
                    except OptionError:
                        continue  # not for blocks of this size
                    speeds[kernel][size] = gflops(given.nnz, median_seconds(setting, given.mult(stored)))
                place.free_memory()
        for kernel, (least, most) in RANGES.items():
            of_range = [size for size in speeds[kernel] if least <= size <= most]
            if not of_range:
                continue
            shares = [
                speeds[kernel][size] / max(speeds[k][size] for k in speeds if size in speeds[k]) for size in of_range
            ]
            what = f"{word}: {kernel.upper()} of the fastest, blocks of {least} to {most}, least share"
            yield line(what, None, 100 * min(shares), "%")
        chosen = [speeds["auto"][s] / max(speeds[k][s] for k in speeds if s in speeds[k]) for s in speeds["auto"]]
        if chosen:
            yield line(f"{word}: our choice of the fastest, least share", None, 100 * min(chosen), "%")
        series = {kernel: (list(of), list(of.values())) for kernel, of in speeds.items() if of}
        yield Chart(f"kernels_{word}", f"Kernels, {word}", "lines", "block size", "GF/s", series)


def figure_of(row: TableRow) -> Callable[[Setting], Iterator[Found]]:
    """Figure 10 to 18: one matrix over the block sizes, and its line of table III."""

    def figure(setting: Setting) -> Iterator[Found]:
        found = sweep(row, setting)
        yield f"{row.name}: " + ("the paper's own pattern." if found.real else f"built, {ASSUMED}.")
        yield STANDS
        if not found.speeds:
            yield unmeasured(f"{row.name}: all", None, found.missing)
            return
        yield from speedups(row, found, setting)
        yield from of_blocks(row, found, setting)
        series = {name: (list(of), list(of.values())) for name, of in found.speeds.items()}
        yield Chart(f"figure_{row.figure}", row.name, "lines", "block size", "GF/s", series)

    return figure


def speedups(row: TableRow, found: Sweep, setting: Setting) -> Iterator[Found]:
    """Largest over the block sizes, as the paper's, over each peer; and of the balanced kernel."""
    ours = UNBALANCED if row.balanced is None else BALANCED
    stands_for = STANDS_FOR[setting.place.name]
    for peer, published in zip(PEERS, row.speedups, strict=True):
        if ratios := found.ratios(ours, stands_for[peer]):
            remark = f"measured: {' or '.join(stands_for[peer])}"
            what = f"{row.name}: {ours} over {peer}, most"
            yield line(what, published, max(ratios.values()), "", tolerance=0.1, remark=remark)
            remark = f"{remark}; default options"
            best = max(found.ratios(DEFAULT, stands_for[peer]).values())
            yield line(f"{row.name}: ours over {peer}, most", published, best, "", tolerance=0.1, remark=remark)
        else:
            yield unmeasured(f"{row.name}: {ours} over {peer}, most", published, "no peer took this matrix")
    gain = max(found.ratios(BALANCED, (UNBALANCED,)).values())
    what = f"{row.name}: balanced over KSPARSE, most"
    yield line(what, row.balanced or (0.0, 1.0), gain, "", tolerance=0.1, remark="" if row.balanced else "no advantage")


def of_blocks(row: TableRow, found: Sweep, setting: Setting) -> Iterator[Found]:
    """From which block size on KSPARSE is fastest, and what padding to the next size costs."""
    others = [name for name in found.speeds if name not in OURS]
    ours = UNBALANCED if row.balanced is None else BALANCED
    ratios = found.ratios(ours, others)
    slower = [size for size, ratio in ratios.items() if ratio < 1]
    larger = [size for size in ratios if size > max(slower, default=0)]
    what = f"{row.name}: {ours} fastest from blocks of"
    if larger:
        yield line(what, 7, min(larger), "rows", LESS, 0)
    else:
        yield unmeasured(what, 7, f"never of the sizes up to {max(ratios)}", "rows")
    of = found.speeds[DEFAULT]
    for size, padded in PADDED:
        if size in of and padded in of:
            cost = of[size] / (of[padded] * (size / padded) ** 2)
            yield line(f"{row.name}: {size} x {size} padded to {padded} x {padded}, time", None, cost, "times")


def table_3(setting: Setting) -> Iterator[Found]:
    """Over all matrices: geometric means of the speedups, published and ours."""
    rows = [row for row in TABLE_II if row.balanced is None]
    for number, peer in enumerate(PEERS):
        stands = STANDS_FOR[setting.place.name][peer]
        pairs = []
        for row in rows:
            found = sweep(row, setting)
            ratios = found.ratios(UNBALANCED, stands) if found.speeds else {}
            if ratios:
                pairs.append((row.speedups[number], max(ratios.values())))
        if not pairs:
            yield unmeasured(f"KSPARSE over {peer}, geometric mean", None, OUT_OF_TIME)
            continue
        published, ours = (float(np.exp(np.mean(np.log(of)))) for of in zip(*pairs, strict=True))
        yield line(
            f"KSPARSE over {peer}, geometric mean of {len(pairs)}", published, ours, remark=f"{', '.join(stands)}"
        )


def figure_19(setting: Setting) -> Iterator[Found]:
    """Row lengths of shermanACb."""
    rowptr, _, real = pattern(TABLE_II[-1], setting)
    counts = np.bincount(np.diff(rowptr))
    taken = np.flatnonzero(counts)
    yield "The paper's own pattern." if real else f"Built: {ASSUMED}."
    mean = (rowptr[-1]) / (rowptr.size - 1)
    yield line("longest over mean row", None, float(taken.max() / mean), "times")
    series = {"shermanACb": (taken.tolist(), counts[taken].tolist())}
    yield Chart("figure_19", "Row lengths of shermanACb", "steps", "non-zeros of a row", "rows", series, "xy")


def figure_20(setting: Setting) -> Iterator[Found]:
    """A stencil of blocks on GPUs whose block rows are dealt out in turn, cut or not (section 5.6)."""
    yield "Rows are dealt out in turn (cyclic), and long block rows cut into segments first (segments)."
    spec = "27point:6x8" if setting.small else f"27point:40x{MULTI_GPU_SIZE}"
    yield from on_gpus(spec, "27-point stencil of 8 x 8 blocks", {}, setting)
    why = "the paper's has single blocks; the benchmark of several GPUs knows no blocks of a file"
    yield unmeasured("coater2: speed-up on 3 GPUs", None, why)
    yield unmeasured("shermanACb: KSPARSE, speed-up on 3 GPUs (below 0.5)", (0.0, 0.5), why)


def figure_21(setting: Setting) -> Iterator[Found]:
    """The reservoir on one GPU: GF/s and speedups."""
    spec = "reservoir:1" if setting.small else "reservoir:10"
    backend = setting.place.backend
    made = setting.kept.get("reservoir") or make_matrix(spec, backend.scalar, backend.index, setting.rng)
    setting.kept.pop("reservoir", None)
    yield STANDS
    found = speeds_of(made, setting)
    stands_for = STANDS_FOR[setting.place.name]
    for peer, published in zip(PEERS, (2.4, 1.13, 1.27), strict=True):
        known = [found[name] for name in stands_for[peer] if name in found]
        for ours in (UNBALANCED, DEFAULT):
            if known:
                yield line(f"{ours} over {peer}", published, found[ours] / max(known), tolerance=0.1)
            else:
                yield unmeasured(f"{ours} over {peer}", published, "no peer took this matrix")
    gain = found[BALANCED] / found[UNBALANCED]
    yield line("balanced over KSPARSE (no gain)", (0.0, 1.0), gain, tolerance=0.1)
    yield Chart("figure_21", made.name, "bars", "", "GF/s", {"GF/s": (list(found), list(found.values()))})


def section_6_4(setting: Setting) -> Iterator[Found]:
    """The reservoir on several GPUs."""
    yield from on_gpus("reservoir:1" if setting.small else "reservoir:10", "spe5Ref_dpdp", SPEEDUPS, setting)


def on_gpus(spec: str, name: str, published: dict[int, float], setting: Setting) -> Iterator[Found]:
    """Speed-ups over one GPU for both ways to deal out rows; published ones are beside the cyclic way."""
    ranks = ranks_of(setting)
    if len(ranks) == 1 or setting.out_of_time():
        why = "one GPU" if len(ranks) == 1 else OUT_OF_TIME
        for gpus, of_paper in (published or {2: None, 3: None}).items():
            yield unmeasured(f"{name}: speed-up on {gpus} GPUs", of_paper, why)
        return
    places, mode = ("ranks of the host", "overlap") if setting.place.name == "host" else ("GPUs", "peer")  # defaults
    series = {}
    for distribution in ("cyclic",) if setting.small else ("petsc", "cyclic", "segments"):
        words = ("--matrix", spec, "--type", "bsr", "--ranks", comma_separated(ranks), "--distribution", distribution)
        cases = bench_cases(setting, "scaling", *words, "--mode", mode, "--without-peer")
        seconds = {case["ranks"]: case["seconds"] for case in cases}
        ratios = {n: seconds[1] / seconds[n] for n in seconds if n > 1}
        for n, ratio in ratios.items():
            of_paper = published.get(n) if distribution != "segments" else None
            yield line(
                f"{name}, {distribution}: speed-up on {n} {places}",
                of_paper,
                ratio,
                remark=f"z not gathered, mode {mode}",
            )
        series[distribution] = (list(ratios), list(ratios.values()))
    yield Chart(f"speedup_{spec.partition(':')[0]}", name, "lines", places, "speed-up", series)


PARTS = (
    Part("table-2", "Table II: matrices", table_2),
    Part("figure-8", "Figure 8: balanced BSR layout", figure_8),
    Part("kernels", "Section 5.1: K1, K2 and K3 over block sizes, in double and single precision", kernels),
    *(Part(f"figure-{row.figure}", f"Figure {row.figure}: {row.name}", figure_of(row)) for row in TABLE_II),
    Part("table-3", "Table III: speedups of KSPARSE", table_3),
    Part("figure-19", "Figure 19: row lengths of shermanACb", figure_19),
    Part("figure-20", "Figure 20: scaling of the balanced kernel", figure_20),
    Part("figure-21", "Figure 21: spe5Ref_dpdp on one GPU", figure_21),
    Part("section-6.4", "Section 6.4: spe5Ref_dpdp on several GPUs", section_6_4),
)

if __name__ == "__main__":
    sys.exit(main(__doc__, PAPER, PARTS))
