"""Figure 5 of Kreutzer et al. 2012: strong scaling of DLR1 and UHBR in the paper's three modes.

Measured by `petsc-gpufmt bench scaling` on the GPUs that there are, and by the model of petsc_gpufmt/scaling/ for up to
32 nodes of one GPU. UHBR has a share of its rows, so that it is made in seconds: where columns lie in a band, rows and
halo of a GPU are those of the whole matrix on so many times as many GPUs, and so is the efficiency.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import scipy.sparse
from bench_program import Case, bench_cases, comma_separated
from measure import gflops
from pjds_matrices import DOUBLE, MATRICES, make, make_uhbr
from report import Chart, Found, Setting, line

from petsc_gpufmt.backends import driver
from petsc_gpufmt.bench.scaling import default_modes
from petsc_gpufmt.scaling.machine import Machine, ModelledDevice, find_gpu, find_machine, gpu_called
from petsc_gpufmt.scaling.prediction import Model
from petsc_gpufmt.scaling.problem import make_problem

MODES = ("vector", "overlap", "task")
NODES = (1, 2, 4, 8, 16, 32)
MOST_RANKS = 8
UHBR_SHARE = 8
EFFICIENCIES = {("UHBR", "task"): 84.0, ("UHBR", "overlap"): 70.0}
"""Percent on 32 nodes, section III-B."""

PAPERS_GPU = "0.091"
"""TB/s of a C2050 with ECC on, section I-B."""


def figure_5(setting: Setting) -> Iterator[Found]:
    yield (
        f"UHBR has one in {UHBR_SHARE} of its rows; its GPUs and GF/s are counted {UHBR_SHARE} times, which in a band "
        "of columns is the whole matrix. The model has one GPU a node, and the network of its file."
    )
    matrices = {"DLR1": (make(MATRICES[0], setting), 1), "UHBR": (make_uhbr(UHBR_SHARE, setting), UHBR_SHARE)}
    machine = modelled_machine(setting)
    device = ModelledDevice(DOUBLE, setting.place.backend.index, machine.gpu.resident_threads)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder, f"{name}.npz") for name in matrices}
        for name, (matrix, _) in matrices.items():
            scipy.sparse.save_npz(paths[name], matrix.csr, compressed=False)
        measured = measured_cases(list(paths.values()), setting)
        if not measured:
            yield "There is one GPU, whose products are in table I: more are measured where there are more."
        for name, (_, share) in matrices.items():
            cases = [case for case in measured if Path(case["matrix"]).stem == name]
            nodes = [n // share for n in NODES if n >= share]
            problem = make_problem(str(paths[name]), device)
            predicted = Model(problem, machine, device, "pjds").predict(nodes, MODES)
            yield from measured_lines(name, cases)
            yield from efficiencies(name, predicted, f"by the model, {machine.gpu.name}")
            then = dataclasses.replace(machine, gpu=find_gpu(PAPERS_GPU))
            of_then = Model(problem, then, device, "pjds").predict(nodes, MODES)
            yield from efficiencies(f"{name}, {then.gpu.name}", of_then, "by the model, with the network of today")
            yield chart(name, cases, predicted, share)


def modelled_machine(setting: Setting) -> Machine:
    """Nodes of one GPU, like the one that is here if the model knows it, and MPI that is not GPU-aware."""
    name = None if setting.place.name == "host" else driver.device_name(0)
    return find_machine(gpu_called(name) or "h200", "host", gpus_per_host=1)


def measured_cases(paths: Sequence[Path], setting: Setting) -> list[Case]:
    """Of `petsc-gpufmt bench scaling` on as many GPUs as there are, or on two ranks of the host; none for one GPU.

    With --small on two ranks and in one mode.
    """
    host = setting.place.name == "host"
    ranks = [n for n in NODES if n <= (2 if host else min(MOST_RANKS, driver.device_count()))]
    modes = [mode for mode in MODES if mode in default_modes()]
    if len(ranks) == 1:
        return []
    if setting.small:
        ranks, modes = ranks[-1:], modes[:1]
    words = ["--type", "pjds", "--without-peer", "--ranks", comma_separated(ranks)]
    words += [word for path in paths for word in ("--matrix", str(path))]
    words += [word for mode in modes for word in ("--mode", mode)]
    return bench_cases(setting, "scaling", *words)


def measured_lines(name: str, cases: Sequence[Case]) -> Iterator[Found]:
    for case in cases:
        ranks = f"{case['ranks']} rank{'s' * (case['ranks'] > 1)}"
        mode = f", {case['mode']}" if case["mode"] else ""
        yield line(f"{name} on {ranks}{mode}", None, gflops(case["nnz"], case["seconds"]), "GF/s")


def efficiencies(name: str, predicted: dict[str, Any], remark: str) -> Iterator[Found]:
    for mode, predictions in predicted.items():
        published = EFFICIENCIES.get((name.partition(",")[0], mode))
        efficiency = 100 * predictions[-1].efficiency
        yield line(f"{name}: efficiency on {NODES[-1]} nodes, {mode}", published, efficiency, "%", remark=remark)


def chart(name: str, cases: Sequence[Case], predicted: dict[str, Any], share: int) -> Chart:
    """GF/s of the whole matrix."""
    series: dict[str, Any] = {}
    for mode, found in predicted.items():
        series[f"{mode}, model"] = ([p.ranks * share for p in found], [p.gflops * share for p in found])
        of_mode = [case for case in cases if case["ranks"] == 1 or case["mode"] == mode]
        speeds = [share * gflops(case["nnz"], case["seconds"]) for case in of_mode]
        if of_mode:
            series[f"{mode}, measured"] = ([share * case["ranks"] for case in of_mode], speeds)
    return Chart(f"figure_5_{name.lower()}", f"Strong scaling of {name}", "lines", "GPUs", "GF/s", series, "xy")
