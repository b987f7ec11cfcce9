"""The script of the EVC-HYB paper: all parts at small sizes; statistics of matrices that are made, and of files."""

import numpy as np
import pytest
import scipy.sparse
from reproduced import measured_parts


@pytest.mark.slow
def test_the_tables_and_figures_of_the_evchyb_paper(tmp_path):
    parts, text = measured_parts("evchyb_guo_2016.py", tmp_path)

    table = parts["table-3"]
    for name, split, ell in (("pwtk", 217888, 99.97), ("webbase-1M", 999232, 88.69), ("ibm-dc1", 116768, 77.58)):
        assert table[f"{name}: I_split"]["ours"] == table[f"{name}: I_split"]["published"] == split
        assert table[f"{name}: NNZ"]["verdict"] == "reproduced"
        assert table[f"{name}: NNZ_ELL of all that is stored"]["published"] == pytest.approx(ell, abs=0.01)
        assert table[f"{name}: NNZ_ELL of all that is stored"]["verdict"] == "reproduced"
        assert table[f"{name}: NNZ added"]["verdict"] == "not measured"
    assert {case["verdict"] for case in table.values()} == {"reproduced", "not measured"}

    speeds = {
        what: parts["figure-3"][f"ibm-dc1: speed-up, {what}"] for what in ("not reordered", "reordered by a pass")
    }
    loss = parts["figure-4"]["ibm-dc1: loss by a pass"]["ours"]
    ratio = speeds["reordered by a pass"]["ours"] / speeds["not reordered"]["ours"]
    assert loss == pytest.approx(100 * (1 - ratio))
    shares = [parts["figure-13"][f"ibm-dc1: T_{part} of T_total"]["ours"] for part in "AXY"]
    assert sum(shares) == pytest.approx(100)
    assert parts["figure-5"]["web-Google: EVC-HYB, not reordered"]["verdict"] == "not measured"
    assert {case["verdict"] for case in parts["figure-6"].values()} == {"not measured"}
    assert parts["figure-15"]["random, 500 rows: aij"]["ours"] > 0
    assert "## Figure 16" in text and "constant A" in (tmp_path / "evchyb_guo_2016_figure_14.svg").read_text()


@pytest.mark.slow
def test_files_stand_for_the_papers_matrices(tmp_path):
    """100 rows of one entry and one of 300: 96 rows in the ELL part; 4 rows of 32 and one of 320 in the other."""
    lengths = np.array([1] * 60 + [300] + [1] * 40)
    columns = np.concatenate([np.arange(n) for n in lengths])
    pattern = scipy.sparse.csr_matrix((np.ones(400), columns, np.cumsum([0, *lengths])), (101, 400))
    folder = tmp_path / "matrices"
    folder.mkdir()
    scipy.sparse.save_npz(folder / "Torso1.npz", pattern)

    parts, text = measured_parts("evchyb_guo_2016.py", tmp_path, "--table", "table-3", "--matrices", folder)

    found = {case["what"]: case["ours"] for case in parts["table-3"].values() if case["what"].startswith("torso1")}
    assert found == {
        **{"torso1: NROW": 101, "torso1: NNZ": 400, "torso1: I_split": 96, "torso1: NNZ_ELL": 96},
        **{"torso1: NNZ_vCSR": 448, "torso1: NNZ added": 36.0},
        "torso1: NNZ_ELL of all that is stored": pytest.approx(100 * 96 / 544),
    }
    assert "the paper's matrix" in text
