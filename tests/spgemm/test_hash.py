"""Rows of a sparse product by look-up in shared memory: pattern, values, bins, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from builders import CsrMatrix, blocked, from_entries, from_row_lengths, shape, stencil, uniform
from emulation.backend import EmulatedBackend
from fake_driver import fake_driver

from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm import hash as hashing
from petsc_gpufmt.spgemm.census import Operands, UnsortedError, count_words, row_pointer
from petsc_gpufmt.spgemm.hash import Bin, HashAccumulator, needs_no_census
from petsc_gpufmt.spgemm.product import SparseProduct

pytestmark = pytest.mark.real

scipy_sparse = pytest.importorskip("scipy.sparse")

A, B, C = Slot.X, Slot.Y, Slot.Z  # whichever: the tests fill them


@pytest.fixture(params=["host", "emulation"])
def backend(request):
    if request.param == "host":
        return HostBackend(np.float64, np.int32)
    return EmulatedBackend(np.float64, np.int32, request.getfixturevalue("emulation_folder"))


@pytest.fixture
def emulation(emulation_folder):
    return EmulatedBackend(np.float64, np.int32, emulation_folder)


@dataclass
class Product:
    """C = A B by hashing in both phases."""

    left: CsrMatrix
    right: CsrMatrix
    backend: object
    wait: bool = True

    def __post_init__(self):
        xp, index = self.backend.xp, self.backend.index
        patterns = self.left.pattern(xp, index), self.right.pattern(xp, index)
        self.operands = count_words(*patterns, self.backend, wait=self.wait)
        self.accumulator = HashAccumulator(self.operands, self.backend, {})
        some = self.operands.total_terms > 0 or not self.operands.counted
        self.rows = row_pointer(self.accumulator.lengths() if some else None, self.operands, self.backend)
        self.symbolic = list(self.accumulator.symbolic)
        some = self.operands.total_terms > 0  # as is known now
        self.rowptr, self.columns = self.rows.rowptr, np.full(self.rows.nnz, -7, dtype=index)
        if some:
            self.accumulator.columns(self.rowptr, self.columns)
        self.launches = self.accumulator.values(self.rows, self.columns, A, B, C) if some else []

    def values(self, left: np.ndarray | None = None, right: np.ndarray | None = None) -> np.ndarray:
        """(nnz of C,) values for values of A and B, those of the matrices if none are given."""
        scalar, result = self.backend.scalar, np.full(self.columns.size, np.nan, dtype=self.backend.scalar)
        left, right = (self.left.values if left is None else left), (self.right.values if right is None else right)
        self.backend.run(self.launches, {A: left.astype(scalar), B: right.astype(scalar), C: result})
        return result

    def check(self) -> Product:
        """Pattern and values are those of SciPy, values to the bound k eps |A| |B|."""
        left, right = (scipy(m) for m in (self.left, self.right))
        bound = np.abs(left) @ np.abs(right)
        pattern = (with_ones(left) @ with_ones(right)).tocsr()
        pattern.sort_indices()
        assert self.rowptr.tolist() == pattern.indptr.tolist()
        assert self.columns.tolist() == pattern.indices.tolist()
        rows = np.repeat(np.arange(self.left.nrows), np.diff(self.rowptr))
        reference, most = (np.asarray(m[rows, self.columns]).ravel() for m in ((left @ right).tocsr(), bound.tocsr()))
        terms = self.operands.longest_left + 2
        assert (np.abs(self.values() - reference) <= terms * np.finfo(self.backend.scalar).eps * most).all()
        return self

    @property
    def bounds(self) -> list[int | None]:
        return [b.bound for b in self.accumulator.numeric]


def scipy(matrix: CsrMatrix):
    arrays = (matrix.values, matrix.colidx, matrix.rowptr)
    return scipy_sparse.csr_array(arrays, shape=(matrix.nrows, matrix.ncols))


def with_ones(matrix):
    ones = matrix.copy()
    ones.data = np.ones_like(ones.data)
    return ones


def row_of(ncols: int) -> CsrMatrix:
    return from_row_lengths(np.array([ncols]), ncols, seed=41)


def column_of(nrows: int) -> CsrMatrix:
    return from_row_lengths(np.ones(nrows, dtype=np.int64), 1, seed=42)


SQUARES = {
    "stencil": lambda: stencil(5, 4, 6),
    "power_law": lambda: shape("power_law"),
    "banded": lambda: shape("banded"),
    "blocks": lambda: blocked(3, 20, declared=True),
    "dense": lambda: uniform(40, 40, 40, seed=43),
    "diagonal": lambda: from_entries(70, 70, np.arange(70), np.arange(70), seed=44),
}
PRODUCTS = {
    **{name: (lambda make=make: (make(), make())) for name, make in SQUARES.items()},
    "empty rows and columns": lambda: (shape("empty_rows"), shape("empty_rows").transposed()),
    "tall by wide": lambda: (uniform(90, 11, 3, seed=45), uniform(11, 130, 60, seed=46)),
    "wide by tall": lambda: (uniform(9, 400, 150, seed=47), uniform(400, 7, 2, seed=48)),
    "outer product": lambda: (column_of(70), row_of(70)),
    "inner product": lambda: (row_of(700), column_of(700)),
    "one huge row": lambda: (shape("one_huge_row"), uniform(3000, 500, 2, seed=49)),
    "rows of one entry": lambda: (uniform(200, 80, 6, seed=50), column_groups(80, 20)),
    "rows to split": lambda: (uniform(30, 40, 5, seed=51), shape("rows_to_split")),
    "0 x 0": lambda: (uniform(0, 0, 0, seed=1), uniform(0, 0, 0, seed=1)),
    "0 x k": lambda: (uniform(0, 5, 0, seed=1), uniform(5, 3, 2, seed=1)),
    "k x 0": lambda: (uniform(5, 3, 2, seed=1), uniform(3, 0, 0, seed=1)),
    "inner 0": lambda: (uniform(5, 0, 0, seed=1), uniform(0, 3, 0, seed=1)),
    "no entries": lambda: (uniform(5, 4, 0, seed=1), uniform(4, 6, 0, seed=1)),
    "no terms": lambda: (
        from_entries(3, 2, np.arange(3), np.zeros(3, int), 1),
        from_row_lengths(np.array([0, 2]), 4, 1),
    ),
}
QUICK_PRODUCTS = {"power_law", "blocks", "one huge row", "0 x 0", "no terms"}


def column_groups(nrows: int, ncols: int) -> CsrMatrix:
    """A tentative prolongator: row i has one entry, in column i * ncols / nrows."""
    return from_entries(nrows, ncols, np.arange(nrows), np.arange(nrows) * ncols // nrows, seed=52)


@pytest.mark.parametrize(
    "name", [name if name in QUICK_PRODUCTS else pytest.param(name, marks=pytest.mark.slow) for name in PRODUCTS]
)
def test_products_are_those_of_scipy(backend, name):
    Product(*PRODUCTS[name](), backend).check()


def rows_of_every_bin(ncols):
    """A B whose rows meet from no word to most of those that there are."""
    lengths = np.array([0, 1, 20, 30, 60, 120, 200, 500, 900, 1500, 2000, 2500])
    right = from_row_lengths(np.minimum(lengths, ncols), ncols, seed=76)
    rows, columns = np.repeat(np.arange(36), 3), np.tile([0, 4, 7], 36) + np.repeat(np.arange(36), 3)
    return from_entries(36, 12, rows, columns % 12, seed=77), right


@pytest.mark.parametrize(
    "factors",
    [
        *(pytest.param(PRODUCTS[name], id=name) for name in ("power_law", "no terms", "no entries", "one huge row")),
        *(pytest.param(lambda n=n: rows_of_every_bin(n), id=f"{n} columns") for n in (3000, 30_000, 150_000, 300_000)),
        pytest.param(lambda: (uniform(70, 90, 5, seed=78), uniform(90, 8, 2, seed=79)), id="few words"),
    ],
)
@pytest.mark.parametrize("resident_threads", [8192, 1 << 16])
def test_a_small_product_waits_once_and_has_the_same_bits(factors, resident_threads, emulation_folder):
    """With its rows in bins, and with a block for each."""
    device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=resident_threads)
    left, right = factors()
    counted = Product(left, right, device)
    first, waits = device.first, []
    device.first = lambda array, count, meanwhile: waits.append(count) or first(array, count, meanwhile)

    product = Product(left, right, device, wait=False).check()

    assert len(waits) == min(1, left.colidx.size, right.colidx.size)
    assert product.columns.tolist() == counted.columns.tolist()
    assert product.values().tobytes() == counted.values().tobytes()
    assert all(
        getattr(product.operands, a) == getattr(counted.operands, a)
        for a in ("total_terms", "most_terms", "longest_right")
    )


def test_rows_that_all_have_a_block_at_once_are_not_sorted(emulation_folder):
    left, right = uniform(40, 90, 5, seed=82), uniform(90, 3000, 9, seed=83)

    for resident_threads, sorts in ((40 * 256, []), (40 * 256 - 1, [0])):
        device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=resident_threads)
        asked_for, function = [], device.function
        device.function = lambda *kernel, a=asked_for, f=function: a.append(kernel) or f(*kernel)
        Product(left, right, device, wait=False).check()

        symbolic = [kernel for stem, kernel, _ in asked_for if stem == "spgemm/hash_symbolic"]
        assert [kernel[2][0] for kernel in asked_for if kernel[1] == "spgemm_hash_sort_rows"][: len(sorts)] == sorts
        assert (symbolic == ["spgemm_hash_bitmap_lengths", "spgemm_hash_bitmap_columns"]) == (not sorts)


def test_a_product_is_small_as_its_rows_and_columns_are_few(emulation_folder):
    device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=2048)
    longest = 8 * 2048 // 16

    def small(nrows, ncols):
        left = CsrPattern(nrows, 1, np.zeros(nrows + 1, dtype=np.int32), np.zeros(0, dtype=np.int32))
        return needs_no_census(left, replace(left, ncols=ncols), device)

    assert small(longest, 32 * 10240) and not small(longest + 1, 10) and not small(10, 32 * 10240 + 1)


def test_a_small_product_finds_out_late_that_a_factor_is_not_sorted(emulation_folder):
    device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=512)
    right = uniform(30, 90, 12, seed=80)
    with pytest.raises(UnsortedError, match="not sorted, or repeat"):
        Product(uniform(9, 30, 9, seed=81), replace(right, colidx=right.colidx[::-1].copy()), device, wait=False)


@pytest.mark.parametrize(
    ("scalar", "index"),
    [
        pytest.param(np.float32, np.int32, marks=pytest.mark.slow),
        pytest.param(np.float64, np.int64, marks=pytest.mark.slow),
        (np.float32, np.int64),
    ],
)
def test_products_of_other_types(emulation_folder, scalar, index):
    backend = EmulatedBackend(scalar, index, emulation_folder)

    Product(stencil(4, 4, 4), stencil(4, 4, 4), backend).check()
    Product(uniform(6, 8, 8, seed=58), uniform(8, 900, 300, seed=59), backend).check()


def test_entries_that_cancel_stay(backend):
    left = from_entries(1, 2, np.array([0, 0]), np.array([0, 1]), seed=53)
    right = from_entries(2, 3, np.array([0, 0, 1, 1]), np.array([0, 2, 1, 2]), seed=54)
    product = Product(replace(left, values=np.array([1.0, -1.0])), replace(right, values=np.ones(4)), backend)

    assert product.columns.tolist() == [0, 1, 2] and product.values().tolist() == [1, -1, 0]


def test_values_of_a_second_numeric_phase_replace_the_first(backend):
    matrix = shape("banded")
    product = Product(matrix, matrix, backend)
    first = product.values()

    assert product.values(2 * matrix.values, matrix.values).tolist() == (2 * first).tolist()
    assert product.values().tolist() == first.tolist()


def test_inf_and_nan_stay_in_their_rows(backend):
    matrix = shape("banded")
    product = Product(matrix, matrix, backend)
    left = np.where(np.arange(matrix.values.size) == matrix.rowptr[7], np.inf, matrix.values)

    finite = np.isfinite(product.values(left))

    touched = np.repeat(np.arange(matrix.nrows), np.diff(product.rowptr))[~finite]
    assert touched.size and set(touched.tolist()) == {7}


@pytest.mark.parametrize("right", ["runs", "spread"])
@pytest.mark.parametrize("length", [15, 16, 17, 32, 33, 63, 64, 125, 126, 250, 251, 500, 501, 1000, 1001])
def test_every_length_of_a_row_of_the_result(emulation, right, length):
    """A row of A meets two rows of B that overlap."""
    stride, ncols = (1, length) if right == "runs" else (37, 37 * length)
    columns = stride * np.concatenate([np.arange(length * 2 // 3), np.arange(length // 3, length)])
    rows = np.repeat([0, 1], [length * 2 // 3, length - length // 3])
    product = Product(uniform(3, 2, 2, seed=55), from_entries(2, ncols, rows, columns, seed=56), emulation).check()

    assert np.diff(product.rowptr).tolist() == [length] * 3
    bound = next((c for c in sorted(hashing.TEAMS) if c >= length), None)
    assert product.bounds == [bound]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ncols", "row_length", "rows_of_a", "kernel", "template"),
    [
        (10_000, 11, 2, "table", (8, 8, 32)),
        (10_000, 22, 2, "table", (8, 8, 64)),
        (10_000, 40, 2, "table", (16, 16, 128)),
        (40_000, 80, 2, "table", (32, 32, 256)),
        (40_000, 150, 2, "table", (32, 32, 512)),
        (700_000, 350, 2, "table", (32, 32, 1024)),
        (700_000, 700, 2, "table", (32, 32, 2048)),
        (30_000, 100, 2, "bitmap", (32, 1024, 0)),
        pytest.param(30_000, 90, 80, "bitmap", (256, 1024, 0), marks=pytest.mark.slow),
        (40_000, 300, 2, "bitmap", (256, 5120, 0)),
        (200_000, 300, 2, "bitmap", (256, 10240, 0)),
        (700_000, 1000, 2, "bitmap", (256, 10240, 1)),
    ],
)
def test_the_kernel_of_the_symbolic_phase_goes_by_words(emulation, ncols, row_length, rows_of_a, kernel, template):
    right = uniform(100, ncols, row_length, seed=57)
    left = uniform(3, 100, rows_of_a, seed=58)

    product = Product(left, right, emulation).check()

    assert [(k.kind, k.template) for k in product.symbolic] == [(kernel, template)]


def test_tables_of_several_sizes_share_a_launch_in_a_small_product(emulation_folder):
    device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=512)
    lengths = np.random.default_rng(65).permutation(np.repeat([0, 11, 40, 80, 900], [3, 64, 40, 12, 2]))
    right = from_row_lengths(lengths, 40_000, seed=66)
    left = from_entries(lengths.size, lengths.size, np.arange(lengths.size), np.arange(lengths.size), seed=67)

    product = Product(left, right, device).check()

    assert [(k.kind, k.template, k.blocks, k.rows.count) for k in product.symbolic] == [
        ("bitmap", (256, 5120, 0), 2, 2),
        ("tables", (), 2 + 3 + 4, 12 + 40 + 67),  # empty rows are with the shortest, and in no block
    ]
    product = Product(stencil(5, 4, 6), stencil(5, 4, 6), device).check()
    assert [k.kind for k in product.symbolic] == ["table"]


def test_rows_of_several_lengths_share_a_launch_in_a_small_product(emulation_folder):
    lengths = np.random.default_rng(68).permutation(np.repeat([0, 10, 40, 300, 700], [3, 70, 20, 3, 2]))
    right = from_row_lengths(lengths, 1000, seed=69)
    left = from_entries(lengths.size, lengths.size, np.arange(lengths.size), np.arange(lengths.size), seed=70)

    kernels = {}
    for resident_threads in (0, 512):
        device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=resident_threads)
        product = Product(left, right, device).check()
        kernels[resident_threads] = [
            (units.kernel, units.template, units.blocks) for units in product.accumulator.units
        ]

    assert kernels[0] == [
        ("spgemm_hash_values", (32, 32, 0, 500, 1), 4),
        ("spgemm_hash_values", (32, 32, 0, 500, 0), 1),
        ("spgemm_hash_values", (16, 16, 0, 63, 0), 3),
        ("spgemm_hash_values", (4, 4, 0, 16, 0), 3),
    ]
    assert kernels[512] == [kernels[0][0], ("spgemm_hash_values_together", (32, 0), 1 + 3 + 3)]


def test_long_rows_are_shared_by_the_warps_of_a_block_where_several_lengths_share_a_launch(emulation_folder):
    """Rows of few entries and many terms, which would be waited for."""
    lengths = np.random.default_rng(73).permutation(np.repeat([0, 3, 9, 400, 700], [2, 30, 10, 3, 1]))
    left, right = from_row_lengths(lengths, 800, seed=74), uniform(800, 200, 8, seed=75)

    for resident_threads, template, blocks in ((1024, (8, 1), 4 + 3 + 1 + 2), (512, (8, 0), 1 + 1 + 1 + 2)):
        device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=resident_threads)
        (units,) = Product(left, right, device).check().accumulator.units
        assert (units.kernel, units.template, units.blocks) == ("spgemm_hash_values_together", template, blocks)


@pytest.mark.parametrize(
    ("entries", "resident_threads", "shared"), [(400, 512, True), (400, 256, False), (100, 512, False)]
)
def test_few_rows_of_many_terms_are_shared_by_the_warps_of_a_block(entries, resident_threads, shared, emulation_folder):
    """As on the coarse levels of a multigrid method."""
    device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=resident_threads)
    left = from_row_lengths(np.array([0, entries, entries - 9, entries - 99]), 400, seed=71)

    (units,) = Product(left, uniform(400, 60, 8, seed=72), device).check().accumulator.units

    assert (units.template == (32, 8, 1, 500, 1)) == shared
    assert units.own[0] == 3 or not shared


@pytest.mark.parametrize(("shortest", "sorts"), [(1, []), (0, [1])])
def test_rows_that_share_blocks_are_sorted_where_some_are_empty(shortest, sorts, emulation_folder):
    device = EmulatedBackend(np.float64, np.int32, emulation_folder, resident_threads=512)
    left = from_row_lengths(np.array([shortest, 400, 391, 301]), 400, seed=71)
    asked_for, function = [], device.function
    device.function = lambda *kernel: asked_for.append(kernel) or function(*kernel)

    (units,) = Product(left, uniform(400, 60, 8, seed=72), device).check().accumulator.units

    assert units.template == (32, 8, 1, 500, 1) and (units.own[1] is None) == (not sorts)
    by_length = [kernel[2][0] for kernel in asked_for if kernel[1] == "spgemm_hash_sort_rows" and kernel[2] == (1,)]
    assert by_length == sorts


def test_columns_in_runs_take_few_words(emulation):
    """27 rows of B with 27 columns each, 729 terms, are at most 27 x 18 words, and here 27 x 9 or so."""
    matrix = stencil(9, 9, 9)
    wide = replace(matrix, ncols=400_000)
    product = Product(replace(matrix, ncols=729), wide, emulation).check()

    bounds = [k.rows.bound for k in product.symbolic]
    assert bounds == [b for b in (48, 24) if b in bounds] and product.operands.most_terms > 48


def test_rows_are_sorted_longest_first(emulation):
    lengths = np.array([3, 700, 20, 600, 300, 0, 40, 100, 900])
    right = from_row_lengths(lengths, 1000, seed=59)
    left = from_entries(9, 9, np.arange(9), np.arange(9), seed=60)

    product = Product(left, right, emulation).check()

    assert product.bounds == [None, 500, 125, 63, 32, 16]
    assert [b.count for b in product.accumulator.numeric] == [3, 1, 1, 1, 1, 1]
    assert [launch.grid[0] for launch in product.launches] == [6, 1, 1, 1, 1, 1]  # a block for a part
    assert product.accumulator.summary() == (
        "9 rows by hashing (entries a row: 3 above 500, 1 to 500, 1 to 125, 1 to 63, 1 to 32, 1 to 16)"
    )


def test_long_rows_of_the_left_factor_go_first(emulation):
    left, right = from_row_lengths(np.array([2, 9, 5]), 12, seed=61), uniform(12, 700, 690, seed=62)
    product = Product(left, right, emulation).check()
    (launch,) = product.launches

    assert launch.arguments[1].tolist() == [1, 1, 2, 2, 0, 0] and launch.arguments[2].tolist() == [0, 1] * 3


@pytest.mark.parametrize(
    ("work", "entries", "team", "threads"),
    [
        (7, 1, 8, 8),
        (7, 1, 32, 8),
        (9, 1, 32, 16),
        (8.8, 1, 32, 8),
        (27, 1, 32, 32),
        (1, 1, 4, 1),
        (300, 1, 16, 16),
        (0, 0, 4, 1),
    ],
)
def test_a_group_has_as_many_threads_as_rows_of_b_have_entries(work, entries, team, threads):
    assert Bin(1, 16, work, entries).group(team) == threads


def test_a_step_for_each_row_where_no_row_of_b_is_longer_than_a_group(emulation):
    one_step = [Product(m, m, emulation).launches[0].function for m in (stencil(5, 5, 5), shape("power_law"))]
    expected = [(8, 8, 1, 32, 0), (32, 16, 0, 500, 0)]

    assert one_step == [emulation.function("spgemm/hash_values", "spgemm_hash_values", t) for t in expected]


def test_bytes_held_are_those_of_the_launches(backend):
    product = Product(uniform(30, 40, 5, seed=51), shape("rows_to_split"), backend)
    own = {id(a) for m in (product.operands.A, product.operands.B) for a in (m.rowptr, m.colidx)}
    own |= {id(product.rowptr), id(product.columns)}
    arrays = {id(a): a for launch in product.launches for a in launch.flattened()[0] if isinstance(a, np.ndarray)}
    held = sum(a.nbytes for key, a in arrays.items() if key not in own)

    accumulator = product.accumulator
    in_bins = sum(b.rows.nbytes for b in accumulator.numeric if b.bound is None)  # parts name the rows again
    assert accumulator.bytes_held == held + in_bins
    assert 0 < accumulator.bytes_held <= accumulator.bytes_needed()


def test_nothing_of_the_symbolic_phase_is_kept(backend):
    accumulator = Product(stencil(4, 4, 4), stencil(4, 4, 4), backend).accumulator

    assert accumulator.operands.words is None and accumulator.symbolic == []


def test_columns_that_words_cannot_number_are_refused(backend):
    wide = CsrPattern(1, 2**37, np.array([0, 0]), np.zeros(0, dtype=np.int64))
    operands = Operands(wide, wide, np.zeros(1, dtype=np.int64), None, None, None)

    with pytest.raises(UnsupportedError, match="right factor has 137438953472 columns, hashing takes at most"):
        HashAccumulator(operands, backend, {})


def test_words_go_with_the_symbolic_phase(emulation_folder):
    left, right = uniform(40, 3000, 10, seed=98), uniform(3000, 3000, 10, seed=99)
    with fake_driver(emulation_folder) as driver:
        device = CudaBackend(np.float64, np.int32, device=0)
        patterns = left.pattern_on(device), right.pattern_on(device)
        before = driver.used
        product = SparseProduct.build(*patterns, device)
        product.numeric(A, B, C)
        device.memory.trim()  # what no array uses is given back
        assert 4 * product.pattern.nnz < driver.used - before < 8 * right.colidx.size
