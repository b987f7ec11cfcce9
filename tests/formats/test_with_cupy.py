"""Formats that are built with CuPy's functions take a device's own arrays to CuPy and back; both are fakes here."""

import sys

import numpy as np
import pytest
from builders import TELLING_SHAPES, shape
from fake_cupy import FakeCupy
from fake_driver import fake_driver
from format_checks import check
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends.backend import CudaBackend
from petsc_gpufmt.backends.device_array import DeviceArray
from petsc_gpufmt.choice.registry import find_format


@pytest.fixture
def backend(emulation_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy())
    with fake_driver(emulation_folder):
        made = CudaBackend(np.float64, np.int32, device=0)
        with made.on(0x51):
            yield made


@pytest.mark.parametrize("shape_name", TELLING_SHAPES)
@pytest.mark.parametrize("format_name", ["jds", "ellpack", "ellpackr"])
def test_a_format_keeps_its_promises(format_name, shape_name, backend):
    stored = StoredMatrix(shape(shape_name), find_format(format_name), backend, {})

    assert isinstance(stored.format.rowptr, DeviceArray)
    check(stored, f"{format_name} of {shape_name}")
