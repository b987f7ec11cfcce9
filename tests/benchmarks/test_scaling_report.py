"""The page of the model of MatMult on many GPUs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy.sparse")

import scaling_report  # noqa: E402

from petsc_gpufmt.backends import native_library  # noqa: E402
from petsc_gpufmt.bench.results import read_runs  # noqa: E402


@pytest.fixture(autouse=True)
def _double_precision():
    if native_library.petsc_types() != (np.float64, np.int32):
        pytest.skip("this PETSc has not double precision and 32-bit indices, which the page is made with")


def test_page_in_the_documentation_is_that_of_the_model(capsys):
    """After a wanted change: python benchmarks/scaling_report.py > docs/scaling.md."""
    assert scaling_report.main() == 0
    assert capsys.readouterr().out == (scaling_report.ROOT / "docs/scaling.md").read_text()


def test_predictions_are_as_close_to_what_was_measured_as_the_page_says():
    runs = read_runs(scaling_report.RESULTS)
    cases = [pair for run in runs for pair in scaling_report.errors(run)]
    assert {case["ranks"] for case, _ in cases} == {1, 2, 4} and {case["mode"] for case, _ in cases} >= {
        "overlap",
        "peer",
    }
    for case, seconds in cases:
        limit = 0.061 if scaling_report.is_fitted(case) else 0.105
        assert seconds == pytest.approx(case["seconds"], rel=limit), case
