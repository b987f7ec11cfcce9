"""Which warps of an EVC-HYB product sum which slice: the adaptive threads per row of Guo, Gropp, Olson, section 2.1.

A team of 1, 2, 4, ... warps shares a slice, more warps the wider it is, so that all take about the same time: each has
a run of neighbouring groups. All teams of a block are equally large. Where rows are many, teams are small: they only
keep the widest slices from ending last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.formats.evchyb.layout import Slices

MOST_WARPS = 16
FEWEST_WARPS = 4

ENTRIES_PER_THREAD = (8, 16, 32)
"""Automatic: the smallest of these with which half the threads of a device suffice for all teams, else the largest."""


@dataclass(frozen=True)
class TeamClass:
    """Slices of one part that are shared by `team` warps each.

    Attributes
    ----------
    slices : (count,) int64; their numbers, in the order in which they are begun
    team : int
    """

    slices: Any
    team: int

    @property
    def count(self) -> int:
        return int(self.slices.size)

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

    @property
    def nlong_blocks(self) -> int:
        return sum(c.tasks(self.warps) for c in self.long_classes) // self.warps

    @property
    def nblocks(self) -> int:
        return self.nlong_blocks + sum(c.tasks(self.warps) for c in self.ell_classes) // self.warps

    def task_words(self, slices: Slices, height: int, xp: Any) -> Any:
        """(nblocks * warps, 2) int64: the struct Task of kernels/formats/evchyb.cu for every warp."""
        parts = [self._class_words(c, True, slices, height, xp) for c in self.long_classes]
        parts += [self._class_words(c, False, slices, height, xp) for c in self.ell_classes]
        return xp.concatenate(parts) if parts else xp.zeros((0, 2), dtype=np.int64)

    def _class_words(self, c: TeamClass, is_long: bool, slices: Slices, height: int, xp: Any) -> Any:
        number = xp.arange(c.tasks(self.warps), dtype=np.int64) // c.team
        idle = number >= c.count
        s = c.slices[xp.where(idle, 0, number)]
        begin = slices.offsets[s]
        shape = (slices.offsets[s + 1] - begin) // height << 5 | c.team.bit_length() - 1
        if is_long:
            shape |= (slices.segments[s - slices.nell, 1] > 1).astype(np.int64) << 4
        shape = xp.where(idle, c.team.bit_length() - 1, shape)
        return xp.stack([begin, xp.where(idle, 0xFFFFFFFF, s) | shape << 32], axis=1)


def deal(
    slices: Slices,
    height: int,
    segment_groups: int,
    block_warps: int,
    entries_per_thread: int,
    backend: Backend,
) -> Teams:
    """Teams for `slices`; `block_warps` and `entries_per_thread` may be AUTOMATIC."""
    xp = backend.xp
    groups = xp.diff(slices.offsets) // height
    ell_groups, segments = groups[: slices.nell], groups[slices.nell :]
    # the segments of a split row count as whole ones: so the size of teams grows with the row
    segments = xp.where(slices.segments[:, 1] > 1, segment_groups, segments)
    ell, long = (backend.to_host(xp.bincount(g)) if g.size else np.zeros(1, np.int64) for g in (ell_groups, segments))
    if not entries_per_thread and not backend.resident_threads:
        entries_per_thread = max(ell.size, long.size)  # a warp has a slice
    elif not entries_per_thread:
        entries_per_thread = automatic_entries(ell, long, block_warps, backend.resident_threads // height // 2)
    most = block_warps or most_warps(entries_per_thread)
    sizes = [team_sizes(h.size, entries_per_thread, most) for h in (ell, long)]
    largest = max(int(size[h > 0].max(initial=1)) for size, h in zip(sizes, (ell, long), strict=True))
    return Teams(
        block_warps or max(FEWEST_WARPS, largest),
        entries_per_thread,
        classes(segments, long, sizes[1], slices.nell, xp),
        classes(ell_groups, ell, sizes[0], 0, xp),
    )


def automatic_entries(ell: np.ndarray, long: np.ndarray, block_warps: int, resident_warps: int) -> int:
    """Entries per thread for slices of which ell[w] and long[w] are w groups wide."""
    for entries in ENTRIES_PER_THREAD:
        most = block_warps or most_warps(entries)
        warps = sum(int(h @ team_sizes(h.size, entries, most)) for h in (ell, long))
        if warps <= resident_warps:
            return entries
    return ENTRIES_PER_THREAD[-1]


def most_warps(entries_per_thread: int) -> int:
    """Warps of a block at most: large blocks serve short times, small ones fill the device more evenly."""
    return max(FEWEST_WARPS, min(MOST_WARPS, 128 // entries_per_thread))


def team_sizes(nwidths: int, entries_per_thread: int, most: int) -> np.ndarray:
    """(nwidths,) powers of two: warps for slices of 0, 1, 2, ... groups, `entries_per_thread` groups each or `most`."""
    wanted = np.arange(nwidths) / entries_per_thread
    return 2 ** np.clip(np.ceil(np.log2(np.maximum(wanted, 1))), 0, np.log2(most)).astype(np.int64)


def classes(groups: Any, histogram: np.ndarray, sizes: np.ndarray, first: int, xp: Any) -> list[TeamClass]:
    """Slices from `first` on, `groups` wide, by the size of their teams, largest first; the last of each class first.

    histogram[w] slices are w groups wide and have teams of sizes[w] warps, which grow with w.
    """
    teams = np.unique(sizes[histogram > 0])[::-1]
    if teams.size == 1:
        return [TeamClass(xp.arange(first + groups.size - 1, first - 1, -1), int(teams[0]))]
    found = []
    for team in teams:
        widths = np.flatnonzero(sizes == team)
        inside = (groups >= int(widths[0])) & (groups <= int(widths[-1]))
        found.append(TeamClass(xp.flatnonzero(inside)[::-1] + first, int(team)))
    return found
