"""What PETSc's log says about copies between host and device."""

import ctypes

import petsc4py


def copied_bytes(direction: str) -> float:
    """Bytes that were counted so far: "ctog" to the device, "gtoc" from it."""
    config = petsc4py.get_config()
    library = ctypes.CDLL(f"{config['PETSC_DIR']}/{config['PETSC_ARCH']}/lib/libpetsc.so")
    return ctypes.c_double.in_dll(library, f"petsc_{direction}_sz").value
