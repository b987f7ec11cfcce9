"""What a symbolic phase counts: terms and words of the rows of C = A B, their lengths, and how many rows are alike.

Kernels add to one array of counters (`Control` in kernels/spgemm/census.cuh), of which a product reads the beginning
when the operands are counted, and when the lengths of C's rows are; for `uncounted` operands that is one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import WARP, Launch, ceil_div, launch_1d, power_of_two
from petsc_gpufmt.backends.program import Program, Step
from petsc_gpufmt.errors import IndexOverflowError, OutOfMemoryError, PatternError
from petsc_gpufmt.patterns import scan
from petsc_gpufmt.patterns.csr import CsrPattern

BLOCK_THREADS = 256
FEW_ROWS = 1 << 17  # whose prefix sum is rather spread over the device than done by few blocks
COUNT, WORD = np.dtype(np.int64), np.dtype(np.uint64)  # a word: 32 bits for columns below its number

# Places in the array of counters, and how many of them there are
MOST_BINS = 16
TERMS, MOST_TERMS, LONGEST_LEFT, LONGEST_RIGHT, FALLS, NNZ, LONGEST, CARRIED = range(8)
BY_WORDS = 9
BY_LENGTH = BY_WORDS + 3 * MOST_BINS
PARTS = BY_LENGTH + 3 * MOST_BINS
CURSORS = PARTS + MOST_BINS
COUNTERS = CURSORS + 3 * MOST_BINS


@dataclass(frozen=True)
class Bins:
    """Sizes that are told apart: above `largest`, up to it, up to half of it, ...; `count` of them, and empty rows."""

    largest: int
    count: int

    @cached_property
    def arguments(self) -> tuple[int, int]:
        """What kernels take."""
        return self.largest, self.count + 2

    @cached_property
    def bounds(self) -> tuple[int | None, ...]:
        """The largest size in each bin; None if any is."""
        return None, *(ceil_div(self.largest, 2**halvings) for halvings in range(self.count)), 0


# By words of B that meet a row of A, and by entries of a row of C
WORD_BINS, LENGTH_BINS = Bins(6144, 9), Bins(500, 6)


ROW_POINTER = {
    rows: Program(
        names := "nrows lengths terms A_rowptr largest nbins rowptr control carried",
        Step("spgemm/census", "spgemm_row_pointer", (rows,), scan.SCAN_THREADS, names),
    )
    for rows in (2, 8)
}


@dataclass(slots=True)
class Words:
    """The rows of a right factor as words of 32 columns.

    Attributes
    ----------
    words : (nnz,) WORD, those of row k from rowptr[k] on
    ends : (nrows,) index, where they end
    sizes : (nrows of C,) int64, words that meet each row of A
    order : (nrows of C,) index, room for the rows in order of their bins
    control : counters that have the census
    census : rows, words and entries of A, for each of WORD_BINS; None as long as the host does not know it
    """

    words: Any
    ends: Any
    sizes: Any
    order: Any
    control: Any
    census: list[tuple[int, int, int]] | None = None


@dataclass
class Operands:
    """The factors of one product C = A B on one rank, counted; their arrays live on the backend.

    Attributes
    ----------
    A, B : values are in the order of the patterns (no `source`)
    terms : (A.nrows,) int64; products a_ik b_kj that each row of C sums: the lengths of B's rows, over the row of A;
        None once the lengths of C's rows are known
    lengths : (A.nrows,) int64, room for the lengths of C's rows; None as above
    rowptr : (A.nrows + 1,) index, room for C's row pointer
    control : counters, which go on counting
    total_terms, most_terms : sum of `terms`, and the largest of them
    longest_left, longest_right : the largest row length of A, and of the rows of B that A's entries meet; before they
        are counted, no less than these
    rises : whether the columns of each row of B are sorted and do not repeat, as a product needs them
    counted : whether the host knows terms and `rises` already, or only with the lengths of C's rows
    words : B in words if these were asked for, until C's columns are known
    """

    A: CsrPattern
    B: CsrPattern
    terms: Any
    lengths: Any
    rowptr: Any
    control: Any
    total_terms: int = 0
    most_terms: int = 0
    longest_left: int = 0
    longest_right: int = 0
    rises: bool = True
    counted: bool = True
    words: Words | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of what is counted."""
        words = () if self.words is None else (self.words.words, self.words.ends, self.words.order)
        return sum([a.nbytes for a in (self.terms, self.lengths, self.control, *words) if a is not None])


@dataclass(slots=True)
class ResultRows:
    """The rows of C.

    Attributes
    ----------
    rowptr : (nrows + 1,) index
    nnz, longest : entries of C, and of its longest row
    census : rows, terms and entries of A, for each of LENGTH_BINS
    parts : parts of LENGTH_BINS.largest entries into which longer rows are cut
    control : the counters
    carried : the number that was to be read with the counters; None if none was, or these have not been read
    """

    rowptr: Any
    nnz: int
    longest: int
    census: list[tuple[int, int, int]]
    parts: int
    control: Any
    carried: int | None = None


class UnsortedError(PatternError):
    """The columns of the right factor are not sorted, or repeat."""


def uncounted(A: CsrPattern, B: CsrPattern, backend: Backend) -> Operands:
    """The operands of A B, whose longest rows are known: what finds C's rows counts as well. PatternError as below."""
    check_chain(A, B)
    if not A.nnz or not B.nnz:
        return _nothing(A, B, backend)
    return Operands(A, B, *_room(A, backend), **_longest(A, B), counted=False)


def count_terms(
    A: CsrPattern, B: CsrPattern, backend: Backend, meanwhile: Callable[[], None] | None = None
) -> Operands:
    """The operands of A B, counted; `meanwhile` as for `Backend.first`. PatternError if A and B do not chain."""
    check_chain(A, B)
    if not A.nnz or not B.nnz:
        return _nothing(A, B, backend)
    terms, lengths, rowptr, control = _room(A, backend)
    lanes = power_of_two(A.nnz / A.nrows, 1, WARP)
    function = backend.function("spgemm/census", "spgemm_count_terms", (BLOCK_THREADS, lanes))
    arguments = (A.nrows, A.rowptr, A.colidx, B.nrows, B.rowptr, B.colidx, terms, control)
    backend.run([_in_turns(function, max(A.nrows, B.nrows) * lanes, arguments, backend)])
    totals = _totals(backend.first(control, FALLS + 1, meanwhile))  # waits for the device
    return Operands(A, B, terms, lengths, rowptr, control, **totals)


def _nothing(A: CsrPattern, B: CsrPattern, backend: Backend) -> Operands:
    """The operands of a product without terms."""
    (terms,), (rowptr,) = (backend.empty(a, zeros=1) for a in ((A.nrows, COUNT), (A.nrows + 1, backend.index)))
    return Operands(A, B, terms, None, rowptr, None)


def _room(A: CsrPattern, backend: Backend) -> tuple[Any, Any, Any, Any]:
    """Room for terms, lengths and C's row pointer, and the counters, all 0."""
    require_memory((COUNTERS + tiles(A.nrows) + 2 * A.nrows) * COUNT.itemsize, backend, "the symbolic phase")
    terms, lengths = backend.empty((A.nrows, COUNT), (A.nrows, COUNT))
    return terms, lengths, *_counters(A, backend)


def _counters(A: CsrPattern, backend: Backend) -> tuple[Any, Any]:
    """Room for C's row pointer, and the counters, all 0, which stay as long as that: they are few."""
    control, rowptr = backend.empty((COUNTERS + tiles(A.nrows), COUNT), (A.nrows + 1, backend.index), zeros=1)
    return rowptr, control


def count_words(
    A: CsrPattern, B: CsrPattern, backend: Backend, meanwhile: Callable[[], None] | None = None, *, wait: bool = True
) -> Operands:
    """The operands of A B with B in words, counted; the host knows them only later if it does not `wait`.

    `meanwhile` is as for `Backend.first`.

    PatternError if A and B do not chain; OutOfMemoryError.
    """
    check_chain(A, B)
    if not A.nnz or not B.nnz:
        return _nothing(A, B, backend)
    require_memory(bytes_to_count(A, B, backend), backend, "the symbolic phase")
    index, nrows = backend.index, A.nrows
    rowptr, control = _counters(A, backend)
    terms, sizes, order, words, ends = backend.empty(
        (nrows, COUNT),
        (nrows, COUNT),
        (nrows, index),
        (B.nnz, WORD),
        (B.nrows, index),
    )
    of_b, of_a = power_of_two(B.nnz / B.nrows, 2, WARP), power_of_two(A.nnz / nrows, 2, WARP)
    blocks = ceil_div(B.nrows * of_b, BLOCK_THREADS), ceil_div(backend.in_turns(nrows * of_a), BLOCK_THREADS)
    given = (nrows, A.rowptr, A.colidx, B.nrows, B.rowptr, B.colidx, words, ends, *WORD_BINS.arguments, terms, sizes)
    backend.carry_out(words_program(of_b, of_a), blocks, (*given, control))
    words_of_b = Words(words, ends, sizes, order, control)
    if not wait:
        return Operands(A, B, terms, sizes, rowptr, control, **_longest(A, B), counted=False, words=words_of_b)
    counters = backend.first(control, BY_LENGTH, meanwhile)  # waits for the device
    words_of_b.census = _census(counters, BY_WORDS, WORD_BINS)
    return Operands(A, B, terms, sizes, rowptr, control, words=words_of_b, **_totals(counters))


def bytes_to_count(A: CsrPattern, B: CsrPattern, backend: Backend) -> int:
    """Bytes that `count_words` takes."""
    words = B.nnz * WORD.itemsize + (A.nrows + B.nrows) * backend.index.itemsize
    return (COUNTERS + tiles(A.nrows) + 2 * A.nrows) * COUNT.itemsize + words


def row_pointer(
    lengths: Any,
    operands: Operands,
    backend: Backend,
    carried: Any = None,
    meanwhile: Callable[[], None] | None = None,
) -> ResultRows:
    """The rows of C, of `lengths` (nrows,) int64; None without terms. Then at the latest the operands are counted.

    `carried`, (1,) uint64 or None, is a number that the host is to know after the same wait; `meanwhile` is as for
    `Backend.first`.

    IndexOverflowError if nnz does not fit the index type; UnsortedError.
    """
    nrows = operands.A.nrows
    rowptr, control = operands.rowptr, operands.control
    if lengths is None:
        backend.clear(rowptr)
        return ResultRows(rowptr, 0, 0, [], 0, control)
    at_once = rows_a_thread(nrows)
    given = (nrows, lengths, operands.terms, operands.A.rowptr, *LENGTH_BINS.arguments, rowptr, control, carried)
    backend.carry_out(ROW_POINTER[at_once], (scan.tiles(nrows, at_once),), given)
    counters = backend.first(control, CURSORS, meanwhile)  # waits for the device
    census = _census(counters, BY_LENGTH, LENGTH_BINS)
    if not operands.counted:
        _learn(operands, counters, census)
        check_sorted(operands)
    nnz = counters[NNZ]
    if nnz > backend.largest_index:
        raise IndexOverflowError(
            f"the result has {nnz} entries, a PetscInt of {8 * backend.index.itemsize} bits counts "
            f"{backend.largest_index}: use more ranks, or a PETSc configured with --with-64-bit-indices"
        )
    known = None if carried is None else counters[CARRIED]
    return ResultRows(rowptr, nnz, counters[LONGEST], census, sum(counters[PARTS:CURSORS]), control, known)


def _learn(operands: Operands, counters: list[int], census: list[tuple[int, int, int]]) -> None:
    """What the operands are, now that the host has the counters; `census` is that of C's rows."""
    operands.counted = True
    if operands.words is None:  # what merged them has counted the terms of rows alone
        operands.total_terms, operands.rises = sum([terms for _, terms, _ in census]), not counters[FALLS]
        return
    operands.words.census = _census(counters, BY_WORDS, WORD_BINS)
    operands.total_terms, operands.most_terms = counters[TERMS], counters[MOST_TERMS]
    operands.longest_left, operands.longest_right = counters[LONGEST_LEFT], counters[LONGEST_RIGHT]
    operands.rises = not counters[FALLS]


def check_chain(A: CsrPattern, B: CsrPattern) -> None:
    """Raise PatternError if A B is not defined."""
    if A.ncols != B.nrows:
        raise PatternError(f"a {A.nrows} x {A.ncols} matrix cannot be multiplied by one of {B.nrows} x {B.ncols}")


def check_sorted(operands: Operands) -> None:
    """Raise UnsortedError if it is known that the product needs B sorted first."""
    if not operands.rises:
        raise UnsortedError("the columns of the right factor are not sorted, or repeat")


def require_memory(needed: int, backend: Backend, what: str) -> None:
    """Raise OutOfMemoryError if `needed` bytes are more than are free."""
    if backend.keeps(needed):
        return
    free = backend.free_bytes()
    if free is not None and needed > free:
        raise OutOfMemoryError(
            f"{what} needs {needed / 1e9:.3g} GB on the device, {free / 1e9:.3g} GB are free: use more ranks or GPUs"
        )


def tiles(nrows: int) -> int:
    """Blocks of the prefix sum over rows."""
    return scan.tiles(nrows, rows_a_thread(nrows))


@functools.cache
def words_program(of_b: int, of_a: int) -> Program:
    """B in words, and a census of the rows of A B by these; each row by so many threads."""
    return Program(
        "nrows A_rowptr A_colidx B_nrows B_rowptr B_colidx words ends largest nbins terms sizes control",
        Step(
            "spgemm/hash",
            "spgemm_hash_words",
            (of_b,),
            BLOCK_THREADS,
            "B_nrows B_rowptr B_colidx words ends control",
        ),
        Step(
            "spgemm/hash",
            "spgemm_hash_count_words",
            (of_a,),
            BLOCK_THREADS,
            "nrows A_rowptr A_colidx B_rowptr ends largest nbins terms sizes control",
        ),
    )


def rows_a_thread(nrows: int) -> int:
    """Of the prefix sum."""
    return 2 if nrows <= FEW_ROWS else 8


def _in_turns(function: int, threads: int, arguments: tuple, backend: Backend) -> Launch:
    """A launch whose blocks take rows in turns: no more of them than run at once."""
    return launch_1d(function, backend.in_turns(threads), BLOCK_THREADS, arguments)


def teams(fewest: int) -> list[int]:
    """Threads that share a row: powers of two."""
    return [2**k for k in range(WARP.bit_length()) if 2**k >= fewest]


@compiled_ahead("spgemm/census")
def census_kernels() -> Iterator[list[Instance]]:
    """Row pointers of few rows and of many, and terms counted by the threads of a row."""
    yield [("spgemm_row_pointer", (rows,)) for rows in (2, 8)]
    yield [("spgemm_count_terms", (BLOCK_THREADS, lanes)) for lanes in teams(1)]


@compiled_ahead("spgemm/hash")
def words_kernels() -> Iterator[list[Instance]]:
    """Words made and counted, by the threads of a row."""
    yield [(kernel, (team,)) for kernel in ("spgemm_hash_words", "spgemm_hash_count_words") for team in teams(2)]


def _longest(A: CsrPattern, B: CsrPattern) -> dict[str, Any]:
    """Bounds of the row lengths of A and B before they are counted."""
    longest_left, longest_right = A.longest, B.longest
    return {
        "longest_left": A.nnz if longest_left is None else longest_left,
        "longest_right": B.nnz if longest_right is None else longest_right,
    }


def _totals(counters: list[int]) -> dict[str, Any]:
    return {
        "total_terms": counters[TERMS],
        "most_terms": counters[MOST_TERMS],
        "longest_left": counters[LONGEST_LEFT],
        "longest_right": counters[LONGEST_RIGHT],
        "rises": not counters[FALLS],
    }


def _census(counters: list[int], first: int, bins: Bins) -> list[tuple[int, int, int]]:
    fields = iter(counters[first : first + 3 * (bins.count + 2)])
    return list(zip(fields, fields, fields, strict=True))
