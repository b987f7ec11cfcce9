"""The picture: what is drawn, and that it is drawn where matplotlib is."""

import sys

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.analysis import plot  # noqa: E402
from petsc_gpufmt.analysis.analysis import analyse  # noqa: E402
from petsc_gpufmt.analysis.source import Source, read_source  # noqa: E402
from petsc_gpufmt.backends.native_library import petsc_types  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.report import pictures  # noqa: E402
from petsc_gpufmt.scaling.machine import find_gpu  # noqa: E402

TYPES = petsc_types()


def test_a_small_pattern_is_drawn_as_it_is():
    matrix = scipy_sparse.random(30, 20, 0.2, format="csr", random_state=977)
    np.testing.assert_array_equal(plot.density(matrix), matrix.toarray() != 0)


def test_pixels_of_a_large_pattern_have_the_share_of_their_places():
    matrix = scipy_sparse.random(60, 80, 0.2, format="csr", random_state=977)
    expected = (matrix.toarray() != 0).reshape(10, 6, 10, 8).mean(axis=(1, 3))
    np.testing.assert_allclose(plot.density(matrix, 10), expected)
    assert plot.density(scipy_sparse.csr_matrix((0, 3))).shape == (1, 3)


def test_points_of_the_roofline_are_below_it_but_for_what_the_cache_holds():
    found = analyse(read_source("7point:5", *TYPES), TYPES, find_gpu("h200"))
    points = {name: (intensity, gflops) for name, intensity, gflops in plot.roofline_points(found)}
    row = found.row("pjds")
    flops = 2 * found.facts.nnz
    assert points["pjds"] == (flops / row.bytes_per_mult, pytest.approx(1e-9 * flops / row.seconds))
    assert points["pjds"][1] / points["pjds"][0] == pytest.approx(1e-9 * row.share_of_limit * found.gpu.copy)
    empty = analyse(Source("empty", scipy_sparse.csr_matrix((4, 4))), TYPES, find_gpu("h200"))
    assert plot.roofline_points(empty) == []


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BenchError, match=r"^--plot needs matplotlib .*pip install 'petsc_gpufmt\[plot\]'") as caught:
        pictures.check_plot(tmp_path / "a.png")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["27point:5x3", scipy_sparse.csr_matrix((0, 0)), scipy_sparse.csr_matrix((5, 3))])
@pytest.mark.filterwarnings("error")
def test_the_picture_is_written(tmp_path, given):
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.png"
    pictures.check_plot(path)
    source = read_source(given, *TYPES) if isinstance(given, str) else Source("given", given)
    plot.draw(analyse(source, TYPES, find_gpu("h200")), source.matrix, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_form_that_is_not_known_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(BenchError, match=r"--plot .*a\.doc: name a file that ends in one of .*\.png"):
        pictures.check_plot(tmp_path / "a.doc")
