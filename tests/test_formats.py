"""What holds for every storage format on every backend: right results to within rounding, whatever the matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from builders import SHAPES, CsrMatrix, from_row_lengths, shape
from emulation.backend import EmulatedBackend
from option_sets import ALL_OPTION_SETS, QUICK_OPTION_SETS, option_id
from stored_matrix import StoredMatrix, assert_product

from petsc_gpufmt import native_library
from petsc_gpufmt.backend import CudaBackend, HostBackend
from petsc_gpufmt.errors import OptionError, UnsupportedError
from petsc_gpufmt.formats.base import parse_options
from petsc_gpufmt.plan import Operation, Slot
from petsc_gpufmt.registry import FORMATS, find_format

SHARED_ROWS = 1 << 20  # resident threads that make threads share the rows of every matrix with rows long enough


@dataclass(frozen=True)
class Place:
    """Where a matrix is stored, in words."""

    backend: str
    scalar: str = "float64"
    index: str = "int32"
    resident_threads: int = 0

    def __str__(self):
        types = "" if self.backend == "host" else f"-{self.scalar}-{self.index}"
        return f"{self.backend}{types}{'-shared_rows' if self.resident_threads else ''}"

    def make(self, request):
        if self.backend == "host":
            return HostBackend(*native_library.petsc_types())
        if self.backend == "cuda":
            return CudaBackend(self.scalar, self.index, device=0)
        folder = request.getfixturevalue("emulation_folder")
        return EmulatedBackend(self.scalar, self.index, folder, self.resident_threads)


def place(*arguments, marks=()):
    p = Place(*arguments)
    return pytest.param(p, id=str(p), marks=marks)


OTHER_TYPES = [("float32", "int32"), ("float64", "int64"), ("float32", "int64")]
HOST = place("host")
EMULATION = place("emulation")
EMULATION_SHARED_ROWS = place("emulation", "float64", "int32", SHARED_ROWS)
CUDA = place("cuda", marks=pytest.mark.gpu)
QUICK_PLACES = [HOST, EMULATION, place("emulation", "float32", "int64", SHARED_ROWS), CUDA]
PLACES_OF_OTHER_TYPES = [
    *(place("emulation", *types, threads) for types in OTHER_TYPES for threads in (0, SHARED_ROWS)),
    *(place("cuda", *types, marks=pytest.mark.gpu) for types in OTHER_TYPES),
]


@pytest.fixture
def backend(request):
    return request.param.make(request)


def mult(stored: StoredMatrix):
    x, _ = stored.vectors()
    assert_product(stored.mult(x), stored.matrix, x)


def multadd(stored: StoredMatrix):
    x, y = stored.vectors()
    assert_product(stored.multadd(x, y), stored.matrix, x, y)


def multadd_in_place(stored: StoredMatrix):
    x, y = stored.vectors()
    assert_product(stored.multadd(x, y, in_place=True), stored.matrix, x, y)


def refresh(stored: StoredMatrix):
    x, _ = stored.vectors()
    places = np.arange(stored.matrix.values.size, dtype=stored.backend.scalar)
    changed = replace(stored.matrix, values=stored.matrix.values * 2 + places)
    stored.refresh(changed.values)
    assert_product(stored.mult(x), changed, x)


def reference(stored: StoredMatrix):
    x, y = stored.vectors()
    assert_product(stored.format.reference(x), stored.matrix, x)
    assert_product(stored.format.reference(x, y), stored.matrix, x, y)


DIRECT = {f.__name__: f for f in (mult, multadd, multadd_in_place, refresh, reference)}
TRANSPOSED = {f.__name__: f for f in (mult, multadd, multadd_in_place)}
OPERATIONS = [(name, False) for name in DIRECT] + [(name, True) for name in TRANSPOSED]
OPERATION_IDS = [f"{name}_transposed" if transposed else name for name, transposed in OPERATIONS]


def cases(option_sets):
    return [pytest.param(f, o, id=f"{f}-{option_id(o)}") for f in FORMATS for o in option_sets[f]]


def check_operation(format_name, options, backend, matrix, operation):
    name, transposed = operation
    DIRECT[name](StoredMatrix(matrix, find_format(format_name), backend, options, transposed))


@pytest.mark.parametrize("operation", OPERATIONS, ids=OPERATION_IDS)
@pytest.mark.parametrize("shape_name", SHAPES)
@pytest.mark.parametrize("backend", QUICK_PLACES, indirect=True)
@pytest.mark.parametrize(("format_name", "options"), cases(QUICK_OPTION_SETS))
def test_operation(format_name, options, backend, shape_name, operation):
    check_operation(format_name, options, backend, shape(shape_name), operation)


@pytest.mark.slow
@pytest.mark.parametrize("shape_name", SHAPES)
@pytest.mark.parametrize("backend", [HOST, EMULATION, EMULATION_SHARED_ROWS, CUDA], indirect=True)
@pytest.mark.parametrize(("format_name", "options"), cases(ALL_OPTION_SETS))
def test_operations_with_all_options(format_name, options, backend, shape_name):
    for operation in OPERATIONS:
        check_operation(format_name, options, backend, shape(shape_name), operation)


@pytest.mark.slow
@pytest.mark.parametrize("shape_name", SHAPES)
@pytest.mark.parametrize("backend", PLACES_OF_OTHER_TYPES, indirect=True)
@pytest.mark.parametrize(("format_name", "options"), cases(QUICK_OPTION_SETS))
def test_operations_with_other_types(format_name, options, backend, shape_name):
    for operation in OPERATIONS:
        check_operation(format_name, options, backend, shape(shape_name), operation)


@pytest.mark.slow
@pytest.mark.parametrize("backend", [HOST, CUDA], indirect=True)
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_million_random_rows_stay_within_the_rounding_bound(format_name, backend):
    for seed in range(10):
        lengths = np.random.default_rng(100 + seed).integers(0, 20, 1000)
        block = from_row_lengths(lengths, 5000, seed=200 + seed)
        copies = 100
        rng = np.random.default_rng(300 + seed)
        rowptr = np.concatenate([[0], np.cumsum(np.tile(lengths, copies))])
        matrix = CsrMatrix(
            copies * 1000, 5000, rowptr, np.tile(block.colidx, copies), rng.standard_normal(copies * block.colidx.size)
        )
        stored = StoredMatrix(matrix, find_format(format_name), backend, {})
        mult(stored)


@pytest.mark.parametrize("backend", [HOST, CUDA], indirect=True)
@pytest.mark.parametrize("format_name", FORMATS)
def test_random_matrices_with_random_options(format_name, backend):
    rng = np.random.default_rng(31)
    for seed in range(250):
        nrows, ncols, longest = rng.integers(1, [300, 300, 30])
        lengths = rng.integers(0, min(longest, ncols) + 1, nrows)
        options = ALL_OPTION_SETS[format_name][rng.integers(len(ALL_OPTION_SETS[format_name]))]
        transposed = bool(rng.integers(2))
        stored = StoredMatrix(
            from_row_lengths(lengths, ncols, seed), find_format(format_name), backend, options, transposed
        )
        multadd(stored)


NON_FINITE_SHAPES = ["tall", "wide", "power_law", "empty_rows", "explicit_zeros", "unsorted_columns"]
EVERY_FORMAT = pytest.mark.parametrize(("format_name", "options"), cases(QUICK_OPTION_SETS))
EVERY_PLACE = pytest.mark.parametrize("backend", QUICK_PLACES, indirect=True)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("shape_name", NON_FINITE_SHAPES)
@EVERY_PLACE
@EVERY_FORMAT
def test_inf_and_nan_in_x_reach_only_rows_that_use_the_column(format_name, options, backend, shape_name, value):
    stored = StoredMatrix(shape(shape_name), find_format(format_name), backend, options)
    matrix = stored.matrix
    x, y = stored.vectors()
    clean = stored.multadd(x, y)
    for column in (0, matrix.ncols // 2, matrix.ncols - 1):
        spoiled = x.copy()
        spoiled[column] = value
        uses = np.isin(np.arange(matrix.nrows), matrix.rows[matrix.colidx == column])

        z = stored.multadd(spoiled, y)

        assert not np.isfinite(z[uses]).any()
        assert z[~uses].tolist() == clean[~uses].tolist()


@EVERY_PLACE
@EVERY_FORMAT
def test_nan_in_one_value_and_in_one_entry_of_y_reaches_one_row(format_name, options, backend):
    stored = StoredMatrix(shape("power_law"), find_format(format_name), backend, options)
    x, y = stored.vectors()
    clean = stored.multadd(x, y)
    values = stored.matrix.values.copy()
    values[-1], spoiled_row = np.nan, stored.matrix.rows[-1]
    y[7] = np.nan

    stored.refresh(values)
    z = stored.multadd(x, y)

    assert np.flatnonzero(np.isnan(z)).tolist() == sorted({7, spoiled_row})
    assert np.delete(z, [7, spoiled_row]).tolist() == np.delete(clean, [7, spoiled_row]).tolist()


@EVERY_PLACE
@EVERY_FORMAT
@pytest.mark.parametrize("transposed", [False, True], ids=["direct", "transposed"])
def test_results_repeat_bit_for_bit(format_name, options, backend, transposed):
    cls = find_format(format_name)
    stored = StoredMatrix(shape("power_law"), cls, backend, options, transposed)
    x, y = stored.vectors()
    first = stored.multadd(x, y).tobytes()

    assert all(stored.multadd(x, y).tobytes() == first for _ in range(200 if backend.name == "cuda" else 5))
    again = StoredMatrix(shape("power_law"), cls, backend, options, transposed)
    assert again.multadd(x, y).tobytes() == first


@pytest.mark.parametrize(
    "backend",
    [
        place("emulation", "float32", "int64"),
        place("cuda", "float32", "int64", marks=[pytest.mark.gpu, pytest.mark.slow]),
    ],
    indirect=True,
)
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_column_index_beyond_32_bits(format_name, backend):
    ncols = 2**31 + 2
    matrix = CsrMatrix(2, ncols, np.array([0, 1, 2]), np.array([ncols - 1, 0]), np.array([3.0, 5.0]))
    stored = StoredMatrix(matrix, find_format(format_name), backend, {})
    x, z = backend.xp.zeros(ncols, dtype=backend.scalar), backend.xp.full(2, np.nan, dtype=backend.scalar)
    x[0], x[ncols - 1] = 7, 11

    backend.run(stored.format.plan(Operation.MULT), {Slot.X: x, Slot.Z: z})

    assert backend.to_host(z).tolist() == [33, 35]


@pytest.mark.parametrize("shape_name", SHAPES)
@pytest.mark.parametrize("backend", [HOST, CUDA], indirect=True)
@EVERY_FORMAT
def test_stats_count_what_is_stored(format_name, options, backend, shape_name):
    stored = StoredMatrix(shape(shape_name), find_format(format_name), backend, options)
    stats, matrix = stored.format.stats(), stored.matrix
    entry_bytes = backend.index.itemsize + backend.scalar.itemsize

    assert stats.nnz == matrix.values.size <= stats.nstored
    assert stats.fill_ratio == pytest.approx(1 - stats.nnz / max(1, stats.nstored) if stats.nstored else 0)
    assert stats.nonempty_rows == np.unique(matrix.rows).size
    assert stats.bytes_held >= stats.nstored * entry_bytes
    vectors_bytes = (matrix.nrows + matrix.ncols) * backend.scalar.itemsize
    assert stats.bytes_per_product >= stats.nnz * entry_bytes + vectors_bytes


def test_the_library_and_the_formats_have_the_same_options_and_defaults():
    assert native_library.option_table() == {name: cls.default_options for name, cls in FORMATS.items()}


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_unknown_option_is_refused_with_the_names_of_those_there_are(format_name):
    with pytest.raises(OptionError, match=f"-mat_{format_name}_colour is not an option: there are -mat_{format_name}_"):
        parse_options(find_format(format_name), "colour=3;")


def test_an_unknown_format_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(UnsupportedError, match=f"no storage format is called 'jad': there are {', '.join(FORMATS)}"):
        find_format("jad")
