"""Programs end quietly, whichever of Python, PETSc, CuPy and their matrices goes first."""

import sys

import launch
import pytest

PROGRAM = """
{before}
import atexit, sys, petsc4py
petsc4py.init(["program", "-options_left", "no", *{options}])
from petsc4py import PETSc
import petsc_gpufmt
A = PETSc.Mat().createAIJ((50, 50), nnz=1)
for i in range(50): A.setValue(i, i, 2.0)
A.assemble(); A.convert("pjds")
x, z = A.createVecs(); x.set(1.0); A.mult(x, z)
assert abs(z.norm() - (50 * 4) ** 0.5) < 1e-5
assert z.getType() == "{vector_type}", z.getType()
{after}
"""
# exit handlers run in reverse order: this one after that of the package
LATE = "import atexit; late = []; atexit.register(lambda: late[0]{call}())"
ENDINGS = {
    "matrix leaked": ("", ""),
    "PETSc ends first": ("", "atexit.register(PETSc._finalize)"),
    "matrix destroyed by an exit handler": ("", "atexit.register(A.destroy)"),
    "matrix destroyed after Python has let go": (LATE.format(call=".destroy"), "late.append(A)"),
    "result of a product leaked": ("", "C = A.matMult(A); C.mult(x, z)"),
    "result of a product leaked, PETSc ends first": (
        "",
        "C = A.matMult(A); from petsc_gpufmt import planner\n"
        "atexit.register(lambda: planner.owned_tokens() and print('not given back'))\n"
        "atexit.register(PETSc._finalize)",
    ),
    "result of a product destroyed after Python has let go": (
        LATE.format(call=".destroy"),
        "late.append(A.matMult(A))",
    ),
}


def end(before, after, options, vector_type):
    program = PROGRAM.format(before=before, after=after, options=options, vector_type=vector_type)
    finished = launch.run([sys.executable, "-c", program])
    assert finished.status == 0, str(finished)
    assert not finished.output.strip(), str(finished)


@pytest.mark.parametrize(
    "ending",
    [
        "matrix leaked",
        *(pytest.param(ending, marks=pytest.mark.slow) for ending in ENDINGS if ending != "matrix leaked"),
    ],
)
def test_on_the_host(ending):
    end(*ENDINGS[ending], ["-device_enable", "none"], "seq")


@pytest.mark.gpu
@pytest.mark.parametrize("ending", ENDINGS)
def test_on_a_device(ending):
    end(*ENDINGS[ending], [], "seqcuda")


@pytest.mark.gpu
def test_on_a_device_with_memory_of_cupy_still_held():
    end("import cupy; keep = cupy.zeros(1000)", "", [], "seqcuda")


def test_a_product_after_python_has_let_go_is_an_error_and_no_crash():
    after = """
def multiply_late():
    try:
        A.mult(x, z)
    except PETSc.Error as e:
        assert e.ierr == 58, e  # PETSC_ERR_ORDER
        return
    raise AssertionError("no error")
late.append(multiply_late)
"""
    end(LATE.format(call=""), after, ["-device_enable", "none"], "seq")


COMPILING = """
import ctypes, os, threading, time
import petsc_gpufmt
from petsc_gpufmt.backends import compile, native_library

class Slow:
    def __init__(self):
        self.stopped, self.thread = False, threading.Thread(target=self.work)
        self.thread.start()
    def work(self):
        while not self.stopped:
            time.sleep(0.01)
        time.sleep(0.3)
        print("compiled to the end", flush=True)
    def stop(self):
        print("stopping", flush=True)
        self.stopped = True
        self.thread.join()

with native_library.logged_compilation():
    compile._compilations.append(Slow())
with native_library.logged_compilation():
    pass
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] >> 8 == 83
ctypes.CDLL(None).exit(83)
"""


def test_exit_waits_for_threads_that_compile_and_a_child_has_none_of_them():
    """They are in a compiler, whose library is closed next."""
    finished = launch.run([sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", COMPILING])
    lines = finished.output.split("\n")
    assert finished.status == 83 and lines[:2] == ["stopping", "compiled to the end"], str(finished)
    assert [finished.output.count(word) for word in ("stopping", "compiled")] == [1, 1], str(finished)
