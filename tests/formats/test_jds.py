"""JDS: layout, alignment, padding, errors. What it shares with ELLPACK and ELLPACK-R is in test_ell.py."""

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, SHAPES, from_row_lengths, shape, uniform
from emulation.backend import EmulatedBackend
from option_sets import ALL_OPTION_SETS, option_id
from stored_matrix import StoredMatrix, assert_product

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Launch, Slot
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common import base
from petsc_gpufmt.formats.jds import Jds, jagged_diagonals

EVERY_SHAPE = pytest.mark.parametrize("shape_name", SHAPES)


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.mark.slow
@pytest.mark.parametrize("options", ALL_OPTION_SETS["jds"], ids=option_id)
@EVERY_SHAPE_MOST_SLOW
def test_layout(backend, shape_name, options):
    matrix = shape(shape_name)
    stored = StoredMatrix(matrix, Jds, backend, options).format
    lengths = np.diff(matrix.rowptr)
    perm = np.argsort(-lengths, kind="stable")
    columns, values, starts = [], [], [0]
    for j in range(max(lengths, default=0)):
        entries = matrix.rowptr[perm[lengths[perm] > j]] + j
        padding = [0] * (-len(entries) % options["alignment"])
        columns += [*matrix.colidx[entries], *(-1 for _ in padding)]
        values += [*matrix.values[entries], *padding]
        starts.append(len(columns))

    assert stored.jd_ptr.tolist() == starts
    assert stored.nz_count.tolist() == lengths[perm].tolist()
    assert (np.arange(matrix.nrows) if stored.perm is None else stored.perm).tolist() == perm.tolist()
    assert stored.col.tolist() == columns
    assert stored.val.tolist() == values


@pytest.mark.parametrize("shape_name", ["power_law", "empty_rows", "stencil"])
def test_the_basic_multiplication_is_the_same_product(backend, emulation_folder, shape_name):
    """Section 4.1, a thread to each entry; on the host, and by the kernel of devices."""
    for where in (backend, EmulatedBackend(np.float64, np.int32, emulation_folder)):
        matrix = shape(shape_name)
        stored = StoredMatrix(matrix, Jds, where, {"alignment": 16}).format
        x = np.random.default_rng(79).standard_normal(matrix.ncols).astype(where.scalar)
        z = np.full(matrix.nrows, np.nan, dtype=where.scalar)
        launches = stored.mult_by_diagonals()

        where.run(launches, {Slot.X: x, Slot.Z: z})

        assert len(launches) == 1 + max(1, stored.longest)
        assert_product(z, matrix, x)


@EVERY_SHAPE
def test_jagged_diagonals_begin_at_multiples_of_16_as_in_the_paper(backend, shape_name):
    stored = StoredMatrix(shape(shape_name), Jds, backend, {}).format

    assert (stored.jd_ptr % 16 == 0).all()


@EVERY_SHAPE
def test_padding_is_less_than_the_alignment_in_each_jagged_diagonal(backend, shape_name):
    for alignment in (1, 16, 33):
        stored = StoredMatrix(shape(shape_name), Jds, backend, {"alignment": alignment}).format

        assert stored.nstored - stored.nnz <= stored.longest * (alignment - 1)


def test_the_example_of_the_documentation():
    lengths = np.array([1, 3, 0, 2, 4, 1, 2, 1], dtype=np.int32)

    assert jagged_diagonals(lengths, 4, 4, np).tolist() == [0, 8, 12, 16, 20]
    assert jagged_diagonals(lengths, 4, 1, np).tolist() == [0, 7, 11, 13, 14]


def test_rows_of_one_length_keep_their_order(backend):
    assert StoredMatrix(uniform(100, 100, 5, seed=77), Jds, backend, {}).format.perm is None


def test_padding_may_pass_what_the_index_type_counts():
    jd_ptr = jagged_diagonals(np.full(60, 100, dtype=np.int8), 100, 64, np)

    assert jd_ptr.dtype == np.int64 and jd_ptr.tolist() == (64 * np.arange(101)).tolist()


@pytest.mark.parametrize("alignment", [-1, 1025])
def test_an_alignment_that_is_not_offered_is_refused(backend, alignment):
    with pytest.raises(OptionError, match=f"-mat_jds_alignment {alignment}: choose 1 to 1024 entries, or 0 for 16"):
        StoredMatrix(shape("banded"), Jds, backend, {"alignment": alignment})


def test_a_measured_alignment_is_used_where_none_is_given(backend, monkeypatch):
    monkeypatch.setattr(base, "tuned", lambda *_: {"alignment": 32})

    assert StoredMatrix(shape("banded"), Jds, backend, {}).format.alignment == 32
    assert StoredMatrix(shape("banded"), Jds, backend, {"alignment": 8}).format.alignment == 8


def test_places_beyond_what_the_index_type_counts(emulation_folder):
    """Two entries 2^31 apart, in memory that is reserved only."""
    backend = EmulatedBackend(np.float32, np.int32, emulation_folder)
    start = 2**31
    col, val = np.zeros(start + 1, dtype=np.int32), np.zeros(start + 1, dtype=np.float32)
    col[[0, start]], val[[0, start]] = [1, 2], [3, 5]
    x, z = np.array([0, 7, 11], dtype=np.float32), np.full(1, np.nan, dtype=np.float32)
    function = backend.function("formats/jds", "jds_spmv", (64,))
    rows = np.array([0, start, start + 16]), np.array([2], dtype=np.int32), None
    arguments = (np.int32(1), *rows, col, val, x, np.float32(1), np.float32(0), None, z)

    backend.run([Launch(function, (1, 1, 1), (64, 1, 1), arguments)])

    assert z.tolist() == [3 * 7 + 5 * 11]


@pytest.mark.double
@pytest.mark.real
def test_stats_and_summary_of_a_small_matrix(backend):
    lengths = np.array([1, 0, 3, 2, 2, 0, 1, 1, 4, 1])
    options = {"alignment": 4, "block_threads": 64}
    stored = StoredMatrix(from_row_lengths(lengths, 6, seed=78), Jds, backend, options).format
    stats = stored.stats()

    assert (stats.nnz, stats.nstored, stats.nonempty_rows) == (15, 8 + 4 + 4 + 4, 8)
    assert stats.fill_ratio == pytest.approx(1 - 15 / 20)
    rows = 5 * 8 + 2 * 10 * 4  # jd_ptr, nz_count, perm
    assert stats.bytes_held == 20 * (8 + 4) + rows + 11 * 4
    assert stats.bytes_per_mult == 15 * (8 + 4) + rows + (10 + 6) * 8
    assert stored.summary() == "4 jagged diagonals, alignment 4, 64 threads a block"
    assert stored.detail() == "rows: longest 4, mean 1.50\nmemory: 360 bytes, 1.6071 times the 224 of CSR"
