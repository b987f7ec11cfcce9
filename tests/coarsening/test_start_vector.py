"""The start of PETSc's estimates of eigenvalues, against the formula of KSPNoisyHash_Private()."""

import numpy as np
import pytest
from answers import Answer, requested_place, settled_tokens
from places import PLACES_AND_TYPES, SCALAR, make_backend

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.coarsening.start_vector import start_vector
from petsc_gpufmt.planning import abi, multigrid_abi


def noise(nrows, first, scalar):
    x = (first + np.arange(nrows)).astype(np.uint64) & 0xFFFFFFFF
    for _ in range(2):
        x = ((x >> np.uint64(16)) ^ x) * np.uint64(0x45D9F3B) & np.uint64(0xFFFFFFFF)
    x = (x >> np.uint64(16)) ^ x
    return ((x.astype(np.int64) - 2147483648) * 5e-10).astype(scalar)


@pytest.mark.parametrize(("nrows", "first"), [(0, 7), (1, 0), (1000, 0), (700, 65000), (300, 2**32 - 100)])
@pytest.mark.parametrize("place", PLACES_AND_TYPES)
def test_numbers_are_those_of_petsc(request, place, nrows, first):
    name, scalar, index = place
    backend = make_backend(request, name, scalar, index)
    (vector,) = backend.empty((nrows, backend.scalar))
    backend.run(start_vector(nrows, first, backend), {Slot.RESULT: vector})
    assert backend.to_host(vector).tobytes() == noise(nrows, first, backend.scalar).tobytes()


def test_an_answer_has_the_plan_that_fills_the_vector():
    before, request = settled_tokens(), multigrid_abi.StartVectorRequestStruct(requested_place(), 50, 9)
    with Answer(abi.Ask.START_VECTOR, request, multigrid_abi.StartVectorAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        vector = np.full(50, np.nan, SCALAR)
        a.launch(a.answer.fill, {Slot.RESULT: vector})
        assert vector.tobytes() == noise(50, 9, SCALAR).tobytes()
    assert settled_tokens() == before
