"""The list of PETSc's own faults that twins leave out."""

import sys
from pathlib import Path

import launch
import pytest
from petsc4py import PETSc

from reliability.petsc_fault_child import SHOWN
from reliability.twin.petsc_faults import FAULTS

VERSION = (3, 26)  # whose lines the list has


def test_every_fault_of_the_list_is_left_out_somewhere():
    files = Path(__file__).with_name("twin").glob("*.py")
    operations = "".join(path.read_text() for path in files if path.stem != "petsc_faults")
    assert [name for name in FAULTS if f'"{name}"' not in operations] == []


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.skipif(PETSc.Sys.getVersion()[:2] != VERSION, reason="the list is of another release of PETSc")
@pytest.mark.parametrize("name", SHOWN)
def test_type_aij_alone_has_the_fault(name):
    """If not, PETSc has mended it, and twins need not leave it out."""
    ranks, _ = SHOWN[name]
    finished = launch.run([sys.executable, Path(__file__).with_name("petsc_fault_child.py"), name], ranks=ranks)
    assert name in FAULTS
    assert "right" not in finished.output.splitlines(), finished
