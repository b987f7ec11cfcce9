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

    Where that leaves a choice, each rank takes rows until it has its share of what is left, and of the empty rows that
    follow, its share of the rows. No rank is without rows if there are enough.
    """
    before = prefix_of(lengths)
    n = lengths.size
    largest = _smallest_largest(before, size)
    # the rows from earliest[k] on are not too many for k ranks; from the row before it on they would be
    earliest = [n]
    for _ in range(size - 1):
        earliest.append(int(np.searchsorted(before, before[earliest[-1]] - largest, side="left")))
    bounds = [0]
    for ranks_left in range(size, 1, -1):
        first, others = bounds[-1], ranks_left - 1
        cut = min(_share(before, first, ranks_left), max(n - others, first + 1))
        bounds.append(min(max(cut, earliest[others]), _reached(before, first, largest)))
    return Deal(np.array([*bounds, n], dtype=LENGTH), None)


def _smallest_largest(before: np.ndarray, size: int) -> int:
    """The smallest sum that no rank need exceed: by bisection, since it is quickly told whether a sum suffices."""
    longest, mean = int(np.diff(before).max(initial=0)), ceil_div(int(before[-1]), size)
    low, high = max(longest, mean), mean + longest
    while low < high:
        middle, row = (low + high) // 2, 0
        for _ in range(size):
            row = _reached(before, row, middle)
        low, high = (low, middle) if row == before.size - 1 else (middle + 1, high)
    return low


def _reached(before: np.ndarray, first: int, largest: int) -> int:
    """Up to where the rows from `first` on have a sum of at most `largest`."""
    return int(np.searchsorted(before, before[first] + largest, side="right")) - 1


def _share(before: np.ndarray, first: int, ranks_left: int) -> int:
    """Where a rank has its share if it takes the rows from `first` on."""
    n = before.size - 1
    wanted = before[first] + ceil_div(int(before[-1] - before[first]), ranks_left)
    filled = max(int(np.searchsorted(before, wanted, side="left")), first)
    empty_until = int(np.searchsorted(before, before[filled], side="right")) - 1
    return min(max(first + ceil_div(n - first, ranks_left), filled), empty_until)


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
