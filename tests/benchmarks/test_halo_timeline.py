"""What ranks do in a product, and when; and the picture of that."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import launch
import numpy as np
import pytest

pytest.importorskip("scipy.sparse")

import halo_timeline  # noqa: E402
import halo_timeline_plot  # noqa: E402
from halo_timeline import CALLS, FIRST_SHOWN, MODES, PARTS, PRODUCTS, ClockAt, Span  # noqa: E402

from petsc_gpufmt.backends import driver  # noqa: E402
from petsc_gpufmt.bench import results  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.places import gpu_reason  # noqa: E402

PROGRAM = Path(halo_timeline.__file__)
MATRIX = "7point:10"


def run_program(*words, ranks):
    return launch.run([sys.executable, PROGRAM, *words], ranks=ranks)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """All modes on two ranks; on a GPU that they share there is no peer."""
    modes = MODES if gpu_reason() or driver.device_count() > 1 else MODES[:-1]
    path = tmp_path_factory.mktemp("timeline") / "timeline.json"
    words = [word for mode in modes for word in ("--mode", mode)]
    finished = run_program("--matrix", MATRIX, "--json", path, *words, ranks=2)
    assert finished.status == 0, finished
    (found,) = results.read_runs(path)
    assert [(case["matrix"], case["mode"]) for case in found["cases"]] == [(MATRIX, mode) for mode in modes]
    return found


def of_a_product(case, rank):
    """What a rank does in the product that is shown, by name: spans in the order of their begins."""
    spans: dict[str, list] = {}
    for span in case["spans"]:
        if (span["rank"], span["product"]) == (rank, 0):
            spans.setdefault(span["what"], []).append(span)
    return spans


@pytest.mark.mpi
def test_parts_of_a_product_come_in_the_order_of_its_mode(run):
    for case in run["cases"]:
        for rank in range(2):
            spans = of_a_product(case, rank)
            assert all(span["begin"] <= span["end"] for of_name in spans.values() for span in of_name), spans
            (local,), (nonlocal_,) = spans["local"], spans["nonlocal"]
            assert local["end"] <= nonlocal_["begin"], spans
            if case["mode"] == "peer":
                (send,), (wait,) = spans["send"], spans["wait"]
                assert send["end"] <= wait["begin"] <= wait["end"] <= nonlocal_["begin"], spans
                assert not set(CALLS) & set(spans)
                continue
            starts, waits = spans["MPI_Startall"], spans["MPI_Testsome" if case["mode"] == "task" else "MPI_Waitall"]
            assert starts[-1]["end"] <= waits[-1]["end"] <= nonlocal_["begin"], spans
            assert {s["by_another_thread"] for s in starts + waits} == {case["mode"] == "task"}, spans
            if case["mode"] == "task":
                assert spans["pack"][0]["end"] <= starts[0]["begin"], spans
            else:
                assert "pack" not in spans
                on_device = case["clocks"][rank]["step_ns"]  # where the local part begins some time after it was queued
                before = waits[-1]["end"] <= local["begin"]
                assert before if case["mode"] == "vector" else on_device or local["begin"] <= waits[0]["begin"], spans


@pytest.mark.mpi
def test_messages_are_started_and_waited_for_within_matmult(run):
    for case in run["cases"]:
        for rank in range(2):
            spans = of_a_product(case, rank)
            (mult,) = spans["MatMult"]
            for call in (span for name in CALLS for span in spans.get(name, [])):
                assert mult["begin"] <= call["begin"] and call["end"] <= mult["end"], spans


@pytest.mark.mpi
def test_all_that_is_shown_is_drawn(run):
    root = ElementTree.fromstring(halo_timeline_plot.make_plot([run], MATRIX))
    bars = [box for box in root.findall("{*}rect") if float(box.get("height")) == halo_timeline_plot.BAR]
    shown = [box for box in bars if box.get("fill-opacity") is None]
    spans = [span for case in run["cases"] for span in case["spans"] if span["product"] == 0 and span["end"] >= 0]
    assert len(shown) == len(spans)
    for box in bars:
        right = float(box.get("x")) + float(box.get("width"))
        assert right <= halo_timeline_plot.WIDTH, ElementTree.tostring(box)
    words = [text.text for text in root.findall("{*}text")]
    for case in run["cases"]:
        assert any(line.startswith(f"{case['mode']}: ") for line in words)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "matrix", "message"),
    [
        (1, MATRIX, "there is no exchange on one rank: start it on several ranks"),
        (2, "absent.mtx", "absent.mtx: there is no such file"),
        (2, "7point:2", "mode vector: 48 and 48 stamps of begin and end of local in 24 products"),
    ],
)
def test_what_has_no_timeline_is_refused(ranks, matrix, message):
    finished = run_program("--matrix", matrix, ranks=ranks)
    assert finished.status == 2 and message in finished.output, finished


def all_stamps(*parts):
    """Of PRODUCTS products, a microsecond each."""
    stamps = [(2 * PARTS.index(part) + k, 1000 * p) for p in range(PRODUCTS) for part in parts for k in range(2)]
    return np.array(stamps, dtype=np.int64)


def test_a_mode_without_all_its_stamps_is_an_error():
    stamps = all_stamps("local", "nonlocal")
    assert len(halo_timeline.part_spans(stamps, "overlap")) == 2 * PRODUCTS
    with pytest.raises(BenchError, match="mode peer: 0 and 0 stamps of begin and end of send in 24 products"):
        halo_timeline.part_spans(stamps, "peer")
    with pytest.raises(BenchError, match="24 and 23 stamps of begin and end of nonlocal"):
        halo_timeline.part_spans(stamps[:-1], "vector")


def test_what_one_rank_finds_wrong_is_an_error_on_all_of_them():
    told = []
    comm = types.SimpleNamespace(rank=0, allgather=lambda found: told.append(found) or [found, (2, of_rank_1)])
    comm.tompi4py = lambda: comm
    of_rank_1 = ""
    assert halo_timeline.on_all(comm, lambda: 1) == [1, 2]
    of_rank_1 = "rank 1: wrong"
    with pytest.raises(BenchError, match="rank 1: wrong"):
        halo_timeline.on_all(comm, lambda: 1)
    of_rank_1 = ""
    with pytest.raises(BenchError, match="rank 0: mode peer: 0 and 0 stamps"):
        halo_timeline.on_all(comm, lambda: halo_timeline.part_spans(all_stamps("local"), "peer"))
    assert told[0] == told[1] == (1, "") and told[2][1].startswith("rank 0: mode peer")


def test_clocks_differ_by_what_was_found_before_and_after():
    stamps = np.array([[4, 0], [5, 1000], [4, 2000]])
    times = halo_timeline.host_times(stamps, ClockAt(5000, 5000, 32), ClockAt(7000, 5010, 32))
    assert times.tolist() == [[4, 5000], [5, 6005], [4, 7010]]
    same = halo_timeline.host_times(stamps, ClockAt(5000, 0, 0), ClockAt(5000, 0, 0))
    assert same.tolist() == stamps.tolist()


def test_the_product_of_median_length_is_shown_with_what_overlaps_it():
    """A rank has the local part, and the nonlocal part of the product before beside it."""

    def spans(length, late):
        begins = np.cumsum([0, *(length(k) for k in range(PRODUCTS))]) + late
        for k, (begin, end) in enumerate(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)):
            yield from (Span("local", k, begin, end - 2), Span("nonlocal", k, end - 2, end))

    last = PRODUCTS - 1

    def length(k):
        return {FIRST_SHOWN: 30, last: 10}.get(k, 20 if k > FIRST_SHOWN + 1 else 21)

    found = halo_timeline.shown([list(spans(length, late)) for late in (0, 4)])
    assert [(span["rank"], span["product"], span["what"], span["begin"], span["end"]) for span in found] == [
        *((0, 0, "local", 0, 18), (0, 0, "nonlocal", 18, 20), (0, 1, "local", 20, 38)),
        *((1, -1, "local", -17, 2), (1, -1, "nonlocal", 2, 4), (1, 0, "local", 4, 22), (1, 0, "nonlocal", 22, 24)),
    ]


def exchange(local, *others):
    spans = [("local", *local), *others]
    case = {"spans": [{"rank": 1, "product": 0, "what": w, "begin": b, "end": e} for w, b, e in spans]}
    return tuple(halo_timeline_plot.exchange_of(case, 1))


def test_hidden_is_what_of_the_exchange_is_beside_the_local_part():
    receives = ("MPI_Startall", 0, 1)
    assert exchange((20, 90), receives, ("MPI_Startall", 10, 12), ("MPI_Waitall", 12, 60)) == (50, 40)
    assert exchange((20, 30), receives, ("MPI_Startall", 10, 12), ("MPI_Waitall", 12, 60)) == (50, 10)
    assert exchange((70, 90), receives, ("MPI_Startall", 10, 12), ("MPI_Waitall", 12, 60)) == (50, 0)
    assert exchange((20, 90), ("send", 10, 12), ("wait", 13, 40)) == (30, 20)
    parts = receives, ("MPI_Startall", 10, 12), ("MPI_Startall", 30, 32)
    assert exchange((20, 90), *parts, ("MPI_Testsome", 13, 31), ("MPI_Testsome", 33, 60)) == (50, 40)
    assert exchange((20, 90), ("MPI_Startall", 30, 32), ("MPI_Waitall", 33, 60)) == (30, 30)
    one_by_one = ("MPI_Start", 0, 1), ("MPI_Start", 2, 3)
    assert exchange((20, 90), *one_by_one, *parts[1:], ("MPI_Testsome", 33, 60)) == (50, 40)


def test_a_picture_of_a_matrix_that_was_not_measured_is_refused(tmp_path):
    path = tmp_path / "timeline.json"
    results.save_run(path, {"name": "halo timeline", "cases": [{"matrix": MATRIX}]})
    with pytest.raises(BenchError, match="--matrix 27point:4: the results have 7point:10"):
        halo_timeline_plot.main([str(path), "--matrix", "27point:4"])


def test_picture_in_the_documentation_is_that_of_the_results(capsys):
    """After a wanted change: python benchmarks/halo_timeline_plot.py > docs/halo_timeline.svg."""
    assert halo_timeline_plot.main([]) == 0
    assert capsys.readouterr().out == (PROGRAM.parents[1] / "docs/halo_timeline.svg").read_text()


def test_kernels_compile():
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="no NVRTC: pip install cuda-bindings nvidia-cuda-nvrtc")
    error, compiled = nvrtc.nvrtcCreateProgram(PROGRAM.with_suffix(".cu").read_bytes(), b"halo_timeline.cu", 0, [], [])
    assert not error.value
    (error,) = nvrtc.nvrtcCompileProgram(compiled, 1, [b"-arch=sm_90"])
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(compiled)[1])
    nvrtc.nvrtcGetProgramLog(compiled, log)
    assert not error.value, log.decode()
    image = bytearray(nvrtc.nvrtcGetCUBINSize(compiled)[1])
    nvrtc.nvrtcGetCUBIN(compiled, image)
    assert b"timeline_stamp" in image and b"timeline_clock" in image
    nvrtc.nvrtcDestroyProgram(compiled)
