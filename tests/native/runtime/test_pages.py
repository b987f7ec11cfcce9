"""Long arrays of results on the host may have large pages."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MANY_ROWS = 1_500_000  # of a row pointer of 6 MB


@pytest.fixture
def managed(options):
    library = native_library.load()
    if not library.GpufmtManagedSimulate(1):
        pytest.skip("there is a device")
    options["matmatmult_via"] = "rmerge"
    yield library
    assert library.GpufmtManagedSimulate(0)


def may_be_large(address):
    """What the system says of the region of memory that an address lies in."""
    flags, inside = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line
    return " hg" in flags


@pytest.mark.skipif(not SETTING.exists(), reason="the system has no large pages")
def test_pages_of_a_long_row_pointer_may_be_large(managed):
    rowptr = np.arange(MANY_ROWS + 1, dtype=PETSc.IntType)
    A = PETSc.Mat().createAIJ(
        (MANY_ROWS, MANY_ROWS), csr=(rowptr, rowptr[:-1], np.ones(MANY_ROWS, PETSc.ScalarType)), comm=PETSc.COMM_SELF
    )
    A.convert("pjds")
    C, found = A.matMult(A), ctypes.c_void_p()
    assert managed.GpufmtManagedCount() == 1
    managed.MatSeqAIJGetCSRAndMemType(ctypes.c_void_p(C.handle), ctypes.byref(found), None, None, None)
    assert may_be_large(found.value + rowptr.nbytes // 2)
    C.destroy()
    A.destroy()
