"""Python starts in a thread beside a compiled program, whichever way that ends, and not where it is not wanted."""

import os
import re
import sys
import sysconfig
from pathlib import Path

import launch
import pytest

import petsc_gpufmt

# Found by Python at its start: it notes what is begun, and waits before one module as on a slow file system. A trap of
# floating-point numbers ends the process.
SITECUSTOMIZE = """
import os, signal, sys, time

def mark(name, how):
    with open(os.environ["MARKS"] + "." + name, "a") as marks:
        marks.write(how)

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "petsc_gpufmt", "petsc_gpufmt.spgemm.chain"):
            infinity = float("inf")
            assert infinity - infinity != 0
            mark(name, "with interrupts blocked" if signal.SIGINT in signal.pthread_sigmask(0, []) else "plainly")
            if name == os.environ["SLOW"]:
                time.sleep(float(os.environ["SECONDS"]))
                mark(name + ".waited", "")

sys.meta_path.insert(0, Slow())
"""
FOREVER = 1000
RANKS = [1, pytest.param(2, marks=pytest.mark.mpi)]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return launch.compiled("early_start", tmp_path_factory.mktemp("programs"))


@pytest.fixture
def run(program, tmp_path):
    """The program as a call with its options: how it ended, and which modules were begun, with how."""
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)

    def run(*options, slow=None, seconds=0.3, ranks=None, early=(1,), **environment):
        marks = tmp_path / "marks"
        wait = ["-wait_for", f"{marks}.{slow}"] if slow else []
        types = ["-dll_append", petsc_gpufmt.library_path(), "-mat_type", "pjds"]
        start = [word for value in early for word in ("-gpufmt_start_early", value)]
        environment = {"MARKS": str(marks), "SLOW": slow or "", "SECONDS": str(seconds), **environment}
        python_path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [program, *types, *start, *wait, *options]
        finished = launch.run(command, ranks=ranks, PYTHONPATH=python_path, **environment)
        return finished, {path.name.removeprefix("marks."): path.read_text() for path in tmp_path.glob("marks.*")}

    return run


def assert_multiplied(finished, ranks=1):
    assert finished.status == 0 and finished.output.count(f"sum {48 * ranks}\n") == 1, finished
    assert "no state of Python" not in finished.output, finished  # it would be made and thrown away with each plan


def assert_quiet(finished):
    assert "Segmentation" not in finished.output and "Fatal" not in finished.output, finished


@pytest.mark.parametrize("ranks", RANKS)
def test_the_first_product_waits_for_the_thread(run, ranks):
    finished, begun = run("-log_view", slow="petsc_gpufmt", ranks=ranks)

    assert_multiplied(finished, ranks)
    assert "blocked" in begun["numpy"] and "blocked" in begun["petsc_gpufmt"], begun
    assert re.search(r"^GpufmtStart +1 ", finished.output, re.MULTILINE), finished
    assert re.search(rf"^GpufmtPlan +{ranks} ", finished.output, re.MULTILINE), finished


@pytest.mark.slow
@pytest.mark.parametrize("early", [(), (0,)], ids=["no device", "switched off"])
def test_without_a_thread_the_first_product_starts_python(run, early):
    finished, begun = run("-log_view", early=early)
    assert_multiplied(finished)
    assert begun["numpy"] == begun["petsc_gpufmt"] == "plainly"
    assert re.search(r"^GpufmtStart +1 ", finished.output, re.MULTILINE), finished


@pytest.mark.slow
@pytest.mark.parametrize("early", [(), (0,)], ids=["no device", "switched off"])
def test_without_a_thread_and_a_product_there_is_no_python(run, early):
    finished, begun = run("-ending", "finalize", early=early)
    assert finished.status == 0 and not finished.output.strip() and not begun, finished


@pytest.mark.slow
@pytest.mark.parametrize("ranks", RANKS)
def test_petsc_ends_after_the_step_in_progress(run, ranks):
    finished, begun = run("-ending", "finalize", slow="numpy", ranks=ranks)
    assert finished.status == 0 and not finished.output.strip(), finished
    assert set(begun) == {"numpy", "numpy.waited"}


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["numpy", "petsc_gpufmt"])
def test_petsc_begins_again_while_python_starts(run, slow):
    assert_multiplied(run("-ending", "again", slow=slow)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status", "text"), [("exit", 3, ""), ("error", 83, "an error of the application"), ("abort", -6, "")]
)
def test_the_program_ends_without_petsc_finalize(run, ending, status, text):
    finished, _ = run("-ending", ending, "-no_signal_handler", slow="numpy", seconds=FOREVER)
    assert finished.status == status and text in finished.output, finished
    assert_quiet(finished)


@pytest.mark.slow
def test_exit_waits_for_the_step_in_progress(run):
    finished, begun = run("-ending", "exit", slow="numpy")
    assert finished.status == 3 and set(begun) == {"numpy", "numpy.waited"}, finished
    assert_quiet(finished)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", RANKS)
def test_mpi_abort(run, ranks):
    finished, _ = run("-ending", "MPI_Abort", "-no_signal_handler", slow="numpy", seconds=FOREVER, ranks=ranks)
    assert finished.status == 3, finished
    assert_quiet(finished)


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["numpy", "petsc_gpufmt", "petsc_gpufmt.spgemm.chain"])
def test_a_fork_multiplies_in_both_processes(run, slow):
    finished, _ = run("-ending", "fork", slow=slow)
    assert_multiplied(finished)
    assert "child 0\n" in finished.output, finished


@pytest.mark.slow
def test_commands_of_a_shell(run):
    finished, _ = run("-ending", "popen", slow="numpy", seconds=1)
    assert_multiplied(finished)
    assert "from a shell\nsystem 0\n" in finished.output, finished


@pytest.mark.slow
def test_the_first_product_does_not_wait_for_what_only_later_plans_need(run):
    finished, begun = run(slow="petsc_gpufmt", seconds=0.5)
    assert_multiplied(finished)
    assert "petsc_gpufmt.spgemm.chain" not in begun


@pytest.mark.slow
def test_what_later_plans_need_is_ready_at_last(run):
    finished, begun = run(slow="petsc_gpufmt.spgemm.chain", seconds=0)
    assert_multiplied(finished)
    assert "blocked" in begun["petsc_gpufmt.spgemm.chain"]


@pytest.mark.slow
def test_what_fails_in_the_thread_is_reported_by_the_first_product(run, tmp_path):
    (tmp_path / "petsc_gpufmt.py").write_text("raise ImportError('not this one')\n")
    finished, _ = run()
    message = "A plan needs Python, and `import petsc_gpufmt` failed there (ImportError('not this one'))"
    assert finished.status != 0 and finished.output.count(message) == 1, finished


@pytest.mark.slow
def test_a_wrong_interpreter_is_reported_by_the_first_product(run):
    finished, _ = run(PETSC_GPUFMT_PYTHON="/bin/true")
    assert finished.status != 0 and finished.output.count("A plan needs Python, and /bin/true") == 1, finished


@pytest.mark.slow
def test_floating_point_traps_are_for_the_application(run):
    assert_multiplied(run("-fp_trap", slow="petsc_gpufmt")[0])


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-mat_bind_below", 17], ["-solver_pc_type", "python"]], ids=["bound", "PETSc's"])
def test_python_is_not_started_for_a_matrix_on_the_host_or_before_others_who_want_to(run, options):
    finished, begun = run("-ending", "finalize", "-options_left", "no", *options)
    assert finished.status == 0 and not begun, finished


@pytest.mark.slow
def test_a_program_with_the_library_of_python_starts_it_at_the_first_product(run):
    library = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    if not library.is_file():
        pytest.skip("this Python has no shared library")
    finished, begun = run(LD_PRELOAD=str(library))
    assert_multiplied(finished)
    assert begun["numpy"] == "plainly"


@pytest.mark.slow
@pytest.mark.parametrize("first_line", ["", "import petsc_gpufmt"], ids=["-dll_append", "import"])
def test_a_python_program_has_no_thread_and_no_module_that_it_has_not_imported(first_line):
    program = (
        f"{first_line}\n"
        "import os, sys, petsc4py; petsc4py.init(sys.argv)\n"
        "from petsc4py import PETSc\n"
        "threads, imported = len(os.listdir('/proc/self/task')), 'petsc_gpufmt' in sys.modules\n"
        "A = PETSc.Mat().createAIJ((4, 4), nnz=1); A.setFromOptions(); A.setUp(); A.assemble(); A.shift(1.0)\n"
        "assert len(os.listdir('/proc/self/task')) == threads and ('petsc_gpufmt' in sys.modules) == imported\n"
        "A.mult(*A.createVecs()); assert 'petsc_gpufmt' in sys.modules; print('done')\n"
    )
    options = ["-dll_append", petsc_gpufmt.library_path(), "-mat_type", "pjds", "-gpufmt_start_early", 1]
    finished = launch.run([sys.executable, "-c", program, *options])
    assert finished.status == 0 and "done" in finished.output, finished
    assert "Option left: name:-gpufmt_start_early" not in finished.output, finished


IMPORTING_PROGRAM = """
import sys, threading, petsc4py; petsc4py.init(sys.argv)
from petsc4py import PETSc
import petsc_gpufmt

class Finder:
    seen = []
    def find_spec(self, name, path=None, target=None):
        if name == "petsc_gpufmt.backends.loop":  # the first of them
            self.seen.append(threading.current_thread() is not threading.main_thread())
            if PETSc.Options().getBool("failing", False) and len(self.seen) == 1:
                raise OSError("not this time")

sys.meta_path.insert(0, Finder())
A = PETSc.Mat().createAIJ((4, 4), nnz=1, comm=PETSc.COMM_SELF); A.setFromOptions()
print("imported beside", Finder.seen)
A.setUp(); A.assemble(); A.shift(1.0); A.mult(*A.createVecs()); A.matMult(A)
import petsc_gpufmt.backends.loop
print("looked for", Finder.seen, "done")
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["-gpufmt_start_early", 1], "beside [True]\nlooked for [True] done\n"),
        (["-gpufmt_start_early", 0], "beside []\nlooked for [False] done\n"),
        (["-gpufmt_start_early", 1, "-failing", 1], "beside [True]\nlooked for [True, False] done\n"),
        (["-gpufmt_start_early", 1, "-mat_bind_below", 5], "beside []\nlooked for [False] done\n"),
    ],
    ids=["early", "late", "what fails is left to plans", "on the host"],
)
def test_a_python_program_imports_what_later_plans_need_while_petsc_starts_one_of_several_devices(options, output):
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("a thread starts the only device, and nothing waits for it")
    finished = launch.run([sys.executable, "-c", IMPORTING_PROGRAM, "-mat_type", "pjds", *options])
    assert finished.status == 0 and finished.output.startswith(f"imported {output}"), finished
