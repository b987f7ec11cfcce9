"""An interrupt, or no memory, while a plan is made: an error, no wrong result, and the matrix can be used again."""

import contextlib
import ctypes
import functools
import operator
import signal
import sys
import threading

import numpy as np
import pytest
from petsc4py import PETSc

from petsc_gpufmt import errors
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.formats.pjds import Pjds
from petsc_gpufmt.planning import abi, planner
from petsc_gpufmt.spgemm import chain

ignore_what_python_ignores = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
N = 20


def diagonal():
    A = PETSc.Mat().createAIJ((N, N), nnz=1, comm=PETSc.COMM_SELF)
    for i in range(N):
        A.setValue(i, i, i + 1.0)
    A.assemble()
    return A.convert("pjds")


@pytest.fixture
def matrix(options):
    options["matmatmult_via"] = "rmerge"
    A = diagonal()
    yield A
    A.destroy()


def mult(A):
    x, z = A.createVecs()
    x.set(1.0)
    A.mult(x, z)
    return z.getArray()


def square(A):
    return A.matMult(A).getDiagonal().getArray()


CALLS = {mult: np.arange(1.0, N + 1), square: np.arange(1.0, N + 1) ** 2}
EVERY_CALL = pytest.mark.parametrize("call", CALLS)


def raised_in_turn(call, *arguments):
    """The error of a call, and the interrupt that Python sees as soon as it runs again."""
    raised = []
    try:
        try:
            call(*arguments)
        except PETSc.Error as e:
            raised.append(e)
        for _ in range(3):  # an interrupt that waits is seen where a function or a turn of a loop begins
            (lambda: None)()
    except KeyboardInterrupt as e:
        raised.append(e)
    return raised


@EVERY_CALL
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_plan_is_made_reaches_the_caller(monkeypatch, matrix, call):
    with monkeypatch.context() as patch:
        for owner, name in ((Pjds, "build"), (chain, "plan_product")):
            patch.setattr(owner, name, lambda *_: signal.raise_signal(signal.SIGINT))
        error, interrupt = raised_in_turn(call, matrix)

    assert error.ierr == errors.GpufmtError.petsc_code and "on host: KeyboardInterrupt" in str(error)
    assert isinstance(interrupt, KeyboardInterrupt)
    assert call(matrix).tolist() == CALLS[call].tolist()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_came_before_the_plan_is_seen_after_it(matrix):
    x, z = matrix.createVecs()
    x.set(1.0)
    interrupt = ctypes.pythonapi.PyErr_SetInterrupt
    interrupt.restype = None
    calls = interrupt, functools.partial(matrix.mult, x, z)  # with no Python in between that would see it

    (seen,) = raised_in_turn(lambda: list(map(operator.methodcaller("__call__"), calls)))

    assert isinstance(seen, KeyboardInterrupt)
    assert z.getArray().tolist() == CALLS[mult].tolist()


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_plan_goes_is_seen_after_the_next_one_that_petsc_asks_for(monkeypatch, matrix):
    """Where Python sees it as soon as it runs, as a tracer lets it: before the first line of the planner."""

    class Owned(dict):
        def pop(self, *arguments):
            signal.raise_signal(signal.SIGINT)
            return super().pop(*arguments)

    mult(matrix)
    matrix.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    matrix.setValue(0, 1, 4.0)
    matrix.assemble()  # the next product gives a plan back and asks for one
    x, z = matrix.createVecs()
    x.set(1.0)
    owned = Owned(planner._owned)
    with monkeypatch.context() as patch:
        patch.setattr(planner, "_owned", owned)
        sys.setprofile(lambda *_: None)
        try:
            (seen,) = raised_in_turn(matrix.mult, x, z)
        finally:
            sys.setprofile(None)
    planner._owned.clear()
    planner._owned.update(owned)

    assert isinstance(seen, KeyboardInterrupt)
    assert z.getArray().tolist() == [5.0, *CALLS[mult][1:]]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_before_a_request_is_looked_at_reaches_the_caller(monkeypatch, matrix):
    with monkeypatch.context() as patch:
        patch.setattr(planner, "_answer", lambda *_: signal.raise_signal(signal.SIGINT))
        error, interrupt = raised_in_turn(mult, matrix)

    assert "on host: KeyboardInterrupt" in str(error) and isinstance(interrupt, KeyboardInterrupt)
    assert mult(matrix).tolist() == CALLS[mult].tolist()


@EVERY_CALL
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_before_the_planner_can_catch_it_reaches_the_caller(matrix, call):
    """Where Python begins with a function it looks for interrupts, before the first line of it."""

    def interrupt(frame, event, _):
        if event == "call" and frame.f_code is planner._plan.__code__:
            sys.setprofile(None)  # what Python calls when an error is raised would see the interrupt
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        error, seen = raised_in_turn(call, matrix)
    finally:
        sys.setprofile(None)

    assert "on host: KeyboardInterrupt" in str(error) and isinstance(seen, KeyboardInterrupt)
    assert call(matrix).tolist() == CALLS[call].tolist()


class InterruptedAsItGoes:
    """Sends SIGINT in its destructor, and gives Python time to raise it there."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        sum(range(10))


class InterruptedAsItGivesAway(dict):
    def pop(self, *arguments):
        signal.raise_signal(signal.SIGINT)
        return super().pop(*arguments)


@pytest.mark.parametrize("where", ["before it is found", "in a destructor"])
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_plan_is_given_back_reaches_the_caller(monkeypatch, matrix, where):
    mult(matrix)
    token = max(planner._owned)
    if where == "in a destructor":
        planner._owned[token].append(InterruptedAsItGoes())
    else:
        monkeypatch.setattr(planner, "_owned", InterruptedAsItGivesAway(planner._owned))

    (seen,) = raised_in_turn(matrix.destroy)

    assert isinstance(seen, KeyboardInterrupt)
    assert token not in planner._owned


class WaitsAsItGoes:
    """Its destructor says that it has begun, and waits, so that Python goes on with another thread."""

    def __init__(self, begun, until):
        self.begun, self.until = begun, until

    def __del__(self):
        self.begun.set()
        self.until.wait(10)


@pytest.mark.usefixtures("interruptible")
def test_interrupts_are_heard_after_two_threads_have_given_plans_back():
    begun, over = [threading.Event(), threading.Event()], threading.Event()
    matrices = []
    for own, until in zip(begun, (begun[1], over), strict=True):  # the first to begin is the first to end
        matrices.append(diagonal())
        mult(matrices[-1])
        planner._owned[max(planner._owned)].append(WaitsAsItGoes(own, until))
    threads = [threading.Thread(target=A.destroy) for A in matrices]
    for thread, own in zip(threads, begun, strict=True):
        thread.start()
        assert own.wait(10)
    threads[0].join()
    over.set()
    threads[1].join()

    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_exit_while_a_plan_is_made_is_an_error(monkeypatch, matrix):
    def end(*_):
        raise SystemExit(3)

    with monkeypatch.context() as patch:
        patch.setattr(Pjds, "build", end)
        (error,) = raised_in_turn(mult, matrix)

    assert "on host: SystemExit: 3" in str(error)
    assert mult(matrix).tolist() == CALLS[mult].tolist()


@contextlib.contextmanager
def planner_that_fails():
    """The callback that makes plans raises before its first line."""

    def fail(*_):
        raise MemoryError

    failing = abi.PlannerStruct(abi.ABI_VERSION, abi.PLAN_FUNCTION(fail), planner._planner.release)
    try:
        native_library.load().GpufmtSetPlanner(ctypes.byref(failing))
        yield
    finally:
        native_library.load().GpufmtSetPlanner(ctypes.byref(planner._planner))


@ignore_what_python_ignores
@EVERY_CALL
def test_a_planner_that_does_not_answer_is_an_error(matrix, call):
    with planner_that_fails():
        (error,) = raised_in_turn(call, matrix)

    assert error.ierr == errors.GpufmtError.petsc_code and "Python failed before it could answer" in str(error)
    assert call(matrix).tolist() == CALLS[call].tolist()


@ignore_what_python_ignores
@EVERY_CALL
def test_whichever_allocation_of_python_fails_no_result_is_wrong(matrix, call):
    memory = pytest.importorskip("_testcapi", reason="Python without its test modules")
    call(matrix)  # all is imported
    for allocation in range(1, 30):
        matrix.convert("aij")
        matrix.convert("pjds")
        result = None
        memory.set_nomemory(allocation, allocation + 1)
        try:
            result = call(matrix)
        except (MemoryError, PETSc.Error):
            pass
        finally:
            memory.remove_mem_hooks()
        assert result is None or result.tolist() == CALLS[call].tolist()
        assert call(matrix).tolist() == CALLS[call].tolist()
