"""pJDS: padding against the figures of Kreutzer et al. 2012, and the choice of the window."""

import numpy as np
import pytest
from builders import CsrMatrix, banded, from_row_lengths, uniform
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.formats import pjds
from petsc_gpufmt.formats.common.sliced_rows import cut
from petsc_gpufmt.formats.pjds import (
    ACCEPTABLE_FILL_RATIO,
    ALL_ROWS,
    AUTOMATIC,
    SLICE_HEIGHTS,
    Pjds,
    cut_automatically,
)
from petsc_gpufmt.patterns.csr import CsrPattern


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


def row_pointer(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def padded_slices(lengths, height, window, backend):
    """Slices of rows of these lengths, without storing them."""
    rowptr = row_pointer(lengths)
    csr = CsrPattern(lengths.size, 1, rowptr, np.zeros(rowptr[-1], dtype=rowptr.dtype))
    return cut(csr, window, height, backend)


def padded_entries(lengths, height, window, backend):
    return padded_slices(lengths, height, window, backend).nstored


@pytest.mark.parametrize("window", [AUTOMATIC, ALL_ROWS, 5])
def test_rows_that_need_no_sorting_have_no_permutation(backend, window):
    stored = StoredMatrix(uniform(100, 100, 5, seed=41), Pjds, backend, {"sigma_window": window}).format

    assert stored.row_perm is None


@pytest.mark.parametrize("height", SLICE_HEIGHTS)
def test_the_papers_worst_case_one_full_row_and_one_entry_in_all_others(backend, height):
    n = 8 * height
    lengths = np.ones(n, dtype=np.int64)
    lengths[n // 2] = n
    matrix = from_row_lengths(lengths, n, seed=42)

    stored = StoredMatrix(matrix, Pjds, backend, {"slice_height": height, "sigma_window": ALL_ROWS}).format

    assert stored.nstored == (height + 1) * n - height  # ELLPACK: n * n


def test_the_example_of_the_documentation(backend):
    lengths = np.array([1, 3, 0, 2, 4, 1, 2, 1], dtype=np.int32)

    slices = padded_slices(lengths, 4, 8, backend)

    assert slices.row_perm.tolist() == [4, 1, 3, 6, 0, 5, 7, 2]
    assert slices.offsets.tolist() == [0, 16, 20] and slices.nstored == 20


@pytest.mark.parametrize("window", [AUTOMATIC, ALL_ROWS, 1])
def test_rows_of_constant_length_store_no_padding(backend, window):
    stored = StoredMatrix(uniform(256, 90, 11, seed=43), Pjds, backend, {"sigma_window": window}).format

    assert stored.nstored == stored.nnz and stored.stats().fill_ratio == 0


# Dimension, longest, shortest and mean row length of matrices like those of the paper's section I-C and figure 3, and
# the reduction in table I, which is 1 - mean / longest. Of the lengths between, only what matters to padding is kept:
# how many different ones there are, and their mean. Mean and reduction are rounded in the paper.
PAPER_MATRICES = {
    "DLR1": (278_502, 175, 88, 144, 17.5),
    "DLR2": (541_980, 606, 50, 315, 48.0),
    "HMEp": (6_201_600, 23, 3, 14.7, 36.0),
    "sAMG": (3_405_035, 22, 4, 7, 68.4),
}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "longest", "shortest", "mean", "reduction"), PAPER_MATRICES.values(), ids=PAPER_MATRICES)
def test_padding_and_reduction_on_matrices_like_the_papers(backend, n, longest, shortest, mean, reduction):
    """Less than 0.01 % over the nonzeros with slices of 32 rows, and the data reduction of table I against ELLPACK."""
    share = (mean - shortest) / (longest - shortest)
    places = np.random.default_rng(44).beta(2 * share, 2 * (1 - share), n)
    lengths = np.rint(shortest + (longest - shortest) * places).astype(np.int32)
    nnz = int(lengths.sum(dtype=np.int64))
    assert lengths.max() == longest and lengths.min() == shortest and nnz == pytest.approx(mean * n, rel=0.02)

    slices = padded_slices(lengths, 32, n, backend)

    assert slices.nstored - nnz < 1e-4 * nnz
    assert 100 * (1 - slices.nstored / (n * longest)) == pytest.approx(reduction, abs=0.7)


@pytest.mark.parametrize("height", SLICE_HEIGHTS)
def test_padding_of_sorted_rows_is_bounded_by_the_spread_of_lengths(backend, height):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, rng.integers(1, 200), rng.integers(1, 2000)).astype(np.int32)

        padding = padded_entries(lengths, height, lengths.size, backend) - int(lengths.sum())

        assert padding <= (height - 1) * int(lengths.max())
        if lengths.size % height == 0:
            assert padding <= (height - 1) * int(lengths.max() - lengths.min())


def test_a_larger_window_that_holds_whole_smaller_ones_never_pads_more(backend):
    lengths = np.random.default_rng(45).geometric(0.05, 4096).astype(np.int32)

    sizes = [padded_entries(lengths, 32, window, backend) for window in (1, 32, 64, 256, 1024, 4096)]

    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] > lengths.sum()


def test_the_automatic_window_does_not_sort_where_padding_is_small(backend):
    stored = StoredMatrix(banded(2000), Pjds, backend, {}).format

    assert stored.sigma_window == 1 and stored.row_perm is None
    assert 0 < stored.stats().fill_ratio <= ACCEPTABLE_FILL_RATIO


@pytest.mark.parametrize(("resident_threads", "sorts"), [(8 * 121_000, True), (8 * 122_000, False)])
def test_rows_are_not_sorted_for_padding_that_the_device_does_not_notice(backend, resident_threads, sorts):
    backend.resident_threads = resident_threads
    lengths = np.where(np.arange(12800) % 2, 20, 1)
    lengths[::100] = 2
    csr = CsrPattern(12800, 20, row_pointer(lengths), np.zeros(lengths.sum(), dtype=np.int32))

    slices = cut_automatically(csr, 8, AUTOMATIC, backend)

    assert (slices.row_perm is not None) == sorts


@pytest.mark.parametrize(("nrows", "sorts"), [(33, False), (640, True)])
def test_rows_that_pad_too_much_in_their_order_are_cut_so_only_if_sorting_gains_nothing(
    backend, monkeypatch, nrows, sorts
):
    lengths = np.where(np.arange(nrows) % 2, 20, 1 if sorts else 20)
    csr = CsrPattern(nrows, 20, row_pointer(lengths), np.zeros(lengths.sum(), dtype=np.int32))
    windows = []
    monkeypatch.setattr(pjds, "cut", lambda csr, window, *where: windows.append(window) or cut(csr, window, *where))

    slices = cut_automatically(csr, 32, AUTOMATIC, backend)

    assert windows == ([nrows] if sorts else [nrows, 1])
    assert slices.window == windows[-1] and (slices.row_perm is not None) == sorts


@pytest.mark.parametrize("nrows", [500, 3000, 40000])
def test_the_automatic_window_is_the_smallest_with_acceptable_padding(backend, nrows):
    lengths = np.random.default_rng(46).geometric(0.1, nrows)
    rowptr = np.concatenate([[0], np.cumsum(lengths)])
    one_column = CsrMatrix(nrows, 1, rowptr, np.zeros(rowptr[-1], dtype=np.int64), np.ones(rowptr[-1]))
    stored = StoredMatrix(one_column, Pjds, backend, {}).format

    assert stored.stats().fill_ratio <= ACCEPTABLE_FILL_RATIO or stored.sigma_window == nrows
    for window in (w for w in (1, 1024, 16384) if w < stored.sigma_window):
        fill_ratio = 1 - stored.nnz / padded_entries(lengths, stored.slice_height, window, backend)
        assert fill_ratio > ACCEPTABLE_FILL_RATIO
