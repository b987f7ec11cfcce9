"""Products of two and three matrices as stages: right results from all operands, on every backend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import CsrMatrix, from_row_lengths, poison, shape, stencil
from chains import NOTHING, Exact, operands_of, random_matrix
from emulation.backend import EmulatedBackend
from sparse_products import sorted_rows

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Product, Slot
from petsc_gpufmt.errors import OptionError, OutOfMemoryError, PatternError
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm.census import count_terms, count_words
from petsc_gpufmt.spgemm.chain import STAGES, parse_options, plan_product

EVERY_PRODUCT = pytest.mark.parametrize("product", Product, ids=lambda p: p.formula)
ACCUMULATORS = pytest.mark.parametrize("accumulator", ["auto", "merge", "hash"])
SCALAR, INDEX = native_library.petsc_types()
INDEX_BYTES = INDEX.itemsize
SLOTS = (Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES)


@pytest.fixture
def host():
    return HostBackend(SCALAR, INDEX)


class Planned:
    """A product after its symbolic phase, in poisoned memory, with its numeric phase as a call.

    `validated`: the longest rows of the operands are known.
    """

    def __init__(self, product, operands, backend, validated=False, **options):
        poison(backend)
        self.product, self.backend = product, backend
        patterns = [m.pattern_on(backend) for m in operands]
        if validated:
            patterns = [pattern.validated(backend) for pattern in patterns]
        self.plan = plan_product(product, patterns, backend, options)

    def numeric(self, operands):
        """(nnz,) values of the result for other values of the operands."""
        scalar, adopt = self.backend.scalar, self.backend.adopt
        values = {slot: adopt(m.values.astype(scalar)) for slot, m in zip(SLOTS, operands, strict=False)}
        values[Slot.RESULT] = adopt(np.full(self.plan.pattern.nnz, np.nan, dtype=scalar))
        self.backend.run(self.plan.numeric, values)
        return self.backend.to_host(values[Slot.RESULT])

    def check(self, operands):
        pattern, to_host = self.plan.pattern, self.backend.to_host
        rounded = [replace(m, values=m.values.astype(self.backend.scalar)) for m in operands]
        values = self.numeric(rounded)
        Exact.of(self.product, rounded).check(to_host(pattern.rowptr), to_host(pattern.colidx), values)


@EVERY_PRODUCT
@ACCUMULATORS
def test_products_on_the_host(product, accumulator, host):
    operands = operands_of(product, 70, 40)
    Planned(product, operands, host, accumulator=accumulator).check(operands)


@EVERY_PRODUCT
@ACCUMULATORS
def test_products_in_emulation(product, accumulator, emulation_folder):
    operands = operands_of(product, 30, 20)
    backend = EmulatedBackend("float64", "int32", emulation_folder)
    Planned(product, operands, backend, accumulator=accumulator).check(operands)


@pytest.mark.gpu
@EVERY_PRODUCT
@ACCUMULATORS
@pytest.mark.parametrize(("scalar", "index"), [("float64", "int32"), ("float32", "int64")])
def test_products_on_a_device(product, accumulator, scalar, index):
    from petsc_gpufmt.backends.backend import CudaBackend

    operands = operands_of(product, 700, 300, longest=25)
    Planned(product, operands, CudaBackend(scalar, index, device=0), accumulator=accumulator).check(operands)


@EVERY_PRODUCT
@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 7), (7, 0), (1, 1), (50, 3), (3, 50)])
def test_sizes_that_are_small_or_zero(product, n, m, host):
    operands = operands_of(product, n, m)
    Planned(product, operands, host).check(operands)


@EVERY_PRODUCT
@pytest.mark.parametrize("empty", range(3))
def test_an_operand_without_entries(product, empty, host):
    operands = operands_of(product, 20, 10)
    if empty < len(operands):
        m = operands[empty]
        operands[empty] = from_row_lengths(np.zeros(m.nrows, dtype=np.int64), m.ncols, seed=1)
    Planned(product, operands, host).check(operands)


@EVERY_PRODUCT
@pytest.mark.parametrize(
    "name",
    ["power_law", "empty_rows"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in ("banded", "dense", "explicit_zeros", "stencil")],
)
def test_shapes(product, name, host):
    given = shape(name)
    A = given if given.nrows == given.ncols else random_matrix(given.nrows, given.nrows, 5, seed=3)
    tall, wide = random_matrix(A.nrows, 33, 6, seed=5), random_matrix(33, A.nrows, 6, seed=7)
    other = given if given.nrows != given.ncols else tall
    operands = {
        Product.AB: [A, other],
        Product.ATB: [other, A],
        Product.ABT: [A, wide],
        Product.PTAP: [A, other],
        Product.RART: [A, wide],
        Product.ABC: [wide, A, other],
        Product.ATBC: [other, A, tall],
    }[product]
    Planned(product, operands, host).check(operands)


@EVERY_PRODUCT
@ACCUMULATORS
def test_columns_that_are_unsorted_or_repeat(product, accumulator, host):
    rng = np.random.default_rng(70)

    def disorder(matrix: CsrMatrix) -> CsrMatrix:
        shuffled = np.lexsort((rng.random(matrix.colidx.size), matrix.rows))
        return replace(matrix, colidx=matrix.colidx[shuffled] // 3 * 3, values=matrix.values[shuffled])

    operands = [disorder(m) for m in operands_of(product, 40, 30)]
    Planned(product, operands, host, accumulator=accumulator).check(operands)


@EVERY_PRODUCT
@pytest.mark.parametrize("longest", [4, 25])
def test_factors_are_sorted_where_it_shows_only_with_their_product(product, longest, emulation_folder):
    """Rows that are known to be short are looked at when they are merged."""
    operands = [
        replace(m, colidx=np.concatenate([m.colidx[:-2], m.colidx[-2:][::-1]])) if m.colidx.size > 1 else m
        for m in operands_of(product, 30, 20, longest=longest)
    ]
    device = EmulatedBackend("float64", "int32", emulation_folder)
    Planned(product, operands, device, validated=True).check(operands)


@EVERY_PRODUCT
@pytest.mark.parametrize(("longest", "resident_threads"), [(4, 0), (25, 0), (25, 2048)])
def test_kernels_alone_compute_with_arrays_of_a_device(product, longest, resident_threads, emulation_folder):
    device = EmulatedBackend("float64", "int32", emulation_folder, resident_threads, device_like=True)
    operands = [sorted_rows(m) for m in operands_of(product, 50, 30, longest=longest)]
    patterns = [replace(m.pattern_on(device), longest=int(np.diff(m.rowptr).max())) for m in operands]
    plan = plan_product(product, patterns, device, {})
    assert 0 < plan.bytes_held <= plan.bytes_needed and plan.detail
    (values,) = device.empty((plan.pattern.nnz, device.scalar))
    given = {slot: device.adopt(m.values) for slot, m in zip(SLOTS, operands, strict=False)}
    device.run(plan.numeric, {**given, Slot.RESULT: values})
    arrays = plan.pattern.rowptr, plan.pattern.colidx, values
    Exact.of(product, operands).check(*map(device.to_host, arrays))


def test_kernels_alone_sort_a_factor_on_a_device(emulation_folder):
    device = EmulatedBackend("float64", "int32", emulation_folder, device_like=True)
    A, B = operands_of(Product.AB, 30, 20)
    B = replace(B, colidx=B.colidx[::-1].copy())
    assert plan_product(Product.AB, [m.pattern_on(device) for m in (A, B)], device, {}).pattern.nnz


class CountingBackend(EmulatedBackend):
    """Counts the times that the host waits."""

    waits = 0

    def first(self, array, count, meanwhile=None):
        self.waits += 1
        return super().first(array, count, meanwhile)


@pytest.mark.parametrize("longest", [0, 500, 600, 1500])
@pytest.mark.parametrize("ncols", [4, 0])
def test_long_rows_of_a_transpose_are_in_order_before_values_are_summed(longest, ncols, emulation_folder, monkeypatch):
    """The length of the longest is read with the counters of the product, if it has terms."""
    entries = np.arange(1600) < longest
    A = from_row_lengths(entries.astype(np.int64), 1, seed=72)
    operands = [A, from_row_lengths(np.full(1600, min(ncols, 3)), ncols, seed=73)]
    device = CountingBackend("float64", "int32", emulation_folder, resident_threads=2048)
    planned = Planned(Product.ATB, operands, device)
    assert device.waits == min(1, longest)
    planned.check(operands)
    monkeypatch.setitem(STAGES, Product.ATB, lambda c, A, B: c.multiplied(c.transposed(A), B, Slot.RESULT))
    at_once = Planned(Product.ATB, operands, device)
    assert planned.numeric(operands).tobytes() == at_once.numeric(operands).tobytes()


def test_pieces_of_long_rows_of_a_transpose_are_those_of_its_final_order(emulation_folder):
    """What is merged in pieces depends on the order of entries in both phases."""
    A = from_row_lengths(np.ones(1300, dtype=np.int64), 1, seed=76)
    operands = [A, random_matrix(1300, 40, 9, seed=77)]
    device = EmulatedBackend("float64", "int32", emulation_folder, resident_threads=2048)
    Planned(Product.ATB, operands, device, accumulator="merge").check(operands)


def test_the_host_waits_twice_for_a_galerkin_product(emulation_folder):
    device = CountingBackend("float64", "int32", emulation_folder, resident_threads=1 << 14)
    operands = [random_matrix(300, 300, 7, seed=74), from_row_lengths(np.full(300, 4), 20, seed=75)]
    patterns = [m.pattern(np, device.index).validated(device) for m in operands]
    device.waits = 0
    plan_product(Product.PTAP, patterns, device, {})
    assert device.waits == 2


def test_what_can_wait_is_done_while_the_device_counts(emulation_folder):
    """P^T is filled, and the numeric phase of A P planned."""
    device = CountingBackend("float64", "int32", emulation_folder, resident_threads=1 << 14)
    operands = [random_matrix(300, 300, 7, seed=74), from_row_lengths(np.full(300, 4), 20, seed=75)]
    patterns = [m.pattern(np, device.index).validated(device) for m in operands]
    waits_before: dict[str, list[int]] = {}
    function, device.waits = device.function, 0

    def asked(stem, kernel, template):
        waits_before.setdefault(kernel, []).append(device.waits)
        return function(stem, kernel, template)

    device.function = asked
    plan_product(Product.PTAP, patterns, device, {})

    assert waits_before["transpose_row_pointer"] == [0] and waits_before["transpose_scatter"] == [1]
    values = [waits for kernel, waits in waits_before.items() if kernel.startswith("spgemm_hash_values")]
    assert sum(values, []) == [2, 2] and waits_before["spgemm_row_pointer"] == [0, 1]


def test_a_galerkin_product_of_short_rows_is_merged_in_both_stages(emulation_folder):
    """The longest row of P^T is known with A P, so that no terms are counted first."""
    A, P = stencil(6, 5, 1), from_row_lengths(np.ones(30, dtype=np.int64), 15, seed=78)
    device = CountingBackend("float64", "int32", emulation_folder, resident_threads=1 << 14)
    patterns = [m.pattern(np, device.index).validated(device) for m in (A, P)]
    device.waits = 0

    planned = plan_product(Product.PTAP, patterns, device, {})

    assert device.waits == 2 and planned.detail.count("columns by merge: rows of") == 2


def test_terms_that_cancel_stay_in_the_pattern(host):
    A = CsrMatrix(1, 2, np.array([0, 2]), np.array([0, 1]), np.array([1.0, -1.0]))
    B = CsrMatrix(2, 1, np.array([0, 1, 2]), np.array([0, 0]), np.array([3.0, 3.0]))
    planned = Planned(Product.AB, [A, B], host)
    assert planned.plan.pattern.nnz == 1
    assert planned.numeric([A, B]).tolist() == [0.0]


@EVERY_PRODUCT
def test_other_values_need_no_new_plan(product, host):
    operands = operands_of(product, 50, 30)
    planned = Planned(product, operands, host)
    rng = np.random.default_rng(71)
    for _ in range(3):
        operands = [replace(m, values=rng.standard_normal(m.values.size)) for m in operands]
        planned.check(operands)


@EVERY_PRODUCT
@ACCUMULATORS
def test_the_same_bits_in_every_run(product, accumulator, host):
    operands = operands_of(product, 60, 30)
    first = Planned(product, operands, host, accumulator=accumulator)
    again = Planned(product, operands, host, accumulator=accumulator)
    assert first.numeric(operands).tobytes() == first.numeric(operands).tobytes() == again.numeric(operands).tobytes()


def test_a_plan_knows_its_terms_and_describes_its_stages(host):
    A, P = operands_of(Product.PTAP, 60, 30)
    plan = Planned(Product.PTAP, [A, P], host).plan
    lengths = np.diff(P.rowptr)
    structure = Exact.of(Product.AB, [A, P]).pattern
    first = lengths[A.colidx].sum()
    second = structure.sum(axis=1)[P.rows].sum()
    assert plan.terms == first + second
    assert plan.summary == f"PtAP, 30 x 30 with {plan.pattern.nnz} nonzeros, {plan.terms} terms"
    stages = plan.detail.splitlines()
    assert [line.partition(":")[0] for line in stages] == ["A P", "P^T (A P)"]
    assert stages[0].startswith(f"A P: {first} terms to {structure.sum()} entries")


@EVERY_PRODUCT
def test_a_plan_predicts_at_least_what_it_keeps(product, host):
    operands = operands_of(product, 200, 90)
    plan = Planned(product, operands, host).plan
    patterns = sum(INDEX_BYTES * (m.nrows + 1 + m.colidx.size) for m in operands)
    assert patterns < plan.bytes_held <= plan.bytes_needed


def test_the_pattern_of_the_intermediate_matrix_counts_once(host):
    """A product by itself keeps its result's pattern; as a stage it is an operand of the next one as well."""
    A, P = operands_of(Product.PTAP, 200, 90)
    first = Planned(Product.AB, [A, P], host).plan
    both = Planned(Product.PTAP, [A, P], host).plan
    values = first.pattern.nnz * SCALAR.itemsize
    transpose = P.colidx.size * (2 * INDEX_BYTES + SCALAR.itemsize) + 91 * INDEX_BYTES
    result = both.pattern.nnz * INDEX_BYTES + 91 * INDEX_BYTES
    assert both.bytes_held - first.bytes_held <= values + transpose + result + first.pattern.nnz * INDEX_BYTES


def test_what_needs_more_memory_than_there_is_is_refused_before_it_is_taken(host):
    host.free_bytes = lambda: 2000
    with pytest.raises(OutOfMemoryError, match="GB are free"):
        Planned(Product.PTAP, operands_of(Product.PTAP, 60, 30), host)


def test_the_transpose_says_what_it_needs(host):
    host.free_bytes = lambda: 2000
    with pytest.raises(OutOfMemoryError, match=r"the transpose of A needs .* GB"):
        Planned(Product.ATB, operands_of(Product.ATB, 60, 30), host)


def test_operands_that_do_not_chain(host):
    with pytest.raises(PatternError, match="a 60 x 60 matrix cannot be multiplied by one of 30 x 60"):
        Planned(Product.AB, operands_of(Product.ABT, 60, 30), host)


def test_a_chain_of_nothing(host):
    Planned(Product.ABC, [NOTHING, NOTHING, NOTHING], host).check([NOTHING, NOTHING, NOTHING])


@pytest.mark.parametrize(
    ("rowptr", "colidx", "rises"),
    [
        ([0, 0, 0], [], True),
        ([0, 1, 1], [4], True),
        ([0, 2, 2, 4], [1, 5, 0, 3], True),
        ([0, 0, 3, 3], [0, 1, 2], True),
        ([0, 2], [1, 1], False),
        ([0, 1, 3], [0, 2, 1], False),
        ([0, 2, 2, 4], [1, 5, 3, 0], False),
    ],
)
def test_whether_rows_rise(rowptr, colidx, rises, host, emulation_folder):
    for place in (host, EmulatedBackend(SCALAR, INDEX, emulation_folder)):
        nrows = len(rowptr) - 1
        right = CsrPattern(nrows, 6, *(np.array(a, dtype=place.index) for a in (rowptr, colidx)))
        left = CsrPattern(1, nrows, np.array([0, 1], dtype=place.index), np.zeros(1, dtype=place.index))
        for count in (count_terms, count_words):
            assert count(left, right, place).rises is rises


def test_options_as_text():
    assert parse_options("") == {}
    assert parse_options("accumulator=merge;merge_width=8;") == {"accumulator": "merge", "merge_width": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width=8;", "width is not an option of a sparse product: there are accumulator, "),
        ("merge_width=wide;", "-mat_rmerge_width wide: a whole number is needed"),
        ("merge_width=1_6;", "-mat_rmerge_width 1_6: a whole number is needed"),
    ],
)
def test_options_that_there_are_not(text, message):
    with pytest.raises(OptionError, match=message):
        parse_options(text)
