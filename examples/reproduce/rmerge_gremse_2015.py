"""Tables and figures of the RMerge paper, each published number beside ours.

    python rmerge_gremse_2015.py --json docs/reproduction/rmerge_gremse_2015.json --page    # all, on a GPU
    python rmerge_gremse_2015.py --small --host                                            # seconds, on the host
    python rmerge_gremse_2015.py --figure figure-3.2 --matrices FOLDER                      # its matrices, if there

Gremse, Hoefter, Schwen, Kiessling, Naumann, "GPU-accelerated sparse matrix-matrix multiplication by iterative row
merging", 2015. Files of --matrices with the names of table 1.1, or of the SuiteSparse Matrix Collection (rma10.mtx.gz,
email-Enron.mtx.gz, ...) are taken; the other matrices are built to what table 1.1 says of them.

Cusp is no longer developed: CuPy's product stands for it; on the host PETSc's aij stands for both libraries of GPUs.
MKL is not installed: SciPy, with one thread, stands for it, for products that take it less than seconds. Of Liu and
Vinter's there is no library: our products by hash, an accumulator of that kind, stand for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import scipy.stats
from report import LESS, OUT_OF_TIME, SAME, Chart, Found, Paper, Part, Setting, line, main, unmeasured
from rmerge_matrices import REGULAR, TABLE_1_1
from rmerge_times import (
    HASH,
    MOST_SPLIT_TERMS,
    OURS,
    PUBLISHED,
    SPLITTING_PEERS,
    STANDS_FOR,
    WIDTH,
    FirstProduct,
    Square,
    measured_case,
    measured_squares,
    seconds_of,
    squares,
)

from petsc_gpufmt.bench.galerkin import pyramid
from petsc_gpufmt.bench.matrices import make_matrix
from petsc_gpufmt.bench.spgemm_contenders import merge_widths
from petsc_gpufmt.bench.spgemm_tasks import matrix_product
from petsc_gpufmt.spgemm.splitting import WIDTHS

PAPER = Paper("rmerge_gremse_2015", "Gremse et al., GPU-accelerated SpGEMM by iterative row merging, 2015")
STENCILS = tuple(f"7point:{n}" for n in (10, 20, 40, 60, 80, 100))
SMALL_STENCILS = ("7point:6", "7point:10")
ASYMPTOTIC = 2
"""Largest stencils whose rates are averaged; the paper averages its five largest."""

PYRAMIDS = {"mouse280": "7point:97", "cantilever": "27point:27x3", "ship": "27point:36x3"}
SMALL_PYRAMIDS = {"mouse280": "7point:11"}
"""Matrix of the paper -> mesh of about its size and rows, whose pattern is symmetric as a Galerkin product needs it."""

WIDTH_RATES = {2: 0.65, 4: 1.52, 8: 2.10, 16: 2.33, 32: 2.22}
BUILT = "Matrices that are not in --matrices are built: rows, mean and longest row, a band that gives the compression."


def stands(setting: Setting) -> str:
    names = [f"{ours} stands for {peer}" for peer, ours in STANDS_FOR[setting.place.name].items() if peer != ours]
    return f"RMerge: {PUBLISHED}. {'; '.join(names)}."


def missing(setting: Setting) -> Iterator[Found]:
    for square in squares(setting):
        if not isinstance(square, Square):
            yield unmeasured(f"{square[0].name}: all", None, square[1])


def table_1_1(setting: Setting) -> Iterator[Found]:
    """Sizes, workload and compression."""
    yield BUILT
    yield from missing(setting)
    for square in measured_squares(setting):
        row, sizes = square.row, square.sizes
        how = "the paper's own" if square.real else "built"
        tolerance = 0.0 if square.real else 0.05
        for what, published, ours in (
            ("rows", row.nrows, sizes["nrows"]),
            ("non-zeros", row.nnz, sizes["nnz"]),
            ("longest row", row.longest, sizes["longest_row"]),
        ):
            yield line(f"{row.name}: {what}", published, ours, "", SAME, tolerance, how)
        yield line(f"{row.name}: mean row", row.mean, sizes["nnz"] / sizes["nrows"], "", SAME, remark=how)
        yield line(f"{row.name}: workload", row.workload, 2e-6 * sizes["terms"], "Mflop", SAME, remark=how)
        yield line(f"{row.name}: compression", row.compression, sizes["compression"], "", SAME, remark=how)


def mean_speedup(found: list[dict[str, float]], ours: str, peer: str) -> tuple[float, int] | None:
    """Mean over products, and of how many."""
    ratios = [seconds[peer] / seconds[ours] for seconds in found if ours in seconds and peer in seconds]
    return (float(np.mean(ratios)), len(ratios)) if ratios else None


def speedup_lines(
    what: str, found: list[dict[str, float]], published: dict[str, float], setting: Setting
) -> Iterator[Found]:
    """Mean speed-ups of RMerge as published, and of ours, over who stands for each peer."""
    for peer, of_paper in published.items():
        stand = STANDS_FOR[setting.place.name][peer]
        for label, ours in (("RMerge", PUBLISHED), ("our choice", OURS)):
            mean = mean_speedup(found, ours, stand)
            title = f"{what}: {label} over {peer}, mean"
            if mean is None:
                yield unmeasured(title, of_paper, f"{stand}: no product was measured")
            else:
                yield line(title, of_paper, mean[0], "times", remark=f"{stand}, {mean[1]} products")


def figure_3_1(setting: Setting) -> Iterator[Found]:
    """Squares of 7-point stencils over their size, by everyone and by the widths."""
    yield stands(setting)
    found, rows, terms = [], [], []
    for spec in SMALL_STENCILS if setting.small else STENCILS:
        if setting.out_of_time():
            yield unmeasured(f"{spec}: all", None, OUT_OF_TIME)
            continue
        matrix = make_matrix(spec, setting.place.backend.scalar, setting.place.backend.index, setting.rng)
        task = matrix_product(matrix.csr, matrix.csr)
        found.append(seconds_of(measured_case("square", matrix, [task], setting, widths=True)))
        rows.append(matrix.csr.shape[0])
        terms.append(task.terms)
    if not found:
        return
    largest = found[-ASYMPTOTIC:]
    yield from speedup_lines("largest", largest, {"MKL": 10.5, "Cusp": 14.5, "cuSPARSE": 7.2}, setting)
    best = min(zip(WIDTHS, merge_widths(), strict=True), key=lambda pair: largest[-1][pair[1]])
    yield line("fastest width", 8, best[0], "", SAME, 0)
    rates = {}
    for name in dict.fromkeys(name for seconds in found for name in seconds):
        rates[name] = (rows, [2e-9 * n / s[name] if name in s else None for n, s in zip(terms, found, strict=True)])
    widths = dict(zip(merge_widths(), WIDTHS, strict=True))
    by_all = {name: of for name, of in rates.items() if name not in widths or name == PUBLISHED}
    by_width = {f"width {widths[name]}": of for name, of in rates.items() if name in widths}
    yield Chart("figure_3_1_a", "Squares of 7-point stencils", "lines", "rows", "GF/s", by_all, "x")
    yield Chart("figure_3_1_b", "The same by the sub-warp width", "lines", "rows", "GF/s", by_width, "x")


def figure_3_2(setting: Setting) -> Iterator[Found]:
    """Squares of the matrices of table 1.1."""
    yield stands(setting)
    yield BUILT
    yield from missing(setting)
    found = measured_squares(setting)
    published = {"MKL": 4.1, "Cusp": 6.9, "cuSPARSE": 9.2, "Liu and Vinter": 2.6}
    yield from speedup_lines("squares", [square.seconds for square in found], published, setting)
    won = sum(all(s.seconds[PUBLISHED] <= t for n, t in s.seconds.items() if not n.startswith(OURS)) for s in found)
    ours = sum(all(s.seconds[OURS] <= t for n, t in s.seconds.items() if not n.startswith(OURS)) for s in found)
    yield line("matrices for which RMerge is the fastest", len(TABLE_1_1), won, f"of {len(found)}")
    yield line("matrices for which our choice is the fastest", len(TABLE_1_1), ours, f"of {len(found)}")
    regular = {row.name for row in TABLE_1_1[:REGULAR]}
    for word, chosen in (("regular", True), ("irregular", False)):
        of_kind = [square for square in found if (square.row.name in regular) == chosen]
        names = dict.fromkeys(n for s in of_kind for n in s.seconds if n in {OURS, PUBLISHED, HASH} or n[:6] != OURS)
        series = {
            name: ([s.row.name for s in of_kind], [s.gflops(name) if name in s.seconds else None for s in of_kind])
            for name in names
        }
        if series:
            yield Chart(f"figure_3_2_{word}", f"Squares, {word} matrices", "bars", "", "GF/s", series)


def figure_3_3(setting: Setting) -> Iterator[Found]:
    """Rate over compression, and whether they correlate (P at most 0.001)."""
    found = measured_squares(setting)
    series = {}
    for label, name in (("RMerge", PUBLISHED), ("our choice", OURS), *STANDS_FOR[setting.place.name].items()):
        of_name = sorted((s for s in found if name in s.seconds), key=lambda square: square.sizes["compression"])
        if len(of_name) < 3:
            yield unmeasured(f"{label}: P of Pearson's correlation", (0.0, 0.001), "fewer than three products", "")
            continue
        x, y = [s.sizes["compression"] for s in of_name], [s.gflops(name) for s in of_name]
        p = float(scipy.stats.pearsonr(x, y).pvalue)
        yield line(f"{label}: P of Pearson's correlation", (0.0, 0.001), p, "", LESS, 0, f"{name}, {len(x)} products")
        series[label] = (x, y)
    if series:
        yield Chart("figure_3_3", "Rate over compression", "lines", "compression", "GF/s", series, "x")


def table_3_1(setting: Setting) -> Iterator[Found]:
    """The first product G_1 A of the splitting by RMerge."""
    yield "The cache ratio needs a profiler of the hardware: it is not measured."
    firsts: list[dict[str, float]] = []
    shares = []
    for square in measured_squares(setting):
        row, of_paper = square.row, square.row.first
        first: FirstProduct | None = setting.kept.get(f"first {row.name}")
        if first is None:
            why = f"{square.sizes['terms']} terms, at most {MOST_SPLIT_TERMS}"
            yield unmeasured(f"{row.name}: all", None, why)
            continue
        share = min(100.0, 100 * first.seconds / square.seconds[PUBLISHED])
        setup = 100 * max(0.0, 1 - first.numeric / first.seconds)
        yield line(f"{row.name}: rate", of_paper.gflops, 2e-9 * first.terms / first.seconds, "GF/s")
        yield line(f"{row.name}: compression", of_paper.compression, first.compression, "", SAME, 0.1)
        yield line(f"{row.name}: iterations", of_paper.iterations, square.sizes["iterations"], "", SAME, 0)
        yield line(f"{row.name}: first product", of_paper.share, share, "%", SAME, 0.2)
        yield line(f"{row.name}: its set-up", of_paper.setup, setup, "%", LESS, 0.2)
        firsts.append({**first.peers, PUBLISHED: first.seconds})
        shares.append((share, setup, square.sizes["iterations"]))
    if shares:
        share, setup, iterations = np.mean(shares, axis=0)
        yield line("mean: iterations", 2.2, iterations, "", SAME, 0.1)
        yield line("mean: first product", 65, share, "%", SAME, 0.2)
        yield line("mean: its set-up", 39, setup, "%", LESS, 0.2)
    for peer, of_paper in {"MKL": 6.5, "Cusp": 9.5, "cuSPARSE": 13.3}.items():
        stand = STANDS_FOR[setting.place.name][peer]
        if mean := mean_speedup(firsts, PUBLISHED, stand):
            yield line(f"first product: RMerge over {peer}, mean", of_paper, mean[0], "times", remark=stand)
        else:
            yield unmeasured(f"first product: RMerge over {peer}, mean", of_paper, f"{stand}: no product was measured")


def section_3_4(setting: Setting) -> Iterator[Found]:
    """The splitting with the products of other libraries: how many times as long as their own product A A."""
    yield f"Left matrices are split into rows of up to {WIDTH} entries; another library multiplies the parts."
    ratios: dict[str, list[float]] = {}
    for square in measured_squares(setting):
        for name, seconds in setting.kept.get(f"splitting {square.row.name}", {}).items():
            if name in square.seconds:
                ratios.setdefault(name, []).append(seconds / square.seconds[name])
                what = f"{square.row.name}: {name} with the splitting"
                yield line(what, None, ratios[name][-1], "times the time of its own product")
    for name, of_paper in zip(SPLITTING_PEERS[setting.place.name], (1.6, 1.4), strict=True):
        peer = "Cusp" if of_paper == 1.6 else "cuSPARSE"
        what = f"{peer} with the splitting, time over its own, mean"
        if name in ratios:
            yield line(what, of_paper, float(np.mean(ratios[name])), "times", SAME, 0.2, f"{name} stands for it")
        else:
            yield unmeasured(what, of_paper, f"{name} computed no splitting", "times")


def figure_3_4(setting: Setting) -> Iterator[Found]:
    """Entries of intermediates, level by level of merging two rows."""
    series, early = {}, 0
    found = [square for square in measured_squares(setting) if len(square.levels) > 2]
    for square in found:
        series[square.row.name] = (list(range(1, len(square.levels) + 1)), square.levels)
        gains = [before - after for before, after in zip(square.levels[:-1], square.levels[1:], strict=True)]
        half = (len(gains) + 1) // 2
        early += int(np.argmax(gains) < half)
    if not found:
        yield unmeasured("strongest compression in the first half of the levels", 100, "no levels were counted", "%")
        return
    yield line("strongest compression in the first half of the levels", 100, 100 * early / len(found), "% of matrices")
    yield Chart("figure_3_4", "Compression by merging two rows", "lines", "level", "entries over terms", series, "y")


def figure_3_5(setting: Setting) -> Iterator[Found]:
    """Mean rates by the sub-warp width."""
    found = measured_squares(setting)
    names = dict(zip(WIDTHS, merge_widths(), strict=True))
    rates = {width: [square.gflops(name) for square in found] for width, name in names.items()}
    if not found:
        yield from missing(setting)
        return
    means = {width: float(np.mean(of)) for width, of in rates.items()}
    for width, of_paper in WIDTH_RATES.items():
        yield line(f"width {width}: mean rate", of_paper, means[width], "GF/s")
    yield line("best default width", WIDTH, max(means, key=means.__getitem__), "", SAME, 0)
    series = {f"width {width}": ([square.row.name for square in found], of) for width, of in rates.items()}
    yield Chart("figure_3_5", "Squares by the sub-warp width", "bars", "", "GF/s", series)


def figure_3_6(setting: Setting) -> Iterator[Found]:
    """Pyramids of Galerkin products on meshes of the sizes of matrices of the paper."""
    yield stands(setting)
    meshes = SMALL_PYRAMIDS if setting.small else PYRAMIDS
    yield "Meshes in place of matrices: " + ", ".join(f"{spec} for {name}" for name, spec in meshes.items()) + "."
    found, series = [], {}
    for name, spec in meshes.items():
        if setting.out_of_time():
            yield unmeasured(f"{name}: all", None, OUT_OF_TIME)
            continue
        matrix = make_matrix(spec, setting.place.backend.scalar, setting.place.backend.index, setting.rng)
        tasks = pyramid(matrix, setting.rng)
        seconds = seconds_of(measured_case("galerkin", matrix, tasks, setting, widths=False))
        found.append(seconds)
        flops = 2e-9 * sum(task.terms for task in tasks)
        for contender, of in seconds.items():
            names, rates = series.setdefault(contender, ([], []))
            names.append(name)
            rates.append(flops / of)
    yield from speedup_lines("pyramids", found, {"MKL": 2.8, "Cusp": 5.4, "cuSPARSE": 3.4}, setting)
    if series:
        yield Chart("figure_3_6", "Galerkin products", "bars", "", "GF/s", series)


PARTS = (
    Part("table-1.1", "Table 1.1: matrices", table_1_1),
    Part("table-3.1", "Table 3.1: the first product of the splitting", table_3_1),
    Part("figure-3.1", "Figure 3.1: squares of 7-point stencils", figure_3_1),
    Part("figure-3.2", "Figure 3.2: squares", figure_3_2),
    Part("figure-3.3", "Figure 3.3: rate over compression", figure_3_3),
    Part("figure-3.4", "Figure 3.4: compression by level", figure_3_4),
    Part("figure-3.5", "Figure 3.5: sub-warp widths", figure_3_5),
    Part("figure-3.6", "Figure 3.6: Galerkin products", figure_3_6),
    Part("section-3.4", "Section 3.4: the splitting with other libraries", section_3_4),
)

if __name__ == "__main__":
    sys.exit(main(__doc__, PAPER, PARTS))
