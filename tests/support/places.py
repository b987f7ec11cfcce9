"""Backends by name: where kernels run in a test."""

from typing import Any

import numpy as np
import pytest
from emulation.backend import EmulatedBackend

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import Backend, CudaBackend, HostBackend
from petsc_gpufmt.backends.plan import Slot

SCALAR, INDEX = native_library.petsc_types()
EVERY_PLACE = ["host", "emulation", pytest.param("cuda", marks=pytest.mark.gpu)]
DEVICE_LIKE = ["device_like", pytest.param("cuda", marks=pytest.mark.gpu)]
"""Where arrays are those of a device."""

PLACES_AND_TYPES = [
    pytest.param(("host", SCALAR, np.int32), id="host"),
    pytest.param(("device_like", np.float64, np.int32), id="emulation"),
    pytest.param(("device_like", np.float32, np.int64), id="emulation, single"),
    pytest.param(("cuda", np.float64, np.int32), marks=pytest.mark.gpu, id="cuda"),
]
"""Arguments of make_backend()."""


def alpha_slots(number: complex, scalar: np.dtype) -> dict[Slot, Any]:
    """The slots of a scalar that is only known at replay."""
    alpha = scalar.type(number)
    return {Slot.ALPHA: alpha.real, Slot.ALPHA_IMAG: alpha.imag} if alpha.itemsize > 8 else {Slot.ALPHA: alpha}


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
