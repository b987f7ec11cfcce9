"""What holds for ELLPACK, ELLPACK-R and JDS: memory that is refused, threads a block, measured options, launches."""

import numpy as np
import pytest
from builders import CsrMatrix, from_row_lengths, shape, uniform
from emulation.backend import EmulatedBackend
from option_sets import ALL_OPTION_SETS
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.errors import OptionError, OutOfMemoryError
from petsc_gpufmt.formats.common import base, ell
from petsc_gpufmt.formats.ellpack import Ellpack
from petsc_gpufmt.formats.ellpackr import EllpackR
from petsc_gpufmt.formats.jds import Jds
from petsc_gpufmt.patterns.csr import CsrPattern

EVERY_CLASS = pytest.mark.parametrize("cls", [Ellpack, EllpackR, Jds], ids=lambda cls: cls.name)


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


class ModuleWithoutMemory:
    """NumPy on a machine that has little memory left, or where little may be asked for."""

    left = 1000  # entries

    def __init__(self, error):
        self.error = error

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, size, dtype):
        if size > self.left:
            raise self.error
        return np.empty(size, dtype)


def one_long_row(nrows, longest):
    """The pattern with one entry in each row but the last, which has `longest`."""
    rowptr = np.arange(nrows + 1, dtype=np.int32)
    rowptr[-1] += longest - 1
    columns = np.zeros(rowptr[-1], dtype=np.int32)
    columns[-longest:] = np.arange(longest)
    return CsrPattern(nrows, longest, rowptr, columns)


@pytest.mark.real
@pytest.mark.parametrize("cls", [Ellpack, EllpackR], ids=lambda cls: cls.name)
def test_a_rectangle_that_is_mostly_padding_is_refused_before_it_is_allocated(backend, cls):
    backend.xp = ModuleWithoutMemory(AssertionError("allocated"))
    message = (
        f"-mat_type {cls.name} needs 48.00 GB for 219999 nonzeros: "
        "the longest row has 20000 of them, the mean row 1.1; use -mat_type pjds or evchyb"
    )

    with pytest.raises(OutOfMemoryError, match=message):
        cls.build(one_long_row(200_000, 20_000), backend, cls.default_options)


@EVERY_CLASS
def test_the_message_of_an_allocation_that_fails_says_what_was_needed(backend, cls):
    backend.xp = ModuleWithoutMemory(MemoryError())

    with pytest.raises(OutOfMemoryError, match=rf"-mat_type {cls.name} needs 0\.00 GB for 199 nonzeros: .* has 100 of"):
        cls.build(one_long_row(100, 100), backend, cls.default_options)


@pytest.mark.real
@pytest.mark.parametrize(
    ("bytes_allowed", "times_allowed", "refused"),
    [(104 * 100 * 12, 1, False), (104 * 100 * 12 - 1, 1, True), (1, 104 * 100 // 199 + 1, False), (1, 52, True)],
)
def test_storage_is_refused_only_where_it_is_both_large_and_mostly_padding(
    backend, monkeypatch, bytes_allowed, times_allowed, refused
):
    monkeypatch.setattr(ell, "REFUSED_BYTES", bytes_allowed)
    monkeypatch.setattr(ell, "REFUSED_STORED_PER_NONZERO", times_allowed)
    pattern = one_long_row(100, 100)  # 104 x 100 stored

    if refused:
        with pytest.raises(OutOfMemoryError):
            Ellpack.build(pattern, backend, Ellpack.default_options)
    else:
        assert Ellpack.build(pattern, backend, Ellpack.default_options).nstored == 10400


@EVERY_CLASS
@pytest.mark.parametrize("threads", [1, 100, 1024, -128])
def test_a_number_of_threads_that_is_not_offered_is_refused(backend, cls, threads):
    message = f"-mat_{cls.name}_block_threads {threads}: choose one of 64, 128, 256, 512, or 0 for automatic"

    with pytest.raises(OptionError, match=message):
        StoredMatrix(shape("banded"), cls, backend, {"block_threads": threads})


@EVERY_CLASS
@pytest.mark.parametrize(("resident_threads", "threads"), [(0, 256), (260, 256), (261, 128)])
def test_blocks_are_smaller_where_rows_do_not_fill_the_device(backend, cls, resident_threads, threads):
    backend.resident_threads = resident_threads

    stored = StoredMatrix(shape("banded"), cls, backend, {}).format  # 260 rows

    assert stored.block_threads == threads


@EVERY_CLASS
def test_measured_options_are_used_where_none_are_given(backend, monkeypatch, cls):
    asked = []

    def tuned(backend, name, key):
        asked.append((name, key))
        return {"block_threads": 512}

    monkeypatch.setattr(base, "tuned", tuned)

    measured = StoredMatrix(shape("banded"), cls, backend, {}).format
    given = StoredMatrix(shape("banded"), cls, backend, {"block_threads": 64}).format

    assert (measured.block_threads, given.block_threads) == (512, 64)
    assert set(asked) == {(cls.name, "row_length<=8")}


@pytest.mark.parametrize(("nnz", "key"), [(0, 1), (7, 1), (10, 1), (11, 2), (40, 4), (41, 8), (1000, 128)])
def test_the_tuning_key_is_the_mean_row_length_up_to_a_power_of_two(nnz, key):
    rowptr = np.linspace(0, nnz, 11).astype(np.int32)

    assert Ellpack.tuning_key(CsrPattern(10, 1, rowptr, np.zeros(nnz, dtype=np.int32))) == f"row_length<={key}"


@EVERY_CLASS
def test_every_point_of_the_tuning_space_can_be_built(backend, cls):
    pattern = shape("power_law").pattern(np, backend.index)
    space = cls.tuning_space(pattern)
    built = [cls.build(pattern, backend, {**cls.default_options, **options}) for options in space]

    assert len({b.summary() for b in built}) == len(space) > 1


@pytest.mark.slow
@EVERY_CLASS
def test_the_threads_of_a_launch_cover_all_rows_once(backend, cls):
    for options in ALL_OPTION_SETS[cls.name]:
        for nrows in (1, 63, 64, 65, 511, 513):
            stored = StoredMatrix(uniform(nrows, 9, 3, seed=72), cls, backend, options).format
            for operation in (Operation.MULT, Operation.DIAGONAL):
                (launch,) = stored.plan(operation)

                assert launch.block == (options["block_threads"], 1, 1) and launch.grid[1:] == (1, 1)
                assert (launch.grid[0] - 1) * launch.block[0] < nrows <= launch.grid[0] * launch.block[0]


@EVERY_CLASS
def test_no_launch_for_nothing(backend, cls):
    stored = StoredMatrix(shape("0xN"), cls, backend, {}).format

    assert [stored.plan(operation) for operation in Operation] == [[]] * len(Operation)


@EVERY_CLASS
@pytest.mark.parametrize("row_length", [3, 200])
def test_more_threads_share_the_filling_of_longer_rows(backend, cls, row_length):
    matrix = uniform(100, 300, row_length, seed=73)
    (launch,) = StoredMatrix(matrix, cls, backend, {}).format.plan(Operation.REFRESH)

    assert launch.block == ((64, 2, 1) if row_length == 3 else (32, 4, 1))
    assert (launch.grid[0] - 1) * launch.block[0] < 100 <= launch.grid[0] * launch.block[0]


@pytest.mark.real
@EVERY_CLASS
def test_a_million_rows_and_one_of_a_hundred_thousand_entries(backend, cls):
    """JDS stores what the rectangle cannot."""
    pattern = one_long_row(1_000_000, 100_000)

    if cls is Jds:
        assert cls.build(pattern, backend, cls.default_options).nstored == 1_000_000 + 99_999 * 16
    else:
        with pytest.raises(OutOfMemoryError, match=r"needs 1200\.00 GB"):
            cls.build(pattern, backend, cls.default_options)


@pytest.mark.real
@EVERY_CLASS
def test_products_of_more_rows_than_the_host_sums_together(backend, cls):
    lengths = np.random.default_rng(74).integers(0, 9, 1100)
    lengths[600:1030] = 0
    matrix = from_row_lengths(lengths, 50, seed=75)
    stored = StoredMatrix(matrix, cls, backend, {})
    x, y = stored.vectors()
    dense = np.zeros((matrix.nrows, matrix.ncols))
    dense[matrix.rows, matrix.colidx] = matrix.values

    assert np.allclose(stored.multadd(x, y), y + dense @ x, rtol=1e-12, atol=1e-9)
    assert stored.multadd(x, y)[lengths == 0].tolist() == y[lengths == 0].tolist()


@pytest.mark.real
@EVERY_CLASS
def test_repeated_columns_add_up_on_the_diagonal_and_other_entries_do_not_reach_it(backend, cls):
    values = np.array([2.0, np.nan, 3.0, np.inf, 5.0])
    matrix = CsrMatrix(3, 3, np.array([0, 3, 4, 5]), np.array([0, 1, 0, 0, 2]), values)
    stored = StoredMatrix(matrix, cls, backend, {})
    z = np.full(3, np.nan)

    stored.backend.run(stored.format.plan(Operation.DIAGONAL), {Slot.Z: z})

    assert z.tolist() == [5.0, 0.0, 5.0]


@pytest.mark.parametrize("cls", [EllpackR, Jds], ids=lambda cls: cls.name)
def test_threads_stop_at_the_end_of_their_row(cls, emulation_folder):
    """What lies in the padding does not matter."""
    backend = EmulatedBackend(np.float64, np.int32, emulation_folder)
    stored = StoredMatrix(shape("power_law"), cls, backend, {})
    x, y = stored.vectors()
    expected = stored.multadd(x, y)
    padding = stored.format.col == -1
    assert padding.any()
    stored.format.col[padding], stored.format.val[padding] = 0, np.nan

    assert stored.multadd(x, y).tolist() == expected.tolist()
