"""Graphs of the type gpufmt of PCGAMG with values, of blocks, and of patterns that are not symmetric: those of agg."""

from __future__ import annotations

import numpy as np
import pytest
from builders import CsrMatrix, from_entries
from multigrid import (
    check_same,
    compare,
    elasticity,
    geometric_graph,
    in_blocks,
    levels,
    one_sided,
    pair,
    setups,
    solver,
    with_dirichlet_rows,
)
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr

from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small")]


def anisotropic(n: int = 24) -> CsrMatrix:
    """5 points in a plane, 50 times stronger in one direction."""
    points = np.arange(n * n)
    near = [(points[:-n], points[n:], -0.02), (points[points % n < n - 1], points[points % n > 0], -1.0)]
    rows = np.concatenate([points, *(np.concatenate(ends[:2]) for ends in near)])
    columns = np.concatenate([points, *(np.concatenate(ends[1::-1]) for ends in near)])
    values = np.concatenate([np.full(n * n, 2.05), *(np.full(2 * ends[0].size, ends[2]) for ends in near)])
    matrix = from_entries(n * n, n * n, rows, columns, seed=0)
    matrix.values[:] = values[np.lexsort((columns, rows))]
    return matrix


def convection(matrix: CsrMatrix) -> CsrMatrix:
    """Entries above the diagonal are weaker than those below it, and some are not there."""
    above = matrix.colidx > matrix.rows
    kept = ~above | (matrix.rows % 4 > 0)
    changed = from_entries(matrix.nrows, matrix.ncols, matrix.rows[kept], matrix.colidx[kept], seed=0)
    changed.values[:] = np.where(above, 0.6, 1.0)[kept] * matrix.values[kept]
    return changed


def vector_laplacian(nodes: CsrMatrix, block: int, share: float) -> CsrMatrix:
    """Of each component of a block, with weak coupling between them."""
    matrix = in_blocks(nodes, block, share)
    i, j = matrix.rows // block, matrix.colidx // block
    keys = nodes.rows * nodes.nrows + nodes.colidx
    values = nodes.values[np.searchsorted(keys, i * nodes.nrows + j)]
    matrix.values[:] = np.where(matrix.rows % block == matrix.colidx % block, values, 0.01 * values)
    return matrix


MATRICES = {
    "stencil": lambda: stencil_csr(9),
    "anisotropic": anisotropic,
    "graph": lambda: geometric_graph(500, 8.0, seed=3),
    "convection": lambda: convection(stencil_csr(8)),
    "rows with a diagonal alone": lambda: with_dirichlet_rows(geometric_graph(500, 9.0, seed=2), 7),
}
# what is said of the graph of the finest level, if it is not the matrix, for a symmetric matrix and for one that is not
OPTIONS = {
    "nothing": ({"pc_gamg_threshold": 0}, "% of its entries above 0"),
    "little": ({"pc_gamg_threshold": 0.01}, "% of its entries above 0.01"),
    "more": ({"pc_gamg_threshold": 0.05}, "% of its entries above 0.05"),
    "more, distance 1": (
        {"pc_gamg_threshold": 0.05, "pc_gamg_aggressive_coarsening": 0},
        "% of its entries above 0.05",
    ),
    "less on each level": (
        {"pc_gamg_threshold": 0.08, "pc_gamg_threshold_scale": 0.25},
        "% of its entries above 0.08",
    ),
    "on the finest level": ({"pc_gamg_threshold": "0.1,-1"}, "% of its entries above 0.1"),
    "on the second level": ({"pc_gamg_threshold": "-1,0.1"}, ""),
    "low memory": (
        {"pc_gamg_threshold": 0.05, "pc_gamg_low_memory_threshold_filter": True},
        "% of its entries above 0.05",
    ),
    "by degrees": (
        {"pc_gamg_threshold": 0.05, "pc_gamg_mis_k_minimum_degree_ordering": True},
        "% of its entries above 0.05",
    ),
    "none": ({}, ""),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("matrix", MATRICES)
def test_hierarchies_are_those_of_agg(options, tmp_path, matrix, name):
    more, said = OPTIONS[name]
    setups = compare(MATRICES[matrix](), options, more, tmp_path)
    assert len(setups) >= 2 and not any("agg," in words for words in setups)
    assert said in setups[0] and ("made symmetric" in setups[0]) == (matrix == "convection")
    assert ("graph of" in setups[0]) == bool(said or matrix == "convection")


def test_a_threshold_that_leaves_no_edges_ends_the_hierarchy(options, tmp_path):
    assert len(compare(stencil_csr(6), options, {"pc_gamg_threshold": 0.9}, tmp_path)) == 1


def test_strength_of_values_that_are_known_to_be_symmetric(options, tmp_path):
    """The transpose is not added, which shows in the graph of a matrix that is not symmetric."""

    def known(A):
        A.setOption(PETSc.Mat.Option.SYMMETRIC, True)

    matrix = stencil_csr(7)
    assert compare(matrix, options, {"pc_gamg_threshold": 0.05}, tmp_path, prepare=known)
    matrix.values[matrix.rows < matrix.colidx] *= 0.1
    said = compare(matrix, options, {"pc_gamg_threshold": 0.01}, tmp_path, prepare=known)
    assert "graph of the matrix, 100 %" in said[0]
    said = compare(matrix, options, {"pc_gamg_threshold": 0.1}, tmp_path, prepare=known)
    assert said[0] == "set-up of agg, because its graph is not symmetric with a complete diagonal"


@pytest.mark.parametrize("more", [{}, {"pc_gamg_threshold": 0.05}])
def test_graphs_that_are_not_made_symmetric_are_left_to_agg(options, tmp_path, more):
    more = {**more, "pc_gamg_graph_symmetrize": False, "pc_gamg_aggressive_coarsening": 0}
    said = compare(one_sided(), options, more, tmp_path)
    assert said[0] == "set-up of agg, because its graph is not symmetric with a complete diagonal"


@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize("threshold", [-1.0, 0.05])
@pytest.mark.parametrize("block", [2, 3])
def test_blocks(options, tmp_path, block, threshold, share):
    """Vectors of a block are single unknowns: QR factorizations of them are the same in any order of rows."""
    matrix = vector_laplacian(geometric_graph(200, 7.0, seed=6), block, share)
    more = {"pc_gamg_threshold": threshold}
    said = compare(matrix, options, more, tmp_path, prepare=lambda A: A.setBlockSize(block))
    assert f"; graph of blocks of {block} rows" in said[0] and not any("agg," in words for words in said)


def test_blocks_that_are_not_symmetric(options, tmp_path):
    matrix = vector_laplacian(convection(geometric_graph(250, 7.0, seed=7)), 2, 1.0)
    said = compare(matrix, options, {"pc_gamg_threshold": 0.01}, tmp_path, prepare=lambda A: A.setBlockSize(2))
    assert "; graph of blocks of 2 rows, made symmetric, " in said[0]


@pytest.mark.parametrize("threshold", [-1.0, 0.02])
def test_elasticity_with_rotations(options, tmp_path, threshold):
    """Aggregates have enough nodes for the six vectors to be independent in each of them."""
    options["pc_gamg_threshold"] = threshold
    matrix, points = elasticity()
    found = []
    for A in pair(matrix):
        A.setBlockSize(3)
        ksp = solver(A)
        ksp.getPC().setCoordinates(points.astype(PETSc.RealType))
        ksp.setUp()
        found.append((levels(ksp), setups(ksp, tmp_path)))
        ksp.destroy()
    check_same(found[0][0], found[1][0], tolerance=1e-9)
    assert "; graph of blocks of 3 rows" in found[0][1][0]


def test_blocks_that_agg_takes_for_others_have_its_graph(options, tmp_path):
    """Both rows of a block have one entry in it and one in the next, which agg takes for a block as they are two."""
    blocks = np.repeat(np.arange(29), 2)
    rows, columns = np.arange(60).repeat(2), np.stack([2 * blocks, 2 * blocks + 3], axis=1).ravel()
    matrix = from_entries(60, 60, rows, np.concatenate([columns, [58, 59, 58, 59]]), seed=0)
    matrix.values[:] = np.where(matrix.rows == matrix.colidx, 4.0, -1.0)
    said = compare(matrix, options, {}, tmp_path, prepare=lambda A: A.setBlockSize(2))
    assert "; graph of agg, because it takes entries of several blocks of 2 for one" in said[0]


def test_strength_indices_are_left_to_agg(options, tmp_path):
    matrix = vector_laplacian(geometric_graph(200, 7.0, seed=6), 2, 1.0)
    more = {"pc_gamg_mat_coarsen_strength_index": "0", "pc_gamg_threshold": 0.02}
    said = compare(matrix, options, more, tmp_path, prepare=lambda A: A.setBlockSize(2))
    assert "; graph of agg, because strength indices were named" in said[0]


def test_new_values_have_a_new_graph(options):
    """With interpolations that are made again, other entries are above the threshold: at first all are."""
    options["pc_gamg_reuse_interpolation"] = False
    options["pc_gamg_threshold"] = 0.005
    found = []
    for A in pair(anisotropic()):
        ksp = solver(A)
        ksp.setUp()
        before = levels(ksp)
        A.shift(3.0)
        ksp.setOperators(A)
        ksp.setUp()
        found.append((before, levels(ksp)))
        ksp.destroy()
    for ours, theirs in zip(*found, strict=True):
        check_same(ours, theirs)
    before, after = (hierarchy[-1].operator[0].size for hierarchy in found[0])
    assert before < after


def test_no_value_is_read_without_a_threshold(monkeypatch):
    asked, kind = [], requests.KINDS[Ask.GRAPH]

    def fill(request, *others):
        asked.append((request.threshold, request.values))
        return kind.fill(request, *others)

    monkeypatch.setitem(requests.KINDS, Ask.GRAPH, kind._replace(fill=fill))
    ksp = solver(petsc_matrix(stencil_csr(6), "pjds"))
    ksp.setUp()
    assert asked and set(asked) == {(-1.0, None)}
    ksp.destroy()
