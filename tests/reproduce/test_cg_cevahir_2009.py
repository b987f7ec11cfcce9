"""The script of the paper on CG with several GPUs, at small sizes."""

import pytest
from reproduced import measured_parts


@pytest.mark.slow
def test_products_of_the_cg_paper(tmp_path):
    parts, text = measured_parts("cg_cevahir_2009.py", tmp_path, "--figure", "figure-4")

    lines = parts["figure-4"]
    jds, basic = (lines[f"s3dkq4m2: {name}"]["ours"] for name in ("proposed (jds)", "basic JDS"))
    assert jds > 0 and basic > 0
    assert lines["mean: proposed (jds)"]["published"] == 6.09
    assert lines["proposed over basic JDS, mean of ratios"]["published"] == pytest.approx(6.09 / 2.38)
    assert lines["mean: OSKI (aij on the host)"]["ours"] > 0
    assert lines["bandwidth of the proposed one, of that of a copy"]["published"] == 57
    assert "G3_circuit: slower than the average" in text


@pytest.mark.slow
@pytest.mark.mpi
def test_cg_in_mixed_precision_of_the_cg_paper(tmp_path):
    parts, _ = measured_parts("cg_cevahir_2009.py", tmp_path, "--figure", "figure-5")

    lines = parts["figure-5"]
    assert lines["speed-up on 2 ranks of the host, mean"]["published"] == 1.73
    missing = lines["speed-up on 4 GPUs, mean"]
    assert (missing["published"], missing["verdict"]) == (2.83, "not measured")
    assert lines["mixed precision (replacement) over double: iterations, mean"]["ours"] > 0
