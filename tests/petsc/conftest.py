import os

import pytest
from cases import RELEASE
from petsc_config import find_petsc
from programs import ProgramError, Programs, programs_here


@pytest.fixture(scope="session")
def programs() -> Programs:
    """PETSc's own programs, ready to be run with the plug-in."""
    petsc = find_petsc()
    kind = " ".join(petsc.variables[f"PETSC_{name}"] for name in ("SCALAR", "PRECISION", "INDEX_SIZE"))
    if kind != "real double 32":
        pytest.skip(f"the expected outputs are for PETSc with real double scalars and 32-bit indices, found {kind}")
    if petsc.version[:2] != RELEASE:
        pytest.skip(f"the table of cases follows PETSc {RELEASE[0]}.{RELEASE[1]}, found {petsc.version}")
    try:
        return programs_here()
    except ProgramError as error:
        if os.environ.get("PETSC_SRC"):
            raise
        pytest.skip(str(error))
