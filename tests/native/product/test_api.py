"""MatProductCreate() and its kin on matrices of ours, in a C program; and sparse products in whole Python programs."""

from __future__ import annotations

import re
import sys

import launch
import pytest
from solves import NEWER

import petsc_gpufmt
from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.spgemm.product import OPTION_NAMES

STEPS = ("first", "changed", "replaced", "retyped", "returned", "cleared")


@pytest.fixture(scope="module")
def matproduct(tmp_path_factory):
    """The C program as a call with its arguments: how it ended, errors of its steps, number of our symbolic phases."""
    program = launch.compiled("matproduct", tmp_path_factory.mktemp("programs"))

    def run(*arguments):
        library = petsc_gpufmt.library_path()
        finished = launch.run([program, "-dll_append", library, "-mat_type", "pjds", "-malloc_dump", *arguments])
        errors = {w: float(v) for w, v in re.findall(r"^(\w+) ([-+.e\d]+)$", finished.output, re.MULTILINE)}
        symbolic = re.search(r"symbolic phases (\d+)", finished.output)
        return finished, errors, int(symbolic.group(1)) if symbolic else None

    return run


def assert_right(finished, errors):
    assert finished.status == 0 and set(STEPS) <= set(errors), finished
    assert all(errors[step] <= 1e-9 for step in STEPS), finished
    assert "PetscMalloc" not in finished.output, finished


@pytest.mark.slow
@pytest.mark.parametrize("product", [p for p in Product if p is not Product.ATBC], ids=lambda p: p.formula)
def test_products_by_rmerge(matproduct, product):
    """Operands of another type, and those of the first again, take a symbolic phase each."""
    finished, errors, symbolic = matproduct("-product", product.formula, "-algorithm", "rmerge", "-retype", "seqaijbsr")
    assert_right(finished, errors)
    assert symbolic == 3, finished


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "symbolic"),
    [
        ("", 0),
        ("-algorithm scalable", 0),
        ("-prefix mine_ -mine_mat_product_algorithm rmerge -retype seqaijbsr", 3),
        ("-prefix mine_ -mat_product_algorithm rmerge", 0),
        ("-prefix mine_ -mine_mat_product_algorithm default -retype seqaijbsr", 0),
        ("-prefix mine_ -mine_mat_product_algorithm scalable", 0),
        ("-algorithm rmerge -mat_product_algorithm_backend_cpu", 0),
        ("-algorithm backend -retype seqaijbsr", 3),
        ("-algorithm rmerge -retype seqaijbsr -structure_only", 3),
    ],
)
def test_who_makes_the_product(matproduct, arguments, symbolic):
    arguments = arguments.split()
    finished, errors, found = matproduct("-product", "PtAP", *arguments)
    assert_right(finished, errors)
    assert found == symbolic, finished
    if "-structure_only" in arguments and NEWER:
        assert "structure only: seqaij\n" in finished.output


PRODUCT = """
import sys, petsc4py
petsc4py.init(["program", "-options_left", "no", *{options}])
from petsc4py import PETSc
import petsc_gpufmt
A = PETSc.Mat().createAIJ((50, 50), nnz=1)
for i in range(50): A.setValue(i, i, 2.0)
A.assemble(); A.convert("pjds")
C = A.ptap(A)
"""
RMERGE = ["-matptap_via", "rmerge"]


def run_product(rest="", options=(), before=""):
    return launch.run([sys.executable, "-c", before + PRODUCT.format(options=[*RMERGE, *options]) + rest])


@pytest.mark.slow
def test_info_tells_the_stages_and_the_memory_predicted():
    finished = run_product(options=["-info"])
    assert finished.status == 0, finished
    found = re.search(
        r"rmerge on the host: PtAP, 50 x 50 with 50 nonzeros, 100 terms, (\d+) bytes needed at most as predicted, "
        r"(\d+) bytes kept for the numeric phase\nA P: 50 terms to 50 entries",
        finished.output,
    )
    assert found and int(found.group(1)) >= int(found.group(2)), finished


@pytest.mark.slow
def test_help_shows_the_options():
    finished = run_product(options=["-help"])
    for option in (*OPTION_NAMES.values(), "-mat_rmerge_host_values"):
        assert option in finished.output, finished


@pytest.mark.parametrize(
    "after",
    [
        "",
        "import atexit; atexit.register(PETSc._finalize)",
        "import atexit; atexit.register(C.destroy)",
    ],
)
@pytest.mark.slow
def test_programs_end_quietly(after):
    finished = run_product(after)
    assert finished.status == 0 and not finished.output.strip(), finished


def test_a_numeric_phase_after_python_has_let_go_is_an_error_and_no_crash():
    after = """
def late():
    try:
        A.ptap(A, result=C)
    except PETSc.Error as e:
        assert e.ierr == 58, e  # PETSC_ERR_ORDER
        print("refused")
calls.append(late)
"""
    finished = run_product(after, before="import atexit; calls = []; atexit.register(lambda: calls[0]())\n")
    assert finished.status == 0 and "refused" in finished.output, finished
