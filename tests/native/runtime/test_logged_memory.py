"""PETSc's log of memory, which wants events to end as they were nested."""

import sys

import launch

PROGRAM = """
import sys
import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc
import petsc_gpufmt
A = PETSc.Mat().createAIJ((4, 4), nnz=1); A.setType("pjds"); A.setUp(); A.assemble(); A.shift(1.0)
x, y = A.createVecs(); y.set(1)
ksp = PETSc.KSP().create(); ksp.setOperators(A); ksp.setFromOptions(); ksp.solve(y, x)
A.mult(x, y)
print("done")
"""


def test_the_first_plan_within_other_events_is_no_error_of_a_log_of_memory():
    finished = launch.run([sys.executable, "-c", PROGRAM, "-log_view", "-log_view_memory", "-ksp_type", "gmres"])
    assert finished.status == 0 and "done" in finished.output and "GpufmtPlan" in finished.output, finished
