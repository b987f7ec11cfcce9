"""A rank that is killed in the middle of products or sums: the others end soon, whether mpiexec sees it or not."""

import sys

import launch
import pytest

pytestmark = pytest.mark.mpi

PROGRAM = """
import ctypes, os, signal, sys
from mpi4py import MPI  # before PETSc, which would ask for a lower level of threads
import petsc4py
what, mode, *options = sys.argv[1:]
petsc4py.init(["program", *options, "-options_left", "no", "-mat_halo_mode", mode, "-mat_halo_timeout", "0.5"])
from petsc4py import PETSc
from petsc_gpufmt.backends import native_library
rank, size = PETSc.COMM_WORLD.rank, PETSc.COMM_WORLD.size
A = PETSc.Mat().createAIJ((10 * size, 10 * size), nnz=10 * size)
A.setType("aijpjds")
for row in range(*A.getOwnershipRange()):
    A.setValues([row], range(10 * size), [1.0] * (10 * size))
A.assemble()
x, y = A.createVecs()
sums, why_not = ctypes.c_void_p(), ctypes.c_char_p()
library = native_library.load()
library.GpufmtSumsRun.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
assert library.GpufmtSumsCreate(ctypes.c_void_p(A.handle), ctypes.byref(sums), ctypes.byref(why_not)) == 0
def add():
    error = library.GpufmtSumsRun(sums, 3, y.getArray().ctypes.data, None)
    if error:
        raise PETSc.Error(error)
for k in range(20):
    if k == 5 and rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        add() if what == "sums" else A.mult(x, y)
        y.getArray()  # waits for a device, where the error comes with the next product
    except PETSc.Error as error:
        print(f"error {error.ierr} {str(error).splitlines()[-1]}", flush=True)
        os._exit(1)
print("no error", flush=True)
"""
UNSEEN = ["sh", "-c", '"$@"; status=$?; sleep 2; exit $status', "sh"]  # what mpiexec looks at goes on for a while


def run_killed(mode, *options, what="products", before=()):
    finished = launch.run([*before, sys.executable, "-c", PROGRAM, what, mode, *options], ranks=3)
    assert finished.status != 0 and "no error" not in finished.output, str(finished)
    return finished


def check_all_others_say_so(finished):
    words = "seconds for entries of x, or sums, that rank"
    assert finished.output.count("error 76") == finished.output.count(words) == 2, str(finished)


@pytest.mark.parametrize("mode", ["overlap", "vector"])
def test_mpiexec_ends_the_others(mode):
    run_killed(mode, "-device_enable", "none")


@pytest.mark.parametrize("mode", ["task", "peer"])
def test_others_wait_no_longer_than_they_should(mode):
    check_all_others_say_so(run_killed(mode, "-device_enable", "none", before=UNSEEN))


def test_others_wait_no_longer_for_sums():
    finished = run_killed("peer", "-device_enable", "none", what="sums", before=UNSEEN)
    assert finished.output.count("error 76") == 2, str(finished)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["overlap", "task", "peer"])
def test_others_end_on_devices(mode):
    """Ranks that share a GPU have no `peer`."""
    finished = run_killed(mode, before=UNSEEN if mode == "task" else ())
    if mode == "task":
        check_all_others_say_so(finished)
