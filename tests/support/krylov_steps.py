"""What tests of the steps of Krylov methods share: sizes, what states say, and the planner's answer."""

from contextlib import contextmanager

import numpy as np
from answers import Answer, requested_place, settled_tokens

from petsc_gpufmt.krylov.steps import BLOCK_THREADS, ITEMS
from petsc_gpufmt.planning import abi, krylov_abi
from petsc_gpufmt.planning.given import host_view

FEW_BLOCKS = 3
"""What tests set `steps.MOST_BLOCKS` to."""
MANY_ROWS = 2 * FEW_BLOCKS * BLOCK_THREADS * ITEMS + 77
"""A thread has several then."""
NONE, PRECONDITIONED, UNPRECONDITIONED, NATURAL = range(4)
GOES_ON, CURVATURE, TEST, COUNT, BREAKDOWN = range(5)


@contextmanager
def answered(method, **request):
    """The planner's answer for vectors of two rows on the host, of which nothing is left afterwards."""
    before = settled_tokens()
    request = krylov_abi.KrylovRequestStruct(requested_place(), method=method, nrows=2, **request)
    with Answer(abi.Ask.KRYLOV, request, krylov_abi.KrylovAnswerStruct(), {}) as a:
        assert a.error == (0, "")
        yield a
    assert settled_tokens() == before


def state_of(a, state):
    """That of an answer, of a type of NumPy."""
    return host_view(a.answer.state, state.itemsize, np.dtype(np.int8)).view(state)[0]
