"""Fixtures of the tests of GAMG's set-up."""

from collections import Counter

import pytest

from petsc_gpufmt.planning import requests


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
