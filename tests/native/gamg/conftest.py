"""Hierarchies of small matrices, and what they ask the planner for."""

from __future__ import annotations

from collections import Counter

import pytest
from answers import settled_tokens

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning import requests


@pytest.fixture
def several_levels(options):
    """Of small matrices; the planner keeps nothing."""
    options["pc_gamg_coarse_eq_limit"] = 20
    before = settled_tokens()
    yield
    assert settled_tokens() == before


@pytest.fixture
def small(several_levels, options):
    """Several levels of small matrices, with no estimates that rounding changes."""
    options["pc_gamg_eigenvalues"] = "0.1,2.0"


@pytest.fixture
def managed():
    """Arrays as on a device, where vectors are not to come to the host."""
    library = native_library.load()
    if not library.GpufmtManagedSimulate(1):
        pytest.skip("there is a device")
    yield
    settled_tokens()
    assert library.GpufmtManagedSimulate(0)


@pytest.fixture
def asked(monkeypatch):
    """How often the planner is asked for each kind of request."""
    counts = Counter()

    def counted(ask, kind):
        def fill(*arguments):
            counts[ask] += 1
            return kind.fill(*arguments)

        monkeypatch.setitem(requests.KINDS, ask, kind._replace(fill=fill))

    for ask, kind in list(requests.KINDS.items()):
        counted(ask, kind)
    return counts
