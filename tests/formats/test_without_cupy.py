"""Formats with default options are built on a device without CuPy: the device is a fake, with emulated kernels."""

import sys

import numpy as np
import pytest
from builders import TELLING_SHAPES, shape
from fake_driver import fake_driver
from format_checks import check
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends.backend import CudaBackend
from petsc_gpufmt.choice.registry import find_format


@pytest.fixture
def backend(emulation_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # to import it is an error
    with fake_driver(emulation_folder), CudaBackend(np.float64, np.int32, device=0).on(0x51) as made:
        yield made


@pytest.mark.parametrize("shape_name", TELLING_SHAPES)
@pytest.mark.parametrize("format_name", ["pjds", "bsr", "evchyb", "gpufmt"])
def test_a_format_keeps_its_promises(format_name, shape_name, backend):
    stored = StoredMatrix(shape(shape_name), find_format(format_name), backend, {})

    check(stored, f"{format_name} of {shape_name}")


@pytest.mark.parametrize("format_name", ["pjds", "bsr", "evchyb", "gpufmt"])
def test_transposes(format_name, backend):
    stored = StoredMatrix(shape("tall"), find_format(format_name), backend, {}, transposed=True)

    check(stored, f"{format_name} of a transpose")
