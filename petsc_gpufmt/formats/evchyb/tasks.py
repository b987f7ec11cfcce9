"""Which warps of an EVC-HYB product sum which slice: the adaptive threads per row of Guo, Gropp, Olson, section 2.1.

A team of 1, 2, 4, ... warps shares a slice, more warps the wider it is, so that all take about the same time: each has
a run of neighbouring groups. All teams of a block are equally large. Where rows are many, teams are small: they only
keep the widest slices from ending last.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import Launch, Struct, ceil_div
from petsc_gpufmt.formats.evchyb.layout import OFFSET, Slices
from petsc_gpufmt.patterns.scan import COUNT, SCAN_THREADS, tiles

MOST_WARPS = 16
FEWEST_WARPS = 4
MOST_CLASSES = 12  # in kernels/formats/evchyb_layout.cu

ENTRIES_PER_THREAD = (8, 16, 32)
"""Automatic: the smallest of these with which half the threads of a device suffice for all teams, else the largest."""


@dataclass(frozen=True)
class TeamClass:
    """Slices of one part that are shared by `team` warps each: `count` slices, `low` to `high` groups wide."""

    team: int
    count: int
    low: int
    high: int

    def tasks(self, warps: int) -> int:
        """Warps that its blocks have, a multiple of `warps`."""
        return ceil_div(self.count * self.team, warps) * warps


@dataclass(frozen=True)
class Teams:
    """How a product is dealt to warps.

    Attributes
    ----------
    warps : in a block
    entries_per_thread : that teams were made for
    long_classes, ell_classes : of the vCSR part and the ELL part, in the order of their blocks
    """

    warps: int
    entries_per_thread: int
    long_classes: list[TeamClass]
    ell_classes: list[TeamClass]

    @functools.cached_property
    def nlong_blocks(self) -> int:
        return sum(c.tasks(self.warps) for c in self.long_classes) // self.warps

    @functools.cached_property
    def nblocks(self) -> int:
        return self.nlong_blocks + sum(c.tasks(self.warps) for c in self.ell_classes) // self.warps

    def tasks(self, slices: Slices, height: int, segment_groups: int, backend: Backend) -> Any:
        """(2 nblocks * warps,) int64: the struct Task of kernels/formats/evchyb.cuh for every warp.

        Of each class the last slices come first.
        """
        dealt = [*self.long_classes, *self.ell_classes]
        nblocks = tiles(max(slices.nell, slices.nsegments))  # for each class
        tasks, control = backend.empty((2 * self.nblocks * self.warps, OFFSET), (len(dealt) * (1 + nblocks), COUNT))
        if not dealt:
            return tasks
        backend.clear(control)
        table = [word for c in dealt for word in (c.low, c.high, c.count, c.team.bit_length() - 1)]
        table += [0] * (4 * MOST_CLASSES - len(table))
        function = backend.function("formats/evchyb_layout", "evchyb_deal", ())
        sizes = (slices.nell, slices.nsegments, height, segment_groups, self.warps, len(self.long_classes))
        arguments = (*sizes, Struct(*table), slices.offsets, slices.segments, tasks, control)
        backend.run([Launch(function, (nblocks, len(dealt), 1), (SCAN_THREADS, 1, 1), arguments)])
        return tasks


def deal(slices: Slices, height: int, block_warps: int, entries_per_thread: int, resident_threads: int) -> Teams:
    """Teams for `slices`; `block_warps` and `entries_per_thread` may be AUTOMATIC."""
    ell, long = slices.ell_widths, slices.segment_widths
    if not entries_per_thread and not resident_threads:
        entries_per_thread = max(len(ell), len(long))  # a warp has a slice
    elif not entries_per_thread:
        entries_per_thread = automatic_entries(ell, long, block_warps, resident_threads // height // 2)
    most = block_warps or most_warps(entries_per_thread)
    of_ell, of_long = (classes(widths, entries_per_thread, most) for widths in (ell, long))
    warps = block_warps or max([FEWEST_WARPS, *(c.team for c in (*of_ell, *of_long))])
    return Teams(warps, entries_per_thread, of_long, of_ell)


def automatic_entries(ell: list[int], long: list[int], block_warps: int, resident_warps: int) -> int:
    """Entries per thread for slices of which ell[w] and long[w] are w groups wide."""
    for entries in ENTRIES_PER_THREAD:
        most = block_warps or most_warps(entries)
        if sum(c.count * c.team for h in (ell, long) for c in classes(h, entries, most)) <= resident_warps:
            return entries
    return ENTRIES_PER_THREAD[-1]


def most_warps(entries_per_thread: int) -> int:
    """Warps of a block at most: large blocks serve short times, small ones fill the device more evenly."""
    return max(FEWEST_WARPS, min(MOST_WARPS, 128 // entries_per_thread))


def classes(widths: list[int], entries_per_thread: int, most: int) -> list[TeamClass]:
    """The slices of a part, of which widths[w] are w groups wide, by the size of their teams, largest first.

    A team has the fewest warps, a power of two, of which each has at most `entries_per_thread` groups; or `most`.
    """
    found, low, team = [], 0, 1
    while low < len(widths):
        end = min(len(widths), team * entries_per_thread + 1) if 2 * team <= most else len(widths)
        if count := sum(widths[low:end]):
            found.append(TeamClass(team, count, low, end - 1))
        low, team = end, 2 * team
    return found[::-1]
