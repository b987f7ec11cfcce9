"""The matrices of examples/reproduce/: of Holstein and Hubbard, and like those of the papers."""

import numpy as np
import pytest
from evchyb_matrices import TABLE_3, with_sum
from holstein_hubbard import FOURIER, GENERAL, HolsteinHubbard
from matrices_like import columns_about_diagonal, matrix_file, matrix_like, real_matrix, spread_lengths

DOUBLE, INDEX = np.dtype(np.float64), np.dtype(np.int32)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def dense(model):
    matrix = model.matrix(DOUBLE, INDEX).csr
    matrix.check_format(full_check=True)
    ascends = np.diff(matrix.indices) > 0
    ascends[matrix.indptr[1:-1] - 1] = True  # from row to row
    assert ascends.all() and np.array_equal(np.diff(matrix.indptr), model.row_lengths())
    return matrix.toarray()


def test_the_spectrum_does_not_depend_on_the_modes():
    general, fourier = (dense(HolsteinHubbard(4, 2, modes)) for modes in (GENERAL, FOURIER))
    assert np.array_equal(general, general.T) and np.count_nonzero(general) > np.count_nonzero(fourier)
    assert np.allclose(np.linalg.eigvalsh(general), np.linalg.eigvalsh(fourier), atol=1e-12)


@pytest.mark.parametrize(("sites", "energy"), [(4, -4.0), (6, -8.0)])
def test_free_electrons_fill_the_lowest_waves_of_the_ring(sites, energy):
    """-2 cos k of the lowest momenta, in both spins: the signs of fermions around the ring are right."""
    free = HolsteinHubbard(sites, 0, repulsion=0.0, coupling=0.0)
    assert np.linalg.eigvalsh(dense(free))[0] == pytest.approx(energy)


@pytest.mark.slow
def test_hmep_has_the_rows_of_the_paper():
    lengths = {modes: HolsteinHubbard(modes=modes).row_lengths() for modes in (GENERAL, FOURIER)}
    assert {of.size for of in lengths.values()} == {400 * 15504}
    # diagonal, 7.2 hops, and of the 2000 pairs of electrons and modes those that couple, each 3/4 up and 3/4 down
    assert lengths[GENERAL].sum() == 6_201_600 * 8.2 + 1900 * 2 * 11_628
    assert lengths[FOURIER].sum() == 6_201_600 * 8.2 + 1382 * 2 * 11_628
    assert (lengths[GENERAL].max(), lengths[FOURIER].max()) == (23, 21)


def test_columns_ascend_within_bands(rng):
    lengths = np.array([0, 3, 50, 1, 200, 7] * 40)
    rowptr, columns = columns_about_diagonal(lengths, 240, 60, INDEX, rng)
    assert np.array_equal(np.diff(rowptr), lengths) and columns.dtype == INDEX
    for row, (begin, end) in enumerate(zip(rowptr[:-1], rowptr[1:], strict=True)):
        of_row = columns[begin:end]
        assert (np.diff(of_row) > 0).all() and ((of_row >= 0) & (of_row < 240)).all()
        if lengths[row] == 50:
            assert of_row[-1] - of_row[0] < 60


def test_blocks_spread_lengths_and_sums(rng):
    lengths = spread_lengths(500, 24.0, 15, 29, 50.0, rng)
    assert (lengths.min(), lengths.max()) == (15, 29) and lengths.mean() == pytest.approx(24, abs=0.2)
    matrix = matrix_like("blocks", lengths, 100, DOUBLE, INDEX, rng, block=6)
    assert matrix.csr.shape == (3000, 3000) and matrix.block_size == 6
    assert np.array_equal(np.diff(matrix.csr.indptr), np.repeat(6 * lengths, 6))
    for total in (1000, 90_000, 128_000):
        numbers = with_sum(rng, 1000, total, 1, 128)
        assert numbers.sum() == total and numbers.min() >= 1 and numbers.max() <= 128
    assert with_sum(rng, 10, 5, 1, 9).tolist() == [1] * 10 and with_sum(rng, 0, 5, 1, 9).size == 0


def test_lengths_of_table_3():
    for row in TABLE_3:
        if row.nnz < 3_000_000:
            lengths = row.row_lengths()
            assert (lengths.size, lengths.sum()) == (row.nrows, row.nnz), row.name
            assert np.count_nonzero(lengths <= 128) // 32 * 32 == row.split, row.name


def test_files_of_matrices_are_found_by_name(tmp_path, rng):
    (tmp_path / "PWTK.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 3\n1 1\n2 1\n2 2\n")
    assert matrix_file(None, "pwtk") is None and matrix_file(tmp_path, "pwt") is None
    found = real_matrix(tmp_path, "pwtk", DOUBLE, INDEX, rng)
    assert np.diff(found.csr.indptr).tolist() == [1, 2] and real_matrix(tmp_path, "rm07r", DOUBLE, INDEX, rng) is None
