"""Which storage format suits a matrix: a profile of its pattern, and a model of the time of a mult in each format.

The model counts the bytes that a mult moves in each format, as the formats' pages in the documentation do, the
reads of x that rows do not share, and the waits for memory of the thread that has most to do. It has to be right about
what is far slower than the best; among formats that it finds close to each other, `-mat_type gpufmt` measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from petsc_gpufmt.choice.profile import LEAST_BLOCK_FILL, SLICE_HEIGHT, Profile, interpolates
from petsc_gpufmt.formats.evchyb.layout import SMALL_ACCEPTABLE_ROW_PADDING, SMALL_SPLIT_LENGTHS, is_small
from petsc_gpufmt.formats.pjds import is_mostly_empty

if TYPE_CHECKING:
    from petsc_gpufmt.backends.backend import Backend

# What a device moves from memory in a second: an H200. Ratios to the times below are what matters.
BANDWIDTH = 4.0e12
# From the launch of a kernel to its first access, and from the last to the next kernel.
LAUNCH_SECONDS = 2.0e-6
# A read that another one waits for: between the second-level cache and memory.
ACCESS_SECONDS = 0.45e-6
# Reads that wait for each other until x is there. pJDS: where the slice begins, columns, x. EVC-HYB: the task of the
# warp, columns, x. BSR: where the block row begins, block columns, x. Adaptive CSR: the range of the block, the row,
# where it begins, columns, x.
DEPENDENT_READS = {"pjds": 3, "evchyb": 3, "bsr": 3, "csradaptive": 6}
# Share of the bandwidth in practice: short rows of CSR begin anywhere, and their ends leave threads of a warp idle.
EFFICIENCY = {"pjds": 1.0, "evchyb": 0.92, "bsr": 0.95, "csradaptive": 0.8}
# For each sector of x that is read from the second-level cache, over what matrix and vectors take.
SECTOR_SECONDS = {"pjds": 4.0e-12, "evchyb": 3.0e-12, "bsr": 3.0e-12, "csradaptive": 7.0e-12}
# Entries that a thread loads before it uses the first, as in the kernels; then it waits for columns, and for x.
BATCH = {"pjds": 4, "evchyb": 8, "bsr": 4, "csradaptive": 4}
# Share of the waits of the busiest thread in which the others do not move the bytes of their own.
WAITS_NOT_HIDDEN = 0.3
# Threads that pJDS lets share a row: a thread block holds a slice.
MOST_PJDS_THREADS = 32
# Warps that EVC-HYB lets share a slice of its longest rows.
FEWEST_EVCHYB_WARPS, MOST_EVCHYB_WARPS = 4, 16
# Padding that pJDS accepts before it sorts among more rows.
SORTING_LIMIT = 0.03
# EVC-HYB: the longest rows that its ELL part holds; entries to which a longer row is padded.
LONGEST_ELL_ROW, LONG_ROW_PADDING = 128, 32
# In a matrix of so many entries, of which so many need a sector of x of their own, the ELL part holds longer rows:
# rows that are read together share what the first-level cache holds of x.
LARGE_ENTRIES, SCATTERED, SCATTERED_SPLIT = 10_000_000, 0.2, 256
# Adaptive CSR: entries of a thread, and the threads of a block, which share the longest rows.
ADAPTIVE_ENTRIES, ADAPTIVE_THREADS = 8, 256
# A format that the model finds so much slower than the best is not worth a measurement.
WORTH_TIMING = 1.15
MOST_TIMED = 3
# A small matrix takes pJDS unless that is so many times slower, and by so many seconds: the kernels of one more format
# take as long to load as a thousand mults gain then. Blocks are an exception, as all levels of a multigrid method have
# them.
WORTH_LOADING, SECONDS_WORTH_LOADING = 1.15, 1e-6
# An interpolation is multiplied once where the matrix of its level is multiplied so often, and gains so much less.
MULTS_OF_A_LEVEL = 5


@dataclass(frozen=True)
class Candidate:
    """A format for a matrix.

    Attributes
    ----------
    name : of the format
    nbytes : bytes that a mult is to move, which is about what the format holds
    seconds : of a mult, as the model has it
    options : of the format, in place of its defaults
    why : what speaks for it, in words; may be empty
    """

    name: str
    nbytes: float
    seconds: float
    options: dict[str, int] = field(default_factory=dict)
    why: str = ""


def rank(profile: Profile, backend: Backend, bandwidth: float = BANDWIDTH) -> list[Candidate]:
    """All formats that may suit, the fastest by the model first, where a device moves `bandwidth` bytes a second.

    Before it pJDS, if that is about as fast, for a small matrix and for an interpolation.
    """
    candidates = [_pjds(profile, backend, bandwidth), _evchyb(profile, backend, bandwidth)]
    if backend.name == "host":  # a core has no threads to wait for each other: bytes decide
        return sorted(candidates, key=lambda c: c.nbytes)
    candidates.append(_csradaptive(profile, backend, bandwidth))
    if profile.block_shape != (1, 1) and profile.block_fill >= LEAST_BLOCK_FILL:
        candidates.append(_bsr(profile, backend, bandwidth))
    ranked = sorted(candidates, key=lambda c: c.seconds)
    pjds, best = candidates[0], ranked[0]
    interpolation = interpolates(profile, profile.empty_rows)
    gain = SECONDS_WORTH_LOADING * (MULTS_OF_A_LEVEL if interpolation else 1)
    close = max(WORTH_LOADING * best.seconds, best.seconds + gain)
    if best.name != "bsr" and pjds.seconds <= close and (interpolation or is_small(profile, backend)):
        ranked.remove(pjds)
        ranked.insert(0, pjds)
    return ranked


def worth_timing(ranked: list[Candidate]) -> list[Candidate]:
    """The first few candidates, as far as the model finds them close."""
    return [c for c in ranked[:MOST_TIMED] if c.seconds <= WORTH_TIMING * ranked[0].seconds]


def takes_a_launch(candidate: Candidate) -> bool:
    """Whether a mult hardly takes longer than one with hardly an entry: then no format is worth a measurement."""
    return candidate.seconds <= shortest_mult(candidate.name) + LAUNCH_SECONDS / 2


def csr_bytes(profile: Profile, backend: Backend) -> int:
    """Bytes of a mult in CSR: values, columns and row pointer once, x and z once."""
    scalar, index = backend.scalar.itemsize, backend.index.itemsize
    return profile.nnz * (scalar + index) + (profile.nrows + 1) * index + (profile.nrows + profile.ncols) * scalar


def _seconds(name: str, nbytes: float, entries: float, profile: Profile, bandwidth: float) -> float:
    """`entries` are those of the busiest thread, whose waits overlap in part with the traffic of the others."""
    waits = 2 * max(0.0, entries / BATCH[name] - 1) * ACCESS_SECONDS
    traffic = nbytes / bandwidth / EFFICIENCY[name] + profile.nnz * profile.sectors * SECTOR_SECONDS[name]
    return shortest_mult(name) + max(waits, traffic + WAITS_NOT_HIDDEN * waits)


def shortest_mult(name: str) -> float:
    """Seconds of a mult with hardly an entry."""
    return LAUNCH_SECONDS + DEPENDENT_READS[name] * ACCESS_SECONDS


def _vector_bytes(profile: Profile, backend: Backend) -> int:
    return (profile.nrows + profile.ncols) * backend.scalar.itemsize


def _column_bytes(profile: Profile, backend: Backend) -> float:
    """Bytes of the column of an entry in slices: 16 bits, and its share of the base, where these suffice."""
    index = backend.index.itemsize
    if backend.name == "host":
        return index
    return profile.short_slices * (2 + index / SLICE_HEIGHT) + (1 - profile.short_slices) * index


def _pjds(p: Profile, backend: Backend, bandwidth: float) -> Candidate:
    scalar, index = backend.scalar.itemsize, backend.index.itemsize
    filled = p.nrows - p.empty_rows
    if is_mostly_empty(p.nrows, filled):  # they are added to a vector, over these rows alone
        p = replace(p, nrows=filled, empty_rows=0, sliced_entries=p.sorted_entries, npatterns=0)
        return replace(_pjds(p, backend, bandwidth), why=f"{filled} rows with entries")
    sort = p.sliced_entries * (1 - SORTING_LIMIT) > p.nnz
    stored = min(p.sliced_entries, max(p.sorted_entries, p.nnz / (1 - SORTING_LIMIT / 2))) if sort else p.sliced_entries
    columns = stored * _column_bytes(p, backend) if not p.npatterns else p.nrows
    nbytes = stored * scalar + columns + p.nrows * (8 / SLICE_HEIGHT + index * sort) + _vector_bytes(p, backend)
    threads = max(
        1, min(backend.resident_threads / max(1, p.nrows), p.mean / BATCH["pjds"], MOST_PJDS_THREADS)
    )  # of a row
    why = f"{p.npatterns} row patterns" if p.npatterns else f"{1 - p.nnz / stored:.1%} padding" if stored else ""
    return Candidate("pjds", nbytes, _seconds("pjds", nbytes, p.longest / threads, p, bandwidth), why=why)


def _evchyb(p: Profile, backend: Backend, bandwidth: float) -> Candidate:
    scalar, index = backend.scalar.itemsize, backend.index.itemsize
    stored = p.nnz + _rows_stored_along(p, backend) * LONG_ROW_PADDING / 2
    moved = p.spread > 1  # rows of one length need no sorting
    column = index if is_small(p, backend) else _column_bytes(p, backend)
    nbytes = stored * (scalar + column) + p.nrows * (8 / SLICE_HEIGHT + index * moved)
    nbytes += _vector_bytes(p, backend)
    warps = max(FEWEST_EVCHYB_WARPS, min(backend.resident_threads / max(1, p.nrows), MOST_EVCHYB_WARPS))
    why = (
        f"rows of up to {p.longest} entries" if p.longest > LONGEST_ELL_ROW else "rows of every length without padding"
    )
    seconds = _seconds("evchyb", nbytes, min(p.longest, LONGEST_ELL_ROW) / warps, p, bandwidth)
    scattered = p.sectors > SCATTERED and p.long_rows and p.nnz >= LARGE_ENTRIES
    return Candidate("evchyb", nbytes, seconds, {"split_length": SCATTERED_SPLIT} if scattered else {}, why)


def _rows_stored_along(p: Profile, backend: Backend) -> int:
    """Rows of the vCSR part of EVC-HYB: of more than 128 entries, or 64 in a small matrix that this pads little."""
    if not is_small(p, backend):
        return p.long_rows
    longer = sum(p.lengths[SMALL_SPLIT_LENGTHS[1].bit_length() :])
    acceptable = SMALL_ACCEPTABLE_ROW_PADDING * p.nnz
    return longer if longer * LONG_ROW_PADDING / 2 <= acceptable else p.long_rows


def _csradaptive(p: Profile, backend: Backend, bandwidth: float) -> Candidate:
    scalar, index = backend.scalar.itemsize, backend.index.itemsize
    columns = p.nnz * 2 + p.nrows * index if p.short_rows else p.nnz * index
    rows = (p.nrows + 1) * index + p.nrows * index * (p.spread > 1)
    nbytes = p.nnz * scalar + columns + rows + _vector_bytes(p, backend)
    entries = max(ADAPTIVE_ENTRIES, p.longest / ADAPTIVE_THREADS)
    return Candidate(
        "csradaptive", nbytes, _seconds("csradaptive", nbytes, entries, p, bandwidth), why="no padding at all"
    )


def _bsr(p: Profile, backend: Backend, bandwidth: float) -> Candidate:
    scalar, index = backend.scalar.itemsize, backend.index.itemsize
    rows, columns = p.block_shape
    blocks = p.nnz / (p.block_fill * rows * columns)
    nbytes = blocks * (rows * columns * scalar + index) + p.nrows / rows * 8 + _vector_bytes(p, backend)
    options = {"block_size": rows} if rows == columns else {}  # else the block sizes of the matrix
    why = f"blocks of {rows} x {columns}, {p.block_fill:.0%} full"
    return Candidate("bsr", nbytes, _seconds("bsr", nbytes, BATCH["bsr"], p, bandwidth), options, why)
