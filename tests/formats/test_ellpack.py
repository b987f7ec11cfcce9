"""ELLPACK: layout, sizes, places of entries. What it shares with ELLPACK-R and JDS is in test_ell.py."""

import numpy as np
import pytest
from builders import SHAPES, from_row_lengths, shape
from emulation.backend import EmulatedBackend
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Launch
from petsc_gpufmt.formats.ellpack import Ellpack


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.mark.real
@pytest.mark.parametrize("simd_width", [8, 32])
@pytest.mark.parametrize("shape_name", SHAPES)
def test_layout(backend, shape_name, simd_width):
    backend.simd_width = simd_width
    matrix = shape(shape_name)
    stored = StoredMatrix(matrix, Ellpack, backend, {}).format
    lengths = np.diff(matrix.rowptr)
    columns = np.full((max(lengths, default=0), stored.height), -1)
    values = np.zeros(columns.shape)
    for row in range(matrix.nrows):
        entries = slice(matrix.rowptr[row], matrix.rowptr[row + 1])
        columns[: lengths[row], row] = matrix.colidx[entries]
        values[: lengths[row], row] = matrix.values[entries]

    assert stored.height % simd_width == 0 and 0 <= stored.height - matrix.nrows < simd_width
    assert stored.col.tolist() == columns.ravel().tolist()
    assert stored.val.tolist() == values.ravel().tolist()


def test_one_full_row_makes_the_rectangle_the_full_matrix(backend):
    """Kreutzer et al. 2012, section II-A: N x N entries where pJDS stores (b_r + 1) N - b_r."""
    lengths = np.ones(256, dtype=np.int64)
    lengths[100] = 256

    assert StoredMatrix(from_row_lengths(lengths, 256, seed=70), Ellpack, backend, {}).format.nstored == 256 * 256


@pytest.mark.real
def test_stats_and_summary_of_a_small_matrix(backend):
    lengths = np.array([1, 0, 3, 2, 2, 0, 1, 1, 4, 1])
    stored = StoredMatrix(from_row_lengths(lengths, 6, seed=71), Ellpack, backend, {"block_threads": 64}).format
    stats = stored.stats()

    assert (stats.nnz, stats.nstored, stats.nonempty_rows) == (15, 16 * 4, 8)
    assert stats.fill_ratio == pytest.approx(1 - 15 / 64)
    assert stats.bytes_held == 64 * (8 + 4) + 11 * 4
    assert stats.bytes_per_mult == 10 * 4 * (8 + 4) + (10 + 6) * 8  # rows of padding have no thread
    assert stored.summary() == "16 x 4, 64 threads a block"
    assert stored.detail() == "rows: longest 4, mean 1.50\nmemory: 768 bytes, 3.4286 times the 224 of CSR"


def test_places_beyond_what_the_index_type_counts(emulation_folder):
    """Two entries 2^31 apart, in memory that is reserved only."""
    backend = EmulatedBackend(np.float32, np.int32, emulation_folder)
    height = 2**31
    col, val = np.zeros(height + 1, dtype=np.int32), np.zeros(height + 1, dtype=np.float32)
    col[[0, height]], val[[0, height]] = [1, 2], [3, 5]
    x, z = np.array([0, 7, 11], dtype=np.float32), np.full(1, np.nan, dtype=np.float32)
    function = backend.function("formats/ellpack", "ellpack_spmv", (64,))
    factors = np.float32(1), np.float32(0), None
    arguments = (np.int32(1), np.int64(height), np.int32(2), col, val, x, *factors, z)

    backend.run([Launch(function, (1, 1, 1), (64, 1, 1), arguments)])

    assert z.tolist() == [3 * 7 + 5 * 11]
