"""Parameters of the product kernels of BSR: what each takes (Abdelfattah et al. 2016, table I), and what is chosen."""

from __future__ import annotations

from itertools import product as combinations
from math import log2
from typing import Any, NamedTuple

from petsc_gpufmt.backends.plan import WARP, ceil_div
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.option_value import AUTO

AUTOMATIC = 0
NEVER = -1
K1, K2, K3 = "k1", "k2", "k3"
KERNELS = (AUTO, K1, K2, K3)
K1_LARGEST, K2_LARGEST = 5, 45  # block sizes, section 5.1
THREADS_PER_BLOCK = 256
THREADS_LIMIT = 1024
ENTRIES_PER_THREAD = (1, 2, 4, 6, 8)
ROWS_PER_ARRAY_LIMIT = 16
SHARED_ENTRIES_LIMIT = 4096  # partial sums of a thread block: 32 KiB in double precision
TILE_HEIGHT = 16
REDUCED_AT_ONCE = 32  # partial results of a row that bsr_reduce has on the way from memory
# Measured on an H200 with 27 blocks a block row and 58 million entries
K1_WORDS = 21  # of the blocks that a thread takes at once, with x and where they are: more do not fit in registers
K1_SUITABLE_ENTRIES = 12  # of a block, with which all its loads are on the way at once
K1_BLOCKS = 7  # of a thread, so that slices are shared by several warps
K1_MOST_GROUPS = 8
K1_SHARE_OF_LANES = 0.5  # less leaves too few loads in flight
K2_ENTRIES = 40  # of a thread
K2_FEWEST_THREADS = 16

PARAMETERS: dict[str, int | str] = {
    "kernel": AUTO,
    "thread_arrays": AUTOMATIC,
    "rows_per_array": AUTOMATIC,
    "thread_groups": AUTOMATIC,
    "entries_per_thread": AUTOMATIC,
    "tile_height": AUTOMATIC,
}
"""The options that set them, with what leaves each to `choose`."""


class Parameters(NamedTuple):
    """How a product is launched; the paper's names are nb, N_tg, N_ta, Nbrows_ta and ept."""

    kernel: str
    tile_height: int
    thread_groups: int
    thread_arrays: int
    rows_per_array: int
    entries_per_thread: int

    @property
    def array_threads(self) -> int:
        return self.tile_height * self.thread_groups

    def __str__(self) -> str:
        if self.kernel == K1:
            warps = f"{self.thread_arrays} x {self.thread_groups} warps"
            return f"kernel K1, {warps} a thread block, {self.entries_per_thread} blocks a thread at once"
        return (
            f"kernel {self.kernel.upper()}, {self.thread_arrays} thread arrays of "
            f"{self.tile_height} x {self.thread_groups}, {self.rows_per_array} block rows each, "
            f"{self.entries_per_thread} entries a thread"
        )


class Shape(NamedTuple):
    """What the choice depends on.

    Attributes
    ----------
    row_block, col_block : rows and columns of a block
    mean, longest : blocks of a block row
    nblock_rows : block rows
    share_of_lanes : see `bsr_layout.share_of_lanes`, for a warp
    resident_threads : threads that run at once; 0 on the host
    """

    row_block: int
    col_block: int
    mean: float
    longest: int
    nblock_rows: int
    share_of_lanes: float
    resident_threads: int

    @property
    def row_width(self) -> float:
        """Columns of a mean block row."""
        return self.mean * self.col_block

    @property
    def row_entries(self) -> float:
        return self.row_block * self.row_width

    @property
    def fills_device(self) -> bool:
        """Whether a product runs for so long that only the rate of the memory counts."""
        return self.row_entries * self.nblock_rows >= 16 * self.resident_threads


def choose(shape: Shape, options: dict[str, Any], measured: dict[str, Any]) -> tuple[int, Parameters]:
    """Blocks at which block rows are cut (0: not at all) and the kernel's parameters.

    Options that are set count; for the others, what was measured best for large matrices; then what suits the shape.
    Raises OptionError for options that the kernel does not take, or that do not go together.
    """
    asked = options["lambda"]
    if asked < NEVER:
        raise OptionError(f"-mat_bsr_lambda {asked}: choose a number of blocks, -1 never to cut, or 0 for automatic")
    given = {name: options[name] for name, automatic in PARAMETERS.items() if options[name] != automatic}
    _check_ranges(given)
    k1_asked = given.get("kernel") == K1
    if k1_asked and asked > 0:
        raise OptionError(
            f"-mat_bsr_lambda {asked} with kernel K1: its lanes do whole block rows side by side; "
            f"leave it at 0, or choose -mat_bsr_kernel {K2}"
        )
    known = {
        name: measured[name] for name, automatic in PARAMETERS.items() if measured.get(name, automatic) != automatic
    }
    if given or not shape.fills_device:
        known = {}
    k1_known = known.get("kernel") == K1
    if not k1_asked:
        parameters = choose_parameters(shape, given or ({} if k1_known else known))
        limit = suitable_limit(shape, parameters) if asked == AUTOMATIC else asked
        limit = 0 if limit == NEVER or limit >= shape.longest else limit
        if given or limit or (known and not k1_known) or not _suits_k1(shape):
            return limit, parameters
    return 0, choose_parameters(shape, given or (known if k1_known else {"kernel": K1}))


def choose_parameters(shape: Shape, given: dict[str, Any]) -> Parameters:
    """Parameters of the kernel in `given`, else of K2 or K3; what is not in `given` suits the shape."""
    kernel = given.get("kernel") or _suitable_kernel(shape, given)
    _check_kernel(kernel, shape, given)
    rows = given.get("rows_per_array") or 1
    if kernel == K1:
        height = WARP
        groups = given.get("thread_groups") or max(1, min(K1_MOST_GROUPS, round(shape.mean / K1_BLOCKS)))
        entries = given.get("entries_per_thread") or (2 if shape.row_block * shape.col_block <= 4 else 1)
        arrays = given.get("thread_arrays") or max(1, THREADS_PER_BLOCK // 2 // (WARP * groups))
    else:
        height = shape.row_block if kernel != K3 else given.get("tile_height") or _suitable_height(shape.row_block)
        entries = given.get("entries_per_thread") or 4
        groups = given.get("thread_groups") or _suitable_groups(shape, height, entries)
        arrays = given.get("thread_arrays") or _suitable_arrays(height * groups, rows)
    chosen = Parameters(kernel, height, groups, arrays, rows, entries)
    sums = chosen.array_threads * arrays * (shape.row_block if kernel == K1 else rows)
    if chosen.array_threads * arrays > THREADS_LIMIT or sums > SHARED_ENTRIES_LIMIT:
        raise OptionError(
            f"bsr with {chosen}: {chosen.array_threads * arrays} threads a block with {sums} partial sums; "
            f"at most {THREADS_LIMIT} threads and {SHARED_ENTRIES_LIMIT} partial sums fit: "
            "lower -mat_bsr_thread_groups, -mat_bsr_thread_arrays, -mat_bsr_rows_per_array or -mat_bsr_tile_height"
        )
    return chosen


def usual_parameters(row_block: int, col_block: int) -> list[Parameters]:
    """All that K1 and K2 are launched with where no option is set, for blocks of fewer rows than K3's."""
    shape = Shape(row_block, col_block, mean=1, longest=1, nblock_rows=1, share_of_lanes=1, resident_threads=0)
    widest = THREADS_PER_BLOCK // row_block
    groups = {*range(1, K2_FEWEST_THREADS // row_block), *(2**k for k in range(widest.bit_length()))}
    groups |= {2**k // row_block for k in range(K2_FEWEST_THREADS.bit_length() - 1, THREADS_PER_BLOCK.bit_length())}
    given: list[dict[str, Any]] = [{"kernel": K2, "thread_groups": n} for n in sorted(groups)]
    if row_block <= K1_LARGEST and row_block * col_block <= K1_SUITABLE_ENTRIES:
        given += [{"kernel": K1, "thread_groups": n} for n in range(1, K1_MOST_GROUPS + 1)]
    return [choose_parameters(shape, parameters) for parameters in given]


def _suits_k1(shape: Shape) -> bool:
    """Whether 32 block rows at a time have enough to do for the lanes of a warp, and slices for all multiprocessors."""
    takes = shape.row_block <= K1_LARGEST and shape.row_block * shape.col_block <= K1_SUITABLE_ENTRIES
    large = shape.resident_threads > 0 and shape.fills_device
    return takes and large and shape.share_of_lanes >= K1_SHARE_OF_LANES


def _check_ranges(given: dict[str, Any]) -> None:
    limits = {"thread_arrays": 64, "thread_groups": THREADS_LIMIT, "tile_height": THREADS_LIMIT}
    limits["rows_per_array"] = ROWS_PER_ARRAY_LIMIT
    for name, value in given.items():
        if name == "entries_per_thread":
            if value not in ENTRIES_PER_THREAD:
                choices = ", ".join(map(str, ENTRIES_PER_THREAD))
                raise OptionError(f"-mat_bsr_{name} {value}: choose one of {choices}, or 0 for automatic")
        elif name in limits and not 0 < value <= limits[name]:
            raise OptionError(f"-mat_bsr_{name} {value}: choose 1 to {limits[name]}, or 0 for automatic")


def _check_kernel(kernel: str, shape: Shape, given: dict[str, Any]) -> None:
    """Table I and the ranges of section 5.1, but K2 takes small blocks, too: several warps may share a block row."""
    row_block = shape.row_block
    if kernel == K1:
        _check_k1(shape, given)
    if kernel == K2 and row_block > K2_LARGEST:
        raise OptionError(
            f"-mat_bsr_kernel {K2} with blocks of {row_block} rows: it takes up to {K2_LARGEST}; choose {K3}"
        )
    if kernel == K3 and row_block < K1_LARGEST:
        asked = f" of -mat_bsr_tile_height {given['tile_height']}" if "tile_height" in given else ""
        raise OptionError(
            f"-mat_bsr_kernel {K3}{asked} with blocks of {row_block} rows: it takes {K1_LARGEST} and more; "
            f"choose {K1} or {K2}{', without a tile height' if asked else ''}"
        )
    if "tile_height" in given and kernel != K3:
        raise OptionError(
            f"-mat_bsr_tile_height with kernel {kernel.upper()}: only K3 cuts blocks into tiles; leave it at 0"
        )
    if given.get("tile_height", 1) > row_block:
        raise OptionError(
            f"-mat_bsr_tile_height {given['tile_height']} with blocks of {row_block} rows: choose 1 to {row_block}"
        )


def k1_words(row_block: int, col_block: int, blocks: int) -> int:
    """Words of the blocks that a thread of K1 takes at once: entries, those of x, and where the block is."""
    return blocks * ((row_block + 1) * col_block + 1)


def _check_k1(shape: Shape, given: dict[str, Any]) -> None:
    row_block, col_block, blocks = shape.row_block, shape.col_block, given.get("entries_per_thread", 1)
    if row_block > K1_LARGEST:
        raise OptionError(
            f"-mat_bsr_kernel {K1} with blocks of {row_block} rows: it takes 1 to {K1_LARGEST}; choose {K2} or {K3}"
        )
    if k1_words(row_block, col_block, blocks) > K1_WORDS:
        raise OptionError(
            f"-mat_bsr_kernel {K1} with {blocks} blocks of {row_block} x {col_block} a thread: with x, they take "
            f"{k1_words(row_block, col_block, blocks)} words, and {K1_WORDS} fit in registers: "
            f"lower -mat_bsr_entries_per_thread or choose -mat_bsr_kernel {K2}"
        )
    if given.get("rows_per_array", 1) > 1:
        raise OptionError(
            f"-mat_bsr_rows_per_array {given['rows_per_array']} with kernel K1: "
            f"a lane does one block row; leave it at 0, or choose -mat_bsr_kernel {K2}"
        )


def _suitable_kernel(shape: Shape, given: dict[str, Any]) -> str:
    if shape.row_block > K2_LARGEST or "tile_height" in given:
        return K3
    few = 0 < shape.nblock_rows * THREADS_PER_BLOCK < 2 * shape.resident_threads
    return K3 if shape.row_block >= 2 * TILE_HEIGHT and shape.fills_device and few and not given else K2


def _suitable_height(row_block: int) -> int:
    """Rows of a tile where a block is cut into equal ones of about TILE_HEIGHT rows."""
    return ceil_div(row_block, max(1, round(row_block / TILE_HEIGHT)))


def _suitable_groups(shape: Shape, height: int, entries: int) -> int:
    """Large matrices: so many threads that each has K2_ENTRIES of a mean block row, a power of two but for the rest.

    Small ones: with as many as ask for all entries at once, if there are threads for that.
    """
    most = max(1, round(shape.row_width / entries))
    if shape.fills_device:
        threads = 2 ** round(log2(max(1.0, height * shape.row_width / K2_ENTRIES)))
        return min(most, max(1, min(max(threads, K2_FEWEST_THREADS), THREADS_PER_BLOCK) // height))
    tiles = ceil_div(shape.row_block, height) * shape.nblock_rows
    available = 2 * shape.resident_threads // max(1, tiles * height)
    widest = max(1, THREADS_PER_BLOCK // height)
    suitable = max(1, min(most, available, widest))
    return widest if suitable >= widest else power_of_two(suitable)


def power_of_two(n: int) -> int:
    """The largest power of two that is not above n, at least 1: few kernels are compiled."""
    return 1 << max(0, n.bit_length() - 1)


def _suitable_arrays(array_threads: int, rows: int) -> int:
    """Thread arrays for a thread block of up to 256 threads that leaves few lanes of its last warp idle."""
    most = max(1, min(THREADS_PER_BLOCK // array_threads, 64, SHARED_ENTRIES_LIMIT // (array_threads * rows)))
    return max(
        range((most + 1) // 2, most + 1),
        key=lambda n: (n * array_threads / (ceil_div(n * array_threads, WARP) * WARP), n),
    )


def suitable_limit(shape: Shape, parameters: Parameters) -> int:
    """Blocks at which block rows are cut, 0: not at all.

    Long block rows are cut where one alone takes longer than all others together: it is several times the mean, and
    more than its thread array's share of all blocks. A thread array takes limit / blocks_per_turn turns for a piece,
    and longest / limit pieces are added up, REDUCED_AT_ONCE in a turn: the limit makes both the same.
    """
    arrays_at_once = max(1, shape.resident_threads // parameters.array_threads)
    share = shape.mean * shape.nblock_rows / arrays_at_once
    blocks_per_turn = parameters.thread_groups * parameters.entries_per_thread / shape.col_block
    if not shape.resident_threads or shape.longest <= 4 * max(shape.mean, share, 4 * blocks_per_turn):
        return 0
    balance = (shape.longest * blocks_per_turn / REDUCED_AT_ONCE) ** 0.5
    return max(16, round(2 * shape.mean), round(4 * blocks_per_turn), round(balance))


def parameter_space(row_block: int, col_block: int) -> list[dict[str, int | str]]:
    """Combinations worth measuring for blocks of `row_block` rows (section 5.7)."""
    names = ("kernel", "tile_height", "thread_groups", "thread_arrays", "entries_per_thread")
    space: list[tuple[Any, ...]] = []
    if row_block <= K1_LARGEST:
        space += [
            (K1, 0, groups, warps // groups, blocks)
            for groups, warps, blocks in combinations((1, 2, 3, 4), (4, 8), (1, 2))
            if k1_words(row_block, col_block, blocks) <= K1_WORDS
        ]
    if row_block <= K2_LARGEST:
        groups = sorted({max(1, threads // row_block) for threads in (16, WARP, 64, 128, THREADS_PER_BLOCK)})
        space += combinations((K2,), (0,), groups, (0,), (2, 4, 6))
    if row_block >= TILE_HEIGHT:
        heights = sorted({ceil_div(row_block, tiles) for tiles in (2, 3, 4) if row_block >= 8 * tiles})
        groups = sorted({THREADS_PER_BLOCK // height for height in heights} | {8})
        space += combinations((K3,), heights, groups, (0,), (4, 6))
    return [
        dict(zip(names, values, strict=True))
        for values in space
        if values[0] == K1 or (values[1] or row_block) * values[2] <= 2 * THREADS_PER_BLOCK
    ]
