"""Products of the RMerge paper by everyone: squares, first products of the splitting, whole splittings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from report import OUT_OF_TIME
from rmerge_matrices import TABLE_1_1, TableRow, make
from rmerge_splitting import splitting
from time_share import share_is_over

from petsc_gpufmt.bench.cusparse_spgemm import CusparseSpgemm
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.places import Place
from petsc_gpufmt.bench.spgemm import ProductCase, measure_case, measure_task
from petsc_gpufmt.bench.spgemm_contender import SpgemmContender
from petsc_gpufmt.bench.spgemm_contenders import (
    OURS,
    CupySpgemm,
    PetscSpgemm,
    ScipySpgemm,
    merge_widths,
    planned_contender,
)
from petsc_gpufmt.bench.spgemm_tasks import ProductTask, matrix_product

if TYPE_CHECKING:
    from report import Setting

WIDTH = 16
PUBLISHED = f"{OURS}:accumulator=merge,merge_width={WIDTH}"
"""RMerge as the paper has it: rows are merged, 16 at a time."""

HASH = f"{OURS}:accumulator=hash"
STANDS_FOR = {
    "cuda": {"MKL": "SciPy", "Cusp": "CuPy", "cuSPARSE": "cuSPARSE ALG1", "Liu and Vinter": HASH},
    "host": {"MKL": "SciPy", "Cusp": "aij", "cuSPARSE": "aij", "Liu and Vinter": HASH},
}
"""Peer of the paper -> who is measured in its place."""

SPLITTING_PEERS = {"cuda": ("CuPy", "cuSPARSE ALG1"), "host": ("SciPy", "aij")}
MOST_SCIPY_TERMS = 30_000_000
"""SciPy computes with one thread: larger products take seconds."""

SECONDS, SMALL_SECONDS = 0.1, 0.001
"""About so long the timed calls of one phase take."""

SMALL_MATRICES = ("cantilever", "epidemiology", "circuit")
"""With --small only these."""

MOST_SPLIT_TERMS = 160_000_000
"""The parts of larger products are not measured."""


@dataclass(frozen=True)
class Square:
    """What was measured of A A: sizes, products by contenders, entries of intermediates; see bench/spgemm.py."""

    row: TableRow
    real: bool
    sizes: dict[str, Any]
    seconds: dict[str, float]
    levels: list[float]

    def gflops(self, name: str) -> float:
        return 2e-9 * self.sizes["terms"] / self.seconds[name]


@dataclass(frozen=True)
class FirstProduct:
    """G_1 A: its sizes, seconds of both phases and of the numeric one by RMerge, seconds by others."""

    terms: int
    compression: float
    seconds: float
    numeric: float
    peers: dict[str, float]


def contenders(setting: Setting, terms: int, widths: bool = True) -> list[SpgemmContender]:
    """Ours by our choice, by hash and by the widths of merging; peers."""
    place = setting.place.name
    variants = [OURS, HASH, *(merge_widths() if widths else [PUBLISHED])]
    scipy_too = [ScipySpgemm("SciPy", "host")] if terms <= MOST_SCIPY_TERMS else []
    return [*(planned_contender(variant, place) for variant in variants), *others(place), *scipy_too]


def others(place: str) -> list[SpgemmContender]:
    if place == "host":
        return [PetscSpgemm("aij", "host")]
    return [CupySpgemm("CuPy", place), CusparseSpgemm("cuSPARSE ALG1", place, algorithm="ALG1")]


def seconds_each(setting: Setting) -> float:
    return SMALL_SECONDS if setting.small else SECONDS


def seconds_of(case: dict[str, Any]) -> dict[str, float]:
    """Contender -> seconds of those that computed the right product; BenchError if one of ours did not."""
    for product in case["products"]:
        if product["ours"] and (product.get("failed") or not product.get("correct", True)):
            raise BenchError(f"{case['matrix']['name']}: {product['name']} is wrong: {product.get('skipped', '')}")
    return {p["name"]: p["cold_seconds"] for p in case["products"] if "skipped" not in p and p["correct"]}


def measured_case(
    kind: str, matrix: Any, tasks: Sequence[ProductTask], setting: Setting, widths: bool
) -> dict[str, Any]:
    terms = sum(task.terms for task in tasks)
    case = ProductCase(kind, matrix, tasks, seconds=seconds_each(setting))
    return measure_case(case, contenders(setting, terms, widths), setting.places, lambda text: None)


def squares(setting: Setting) -> list[Square | tuple[TableRow, str]]:
    """Of all lines of table 1.1, or why there is none; measured at the first call, the smallest workload first."""
    if "squares" not in setting.kept:
        found: dict[str, Square | tuple[TableRow, str]] = {}
        rows = [row for row in TABLE_1_1 if not setting.small or row.name in SMALL_MATRICES]
        for row in sorted(rows, key=lambda row: row.workload):
            if share_is_over(setting, "squares"):
                found[row.name] = (row, OUT_OF_TIME)
                continue
            matrix, real = make(row, setting)
            task = matrix_product(matrix.csr, matrix.csr)
            case = measured_case("square", matrix, [task], setting, widths=True)
            found[row.name] = Square(row, real, case["matrix"], seconds_of(case), case.get("compression_levels", []))
            if task.terms <= MOST_SPLIT_TERMS:
                setting.kept[f"first {row.name}"] = first_product(task, setting)
                setting.kept[f"splitting {row.name}"] = splitting_seconds(task, setting)
        setting.kept["squares"] = [found[row.name] for row in rows]
    return setting.kept["squares"]


def measured_squares(setting: Setting) -> list[Square]:
    return [square for square in squares(setting) if isinstance(square, Square)]


def split_tasks(task: ProductTask) -> list[ProductTask]:
    """The products of the splitting from right to left: G_1 B, G_2 (G_1 B), ..., A_k (...)."""
    A, right = task.operands
    tasks = []
    for part in splitting(A, WIDTH):
        tasks.append(matrix_product(part, right))
        right = tasks[-1].reference.C.matrix
        right.indptr, right.indices = right.indptr.astype(A.indptr.dtype), right.indices.astype(A.indices.dtype)
    return tasks


def first_product(task: ProductTask, setting: Setting) -> FirstProduct:
    A, B = task.operands
    first = matrix_product(next(splitting(A, WIDTH)), B)
    found = measure_task(planned_contender(PUBLISHED, setting.place.name), first, setting.place, seconds_each(setting))
    peers = dict(_peer_seconds([first], setting))
    compression = first.terms / max(1, first.reference.C.matrix.nnz)
    return FirstProduct(first.terms, compression, found["cold_seconds"], found["numeric_seconds"], peers)


def splitting_seconds(task: ProductTask, setting: Setting) -> dict[str, float]:
    """Peer -> seconds of all products of the splitting; none where a single one suffices."""
    tasks = split_tasks(task)
    return dict(_peer_seconds(tasks, setting)) if len(tasks) > 1 else {}


def _peer_seconds(tasks: Sequence[ProductTask], setting: Setting) -> Iterator[tuple[str, float]]:
    """Each peer that computes all of them, and its seconds together."""
    terms = sum(task.terms for task in tasks)
    peers = others(setting.place.name) + ([ScipySpgemm("SciPy", "host")] if terms <= MOST_SCIPY_TERMS else [])
    for peer in peers:
        if any(peer.obstacle(task) for task in tasks):
            continue
        place: Place = setting.places[peer.place]
        try:
            found = [measure_task(peer, task, place, seconds_each(setting)) for task in tasks]
        except Exception:  # every library that a peer calls raises its own classes
            continue
        if all(entry["error_over_bound"] <= 1 for entry in found):
            yield peer.name, sum(entry["cold_seconds"] for entry in found)
