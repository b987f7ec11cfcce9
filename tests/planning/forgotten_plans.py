"""All plans are forgotten when one more is made, as where Python ends: an error of PETSc's, or a right result.

Started on some ranks by test_forgotten_plans.py; prints what the errors said.
"""

import ctypes
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "support")]

import petsc4py  # noqa: E402

petsc4py.init(["forgotten_plans", "-device_enable", "none"])

from petsc4py import PETSc  # noqa: E402
from reliability.operations import OPERATIONS, OPTIONS, Maker, destroy, differences, numbers_of  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from petsc_gpufmt.backends import native_library  # noqa: E402
from petsc_gpufmt.planning import planner, requests  # noqa: E402
from petsc_gpufmt.planning.abi import Ask  # noqa: E402

COMM = PETSc.COMM_WORLD.tompi4py()
ERRORS = {58, 73}  # PETSC_ERR_ORDER; PETSC_ERR_ARG_WRONGSTATE, where coordinates are not there without their plan
NAMES = ("GAMG set-up", "GAMG solve", "gpucg", "gpugmres", "mixedcg", "ptap", "ptap again")
IN_MANAGED_MEMORY = ("COO", "COO values", "axpy same", "matMult", "matMult again")
"""Which ordinary memory stands in for: coordinates are added up by plans there."""


def forget():
    library = native_library.load()
    library.GpufmtForgetPlanner()
    library.GpufmtSetPlanner(ctypes.byref(planner._planner))


def forgetting(ask):
    kind = requests.KINDS[ask]

    def fill(*arguments):
        leases = kind.fill(*arguments)
        forget()
        return leases

    requests.KINDS[ask] = kind._replace(fill=fill)
    return kind


def outcome(name, ask):
    """The error by which an operation ends, and what is there after it."""
    operation = OPERATIONS[name]
    things = operation.prepare(Maker("aijpjds", PETSc.COMM_WORLD))
    kind, error = forgetting(ask) if ask is not None else None, None
    try:
        operation.act(things)
    except PETSc.Error as e:
        error = e
    finally:
        if kind:
            requests.KINDS[ask] = kind
    found = numbers_of(things)
    if error and "ksp" in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))  # PETSc has locked a vector, and would crash on it
    else:
        destroy(things)
    return error, found


for option, value in OPTIONS.items():
    PETSc.Options()[option] = value
said = set()
for name in (*NAMES, *IN_MANAGED_MEMORY):
    if name == IN_MANAGED_MEMORY[0]:
        native_library.load().GpufmtManagedSimulate(1)
    error, expected = outcome(name, None)
    assert error is None, error
    for ask in Ask:
        error, found = outcome(name, ask)
        codes = COMM.allgather(error.ierr if error else 0)
        assert set(codes) == {0} or ERRORS & set(codes), (name, ask.name, codes, str(error))
        if not any(codes):
            assert not differences(found, expected), (name, ask.name)
        elif error:
            said.add(str(error).splitlines()[-1].split("] ")[-1])
    error, found = outcome(name, None)
    assert error is None and not differences(found, expected), (name, error)
if COMM.rank == 0:
    print(*sorted(said), sep="\n")
