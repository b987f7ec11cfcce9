"""Block rows cut into segments, without ranks; the numbers are those of the paper's figure 8."""

import numpy as np
import pytest

from petsc_gpufmt.distribute.cut_rows import automatic_limit, cut_block_rows, places_in_block_rows
from petsc_gpufmt.errors import IndexOverflowError


def test_segments_are_those_of_the_figure():
    cut = cut_block_rows(np.array([4, 3, 2, 12, 5, 1, 9]), 3, 100)
    assert cut.segment_ptr.tolist() == [0, 2, 3, 4, 8, 10, 11, 14]
    assert cut.lengths.tolist() == [3, 1, 3, 2, 3, 3, 3, 3, 3, 2, 1, 3, 3, 3]


@pytest.mark.parametrize(("counts", "ptr"), [([], [0]), ([0, 0], [0, 0, 0]), ([0, 5, 0], [0, 0, 3, 3])])
def test_empty_block_rows_have_no_segment(counts, ptr):
    cut = cut_block_rows(np.array(counts, dtype=int), 2, 100)
    assert cut.segment_ptr.tolist() == ptr and cut.lengths.sum() == sum(counts)


def test_more_segments_than_can_be_counted_are_an_error():
    assert cut_block_rows(np.array([4, 4]), 2, 4).lengths.size == 4
    with pytest.raises(IndexOverflowError, match="cut at 2 blocks are 5 segments, more than the 4 .* larger limit"):
        cut_block_rows(np.array([4, 4, 1]), 2, 4)


@pytest.mark.parametrize(
    ("counts", "limit"), [([], 16), ([0, 0], 16), ([1, 1, 40], 28), ([0] * 50 + [20], 40), ([3, 4], 16)]
)
def test_the_limit_is_twice_the_mean_of_rows_that_are_not_empty(counts, limit):
    assert automatic_limit(np.array(counts, dtype=np.int32)) == limit


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 1), (1, 3), (4, 6)])
def test_places_of_blocks_in_their_block_rows(shape):
    bs, column_bs = shape
    random = np.random.default_rng(20260825)
    dense = random.random((8, 12)) < np.repeat([0.9, 0.1, 0.0, 0.4], 2)[:, None]
    rowptr, colidx = (a.astype(np.int32) for a in csr(dense))
    places, counts = places_in_block_rows(rowptr, colidx, bs, column_bs, 12)
    expected = [np.unique(np.nonzero(dense[i : i + bs])[1] // column_bs) for i in range(0, 8, bs)]
    assert counts.tolist() == [blocks.size for blocks in expected]
    rows = np.nonzero(dense)[0]
    assert [expected[row // bs][place] for row, place in zip(rows, places, strict=True)] == (
        colidx // column_bs
    ).tolist()


def csr(dense):
    rows, columns = np.nonzero(dense)
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))]), columns
