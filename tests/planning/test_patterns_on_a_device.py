"""Patterns on a device: which requests share a copy, how long it stays, and that nothing is kept for nobody."""

import gc

import numpy as np
import petsc4py.PETSc  # noqa: F401  what is planned is cited
import pytest
import test_planner
import test_planner_products
from builders import banded, uniform
from chains import operands_of
from fake_driver import fake_driver, upload

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import CudaBackend
from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.planning import held_patterns

INDEX = native_library.petsc_types()[1]
MATRIX, NROWS = banded(120), 120
ROWPTR, COLIDX = (NROWS + 1) * INDEX.itemsize, MATRIX.colidx.size * INDEX.itemsize


@pytest.fixture
def uploads(emulation_folder, monkeypatch):
    """Bytes of each upload."""
    sizes = []

    def counted(dev_array, host_array, stream):
        sizes.append(host_array.nbytes)
        upload(dev_array, host_array, stream)

    monkeypatch.setattr(held_patterns, "_known", held_patterns.Numbers())
    with fake_driver(emulation_folder):
        monkeypatch.setattr(native_library, "upload", counted)
        yield sizes


def stored(number, matrix=MATRIX, **fields):
    return test_planner.Answered(matrix, backend="cuda", held=number, **fields)


def squared(number):
    return test_planner_products.Answered(Product.AB, [MATRIX, MATRIX], backend="cuda", held=[number] * 2)


def test_what_a_plan_has_is_not_sent_again(uploads):
    with stored(-7), stored(-7, transposed=True), squared(-7) as product:
        assert uploads == [ROWPTR, COLIDX, COLIDX, COLIDX]  # stores keep the row pointer
        product.check()
        with squared(-7) as again:
            assert len(uploads) == 4  # numeric phases read both
            again.check()


@pytest.mark.parametrize("number", [0, -8, 8])
def test_another_number_or_none_is_another_pattern(uploads, number):
    with stored(-7), stored(number), stored(0):
        assert uploads == [ROWPTR, COLIDX] * 3


def test_nothing_stays_after_the_last_plan(uploads):
    with stored(-7), squared(-7):
        pass
    gc.collect()
    del uploads[:]
    with stored(-7):
        assert uploads == [ROWPTR, COLIDX]


def test_a_result_is_known_as_long_as_its_plan(uploads):
    with squared(-7) as product:
        del uploads[:]
        result = product.answer.held
        with stored(result, nrows=NROWS, ncols=NROWS, nnz=product.answer.nnz, rowptr=None, colidx=None) as a:
            assert result > 0 and a.error == (0, "") and not uploads


def test_arrays_of_a_pattern_that_is_known_are_not_read(uploads):
    with squared(-7):
        del uploads[:]
        with stored(-7, uniform(NROWS, NROWS, 0, seed=5), nnz=MATRIX.colidx.size) as again:
            assert again.answer.nonempty_rows == NROWS and not uploads


def test_operands_of_a_galerkin_product_are_there_for_their_stores(uploads):
    A, P = operands_of(Product.PTAP, 120, 50)
    with test_planner_products.Answered(Product.PTAP, [A, P], backend="cuda", held=[-1, -2]):
        del uploads[:]
        with stored(-1, A), stored(-2, P), stored(-2, P, transposed=True):
            assert not uploads


def test_memory_that_others_own_is_known_as_long_as_an_answer_holds_it(uploads):
    backend = CudaBackend(np.float64, INDEX, device=0)
    arrays = [backend.adopt(a.astype(INDEX)) for a in (MATRIX.rowptr, MATRIX.colidx)]
    views = [backend.view(a.ptr, a.size, a.dtype) for a in arrays]
    held = held_patterns.HeldPattern(CsrPattern(NROWS, NROWS, *views))
    number = held.number

    assert held_patterns.held_pattern(number).colidx is views[1]
    del held
    gc.collect()
    assert held_patterns.held_arrays(number) == (None, None)
