"""What holds for every sparse product, however its rows are computed; the choice of that; sizes, limits, errors."""

from dataclasses import replace

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, CsrMatrix, from_row_lengths, shape, stencil, uniform
from emulation.backend import EmulatedBackend
from places import EVERY_PLACE, make_backend
from sparse_products import ComputedProduct, chained, other_values, sorted_rows
from stored_matrix import assert_same_bits

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.errors import IndexOverflowError, OptionError, OutOfMemoryError, PatternError
from petsc_gpufmt.option_value import AUTO
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm import census, product
from petsc_gpufmt.spgemm.census import Operands, count_terms, count_words, row_pointer
from petsc_gpufmt.spgemm.product import ACCUMULATORS, SparseProduct
from petsc_gpufmt.spgemm.splitting import WIDTHS

EVERY_ACCUMULATOR = pytest.mark.parametrize("accumulator", [AUTO, *ACCUMULATORS])


class SmallDevice(HostBackend):
    """The host in the part of a device with little memory."""

    def free_bytes(self):
        return 50_000


@pytest.fixture
def host():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture(params=EVERY_PLACE)
def place(request):
    types = () if request.param == "host" else ("float64", "int32")
    return make_backend(request, request.param, *types)


def dense(*rows):
    """A matrix with all entries of these rows, zeros too."""
    values = np.array(rows, dtype=np.float64)
    nrows, ncols = values.shape
    columns = np.tile(np.arange(ncols), nrows)
    return CsrMatrix(nrows, ncols, np.arange(nrows + 1) * ncols, columns, values.ravel())


def pattern(matrix, backend):
    return matrix.pattern(backend.xp, backend.index)


@EVERY_ACCUMULATOR
@EVERY_SHAPE_MOST_SLOW
def test_products_on_the_host(host, shape_name, accumulator):
    matrix = sorted_rows(shape(shape_name))
    ComputedProduct(matrix, sorted_rows(matrix.transposed()), host, {"accumulator": accumulator}).check()
    ComputedProduct(matrix, chained(matrix), host, {"accumulator": accumulator}).check()


@pytest.mark.gpu
@EVERY_ACCUMULATOR
@EVERY_SHAPE_MOST_SLOW
def test_products_on_the_device(shape_name, accumulator):
    device = CudaBackend("float64", "int32", device=0)
    matrix = sorted_rows(shape(shape_name))
    ComputedProduct(matrix, sorted_rows(matrix.transposed()), device, {"accumulator": accumulator}).check()
    ComputedProduct(matrix, chained(matrix), device, {"accumulator": accumulator}).check()


@EVERY_ACCUMULATOR
@pytest.mark.parametrize(
    "shape_name",
    [
        *("0x0", "0xN", "Nx0", "1xN", "tall", "empty_rows", "stencil"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("banded", "dense", "power_law", "blocked_3x3")),
    ],
)
def test_products_in_emulation(emulation_folder, shape_name, accumulator):
    backend = EmulatedBackend("float64", "int32", emulation_folder)
    matrix = sorted_rows(shape(shape_name))
    ComputedProduct(matrix, chained(matrix), backend, {"accumulator": accumulator}).check()


@pytest.mark.slow
@EVERY_ACCUMULATOR
@pytest.mark.parametrize(
    ("scalar", "index"), [("float32", "int32"), ("float64", "int64"), ("float32", "int64"), ("complex128", "int32")]
)
@pytest.mark.parametrize("name", EVERY_PLACE[1:])
def test_products_of_other_types(request, name, scalar, index, accumulator):
    backend = make_backend(request, name, scalar, index)
    for matrix in (shape("tall"), shape("stencil"), uniform(20, 60, 50, seed=83)):
        ComputedProduct(matrix, chained(matrix), backend, {"accumulator": accumulator}).check()


@EVERY_ACCUMULATOR
def test_one_full_row_and_one_full_column(place, accumulator):
    lengths = np.full(150, 2)
    lengths[70] = 150
    row = from_row_lengths(lengths, 150, seed=84)

    for A, B in ((row, row), (row, row.transposed()), (row.transposed(), row)):
        ComputedProduct(A, B, place, {"accumulator": accumulator}).check()


@pytest.mark.real
@EVERY_ACCUMULATOR
def test_entries_that_cancel_stay(place, accumulator):
    computed = ComputedProduct(dense([1, 1], [2, 0]), dense([3, 0], [-3, 4]), place, {"accumulator": accumulator})

    assert computed.rowptr.tolist() == [0, 2, 4]
    assert computed.colidx.tolist() == [0, 1, 0, 1]
    assert computed.values.tolist() == [0, 4, 6, 0]


@pytest.mark.real
@EVERY_ACCUMULATOR
def test_infinite_and_undefined_values_reach_only_their_own_sums(place, accumulator):
    A = CsrMatrix(2, 3, np.array([0, 2, 3]), np.array([0, 1, 2]), np.array([np.inf, 2.0, 3.0]))
    B = CsrMatrix(3, 3, np.array([0, 1, 2, 4]), np.array([0, 2, 0, 1]), np.array([5.0, 7.0, 1.0, np.nan]))

    computed = ComputedProduct(A, B, place, {"accumulator": accumulator})

    assert computed.colidx.tolist() == [0, 2, 0, 1]
    assert computed.values[:3].tolist() == [np.inf, 14, 3]
    assert np.isnan(computed.values[3])


@pytest.mark.slow
@EVERY_ACCUMULATOR
def test_a_plan_serves_other_values_and_has_the_same_bits_again(place, accumulator):
    A = from_row_lengths(np.random.default_rng(85).integers(0, 40, 60), 50, seed=86)
    B = chained(A)
    computed = ComputedProduct(A, B, place, {"accumulator": accumulator})
    first = computed.values

    computed.compute(other_values(A), other_values(B))
    computed.check()
    computed.compute(A, B)
    assert_same_bits(computed.values, first)
    assert_same_bits(ComputedProduct(A, B, place, {"accumulator": accumulator}).values, first)


@EVERY_ACCUMULATOR
def test_left_columns_may_come_in_any_order(place, accumulator):
    A = shape("unsorted_columns")
    ComputedProduct(A, chained(A), place, {"accumulator": accumulator}).check()


EVERY_COUNT = pytest.mark.parametrize("count", [count_terms, count_words])


@pytest.mark.slow
@EVERY_COUNT
def test_terms_are_counted_in_64_bits(host, count):
    column, row = uniform(60_000, 1, 1, seed=87), uniform(1, 40_000, 40_000, seed=88)

    operands = count(pattern(column, host), pattern(row, host), host)

    assert (operands.total_terms, operands.most_terms) == (2_400_000_000, 40_000)
    assert (operands.longest_left, operands.longest_right) == (1, 40_000)
    assert operands.terms.dtype == np.int64


@EVERY_COUNT
def test_terms_of_rows_of_all_lengths(place, count):
    A = shape("power_law")
    B = chained(A)
    operands = count(pattern(A, place), pattern(B, place), place)

    met = np.diff(B.rowptr)[A.colidx]
    expected = A.row_sums(met)
    assert place.to_host(operands.terms).tolist() == expected.tolist()
    assert operands.total_terms == expected.sum()
    assert operands.most_terms == expected.max()
    assert (operands.longest_left, operands.longest_right) == (np.diff(A.rowptr).max(), met.max())


def test_blocks_count_rows_in_turns(emulation_folder):
    """On a device that runs a few blocks at once."""
    device = EmulatedBackend("float64", "int32", emulation_folder, resident_threads=512)
    A = shape("power_law")
    B = chained(A)
    for count in (count_terms, count_words):
        operands = count(pattern(A, device), pattern(B, device), device)

        assert operands.terms.tolist() == A.row_sums(np.diff(B.rowptr)[A.colidx]).tolist()
        assert operands.total_terms == operands.terms.sum()


def rows_of_lengths(lengths, backend):
    """The rows of a C whose rows have `lengths`, and as many terms and entries of A."""
    lengths = backend.xp.asarray(np.asarray(lengths, dtype=np.int64))
    rowptr = np.concatenate([[0], np.cumsum(backend.to_host(lengths) % 1000)])
    A = CsrPattern(lengths.size, 1, backend.xp.asarray(rowptr.astype(backend.index)), None)
    control = backend.xp.zeros(1000, dtype=np.int64)
    (room,) = backend.empty((lengths.size + 1, backend.index))
    return row_pointer(lengths, Operands(A, A, lengths, lengths, room, control), backend)


@pytest.mark.parametrize("few_rows", [0, census.FEW_ROWS])
@pytest.mark.parametrize("nrows", [1, 31, 32, 300, 512, 513, 2048, 2049, pytest.param(70_077, marks=pytest.mark.slow)])
def test_the_row_pointer_of_any_number_of_rows(place, monkeypatch, nrows, few_rows):
    monkeypatch.setattr(census, "FEW_ROWS", few_rows)
    lengths = np.random.default_rng(96).integers(0, 700, nrows)

    rows = rows_of_lengths(lengths, place)

    assert place.to_host(rows.rowptr).tolist() == [0, *np.cumsum(lengths).tolist()]
    assert (rows.nnz, rows.longest) == (lengths.sum(), lengths.max())


def test_rows_of_the_result_are_counted_by_length(emulation_folder):
    device = EmulatedBackend("float64", "int32", emulation_folder)

    rows = rows_of_lengths([0, 1, 16, 17, 501, 500, 1500, 0, 63], device)

    figures = {b: c for b, c in zip((None, 500, 250, 125, 63, 32, 16, 0), rows.census, strict=True) if c[0]}
    assert figures == {
        **{None: (2, 2001, 1001), 500: (1, 500, 500), 63: (1, 63, 63), 32: (1, 17, 17)},
        **{16: (2, 17, 17), 0: (2, 0, 0)},
    }
    assert rows.parts == 2 + 3


def test_a_result_beyond_the_index_type_is_refused(emulation_folder):
    backend = EmulatedBackend("float64", "int32", emulation_folder)

    assert rows_of_lengths([2**31 - 2, 0, 1], backend).nnz == 2**31 - 1
    with pytest.raises(IndexOverflowError, match="has 2147483648 entries, a PetscInt of 32 bits counts 2147483647"):
        rows_of_lengths([2**31 - 2, 1, 1], backend)


def test_memory_that_is_not_there_is_refused_before_it_is_taken():
    device = SmallDevice(*native_library.petsc_types())
    A = stencil(12, 12, 12)

    with pytest.raises(OutOfMemoryError, match=r"needs [\d.e-]+ GB on the device, 5e-05 GB are free: use more ranks"):
        SparseProduct.build(pattern(A, device), pattern(A, device), device)


def test_memory_for_the_result_is_checked_when_its_size_is_known(host, monkeypatch):
    A = stencil()
    asked = []
    monkeypatch.setattr(product, "require_memory", lambda needed, backend, what: asked.append((needed, what)))

    stats = SparseProduct.build(pattern(A, host), pattern(A, host), host).stats

    entry = host.index.itemsize + host.scalar.itemsize
    assert asked[-1] == (stats.nnz * entry, f"the {stats.nnz} entries of the result")
    assert stats.bytes_needed > sum(needed for needed, _ in asked)


def test_matrices_that_do_not_chain_are_refused(host):
    with pytest.raises(PatternError, match="a 1 x 500 matrix cannot be multiplied by one of 60 x 700"):
        SparseProduct.build(pattern(shape("1xN"), host), pattern(shape("wide"), host), host)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulator": "sort"}, "-mat_rmerge_accumulator sort: choose one of auto, merge, hash"),
        ({"merge_width": "x"}, "-mat_rmerge_width x: a whole number is needed"),
        ({"merge_width": 3}, "-mat_rmerge_width 3: choose one of 2, 4, 8, 16, 32, or 0 for automatic"),
        ({"merge_buffer": -1}, "-mat_rmerge_buffer -1: give a number of bytes, or 0 for automatic"),
        ({"colour": 3}, "colour is not an option of a sparse product: there are accumulator, merge_width"),
    ],
)
def test_options_that_there_are_not_are_refused(host, options, message):
    A = pattern(shape("dense"), host)
    with pytest.raises(OptionError, match=message):
        SparseProduct.build(A, A, host, options)


@pytest.mark.parametrize(
    ("longest_left", "longest_right", "found_by"), [(8, 8, "merge"), (9, 8, "hash"), (8, 9, "hash")]
)
def test_columns_are_merged_where_all_rows_are_short_and_hashed_elsewhere(
    emulation_folder, longest_left, longest_right, found_by
):
    device = EmulatedBackend("float64", "int32", emulation_folder)
    A = from_row_lengths(np.array([3, 0, longest_left]), 40, 89)
    B = from_row_lengths(np.array([2] * 39 + [longest_right]), 50, 91)
    A = replace(A, colidx=np.where(np.arange(A.colidx.size) == 2, 39, A.colidx))
    computed = ComputedProduct(A, B, device)

    computed.check()
    assert (computed.plan.phases.symbolic.name, computed.plan.phases.numeric.name) == (found_by, "hash")


@pytest.mark.parametrize("long_factor", ["left", "right"])
def test_terms_are_not_counted_first_where_a_row_is_known_to_be_long(emulation_folder, long_factor):
    """The mean rows are short."""
    device = EmulatedBackend("float64", "int32", emulation_folder)
    kernels = []
    function = device.function
    device.function = lambda stem, kernel, template: kernels.append(kernel) or function(stem, kernel, template)
    one_long = from_row_lengths(np.array([2] * 29 + [9]), 30, seed=99)
    factors = (one_long, uniform(30, 30, 2, seed=90)) if long_factor == "left" else (uniform(9, 30, 4, 92), one_long)

    counts = []
    for A, B in (factors, [pattern(m, device).validated(device) for m in factors]):
        kernels.clear()
        A, B = (m if isinstance(m, CsrPattern) else pattern(m, device) for m in (A, B))
        counts.append(product.count(A, B, device, product.checked_options({})))
        assert ("spgemm_count_terms" in kernels) == (A.longest is None)
    assert counts[0].total_terms == counts[1].total_terms and counts[1].words is not None


def short_factors():
    """Name -> (A, B) without a row of more than 8 entries."""
    random = np.random.default_rng(77)
    some = from_row_lengths(random.integers(0, 9, 300), 90, seed=78)
    last_rows = from_row_lengths(np.array([0] * 60 + [5] * 30), 200, seed=79)
    return {
        "stencil": (stencil(5, 4, 6), stencil(5, 4, 6)),
        "some rows empty": (some, from_row_lengths(random.integers(0, 9, 90), 40, seed=80)),
        "half of B met": (replace(some, colidx=some.colidx * 2 // 3), last_rows),
        "no terms": (replace(some, colidx=some.colidx // 2), last_rows),
        "one entry": (uniform(1, 1, 1, seed=81), uniform(1, 1, 1, seed=82)),
    }


@pytest.mark.parametrize("factors", short_factors())
def test_rows_that_are_known_to_be_short_are_counted_while_they_are_merged(place, factors):
    kernels, function = [], place.function
    place.function = lambda stem, kernel, template: kernels.append(kernel) or function(stem, kernel, template)
    computed = ComputedProduct(*short_factors()[factors], place, validated=True)

    computed.check()
    assert place.name == "host" or not any("count" in kernel for kernel in kernels)
    assert (computed.plan.phases.symbolic is None) == (computed.plan.stats.terms == 0)


@pytest.mark.parametrize("width", WIDTHS)
def test_short_rows_are_counted_before_they_are_merged_with_a_given_width(place, width):
    A, B = short_factors()["some rows empty"]

    ComputedProduct(A, B, place, {"merge_width": width}, validated=True).check()


@pytest.mark.parametrize("row", [0, 1])
def test_columns_that_fall_are_found_while_rows_are_merged(place, row):
    """In rows that a row of the left factor meets, here row 1; no others matter."""
    A = replace(uniform(3, 2, 1, seed=83), colidx=np.ones(3, dtype=np.int64))
    B = uniform(2, 9, 3, seed=84)
    colidx = B.colidx.copy()
    colidx[3 * row : 3 * row + 3] = 5, 5, 2
    patterns = [pattern(m, place).validated(place) for m in (A, replace(B, colidx=colidx))]

    if row == 1 or place.name == "host":
        with pytest.raises(PatternError, match="the columns of the right factor are not sorted, or repeat"):
            SparseProduct.build(*patterns, place)
    else:
        assert SparseProduct.build(*patterns, place).stats.terms == 9


def test_the_longest_row_of_a_product_is_known(place):
    A = from_row_lengths(np.array([3, 0, 12]), 40, 89)
    C = ComputedProduct(A, chained(A), place).plan.pattern

    assert C.longest == np.diff(place.to_host(C.rowptr)).max()


def test_all_rows_are_hashed_on_the_host(host):
    A = uniform(20, 30, 3, seed=95)
    phases = ComputedProduct(A, chained(A), host).plan.phases

    assert phases.symbolic.name == "hash"
    assert phases.symbolic is phases.numeric


def test_a_right_factor_whose_columns_fall_is_refused(host):
    A, B = uniform(3, 1, 1, seed=97), replace(uniform(1, 9, 2, seed=98), colidx=np.array([5, 5]))
    with pytest.raises(PatternError, match="the columns of the right factor are not sorted, or repeat"):
        SparseProduct.build(pattern(A, host), pattern(B, host), host)


@pytest.mark.slow
@pytest.mark.parametrize("values", ACCUMULATORS)
@pytest.mark.parametrize("columns", ACCUMULATORS)
def test_one_accumulator_sums_what_another_has_found(place, columns, values, monkeypatch):
    def both(operands, backend, options):
        return product.Phases(*(ACCUMULATORS[name](operands, backend, options) for name in (columns, values)))

    monkeypatch.setattr(product, "make_accumulators", both)
    A = from_row_lengths(np.random.default_rng(93).integers(0, 50, 40), 60, seed=94)

    ComputedProduct(A, chained(A), place).check()


def test_stats_and_summary(host):
    A = replace(stencil(4, 1, 1), values=np.ones(10))
    computed = SparseProduct.build(pattern(A, host), pattern(A, host), host, {"accumulator": "merge"})

    assert (computed.stats.nnz, computed.stats.terms) == (14, 26)
    assert computed.stats.compression == 26 / 14
    assert computed.summary().startswith("26 terms to 14 entries (1.86 to 1): merge: ")


def test_a_product_without_terms_is_empty(place):
    A, B = shape("all_empty"), uniform(70, 5, 2, seed=92)
    computed = ComputedProduct(A, B, place)

    assert computed.plan.numeric(None, None, None) == []
    assert computed.plan.summary() == "0 terms to 0 entries (1 to 1): no terms"
    assert computed.rowptr.tolist() == [0] * 71


def test_free_memory_of_the_host_is_not_asked_for(host):
    assert host.free_bytes() is None


@pytest.mark.gpu
def test_free_memory_of_a_device_falls_with_what_is_taken():
    device = CudaBackend("float64", "int32", device=0)
    before = device.free_bytes()
    (taken,) = device.empty((1 << 28, np.dtype(np.uint8)))

    assert 0 < device.free_bytes() <= before - taken.nbytes
