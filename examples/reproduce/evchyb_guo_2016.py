"""Tables and figures of the EVC-HYB paper, each published number beside ours.

    python evchyb_guo_2016.py --json docs/reproduction/evchyb_guo_2016.json --page      # all, on a GPU
    python evchyb_guo_2016.py --small --host                                          # seconds, on the host
    python evchyb_guo_2016.py --table table-3 --matrices FOLDER                       # the paper's matrices, if there

Guo, Gropp, Olson, "A hybrid format for better performance of sparse matrix-vector multiplication on a GPU", 2016. Its
matrices are of the SuiteSparse Matrix Collection: files such as pwtk.mtx.gz in --matrices are taken; for the others,
matrices with the rows, entries and parts of table 3 are made (evchyb_matrices.py).

What of cuSPARSE the paper compares with: its CSR is PETSc's aijcusparse and CuPy's csr, on the cuSPARSE of today. Its
HYB went with CUDA 11; PETSc's sliced ELLPACK (sellcuda) stands for it. On the host, PETSc's aij stands for both.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from evchyb_matrices import TABLE_3, WARP, TableRow
from evchyb_times import (
    AFTER,
    AS_PUBLISHED,
    DEFAULT,
    IN_ORDER,
    SMALL_NONZEROS,
    WITHIN,
    Times,
    all_times,
    measured,
    times_of,
)
from matrices_like import matrix_like, real_matrix
from measure import median_seconds
from report import LESS, OUT_OF_TIME, SAME, Chart, Found, Line, Paper, Part, Setting, line, main, unmeasured

from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.bench.contenders import SELLCUDA
from petsc_gpufmt.bench.matrices import make_matrix
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.scaling.code_balance import code_balance

PAPER = Paper("evchyb_guo_2016", "Guo, Gropp, Olson, A hybrid format for better performance of SpMV on a GPU, 2016")
MADE = (
    "Matrices that are not in --matrices are made: rows, non-zeros, I_split and the entries of the parts are those of "
    "table 3, the lengths within a part and the columns are not."
)
PEERS = (
    "The paper's peers: CSR and HYB of cuSPARSE. Here: PETSc's aijcusparse and CuPy's csr, both the CSR of today's "
    "cuSPARSE, and PETSc's sellcuda for HYB, which CUDA 11 removed; on the host PETSc's aij."
)


def per_matrix(
    setting: Setting, what: str, published: Mapping[str, float], value: Any, unit: str, **how: Any
) -> Iterator[Line]:
    """A line for each matrix of table 3 for which the text has a number, measured or not, and for each measured one."""
    for name, times in all_times(setting).items():
        if isinstance(times, Times):
            yield line(f"{name}: {what}", published.get(name), value(times), unit, **how)
        elif name in published:
            yield unmeasured(f"{name}: {what}", published[name], times, unit)


def bars(name: str, title: str, unit: str, values: dict[str, Any], setting: Setting) -> Chart:
    """A bar for each label of `values`, a function of Times, for each matrix."""
    of = measured(setting)
    series = {label: ([t.matrix for t in of], [value(t) for t in of]) for label, value in values.items()}
    return Chart(name, title, "bars", "", unit, series)


STREAM = 180.0
"""GB/s: "around" in the text; the digits of table 2 are cut off in the copy at hand."""


def streams(setting: Setting) -> dict[str, Callable[[], float]]:
    """Kernel -> what measures its GB/s: large vectors in double precision, bytes read and written both counted."""
    place, xp = setting.place, setting.place.backend.xp
    a, b, c = (xp.full(1_000_000 if setting.small else 20_000_000, value) for value in (1.0, 2.0, 0.0))
    kernels = {
        "copy": (2, lambda: xp.copyto(c, a)),
        "scale": (2, lambda: xp.multiply(a, 3.0, out=c)),
        "add": (3, lambda: xp.add(a, b, out=c)),
    }
    if place.name == "cuda":
        triad = xp.ElementwiseKernel("float64 a, float64 b, float64 s", "float64 c", "c = a + s * b", "reproduce_triad")
        kernels["triad"] = (3, lambda: triad(a, b, 3.0, c))

    def rate(vectors: int, call: Callable[[], Any]) -> float:
        return 1e-9 * vectors * a.nbytes / median_seconds(setting, call)

    return {name: functools.partial(rate, *kernel) for name, kernel in kernels.items()}


def table_2(setting: Setting) -> Iterator[Found]:
    rates = streams(setting)
    for name in ("copy", "scale", "add", "triad"):
        if name in rates:
            yield line(name, STREAM, rates[name](), "GB/s")
        else:
            yield unmeasured(name, STREAM, "NumPy has no single pass for it", "GB/s")


def statistics(
    csr_lengths: np.ndarray, ncols: int, colidx: np.ndarray | None, backend: HostBackend
) -> dict[str, float]:
    """I_split, the stored entries of both parts, and the padding in percent of the non-zeros."""
    rowptr = np.concatenate([[0], np.cumsum(csr_lengths)]).astype(backend.index)
    if colidx is None:  # columns play no part
        colidx = np.zeros(rowptr[-1], dtype=backend.index)
    stored = EvcHyb.build(
        CsrPattern(csr_lengths.size, ncols, rowptr, colidx), backend, {**EvcHyb.default_options, **AS_PUBLISHED}
    )
    return {
        "split": stored.slices.nell * stored.height,
        "ell": stored.nstored_ell,
        "vcsr": stored.nstored - stored.nstored_ell,
        "added": 100 * (stored.nstored - stored.nnz) / max(1, stored.nnz),
    }


def table_3(setting: Setting) -> Iterator[Found]:
    """Statistics, by the code that stores matrices of `-mat_type evchyb`, with the slices that it has on a device."""
    yield MADE
    backend = HostBackend(setting.places["host"].backend.scalar, setting.places["host"].backend.index)
    backend.simd_width = WARP
    for row in TABLE_3:
        if setting.out_of_time():
            yield unmeasured(f"{row.name}: all", None, OUT_OF_TIME)
        elif setting.small and row.nnz > 20 * SMALL_NONZEROS:
            yield unmeasured(f"{row.name}: I_split", row.split, "left out with --small")
        else:
            yield from table_3_row(row, backend, setting)


def table_3_row(row: TableRow, backend: HostBackend, setting: Setting) -> Iterator[Found]:
    """All columns of a file; of a matrix that is made, those that do not hang on the lengths within a part."""
    real = real_matrix(setting.matrices, row.stem, backend.scalar, backend.index, setting.rng)
    lengths = np.diff(real.csr.indptr) if real else row.row_lengths()
    found = statistics(lengths, real.csr.shape[1] if real else 1, real.csr.indices if real else None, backend)
    name, remark = row.name, "the paper's matrix" if real else "made"
    yield line(f"{name}: NROW", row.nrows, lengths.size, "", SAME, 0, remark)
    yield line(f"{name}: NNZ", row.nnz, int(lengths.sum()), "", SAME, 0, remark)
    yield line(f"{name}: I_split", row.split, found["split"], "", SAME, 0, remark)
    share, published = (100 * ell / (ell + vcsr) for ell, vcsr in ((found["ell"], found["vcsr"]), (row.ell, row.vcsr)))
    yield line(f"{name}: NNZ_ELL of all that is stored", published, share, "%", SAME, 0 if real else 0.02, remark)
    if real:
        yield line(f"{name}: NNZ_ELL", row.ell, found["ell"], "", SAME, 0, remark)
        yield line(f"{name}: NNZ_vCSR", row.vcsr, found["vcsr"], "", SAME, 0, remark)
        yield line(f"{name}: NNZ added", row.added, round(found["added"], 2), "%", SAME, 0, remark)
    else:
        why = f"needs the lengths of the paper's matrix; {found['added']:.2f} % with those made here"
        yield unmeasured(f"{name}: NNZ added", row.added, why, "%")


FASTER = {"msdoor": 1.10, "Stanford_Berkeley": 1.64, "pwtk": 0.90}
FASTER_REORDERED = {"torso1": 1.14, "indochina-2004": 1.43}


def figure_3(setting: Setting) -> Iterator[Found]:
    """Speed-up over the fastest peer."""
    yield MADE
    yield PEERS
    yield from per_matrix(setting, "speed-up, not reordered", FASTER, lambda t: t.speedup(IN_ORDER), "")
    yield from per_matrix(setting, "speed-up, reordered by a pass", FASTER_REORDERED, lambda t: t.speedup(AFTER), "")
    yield from per_matrix(setting, "speed-up, reordered as stored", {}, lambda t: t.speedup(WITHIN), "")
    if of := measured(setting):
        improved = sum(t.speedup(IN_ORDER) >= 1.10 for t in of)
        yield line("matrices that gain 10 %, of all, not reordered", 10 / 22, improved / len(of), "")
    both = [t for t in measured(setting) if SELLCUDA.name in t.peers]
    if both:  # the last column of table 3
        csr_wins = sum(min(t.peers.values()) < t.peers[SELLCUDA.name] for t in both) / len(both)
        published = sum(row.peer == "CSR" for row in TABLE_3) / len(TABLE_3)
        yield line("CSR is the faster peer: share of the matrices with both", published, csr_wins)
    names = (IN_ORDER, AFTER, WITHIN, DEFAULT)
    yield bars(
        "figure_3", "Speed-up over the fastest peer", "", {n: lambda t, n=n: t.speedup(n) for n in names}, setting
    )


def figure_4(setting: Setting) -> Iterator[Found]:
    """What reordering costs, in percent of the speed without."""
    yield MADE
    yield "The paper reorders z by a pass of its own; this package stores each row where it belongs, in one kernel."

    def loss(name: str) -> Any:
        return lambda t: 100 * (1 - t.ours[IN_ORDER] / t.ours[name])

    published = {"TSOPF_RS_b2383": 3.52}
    yield from per_matrix(setting, "loss by a pass", published, loss(AFTER), "%", better=LESS, tolerance=0.2)
    yield from per_matrix(setting, "loss as stored", {}, loss(WITHIN), "%")
    for what, low, high, of_paper in (("fewer than 12", 0, 12, (18.75, 34.15)), ("18 to 119", 18, 120, (3.52, 18.9))):
        of = [loss(AFTER)(t) for t in measured(setting) if low <= t.mean < high]
        if of:
            yield line(f"mean row {what}: largest loss by a pass", of_paper[1], max(of), "%", LESS, 0.2)
            yield line(f"mean row {what}: least loss by a pass", of_paper[0], min(of), "%", LESS, 0.2)
    yield bars("figure_4", "Loss by reordering", "%", {AFTER: loss(AFTER), WITHIN: loss(WITHIN)}, setting)


SPEEDS = {"web-Google": 5.34, "TSOPF_RS_b2383": 24.61, "Stanford": 9.53}


def figure_5(setting: Setting) -> Iterator[Found]:
    yield MADE
    yield PEERS
    yield from per_matrix(setting, "EVC-HYB, not reordered", SPEEDS, lambda t: t.speed(IN_ORDER), "GF/s")
    if of := measured(setting):
        yield line("fastest of all", 24.7, max(t.speed(name) for t in of for name in (*t.peers, IN_ORDER)), "GF/s")
    names = [IN_ORDER, AFTER, WITHIN, DEFAULT, *dict.fromkeys(name for t in of for name in t.peers)]
    values = {n: lambda t, n=n: t.speed(n) if n in t.ours or n in t.peers else None for n in names}
    yield bars("figure_5", "Flop rates", "GF/s", values, setting)


def figures_6_to_10(setting: Setting) -> Iterator[Found]:
    yield (
        "Throughputs and hit rates of caches (figures 6, 7, 9, table 4) and what follows from them (latencies, figure "
        "8; alpha and B from measured bytes, figure 10) are numbers of a profiler's counters: nvprof has ended, and "
        "its successor, Nsight Compute, needs a right that programs seldom have. They are not read here."
    )
    why = "needs the counters of a profiler"
    yield unmeasured("web-Google: latency of x", 444, why, "cycles")
    yield unmeasured("TSOPF_RS_b2383: latency of x", 116, why, "cycles")
    yield unmeasured("web-Google: alpha", 4.93, why)
    yield unmeasured("web-Google: code balance", 21.4, why, "bytes/flop")


def figure_11(setting: Setting) -> Iterator[Found]:
    """Measured GF/s beside bandwidth over code balance."""
    yield MADE
    yield "P_max is the bandwidth of a copy over equation (1) of the pJDS paper, where x is read once: a bound."
    copy = 1e9 * streams(setting)["copy"]()

    def bound(times: Times) -> float:
        mean = max(1.0, times.mean)
        return 1e-9 * copy / code_balance(mean, 1 / mean)

    yield from per_matrix(setting, "share of P_max", {}, lambda t: 100 * t.speed(IN_ORDER) / bound(t), "%")
    yield bars(
        "figure_11", "Measured and bound", "GF/s", {"P_meas": lambda t: t.speed(IN_ORDER), "P_max": bound}, setting
    )


def figure_12(setting: Setting) -> Iterator[Found]:
    """The sum of the parts against the whole."""
    yield MADE

    def ratio(times: Times) -> float:
        return times.shares["total"] / times.ours[IN_ORDER]

    yield from per_matrix(setting, "T_total / T_SpMV", {}, ratio, "")
    if of := [ratio(t) for t in measured(setting)]:
        yield line("T_total / T_SpMV, largest", 1.21, max(of), "", LESS)
        most = sum(value < 1.15 for value in of) / len(of)
        yield line("T_total / T_SpMV below 1.15: share of the matrices", 18 / 22, most)
    yield bars("figure_12", "T_total / T_SpMV", "", {"ratio": ratio}, setting)


SHARES = {"A": (14, 49, {}), "X": (34, 80, {"Stanford": 60, "web-Google": 80}), "Y": (7, 35, {"webbase-1M": 20})}


def figure_13(setting: Setting) -> Iterator[Found]:
    """Where the time goes: kernels that take A, x or both as one number, and do not read them."""
    yield MADE
    values = {}
    for part, (least, most, published) in SHARES.items():
        values[f"T_{part}"] = share = lambda t, part=part: 100 * t.shares[part] / t.shares["total"]
        yield from per_matrix(setting, f"T_{part} of T_total", published, share, "%", better=SAME, tolerance=0.2)
        if of := [share(t) for t in measured(setting)]:
            yield line(f"T_{part} of T_total, least", least, min(of), "%", SAME, 0.2)
            yield line(f"T_{part} of T_total, most", most, max(of), "%", SAME, 0.2)
    yield bars("figure_13", "Shares of T_total", "%", values, setting)


def figure_14(setting: Setting) -> Iterator[Found]:
    yield MADE
    names = (IN_ORDER, "constant x", "constant A")
    yield bars("figure_14", "Flop rates", "GF/s", {n: lambda t, n=n: t.speed(n) for n in names}, setting)
    for times in measured(setting):
        if times.matrix == "web-Google":
            share = times.ours["constant A"] / times.ours[IN_ORDER]
            yield line("web-Google: time with A constant over all of it (similar)", 1, share, "", SAME, 0.25)


RANDOM = ((5_000, 0.0244), (10_000, 0.026), (20_000, 0.029), (40_000, 0.036), (65_000, 0.0434))
"""Rows, and the share of places that are taken: 0.61 million entries at first and 183.54 million at last."""
MOST_TAKEN, LEAST_LARGE = 0.05, 15_000_000


def figure_15(setting: Setting) -> Iterator[Found]:
    """Random matrices: rows of up to 5 % of the places, anywhere."""
    yield PEERS
    found = []
    for nrows, share in RANDOM:
        if setting.small:
            nrows //= 10
        if setting.out_of_time() or (setting.small and nrows > 2000):
            yield unmeasured(f"{nrows} rows", None, OUT_OF_TIME if setting.out_of_time() else "left out with --small")
            continue
        least = max(1, round((2 * share - MOST_TAKEN) * nrows))
        lengths = setting.rng.integers(least, round(MOST_TAKEN * nrows) + 1, nrows)
        backend = setting.place.backend
        matrix = matrix_like(f"random, {nrows} rows", lengths, nrows, backend.scalar, backend.index, setting.rng)
        times = times_of(matrix, setting, parts=False)
        found.append(times)
        large = times.nnz > LEAST_LARGE
        yield line(f"{matrix.name}, {times.nnz} entries: EVC-HYB", 19.0 if large else None, times.speed(AFTER), "GF/s")
        for name in times.peers:
            published = {"sellcuda": 13.0}.get(name, 20.0) if large else None
            yield line(f"{matrix.name}: {name}", published, times.speed(name), "GF/s")
        if large:
            ratio = times.speed(AFTER) / max(times.speed(name) for name in times.peers)
            yield line(f"{matrix.name}: EVC-HYB over the fastest peer", 19 / 20, ratio)
    names = [IN_ORDER, AFTER, DEFAULT, *dict.fromkeys(name for t in found for name in t.peers)]
    series = {
        n: (
            [t.nnz for t in found if n in t.ours or n in t.peers],
            [t.speed(n) for t in found if n in t.ours or n in t.peers],
        )
        for n in names
    }
    yield Chart("figure_15", "Random matrices", "lines", "entries", "GF/s", series, "x")


def figure_16(setting: Setting) -> Iterator[Found]:
    """The product of the Bratu problem."""
    yield (
        "The solve of SNES ex14 on 200^3 points is measured by `petsc-gpufmt bench programs`, and on several GPUs by "
        "`benchmarks/bratu.py`: see performance.md of the documents. The paper has a picture without numbers. Here: "
        "the product with its matrix, on one device."
    )
    backend = setting.place.backend
    matrix = make_matrix("7point:20" if setting.small else "7point:200", backend.scalar, backend.index, setting.rng)
    times = times_of(matrix, setting, parts=False)
    for name in (AFTER, WITHIN, DEFAULT, *times.peers):
        yield line(f"{matrix.name}: {name}", None, times.speed(name), "GF/s")
    for name in (WITHIN, DEFAULT):
        yield line(f"{matrix.name}: {name} over the fastest peer", None, times.speedup(name))


PARTS = (
    Part("table-2", "Table 2: STREAM", table_2),
    Part("table-3", "Table 3: matrix statistics", table_3),
    Part("figure-3", "Figure 3: speed-up over cuSPARSE", figure_3),
    Part("figure-4", "Figure 4: loss by reordering", figure_4),
    Part("figure-5", "Figure 5: flop rates", figure_5),
    Part("figure-6", "Figures 6 to 10 and table 4: counters of caches", figures_6_to_10),
    Part("figure-11", "Figure 11: measured and achievable", figure_11),
    Part("figure-12", "Figure 12: the parts together and the whole", figure_12),
    Part("figure-13", "Figure 13: T_A, T_X and T_Y", figure_13),
    Part("figure-14", "Figure 14: flop rates with constants", figure_14),
    Part("figure-15", "Figure 15: random matrices", figure_15),
    Part("figure-16", "Figure 16: the Bratu problem", figure_16),
)

if __name__ == "__main__":
    sys.exit(main(__doc__, PAPER, PARTS))
