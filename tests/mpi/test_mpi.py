"""Runs each script of this folder on 1 to 4 ranks. The scripts are plain programs with assertions."""

import os
import sys
from pathlib import Path

import launch
import pytest

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.choice.registry import FORMATS

FOLDER = Path(__file__).parent
SCRIPTS = [
    *("products", "changes", "matrix_types", "solvers", "newton", "matrix_products", "galerkin", "managed"),
    *("coordinates", "hierarchies", "smoothers", "halo", "halo_peer", "sums", "ghosts", "distribution"),
    *("single_precision", "krylov", "bcgs", "minimal_residuals", "mixedcg"),
]
# Of solvers that leave complex scalars to PETSc
FOR_REAL_NUMBERS = {"smoothers", "single_precision", "krylov", "bcgs", "minimal_residuals", "mixedcg"}
FOR_DOUBLE = {"single_precision", "smoothers", "krylov", "bcgs", "minimal_residuals", "mixedcg"}
ALL_RANKS = (1, 2, 3, 4)
# All formats share the C code that the scripts are about. What another format could do wrong shows in fewer runs.
RANKS_OF_OTHER_FORMATS = {
    **{"products": (1, 3), "changes": (3,), "matrix_types": (3,), "solvers": (2,), "newton": (4,)},
    **{"matrix_products": (3,), "galerkin": (2,), "managed": (), "coordinates": (), "hierarchies": ()},
    **{"halo": (), "halo_peer": (), "sums": (), "ghosts": (), "distribution": ()},  # the first has all formats
    **{"single_precision": (), "krylov": (), "bcgs": (), "minimal_residuals": (), "smoothers": (), "mixedcg": ()},
}
RUNS = [
    (name, script, ranks)
    for name in FORMATS
    for script in SCRIPTS
    for ranks in (ALL_RANKS if name == "pjds" else RANKS_OF_OTHER_FORMATS[script])
]
FUSED = {"bsr", "csradaptive"}  # beside pjds: formats whose products make steps of solvers as well
SOLVERS_OF_STEPS = {"krylov", "smoothers", "single_precision"}
DEVICE_RUNS = [
    (name, script, ranks, gpu_aware)
    for name in FORMATS
    for script in SCRIPTS
    for ranks, gpu_aware in ([(1, 1), (2, 1), (2, 0), (3, 1)] if name == "pjds" else [(2, 1)])
    if name == "pjds" or RANKS_OF_OTHER_FORMATS[script] or (name in FUSED and script in SOLVERS_OF_STEPS)
]

pytestmark = pytest.mark.mpi


def run_script(script, ranks, options, before=()):
    if script in FOR_REAL_NUMBERS and native_library.petsc_types()[0].kind == "c":
        pytest.skip("PETSc has complex scalars")
    if script in FOR_DOUBLE and native_library.petsc_types()[0].itemsize == 4:
        pytest.skip("PETSc has single precision")
    command = [*before, sys.executable, FOLDER / f"{script}.py", *options]
    finished = launch.run(command, ranks=ranks, PYTHONSAFEPATH="")  # the scripts import from their own folder
    assert finished.status == 0, str(finished)


@pytest.mark.parametrize(("format_name", "script", "ranks"), RUNS)
def test_script(format_name, script, ranks):
    run_script(script, ranks, ["-format", format_name])


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("script", ["krylov", "bcgs", "minimal_residuals", "mixedcg"])
def test_solvers_whose_sums_go_through_memory(script, ranks):
    run_script(script, ranks, ["-format", "pjds", "-mat_halo_mode", "peer"])


@pytest.mark.gpu
@pytest.mark.parametrize(("format_name", "script", "ranks", "gpu_aware"), DEVICE_RUNS)
def test_script_on_a_device(format_name, script, ranks, gpu_aware):
    """The scripts take their vectors from the matrices, so they live on the device where there is one."""
    run_script(script, ranks, ["-format", format_name, "-use_gpu_aware_mpi", gpu_aware])


ONE_GPU = """
import os, sys
gpus, *command = sys.argv[1:]
names = "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK"
rank = int(next(os.environ[name] for name in names if name in os.environ))
os.environ["CUDA_VISIBLE_DEVICES"] = gpus.split(",")[rank % len(gpus.split(","))]
os.execv(command[0], command)
"""


@pytest.mark.gpu
def test_ranks_that_see_one_gpu_each():
    """As batch systems bind them: they reach memory of a GPU that they do not see."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(driver.device_count())))
    run_script("halo", 2, ["-format", "pjds"], before=[sys.executable, "-c", ONE_GPU, gpus])


def test_a_failed_assertion_on_one_rank_fails_the_run():
    """What the scripts rely on: mpiexec passes on the failure of a single rank."""
    program = "from petsc4py import PETSc; assert PETSc.COMM_WORLD.rank != 1, 'on purpose'"
    finished = launch.run([sys.executable, "-c", program], ranks=2)
    assert finished.status != 0
    assert "on purpose" in finished.output


LOW_LEVEL = """
import petsc4py
petsc4py.init(["program", "-device_enable", "none", "-mat_halo_mode", "task"])
from petsc4py import PETSc
import petsc_gpufmt
A = PETSc.Mat().createAIJ((20, 20))
A.setType("aijpjds")
A.setUp()
A.assemble()
try:
    A.mult(*A.createVecs())
except PETSc.Error as e:
    assert e.ierr == 56, e  # PETSC_ERR_SUP
    assert "needs MPI_THREAD_SERIALIZED, and MPI grants MPI_THREAD_FUNNELED" in str(e), e
    assert "PETSC_MPI_THREAD_REQUIRED" in str(e) and "from mpi4py import MPI" in str(e), e
    print("as it should")
"""


def test_a_thread_that_may_not_call_mpi_is_an_error():
    finished = launch.run([sys.executable, "-c", LOW_LEVEL], ranks=2)
    assert finished.status == 0, str(finished)
    assert finished.output.count("as it should") == 2, str(finished)


PLAN_GONE = """
from mpi4py import MPI  # before PETSc, which would ask for a lower level of threads
import petsc4py
petsc4py.init(["program", "-device_enable", "none", "-mat_halo_mode", "task"])
from petsc4py import PETSc
import petsc_gpufmt
from petsc_gpufmt.planning import planner
A = PETSc.Mat().createAIJ((20, 20), nnz=20)
A.setType("aijpjds")
for row in range(*A.getOwnershipRange()):
    A.setValues([row], range(20), [1.0] * 20)
A.assemble()
x, y = A.createVecs()
A.mult(x, y)
if PETSc.COMM_WORLD.rank == 1:
    planner._shutdown()
rank = PETSc.COMM_WORLD.rank
try:
    A.mult(x, y)
    assert rank == 0 and all(y.getArray() != y.getArray())  # not a number
except PETSc.Error as e:
    assert rank == 1 and e.ierr == 58, e  # PETSC_ERR_ORDER
print("as it should")
"""


def test_a_rank_that_packs_nothing_lets_others_go_on():
    """Its plan is gone with Python: it fails alone, and the other rank has NaN."""
    finished = launch.run([sys.executable, "-c", PLAN_GONE], ranks=2)
    assert finished.status == 0, str(finished)
    assert finished.output.count("as it should") == 2, str(finished)


OTHER_GHOSTS = """
import petsc4py
petsc4py.init(["program", "-device_enable", "none", "-matmatmult_via", "rmerge"])
from petsc4py import PETSc
import petsc_gpufmt
def with_ghost(column):
    A = PETSc.Mat().createAIJ((20, 20), nnz=2)
    A.setType("aijpjds")
    for row in range(*A.getOwnershipRange()):
        A.setValues([row], [row, (column + 10 * (row < 10)) % 20], [1.0, 2.0])
    A.assemble()
    return A
A, other = with_ghost(5), with_ghost(6)
C = A.matMult(A)
try:
    other.matMult(A, result=C)
except PETSc.Error as e:
    assert e.ierr == 73 and "outside its diagonal block have changed" in str(e), e
    print("as it should")
"""


def test_an_operand_with_other_ghost_columns_is_an_error_of_its_product():
    """The compacted columns of both are the same."""
    finished = launch.run([sys.executable, "-c", OTHER_GHOSTS], ranks=2)
    assert finished.status == 0, str(finished)
    assert finished.output.count("as it should") == 2, str(finished)


LEFT_IN_THE_MIDDLE = """
import petsc4py
petsc4py.init(["program", "-device_enable", "none", "-mat_halo_mode", "peer", "-mat_halo_timeout", "3"])
from petsc4py import PETSc
import petsc_gpufmt
from petsc_gpufmt.planning import planner
A = PETSc.Mat().createAIJ((20, 20), nnz=20)
A.setType("aijpjds")
for row in range(*A.getOwnershipRange()):
    A.setValues([row], range(20), [1.0] * 20)
A.assemble()
x, y = A.createVecs()
A.mult(x, y)
rank, errors = PETSc.COMM_WORLD.rank, []
if rank == 1:
    planner._shutdown()
for _ in range(2):
    try:
        A.mult(x, y)
    except PETSc.Error as e:
        errors.append((e.ierr, str(e)))
first, second = errors
if rank == 0:
    assert first[0] == second[0] == 76 and "that rank 1 sends" in second[1], errors  # PETSC_ERR_LIB
else:
    assert first[0] == second[0] == 58, errors  # PETSC_ERR_ORDER
    assert "is gone" in first[1] and "failed in the middle" in second[1], errors
print("as it should")
"""


def test_an_exchange_that_fails_in_the_middle_is_an_error_on_all_ranks():
    finished = launch.run([sys.executable, "-c", LEFT_IN_THE_MIDDLE], ranks=2)
    assert finished.status == 0, str(finished)
    assert finished.output.count("as it should") == 2, str(finished)


LATE_PRODUCT = """
import atexit, sys
late = []
atexit.register(lambda: late[0]())  # exit handlers run in reverse order: after that of the package
import petsc4py
petsc4py.init(["program", "-device_enable", "none", "-matmatmult_via", "rmerge"])
from petsc4py import PETSc
import petsc_gpufmt
A = PETSc.Mat().create()
A.setSizes((20, 20))
A.setType("aijpjds")
A.setUp()
for row in range(*A.getOwnershipRange()):
    A.setValues([row], [row, 19 - row], [1.0, 1.0])
A.assemble()
C = A.matMult(A)
def multiply_late():
    try:
        A.matMult(A, result=C)
    except PETSc.Error as e:
        assert e.ierr == 58 and "its plan is gone" in str(e), e  # PETSC_ERR_ORDER
        print("as it should")
late.append(multiply_late)
"""


def test_a_product_after_python_has_let_go_is_an_error_and_no_crash():
    finished = launch.run([sys.executable, "-c", LATE_PRODUCT], ranks=2)
    assert finished.status == 0, str(finished)
    assert finished.output.count("as it should") == 2, str(finished)
