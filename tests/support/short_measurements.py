"""Measurements of benchmarks made short: no test looks at a time."""

import pytest


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch):
    pytest.importorskip("scipy.sparse")
    from petsc_gpufmt.bench import places, spgemm, timing

    monkeypatch.setattr(timing, "HOST_SECONDS", 0.01)
    monkeypatch.setattr(spgemm, "SECONDS", 0.001)
    monkeypatch.setitem(places.COPY_BYTES, "host", 1 << 16)
