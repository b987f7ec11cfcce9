"""Rows with equal columns are looked for on the host alone, as by PETSc's own types."""

from __future__ import annotations

import pytest
from petsc4py import PETSc

from petsc_gpufmt.bench.places import gpu_reason


def what_a_view_says(path):
    """Of a dense matrix, whose rows all have the same columns."""
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes(6)
    A.setType("pjds")
    A.setPreallocationNNZ(6)
    A.setValues(range(6), range(6), [1.0] * 36)
    A.assemble()
    viewer = PETSc.Viewer().createASCII(str(path), comm=PETSc.COMM_SELF)
    viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO_DETAIL)
    A.view(viewer)
    viewer.destroy()
    return path.read_text()


@pytest.mark.skipif(gpu_reason() is None, reason="there is a device")
def test_on_the_host_inodes_are_those_of_aij(tmp_path):
    assert "using I-node routines: found 2 nodes" in what_a_view_says(tmp_path / "view")


@pytest.mark.gpu
def test_on_a_device_nobody_looks_for_inodes(tmp_path):
    assert "not using I-node routines" in what_a_view_says(tmp_path / "view")


@pytest.mark.gpu
def test_a_user_may_want_inodes_on_a_device(tmp_path, options):
    options["mat_no_inode"] = 0
    assert "using I-node routines: found 2 nodes" in what_a_view_says(tmp_path / "view")
