"""The picture of MatMult over the ranks."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import svg  # noqa: E402
from petsc_gpufmt.bench.environment import processor  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402
from petsc_gpufmt.scaling import plot  # noqa: E402
from petsc_gpufmt.scaling.machine import gpu_called  # noqa: E402

TYPES = np.dtype(np.float64), np.dtype(np.int32)


def case(ranks, mode, seconds, **changes):
    found = {"matrix": "7point:20", "ranks": ranks, "weak": False, "type": "pjds", "ours": True, "mode": mode}
    found |= {"taken": mode, "distribution": "petsc", "nnz": 50_000, "seconds": seconds, "correct": True}
    return found | {"least_seconds": 0.8 * seconds, "largest_seconds": 1.25 * seconds} | changes


PEER = {"type": "aijcusparse", "ours": False}
CASES = [
    case(1, None, 1e-4, **PEER),
    case(1, None, 5e-5),
    case(2, None, 8e-5, **PEER),
    case(2, "overlap", 4e-5),
    case(2, "peer", 3.2e-5),
    *(case(ranks, mode, 2e-5, matrix="27point:9", nnz=30_000) for ranks, mode in ((1, None), (2, "overlap"))),
]


@pytest.fixture(scope="module")
def models():
    return plot.models_of(CASES, "h200", True, TYPES)


def test_a_panel_has_what_was_measured_and_what_is_predicted(models):
    first, second = plot.make_panels(CASES, models)
    assert (first.matrix, first.ranks, first.alone) == ("7point:20", 4, 2e-9 * 50_000 / 5e-5)
    assert [curve.name for curve in first.curves] == ["aijcusparse", "pjds, overlap", "pjds, peer"]
    cusparse, overlap, peer = first.curves
    assert cusparse.predicted == [] and [ranks for ranks, _ in peer.predicted] == [1, 2, 3, 4]
    assert overlap.predicted[0] == peer.predicted[0] and overlap.predicted[1][1] < peer.predicted[1][1]
    assert [ranks for ranks, *_ in peer.measured] == [1, 2]
    gflops = 2e-9 * 50_000 / 3.2e-5
    assert peer.measured[1] == pytest.approx((2, gflops, 0.8 * gflops, 1.25 * gflops))
    assert second.matrix == "27point:9" and [curve.name for curve in second.curves] == ["pjds, overlap"]


def test_matrices_that_the_model_does_not_know_are_drawn_without_it(models):
    dealt = [case(2, "overlap", 4e-5, distribution="cyclic")]
    assert set(models) == {"7point:20", "27point:9"} and plot.models_of(dealt, "h200", True, TYPES) == {}
    assert plot.models_of([case(2, "overlap", 4e-5, type="bsr")], "h200", True, TYPES) == {}
    (panel,) = plot.make_panels(dealt, {})
    assert panel.alone == 0 and panel.curves[0].predicted == []
    through_the_host = plot.models_of(CASES, "h200", False, TYPES)
    overlap, peer = plot.make_panels(CASES, through_the_host)[0].curves[1:]
    as_before = plot.make_panels(CASES, models)[0].curves
    assert peer.predicted == as_before[2].predicted and overlap.predicted[1][1] < as_before[1].predicted[1][1]


def test_everything_is_inside_of_the_picture(models):
    root = ElementTree.fromstring(plot.make_plot(CASES, models, "NVIDIA H200"))
    width, height = int(root.get("width")), int(root.get("height"))
    assert width == 2 * plot.PANEL
    for circle in root.findall("{*}circle"):
        assert plot.LEFT <= float(circle.get("cx")) <= width and plot.TOP <= float(circle.get("cy")) < height
    assert len(root.findall("{*}circle")) == 2 * 4
    for line in root.findall("{*}path"):
        numbers = [float(number) for number in line.get("d").translate(str.maketrans("MLHV", "    ")).split()]
        assert min(numbers) >= 0 and max(numbers) <= width
    words = [text.text for text in root.findall("{*}text")]
    assert words[0] == "MatMult on NVIDIA H200: GF/s over the ranks"
    assert words[-5:] == ["aijcusparse", "pjds, overlap", "pjds, peer", "model", "ideal"]
    assert {"7point:20", "27point:9", "1", "2", "3", "4"} <= set(words)


def test_a_contender_has_one_colour_in_all_panels(models):
    colour = plot.colours(plot.make_panels(CASES, models))
    assert len(set(colour.values())) == 3 and colour["aijcusparse"] == plot.PEER_COLOUR
    assert plot.colours(plot.make_panels(CASES[:2], {}))["pjds"] == plot.COLOURS[0]


def test_modes_that_all_gave_way_are_not_drawn():
    with pytest.raises(BenchError, match="nothing to draw: all modes gave way"):
        plot.make_plot([case(2, "peer", 3e-5, taken="overlap")], {}, "NVIDIA H200")


@pytest.mark.parametrize(
    ("largest", "found"),
    [(4, [0, 1, 2, 3, 4]), (1150, [0, 200, 400, 600, 800, 1000]), (0.26, [0, 0.05, 0.1, 0.15, 0.2, 0.25])],
)
def test_ticks(largest, found):
    assert svg.ticks(largest, plot.MOST_TICKS) == pytest.approx(found)


def test_gpus_are_known_by_their_names():
    assert gpu_called("NVIDIA H200") == "h200" and gpu_called("Some GPU") is gpu_called(None) is None


@pytest.mark.mpi
def test_the_command_draws_what_it_has_measured(tmp_path):
    words = ["--matrix", "7point:6", "--ranks", "1,2", "--mode", "overlap", "--plot", str(tmp_path / "plot.svg")]
    assert main(["bench", "scaling", "--host", *words]) == 0
    words = [text.text for text in ElementTree.parse(tmp_path / "plot.svg").getroot().findall("{*}text")]
    assert words[0] == f"MatMult on {processor()}: GF/s over the ranks"
    assert words[-3:] == ["aij", "pjds, overlap", "ideal"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("plot.png", "--plot plot.png: pictures are SVG; name a file that ends with .svg"),
        ("/absent/plot.svg", "--plot /absent/plot.svg: there is no folder /absent"),
    ],
)
def test_a_picture_that_cannot_be_is_refused_before_anything_is_measured(capsys, path, text):
    assert main(["bench", "scaling", "--host", "--plot", path]) == 2
    assert capsys.readouterr().err == f"petsc_gpufmt: {text}\n"
