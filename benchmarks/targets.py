"""The figures that the package is to reach on an H200, and where the results hold them."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bratu import galerkin_seconds, matmult_seconds
from figures import MICROSECOND, MILLISECOND, Measured, Runs, Target, all_cases, best_of, device_products
from program_targets import PROGRAM_TARGETS

from petsc_gpufmt.bench.report.spgemm_tables import cases_of, real_squares
from petsc_gpufmt.bench.spgemm_contenders import OURS
from petsc_gpufmt.bench.storage import in_mults
from petsc_gpufmt.bench.summary import compare
from petsc_gpufmt.choice.registry import FORMATS

LARGE_NONZEROS = 40_000_000
"""From so many nonzeros on, the cost of storing a matrix is told in products: a product takes 150 us and more."""

SMALL_TERMS = 20_000_000
"""Of sparse products: with fewer, launches and waits count, not bytes alone."""

FROM_C_MICROSECONDS = 3.5


def mult_time(matrix: str) -> Callable[[Runs], Measured | None]:
    """Median of single products from Python on the device, in us: the best of our formats without options."""

    def find(runs: Runs) -> Measured | None:
        case = next((case for case in all_cases(runs, "mult") if case["matrix"]["name"] == matrix), None)
        entries = device_products(case) if case else []
        return best_of((p for p in entries if ":" not in p["name"]), "name", "median_seconds")

    return find


def slowest_host_time(runs: Runs) -> Measured | None:
    """Until MatMult returns to Python, in us: the worst of our formats on all matrices of `bench mult`."""
    times = [
        (p["host_seconds"] / MICROSECOND, f"{p['name']}, {case['matrix']['name']}")
        for case in all_cases(runs, "mult")
        for p in device_products(case)
        if p["ours"]
    ]
    return Measured(max(times)[0], by=max(times)[1]) if times else None


def from_c_time(matrix: str, seconds: str) -> Callable[[Runs], Measured | None]:
    """A time of MatMult from C with device vectors, in us."""

    def find(runs: Runs) -> Measured | None:
        cases = [case for case in all_cases(runs, "mult-from-c") if case["matrix"] == matrix]
        return best_of((case for case in cases if case["vec_type"] == "seqcuda"), "mat_type", seconds)

    return find


def from_c_small(runs: Runs) -> Measured | None:
    """The slowest back-to-back product from C, in us, of the real matrices whose product itself takes less than 3.5 us.

    The product itself is the median between two events less the same for a 1 x 1 matrix, which is the launch alone.
    """
    run = runs.get("real", {})
    variant, launch = run.get("summary", {}).get("format"), run.get("launch_seconds")
    if not variant or not launch:
        return None
    alone = {
        case["matrix"]["name"]: (p["median_seconds"] - launch) / MICROSECOND
        for case in run["cases"]
        for p in device_products(case)
        if p["name"] == variant
    }
    times = [
        (case["back_to_back_seconds"] / MICROSECOND, case["matrix"])
        for case in all_cases(runs, "mult-from-c")
        if (case["mat_type"], case["vec_type"]) == (f"seqaij{variant}", "seqcuda")
        and alone.get(case["matrix"], FROM_C_MICROSECONDS) < FROM_C_MICROSECONDS
    ]
    return Measured(max(times)[0], by=max(times)[1]) if times else None


def storage_cost(name: str) -> Callable[[Runs], Measured | None]:
    """The largest cost of storing a large matrix on the device in one of our formats without options, in products."""

    def find(runs: Runs) -> Measured | None:
        costs = [
            (in_mults(entry, case["products"])[name], f"{entry['format']}, {case['matrix']['name']}")
            for case in all_cases(runs, "mult", "real-replicated")
            for entry in case["storage"]
            if entry["place"] == "cuda" and ":" not in entry["format"] and case["matrix"]["nnz"] >= LARGE_NONZEROS
        ]
        return Measured(max(costs)[0], by=max(costs)[1]) if costs else None

    return find


def build_cost(matrix: str, stored: str) -> Callable[[Runs], Measured | None]:
    """What building a format of a small matrix on the device costs, in its products."""

    def find(runs: Runs) -> Measured | None:
        costs = [
            in_mults(entry, case["products"])["build"]
            for case in all_cases(runs, "mult")
            if case["matrix"]["name"] == matrix
            for entry in case["storage"]
            if (entry["place"], entry["format"]) == ("cuda", stored)
        ]
        return Measured(costs[0], by=stored) if costs else None

    return find


def copy_share(runs: Runs) -> Measured | None:
    """The least share of the speed of a copy that our BSR reaches, in %, over the block sizes."""
    ceiling = runs.get("bsr", {}).get("copy_bytes_per_second", {}).get("cuda")
    shares = [
        (100 * p["bytes_per_second"] / ceiling, case)
        for case in all_cases(runs, "bsr")
        for p in device_products(case)
        if p["ours"]
    ]
    if not shares:
        return None
    worst, case = min(shares, key=lambda pair: pair[0])
    peers = [100 * p["bytes_per_second"] / ceiling for p in device_products(case) if not p["ours"]]
    return Measured(worst, max(peers, default=None), f"block size {case['matrix']['block_size']}")


def bsr_time(block_size: int) -> Callable[[Runs], Measured | None]:
    """Median of our BSR product with one block size, in us."""

    def find(runs: Runs) -> Measured | None:
        cases = [case for case in all_cases(runs, "bsr") if case["matrix"]["block_size"] == block_size]
        return best_of((p for case in cases for p in device_products(case)), "name", "median_seconds")

    return find


def summary_figure(run: str, key: str, by: str = "format") -> Callable[[Runs], Measured | None]:
    """A figure of the summary of a set of matrices, measured on a device; times in us."""

    def find(runs: Runs) -> Measured | None:
        found = runs.get(run, {"copy_bytes_per_second": {}})
        summary = found.get("summary")
        if not summary or "cuda" not in found["copy_bytes_per_second"]:
            return None
        if key.endswith("seconds"):
            return Measured(summary[key] / MICROSECOND, summary[f"peer_{key}"] / MICROSECOND, summary[by])
        return Measured(summary[key], by=summary[by])

    return find


def bratu_matmult(grid: int) -> Callable[[Runs], Measured | None]:
    """Seconds of MatMult in the Bratu problem on one rank: the best of our types."""

    def find(runs: Runs) -> Measured | None:
        totals = [
            {"ours": run["mat_type"] in FORMATS, "name": run["mat_type"], "seconds": matmult_seconds(run)["total"]}
            for case in all_cases(runs, "bratu")
            for run in case["runs"]
            if case["grid"] == grid and run["vec_type"] == "cuda"
        ]
        return best_of(totals, "name", "seconds", unit=1.0)

    return find


def square_time(matrix: str, seconds: str) -> Callable[[Runs], Measured | None]:
    """A time of A A on the device, in ms: the best of ours without options."""

    def find(runs: Runs) -> Measured | None:
        cases = [c for c in all_cases(runs, "spgemm") if (c["kind"], c["matrix"]["name"]) == ("square", matrix)]
        entries = [p for case in cases for p in device_products(case) if ":" not in p["name"] and seconds in p]
        return best_of(entries, "name", seconds, MILLISECOND)

    return find


def product_ratio(kind: str, *, real: bool, terms: int | None = None) -> Callable[[Runs], Measured | None]:
    """The fastest peer over rmerge, both phases on a device, geometric mean of the cases with fewer than `terms`."""

    def find(runs: Runs) -> Measured | None:
        cases = [case for case in cases_of(runs.get("spgemm", {"cases": []}), kind) if case["real"] == real]
        small = [case for case in cases if terms is None or case["matrix"]["terms"] < terms]
        compared = [comparison for case in small if (comparison := compare(case, OURS, "cold_seconds"))]
        on_device = all(p["place"] == "cuda" for case in small for p in case["products"] if p["name"] == OURS)
        if not compared or not on_device:
            return None
        return Measured(statistics.geometric_mean(c.ratio for c in compared), by=f"{len(compared)} matrices")

    return find


def real_squares_figure(key: str, by: str = "", unit: float = 1.0) -> Callable[[Runs], Measured | None]:
    """A figure of the squares of the real matrices on a device, in units of `unit`."""

    def find(runs: Runs) -> Measured | None:
        found = real_squares(runs.get("spgemm", {"cases": []}))
        if found.get("place") != "cuda" or key not in found:
            return None
        return Measured(found[key] / unit, by=found.get(by, ""))

    return find


def bratu_galerkin(grid: int, phase: str) -> Callable[[Runs], Measured | None]:
    """Milliseconds of one phase of P^T A P in the Bratu problem with GAMG on one rank: the best of our types."""

    def find(runs: Runs) -> Measured | None:
        totals = [
            {"ours": run["mat_type"] in FORMATS, "name": run["mat_type"], "seconds": seconds}
            for case in all_cases(runs, "bratu, GAMG")
            for run in case["runs"]
            if case["grid"] == grid and run["vec_type"] == "cuda" and "skipped" not in run
            if (seconds := galerkin_seconds(run, phase)) is not None
        ]
        return best_of(totals, "name", "seconds", MILLISECOND)

    return find


def bratu_ranks(grid: int) -> Callable[[Runs], Measured | None]:
    """On how many of 1, 2 and 4 ranks the Bratu problem with GAMG converges: the best of our types."""

    def find(runs: Runs) -> Measured | None:
        converged: dict[str, int] = {}
        for name in ("bratu, GAMG", *(f"bratu, GAMG, {ranks} ranks" for ranks in (2, 4))):
            for case in all_cases(runs, name):
                for run in case["runs"]:
                    if case["grid"] == grid and run["vec_type"] == "cuda":
                        converged[run["mat_type"]] = converged.get(run["mat_type"], 0) + ("skipped" not in run)
        ours = [(count, name) for name, count in converged.items() if name in FORMATS]
        peers = [count for name, count in converged.items() if name not in FORMATS]
        return Measured(max(ours)[0], max(peers, default=None), max(ours)[1]) if ours else None

    return find


TARGETS = (
    Target("7-point 200^3", 175.0, "us", mult_time("7-point 200^3")),
    Target("7-point 100^3", 23.0, "us", mult_time("7-point 100^3")),
    Target("7-point 50^3", 5.5, "us", mult_time("7-point 50^3")),
    Target("27-point 128^3", 150.0, "us", mult_time("27-point 128^3")),
    Target("27-point 64^3", 22.0, "us", mult_time("27-point 64^3")),
    Target("27-point 20^3", 4.5, "us", mult_time("27-point 20^3")),
    Target("27-point 60^3 of 3 x 3 blocks", 118.0, "us", mult_time("27-point 60^3, 3 x 3 blocks")),
    Target("BSR, smallest share of a copy's speed over the block sizes", 92.0, "%", copy_share, at_least=True),
    Target("BSR, block size 2", 138.0, "us", bsr_time(2)),
    Target("BSR, block size 8", 121.0, "us", bsr_time(8)),
    Target("BSR, block size 20", 115.0, "us", bsr_time(20)),
    Target("BSR, block size 32", 106.0, "us", bsr_time(32)),
    Target(
        "real matrices, replicated: best peer over ours, geometric mean",
        1.5,
        "times",
        summary_figure("real-replicated", "geometric_mean_ratio"),
        at_least=True,
    ),
    Target(
        "real matrices, replicated: best peer over ours, worst",
        1.1,
        "times",
        summary_figure("real-replicated", "worst_ratio", by="worst_matrix"),
        at_least=True,
    ),
    Target("real matrices: geometric mean", 6.2, "us", summary_figure("real", "geometric_mean_seconds")),
    Target(
        "real matrices: best peer over ours, worst",
        1.0,
        "times",
        summary_figure("real", "worst_ratio", by="worst_matrix"),
        at_least=True,
    ),
    Target("real matrices back to back from C, slowest of those below 3.5 us", FROM_C_MICROSECONDS, "us", from_c_small),
    Target("format build on the device, large matrices, worst", 20.0, "products", storage_cost("build")),
    Target("pjds built on the device, 27-point 20^3", 20.0, "products", build_cost("27-point 20^3", "pjds")),
    Target("pjds built on the device, 7-point 50^3", 20.0, "products", build_cost("7-point 50^3", "pjds")),
    Target("value refresh without upload, large matrices, worst", 2.0, "products", storage_cost("refresh")),
    Target("host time of MatMult from petsc4py, worst", 6.0, "us", slowest_host_time),
    Target("host time of MatMult from C, 7-point 50^3", 3.0, "us", from_c_time("7-point 50^3", "host_seconds")),
    Target("host time of MatMult from C, 27-point 20^3", 3.0, "us", from_c_time("27-point 20^3", "host_seconds")),
    Target("Bratu 200^3, CG and Jacobi: MatMult total", 0.25, "s", bratu_matmult(200)),
    Target("A A, 7-point 100^3, both phases", 0.8, "ms", square_time("7-point 100^3", "cold_seconds")),
    Target("A A, 7-point 100^3, numeric phase", 0.25, "ms", square_time("7-point 100^3", "numeric_seconds")),
    Target("A A, 27-point 64^3, both phases", 5.0, "ms", square_time("27-point 64^3", "cold_seconds")),
    Target("A A, 27-point 64^3, numeric phase", 2.0, "ms", square_time("27-point 64^3", "numeric_seconds")),
    Target(
        "A A through PETSc, 7-point 100^3, first call with the upload",
        5.0,
        "ms",
        square_time("7-point 100^3", "first_seconds"),
    ),
    Target(
        "A A of the real matrices with less than 20 million terms: best peer over ours, geometric mean",
        2.5,
        "times",
        product_ratio("square", real=True, terms=SMALL_TERMS),
        at_least=True,
    ),
    Target(
        "P^T A P down pyramids of stencils: best peer over ours, geometric mean",
        1.5,
        "times",
        product_ratio("galerkin", real=False),
        at_least=True,
    ),
    Target(
        "P^T A P down pyramids of real matrices: best peer over ours, geometric mean",
        1.5,
        "times",
        product_ratio("galerkin", real=True),
        at_least=True,
    ),
    Target(
        "A A of the real matrices: best peer over ours, geometric mean",
        3.0,
        "times",
        real_squares_figure("geometric_mean_ratio"),
        at_least=True,
    ),
    Target(
        "A A of the real matrices: best peer over ours, worst",
        1.0,
        "times",
        real_squares_figure("worst_ratio", by="worst_matrix"),
        at_least=True,
    ),
    Target("A A of the real matrices: not computed or wrong", 0.0, "matrices", real_squares_figure("missing")),
    Target(
        "A A of the real matrices: extra memory over the peer's, largest",
        25.0,
        "%",
        real_squares_figure("worst_share", by="share_matrix", unit=0.01),
    ),
    Target("Bratu 128^3, GAMG: PtAP, symbolic phases", 40.0, "ms", bratu_galerkin(128, "symbolic")),
    Target("Bratu 128^3, GAMG: PtAP, numeric phases", 8.0, "ms", bratu_galerkin(128, "numeric")),
    Target("Bratu 200^3, GAMG: of 1, 2 and 4 ranks, converges on", 3.0, "of 3", bratu_ranks(200), at_least=True),
    *PROGRAM_TARGETS,
)
