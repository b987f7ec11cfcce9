"""MatMult of every contender on every matrix, checked and timed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from petsc4py import PETSc

from petsc_gpufmt.bench.contenders import Contender
from petsc_gpufmt.bench.matrices import make_matrix
from petsc_gpufmt.bench.places import Place, random_vector
from petsc_gpufmt.bench.storage import in_products, measure_storage

SEED = 20120917


@dataclasses.dataclass(frozen=True)
class Reference:
    """z = A x and the largest error that rounding can cause in each entry."""

    z: np.ndarray
    bound: np.ndarray

    @classmethod
    def of(cls, matrix: scipy.sparse.csr_matrix, x: np.ndarray) -> Reference:
        """(nnz of the row + 2) eps (|A| |x|), the bound of a sum in any order."""
        magnitude = abs(matrix) @ abs(x)
        return cls(matrix @ x, (np.diff(matrix.indptr) + 2) * np.finfo(matrix.dtype).eps * magnitude)

    def error(self, z: np.ndarray) -> float:
        """Largest error as a share of its bound; infinite if an entry is not finite or an exact zero is missed."""
        difference = abs(z - self.z)
        if not np.isfinite(z).all():
            return float("inf")
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(difference == 0, 0.0, difference / self.bound)
        return float(shares.max(initial=0.0))


def csr_bytes(matrix: scipy.sparse.csr_matrix) -> int:
    """Bytes that a CSR product must move: values, column indices and row pointer once, x and z once."""
    nrows, ncols = matrix.shape
    scalar, index = matrix.data.itemsize, matrix.indptr.itemsize
    return matrix.nnz * (scalar + index) + (nrows + 1) * index + (nrows + ncols) * scalar


def measure_product(
    contender: Contender, matrix: scipy.sparse.csr_matrix, x: np.ndarray, reference: Reference, place: Place
) -> dict[str, Any]:
    """Check one contender and time it. A peer that cannot run is "skipped" with the reason."""
    entry: dict[str, Any] = {"name": contender.name, "place": contender.place, "ours": contender.ours}
    try:
        product = contender.prepare(matrix, x, place)
    except PETSc.Error as e:
        if contender.ours:
            raise
        return entry | {"skipped": f"PETSc error {e.ierr}"}
    try:
        error = reference.error(product.result())
        times = place.timer.times(product.call)
        error = max(error, reference.error(product.result()))
    finally:
        product.close()
    seconds = {f"{name}_seconds": value for name, value in dataclasses.asdict(times).items() if name != "calls"}
    bandwidth = csr_bytes(matrix) / times.median
    return (
        entry
        | seconds
        | {"calls": times.calls, "bytes_per_second": bandwidth, "error_over_bound": error, "correct": error <= 1.0}
    )


def measure_case(
    spec: str,
    contenders: Sequence[Contender],
    variants: Sequence[str],
    places: dict[str, Place],
    show: Callable[[str], None],
) -> dict[str, Any]:
    """All products of one matrix, and what storing it costs."""
    host = places["host"].backend
    rng = np.random.default_rng(SEED)
    name, matrix = make_matrix(spec, host.scalar, host.index, rng)
    x = random_vector(matrix.shape[1], host.scalar, rng)
    reference = Reference.of(matrix, x)
    show(f"\n{name}: {matrix.shape[0]} x {matrix.shape[1]}, {matrix.nnz} nonzeros")
    show(f"{'':34}{'median us':>11}{'back to back':>14}{'host us':>9}{'TB/s':>8}")
    products = []
    for contender in contenders:
        entry = measure_product(contender, matrix, x, reference, places[contender.place])
        products.append(entry)
        show(product_line(entry))
    storage = []
    for place in places.values():
        for variant in variants:
            entry = measure_storage(variant, matrix, place)
            storage.append(entry)
            show(storage_line(entry, products))
    sizes = {
        "name": name,
        "nrows": matrix.shape[0],
        "ncols": matrix.shape[1],
        "nnz": int(matrix.nnz),
        "csr_bytes": csr_bytes(matrix),
    }
    return {"matrix": sizes, "products": products, "storage": storage}


def product_line(entry: dict[str, Any]) -> str:
    label = f"{entry['name']} ({entry['place']})"
    if "skipped" in entry:
        return f"  {label:32}skipped: {entry['skipped']}"
    times = (entry[f"{name}_seconds"] * 1e6 for name in ("median", "back_to_back", "host"))
    numbers = "{:11.2f}{:14.2f}{:9.2f}".format(*times)
    verdict = "" if entry["correct"] else f"  WRONG: error {entry['error_over_bound']:.3g} times its bound"
    return f"  {label:32}{numbers}{entry['bytes_per_second'] / 1e12:8.3f}{verdict}"


def storage_line(entry: dict[str, Any], products: Sequence[dict[str, Any]]) -> str:
    multiples = ", ".join(f"{name} {value:.1f}" for name, value in in_products(entry, products).items())
    stats = entry["stats"]
    sizes = f"fill ratio {stats['fill_ratio']:.4f}, {stats['bytes_held'] / 1e6:.1f} MB"
    return f"  {entry['format']} ({entry['place']}) in products: {multiples}; {entry['summary']}, {sizes}"
