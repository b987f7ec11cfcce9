"""What tests of the steps of Krylov methods share: places, sizes, and what states say."""

import numpy as np
import pytest
from places import SCALAR

from petsc_gpufmt.krylov.steps import BLOCK_THREADS, ITEMS

FEW_BLOCKS = 3
"""What tests set `steps.MOST_BLOCKS` to."""
MANY_ROWS = 2 * FEW_BLOCKS * BLOCK_THREADS * ITEMS + 77
"""A thread has several then."""
NONE, PRECONDITIONED, UNPRECONDITIONED, NATURAL = range(4)
GOES_ON, CURVATURE, TEST, COUNT, BREAKDOWN = range(5)

PLACES = [
    pytest.param(("host", SCALAR, np.int32), id="host"),
    pytest.param(("device_like", np.float64, np.int32), id="emulation"),
    pytest.param(("device_like", np.float32, np.int64), id="emulation, single"),
    pytest.param(("cuda", np.float64, np.int32), marks=pytest.mark.gpu, id="cuda"),
]
