"""``bench parts``: the three experiments of EVC-HYB, in emulation, and what is made of their times."""

from __future__ import annotations

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from places import make_backend  # noqa: E402

from petsc_gpufmt.bench import parts  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.matrices import BenchMatrix  # noqa: E402
from petsc_gpufmt.bench.places import Place  # noqa: E402
from petsc_gpufmt.bench.timing import HostTimer  # noqa: E402
from petsc_gpufmt.cli.main import main  # noqa: E402


@pytest.fixture
def place(request):
    return Place(HostTimer(), make_backend(request, "emulation", resident_threads=64), "seq")


def test_experiments_give_sums_of_values_of_x_and_counts(place, monkeypatch):
    rng = np.random.default_rng(11)
    csr = scipy_sparse.random(90, 80, 0.3, format="csr", random_state=rng, dtype=np.float64)
    csr = scipy_sparse.vstack([csr, scipy_sparse.csr_matrix((3, 80)), np.ones((1, 80))], format="csr")
    csr.indptr, csr.indices = csr.indptr.astype(np.int32), csr.indices.astype(np.int32)
    monkeypatch.setattr(parts.EvcHyb, "default_options", parts.EvcHyb.default_options | {"split_length": 40})
    case = parts.measure_parts(BenchMatrix("some", csr, 1), place, rng)
    assert case["correct"] and parts.wrong_cases(case) == []
    assert case["nstored"] > csr.nnz and set(case["seconds"]) == {"whole", "x", "values", "both"}
    assert min(case["seconds"].values()) > 0 and case["x_to_device_seconds"] >= 0

    right = parts.expected_results(csr, np.ones(80))
    monkeypatch.setattr(parts, "expected_results", lambda *_: right | {"x": right["values"]})
    assert parts.wrong_cases(parts.measure_parts(BenchMatrix("some", csr, 1), place, rng)) == [
        "some: entries of a result are wrong"
    ]


def test_parts_of_times():
    case = {"matrix": {"name": "some"}, "x_to_device_seconds": 1e-4, "z_to_host_seconds": 2e-4}
    case |= {"seconds": {"whole": 20e-6, "x": 12e-6, "values": 15e-6, "both": 4e-6}}
    assert parts.parts(case) == pytest.approx({"T_A": 8e-6, "T_X": 11e-6, "T_Y": 4e-6})
    assert parts.sum_over_whole(case) == pytest.approx(23 / 20)
    assert parts.case_line(case) == (
        "some: 20.00 us, T_A 8.00 us, T_X 11.00 us, T_Y 4.00 us, their sum 1.15 times as long; "
        "x to the device and z back 300 us"
    )
    noisy = case | {"seconds": case["seconds"] | {"x": 3e-6}}
    assert parts.parts(noisy)["T_A"] == 0


def test_without_a_gpu_it_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("petsc_gpufmt.bench.places.device_reason", lambda: "there is no GPU")
    assert main(["bench", "parts"]) == 2
    assert capsys.readouterr().err == "petsc_gpufmt: bench parts times kernels of a GPU: there is no GPU\n"
    assert main(["bench", "parts", "--matrix", "7point:0"]) == 2
    assert capsys.readouterr().err.startswith("petsc_gpufmt: --matrix 7point:0: give the grid points")
    with pytest.raises(BenchError):
        parts.check_device("none")
