"""The script of the pJDS paper: all parts at small sizes, the rows of storage whole."""

import pytest
from reproduced import measured_parts

PARTS = ("table-1-storage", "table-1", "figure-3", "figure-4", "equations")


@pytest.mark.slow
def test_the_tables_and_figures_of_the_pjds_paper(tmp_path):
    parts, text = measured_parts("pjds_kreutzer_2012.py", tmp_path, *[word for p in PARTS for word in ("-f", p)])

    storage = parts["table-1-storage"]
    expected = {
        "DLR1": (278502, 144.0, 17.3, "reproduced"),
        "DLR2": (541980, 315.1, 47.9, "reproduced"),
        "HMEp": (6201600, 15.325, 33.4, "not reached"),
        "sAMG": (3400000, 6.97, 68.3, "reproduced"),
    }
    for name, (nrows, mean, reduction, verdict) in expected.items():
        assert storage[f"{name}: rows"]["ours"] == nrows
        assert storage[f"{name}: mean row"]["ours"] == pytest.approx(mean, abs=0.05)
        line = storage[f"{name}: data reduction against ELLPACK"]
        assert line["ours"] == pytest.approx(reduction, abs=0.1) and line["verdict"] == verdict
        assert storage[f"{name}: padding of pJDS"]["verdict"] == "reproduced"
    assert storage["HMEp in Fourier modes: data reduction against ELLPACK"]["ours"] == pytest.approx(36.27, abs=0.01)

    for precision in ("single", "double"):
        for name in expected:
            found = [parts["table-1"][f"{name}, {precision}: {what}"] for what in ("ELLPACK-R", "pJDS")]
            ratio = parts["table-1"][f"{name}, {precision}: pJDS over ELLPACK-R"]
            assert ratio["ours"] == pytest.approx(found[1]["ours"] / found[0]["ours"])
            assert ratio["published"] == pytest.approx(found[1]["published"] / found[0]["published"])
    assert parts["table-1"]["HMEp, double: pJDS with x and z over PCIe"]["verdict"] == "not measured"
    assert {case["verdict"] for case in parts["equations"].values()} == {"reproduced"}
    assert parts["figure-3"]["DLR1: rows of at least 0.8 of the longest"]["verdict"] == "reproduced"
    assert "halo_timeline.py" in text and "| sAMG, double: pJDS | 8.5 |" in text


@pytest.mark.slow
@pytest.mark.mpi
def test_strong_scaling_of_the_pjds_paper(tmp_path):
    parts, text = measured_parts("pjds_kreutzer_2012.py", tmp_path, "--figure", "figure-5")

    lines = parts["figure-5"]
    assert lines["DLR1 on 2 ranks, vector"]["ours"] > 0 and lines["UHBR on 2 ranks, vector"]["ours"] > 0
    published = {name: lines[f"UHBR: efficiency on 32 nodes, {name}"]["published"] for name in ("vector", "task")}
    assert published == {"vector": None, "task": 84.0}
    assert "pjds_kreutzer_2012_figure_5_uhbr.svg" in text
