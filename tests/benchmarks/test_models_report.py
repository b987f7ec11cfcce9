"""The page of the papers' models of one device."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy.sparse")

import models_report  # noqa: E402

from petsc_gpufmt.backends import native_library  # noqa: E402
from petsc_gpufmt.bench.results import save_run  # noqa: E402

pytestmark = pytest.mark.slow

COUNTED = """"ID","Kernel Name","dram__bytes.sum","l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct"
"","","byte","%","%"
"0","evchyb_spmv","4e8","40","50"
"1","evchyb_without_x","3e8","0","10"
"2","evchyb_without_values","2e8","80","60"
"""
CASE = {"matrix": {"name": "some"}, "x_to_device_seconds": 1e-4, "z_to_host_seconds": 2e-4}
CASE |= {"seconds": {"whole": 20e-6, "x": 12e-6, "values": 15e-6, "both": 4e-6}}


@pytest.fixture(autouse=True)
def _double_precision():
    if native_library.petsc_types() != (np.float64, np.int32):
        pytest.skip("this PETSc has not double precision and 32-bit indices, which the page is made with")


def test_page_in_the_documentation_is_that_of_the_models_and_the_results(capsys):
    """After a wanted change: python benchmarks/models_report.py > docs/models.md."""
    assert models_report.main([]) == 0
    assert capsys.readouterr().out == (models_report.ROOT / "docs/models.md").read_text()


def test_products_that_a_cache_holds_in_part_are_predicted_as_the_page_says():
    products = models_report.cached_products()
    errors = {(matrix, name): predicted / seconds - 1 for matrix, name, _, seconds, predicted in products}
    assert len(products) == 14 and max(map(abs, errors.values())) < 0.155
    assert abs(errors["27-point 64^3", "pjds"]) < 0.1


def test_what_is_measured_later_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(models_report, "RESULTS", tmp_path)
    monkeypatch.setattr(models_report, "cache_section", lambda: "")
    save_run(tmp_path / "gpu.json", {"name": "parts", "cases": [CASE]})
    (tmp_path / "27point-9.csv").write_text(COUNTED)
    page = models_report.make_page()
    assert "Not measured yet" not in page and "Not counted yet" not in page
    assert "| some | 20.0 | 35% | 48% | 17% | 1.15 | 300 |" in page
    assert "| 27point-9 | yes | 80% | 60% | 0% | 10% | 162 | 563 |" in page
