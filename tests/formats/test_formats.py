"""What holds for every storage format on every backend: right results to within rounding, whatever the matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from builders import (
    EVERY_SHAPE_MOST_SLOW,
    SHAPES,
    TELLING_SHAPES,
    TELLING_SHAPES_LARGEST_SLOW,
    CsrMatrix,
    from_row_lengths,
    shape,
)
from format_checks import check
from option_sets import ALL_OPTION_SETS, QUICK_OPTION_SETS, option_id
from places import SCALAR, make_backend
from stored_matrix import StoredMatrix, assert_product, assert_same_bits

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.choice.registry import FORMATS, find_format
from petsc_gpufmt.errors import OptionError, UnsupportedError
from petsc_gpufmt.formats.common.base import parse_options

SHARED_ROWS = 1 << 20  # resident threads that make threads share the rows of every matrix with rows long enough


@dataclass(frozen=True)
class Place:
    """Where a matrix is stored, in words."""

    backend: str
    scalar: str = "float64"
    index: str = "int32"
    resident_threads: int = 0

    def __str__(self):
        types = f"-{self.scalar}" if self.backend == "host" else f"-{self.scalar}-{self.index}"
        return f"{self.backend}{types}{'-shared_rows' if self.resident_threads else ''}"

    def make(self, request):
        return make_backend(request, self.backend, self.scalar, self.index, self.resident_threads)


def place(*arguments, marks=()):
    p = Place(*arguments)
    return pytest.param(p, id=str(p), marks=marks)


OTHER_TYPES = [("float32", "int32"), ("float64", "int64")]
HOST = place("host", SCALAR.name)
HOST_SINGLE = place("host", "float32")
EMULATION = place("emulation")
EMULATION_SHARED_ROWS = place("emulation", "float64", "int32", SHARED_ROWS)
CUDA = place("cuda", marks=pytest.mark.gpu)

EVERY_FORMAT = pytest.mark.parametrize("format_name", FORMATS)
EVERY_SHAPE = pytest.mark.parametrize("shape_name", SHAPES)


def everywhere(*places):
    return pytest.mark.parametrize("backend", places, indirect=True)


@pytest.fixture
def backend(request):
    return request.param.make(request)


def check_format(format_name, option_sets, backend, shape_name, transposes=True):
    """All checks of a matrix, and of its transpose if asked for, under each set of options."""
    for options in option_sets:
        for transposed in (False, True) if transposes else (False,):
            what = f"{format_name} {option_id(options)}, {shape_name}{', transposed' if transposed else ''}"
            try:
                stored = StoredMatrix(shape(shape_name), find_format(format_name), backend, options, transposed)
            except Exception as e:
                raise AssertionError(f"{what}, build: {e or type(e).__name__}") from e
            check(stored, what)


@EVERY_SHAPE_MOST_SLOW
@everywhere(HOST)
@EVERY_FORMAT
def test_default_options(format_name, backend, shape_name):
    check_format(format_name, [{}], backend, shape_name, transposes=shape_name in TELLING_SHAPES)


@TELLING_SHAPES_LARGEST_SLOW
@everywhere(HOST_SINGLE)
@EVERY_FORMAT
def test_default_options_in_single_precision(format_name, backend, shape_name):
    check_format(format_name, [{}], backend, shape_name, transposes=False)


@TELLING_SHAPES_LARGEST_SLOW
@everywhere(EMULATION)
@EVERY_FORMAT
def test_default_options_in_emulation(format_name, backend, shape_name):
    check_format(format_name, [{}], backend, shape_name, transposes=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "shape_name"),
    [
        (Place("emulation", "complex128", "int32"), "blocked_4x4_incomplete"),
        (Place("emulation", "complex64", "int64"), "power_law"),
        pytest.param(Place("cuda", "complex128", "int32"), "blocked_4x4_incomplete", marks=pytest.mark.gpu),
        pytest.param(Place("cuda", "complex128", "int32"), "power_law", marks=pytest.mark.gpu),
        pytest.param(Place("cuda", "complex64", "int64"), "stencil", marks=pytest.mark.gpu),
    ],
    indirect=["backend"],
    ids=str,
)
@EVERY_FORMAT
def test_default_options_with_complex_numbers(format_name, backend, shape_name):
    check_format(format_name, [{}], backend, shape_name, transposes=False)


@pytest.mark.slow
@EVERY_SHAPE
@everywhere(EMULATION, EMULATION_SHARED_ROWS)
@EVERY_FORMAT
def test_default_options_in_emulation_of_all_shapes(format_name, backend, shape_name):
    check_format(format_name, [{}], backend, shape_name)


@EVERY_SHAPE
@everywhere(CUDA)
@EVERY_FORMAT
def test_some_options(format_name, backend, shape_name):
    check_format(format_name, QUICK_OPTION_SETS[format_name], backend, shape_name)


@pytest.mark.slow
@EVERY_SHAPE
@everywhere(HOST, CUDA)
@EVERY_FORMAT
def test_all_options(format_name, backend, shape_name):
    check_format(
        format_name, ALL_OPTION_SETS[format_name], backend, shape_name, transposes=shape_name in TELLING_SHAPES
    )


@pytest.mark.slow
@pytest.mark.parametrize("shape_name", TELLING_SHAPES)
@everywhere(EMULATION_SHARED_ROWS)
@EVERY_FORMAT
def test_all_options_in_emulation(format_name, backend, shape_name):
    check_format(format_name, ALL_OPTION_SETS[format_name], backend, shape_name, transposes=False)


@pytest.mark.slow
@pytest.mark.parametrize("shape_name", TELLING_SHAPES)
@everywhere(
    *(place("emulation", *types, SHARED_ROWS) for types in OTHER_TYPES),
    *(place("cuda", *types, marks=pytest.mark.gpu) for types in OTHER_TYPES),
)
@EVERY_FORMAT
def test_other_types(format_name, backend, shape_name):
    check_format(format_name, QUICK_OPTION_SETS[format_name], backend, shape_name, transposes=False)


@pytest.mark.slow
@everywhere(HOST, CUDA)
@EVERY_FORMAT
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
        x, _ = stored.vectors()
        assert_product(stored.mult(x), stored.matrix, x)


@pytest.mark.slow
@everywhere(HOST, CUDA)
@EVERY_FORMAT
def test_random_matrices_with_random_options(format_name, backend):
    rng = np.random.default_rng(31)
    for seed in range(30):
        nrows, ncols, longest = rng.integers(1, [300, 300, 30]).tolist()
        lengths = rng.integers(0, min(longest, ncols) + 1, nrows)
        options = ALL_OPTION_SETS[format_name][rng.integers(len(ALL_OPTION_SETS[format_name]))]
        transposed = bool(rng.integers(2))
        stored = StoredMatrix(
            from_row_lengths(lengths, ncols, seed), find_format(format_name), backend, options, transposed
        )
        x, y = stored.vectors()
        assert_product(stored.multadd(x, y), stored.matrix, x, y)


@everywhere(HOST, CUDA)
@EVERY_FORMAT
def test_a_matrix_stored_again_has_the_same_bits(format_name, backend):
    for options in QUICK_OPTION_SETS[format_name]:
        first, again = (
            StoredMatrix(shape("rows_to_split"), find_format(format_name), backend, options) for _ in range(2)
        )
        x, y = first.vectors()
        expected = first.multadd(x, y)

        for _ in range(100 if backend.name == "cuda" else 1):
            assert_same_bits(again.multadd(x, y), expected)


@pytest.mark.slow
@everywhere(
    place("emulation", "float32", "int64"),
    place("cuda", "float32", "int64", marks=pytest.mark.gpu),
)
@EVERY_FORMAT
def test_a_column_index_beyond_32_bits(format_name, backend):
    ncols = 2**31 + 2
    matrix = CsrMatrix(2, ncols, np.array([0, 1, 2]), np.array([ncols - 1, 0]), np.array([3.0, 5.0]))
    stored = StoredMatrix(matrix, find_format(format_name), backend, {})
    x, z = backend.xp.zeros(ncols, dtype=backend.scalar), backend.xp.full(2, np.nan, dtype=backend.scalar)
    x[0], x[ncols - 1] = 7, 11

    backend.run(stored.format.plan(Operation.MULT), {Slot.X: x, Slot.Z: z})

    assert backend.to_host(z).tolist() == [33, 35]


def test_the_library_and_the_formats_have_the_same_options_and_defaults():
    assert native_library.option_table() == {
        name: {option: cls.words.get(option, (default,)) for option, default in cls.default_options.items()}
        for name, cls in FORMATS.items()
    }


@EVERY_FORMAT
def test_an_unknown_option_is_refused_with_the_names_of_those_there_are(format_name):
    with pytest.raises(OptionError, match=f"-mat_{format_name}_colour is not an option: there are -mat_{format_name}_"):
        parse_options(find_format(format_name), "colour=3;")


def test_an_unknown_format_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(UnsupportedError, match=f"no storage format is called 'jad': there are {', '.join(FORMATS)}"):
        find_format("jad")
