"""The script of the RMerge paper: all parts at small sizes, and the splitting of a left matrix."""

import numpy as np
import pytest
import scipy.sparse
from reproduced import measured_parts
from rmerge_splitting import splitting


@pytest.mark.slow
def test_the_tables_and_figures_of_the_rmerge_paper(tmp_path):
    parts, text = measured_parts("rmerge_gremse_2015.py", tmp_path)

    first = parts["table-3.1"]
    for name, iterations in (("cantilever", 2), ("epidemiology", 1), ("circuit", 3)):
        assert first[f"{name}: iterations"]["ours"] == iterations
        assert first[f"{name}: iterations"]["verdict"] == "reproduced"
        assert 0 < first[f"{name}: first product"]["ours"] <= 100
    assert parts["table-1.1"]["epidemiology: compression"]["verdict"] == "reproduced"
    squares = parts["figure-3.2"]
    assert squares["squares: RMerge over Liu and Vinter, mean"]["published"] == 2.6
    assert squares["squares: RMerge over MKL, mean"]["remark"] == "SciPy, 3 products"
    assert squares["matrices for which our choice is the fastest"]["unit"] == "of 3"
    assert parts["figure-3.1"]["fastest width"]["ours"] in (2, 4, 8, 16, 32)
    assert parts["figure-3.3"]["our choice: P of Pearson's correlation"]["ours"] <= 1
    assert [parts["figure-3.5"][f"width {w}: mean rate"]["published"] for w in (2, 32)] == [0.65, 2.22]
    assert parts["figure-3.6"]["pyramids: RMerge over Cusp, mean"]["ours"] > 0
    split = parts["section-3.4"]
    assert "epidemiology: SciPy with the splitting" not in split  # one product suffices
    known = [split[f"{name}: aij with the splitting"]["ours"] for name in ("cantilever", "circuit")]
    mean = split["cuSPARSE with the splitting, time over its own, mean"]
    assert mean["ours"] == pytest.approx(np.mean(known)) and mean["published"] == 1.4
    assert "## Figure 3.6" in text and "profiler" in text


def test_the_splitting_of_the_papers_example():
    """Section 2.3: two rows of five and four entries, two at a time."""
    A = scipy.sparse.csr_matrix(np.array([[2.0, 0, 7, 4, 6, 0, 2, 2], [3, 0, 0, 2, 0, 5, 0, 3]]))
    A.data[:] = np.arange(1, A.nnz + 1)

    parts = list(splitting(A, 2))

    assert [part.shape for part in parts] == [(5, 8), (3, 5), (2, 3)]
    assert all(np.diff(part.indptr).max() <= 2 for part in parts)
    assert parts[1].toarray().tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]]
    product = parts[2] @ parts[1] @ parts[0]
    assert np.array_equal(product.toarray(), A.toarray())
