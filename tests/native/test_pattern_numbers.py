"""By which numbers the planner knows the patterns of matrices."""

from __future__ import annotations

import pytest
from builders import shape, stencil
from petsc4py import PETSc
from petsc_products import petsc_matrix

from petsc_gpufmt.planning import planner
from petsc_gpufmt.planning.abi import Ask


@pytest.fixture
def requests(monkeypatch):
    """What is asked for, and the numbers of the patterns, of each request for a store or a product."""
    noted, fill = [], planner._fill

    def note(kind, request, answer):
        if kind is planner.KINDS[Ask.STORE]:
            noted.append((Ask.STORE, [request.held]))
        if kind is planner.KINDS[Ask.PRODUCT]:
            noted.append((Ask.PRODUCT, [operand.held for operand in request.operands[: request.noperands]]))
        return fill(kind, request, answer)

    monkeypatch.setattr(planner, "_fill", note)
    return noted


def number_of(A, requests):
    """The number in a request for a new store of A."""
    x, y = A.createVecs()
    A.convert("seqaijcsrscalar" if A.getType() == "seqaijpjds" else "seqaijpjds")
    A.mult(x, y)
    ask, (number,) = requests[-1]
    assert ask is Ask.STORE
    return number


def test_a_number_stays_with_a_pattern_and_is_no_other_ones(requests):
    A, B = (petsc_matrix(shape("power_law")) for _ in range(2))
    first = number_of(A, requests)
    copy = A.duplicate(copy=True)

    assert first < 0 and number_of(A, requests) == first
    A.scale(2.0)
    assert number_of(A, requests) == first
    assert len({first, number_of(B, requests), number_of(copy, requests)}) == 3


def test_a_new_nonzero_makes_another_pattern(requests):
    A = petsc_matrix(stencil())
    first = number_of(A, requests)
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)

    A.setValue(0, A.getSize()[1] - 1, 1.0)
    A.assemble()

    assert number_of(A, requests) not in (0, first)


def test_operands_have_the_numbers_of_their_stores_and_other_types_none(requests, options):
    options["mat_product_algorithm"] = "rmerge"
    A = petsc_matrix(stencil())
    number, other = number_of(A, requests), A.duplicate(copy=True).convert("seqaij")

    A.matMult(other)

    assert requests[-1] == (Ask.PRODUCT, [number, 0])
