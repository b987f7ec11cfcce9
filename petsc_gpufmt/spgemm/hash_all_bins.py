"""The symbolic phase of hashing in a product of few rows: launches for all bins that there may be.

How many rows are in which bin only the device knows when lengths are found: a wait for that would take longer than
launches without rows. Columns are found by the kernels that have some. Rows so few that the device runs a block for
each at once are not sorted: one launch has them all.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.plan import ceil_div
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.spgemm.census import BLOCK_THREADS, BY_WORDS, WORD_BINS, Operands
from petsc_gpufmt.spgemm.hash_shapes import (
    BLOCK_TEAM,
    SHAPES,
    SMALLEST_TABLES,
    TEAMS_OF_BINS,
    TEAMS_OF_TABLES,
    WORDS,
)

STEM = "spgemm/hash_symbolic"


class KernelOfBins(NamedTuple):
    """What makes the rows of the bins from `first` to `last`.

    Attributes
    ----------
    team : threads a row; 0 for tables, of which a block has as many rows as the bins say
    rows_a_block : of tables, in the first bin
    """

    kind: str
    template: tuple[int, ...]
    threads: int
    first: int
    last: int
    team: int
    rows_a_block: int


def kernels_of_bins(largest_words: int, first: int) -> list[KernelOfBins]:
    """Kernels for all rows of the bins from `first` on.

    `largest_words` is an index of SHAPES whose tables can all share a launch.
    """
    found: list[KernelOfBins] = []
    for number in range(first, SMALLEST_TABLES + 1):
        shape = SHAPES[largest_words][WORD_BINS.bounds[number]]
        if shape.kind == "table":
            kernel = KernelOfBins("tables", (), shape.threads, number, number, 0, TEAMS_OF_TABLES[shape.slots])
        else:
            template = (shape.team, *shape.sizes)
            kernel = KernelOfBins(shape.kind, template, shape.threads, number, number, shape.team, 0)
        if found and (found[-1].kind, found[-1].template) == (kernel.kind, kernel.template):
            found[-1] = found[-1]._replace(last=number)
        else:
            found.append(kernel)
    return found


class Programs(NamedTuple):
    """Both are given the same at first, then their results, and at last counts, first and last bin of each kernel."""

    kernels: list[KernelOfBins]
    lengths: Program
    columns: Program


def kernel_of_all(largest_words: int) -> KernelOfBins:
    """A block for each row."""
    kind, team, sizes, threads, _ = SHAPES[largest_words][None]
    return KernelOfBins(kind, (team, *sizes), threads, 0, SMALLEST_TABLES, team, 0)


@functools.cache
def programs(largest_words: int, first: int | None) -> Programs:
    """Those for the rows from bin `first` on, sorted before their lengths are found; None: a block for each row."""
    kernels = [kernel_of_all(largest_words)] if first is None else kernels_of_bins(largest_words, first)
    binned = [f"counts{number} first{number} last{number}" for number in range(len(kernels))]

    def steps(operation: str, results: str) -> Iterator[Step]:
        for kernel, members in zip(kernels, binned, strict=True):
            arguments = f"{{{members}}} order A_rowptr A_colidx B_rowptr ends words {results}"
            if kernel.kind == "bitmap":
                arguments = f"nrows nwords {arguments} none"  # memory is given on the host alone
            yield Step(STEM, f"spgemm_hash_{kernel.kind}_{operation}", kernel.template, kernel.threads, arguments)

    given, of_kernels = "nrows nwords order A_rowptr A_colidx B_rowptr ends words none", " ".join(binned)
    sorted_rows = "nrows sizes none largest nbins control order"
    sort = [] if first is None else [Step("spgemm/hash", "spgemm_hash_sort_rows", (0,), BLOCK_THREADS, sorted_rows)]
    return Programs(
        kernels,
        Program(f"{given} sizes control largest nbins {of_kernels}", *sort, *steps("lengths", "sizes")),
        Program(f"{given} rowptr colidx {of_kernels}", *steps("columns", "rowptr colidx")),
    )


class AllBins:
    """The rows of C. `operands` have words; their census is known when columns are found."""

    def __init__(self, operands: Operands, backend: Backend, nwords: int):
        words, A, B = operands.words, operands.A, operands.B
        assert words is not None
        self.words, self.backend, self.nrows = words, backend, A.nrows
        self.sorted = A.nrows * BLOCK_TEAM > backend.resident_threads
        most = operands.longest_left * min(operands.longest_right, nwords)
        first = sum([most <= bound for bound in WORD_BINS.bounds[1 : SMALLEST_TABLES + 1] if bound])
        self.programs = programs(bisect_left(WORDS, nwords), first if self.sorted else None)
        counts, order = words.control[BY_WORDS:], words.order if self.sorted else None
        self.binned = [a for kernel in self.programs.kernels for a in (counts, kernel.first, kernel.last)]
        self.given = (A.nrows, nwords, order, A.rowptr, A.colidx, B.rowptr, words.ends, words.words, None)

    def lengths(self) -> Any:
        """(nrows of C,) int64, queued."""
        nrows, words, resident = self.nrows, self.words, self.backend.resident_threads
        blocks = [ceil_div(nrows, BLOCK_THREADS)] if self.sorted else []
        for kernel in self.programs.kernels:
            if kernel.team:
                in_turns = min(ceil_div(nrows * kernel.team, kernel.threads), resident // kernel.threads)
                blocks.append(max(1, in_turns))
            else:
                blocks.append(ceil_div(nrows, kernel.rows_a_block) + kernel.last - kernel.first)
        given = (*self.given, words.sizes, words.control, *WORD_BINS.arguments, *self.binned)
        self.backend.carry_out(self.programs.lengths, blocks, given)
        return words.sizes

    def columns(self, rowptr: Any, colidx: Any) -> None:
        """Fill `colidx`, queued, now that the census is known."""
        census = self.words.census
        assert census is not None
        blocks = []
        for kernel in self.programs.kernels:
            bins = range(kernel.first, kernel.last + 1)
            if kernel.team:
                blocks.append(ceil_div(sum([census[number][0] for number in bins]) * kernel.team, kernel.threads))
            else:
                blocks.append(sum([ceil_div(census[number][0], TEAMS_OF_BINS[number]) for number in bins]))
        self.backend.carry_out(self.programs.columns, blocks, (*self.given, rowptr, colidx, *self.binned))
