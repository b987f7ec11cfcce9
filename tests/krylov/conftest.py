"""Where the steps of Krylov methods run in tests, in few blocks."""

import numpy as np
import pytest
from krylov_steps import FEW_BLOCKS
from places import PLACES_AND_TYPES, make_backend

from petsc_gpufmt.krylov import steps


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    monkeypatch.setattr(steps, "MOST_BLOCKS", FEW_BLOCKS)


@pytest.fixture(params=PLACES_AND_TYPES)
def backend(request):
    return make_backend(request, *request.param)


@pytest.fixture
def doubles(request, backend):
    """Where sums over ranks are made: in double precision, whatever vectors have."""
    place = {"emulation": "device_like"}.get(backend.name, backend.name)
    return make_backend(request, place, np.float64, backend.index)
