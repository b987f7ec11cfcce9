"""MatMult of every contender on every matrix, checked and timed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.bench.command import progress
from petsc_gpufmt.bench.contenders import Contender
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.bench.places import Place, random_vector
from petsc_gpufmt.bench.storage import in_mults, measure_storage


@dataclasses.dataclass(frozen=True)
class Reference:
    """z = A x and the largest error that rounding can cause in each entry."""

    z: np.ndarray
    bound: np.ndarray

    @classmethod
    def of(cls, matrix: scipy.sparse.csr_matrix, x: np.ndarray) -> Reference:
        """(nnz of the row + 2) eps (|A| |x|), the bound of a sum in any order."""
        magnitude = scipy.sparse.csr_matrix((abs(matrix.data), matrix.indices, matrix.indptr), matrix.shape) @ abs(x)
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
    """Bytes that MatMult in CSR must move: values, column indices and row pointer once, x and z once."""
    nrows, ncols = matrix.shape
    scalar, index = matrix.data.itemsize, matrix.indptr.itemsize
    return matrix.nnz * (scalar + index) + (nrows + 1) * index + (nrows + ncols) * scalar


def measure_mult(
    contender: Contender, matrix: BenchMatrix, x: np.ndarray, reference: Reference, place: Place, mult_bytes: int
) -> dict[str, Any]:
    """Check one contender and time it; bandwidth is `mult_bytes` over the median. A peer may be "skipped"."""
    entry: dict[str, Any] = {"name": contender.name, "place": contender.place, "ours": contender.ours}
    reason = contender.obstacle(matrix)
    if reason:
        return entry | {"skipped": reason}
    try:
        mult = contender.prepare(matrix, x, place)
    except BenchError as e:
        if contender.ours:
            raise BenchError(f"{contender.name} of {matrix.name} on {contender.place}: {e}") from e
        return entry | {"skipped": str(e)}
    try:
        error = reference.error(mult.result())
        times = place.timer.times(mult.call)
        error = max(error, reference.error(mult.result()))
        stored = mult.describe()
    finally:
        mult.close()
        place.free_memory()
    seconds = {f"{name}_seconds": value for name, value in dataclasses.asdict(times).items() if name != "calls"}
    return entry | {
        **seconds,
        "calls": times.calls,
        "bytes_per_second": mult_bytes / times.median,
        "error_over_bound": error,
        "correct": error <= 1.0,
        **({"stored_as": stored} if stored else {}),
    }


def measure_mults(
    matrix: BenchMatrix,
    contenders: Sequence[Contender],
    places: dict[str, Place],
    mult_bytes: int,
    rng: np.random.Generator,
    show: Callable[[str], None],
) -> list[dict[str, Any]]:
    """MatMult of one matrix with one random x, by all contenders."""
    x = random_vector(matrix.csr.shape[1], matrix.csr.dtype, rng)
    reference = Reference.of(matrix.csr, x)
    show(f"\n{matrix.name}: {matrix.csr.shape[0]} x {matrix.csr.shape[1]}, {matrix.csr.nnz} nonzeros")
    show(f"{'':34}{'median us':>11}{'back to back':>14}{'host us':>9}{'TB/s':>8}{'least-largest us':>18}")
    mults = []
    for number, contender in enumerate(contenders, 1):
        progress(f"{matrix.name}: {contender.name} on {contender.place}, {number} of {len(contenders)}")
        entry = measure_mult(contender, matrix, x, reference, places[contender.place], mult_bytes)
        mults.append(entry)
        show(mult_line(entry))
    return mults


def measure_case(
    matrix: BenchMatrix,
    contenders: Sequence[Contender],
    places: dict[str, Place],
    rng: np.random.Generator,
    show: Callable[[str], None],
) -> dict[str, Any]:
    """MatMult of one matrix by all contenders, and what storing it in our formats costs."""

    def measure() -> dict[str, Any]:
        mults = measure_mults(matrix, contenders, places, csr_bytes(matrix.csr), rng, show)
        storage = []
        for entry in mults:
            if entry["ours"] and "skipped" not in entry:
                place = places[entry["place"]]
                cost = measure_storage(entry["name"], matrix, place)
                place.free_memory()
                storage.append(cost)
                show(storage_line(cost, mults))
        return {"products": mults, "storage": storage}

    return timed_case(matrix, measure, show)


def timed_case(
    matrix: BenchMatrix, measure: Callable[[], dict[str, Any]], show: Callable[[str], None]
) -> dict[str, Any]:
    """What `measure` finds, between the sizes of its matrix and how long it took."""
    start = time.perf_counter()
    found = measure()
    seconds = round(time.perf_counter() - start, 1)
    show(f"  {seconds} s")
    return {"matrix": matrix_sizes(matrix), **found, "measured_in_seconds": seconds}


def matrix_sizes(matrix: BenchMatrix) -> dict[str, Any]:
    """What tables say of a matrix."""
    nrows, ncols = matrix.csr.shape
    return {
        "name": matrix.name,
        "nrows": nrows,
        "ncols": ncols,
        "nnz": int(matrix.csr.nnz),
        "longest_row": int(np.diff(matrix.csr.indptr).max(initial=0)),
        "block_size": matrix.block_size,
        "csr_bytes": csr_bytes(matrix.csr),
    }


def wrong_mults(case: dict[str, Any]) -> list[str]:
    """The mults of a case whose error is more than rounding."""
    return [
        f"{case['matrix']['name']}, {p['name']} on {p['place']}" for p in case["products"] if not p.get("correct", True)
    ]


def mult_line(entry: dict[str, Any]) -> str:
    label = f"{entry['name']} ({entry['place']})"
    if "skipped" in entry:
        return f"  {label:32}skipped: {entry['skipped']}"
    times = (entry[f"{name}_seconds"] * 1e6 for name in ("median", "back_to_back", "host"))
    spread = "{:.2f}-{:.2f}".format(*(entry[f"{name}_seconds"] * 1e6 for name in ("least", "largest")))
    numbers = "{:11.2f}{:14.2f}{:9.2f}".format(*times)
    verdict = "" if entry["correct"] else f"  WRONG: error {entry['error_over_bound']:.3g} times its bound"
    stored = f"  {entry['stored_as']}" if "stored_as" in entry else ""
    return f"  {label:32}{numbers}{entry['bytes_per_second'] / 1e12:8.3f}{spread:>18}{verdict}{stored}"


def storage_line(entry: dict[str, Any], mults: Sequence[dict[str, Any]]) -> str:
    multiples = ", ".join(f"{name} {value:.1f}" for name, value in in_mults(entry, mults).items())
    stats = entry["stats"]
    sizes = f"fill ratio {stats['fill_ratio']:.4f}, {stats['bytes_held'] / 1e6:.1f} MB"
    return f"  {entry['format']} ({entry['place']}) in mults: {multiples}; {entry['summary']}, {sizes}"
