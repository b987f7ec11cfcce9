"""Patterns of a level come to the planner once, and not again when requests that follow name them."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from answers import settled_tokens
from builders import uniform
from multigrid import check_same, levels, pair, solver
from petsc_products import petsc_matrix, stencil_csr
from places import INDEX, SCALAR

from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.planning import abi, given, held_patterns
from petsc_gpufmt.planning.held_patterns import FEW_KNOWN, HeldPattern, Known, Numbers, held_arrays, held_pattern


def known():
    """Numbers of patterns that something has."""
    gc.collect()
    return {n for n in held_patterns._known if any(a is not None for a in held_arrays(n))}


def test_a_pattern_is_known_as_long_as_it_is_held():
    pattern = uniform(6, 5, 2, seed=41).pattern(np, INDEX)
    first, second = HeldPattern(pattern), HeldPattern(uniform(6, 5, 2, seed=43).pattern(np, INDEX))
    assert 0 < first.number < second.number
    found = held_pattern(first.number, row_block=2)
    assert found.colidx is pattern.colidx and (found.row_block, found.col_block) == (2, 1)
    number, rowptr = first.number, pattern.rowptr
    del first, found, pattern
    gc.collect()
    assert held_pattern(number) is None and held_pattern(0) is None and held_pattern(second.number)
    assert held_arrays(number) == (rowptr, None)


def test_numbers_of_patterns_that_are_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(held_patterns, "_known", Numbers())
    held = HeldPattern(uniform(3, 3, 1, seed=1).pattern(np, INDEX))
    for seed in range(2 * FEW_KNOWN):
        HeldPattern(uniform(3, 3, 1, seed=seed).pattern(np, INDEX))
    assert known() == {held.number} and len(held_patterns._known) <= FEW_KNOWN


def test_many_patterns_that_are_there_are_not_all_looked_at_for_each(monkeypatch):
    monkeypatch.setattr(held_patterns, "_known", Numbers())
    looked_at, arrays = [], Known.arrays
    monkeypatch.setattr(Known, "arrays", lambda known: looked_at.append(known) or arrays(known))
    held = [HeldPattern(uniform(3, 3, 1, seed=1).pattern(np, INDEX)) for _ in range(10 * FEW_KNOWN)]
    assert len(looked_at) < 2 * len(held)
    numbers = {h.number for h in held}
    held.clear()
    for _ in range(len(numbers)):
        HeldPattern(uniform(3, 3, 1, seed=1).pattern(np, INDEX))
    assert not numbers & held_patterns._known.keys()


def test_a_request_that_names_a_pattern_gets_it_and_looks_at_no_array():
    backend = HostBackend(SCALAR, INDEX)
    held = HeldPattern(uniform(6, 6, 2, seed=42).pattern(np, INDEX).validated(backend))
    operand = abi.OperandStruct(6, 6, held.pattern.nnz, None, None, held.number)
    assert given.pattern_of(operand, backend).rowptr is held.pattern.rowptr
    assert given.pattern_of(operand, backend).validated(backend).colidx is held.pattern.colidx


@pytest.fixture
def looked_up(monkeypatch):
    """Whether each pattern that was asked for, and had a number, was held."""
    found, function = [], held_pattern

    def look_up(number, **blocks):
        pattern = function(number, **blocks)
        found.append((number != 0, pattern is not None))
        return pattern

    monkeypatch.setattr(given, "held_pattern", look_up)
    return found


@pytest.mark.double
@pytest.mark.parametrize(("block", "threshold"), [(1, -1.0), (1, 0.01), (3, -1.0)])
def test_each_pattern_of_a_set_up_comes_once(options, looked_up, block, threshold):
    options["pc_gamg_coarse_eq_limit"] = 20
    options["pc_gamg_threshold"] = threshold
    before, held = settled_tokens(), known()
    ours, theirs = map(solver, pair(stencil_csr(9)))
    for ksp in (ours, theirs):
        ksp.getOperators()[0].setBlockSize(block)
    theirs.setUp()
    options["matptap_via"] = "rmerge"
    ours.setUp()
    # of each level: graph, store, smoothed, two for the product; the finest comes, others are results of products
    nlevels = ours.getPC().getMGLevels() - 1
    assert looked_up.count((True, False)) == 1 and (False, False) not in looked_up
    assert looked_up.count((True, True)) == 5 * nlevels - 1
    check_same(levels(ours), levels(theirs), tolerance=1e-7)
    ours.destroy()
    theirs.destroy()
    assert settled_tokens() == before and known() == held


def test_another_pattern_is_not_taken_for_the_one_that_is_held(options, looked_up):
    """The product that made a matrix goes on to hold the pattern that it had."""
    options["matmatmult_via"] = "rmerge"
    A = petsc_matrix(stencil_csr(4), "pjds")
    C = A.matMult(A)
    looked_up.clear()
    C.matMult(C)
    assert looked_up == [(True, True)]
    looked_up.clear()
    C.setOption(C.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    C.setValue(0, C.getSize()[1] - 1, 3.0)
    C.assemble()
    square = C.matMult(C)
    assert looked_up == [(True, False)]
    dense = C.copy()
    dense.convert("dense")
    square.convert("dense")
    values = dense.getDenseArray()
    assert np.allclose(square.getDenseArray(), values @ values)
