"""A set-up of GAMG fails in each of its requests in turn, and then does not; PETSc prints what is left at the end."""

import pathlib
import sys

import petsc4py

petsc4py.init([sys.argv[0], "-malloc_debug", "-malloc_dump", "-pc_gamg_coarse_eq_limit", "20"])
sys.path.append(str(pathlib.Path(__file__).parents[1]))

from multigrid import solver  # noqa: E402
from petsc4py import PETSc  # noqa: E402
from petsc_products import petsc_matrix, stencil_csr  # noqa: E402

from petsc_gpufmt.planning import requests  # noqa: E402
from petsc_gpufmt.planning.abi import Ask  # noqa: E402

until_failure = 0


def failing(fill):
    def fill_or_fail(*arguments):
        global until_failure
        until_failure -= 1
        if until_failure == 0:
            raise ValueError
        return fill(*arguments)

    return fill_or_fail


for ask in (Ask.GRAPH, Ask.AGGREGATES, Ask.TENTATIVE):
    kind = requests.KINDS[ask]
    requests.KINDS[ask] = kind._replace(fill=failing(kind.fill))
A = petsc_matrix(stencil_csr(9), "pjds")
ksp = solver(A)
failures, levels = 0, 0
while not levels:
    until_failure = failures + 1
    try:
        ksp.setUp()
        levels = ksp.getPC().getMGLevels()
    except PETSc.Error:
        failures += 1
print(f"{failures} failures, {levels} levels")
ksp.destroy()
A.destroy()
