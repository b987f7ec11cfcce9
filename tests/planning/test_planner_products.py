"""The planner's answers about sparse products: through its callback, with the plan replayed as in C."""

import ctypes

import numpy as np
import petsc4py.PETSc  # noqa: F401  initialises PETSc, which takes citations
import pytest
from answers import Answer, failing, requested_place, settled_tokens
from chains import Exact, operands_of

from petsc_gpufmt import errors
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.plan import Product, Slot
from petsc_gpufmt.planning import abi, planner
from petsc_gpufmt.planning.given import host_view
from petsc_gpufmt.spgemm import chain

SCALAR, INDEX = native_library.petsc_types()
EVERY_PRODUCT = pytest.mark.parametrize("product", Product, ids=lambda p: p.formula)


class Answered(Answer):
    """The plan of a sparse product."""

    def __init__(self, product, operands, options="", backend="host", held=(0, 0, 0), described=1, **fields):
        self.product, self.operands = product, operands
        request = abi.ProductRequestStruct(
            product=product,
            noperands=len(operands),
            options=options.encode(),
            described=described,
            place=requested_place(backend),
        )
        self.arrays = {id(m): (m.rowptr.astype(INDEX), m.colidx.astype(INDEX)) for m in operands}
        for m, struct, struct.held in zip(operands, request.operands, held, strict=False):
            rowptr, colidx = self.arrays[id(m)]
            struct.nrows, struct.ncols, struct.nnz = m.nrows, m.ncols, colidx.size
            struct.rowptr, struct.colidx = rowptr.ctypes.data, colidx.ctypes.data
        super().__init__(abi.Ask.PRODUCT, request, abi.ProductAnswerStruct(), fields)

    def replay(self):
        """(nnz,) values of the result, by nothing but what the structures hold."""
        result = np.full(self.answer.nnz, np.nan, dtype=SCALAR)
        arrays = {Slot.RESULT: result}
        for slot, m in zip((Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES), self.operands, strict=False):
            arrays[slot] = m.values.astype(SCALAR)
        self.launch(self.answer.numeric, arrays)
        return result

    def pattern(self):
        a = self.answer
        return host_view(a.rowptr, a.nrows + 1, INDEX), host_view(a.colidx, a.nnz, INDEX)

    def check(self):
        Exact.of(self.product, self.operands).check(*self.pattern(), self.replay())


@EVERY_PRODUCT
def test_the_plan_of_an_answer_computes_the_product(product):
    with Answered(product, operands_of(product, 60, 30)) as a:
        assert a.error == (0, "")
        a.check()


@EVERY_PRODUCT
def test_a_product_of_nothing(product):
    with Answered(product, operands_of(product, 0, 0)) as a:
        assert a.error == (0, "")
        assert (a.answer.nrows, a.answer.ncols, a.answer.nnz) == (0, 0, 0)
        a.check()


def test_the_plan_does_not_read_the_patterns_of_the_request_again():
    with Answered(Product.PTAP, operands_of(Product.PTAP, 60, 30)) as a:
        for arrays in a.arrays.values():
            for array in arrays:
                array[:] = -1
        a.check()


def test_a_matrix_that_comes_twice_is_stored_once():
    A, _ = operands_of(Product.AB, 60, 60)
    copy = type(A)(A.nrows, A.ncols, A.rowptr, A.colidx, A.values)
    with Answered(Product.AB, [A, A]) as once, Answered(Product.AB, [A, copy]) as twice:
        once.check()
        pattern_bytes = INDEX.itemsize * (A.nrows + 1 + A.colidx.size)
        assert 0 < twice.answer.bytes_held - once.answer.bytes_held <= pattern_bytes


def test_the_answer_tells_sizes_and_stages():
    with Answered(Product.PTAP, operands_of(Product.PTAP, 60, 30)) as a:
        assert (a.answer.nrows, a.answer.ncols) == (30, 30)
        assert a.answer.nnz == a.pattern()[0][-1]
        assert a.answer.terms > a.answer.nnz
        assert 0 < a.answer.bytes_held <= a.answer.bytes_needed
        assert a.answer.summary.decode().startswith("PtAP, 30 x 30 with ")
        assert a.answer.detail.decode().startswith("A P: ")


def test_a_product_is_described_only_if_that_is_asked_for():
    with Answered(Product.PTAP, operands_of(Product.PTAP, 60, 30), described=0) as a:
        a.check()
        assert a.answer.terms and not a.answer.bytes_needed
        assert not a.answer.summary and not a.answer.detail


def test_options_reach_the_product():
    with Answered(Product.AB, operands_of(Product.AB, 60, 30), "accumulator=merge;") as a:
        assert "merge" in a.answer.detail.decode()


def test_tokens_are_owned_until_they_are_given_back():
    before = settled_tokens()
    with Answered(Product.AB, operands_of(Product.AB, 60, 30)):
        assert planner.owned_tokens() == before + 1
    assert planner.owned_tokens() == before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ({"options": "colour=3;"}, errors.OptionError, "colour is not an option of a sparse product"),
        ({"options": "accumulator=heap;"}, errors.OptionError, "-mat_rmerge_accumulator heap: choose one of"),
        ({"options": "accumulator=merge;merge_width=3;"}, errors.OptionError, "-mat_rmerge_width 3"),
        (
            {"scalar_bytes": (24 if SCALAR.kind == "c" else 12) - SCALAR.itemsize},
            errors.UnsupportedError,
            "the host kernel ",
        ),
    ],
    ids=str,
)
def test_a_request_that_cannot_be_served_is_answered_by_code_and_one_line(arguments, code, text):
    before = settled_tokens()
    with Answered(Product.AB, operands_of(Product.AB, 60, 30), **arguments) as a:
        assert a.token == 0 and a.error[0] == code.petsc_code
        assert text in a.error[1] and "\n" not in a.error[1]
        assert a.error[1].startswith("sparse product AB of A 60 x 60 with ")
        assert " nonzeros, B 60 x 30 with " in a.error[1] and " nonzeros on host: " in a.error[1]
    assert planner.owned_tokens() == before


def test_a_pattern_that_is_none_is_refused():
    A, B = operands_of(Product.AB, 60, 30)
    broken = type(B)(B.nrows, B.ncols, B.rowptr, B.colidx + 5, B.values)
    with Answered(Product.AB, [A, broken]) as a:
        assert a.error[0] == errors.PatternError.petsc_code
        assert "the matrix has 30 columns" in a.error[1]


def test_a_plan_that_runs_out_of_memory_once_is_tried_again(monkeypatch):
    calls = failing(monkeypatch, chain, "plan_product", MemoryError("first try"))
    with Answered(Product.AB, operands_of(Product.AB, 60, 30)) as a:
        assert a.error == (0, "") and len(calls) == 2
        a.check()


def test_a_plan_that_runs_out_of_memory_twice_says_what_to_change(monkeypatch):
    before = settled_tokens()
    failures = MemoryError("first try"), errors.OutOfMemoryError("needs 9 GB on the device")
    failing(monkeypatch, chain, "plan_product", *failures)
    with Answered(Product.AB, operands_of(Product.AB, 60, 30)) as a:
        assert a.error[0] == errors.OutOfMemoryError.petsc_code and a.token == 0
        assert a.error[1].endswith("on host: needs 9 GB on the device")
    assert planner.owned_tokens() == before


def test_an_error_of_another_kind_is_named_by_its_class(monkeypatch):
    failing(monkeypatch, chain, "plan_product", ZeroDivisionError("no rows"))
    with Answered(Product.AB, operands_of(Product.AB, 60, 30)) as a:
        assert a.error[0] == errors.GpufmtError.petsc_code
        assert a.error[1].endswith("ZeroDivisionError: no rows")


def test_the_library_and_the_products_have_the_same_options_and_defaults():
    from petsc_gpufmt.spgemm.product import DEFAULT_OPTIONS, OPTION_NAMES

    library = native_library.load()
    library.GpufmtProductOptionTable.restype = ctypes.c_char_p
    lines = [line.split() for line in library.GpufmtProductOptionTable().decode().splitlines()]
    assert {name: option for name, option, _ in lines} == OPTION_NAMES
    assert {name: default for name, _, default in lines} == {name: str(v) for name, v in DEFAULT_OPTIONS.items()}
