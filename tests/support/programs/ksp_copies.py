"""CG with Jacobi on a 3-D Laplacian: once warm, a solve copies nothing between host and device but its reductions."""

import ctypes
import sys

import petsc4py

petsc4py.init([*sys.argv, "-ksp_type", "cg", "-pc_type", "jacobi", "-ksp_rtol", "1e-8"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401

da = PETSc.DMDA().create([24, 24, 24], stencil_width=1)
da.setMatType(PETSc.Options().getString("format"))
da.setVecType("cuda")
A = da.createMat()
start, end = A.getOwnershipRange()
ltog = da.getLGMap()
(x0, x1), (y0, y1), (z0, z1) = da.getRanges()
row, col = PETSc.Mat.Stencil(), PETSc.Mat.Stencil()
for k in range(z0, z1):
    for j in range(y0, y1):
        for i in range(x0, x1):
            row.index = (i, j, k)
            for di, dj, dk in ((0, 0, 0), (1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)):
                neighbour = (i + di, j + dj, k + dk)
                if all(0 <= c < 24 for c in neighbour):
                    col.index = neighbour
                    A.setValueStencil(row, col, 6.0 if neighbour == (i, j, k) else -1.0)
A.assemble()

b, x = A.createVecs()
b.set(1.0)
assert "cuda" in x.getType(), x.getType()
ksp = PETSc.KSP().create()
ksp.setOperators(A)
ksp.setFromOptions()
ksp.solve(b, x)

petsc = ctypes.CDLL(f"{petsc4py.get_config()['PETSC_DIR']}/{petsc4py.get_config()['PETSC_ARCH']}/lib/libpetsc.so")
counters = {name: ctypes.c_double.in_dll(petsc, f"petsc_{name}_sz") for name in ("ctog", "gtoc")}
before = {name: counter.value for name, counter in counters.items()}
x.zeroEntries()
ksp.solve(b, x)
copied = {name: counter.value - before[name] for name, counter in counters.items()}
iterations = ksp.getIterationNumber()
assert ksp.getConvergedReason() > 0
assert iterations > 10
# a vector has 13824 / ranks entries of 8 bytes; reductions move a few numbers an iteration
assert copied["ctog"] <= 64 * iterations, copied
assert copied["gtoc"] <= 64 * iterations, copied
PETSc.Sys.Print(f"{iterations} iterations, copied {copied}")
