"""The script of the KSPARSE paper: parts at small sizes; sizes of matrices whole; files in place of built ones."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from ksparse_matrices import TABLE_II, row_lengths
from reproduced import measured_parts
from time_share import share_is_over

PARTS = ("table-2", "figure-8", "kernels", "figure-12", "figure-18", "figure-19", "figure-21")


@pytest.mark.slow
def test_the_tables_and_figures_of_the_ksparse_paper(tmp_path):
    folder = tmp_path / "matrices"
    folder.mkdir()
    scipy.sparse.save_npz(folder / "Hvdc1.npz", scipy.sparse.identity(9, format="csr"))
    words = [word for part in PARTS for word in ("--figure", part)]
    parts, text = measured_parts("ksparse_abdelfattah_2016.py", tmp_path, *words, "--matrices", folder)

    sizes = {what: case for what, case in parts["table-2"].items() if not what.startswith("spe5Ref_dpdp")}
    given = sizes.pop("hvdc1: rows"), sizes.pop("hvdc1: non-zeros")
    assert [(case["ours"], case["verdict"], case["remark"]) for case in given] == [
        (9, "not reached", "the paper's own")
    ] * 2
    assert len(sizes) == 2 * len(TABLE_II) - 2 and {case["verdict"] for case in sizes.values()} == {"reproduced"}
    assert {case["verdict"] for case in parts["figure-8"].values()} == {"reproduced"}
    assert parts["figure-8"]["segment pointer of block row 4"]["ours"] == 8
    assert parts["kernels"]["single: K3 of the fastest, blocks of 45 to 64, least share"]["ours"] > 0

    cage, sherman = parts["figure-12"], parts["figure-18"]
    assert cage["cage10: KSPARSE over cuSPARSE-BSR, most"]["published"] == 3.23
    assert cage["cage10: KSPARSE over cuSPARSE-BSR, most"]["remark"] == "measured: baij"
    assert sherman["shermanACb: balanced KSPARSE over cuSPARSE-BSR, most"]["published"] == 30.25
    assert sherman["shermanACb: balanced over KSPARSE, most"]["published"] == 15
    assert cage["cage10: 7 x 7 padded to 8 x 8, time"]["ours"] > 0
    assert parts["figure-19"]["longest over mean row"]["ours"] > 3
    assert parts["figure-21"]["default options over MAGMA-SELLP"]["published"] == 1.27
    assert "stands for" in text and "## Figure 21" in text


@pytest.mark.slow
@pytest.mark.mpi
def test_several_ranks_of_the_ksparse_paper(tmp_path):
    parts, _ = measured_parts("ksparse_abdelfattah_2016.py", tmp_path, "--figure", "section-6.4")

    (case,) = parts["section-6.4"].values()
    assert case["what"] == "spe5Ref_dpdp, cyclic: speed-up on 2 ranks of the host"
    assert case["published"] == 1.93 and case["ours"] > 0


def test_what_several_parts_show_takes_a_share_of_the_time():
    ended, limitless = (SimpleNamespace(kept={}, deadline=time.perf_counter() + left) for left in (-1.0, float("inf")))
    assert share_is_over(ended, "sweeps") and not share_is_over(limitless, "sweeps")
    running = SimpleNamespace(kept={}, deadline=time.perf_counter() + 1000)
    assert not share_is_over(running, "sweeps")
    assert running.kept["end of sweeps"] == pytest.approx(running.deadline - 200, abs=1)


def test_built_matrices_have_the_published_non_zeros_and_the_assumed_long_rows():
    for row in TABLE_II:
        lengths = row_lengths(row, small=False)
        assert (lengths.size, lengths.sum()) == (row.nrows, row.nnz), row.name
        longest = int(0.1 * row.nrows) if row.long_rows else row.longest
        assert lengths.min() >= row.shortest and lengths.max() <= longest, row.name
        assert np.count_nonzero(lengths > row.longest) == row.long_rows
