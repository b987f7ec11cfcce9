"""The planner as the library calls it: through its table of callbacks, with plans replayed as in C."""

import ctypes
import gc
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from builders import shape
from fake_driver import fake_driver
from petsc4py import PETSc  # noqa: F401  (papers are registered with PETSc, which it starts)
from stored_matrix import assert_dot, assert_product

from petsc_gpufmt import errors
from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.backends.plan import Fused, Operation, Slot
from petsc_gpufmt.formats.pjds import Pjds
from petsc_gpufmt.planning import abi, held_patterns, planner

SCALAR, INDEX = native_library.petsc_types()
OPENED = driver.libraries.__wrapped__


class Answered(Answer):
    """Plans of a stored matrix."""

    def __init__(self, matrix, options="", format_name="pjds", backend="host", transposed=False, **fields):
        self.matrix = matrix
        index = f"i{fields.get('index_bytes', INDEX.itemsize)}"
        self.rowptr, self.colidx = matrix.rowptr.astype(index), matrix.colidx.astype(index)
        request = abi.StoreRequestStruct(
            format=format_name.encode(),
            options=options.encode(),
            place=requested_place(backend),
            transposed=transposed,
            nrows=matrix.nrows,
            ncols=matrix.ncols,
            nnz=self.colidx.size,
            rowptr=self.rowptr.ctypes.data,
            colidx=self.colidx.ctypes.data,
        )
        super().__init__(abi.Ask.STORE, request, abi.StoreAnswerStruct(), fields)

    def replay(self, operation, **arrays):
        """Launch one of the plans; `arrays` by the lower-case names of their slots."""
        self.launch(self.answer.plans[operation], {Slot[name.upper()]: array for name, array in arrays.items()})


def dense(matrix):
    entries = np.zeros((matrix.nrows, matrix.ncols))
    np.add.at(entries, (matrix.rows, matrix.colidx), matrix.values)
    return entries


@pytest.mark.parametrize("transposed", [False, True], ids=["direct", "transposed"])
@pytest.mark.parametrize("options", ["", "slice_height=8;sigma_window=-1;"])
def test_the_plans_of_an_answer_compute_the_products(options, transposed):
    matrix = shape("power_law")
    product_of = matrix.transposed() if transposed else matrix
    x, y = np.random.default_rng(50).standard_normal((2, 300)).astype(SCALAR)
    z = np.full(300, np.nan, dtype=SCALAR)

    with Answered(matrix, options, transposed=transposed) as a:
        assert a.error == (0, "")
        a.replay(Operation.REFRESH, values=matrix.values.astype(SCALAR))
        a.replay(Operation.MULT, x=x, z=z)
        assert_product(z, product_of, x)
        a.replay(Operation.MULTADD, x=x, y=y, z=z)
        assert_product(z, product_of, x, y)
        a.replay(Operation.DIAGONAL, z=z)
        assert z.tolist() == dense(matrix).diagonal().astype(SCALAR).tolist()


class AnsweredFused(Answer):
    """A plan of the stored matrix of another answer."""

    def __init__(self, stored, fused, **fields):
        request = abi.FusedRequestStruct(place=requested_place(), stored=stored, fused=fused)
        super().__init__(abi.Ask.FUSED, request, abi.FusedAnswerStruct(), fields)


@pytest.mark.real
def test_a_fused_plan_is_that_of_the_matrix_of_an_answer():
    matrix, other = shape("power_law"), shape("banded")
    x, z, result = np.ones(300, dtype=SCALAR), np.zeros(300, dtype=SCALAR), np.full(1, np.nan, dtype=SCALAR)

    with Answered(matrix) as a, Answered(other), AnsweredFused(a.answer.stored, Fused.MULT_DOT) as f:
        assert f.error == (0, "") and f.answer.offered and f.answer.plan.nlaunches == 1
        a.replay(Operation.REFRESH, values=matrix.values.astype(SCALAR))
        f.launch(f.answer.plan, {Slot.X: x, Slot.Z: z, Slot.RESULT: result})

    assert_product(z, matrix, x)
    assert_dot(result[0], x, z)


@pytest.mark.real
def test_a_fused_plan_keeps_the_matrix_that_it_is_of():
    matrix = shape("banded")
    x, z, result = (np.full(n, 1.0, dtype=SCALAR) for n in (260, 260, 1))

    with Answered(matrix) as a:
        a.replay(Operation.REFRESH, values=matrix.values.astype(SCALAR))
        fused = AnsweredFused(a.answer.stored, Fused.MULT_DOT)
    gc.collect()

    with fused:
        fused.launch(fused.answer.plan, {Slot.X: x, Slot.Z: z, Slot.RESULT: result})
    assert_product(z, matrix, x)


def test_a_format_may_offer_no_fused_plan():
    with (
        Answered(shape("banded"), format_name="ellpack") as a,
        AnsweredFused(a.answer.stored, Fused.SMOOTH) as f,
    ):
        assert f.error == (0, "") and not f.answer.offered and f.answer.plan.nlaunches == 0


def test_a_fused_plan_of_a_matrix_that_is_gone_is_refused_in_one_line():
    with Answered(shape("banded")) as a:
        number = a.answer.stored
    gc.collect()

    with AnsweredFused(number, Fused.ADD_DOT) as f:
        code, text = f.error
        assert code == errors.GpufmtError.petsc_code and f.token == 0
        assert text == (
            f"plan add_dot of a stored matrix on host: no matrix has the number {number}: ask while its store is in use"
        )


def test_the_plans_do_not_read_the_pattern_of_the_request_again():
    matrix = shape("power_law")
    x, z = np.ones(300, dtype=SCALAR), np.zeros(300, dtype=SCALAR)

    with Answered(matrix) as a:
        a.rowptr[:], a.colidx[:] = -1, -1
        a.replay(Operation.REFRESH, values=matrix.values.astype(SCALAR))
        a.replay(Operation.MULT, x=x, z=z)

    assert_product(z, matrix, x)


def test_the_answer_tells_the_sizes_and_the_parameters():
    with Answered(shape("one_huge_row"), "slice_height=16;sigma_window=-1;") as a:
        assert a.answer.nstored == 16 * 3000 + 200 - 16 + 8  # the last slice is padded from 8 rows to 16
        assert a.answer.nonempty_rows == 200
        assert a.answer.bytes_held > a.answer.nstored * (SCALAR.itemsize + INDEX.itemsize)
        assert a.answer.summary == b"slice height 16, sigma window 200, full columns"


def test_a_format_learns_the_block_sizes_of_the_matrix(monkeypatch):
    calls = failing_build(monkeypatch)

    with (
        Answered(shape("banded"), row_block=2, col_block=5),
        Answered(shape("banded"), row_block=2, col_block=5, transposed=True),
    ):
        assert [(csr.row_block, csr.col_block) for csr, *_ in calls] == [(2, 5), (5, 2)]


def test_a_format_may_ask_to_be_built_again_and_says_more_in_its_detail(monkeypatch):
    rebuilt = []

    def rebuild(cls, *arguments):
        rebuilt.append(arguments)
        return cls.build(*arguments)

    monkeypatch.setattr(Pjds, "rebuild", classmethod(rebuild))
    monkeypatch.setattr(Pjds, "replan_after", 7)
    monkeypatch.setattr(Pjds, "detail", lambda self: "two\nlines " + 5000 * "x")

    with Answered(shape("banded")) as a:
        assert a.answer.replan_after == 7 and not rebuilt
        assert a.answer.detail.startswith(b"two\nlines x") and len(a.answer.detail) == 4095
    with Answered(shape("banded"), mults=7):
        assert len(rebuilt) == 1


def test_tokens_are_owned_until_they_are_given_back():
    before = settled_tokens()

    with Answered(shape("banded")) as first, Answered(shape("banded")) as second:
        assert first.token != second.token
        assert planner.owned_tokens() == before + 2

    assert planner.owned_tokens() == before


def test_releasing_a_token_that_nobody_owns_does_nothing():
    before = settled_tokens()

    planner._planner.release(10**9)

    assert planner.owned_tokens() == before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ({"format_name": "jad"}, errors.UnsupportedError.petsc_code, "no storage format is called 'jad': there are"),
        ({"options": "colour=3;"}, errors.OptionError.petsc_code, "-mat_pjds_colour is not an option"),
        ({"options": "slice_height=33;"}, errors.OptionError.petsc_code, "-mat_pjds_slice_height 33: choose one of"),
        ({"options": "sigma_window=-9;"}, errors.OptionError.petsc_code, "-mat_pjds_sigma_window -9: choose"),
        ({"ncols": 40}, errors.PatternError.petsc_code, "column indices lie in [0, 259], the matrix has 40 columns"),
        ({"nnz": 7}, errors.PatternError.petsc_code, "row pointer of a 260 x 260 matrix must run from 0 to 7"),
        ({"index_bytes": 12 - INDEX.itemsize}, errors.UnsupportedError.petsc_code, "the host kernel csr_check was"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line(arguments, code, text):
    before = settled_tokens()

    with Answered(shape("banded"), **arguments) as a:
        assert a.token == 0 and a.error[0] == code
        assert text in a.error[1] and "\n" not in a.error[1]
        assert a.error[1].startswith(arguments.get("format_name", "pjds") + " of a 260 x ")

    assert planner.owned_tokens() == before


def test_codes_are_those_of_petsc():
    import petsc4py

    header = Path(petsc4py.get_config()["PETSC_DIR"], "include", "petscsystypes.h")
    defined = dict(re.findall(r"(PETSC_ERR_\w+)\s*=\s*(\d+)", header.read_text()))
    expected = {
        "PETSC_ERR_LIB": errors.GpufmtError,
        "PETSC_ERR_SUP": errors.UnsupportedError,
        "PETSC_ERR_USER_INPUT": errors.OptionError,
        "PETSC_ERR_ARG_WRONG": errors.DistributionError,
        "PETSC_ERR_ARG_CORRUPT": errors.PatternError,
        "PETSC_ERR_INT_OVERFLOW": errors.IndexOverflowError,
        "PETSC_ERR_MEM": errors.OutOfMemoryError,
    }

    assert {name: int(defined[name]) for name in expected} == {name: cls.petsc_code for name, cls in expected.items()}
    assert set(expected.values()) == {errors.GpufmtError, *errors.GpufmtError.__subclasses__()}


def failing_build(monkeypatch, *failures):
    """Pjds.build raises the given errors in its first calls; returns the list of calls."""
    build, calls = Pjds.build.__func__, []

    def failing(cls, *arguments):
        calls.append(arguments)
        if len(calls) <= len(failures):
            raise failures[len(calls) - 1]
        return build(cls, *arguments)

    monkeypatch.setattr(Pjds, "build", classmethod(failing))
    return calls


def test_a_build_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing_build(monkeypatch, MemoryError("first try"))

    with Answered(shape("banded")) as a:
        assert a.error == (0, "") and a.token and len(calls) == 2


class CUDADriverError(RuntimeError):
    """As CuPy's: the driver refused a call."""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", errors.OutOfMemoryError.petsc_code),
        ("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid", errors.GpufmtError.petsc_code),
    ],
)
def test_a_driver_without_memory_for_a_kernel(monkeypatch, text, code):
    failing_build(monkeypatch, CUDADriverError(text), CUDADriverError(text))

    with Answered(shape("banded")) as a:
        assert a.error[0] == code and text in a.error[1]


def test_a_second_look_that_runs_out_of_memory_is_done_without(monkeypatch):
    def rebuild(cls, *arguments):
        raise MemoryError("a second copy")

    monkeypatch.setattr(Pjds, "rebuild", classmethod(rebuild))

    with Answered(shape("banded"), mults=50) as a:
        assert a.error == (0, "") and a.token


def test_a_build_that_runs_out_of_memory_twice_says_what_to_change(monkeypatch):
    before = settled_tokens()
    failing_build(monkeypatch, MemoryError("first try"), MemoryError("9 GiB"))

    with Answered(shape("banded")) as a:
        assert a.error[0] == errors.OutOfMemoryError.petsc_code and a.token == 0
        assert "out of memory (9 GiB): use more ranks" in a.error[1]

    assert planner.owned_tokens() == before
    with Answered(shape("banded")) as a:
        assert a.error[0] == 0


def test_an_error_of_another_kind_is_named_by_its_class(monkeypatch):
    failing_build(monkeypatch, ZeroDivisionError("no rows"))

    with Answered(shape("banded")) as a:
        assert a.error[0] == errors.GpufmtError.petsc_code
        assert a.error[1].endswith("ZeroDivisionError: no rows")


def test_a_long_message_is_cut_to_what_the_answer_holds(monkeypatch):
    failing_build(monkeypatch, ValueError("x" * 5000))

    with Answered(shape("banded")) as a:
        assert len(a.answer.outcome.message) == 1023


def test_without_a_driver_a_plan_for_the_gpu_says_so(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: not found")

    with fake_driver():
        monkeypatch.setattr(driver, "libraries", OPENED)
        monkeypatch.setattr(ctypes, "PyDLL", missing)
        with Answered(shape("banded"), backend="cuda") as a:
            assert a.error[0] == errors.UnsupportedError.petsc_code
            assert "on cuda: storing a matrix on the GPU needs NVIDIA's driver" in a.error[1]
            assert "libcuda.so.1: not found" in a.error[1] and "-device_enable none" in a.error[1]


def test_another_thread_may_plan_while_patterns_that_are_gone_are_looked_for():
    numbers, new = held_patterns.Numbers(), itertools.count(1000)

    class Gone:
        def arrays(self):
            numbers[next(new)] = None  # as another thread does
            numbers.pop(1, None)
            return None, None

    numbers.update({number: Gone() for number in range(held_patterns.FEW_KNOWN)})
    numbers.forget_gone()
    assert list(numbers.values()) == [None] * held_patterns.FEW_KNOWN
