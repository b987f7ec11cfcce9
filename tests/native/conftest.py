"""Arrays as on a device, and what the planner is asked for."""

from __future__ import annotations

import pytest
from answers import counted_requests, settled_tokens

from petsc_gpufmt.backends import native_library


@pytest.fixture
def managed():
    """Arrays as on a device, where vectors are not to come to the host."""
    library = native_library.load()
    if not library.GpufmtManagedSimulate(1):
        pytest.skip("there is a device")
    yield
    settled_tokens()
    assert library.GpufmtManagedSimulate(0)


@pytest.fixture(autouse=True, scope="session")
def few_rows_are_many():
    """Most matrices of tests have managed row pointers and lengths of rows, where they have managed arrays."""
    library = native_library.load()
    before = library.GpufmtManagedManyRows(16)
    yield
    library.GpufmtManagedManyRows(before)


@pytest.fixture
def many_rows():
    """Says for one test from how many rows on the row pointer and the lengths are managed."""
    library = native_library.load()
    before = library.GpufmtManagedManyRows(1)
    yield library.GpufmtManagedManyRows
    library.GpufmtManagedManyRows(before)


@pytest.fixture
def asked(monkeypatch):
    """How often the planner is asked for each kind of request."""
    return counted_requests(monkeypatch.setitem)
