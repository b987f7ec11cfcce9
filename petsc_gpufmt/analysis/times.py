"""Seconds of a product in each format on a GPU, and of storing it: predicted, by what was measured on an H200.

A product of a format that `-mat_type gpufmt` chooses among takes what its model says (`choice/model.py`), with the
bytes that were counted and the constants of the GPU (`scaling/machines.json`). For the others there is a bound: a
launch, or these bytes.
"""

from __future__ import annotations

import math

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.choice.model import ACCESS_SECONDS, EFFICIENCY, LAUNCH_SECONDS, rank, shortest_mult
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.scaling.machine import Gpu, find_gpu

# MatMult of PETSc's aijcusparse, the faster of cuSPARSE's two algorithms, calls in a row: seconds of a call, bytes of
# CSR in a second, and seconds of a row. Fitted to the 61 matrices of `mult`, `real` and `real-replicated` in
# benchmarks/results/h200.json; half of them are within 7 %, nine tenths within 19 %, all within 28 %.
CSR_CALL, CSR_BANDWIDTH, CSR_ROW = 5.7e-6, 3.23e12, 5.9e-12

# A column, the row and where it begins, and x: reads that wait for each other in formats without a model.
DEPENDENT_READS = 3

# Building a format on the device: seconds, and seconds of an entry. Read from "storage" in the same file, and rather
# too much by now: some of what was measured there was done by CuPy, and kernels do it since.
BUILD = {
    "pjds": (0.4e-3, 0.015e-9),
    "evchyb": (1.2e-3, 0.17e-9),
    "bsr": (1.0e-3, 0.017e-9),
    "csradaptive": (0.6e-3, 0.011e-9),
    "csrscalar": (0.3e-3, 0.002e-9),
    "csrvector": (0.3e-3, 0.002e-9),
    "jds": (0.8e-3, 0.015e-9),
    "ellpack": (0.3e-3, 0.002e-9),
    "ellpackr": (0.3e-3, 0.002e-9),
}
# Filling in values, which are read and written once: 1.4 to 2.3 products there.
REFRESH_CALL = 1.0e-5


def modelled_seconds(name: str, nbytes: int, profile: Profile, device: Backend, gpu: Gpu) -> float | None:
    """Of a product that moves so many bytes, as they were counted; None for a format that the model does not know."""
    speed = gpu.bandwidth_of(nbytes, profile.nrows)
    for candidate in rank(profile, device, speed):
        if candidate.name == name:  # whose bytes the model has from a sample, or from the lengths of rows alone
            seconds = candidate.seconds + (nbytes - candidate.nbytes) / (speed * EFFICIENCY[name])
            return max(shortest_mult(name), seconds)
    return None


def least_seconds(nbytes: int, gpu: Gpu) -> float:
    """A bound for a product that moves so many bytes: reading them, or a launch with reads that wait for each other."""
    shortest = LAUNCH_SECONDS + DEPENDENT_READS * ACCESS_SECONDS
    return max(shortest, nbytes / gpu.bandwidth_of(nbytes, 0)) if nbytes else shortest


def petsc_csr_seconds(nbytes: int, nrows: int, gpu: Gpu) -> float:
    """Of a product of PETSc's aijcusparse that moves so many bytes."""
    slower = find_gpu("h200").bandwidth / gpu.bandwidth
    return CSR_CALL + slower * (nbytes / CSR_BANDWIDTH + nrows * CSR_ROW)


def storing_seconds(name: str, nnz: int, nstored: int, scalar_bytes: int, gpu: Gpu) -> float:
    """Of building a format on the device from CSR that is there, and of filling in its values."""
    fixed, each = BUILD[name]
    slower = find_gpu("h200").bandwidth / gpu.bandwidth
    return fixed + slower * each * nnz + REFRESH_CALL + (nnz + nstored) * scalar_bytes / gpu.bandwidth


def share_of_limit(nbytes: int, seconds: float, gpu: Gpu) -> float:
    """The time that a copy takes for so many bytes, over `seconds`."""
    return nbytes / gpu.copy / seconds


def pays_after(storing: float, seconds: float, of_csr: float) -> int | None:
    """Products after which storing has paid off against products in CSR; None if they are no faster."""
    return math.ceil(storing / (of_csr - seconds)) if seconds < of_csr else None
