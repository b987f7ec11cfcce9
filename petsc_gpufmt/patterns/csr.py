"""The compressed sparse row pattern that every format is built from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from petsc_gpufmt.backends.backend import Backend
from petsc_gpufmt.backends.kernel_modules import Instance, compiled_ahead
from petsc_gpufmt.backends.plan import Launch, Slot, ceil_div, launch_1d
from petsc_gpufmt.errors import PatternError

CHECK_THREADS, CHECKS_A_THREAD = 256, 4
SLICE_HEIGHT = 32  # of the slices whose padding is counted: a warp of a device
LENGTH_BINS = 12  # rows of 0, 1, 2, 3-4, 5-8, ..., 257-512 entries, and of more
FAULTS, COUNTS = 3, 5 + LENGTH_BINS  # fields of CsrFound in kernels/patterns/csr.cu
GATHER_THREADS, VALUES_A_THREAD = 256, 4
WORD_BYTES = 4  # of which entries of any kind are gathered
INT64 = np.dtype(np.int64)


class RowCounts(NamedTuple):
    """What is known of the lengths of rows, without looking at them again.

    Attributes
    ----------
    longest : entries of the longest row
    sliced_entries : entries with padding in slices of SLICE_HEIGHT rows, in the order of the matrix
    descends : whether a row is longer than the next
    padding : of rows of more than 64 entries to multiples of SLICE_HEIGHT, and of rows of more than 128
    lengths : rows of 0, 1, 2, 3-4, 5-8, ..., 257-512 entries, and of more
    """

    longest: int
    sliced_entries: int
    descends: bool
    padding: tuple[int, int]
    lengths: tuple[int, ...]

    @property
    def nonempty_rows(self) -> int:
        return sum(self.lengths[1:])


@dataclass(slots=True)
class CsrPattern:
    """Pattern of an ``nrows`` x ``ncols`` sparse matrix; values are kept apart. It is never changed.

    Attributes
    ----------
    rowptr : (nrows + 1,) integer array of a backend
    colidx : (nnz,) integer array; columns of a row may come in any order and may repeat (repeated entries add up)
    source : (nnz,) integer array or None
        Where entry k finds its value in the array of values; None means at k.
    row_block, col_block : block sizes that the application has set for rows and columns (MatSetBlockSizes), 1 if none
    longest : entries of the longest row, None if not known
    counts : RowCounts of the rows, None if not known
    """

    nrows: int
    ncols: int
    rowptr: Any
    colidx: Any
    source: Any = None
    row_block: int = 1
    col_block: int = 1
    longest: int | None = None
    counts: Any = None

    @property
    def nnz(self) -> int:
        return int(self.colidx.size)

    def validated(self, backend: Backend) -> CsrPattern:
        """The pattern with its longest row and its counts known, as `validated_patterns`. Waits for the device."""
        return validated_patterns([self], backend)[0]

    def counted(self, backend: Backend) -> tuple[CsrPattern, RowCounts]:
        """The pattern with its counts, and these. Waits for the device if they are not known."""
        known = self if self.counts else self.validated(backend)
        return known, known.counts


def validated_patterns(patterns: Sequence[CsrPattern], backend: Backend) -> list[CsrPattern]:
    """At most 25 patterns with their longest rows and their counts known. Waits for the device once, unless all are.

    Raises PatternError if a row pointer decreases or a column lies outside its matrix.
    """
    words, unknown = FAULTS + COUNTS, [p for p in patterns if p.counts is None]
    if not unknown:
        return list(patterns)
    (found,) = backend.empty((words * len(unknown), INT64), zeros=1)
    checks = []
    for number, p in enumerate(unknown):
        if p.rowptr.size != p.nrows + 1:
            raise _wrong_ends(p)
        threads = backend.in_turns(max(1, ceil_div(max(p.nrows, p.nnz), CHECKS_A_THREAD)))
        function = backend.function("patterns/csr", "csr_check", (CHECK_THREADS,))
        arguments = (p.nrows, p.ncols, p.nnz, p.rowptr, p.colidx, found[words * number : words * (number + 1)])
        checks.append(launch_1d(function, threads, CHECK_THREADS, arguments))
    backend.run(checks)
    counters = backend.first(found, words * len(unknown))  # waits for the device
    looked_at = (_as_found(p, counters[words * k : words * (k + 1)], backend) for k, p in enumerate(unknown))
    return [p if p.counts is not None else next(looked_at) for p in patterns]


def _as_found(pattern: CsrPattern, found: list[int], backend: Backend) -> CsrPattern:
    ends, decreases, outside, longest, sliced, descends, padding, padding_of_longer, *lengths = found
    if ends:
        raise _wrong_ends(pattern)
    if decreases:
        raise PatternError("row pointer decreases: assemble the matrix before multiplying")
    if outside:
        columns = backend.to_host(pattern.colidx)
        raise PatternError(
            f"column indices lie in [{columns.min()}, {columns.max()}], the matrix has {pattern.ncols} columns"
        )
    counts = RowCounts(longest, sliced, bool(descends), (padding, padding_of_longer), tuple(lengths))
    return replace(pattern, longest=longest, counts=counts)


def _wrong_ends(pattern: CsrPattern) -> PatternError:
    return PatternError(
        f"row pointer of a {pattern.nrows} x {pattern.ncols} matrix "
        f"must run from 0 to {pattern.nnz} in {pattern.nrows + 1} entries"
    )


def gather_values(backend: Backend, nnz: int, source: Any, values: Any, gathered: Any) -> Launch:
    """gathered[k] = values[source[k]], or values[k] if `source` is None, for `nnz` > 0 entries k.

    `values` and `gathered` are arrays of scalars, or the slots that stand for them.
    """
    function = backend.function("patterns/csr", "csr_gather_values", (GATHER_THREADS, VALUES_A_THREAD))
    arguments = (backend.index.type(nnz), source, values, gathered)
    return launch_1d(function, ceil_div(nnz, VALUES_A_THREAD), GATHER_THREADS, arguments)


def gather_indices(backend: Backend, indices: Any, places: Any) -> np.ndarray:
    """indices[places] on the host, for (n,) places there, or on the backend in its index type. Waits for the device."""
    (gathered,) = backend.empty((places.size, backend.index))
    if isinstance(places, np.ndarray):
        places = backend.adopt(places.astype(backend.index, copy=False))
    backend.run(_gather(backend, places, np.int64(backend.index.itemsize // WORD_BYTES), indices, gathered))
    return backend.to_host(gathered)


def plan_gather(places: Any, backend: Backend) -> list[Launch]:
    """Launches for RESULT[k] = A_VALUES[places[k]]: entries of any kind, of ALPHA words of 32 bits each, an int64.

    `places` is an (n,) array of the backend's index type.
    """
    return _gather(backend, places, Slot.ALPHA, Slot.A_VALUES, Slot.RESULT)


def _gather(backend: Backend, places: Any, words: Any, entries: Any, gathered: Any) -> list[Launch]:
    if not places.size:
        return []
    function = backend.function("patterns/csr", "csr_gather_entries", (GATHER_THREADS,))
    arguments = (np.int64(places.size), places, words, entries, gathered)
    return [launch_1d(function, places.size, GATHER_THREADS, arguments)]


@compiled_ahead("patterns/csr")
def default_kernels() -> Iterator[list[Instance]]:
    """All kernels of the file."""
    gather = [("csr_gather_values", (GATHER_THREADS, VALUES_A_THREAD)), ("csr_gather_entries", (GATHER_THREADS,))]
    yield [("csr_check", (CHECK_THREADS,)), *gather]
