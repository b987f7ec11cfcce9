"""What csrscalar, csrvector and csradaptive have in common: arrays, 16-bit columns, refresh, launches, options."""

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, CsrMatrix, shape, uniform
from places import make_backend
from stored_matrix import StoredMatrix, assert_product

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats import csradaptive, csrscalar, csrvector
from petsc_gpufmt.formats.common import base
from petsc_gpufmt.formats.common.columns import FULL_ONLY, SHORT_WHERE_IT_FITS
from petsc_gpufmt.formats.common.csr_arrays import BLOCK_THREADS, LARGEST_OFFSET
from petsc_gpufmt.option_value import AUTO

pytestmark = pytest.mark.real

CLASSES = (csrscalar.CsrScalar, csrvector.CsrVector, csradaptive.CsrAdaptive)
EVERY_CLASS = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.name)


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture(params=["host", "emulation"])
def place(request):
    return make_backend(request, request.param, np.float64, np.int32)


def rows_of_columns(*rows, ncols=100_000):
    """A matrix whose rows have these columns, and values 1, 2, 3, ..."""
    rowptr = np.cumsum([0, *map(len, rows)])
    colidx = np.array([c for row in rows for c in row], dtype=np.int64)
    return CsrMatrix(len(rows), ncols, rowptr, colidx, 1.0 + np.arange(colidx.size))


@pytest.mark.parametrize("index", [FULL_ONLY, SHORT_WHERE_IT_FITS])
@EVERY_SHAPE_MOST_SLOW
@EVERY_CLASS
def test_layout(place, cls, shape_name, index):
    matrix = shape(shape_name)
    stored = StoredMatrix(matrix, cls, place, {"index": index}).format
    col = stored.col.astype(np.int64)

    if index == SHORT_WHERE_IT_FITS and matrix.colidx.size and shape_name not in ("wide_columns", "some_rows_wide"):
        assert stored.col.dtype == np.uint16
        for row, base in enumerate(stored.col_base):
            columns = matrix.colidx[matrix.rowptr[row] : matrix.rowptr[row + 1]]
            assert base == columns.min(initial=matrix.ncols) if columns.size else base == 0
        col += stored.col_base[matrix.rows]
    else:
        assert stored.col_base is None
    assert stored.rowptr.tolist() == matrix.rowptr.tolist()
    assert col.tolist() == matrix.colidx.tolist()
    assert stored.val.tolist() == matrix.values.tolist()


@EVERY_CLASS
def test_columns_are_kept_when_those_of_the_application_go(backend, cls):
    pattern = shape("banded").pattern(np, backend.index)
    stored = cls.build(pattern, backend, {**cls.default_options, "index": FULL_ONLY})

    assert not np.shares_memory(stored.col, pattern.colidx)


@EVERY_CLASS
def test_a_row_over_65535_columns_fits_16_bits_and_one_over_65536_does_not(place, cls):
    fits = rows_of_columns([70_000], [], [LARGEST_OFFSET + 9, 9, 500])
    too_wide = rows_of_columns([70_000], [], [LARGEST_OFFSET + 10, 9, 500])
    options = {"index": SHORT_WHERE_IT_FITS}
    short, full = (StoredMatrix(matrix, cls, place, options) for matrix in (fits, too_wide))
    x, y = short.vectors()

    assert short.format.col_base.tolist() == [70_000, 0, 9] and short.format.col.tolist() == [0, LARGEST_OFFSET, 0, 491]
    assert full.format.col_base is None and full.format.col.tolist() == too_wide.colidx.tolist()
    assert "16-bit columns" in short.format.summary() and "full columns" in full.format.summary()
    assert_product(short.multadd(x, y), short.matrix, x, y)
    assert_product(full.multadd(x, y), full.matrix, x, y)


@pytest.mark.parametrize("shape_name", ["power_law", "one_huge_row", "unsorted_columns", "duplicate_columns"])
@EVERY_CLASS
def test_results_with_16_bit_columns_are_bit_for_bit_those_with_full_ones(place, cls, shape_name):
    full, short = (
        StoredMatrix(shape(shape_name), cls, place, {"index": index}) for index in (FULL_ONLY, SHORT_WHERE_IT_FITS)
    )
    x, y = full.vectors()

    assert full.format.col_base is None and short.format.col_base is not None
    assert short.multadd(x, y).tobytes() == full.multadd(x, y).tobytes()


@pytest.mark.parametrize(("row_length", "kind"), [(2, "full"), (3, "16-bit")])
@EVERY_CLASS
def test_the_automatic_columns_are_those_of_fewer_bytes(backend, cls, row_length, kind):
    """16 bits save 2 bytes an entry and cost 4 a row."""
    automatic, short = (
        StoredMatrix(uniform(50, 9, row_length, seed=75), cls, backend, {"index": index}).format
        for index in (AUTO, SHORT_WHERE_IT_FITS)
    )

    assert automatic.summary().endswith(f"{kind} columns") and short.summary().endswith("16-bit columns")


@pytest.mark.parametrize("index", [3, "pattern"])
@EVERY_CLASS
def test_a_kind_of_columns_that_is_not_offered_is_refused(backend, cls, index):
    with pytest.raises(OptionError, match=rf"-mat_{cls.name}_index {index}: choose one of auto, full, short"):
        StoredMatrix(shape("banded"), cls, backend, {"index": index})


@pytest.mark.parametrize("threads", [-64, 1, 100, 1024])
@EVERY_CLASS
def test_a_number_of_threads_a_block_that_is_not_offered_is_refused(backend, cls, threads):
    message = f"-mat_{cls.name}_block_threads {threads}: choose one of 64, 128, 256, 512, or 0 for automatic"

    with pytest.raises(OptionError, match=message):
        StoredMatrix(shape("banded"), cls, backend, {"block_threads": threads})


@EVERY_CLASS
def test_automatic_options_are_those_measured_on_the_gpu_and_given_ones_stand(backend, cls, monkeypatch):
    asked = []

    def tuned(*arguments):
        asked.append(arguments)
        return {"block_threads": 64}

    monkeypatch.setattr(base, "tuned", tuned)

    measured = StoredMatrix(shape("banded"), cls, backend, {}).format
    given = StoredMatrix(shape("banded"), cls, backend, {"block_threads": 512}).format

    assert (measured.block_threads, given.block_threads) == (64, 512)
    assert asked[0] == (backend, cls.name, "row_length<=8")


@pytest.mark.parametrize(("row_length", "key"), [(0, 1), (1, 1), (2, 2), (5, 8), (64, 64), (65, 128), (6000, 4096)])
@EVERY_CLASS
def test_the_tuning_key_is_the_mean_row_length_up_to_a_power_of_two(cls, row_length, key):
    matrix = CsrMatrix(7, 1, row_length * np.arange(8), np.zeros(7 * row_length, dtype=np.int64), None)

    assert cls.tuning_key(matrix.pattern(np, np.int32)) == f"row_length<={key}"


@EVERY_CLASS
def test_the_tuner_may_try_every_set_that_it_is_given(backend, cls):
    space = cls.tuning_space(shape("power_law").pattern(np, backend.index))
    built = [StoredMatrix(shape("power_law"), cls, backend, options).format for options in space]

    assert {stored.block_threads for stored in built} == set(BLOCK_THREADS)
    assert all(
        getattr(stored, name) == value for stored, o in zip(built, space, strict=True) for name, value in o.items()
    )


@EVERY_CLASS
def test_a_product_is_one_launch_and_a_refresh_another(backend, cls):
    stored = StoredMatrix(shape("power_law"), cls, backend, {}).format

    assert [len(stored.plan(operation)) for operation in Operation] == [1] * len(Operation)


@EVERY_CLASS
def test_no_launch_for_nothing(backend, cls):
    no_rows = StoredMatrix(shape("0xN"), cls, backend, {}).format
    no_entries = StoredMatrix(shape("all_empty"), cls, backend, {}).format

    assert [no_rows.plan(operation) for operation in Operation] == [[]] * len(Operation)
    assert no_entries.refresh() == [] and no_entries.summary().endswith("full columns")


@pytest.mark.parametrize(("index", "col_bytes"), [(FULL_ONLY, 4 * 60), (SHORT_WHERE_IT_FITS, 2 * 60 + 4 * 12)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("cls", CLASSES[:2], ids=lambda cls: cls.name)
def test_stats_count_the_bytes_of_the_arrays(backend, cls, index, col_bytes, transposed):
    matrix = uniform(12, 12, 5, seed=70)
    stats = StoredMatrix(matrix, cls, backend, {"index": index}, transposed).format.stats()
    arrays = 8 * 60 + 4 * 13 + col_bytes

    assert (stats.nnz, stats.nstored, stats.fill_ratio, stats.nonempty_rows) == (60, 60, 0, 12)
    assert stats.bytes_held == arrays + (4 * 60 if transposed else 0)
    assert stats.bytes_per_mult == arrays + 8 * (12 + 12)


def test_the_automatic_kind_of_columns_is_the_default():
    assert all(cls.default_options["index"] == AUTO for cls in CLASSES)
