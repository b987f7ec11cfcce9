"""Figures of "Fast conjugate gradients with multiple GPUs", each published number beside ours.

    python cg_cevahir_2009.py --json docs/reproduction/cg_cevahir_2009.json --page    # all, on the GPUs that there are
    python cg_cevahir_2009.py --small --host                                         # seconds, on the host
    python cg_cevahir_2009.py --figure figure-5                                      # CG on 1 to 8 GPUs

Cevahir, Nukada, Matsuoka, ICCS 2009. Its 42 matrices are not named but for seven, which are taken from --matrices or
built (cg_matrices.py); real positive definite matrices of --matrices join them in figure 4. The proposed multiplication
is `jds`, that by CSR with a thread a row `csrscalar`; the basic one of JDS, a thread an entry, is made for this script.
OSKI is no longer kept: PETSc's aij on the host, one thread, stands for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from bench_program import Case, bench_cases, comma_separated, ranks_of
from cg_matrices import REAL, matrices
from measure import GivenMatrix, gflops, median_seconds
from report import OUT_OF_TIME, Chart, Found, Paper, Part, Setting, line, main, unmeasured

from petsc_gpufmt.bench.contenders import HOST_PEERS
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.bench.mult import Reference, csr_bytes
from petsc_gpufmt.bench.places import random_vector
from petsc_gpufmt.bench.timing import Call

PAPER = Paper("cg_cevahir_2009", "Cevahir, Nukada, Matsuoka, Fast conjugate gradients with multiple GPUs, 2009")
SINGLE = np.dtype(np.float32)
PROPOSED, CSR, JDS, OSKI = "proposed (jds)", "CSR (csrscalar)", "basic JDS", "OSKI (aij on the host)"
MEANS = {OSKI: 0.68, CSR: 1.32, JDS: 2.38, PROPOSED: 6.09}
"""Section 4.1: mean GF/s over 42 matrices."""

MOST, BANDWIDTH_SHARE = 11.6, 57
BEST_OF_OURS = ("csrvector", "csradaptive", "pjds", "evchyb")
"""Later formats of the package, for which the paper has no numbers."""

AS_PUBLISHED = {"alignment": 16, "block_threads": 512}
MOST_HOST_ENTRIES = 10_000_000
"""PETSc multiplies larger matrices with one thread for tens of milliseconds."""

CG_MEANS = {1: 5.01, 2: 8.62, 4: 13.85}
SPEEDUPS = {2: 1.73, 4: 2.83}
"""Section 4.2: means over the matrices with 5 million non-zeros and more."""

LEAST_ENTRIES = 5_000_000
SOLVED = ("7point:120", "27point:80", "elasticity:60")
SMALL_SOLVED = ("7point:12",)
MOST_ITERATIONS = 3000
PEER_OF_MIXED = "gpucg"


def mults(matrix: BenchMatrix, setting: Setting) -> dict[str, float]:
    """GF/s in single precision by each format, and by PETSc on the host in its own."""
    found = {}
    with setting.place_for(SINGLE) as place:
        given = GivenMatrix(matrix.csr, place, setting.rng)
        stored = given.store("jds", AS_PUBLISHED)
        found[PROPOSED] = speed(given, given.mult(stored), setting)
        basic = given.call(stored.mult_by_diagonals())
        basic()
        given.check("basic JDS", place.backend.to_host(given.z))
        found[JDS] = speed(given, basic, setting)
        found[CSR] = speed(given, given.mult(given.store("csrscalar", {})), setting)
        for name in BEST_OF_OURS:
            found[name] = speed(given, given.mult(given.store(name)), setting)
        del given, stored, basic
        place.free_memory()
    if matrix.csr.nnz <= MOST_HOST_ENTRIES:
        found[OSKI] = host_speed(matrix, setting)
    return found


def speed(given: GivenMatrix, call: Call, setting: Setting) -> float:
    return gflops(given.nnz, median_seconds(setting, call))


def host_speed(matrix: BenchMatrix, setting: Setting) -> float:
    """GF/s of PETSc's aij on the host, in PETSc's precision."""
    host, (contender,) = setting.places["host"], HOST_PEERS
    own = BenchMatrix(matrix.name, matrix.csr.astype(host.backend.scalar, copy=False))
    x = random_vector(own.csr.shape[1], host.backend.scalar, setting.rng)
    mult = contender.prepare(own, x, host)
    try:
        if Reference.of(own.csr, x).error(mult.result()) > 1:
            raise BenchError(f"{matrix.name}: A x by {contender.name} on the host is wrong")
        return gflops(own.csr.nnz, host.timer.single(mult.call, 3))
    finally:
        mult.close()


def figure_4(setting: Setting) -> Iterator[Found]:
    """GF/s of multiplications, their means, and the bandwidth of the proposed one."""
    yield "Published: a GeForce 8800 GTS, single precision. The ratios say more of the method than GF/s of another GPU."
    yield f"Matrices that the paper names are built where --matrices has none; real ones: {', '.join(REAL)}."
    found: dict[str, dict[str, float]] = {}
    shares, said = [], {}
    bandwidth = setting.place.copy_bandwidth()
    for matrix, real, words in matrices(setting):
        if setting.out_of_time():
            yield unmeasured(f"{matrix.name}: all", None, OUT_OF_TIME)
            continue
        speeds = found[matrix.name] = mults(matrix, setting)
        kind = "real" if real else "built"
        for name in (PROPOSED, JDS, CSR):
            yield line(f"{matrix.name}: {name}", None, speeds[name], "GF/s", remark=kind)
        # values and x take half as many bytes in single precision
        csr, small = matrix.csr, SINGLE.itemsize
        nbytes = csr_bytes(csr) - (csr.data.itemsize - small) * (csr.nnz + sum(csr.shape))
        shares.append(100 * nbytes * speeds[PROPOSED] * 1e9 / (2 * csr.nnz) / bandwidth)
        if words:
            said[matrix.name] = words
    if not found:
        return
    yield from means(found, said)
    yield line("bandwidth of the proposed one, of that of a copy", BANDWIDTH_SHARE, float(np.mean(shares)), "%")
    names = dict.fromkeys(name for speeds in found.values() for name in speeds)
    series = {
        name: ([m for m in found if name in found[m]], [s[name] for s in found.values() if name in s]) for name in names
    }
    yield Chart("figure_4", "Products in single precision", "bars", "", "GF/s", series)


def means(found: dict[str, dict[str, float]], said: dict[str, str]) -> Iterator[Found]:
    """Means over the matrices, ratios of means, and what the text says of single matrices."""
    ours = {name: float(np.mean([s[name] for s in found.values() if name in s])) for name in MEANS if _any(found, name)}
    for name, published in MEANS.items():
        if name in ours:
            yield line(
                f"mean: {name}", published, ours[name], "GF/s", remark=f"{len(found)} matrices, not the paper's 42"
            )
        else:
            yield unmeasured(f"mean: {name}", published, f"all matrices have more than {MOST_HOST_ENTRIES} entries")
    for other in (CSR, JDS, OSKI):
        ratios = [speeds[PROPOSED] / speeds[other] for speeds in found.values() if other in speeds]
        if ratios:
            what = f"proposed over {other}, mean of ratios"
            yield line(
                what, MEANS[PROPOSED] / MEANS[other], float(np.mean(ratios)), "times", remark="published: of means"
            )
    yield line("most GF/s of the proposed one", MOST, max(speeds[PROPOSED] for speeds in found.values()), "GF/s")
    for name, words in said.items():
        ratio = found[name][PROPOSED] / ours[PROPOSED]
        published = (1.0, float("inf")) if words == "one of the fastest" else (0.0, 1.0)
        agrees = published[0] <= ratio <= published[1]
        yield line(
            f"{name}: {words}, as the text says (1: so here)",
            1,
            int(agrees),
            "",
            tolerance=0,
            remark=f"{ratio:.2f} of the mean",
        )
    better = [max(s[name] for name in BEST_OF_OURS) / s[PROPOSED] for s in found.values()]
    yield line("fastest later format over jds, mean", None, float(np.mean(better)), "times")


def _any(found: dict[str, dict[str, float]], name: str) -> bool:
    return any(name in speeds for speeds in found.values())


def iteration_gflops(case: Case) -> float | None:
    """Two flops an entry and ten a row, of CG's dot products and updates, in each iteration."""
    seconds = case["iteration_seconds"]
    return None if seconds is None else (2 * case["nnz"] + 10 * case["rows"]) * 1e-9 / seconds


def figure_5(setting: Setting) -> Iterator[Found]:
    """CG in mixed precision on one GPU and several, against CG in double precision."""
    ranks = ranks_of(setting)
    places = "ranks of the host" if setting.place.name == "host" else "GPUs"
    yield (
        "mixedcg with `-mat_type jds`, in place of the paper's matrices Laplacians and elasticity of more than "
        f"{LEAST_ENTRIES} non-zeros; an iteration is one of the inner solver, in single precision."
    )
    if setting.out_of_time():
        yield unmeasured("all", None, OUT_OF_TIME)
        return
    specs = SMALL_SOLVED if setting.small else SOLVED
    words = [word for spec in specs for word in ("--matrix", spec)]
    words += ["--method", "mixed", "--outer", "refinement", "--outer", "replacement", "--type", "jds", "--pc", "none"]
    words += ["--ranks", comma_separated([n for n in ranks if n != 3]), "--max-it", str(MOST_ITERATIONS)]
    cases = bench_cases(setting, "ksp", *words, "--rtol", "1e-8")
    yield from rates(cases, places)
    yield from speedups(cases, places, setting)
    yield from against_double(cases)


def key(case: Case) -> tuple[str, str]:
    return case["matrix"], case["label"]


def rates(cases: list[Case], places: str) -> Iterator[Found]:
    """GF/s of iterations."""
    mixed = [case for case in cases if case["ksp"] == "mixedcg"]
    for case in cases:
        if (rate := iteration_gflops(case)) is not None:
            yield line(f"{case['matrix']}, {case['label']} on {case['ranks']} {places}", None, rate, "GF/s")
    for n in sorted({case["ranks"] for case in mixed}):
        known = [rate for case in mixed if case["ranks"] == n and (rate := iteration_gflops(case)) is not None]
        if known:
            yield line(f"mixedcg on {n} {places}, mean", CG_MEANS.get(n), float(np.mean(known)), "GF/s")


def speedups(cases: list[Case], places: str, setting: Setting) -> Iterator[Found]:
    """Over one GPU, of each matrix and on average."""
    mixed = [case for case in cases if case["ksp"] == "mixedcg" and case["iteration_seconds"]]
    alone = {key(case): case["iteration_seconds"] for case in mixed if case["ranks"] == 1}
    series: dict[str, tuple[list[int], list[float]]] = {}
    of_ranks: dict[int, list[float]] = {}
    for case in mixed:
        if case["ranks"] > 1 and key(case) in alone:
            ratio = alone[key(case)] / case["iteration_seconds"]
            of_ranks.setdefault(case["ranks"], []).append(ratio)
            x, y = series.setdefault(", ".join(key(case)), ([], []))
            x.append(case["ranks"])
            y.append(ratio)
    for n in dict.fromkeys((*SPEEDUPS, *of_ranks)):
        if n in of_ranks:
            yield line(f"speed-up on {n} {places}, mean", SPEEDUPS.get(n), float(np.mean(of_ranks[n])), "times")
        else:
            why = f"this machine has {max(ranks_of(setting))} {places}"
            yield unmeasured(f"speed-up on {n} GPUs, mean", SPEEDUPS[n], why, "times")
    if series:
        yield Chart("figure_5", "Speed-ups of CG in mixed precision", "lines", places, "speed-up", series)


def against_double(cases: list[Case]) -> Iterator[Found]:
    """Solves to the same residual: mixed precision is not to take more iterations or time than double precision."""
    for outer in dict.fromkeys(case["outer"] for case in cases if case["outer"]):
        times, counts = [], []
        for case in cases:
            if case["outer"] != outer or not case["correct"]:
                continue
            same = (
                c
                for c in cases
                if c["ksp"] == PEER_OF_MIXED and (c["matrix"], c["ranks"]) == (case["matrix"], case["ranks"])
            )
            if (double := next(same, None)) and double["correct"]:
                times.append(double["solve_seconds"] / case["solve_seconds"])
                counts.append(case["iterations"] / double["iterations"])
        if times:
            what = f"mixed precision ({outer}) over double"
            yield line(f"{what}: solves, geometric mean", None, float(np.exp(np.mean(np.log(times)))), "times as fast")
            yield line(f"{what}: iterations, mean", None, float(np.mean(counts)), "times")
        else:
            yield unmeasured(f"mixed precision ({outer}) over double", None, "no solve of both reached the residual")


PARTS = (
    Part("figure-4", "Figure 4: matrix-vector multiplication", figure_4),
    Part("figure-5", "Figure 5: CG on one GPU and several", figure_5),
)

if __name__ == "__main__":
    sys.exit(main(__doc__, PAPER, PARTS))
