"""Where the steps of Krylov methods run in tests, in few blocks."""

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
