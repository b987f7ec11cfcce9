"""Block rows dealt to ranks by their lengths, which all ranks know: what is found here is the same on all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from petsc_gpufmt.backends.plan import ceil_div

LENGTH = np.dtype(np.int64)


class Deal(NamedTuple):
    """Which block rows each rank gets.

    Attributes
    ----------
    bounds : (size + 1,) int64
        Rank r gets the new block rows from bounds[r] on, up to bounds[r + 1].
    order : (n,) int64 or None
        The old number of each new block row; None: they stay in order.
    """

    bounds: np.ndarray
    order: np.ndarray | None

    def own(self, rank: int) -> np.ndarray:
        """Old numbers of the block rows of a rank, in their new order."""
        first, last = self.bounds[rank : rank + 2]
        return np.arange(first, last) if self.order is None else self.order[first:last]

    def new_numbers(self) -> np.ndarray:
        """The new number of each old block row."""
        numbers = np.arange(self.bounds[-1])
        if self.order is not None:
            numbers[self.order] = np.arange(self.bounds[-1])
        return numbers

    def owners(self) -> np.ndarray:
        """The rank that gets each old block row: int32."""
        in_new_order = np.repeat(np.arange(self.bounds.size - 1, dtype=np.int32), np.diff(self.bounds))
        return in_new_order if self.order is None else in_new_order[self.new_numbers()]

    def totals(self, lengths: np.ndarray) -> np.ndarray:
        """Sums of what the block rows of each rank have; `lengths` are in the old order."""
        before = prefix_of(lengths if self.order is None else lengths[self.order])
        return np.diff(before[self.bounds])


def prefix_of(lengths: np.ndarray) -> np.ndarray:
    """Sums of all lengths before each, and of all: (n + 1,) int64."""
    return np.concatenate([np.zeros(1, LENGTH), np.cumsum(lengths, dtype=LENGTH)])


def in_equal_numbers(n: int, size: int) -> Deal:
    """As PETSc's PETSC_DECIDE: contiguous, as many on each rank, one more on the first if that does not come out."""
    counts = np.full(size, n // size, dtype=LENGTH)
    counts[: n % size] += 1
    return Deal(prefix_of(counts), None)


def by_lengths(lengths: np.ndarray, size: int) -> Deal:
    """Contiguous, and the largest sum of a rank as small as that allows (Cevahir et al. 2009, section 3.3).

    Among the cuts of which that is true it takes those nearest to equal shares, so that the last ranks are not left
    with nothing; among empty rows, those nearest to equal numbers of rows.
    """
    before = prefix_of(lengths)
    n = lengths.size
    share = _smallest_share(before, size)
    # the rows after latest[r] are not too many for the ranks from r on
    earliest = [n]
    for _ in range(size - 1):
        earliest.append(int(np.searchsorted(before, before[earliest[-1]] - share, side="left")))
    bounds = [0]
    for rank, lowest in zip(range(1, size), reversed(earliest[1:]), strict=True):
        wanted = _nearest(before, rank, size)
        highest = _reached(before, bounds[-1], share)
        bounds.append(min(max(wanted, lowest, bounds[-1]), highest))
    return Deal(np.array([*bounds, n], dtype=LENGTH), None)


def _smallest_share(before: np.ndarray, size: int) -> int:
    """The smallest sum that no rank need exceed: by bisection, since whether a sum suffices is quickly told."""
    longest, mean = int(np.diff(before).max(initial=0)), ceil_div(int(before[-1]), size)
    low, high = max(longest, mean), mean + longest
    while low < high:
        share = (low + high) // 2
        row = 0
        for _ in range(size):
            row = _reached(before, row, share)
        low, high = (low, share) if row == before.size - 1 else (share + 1, high)
    return low


def _reached(before: np.ndarray, first: int, share: int) -> int:
    """How far the rows from `first` on go with a sum of at most `share`."""
    return int(np.searchsorted(before, before[first] + share, side="right")) - 1


def _nearest(before: np.ndarray, rank: int, size: int) -> int:
    """The cut before a rank whose sum is nearest to its share; among such, nearest to its share of the rows."""
    n, wanted = before.size - 1, int(before[-1]) * rank
    below = int(np.searchsorted(before, wanted // size, side="right")) - 1
    sums = [int(before[row]) for row in (below, min(below + 1, n))]
    nearest = min(sums, key=lambda of_rows: abs(of_rows * size - wanted))
    first, last = (int(np.searchsorted(before, nearest, side=side)) for side in ("left", "right"))
    return min(max(ceil_div(n * rank, size), first), last - 1)


def in_turns(lengths: np.ndarray, size: int) -> Deal:
    """Each rank in turn gets the longest that is left (Abdelfattah et al. 2016, section 5.6: 1-D cyclic).

    A rank has them in their old order: formats sort rows by themselves, and what was near stays so.
    """
    owners = np.empty(lengths.size, dtype=LENGTH)
    owners[np.argsort(-lengths.astype(LENGTH), kind="stable")] = np.arange(lengths.size) % size
    return to_owners(owners, size)


def to_owners(owners: np.ndarray, size: int) -> Deal:
    """Each block row to its owner; a rank has them in their old order."""
    return Deal(prefix_of(np.bincount(owners, minlength=size)), np.argsort(owners, kind="stable"))
