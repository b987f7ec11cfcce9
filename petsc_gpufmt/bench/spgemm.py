"""Sparse products of every contender on every case, checked and timed: squares and pyramids of Galerkin products."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.bench.command import progress
from petsc_gpufmt.bench.galerkin import has_pyramid, pyramid
from petsc_gpufmt.bench.matrices import BenchMatrix, folder_matrices, make_matrix
from petsc_gpufmt.bench.places import Place, synchronised
from petsc_gpufmt.bench.spgemm_contender import PreparedProduct, SpgemmContender
from petsc_gpufmt.bench.spgemm_contenders import PlannedContender, left_rows, merge_calls
from petsc_gpufmt.bench.spgemm_tasks import ProductTask, count_terms, matrix_product, row_lengths
from petsc_gpufmt.errors import GpufmtError, OutOfMemoryError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm.rmerge import DEFAULT_WIDTH

DEFAULT_MATRICES = {
    "cuda": tuple(f"7point:{n}" for n in (10, 20, 40, 70, 100, 140)) + ("27point:64",),
    "host": ("7point:10", "7point:40", "27point:20"),
}
PYRAMID_MATRICES = {"cuda": ("7point:100", "27point:64"), "host": ("7point:40", "27point:20")}

REPEATS = 31
"""Timed calls at most, of which the median counts (the paper takes 11, section 3)."""

SECONDS = 0.3
"""About so long the timed calls of one phase may take."""

MOST_TERMS = 1_000_000_000
"""Squares with more terms are left out: the reference would take minutes, and more memory than many machines have."""

LEVEL_TERMS = 150_000_000
"""The compression level by level is found for matrices with up to so many terms."""


@dataclass(frozen=True)
class ProductCase:
    """What is measured together: one square, or the products of one pyramid.

    `matrix` is the (finest) A; it is `real` if it comes from a file: a matrix of an application. The timed calls of one
    phase of a product may take about `seconds`, SECONDS if None.
    """

    kind: str
    matrix: BenchMatrix
    tasks: Sequence[ProductTask]
    real: bool = False
    seconds: float | None = None


def make_cases(
    matrix: BenchMatrix,
    kinds: Sequence[str],
    rng: np.random.Generator,
    show: Callable[[str], None],
    real: bool = False,
) -> Iterator[ProductCase]:
    """The cases of one matrix: its square if it is square and not too large, a pyramid if its pattern has one."""
    if "square" in kinds and matrix.csr.shape[0] == matrix.csr.shape[1]:
        terms = int(count_terms(matrix.csr, matrix.csr).sum())
        if terms > MOST_TERMS:
            show(f"\n{matrix.name}, A A left out: {terms} terms, at most {MOST_TERMS} are compared with SciPy")
        else:
            yield ProductCase("square", matrix, [matrix_product(matrix.csr, matrix.csr)], real)
    if "galerkin" in kinds and has_pyramid(matrix.csr):
        yield ProductCase("galerkin", matrix, pyramid(matrix, rng), real)


def default_cases(
    place: str,
    folder: Path | None,
    kinds: Sequence[str],
    types: tuple[np.dtype, np.dtype, np.random.Generator],
    show: Callable[[str], None],
) -> Iterator[ProductCase]:
    """Stencils, then the matrices of a folder, if one is named; `types` are those of bench/matrices.py."""
    specs = {"square": DEFAULT_MATRICES[place], "galerkin": PYRAMID_MATRICES[place]}
    for kind in kinds:
        for spec in specs[kind]:
            yield from make_cases(make_matrix(spec, *types), (kind,), types[2], show)
    if folder:
        for matrix in folder_matrices(folder, False, *types):
            yield from make_cases(matrix, kinds, types[2], show, real=True)


def few_repeats(first: float, seconds: float | None) -> int:
    """How often a call that took `first` seconds is timed, within about `seconds`, SECONDS if None."""
    return max(1, min(REPEATS, int((SECONDS if seconds is None else seconds) / max(first, 1e-9))))


def cold_seconds(prepared: PreparedProduct, place: Place) -> float:
    """Seconds until both phases have ended, from no result on."""
    prepared.drop()
    start = time.perf_counter()
    synchronised(place, prepared.cold)
    return time.perf_counter() - start


def first_seconds(prepared: PreparedProduct, place: Place) -> float:
    """Seconds until both phases of new operands have ended."""
    prepared.renew()
    return cold_seconds(prepared, place)


def measure_task(
    contender: SpgemmContender, task: ProductTask, place: Place, seconds: float | None = None
) -> dict[str, Any]:
    """Median seconds of both phases and of the numeric one, extra memory, error; of one product of one contender.

    Of a matrix of PETSc also those of its first product: what that has to send to a device is part of it.
    """
    prepared = contender.prepare(task, place)
    try:
        cold_seconds(prepared, place)  # compiles and starts what is started once
        prepared.drop()
        place.free_memory()
        before = place.pool_bytes()
        first = cold_seconds(prepared, place)
        entry: dict[str, Any] = {}
        if contender.in_pool and place.name == "cuda":
            entry["extra_bytes"] = max(0, place.pool_bytes() - before - task.result_bytes)
        result = prepared.result()
        entry["error_over_bound"] = task.reference.error(result, sort=not contender.sorts)
        entry["cold_seconds"] = statistics.median(
            cold_seconds(prepared, place) for _ in range(few_repeats(first, seconds))
        )
        if prepared.has_numeric:
            numeric = place.timer.elapsed(prepared.numeric, 1)
            entry["numeric_seconds"] = place.timer.single(prepared.numeric, few_repeats(numeric, seconds))
            again = prepared.result()
            entry["same_bits"] = same_matrix(result, again)
            if not entry["same_bits"]:
                error = task.reference.error(again, sort=not contender.sorts)
                entry["error_over_bound"] = max(entry["error_over_bound"], error)
        if text := prepared.describe():
            entry["stored_as"] = text
        if prepared.has_first:
            entry["first_seconds"] = statistics.median(
                first_seconds(prepared, place) for _ in range(few_repeats(first, seconds))
            )
        return entry
    finally:
        prepared.close()
        place.free_memory()


def same_matrix(first: scipy.sparse.csr_matrix, second: scipy.sparse.csr_matrix) -> bool:
    """Whether two results have the same bits."""
    pairs = ((first.indptr, second.indptr), (first.indices, second.indices), (first.data, second.data))
    return all(np.array_equal(one, other) for one, other in pairs)


def measure_contender(contender: SpgemmContender, case: ProductCase, place: Place) -> dict[str, Any]:
    """All products of a case by one contender, their times added up. Who cannot run is "skipped", with the reason.

    Who should have run has "failed" too: True for ours, unless options were forced for which the memory is too small.
    """
    entry: dict[str, Any] = {"name": contender.name, "place": contender.place, "ours": contender.ours}
    parts = []
    for task in case.tasks:
        if reason := contender.obstacle(task):
            return entry | {"skipped": reason}
        try:
            parts.append(measure_task(contender, task, place, case.seconds))
        except Exception as e:  # every library that a peer calls raises its own classes
            refused = contender.forced and isinstance(e, OutOfMemoryError | MemoryError)
            return entry | {"skipped": describe_error(e), "failed": contender.ours and not refused}
    entry |= sums(parts)
    terms = sum(task.terms for task in case.tasks)
    entry["flops_per_second"] = 2 * terms / entry["cold_seconds"]
    entry["correct"] = entry["error_over_bound"] <= 1.0 and not (contender.ours and not entry.get("same_bits", True))
    if isinstance(contender, PlannedContender) and (width := int(contender.options.get("merge_width", 0))):
        entry["iterations"] = max(merge_calls(left_rows(task), width) for task in case.tasks)
    return entry


def describe_error(e: Exception) -> str:
    """One line: PETSc's errors end with the cause, those of others begin with it."""
    lines = str(e).strip().splitlines() or [""]
    return f"PETSc error {e.ierr}: {lines[-1].strip()}" if hasattr(e, "ierr") else f"{type(e).__name__}: {lines[0]}"


def sums(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several products together: times added, the largest memory and error, all the words."""
    rules: dict[str, Callable[[Iterable[Any]], Any]] = {
        **{"cold_seconds": sum, "numeric_seconds": sum, "first_seconds": sum},
        **{"extra_bytes": max, "error_over_bound": max},
        **{"same_bits": all, "stored_as": " | ".join},
    }
    return {key: rule(part[key] for part in parts) for key, rule in rules.items() if all(key in part for part in parts)}


def compression_levels(matrix: scipy.sparse.csr_matrix, place: Place) -> list[float]:
    """Entries of the intermediate matrices over the terms, merging two rows at each level (figure 3.4); A A at last.

    Level k merges up to 2^k rows: the product of a left matrix whose rows are pieces of so many entries of A's rows.
    """
    from petsc_gpufmt.spgemm.product import SparseProduct

    xp, index = place.backend.xp, matrix.indices.dtype
    columns = xp.asarray(matrix.indices)
    nrows, ncols = matrix.shape
    B = CsrPattern(nrows, ncols, xp.asarray(matrix.indptr), columns)
    longest, levels, piece = int(row_lengths(matrix).max(initial=0)), [1.0], 1
    while piece < longest:
        piece *= 2
        rowptr = pieces(matrix.indptr, piece).astype(index)
        left = CsrPattern(rowptr.size - 1, ncols, xp.asarray(rowptr), columns)
        stats = SparseProduct.build(left, B, place.backend).stats
        levels.append(stats.nnz / stats.terms)
    place.free_memory()
    return levels


def pieces(rowptr: np.ndarray, size: int) -> np.ndarray:
    """The row pointer after each row is cut into pieces of `size` entries; the last of a row may be shorter."""
    lengths = np.diff(rowptr)
    count = ceil_div(lengths, size)
    row = np.repeat(np.arange(lengths.size), count)
    inside = np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    return np.append(rowptr[:-1][row] + size * inside, rowptr[-1])


def measure_case(
    case: ProductCase, contenders: Sequence[SpgemmContender], places: dict[str, Place], show: Callable[[str], None]
) -> dict[str, Any]:
    """All contenders on one case, with what tables say of it."""
    start = time.perf_counter()
    A, terms = case.matrix.csr, sum(task.terms for task in case.tasks)
    result_nnz = sum(int(task.reference.C.matrix.nnz) for task in case.tasks)
    sizes = {
        "name": case.matrix.name,
        "nrows": A.shape[0],
        "nnz": int(A.nnz),
        "longest_row": int(row_lengths(A).max(initial=0)),
        "result_nnz": result_nnz,
        "terms": terms,
        "compression": terms / result_nnz if result_nnz else 1.0,
        "levels": len(case.tasks),
        "iterations": max(merge_calls(left_rows(task), DEFAULT_WIDTH) for task in case.tasks),
    }
    what = "A A" if case.kind == "square" else f"P^T A P on {len(case.tasks)} levels"
    show(f"\n{case.matrix.name}, {what}: {terms / 1e6:.1f}M terms, compression {sizes['compression']:.2f}")
    show(f"{'':44}{'cold ms':>10}{'numeric ms':>12}{'GF/s':>8}{'extra MB':>10}")
    products = []
    for number, contender in enumerate(contenders, 1):
        progress(f"{case.matrix.name}: {contender.name} on {contender.place}, {number} of {len(contenders)}")
        products.append(measure_contender(contender, case, places[contender.place]))
        show(product_line(products[-1]))
    measured: dict[str, Any] = {"kind": case.kind, "real": case.real, "matrix": sizes, "products": products}
    place = next((contender.place for contender in contenders if contender.ours), "host")
    if case.kind == "square" and terms <= LEVEL_TERMS:
        with contextlib.suppress(GpufmtError, MemoryError):  # where our products fail, that has been said above
            measured["compression_levels"] = compression_levels(A, places[place])
    measured["measured_in_seconds"] = round(time.perf_counter() - start, 1)
    return measured


def product_line(entry: dict[str, Any]) -> str:
    label = f"{entry['name']} ({entry['place']})"
    if "skipped" in entry:
        return f"  {label:42}skipped: {entry['skipped']}"
    cold = f"{entry['cold_seconds'] * 1e3:10.3f}"
    numeric = f"{entry['numeric_seconds'] * 1e3:12.3f}" if "numeric_seconds" in entry else f"{'-':>12}"
    extra = f"{entry['extra_bytes'] / 1e6:10.1f}" if "extra_bytes" in entry else f"{'-':>10}"
    verdict = "" if entry["correct"] else f"  WRONG: {what_is_wrong(entry)}"
    return f"  {label:42}{cold}{numeric}{entry['flops_per_second'] / 1e9:8.2f}{extra}{verdict}"


def what_is_wrong(entry: dict[str, Any]) -> str:
    if entry["error_over_bound"] > 1.0:
        return f"error {entry['error_over_bound']:.3g} times its bound"
    return "other bits in the next run"


def wrong_products(case: dict[str, Any]) -> list[str]:
    """Our products of a case that failed or came out wrong; peers that do are marked in the tables."""
    return [
        f"{case['matrix']['name']}, {case['kind']}, {p['name']} on {p['place']}: {p.get('skipped') or what_is_wrong(p)}"
        for p in case["products"]
        if p["ours"] and (p.get("failed") or not p.get("correct", True))
    ]
