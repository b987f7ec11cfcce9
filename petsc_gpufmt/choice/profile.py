"""What the choice of a format needs to know about a pattern: the counts of its rows, and a sample of a large one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.choice.sample import LEAST_BLOCK_SEARCH_ENTRIES, Sample, find_blocks
from petsc_gpufmt.formats.bsr.bsr import LARGEST_BLOCK
from petsc_gpufmt.formats.bsr.layout import Blocks, count_blocks, entries_of
from petsc_gpufmt.formats.common.known import NOTHING, Known
from petsc_gpufmt.formats.common.row_patterns import NoRowPatternsError, RowPatterns, may_be_few
from petsc_gpufmt.formats.pjds import FEW_ENTRIES
from petsc_gpufmt.patterns.csr import SLICE_HEIGHT, CsrPattern

# Rows that EVC-HYB stores apart are longer.
LONG_ROW = 128
# An interpolation has at least so many times as many rows as columns, or the reverse, and at most such a share of empty
# rows. Most rows of a block that joins the unknowns of two ranks are empty.
INTERPOLATION_RATIO, INTERPOLATION_EMPTY = 2, 0.5
# Share of its entries that a block must have: with fewer, padding outweighs what the indices save.
LEAST_BLOCK_FILL = 0.7


@dataclass(frozen=True)
class Profile:
    """Sizes and regularity of a pattern.

    Attributes
    ----------
    nrows, ncols, nnz : as in CSR
    longest, empty_rows : entries of the longest row, and how many rows have none
    sliced_entries : entries with padding in slices of 32 rows, in the order of the matrix
    sorted_entries : the most that they may be if all rows are sorted by length
    long_rows : rows of more than 128 entries
    lengths : rows of 0, 1, 2, 3-4, 5-8, ... entries
    block_shape, block_fill : rows and columns of dense blocks, 1 x 1 if none; share of their entries that exist, in all
        rows where columns ascend
    npatterns : different rows, as columns relative to the row; 0 if there are too many for a table
    short_slices : share of slices (by entries) whose columns fit 16 bits, from a sample
    short_rows : whether this holds for all rows of the sample
    sectors : pieces of 32 bytes of x that about a hundred neighbouring rows read, for each of their entries
    sampled : whether blocks, short columns and sectors were looked for
    known : what was found on the way, for the format that is chosen

    Where entries are few, the counts of the rows decide: row patterns are not looked for, nor blocks that the matrix
    does not tell; blocks that it tells are counted. So it is with interpolations, whose products are few. Where there
    are row patterns, nothing saves more, and the others are not looked for.
    """

    nrows: int
    ncols: int
    nnz: int
    longest: int = 0
    empty_rows: int = 0
    sliced_entries: int = 0
    sorted_entries: int = 0
    long_rows: int = 0
    lengths: tuple[int, ...] = ()
    block_shape: tuple[int, int] = (1, 1)
    block_fill: float = 1.0
    npatterns: int = 0
    short_slices: float = 1.0
    short_rows: bool = True
    sectors: float = 0.0
    sampled: bool = False
    known: Known = field(default=NOTHING, compare=False)

    @property
    def mean(self) -> float:
        """Mean row length."""
        return self.nnz / max(1, self.nrows)

    @property
    def spread(self) -> float:
        """The longest row as a multiple of the mean."""
        return self.longest / self.mean if self.nnz else 1.0

    @classmethod
    def of(cls, csr: CsrPattern, backend: Backend) -> Profile:
        """The profile of a pattern on `backend`. Waits for the device if its rows are not counted, or it is large."""
        if not csr.nnz:
            return cls(csr.nrows, csr.ncols, 0, empty_rows=csr.nrows)
        csr, counts = csr.counted(backend)
        longest, sliced, lengths = counts.longest, counts.sliced_entries, counts.lengths
        facts: dict[str, Any] = {}
        blocks = None
        looked_at = csr.nnz >= least_looked_at(backend)
        patterns = find_patterns(csr, longest, backend) if looked_at and may_be_few(csr) else None
        sampled = looked_at and not patterns and not interpolates(csr, lengths[0])
        if patterns:
            facts["npatterns"] = patterns.npatterns
        elif sampled:
            sample = Sample.of(csr, backend)
            facts["block_shape"], facts["block_fill"], blocks = whole_blocks(csr, *find_blocks(csr, sample), backend)
            facts["short_slices"], facts["short_rows"] = sample.short_columns(csr.ncols)
            facts["sectors"] = sample.sectors(backend.scalar.itemsize)
        elif blocks := told_blocks(csr, lengths, backend):
            facts["block_shape"], facts["block_fill"] = blocks.shape, fill_of(csr, blocks)
        return cls(
            csr.nrows,
            csr.ncols,
            csr.nnz,
            longest,
            lengths[0],
            sliced,
            min(sliced, csr.nnz + SLICE_HEIGHT * longest),  # where a slice ends, the next begins
            sum(lengths[LONG_ROW.bit_length() + 1 :]),
            lengths,
            **{"short_slices": 0.0, "short_rows": False, "sampled": sampled, **facts},
            known=Known(looked_at, patterns, blocks),
        )

    def describe(self) -> str:
        """One line: the rows."""
        if not self.nnz:
            return "no entries"
        spread = f"at most {self.longest}, {self.spread:.3g} times the mean"
        return f"{self.mean:.3g} entries a row, {spread}"


def least_looked_at(backend: Backend) -> int:
    """Entries from which row patterns, blocks and short columns are looked for.

    With fewer, no format saves bytes of columns; a device waits for memory more than it moves bytes, up to where blocks
    pay that the matrix does not tell of.
    """
    return FEW_ENTRIES if backend.name == "host" else LEAST_BLOCK_SEARCH_ENTRIES


def interpolates(pattern: Any, empty_rows: int) -> bool:
    """Whether a pattern, or a profile, has the shape of an interpolation between two levels, or of its transpose."""
    longer, shorter = max(pattern.nrows, pattern.ncols), min(pattern.nrows, pattern.ncols)
    return longer >= INTERPOLATION_RATIO * shorter and empty_rows <= INTERPOLATION_EMPTY * pattern.nrows


def find_patterns(csr: CsrPattern, longest: int, backend: Backend) -> RowPatterns | None:
    """The patterns of the rows in their order; None if there are too many for a table. Waits for the device."""
    try:
        return RowPatterns.find(csr, longest, None, backend)
    except NoRowPatternsError:
        return None


def whole_blocks(
    csr: CsrPattern, shape: tuple[int, int], fill: float, backend: Backend
) -> tuple[tuple[int, int], float, Blocks | None]:
    """Blocks that a sample has shown, counted in all rows: others may have none. Waits for the device if it has some.

    The shape, the share of their entries that exists, and the blocks; those of the sample, and None, where columns do
    not ascend or blocks are too large to be stored.
    """
    if shape == (1, 1) or max(shape) > LARGEST_BLOCK:
        return shape, fill, None
    (blocks,) = count_blocks(entries_of(csr), [shape], backend)  # waits for the device
    return (shape, fill, None) if blocks.out_of_order else (shape, fill_of(csr, blocks), blocks)


def fill_of(csr: CsrPattern, blocks: Blocks) -> float:
    """Share of the entries of blocks that exist."""
    return csr.nnz / (blocks.nblocks * blocks.row_block * blocks.col_block)


def told_blocks(csr: CsrPattern, lengths: tuple[int, ...], backend: Backend) -> Blocks | None:
    """The blocks of the sizes that the matrix tells, if as many of their entries exist as pay on a device.

    Waits for the device, unless the lengths of the rows say that too few can: rows of an interpolation that has the
    same weight for all unknowns of a point have one entry in each block.
    """
    shape = (min(csr.row_block, LARGEST_BLOCK), min(csr.col_block, LARGEST_BLOCK))
    if shape == (1, 1) or backend.name == "host" or csr.nnz < LEAST_BLOCK_FILL * least_in_blocks(lengths, shape[1]):
        return None
    (blocks,) = count_blocks(entries_of(csr), [shape], backend)  # waits for the device
    stored = blocks.nblocks * blocks.row_block * blocks.col_block
    return None if blocks.out_of_order or csr.nnz < LEAST_BLOCK_FILL * stored else blocks


def least_in_blocks(lengths: tuple[int, ...], col_block: int) -> int:
    """The fewest entries that blocks of so many columns can have, for rows of 1, 2, 3-4, 5-8, ... entries."""
    shortest = (0, 1, *(2**k + 1 for k in range(len(lengths) - 2)))
    return sum(rows * ceil_div(least, col_block) * col_block for rows, least in zip(lengths, shortest, strict=True))
