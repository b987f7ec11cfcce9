"""What ranks have of a matrix in contiguous rows, by a search through a dense one, and of stencils not made."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench.matrices import blocked_pattern, stencil_pattern  # noqa: E402
from petsc_gpufmt.scaling.partition import LOOKED_AT, Layout, PatternRows, StencilRows  # noqa: E402

INDEX = np.dtype(np.int32)


def found_by_search(dense, ranks, gpus_per_host):
    """The members of Parts, each a list, by a walk over all entries."""
    rows, columns = (
        np.repeat(np.arange(ranks), np.diff(Layout(n, ranks).start(np.arange(ranks + 1)))) for n in dense.shape
    )
    entries = [(rows[i], columns[j], i, j) for i, j in zip(*np.nonzero(dense), strict=True)]
    found = []
    for rank in range(ranks):
        outside = [e for e in entries if e[0] == rank and e[1] != rank]
        received = {(e[1], e[3]) for e in outside}
        sent = {(e[0], e[3]) for e in entries if e[1] == rank and e[0] != rank}

        def most(of, received=received, sent=sent):
            return max(len(of(received)), len(of(sent)))

        def far(pairs, rank=rank):
            return {pair for pair in pairs if pair[0] // gpus_per_host != rank // gpus_per_host}

        found.append(
            (
                int((rows == rank).sum()),
                sum(e[0] == rank == e[1] for e in entries),
                len(outside),
                len({e[2] for e in outside}),
                most(lambda pairs: pairs),
                most(far),
                most(lambda pairs: {pair[0] for pair in pairs}),
                most(lambda pairs: {pair[0] for pair in far(pairs)}),
            )
        )
    return [list(member) for member in zip(*found, strict=True)]


def members(parts):
    return [list(getattr(parts, field.name)) for field in dataclasses.fields(parts)]


def random_pattern(shape, entries, seed=77):
    dense = np.zeros(shape, dtype=bool)
    rng = np.random.default_rng(seed)
    dense[rng.integers(shape[0], size=entries), rng.integers(shape[1], size=entries)] = True
    rows, columns = np.nonzero(dense)
    return dense, np.searchsorted(rows, np.arange(shape[0] + 1)).astype(INDEX), columns.astype(INDEX)


@pytest.mark.parametrize(("size", "ranks"), [(10, 3), (12, 4), (2, 5), (0, 2), (7, 1)])
def test_ranges_are_those_of_petsc(size, ranks):
    starts = Layout(size, ranks).start(np.arange(ranks + 1))
    assert list(np.diff(starts)) == [size // ranks + (rank < size % ranks) for rank in range(ranks)]
    owners = Layout(size, ranks).owner(np.arange(size))
    assert list(owners) == list(np.repeat(np.arange(ranks), np.diff(starts)))


@pytest.mark.parametrize("shape", [(30, 30), (20, 41), (41, 20)], ids=str)
@pytest.mark.parametrize("ranks", [1, 2, 5, 45])
def test_parts_of_a_pattern_are_those_that_a_search_finds(shape, ranks):
    dense, rowptr, colidx = random_pattern(shape, 60)
    parts = PatternRows(rowptr, colidx, shape).parts(ranks, 2)
    assert members(parts) == found_by_search(dense, ranks, 2)


def test_columns_may_come_in_any_order():
    _, rowptr, colidx = random_pattern((30, 30), 200)
    turned = np.concatenate([colidx[a:b][::-1] for a, b in zip(rowptr[:-1], rowptr[1:], strict=True)])
    one, other = (PatternRows(rowptr, columns, (30, 30)).parts(4, 8) for columns in (colidx, turned))
    assert members(one) == members(other)


def test_a_matrix_without_entries_has_no_halo():
    parts = PatternRows(np.zeros(6, dtype=INDEX), np.zeros(0, dtype=INDEX), (5, 5)).parts(3, 8)
    assert list(parts.rows) == [2, 2, 1] and not any(map(any, members(parts)[1:]))


@pytest.mark.parametrize("stencil", ["7point", "27point"])
@pytest.mark.parametrize("points", [1, 2, 5])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 16, 130])
def test_parts_of_a_stencil_are_those_of_its_matrix(stencil, points, ranks):
    """But a rank may send a few entries more than it receives, which the parts of a stencil leave out."""
    rowptr, colidx = stencil_pattern(stencil, points, INDEX)
    rows, layout = StencilRows(stencil, points, points), Layout(points**3, ranks)
    assert (rows.nrows, rows.nnz) == (points**3, colidx.size)
    counted = PatternRows(rowptr, colidx, (points**3, points**3)).parts(ranks, 2)
    parts = rows.parts(ranks, 2, looked_at=ranks)
    for name in ("rows", "local_entries", "nonlocal_entries", "nonlocal_rows", "neighbours", "far_neighbours"):
        assert list(getattr(parts, name)) == list(getattr(counted, name)), name
    readers = np.repeat(layout.owner(np.arange(points**3)), np.diff(rowptr))
    received = {(i, j, k) for i, j, k in zip(readers, layout.owner(colidx), colidx, strict=True) if i != j}
    assert list(parts.halo) == [sum(i == rank for i, _, _ in received) for rank in range(ranks)]
    far = [i for i, j, _ in received if i // 2 != j // 2]
    assert list(parts.far_halo) == [far.count(rank) for rank in range(ranks)]


def test_a_stencil_on_whole_planes_exchanges_planes():
    parts = StencilRows("27point", 8, 5).parts(4, 8)
    assert list(parts.halo) == [25, 50, 50, 25] and list(parts.neighbours) == [1, 2, 2, 1]
    assert list(parts.nonlocal_entries) == [13**2, 2 * 13**2, 2 * 13**2, 13**2]


def test_parts_of_a_stencil_of_blocks():
    rowptr, colidx = blocked_pattern(*stencil_pattern("7point", 4, INDEX), 3)
    counted = PatternRows(rowptr, colidx, (192, 192)).parts(4, 2)
    assert members(StencilRows("7point", 4, 4, 3).parts(4, 2)) == members(counted)


def test_of_many_ranks_a_few_are_looked_at_with_those_beside_the_end_of_a_host():
    parts = StencilRows("7point", 300, 4).parts(300, 7)
    assert parts.rows.size == LOOKED_AT + 2
    assert set(parts.far_neighbours) >= {0, 1} and parts.far_halo.max() == 16


def test_a_stencil_larger_than_any_memory_is_not_made():
    rows = StencilRows("7point", 40_000, 500)
    assert rows.nnz == 7 * 40_000 * 500**2 - 2 * 500**2 - 4 * 40_000 * 500
    assert rows.parts(40_000, 8).halo.max() == 2 * 500**2
