"""Long arrays on the host may have large pages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from petsc4py import PETSc

from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MANY_ROWS = 600_000  # of a vector of 4.8 MB, in single precision of 2.4 MB


def may_be_large(address):
    """What the system says of the region of memory that an address lies in."""
    flags, inside = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("VmFlags:"):
            flags = line
    return " hg" in flags


@pytest.mark.double
@pytest.mark.skipif(not SETTING.exists(), reason="the system has no large pages")
def test_pages_of_a_long_near_null_space_may_be_large(monkeypatch):
    found, kind = [], requests.KINDS[Ask.TENTATIVE]

    def fill(request, *others):
        found.append(may_be_large(request.near_null + MANY_ROWS * 4))
        return kind.fill(request, *others)

    monkeypatch.setitem(requests.KINDS, Ask.TENTATIVE, kind._replace(fill=fill))
    pairs = np.arange(MANY_ROWS, dtype=PETSc.IntType).reshape(-1, 2)
    columns = np.repeat(pairs, 2, axis=0).ravel()  # each row has one neighbour, with which it is an aggregate
    values = np.tile(np.array([2.0, -1.0, -1.0, 2.0], PETSc.ScalarType), len(pairs))
    rowptr = np.arange(0, columns.size + 1, 2, dtype=PETSc.IntType)
    A = PETSc.Mat().createAIJ([MANY_ROWS] * 2, csr=(rowptr, columns, values), comm=PETSc.COMM_SELF)
    A.convert("pjds")
    direction = A.createVecRight()
    direction.set(1.0)
    direction.normalize()  # PETSc looks at that where it has checks
    A.setNearNullSpace(PETSc.NullSpace().create(vectors=[direction], comm=PETSc.COMM_SELF))
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    pc.setOperators(A)
    pc.setType("gamg")
    pc.setGAMGLevels(2)
    with pytest.raises(PETSc.Error, match="that is enough"):
        monkeypatch.setitem(requests.KINDS, Ask.SMOOTHED, requests.KINDS[Ask.SMOOTHED]._replace(fill=enough))
        pc.setUp()
    assert found == [True]


def enough(*_):
    raise RuntimeError("that is enough")
