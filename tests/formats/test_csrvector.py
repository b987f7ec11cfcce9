"""csrvector: the choice of the threads a row."""

import numpy as np
import pytest
from builders import CsrMatrix, shape, uniform
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.formats.common import base
from petsc_gpufmt.formats.csrvector import THREADS_PER_ROW, CsrVector


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.mark.parametrize(
    ("row_length", "threads_per_row"),
    [(0, 2), (1, 2), (7, 2), (8, 2), (9, 4), (16, 4), (27, 8), (33, 16), (64, 16), (65, 32), (5000, 32)],
)
def test_the_automatic_threads_load_at_most_four_entries_each_while_a_warp_suffices(
    backend, row_length, threads_per_row
):
    one_column = CsrMatrix(
        3, 1, row_length * np.arange(4), np.zeros(3 * row_length, dtype=np.int64), np.ones(3 * row_length)
    )

    assert StoredMatrix(one_column, CsrVector, backend, {}).format.threads_per_row == threads_per_row


def test_measured_threads_a_row_come_before_the_rule_and_given_ones_before_both(backend, monkeypatch):
    monkeypatch.setattr(base, "tuned", lambda *arguments: {"threads_per_row": 16})

    assert StoredMatrix(shape("banded"), CsrVector, backend, {}).format.threads_per_row == 16
    assert StoredMatrix(shape("banded"), CsrVector, backend, {"threads_per_row": 4}).format.threads_per_row == 4


@pytest.mark.parametrize("threads", [64, 256])
@pytest.mark.parametrize("threads_per_row", THREADS_PER_ROW)
@pytest.mark.parametrize("nrows", [1, 32, 33, 300])
def test_the_threads_of_a_launch_cover_all_rows(backend, nrows, threads_per_row, threads):
    options = {"threads_per_row": threads_per_row, "block_threads": threads}
    stored = StoredMatrix(uniform(nrows, 1, 1, seed=72), CsrVector, backend, options).format
    (launch,) = stored.plan(Operation.MULT)

    assert launch.block == (threads, 1, 1) and launch.grid[1:] == (1, 1)
    assert (launch.grid[0] - 1) * threads < nrows * threads_per_row <= launch.grid[0] * threads


@pytest.mark.parametrize("threads_per_row", [-1, 1, 3, 64])
def test_a_number_of_threads_a_row_that_is_not_offered_is_refused(backend, threads_per_row):
    message = f"-mat_csrvector_threads_per_row {threads_per_row}: choose one of 2, 4, 8, 16, 32, or 0 for automatic"

    with pytest.raises(OptionError, match=message):
        StoredMatrix(shape("banded"), CsrVector, backend, {"threads_per_row": threads_per_row})


def test_the_summary_says_how_many_threads_and_what_columns(backend):
    summary = StoredMatrix(shape("dense"), CsrVector, backend, {"index": "full"}).format.summary()

    assert summary == "16 threads a row, 128 threads a block, full columns"
