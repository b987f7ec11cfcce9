"""Operations one after another without an end, on ranks that print their process ids; started by killed_ranks.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import petsc4py  # noqa: E402
from mpi4py import MPI  # noqa: E402, F401  before PETSc, which would ask for a lower level of threads

petsc4py.init(["killed_ranks", "-device_enable", "none", "-mat_halo_mode", sys.argv[1]])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from reliability.operations import OPERATIONS, OPTIONS, Maker, destroy  # noqa: E402

NAMES = ("create", "mult", "multTranspose", "matMult", "ptap", "COO", "axpy different", "GAMG set-up", "GAMG solve")

for name, value in OPTIONS.items():
    PETSc.Options()[name] = value
os.write(1, f"process {os.getpid()}\n".encode())
PETSc.COMM_WORLD.barrier()
while True:
    for name in NAMES:
        things = OPERATIONS[name].prepare(Maker("aijpjds", PETSc.COMM_WORLD))
        OPERATIONS[name].act(things)
        destroy(things)
    PETSc.garbage_cleanup()
