"""What plans with default options ask for is compiled ahead."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from builders import CsrMatrix, blocked, shape, stencil, uniform
from graphs import path, star
from multigrid import in_blocks, one_sided
from recording_backend import RecordingBackend
from several_ranks import a_rank_alone
from sparse_products import sorted_rows

from petsc_gpufmt.backends.kernel_modules import declared, instance_name
from petsc_gpufmt.backends.loop import loop_condition
from petsc_gpufmt.backends.plan import Fused, Operation, Product
from petsc_gpufmt.choice.registry import find_format
from petsc_gpufmt.coarsening.aggregates import aggregate
from petsc_gpufmt.coarsening.prolongator import tentative
from petsc_gpufmt.coarsening.shuffle import shuffled
from petsc_gpufmt.coarsening.smoothed import smoothed
from petsc_gpufmt.coarsening.start_vector import start_vector
from petsc_gpufmt.coarsening.strength import strength_graph
from petsc_gpufmt.formats.bsr.bsr import USUAL_BLOCKS
from petsc_gpufmt.formats.bsr.parameters import PARAMETERS, Shape, choose, usual_parameters
from petsc_gpufmt.halo.peer import exchange_launches
from petsc_gpufmt.patterns import coo, narrow, norms, scale_and_add, zero_rows
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.entry_sum import plan_entry_sum
from petsc_gpufmt.patterns.lengths import lengths
from petsc_gpufmt.patterns.segments import PIECE
from petsc_gpufmt.patterns.symmetry import is_symmetric
from petsc_gpufmt.patterns.transpose import transposed
from petsc_gpufmt.patterns.union import Shifted, Summand, merge
from petsc_gpufmt.spgemm.chain import plan_product

FORMATS = ("pjds", "bsr", "evchyb", "csradaptive", "gpufmt")
"""Those that -mat_type gpufmt chooses from, and itself."""
FEW_THREADS, MANY_THREADS = 1 << 6, 1 << 20  # of a device: threads do, or do not, share rows


@pytest.fixture(params=[FEW_THREADS, MANY_THREADS], ids=["small device", "large device"])
def backend(request, emulation_folder):
    return RecordingBackend(np.float64, np.int32, emulation_folder, request.param)


def matrices() -> list[CsrMatrix]:
    return [stencil(), uniform(40, 400, 40, seed=70), shape("power_law"), blocked(3, 12, declared=True)]


def not_compiled_ahead(backend: RecordingBackend) -> list[tuple[str, str]]:
    """What was asked of the backend and is not declared."""
    asked_for = {(stem, instance_name(kernel, template)) for stem, kernel, template in backend.instances}
    assert asked_for
    return sorted((stem, name) for stem, name in asked_for if not any(name in m.names for m in declared(stem)))


@pytest.mark.slow
@pytest.mark.parametrize("format_name", FORMATS)
def test_formats_ask_for_nothing_else(backend, format_name):
    cls = find_format(format_name)
    for matrix in [*matrices(), stencil(28, 28, 28)]:
        pattern = matrix.pattern(np, backend.index).validated(backend)
        stored = cls.build(pattern, backend, dict(cls.default_options))
        for operation in Operation:
            stored.plan(operation)
        for fused in Fused:
            stored.fused(fused)
    assert not_compiled_ahead(backend) == []


@pytest.mark.slow
def test_products_ask_for_nothing_else(backend):
    for matrix in matrices():
        A = sorted_rows(matrix)
        for left, right in ((A, sorted_rows(A.transposed())), (sorted_rows(A.transposed()), A)):
            plan_product(Product.AB, [m.pattern(np, backend.index) for m in (left, right)], backend, {})
        plan_product(Product.PTAP, [sorted_rows(stencil()).pattern(np, backend.index)] * 2, backend, {})
    assert not_compiled_ahead(backend) == []


def test_what_is_done_with_values_and_patterns_asks_for_nothing_else(backend):
    index = backend.index
    for begins in (None, np.array([0, 2], dtype=index)):
        plan_entry_sum(begins, np.arange(2, dtype=index), (1, 1, 0), backend)
    csr = uniform(1, 2 * PIECE, 2 * PIECE, seed=66).transposed().pattern(np, index)
    csr.validated(backend)
    transposed(csr, backend)
    is_symmetric(csr, backend)
    shuffled(csr.nrows, backend)
    start_vector(csr.nrows, 0, backend)
    exchange_launches(backend)
    loop_condition(backend)
    places, targets = (np.arange(n, dtype=index) for n in (csr.ncols, csr.nrows))
    shifted = Summand(csr, places[:0], None, Shifted(0, csr.ncols))
    merge((csr.nrows, csr.ncols), (0, 0), [Summand(csr, places, targets), shifted], backend)
    scale_and_add.plan_scale(csr.nnz, backend)
    scale_and_add.plan_scale_rows(csr.nnz, csr.rowptr, backend)
    scale_and_add.plan_scale_columns(csr.colidx, backend)
    scale_and_add.plan_add(csr.nnz, backend)
    scale_and_add.plan_add_subset((csr.rowptr, csr.colidx), (csr.rowptr, csr.colidx), None, backend)
    scale_and_add.plan_set_diagonal(np.array([0, 1], dtype=index), np.zeros(1, dtype=index), backend)
    zero_rows.plan_zero_rows(
        csr.rowptr, csr.ncols, zero_rows.find_diagonal(csr.rowptr, csr.colidx, backend)[0], backend
    )
    narrow.plan_narrow(csr.nnz, backend)
    norms.plan_sum_of_squares(csr.nnz, backend)
    norms.plan_absolute_sums(csr.rowptr, None, backend)
    lengths(backend)
    for rows in (np.zeros(2 * PIECE, dtype=index), np.arange(2, dtype=index)):  # with repeats; in order
        coo.assemble((2, 1), rows, np.zeros(rows.size, dtype=index), backend).plan_sum(backend)
        coo.outside(coo.Block(0, 1, 0, 1), rows, rows, backend)
    assert not_compiled_ahead(backend) == []


@pytest.mark.parametrize("coarsened", [path(40), star(400)], ids=["short rows", "long rows"])
def test_coarsening_asks_for_nothing_else(backend, coarsened):
    n = coarsened.nrows
    rowptr, colidx, order = (a.astype(backend.index) for a in (*coarsened, np.arange(n)))
    graph = CsrPattern(n, n, rowptr, colidx).validated(backend)
    for distance in (1, 2):
        found = aggregate(graph, order, distance, backend)
    for block, nvectors in ((1, 1), (2, 3)):
        vectors = np.ones(nvectors * block * n)
        tentative(found.numbers, found.count, block, vectors, nvectors, backend, found.turns)
    tentative(found.numbers, found.count, 1, None, 1, backend)
    a_rank_alone(coarsened, 2, backend)
    for nvectors in (1, 3, 20):
        assert smoothed(graph, found.numbers, found.count, 1, nvectors, backend)
    assert not_compiled_ahead(backend) == []


@pytest.mark.parametrize("share", [1.0, 0.7], ids=["dense blocks", "ragged blocks"])
def test_graphs_ask_for_nothing_else(backend, share):
    matrix = in_blocks(one_sided(40), 2, share)
    csr = matrix.pattern(np, backend.index).validated(backend)
    assert strength_graph(csr, matrix.values, backend, block=2, symmetrize=True, threshold=0.1).pattern
    assert not_compiled_ahead(backend) == []


@pytest.mark.parametrize("shape", USUAL_BLOCKS, ids=lambda shape: "{}x{}".format(*shape))
def test_products_of_blocks_are_launched_with_what_is_declared(shape):
    automatic = {**PARAMETERS, "lambda": 0}
    means, rows = (1, 2, 3, 5, 7, 9, 12, 18, 21, 27, 40, 81, 125), [2**k for k in range(0, 22, 2)]
    chosen = {
        choose(Shape(*shape, mean, longest, n, lanes, 270_336), automatic, {})[1]
        for mean, longest, n, lanes in product(means, (1, 1000), rows, (0.0, 1.0))
    }
    assert chosen <= set(usual_parameters(*shape)) and len(chosen) > 3
