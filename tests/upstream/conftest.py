"""Which issue of which project a test replays goes into the file of results, with what went wrong there."""

import inspect

import pytest


@pytest.fixture(autouse=True)
def issue(request, record_property):
    """The first line of the docstring: `owner/project#number: what went wrong`."""
    name, _, what = inspect.getdoc(request.function).splitlines()[0].partition(": ")
    assert "/" in name and "#" in name and what.endswith("."), "a test of this folder names an issue"
    record_property("issue", name)
    record_property("what", what)
