"""Block rows dealt to ranks, without ranks."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from petsc_gpufmt.distribute.deal import by_lengths, in_equal_numbers, in_turns, to_owners

LENGTHS = {
    "none": [],
    "one": [7],
    "all empty": [0] * 7,
    "equal": [3] * 10,
    "one long, first": [90, 1, 1, 1, 1, 1, 1],
    "one long, last": [1, 1, 1, 1, 1, 1, 90],
    "empty ones around": [0, 0, 5, 0, 0, 0, 4, 1, 0, 0],
    "random": np.random.default_rng(20260824).integers(0, 30, 11).tolist(),
    "one huge": [2**40, 1, 2**40, 3],
}
SIZES = (1, 2, 3, 4, 13)


@pytest.fixture(params=LENGTHS)
def lengths(request):
    return np.array(LENGTHS[request.param], dtype=np.int64)


def sums(lengths, bounds):
    return [int(lengths[first:last].sum()) for first, last in zip(bounds[:-1], bounds[1:], strict=True)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dealing", [by_lengths, in_turns, lambda lengths, size: in_equal_numbers(lengths.size, size)])
def test_each_row_has_one_owner(dealing, lengths, size):
    dealt = dealing(lengths, size)
    n = lengths.size
    assert dealt.bounds[0] == 0 and dealt.bounds[-1] == n and np.all(np.diff(dealt.bounds) >= 0)
    own = [dealt.own(rank) for rank in range(size)]
    assert np.concatenate(own).size == n
    np.testing.assert_array_equal(np.concatenate(own)[dealt.new_numbers()], np.arange(n))
    for rank, rows in enumerate(own):
        assert np.all(dealt.owners()[rows] == rank)
        assert dealt.totals(lengths)[rank] == lengths[rows].sum()
        assert np.all(np.diff(rows) > 0)  # in their old order


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_no_contiguous_cut_has_a_smaller_largest_sum(lengths, size):
    every = combinations_with_replacement(range(lengths.size + 1), size - 1)
    least = min(max(sums(lengths, [0, *cuts, lengths.size])) for cuts in every)
    bounds = by_lengths(lengths, size).bounds
    assert max(sums(lengths, bounds)) == least
    assert np.count_nonzero(np.diff(bounds)) == min(size, lengths.size)


@pytest.mark.parametrize(
    ("lengths", "size", "bounds"),
    [
        ([1] * 10, 4, [0, 3, 6, 8, 10]),  # no rank is left with a rest
        ([0] * 10, 4, [0, 3, 6, 8, 10]),  # rows are even where non-zeros say nothing
        ([90, 1, 1, 1, 1, 1, 1], 3, [0, 1, 4, 7]),
        ([1, 1, 1, 1, 1, 1, 90], 3, [0, 5, 6, 7]),
        ([4, 0, 0, 0, 0, 4], 2, [0, 3, 6]),
        ([1], 3, [0, 1, 1, 1]),
    ],
)
def test_each_rank_takes_its_share_of_what_is_left(lengths, size, bounds):
    dealt = by_lengths(np.array(lengths), size)
    assert dealt.bounds.tolist() == bounds and dealt.order is None


@pytest.mark.parametrize(("n", "counts"), [(0, [0, 0, 0]), (2, [1, 1, 0]), (7, [3, 2, 2]), (9, [3, 3, 3])])
def test_equal_numbers_are_those_of_petsc(n, counts):
    assert np.diff(in_equal_numbers(n, 3).bounds).tolist() == counts


def test_turns_begin_with_the_longest():
    dealt = in_turns(np.array([1, 9, 2, 8, 3, 7, 8]), 3)
    # in order of their length: 1 3 6 5 4 2 0
    assert [dealt.own(rank).tolist() for rank in range(3)] == [[0, 1, 5], [3, 4], [2, 6]]


@pytest.mark.parametrize("size", SIZES)
def test_turns_differ_by_the_longest_at_most(lengths, size):
    dealt = in_turns(lengths, size)
    assert np.ptp(np.diff(dealt.bounds)) <= 1
    assert np.ptp(dealt.totals(lengths)) <= lengths.max(initial=0)


def test_owners_keep_the_order_of_their_rows():
    dealt = to_owners(np.array([2, 0, 2, 0]), 4)
    assert dealt.order.tolist() == [1, 3, 0, 2] and dealt.bounds.tolist() == [0, 2, 2, 4, 4]
