"""The list of PETSc's own faults that twins leave out."""

from pathlib import Path

from reliability.twin.petsc_faults import FAULTS


def test_every_fault_of_the_list_is_left_out_somewhere():
    files = Path(__file__).with_name("twin").glob("*.py")
    operations = "".join(path.read_text() for path in files if path.stem != "petsc_faults")
    assert [name for name in FAULTS if f'"{name}"' not in operations] == []
