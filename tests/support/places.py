"""Backends by name: where kernels run in a test."""

from typing import Any

import pytest
from emulation.backend import EmulatedBackend

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import Backend, CudaBackend, HostBackend

SCALAR, INDEX = native_library.petsc_types()
EVERY_PLACE = ["host", "emulation", pytest.param("cuda", marks=pytest.mark.gpu)]


def make_backend(
    request: pytest.FixtureRequest, place: str, scalar: Any = SCALAR, index: Any = INDEX, resident_threads: int = 0
) -> Backend:
    """The backend "host", which has PETSc's indices alone, "cuda", "emulation", or "device_like" emulation.

    `resident_threads` is for emulation.
    """
    if place == "host":
        return HostBackend(scalar, INDEX)
    if place == "cuda":
        return CudaBackend(scalar, index, device=0)
    folder = request.getfixturevalue("emulation_folder")
    return EmulatedBackend(scalar, index, folder, resident_threads, device_like=place == "device_like")
