"""Facts of matrices whose answers are known."""

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.analysis import facts as module  # noqa: E402
from petsc_gpufmt.analysis.facts import distances, find_facts, histogram_labels, pattern_of, row_histogram  # noqa: E402
from petsc_gpufmt.analysis.source import Source, read_source  # noqa: E402
from petsc_gpufmt.backends.backend import HostBackend  # noqa: E402
from petsc_gpufmt.backends.native_library import petsc_types  # noqa: E402


def facts_of(given, **told):
    types = petsc_types()
    source = read_source(given, *types) if isinstance(given, str) else Source("given", sorted_csr(given), **told)
    backend = HostBackend(*types)
    return find_facts(source, pattern_of(source, backend), backend)


def sorted_csr(matrix):
    csr = scipy_sparse.csr_matrix(matrix, dtype=petsc_types()[0])
    csr.sort_indices()
    return csr


def test_a_seven_point_stencil():
    n = 6
    found = facts_of(f"7point:{n}")
    assert (found.nrows, found.ncols, found.nnz) == (n**3, n**3, 7 * n**3 - 6 * n**2)
    assert (found.shortest, found.longest, found.empty_rows, found.empty_columns) == (4, 7, 0, 0)
    assert found.lengths == (0, 0, 0, 8, n**3 - 8)
    assert found.bandwidth == n**2 and found.diagonal == n**3
    assert found.mean_distance == pytest.approx(2 * n**2 * (n - 1) * (1 + n + n**2) / found.nnz)
    assert found.symmetric_pattern and found.symmetric_values is None and found.value_type is None
    assert found.row_patterns == 27
    assert found.block_size == 1 and max(found.block_fill.values()) < 0.9


def test_a_stencil_of_blocks():
    found = facts_of("27point:5x3")
    assert found.told_block == 3 and found.block_size == 3 and found.blocks_end_evenly
    assert found.block_fill[3] == 1.0 and found.block_fill[6] < 0.9
    scalar, index = (dtype.itemsize for dtype in petsc_types())
    assert found.csr_bytes == found.nnz * (scalar + index)
    assert found.block_bytes == found.nnz // 9 * (9 * scalar + index)


def test_the_block_size_that_is_told_is_counted_too():
    assert facts_of("7point:2x12").block_fill[12] == 1.0


def test_blocks_that_nobody_tells_of_may_lack_some_entries():
    dense = scipy_sparse.kron(scipy_sparse.identity(40), np.ones((5, 5)), format="lil")
    dense[0, 1] = dense[7, 8] = 0
    found = facts_of(dense)
    assert found.told_block == 1 and found.block_size == 5
    assert found.block_fill[5] == pytest.approx(998 / 1000)
    assert not facts_of(scipy_sparse.block_diag([dense, np.ones((2, 5))])).blocks_end_evenly


def test_a_row_much_longer_than_others():
    n = 300
    arrow = scipy_sparse.lil_matrix(scipy_sparse.identity(n))
    arrow[17, :] = 1.0
    found = facts_of(arrow)
    assert found.longest == n and found.shortest == 1 and found.nnz == 2 * n - 1
    assert found.lengths == (0, n - 1, *[0] * 8, 1)
    assert found.symmetric_pattern is False and found.symmetric_values is False
    assert found.bandwidth == n - 1 - 17 and found.diagonal == n


def test_symmetry_of_values_is_apart_from_that_of_the_pattern():
    values = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, np.nan], [0.0, np.nan, 4.0]])
    same = facts_of(values)
    assert same.symmetric_pattern and same.symmetric_values and same.not_finite == 2
    values[0, 1] = 7.0
    other = facts_of(values)
    assert other.symmetric_pattern and other.symmetric_values is False
    assert other.value_type == petsc_types()[0].name


def test_zeros_that_are_stored_are_entries():
    found = facts_of(scipy_sparse.csr_matrix((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2, 2])), (2, 2)))
    assert found.nnz == 2 and found.zeros == 1 and found.empty_rows == 1


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (5, 3)])
def test_matrices_without_entries(shape):
    found = facts_of(scipy_sparse.csr_matrix(shape))
    assert (found.nrows, found.ncols, found.nnz, found.longest, found.bandwidth) == (*shape, 0, 0, 0)
    assert found.empty_rows == shape[0] and found.empty_columns == shape[1]
    assert found.block_fill == {} and found.block_size == 1 and found.row_patterns == 0


def test_one_entry():
    found = facts_of("7point:1")
    assert (found.nrows, found.nnz, found.diagonal, found.row_patterns, found.lengths) == (1, 1, 1, 1, (0, 1))


def test_a_rectangle_has_no_symmetry():
    found = facts_of(scipy_sparse.random(30, 50, 0.1, random_state=977))
    assert found.symmetric_pattern is None and found.symmetric_values is None


def test_lengths_are_counted_by_powers_of_two():
    lengths = np.array([0, 1, 1, 2, 3, 4, 5, 8, 9, 1024, 1025])
    counted = row_histogram(lengths)
    assert counted == (1, 2, 1, 2, 2, 1, 0, 0, 0, 0, 0, 1, 1)
    labels = histogram_labels(len(counted))
    assert labels[:6] == ["0", "1", "2", "3-4", "5-8", "9-16"] and labels[-2:] == ["513-1024", "1025-2048"]
    assert histogram_labels(1) == ["0"] and row_histogram(np.array([], dtype=int)) == ()


def test_parts_of_a_matrix_add_up(monkeypatch):
    matrix = sorted_csr(scipy_sparse.random(200, 200, 0.1, random_state=977))
    whole = distances(matrix)
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 7)  # fewer than a row has
    assert distances(matrix) == whole
    coo = matrix.tocoo()
    away = abs(coo.row.astype(int) - coo.col)
    assert whole == (away.max(), pytest.approx(away.mean()), np.count_nonzero(away == 0))
