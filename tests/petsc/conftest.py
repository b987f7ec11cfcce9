import os
from pathlib import Path

import pytest
from cases import RELEASE
from petsc_config import find_petsc
from programs import ProgramError, Programs, find_sources

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def programs() -> Programs:
    """PETSc's own programs, ready to be run with the plug-in."""
    import petsc_gpufmt

    petsc = find_petsc()
    kind = " ".join(petsc.variables[f"PETSC_{name}"] for name in ("SCALAR", "PRECISION", "INDEX_SIZE"))
    if kind != "real double 32":
        pytest.skip(f"the expected outputs are for PETSc with real double scalars and 32-bit indices, found {kind}")
    if petsc.version[:2] != RELEASE:
        pytest.skip(f"the table of cases follows PETSc {RELEASE[0]}.{RELEASE[1]}, found {petsc.version}")
    try:
        sources = find_sources(petsc)
    except ProgramError as error:
        if os.environ.get("PETSC_SRC"):
            raise
        pytest.skip(str(error))
    package = Path(petsc_gpufmt.__file__).resolve().parent
    return Programs(petsc, sources, petsc_gpufmt.library_path(), package.parent, ROOT / "build/petsc-tests")
