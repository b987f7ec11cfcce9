"""csrscalar: one thread a row."""

import numpy as np
import pytest
from builders import shape, uniform
from stored_matrix import StoredMatrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation
from petsc_gpufmt.formats.common.csr_arrays import BLOCK_THREADS
from petsc_gpufmt.formats.csrscalar import CsrScalar


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.mark.parametrize("threads", BLOCK_THREADS)
@pytest.mark.parametrize("nrows", [1, 64, 65, 512, 513])
def test_there_is_one_thread_for_each_row(backend, nrows, threads):
    stored = StoredMatrix(uniform(nrows, 1, 1, seed=71), CsrScalar, backend, {"block_threads": threads}).format
    (launch,) = stored.plan(Operation.MULT)

    assert launch.block == (threads, 1, 1)
    assert launch.grid == (int(np.ceil(nrows / threads)), 1, 1)


def test_the_summary_says_how_many_threads_and_what_columns(backend):
    assert (
        StoredMatrix(shape("banded"), CsrScalar, backend, {}).format.summary() == "128 threads a block, 16-bit columns"
    )
