"""Where the time of a product goes: of the matrix, of x, and of the rest, by three experiments in EVC-HYB.

Guo, Gropp, Olson 2016, section 3.3: a product that does not load x takes T_A + T_Y, one that does not load the values
T_X + T_Y, one that loads neither T_Y. Columns belong to x. Beside them the bus is timed, which Kreutzer et al. 2012
compare with the product (section II-B): x goes to the device, z comes back.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import BenchMatrix
from petsc_gpufmt.bench.mult import Reference, matrix_sizes
from petsc_gpufmt.bench.places import Place, random_vector, synchronised
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.patterns.csr import CsrPattern

MATRICES = ("7point:100", "7point:200", "27point:64", "27point:128", "27point:40x3")
CONSTANT = {"x": ("x",), "values": ("A",), "both": ("x", "A")}
"""Experiment -> what a number stands for in it; their times are T_A + T_Y, T_X + T_Y, and T_Y."""

TRANSFERS = 9

Case = dict[str, Any]


def measure_parts(matrix: BenchMatrix, place: Place, rng: np.random.Generator) -> Case:
    """Seconds of a product, of the experiments, and of bringing x to the device and z back; all results are checked."""
    csr, backend = matrix.csr, place.backend
    x = random_vector(csr.shape[1], csr.dtype, rng)
    to_device = backend.adopt
    nrows, ncols = csr.shape
    pattern = CsrPattern(nrows, ncols, to_device(csr.indptr), to_device(csr.indices)).validated(backend)
    stored = EvcHyb.build(pattern, backend, dict(EvcHyb.default_options))
    backend.run(stored.plan(Operation.REFRESH), {Slot.VALUES: to_device(csr.data)})
    (z,) = backend.empty((csr.shape[0], backend.scalar))
    vectors = {Slot.X: to_device(x), Slot.Z: z}
    launches = {
        "whole": stored.mult(1.0, 0.0),
        **{name: stored.mult_with_constant(*operands) for name, operands in CONSTANT.items()},
    }
    errors = {name: 0.0 for name in launches}
    for name, expected in expected_results(csr, x).items():
        backend.run(launches[name], vectors)
        errors[name] = expected.error(backend.to_host(z))
    backend.run(launches["both"], vectors)
    counted = (backend.to_host(z) >= np.diff(csr.indptr)).all()  # stored entries, padding among them
    timed = {name: place.timer.times(partial(backend.run, of_name, vectors)) for name, of_name in launches.items()}
    stats = stored.stats()
    return {
        "matrix": matrix_sizes(matrix),
        "place": place.name,
        "stored_as": stored.summary(),
        "nstored": stats.nstored,
        "bytes_per_mult": stats.bytes_per_mult,
        "seconds": {name: times.back_to_back for name, times in timed.items()},
        "median_seconds": {name: times.median for name, times in timed.items()},
        "x_to_device_seconds": place.timer.elapsed(lambda: synchronised(place, lambda: to_device(x)), TRANSFERS),
        "z_to_host_seconds": place.timer.elapsed(lambda: backend.to_host(z), TRANSFERS),
        "correct": bool(counted) and max(errors.values()) <= 1.0,
    }


def expected_results(csr: scipy.sparse.csr_matrix, x: np.ndarray) -> dict[str, Reference]:
    """What a product gives, and each experiment that reads x or values, with the error that rounding may cause."""
    pattern = scipy.sparse.csr_matrix((np.ones_like(csr.data), csr.indices, csr.indptr), csr.shape)
    return {
        "whole": Reference.of(csr, x),
        "x": Reference.of(csr, np.ones_like(x)),
        "values": Reference.of(pattern, x),
    }


def parts(case: Case) -> dict[str, float]:
    """T_A, T_X and T_Y of a case, in seconds; a difference that is lost in noise is 0."""
    seconds = case["seconds"]
    rest = seconds["both"]
    return {"T_A": max(0.0, seconds["x"] - rest), "T_X": max(0.0, seconds["values"] - rest), "T_Y": rest}


def sum_over_whole(case: Case) -> float:
    """T_total / T_SpMV of figure 12: above 1 by what the parts overlap in the whole product."""
    return sum(parts(case).values()) / case["seconds"]["whole"]


def case_line(case: Case) -> str:
    """For the terminal."""
    us = ", ".join(f"{name} {seconds * 1e6:.2f} us" for name, seconds in parts(case).items())
    transfers = (case["x_to_device_seconds"] + case["z_to_host_seconds"]) * 1e6
    return (
        f"{case['matrix']['name']}: {case['seconds']['whole'] * 1e6:.2f} us, {us}, "
        f"their sum {sum_over_whole(case):.2f} times as long; x to the device and z back {transfers:.0f} us"
    )


def wrong_cases(case: Case) -> list[str]:
    return [] if case["correct"] else [f"{case['matrix']['name']}: entries of a result are wrong"]


def check_device(reason: str | None) -> None:
    """BenchError where there is no device, whose kernels these are."""
    if reason:
        raise BenchError(f"bench parts times kernels of a GPU: {reason}")
