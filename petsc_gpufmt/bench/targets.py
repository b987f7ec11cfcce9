"""The figures that the package is to reach on an H200, and where the results hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from petsc_gpufmt.bench.bratu import matmult_seconds
from petsc_gpufmt.bench.storage import in_products

FORMAT = "pjds"
LARGE = ("7-point 200^3", "27-point 128^3")

Runs = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """A figure of this package and, where there is one, the best of its peers in the same run."""

    value: float
    best_peer: float | None = None


@dataclass(frozen=True)
class Target:
    """What is measured, the largest value allowed, its unit, and how it is found; None where the results lack it."""

    what: str
    limit: float
    unit: str
    find: Callable[[Runs], Measured | None]


def _case(runs: Runs, matrix: str) -> dict[str, Any] | None:
    cases = runs.get("mult", {"cases": []})["cases"]
    return next((case for case in cases if case["matrix"]["name"] == matrix), None)


def _own_and_peers(
    entries: Iterable[dict[str, Any]], is_own: Callable[[dict[str, Any]], bool], seconds: str
) -> Measured | None:
    own, peers = [], []
    for entry in entries:
        (own if is_own(entry) else peers).append(entry[seconds] * 1e6)
    return Measured(min(own), min(peers, default=None)) if own else None


def product_time(matrix: str, seconds: str) -> Callable[[Runs], Measured | None]:
    """A time of MatMult from Python on the device, in us."""

    def find(runs: Runs) -> Measured | None:
        case = _case(runs, matrix)
        if case is None:
            return None
        entries = [p for p in case["products"] if p["place"] == "cuda" and "skipped" not in p]
        own_or_petsc = [p for p in entries if p["name"] == FORMAT or not p["ours"]]
        return _own_and_peers(own_or_petsc, lambda p: p["ours"], seconds)

    return find


def from_c_time(matrix: str, seconds: str) -> Callable[[Runs], Measured | None]:
    """A time of MatMult from C with device vectors, in us."""

    def find(runs: Runs) -> Measured | None:
        cases = runs.get("mult-from-c", {"cases": []})["cases"]
        on_device = [case for case in cases if case["matrix"] == matrix and case["vec_type"] == "seqcuda"]
        return _own_and_peers(on_device, lambda case: case["mat_type"] == f"seqaij{FORMAT}", seconds)

    return find


def storage_cost(name: str) -> Callable[[Runs], Measured | None]:
    """The larger cost of the large matrices, in products."""

    def find(runs: Runs) -> Measured | None:
        cases = [case for matrix in LARGE if (case := _case(runs, matrix))]
        entries = [
            (s, c["products"]) for c in cases for s in c["storage"] if (s["format"], s["place"]) == (FORMAT, "cuda")
        ]
        return Measured(max(in_products(*entry)[name] for entry in entries)) if entries else None

    return find


def bratu_matmult(grid: int) -> Callable[[Runs], Measured | None]:
    """Seconds of MatMult in the Bratu problem on one rank."""

    def find(runs: Runs) -> Measured | None:
        cases = [case for case in runs.get("bratu", {"cases": []})["cases"] if case["grid"] == grid]
        seconds = {
            run["mat_type"]: matmult_seconds(run)["total"]
            for case in cases
            for run in case["runs"]
            if run["vec_type"] == "cuda"
        }
        if FORMAT not in seconds:
            return None
        return Measured(seconds.pop(FORMAT), min(seconds.values(), default=None))

    return find


TARGETS = (
    Target("MatMult, 7-point 200^3", 200.0, "us", product_time("7-point 200^3", "median_seconds")),
    Target("MatMult, 27-point 128^3", 180.0, "us", product_time("27-point 128^3", "median_seconds")),
    Target("MatMult back to back from C, 7-point 50^3", 6.0, "us", from_c_time("7-point 50^3", "back_to_back_seconds")),
    Target(
        "MatMult back to back from C, 27-point 20^3", 5.0, "us", from_c_time("27-point 20^3", "back_to_back_seconds")
    ),
    Target("host time of MatMult from C, 7-point 50^3", 3.0, "us", from_c_time("7-point 50^3", "host_seconds")),
    Target("host time of MatMult from C, 27-point 20^3", 3.0, "us", from_c_time("27-point 20^3", "host_seconds")),
    Target("host time of MatMult from petsc4py, 7-point 50^3", 6.0, "us", product_time("7-point 50^3", "host_seconds")),
    Target(
        "host time of MatMult from petsc4py, 27-point 20^3", 6.0, "us", product_time("27-point 20^3", "host_seconds")
    ),
    Target("format build on the device, worse of the two large matrices", 20.0, "products", storage_cost("build")),
    Target("value refresh without upload, worse of the two large matrices", 2.0, "products", storage_cost("refresh")),
    Target("Bratu 200^3, CG and Jacobi: MatMult total", 0.25, "s", bratu_matmult(200)),
)
