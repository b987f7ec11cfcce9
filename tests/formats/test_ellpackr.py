"""ELLPACK-R: row lengths, and that threads stop at them. What it shares with ELLPACK and JDS is in test_ell.py."""

import numpy as np
import pytest
from builders import SHAPES, from_row_lengths, shape
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.formats.ellpack import Ellpack
from petsc_gpufmt.formats.ellpackr import EllpackR


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.mark.parametrize("shape_name", SHAPES)
def test_layout_is_that_of_ellpack_and_the_length_of_each_row(backend, shape_name):
    matrix = shape(shape_name)
    stored = StoredMatrix(matrix, EllpackR, backend, {}).format
    ellpack = StoredMatrix(matrix, Ellpack, backend, {}).format

    assert stored.col.tolist() == ellpack.col.tolist()
    assert stored.val.tolist() == ellpack.val.tolist()
    assert stored.rowmax.tolist() == np.diff(matrix.rowptr).tolist()


@pytest.mark.real
def test_stats_and_summary_of_a_small_matrix(backend):
    lengths = np.array([1, 0, 3, 2, 2, 0, 1, 1, 4, 1])
    stored = StoredMatrix(from_row_lengths(lengths, 6, seed=76), EllpackR, backend, {"block_threads": 64}).format
    stats = stored.stats()

    assert (stats.nnz, stats.nstored, stats.nonempty_rows) == (15, 16 * 4, 8)
    assert stats.fill_ratio == pytest.approx(1 - 15 / 64)
    assert stats.bytes_held == 64 * (8 + 4) + 10 * 4 + 11 * 4
    assert stats.bytes_per_mult == 15 * (8 + 4) + 10 * 4 + (10 + 6) * 8
    assert stored.summary() == "16 x 4, 64 threads a block"
    assert stored.detail() == "rows: longest 4, mean 1.50\nmemory: 808 bytes, 3.6071 times the 224 of CSR"
