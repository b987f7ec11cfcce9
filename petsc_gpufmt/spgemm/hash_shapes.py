"""Which kernel makes the rows of a bin in the symbolic phase of hashing: a table or a bitmap, and of which size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead, in_parts
from petsc_gpufmt.backends.plan import WARP, power_of_two
from petsc_gpufmt.spgemm.census import WORD_BINS, teams

# Rows that are met by at most these numbers of words have tables of 4/3 as many slots
SMALLEST_TABLE, SMALL_TABLE, LARGE_TABLE, LARGEST_TABLE = 24, 96, 384, 1536
TABLES_TOGETHER = (512, 256, 128, 64, 32)  # slots
WARP_BITMAP, BLOCK_BITMAPS = 1024, (1024, 5120, 10240)  # words
BLOCK_TEAM, WARP_WORK = 256, 768  # rows that more words meet are worth a block


class Shape(NamedTuple):
    """How rows of a bin are made in the symbolic phase.

    Attributes
    ----------
    kind : "table" or "bitmap"
    team : threads a row
    sizes : template arguments after the group
    threads : a block
    slots : of a table that may share a launch with others, else 0
    """

    kind: str
    team: int
    sizes: tuple[int, ...]
    threads: int
    slots: int


def shape_for(bound: int | None, largest_table: int, nwords: int, in_ranges: int) -> Shape:
    """For rows that at most `bound` words meet; see SHAPES."""
    if bound is not None and bound <= largest_table:
        slots = power_of_two(bound * 4 / 3, 32, 2048)
        team, together = min(max(slots // 8, 8), WARP), slots if slots in TABLES_TOGETHER else 0
        return Shape("table", team, (slots,), 64 if slots > 1024 else 128, together)
    if bound is not None and bound <= WARP_WORK and nwords <= WARP_BITMAP:
        return Shape("bitmap", WARP, (WARP_BITMAP, 0), 128, 0)
    return Shape("bitmap", BLOCK_TEAM, (nwords, in_ranges), BLOCK_TEAM, 0)


# Words of a row of C, up to which SHAPES are the same
WORDS = (WARP_BITMAP // 4, *BLOCK_BITMAPS)
# Bound of a bin -> Shape, for each of WORDS and for more. Which rows are given tables: finding the order in one costs
# its square, a bitmap its length.
SHAPES = tuple(
    {bound: shape_for(bound, largest_table, nwords, in_ranges) for bound in WORD_BINS.bounds}
    for largest_table, nwords, in_ranges in (
        (SMALLEST_TABLE, BLOCK_BITMAPS[0], 0),
        (SMALL_TABLE, BLOCK_BITMAPS[0], 0),
        (LARGE_TABLE, BLOCK_BITMAPS[1], 0),
        (LARGE_TABLE, BLOCK_BITMAPS[2], 0),
        (LARGEST_TABLE, BLOCK_BITMAPS[2], 1),
    )
)


# Rows of tables that share a launch: those of a block, for each bin; the last has the smallest tables
TEAMS_OF_TABLES = {512: 4, 256: 4, 128: 8, 64: 16, 32: 16}
SMALLEST_TABLES = WORD_BINS.count
TEAMS_OF_BINS = dict(enumerate(TEAMS_OF_TABLES.values(), SMALLEST_TABLES - len(TABLES_TOGETHER) + 1))


@compiled_ahead("spgemm/hash_symbolic")
def symbolic_kernels() -> Iterator[list[Instance]]:
    """Each shape of a bin, tables by the threads that share a row of B too; and tables of all sizes together."""
    shapes = {(s.kind, s.team, s.sizes) for by_bound in SHAPES for bound, s in by_bound.items() if bound != 0}
    phases = ("lengths", "columns")
    for kind, team, sizes in sorted(shapes):
        if kind == "bitmap":
            yield [(f"spgemm_hash_bitmap_{phase}", (team, *sizes)) for phase in phases]
            continue
        groups = product([group for group in teams(1) if group <= team], phases)
        yield from in_parts([(f"spgemm_hash_table_{phase}", (team, group, *sizes)) for group, phase in groups], 4)
    yield [(f"spgemm_hash_tables_{phase}", ()) for phase in phases]
