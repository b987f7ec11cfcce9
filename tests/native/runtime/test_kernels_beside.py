"""Kernels that a thread loads beside the application: what plans take of them, whichever way the program ends."""

import sys

import launch
import pytest

TESTS = ("all", "wanted", "errors", "again", "fork", "exit", "exit entering")
PYTHON_PROGRAM = """
import sys, time, petsc4py; petsc4py.init(sys.argv)
from petsc4py import PETSc
import petsc_gpufmt
from petsc_gpufmt.backends import driver
by_plans, load = [], driver.load_module
driver.load_module = lambda image: by_plans.append(image) or load(image)
size = PETSc.Options().getInt("blocks")
A = PETSc.Mat().createAIJ((1200, 1200), bsize=size, nnz=size); A.setFromOptions(); A.setUp()
for i in range(1200):
    for j in range(i - i % size, i - i % size + size):
        A.setValue(i, j, 1.0)
A.assemble()
time.sleep(5.0)  # a machine may be busy
x, y = A.createVecs(); x.set(1.0); A.mult(x, y); assert y.sum() == 1200 * size
print("by plans", len(by_plans))
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    flags = ("-std=gnu11", f"-I{launch.PROGRAMS.parents[2] / 'petsc_gpufmt' / 'native'}")
    return launch.compiled("kernels_beside", tmp_path_factory.mktemp("programs"), *flags)


@pytest.mark.slow  # compiles a program
@pytest.mark.parametrize("name", TESTS)
def test_kernels(kernels, name, tmp_path):
    finished = launch.run([kernels, name], cwd=tmp_path)
    assert finished.status == 0 and finished.output == "passed\n", finished


@pytest.mark.gpu
@pytest.mark.parametrize(("mat_type", "blocks", "early"), [("pjds", 1, 1), ("pjds", 1, 0), ("gpufmt", 3, 1)])
def test_plans_of_a_python_program_find_their_kernels_loaded(mat_type, blocks, early):
    words = ["-mat_type", mat_type, "-blocks", blocks, "-gpufmt_start_early", early]
    runs = [launch.run([sys.executable, "-c", PYTHON_PROGRAM, *words]) for _ in range(2)]  # the first may compile
    assert [run.status for run in runs] == [0, 0], runs
    assert ("by plans 0\n" in runs[1].output) == bool(early), runs[1]
