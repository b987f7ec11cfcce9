"""The page of the model of MatMult on many GPUs beside what was measured: ``python benchmarks/scaling_report.py``."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markdown_parts import microseconds, section, table

from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.cli.outcome import program
from petsc_gpufmt.scaling.machine import ModelledDevice, find_machine
from petsc_gpufmt.scaling.prediction import Model, breakdown
from petsc_gpufmt.scaling.problem import make_problem

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/scaling/h200.json"
SHOWN = (("7point:256", False), ("27point:200", False), ("7point:200", True))
RANKS = (1, 2, 4, 8, 16, 64, 512, 4096)
SHOWN_MODES = ("overlap", "task", "peer")

INTRODUCTION = """\
# MatMult on many GPUs: a model

Made by `python benchmarks/scaling_report.py`, which runs the model; do not edit this page.

`petsc-gpufmt model MATRIX` predicts MatMult of our types on several ranks with a GPU each, before there are any:

    petsc-gpufmt model 7point:256 --ranks 1:4096      # strong scaling, doubled from 1 on; --weak for weak scaling
    petsc-gpufmt model bcsstk32.mtx.gz --ranks 1,2,4 --mode peer --json model.json
    petsc-gpufmt model 27point:200 --gpu 2.0 --link pcie    # a GPU of 2 TB/s; --bandwidth, --latency of the link

MATRIX is what `bench mult --matrix` takes, or `powerlaw:ROWS`. No matrix of a stencil is made, so it may be larger than
any memory. For each number of ranks the command prints what the slowest rank has and waits for, GF/s and efficiency.
One line for each mode of the halo exchange says from how many ranks on less than half of the ideal is reached, and
why: launches of kernels, the nonlocal part, latency of the exchange, bandwidth of the link, or uneven rows.
"""

EQUATIONS = """\
**On one device** a product moves, by M. Kreutzer et al., *Sparse matrix-vector multiplication on GPGPU clusters*, 2012,
equation (1), in double precision

    B = 6 + 4 alpha + 8 / N_nzr bytes a flop

as ELLPACK-R or pJDS with full columns, padding left out. N_nzr are the entries of a row, alpha is the share of the
reads of *x* that go to memory, from 1 / N_nzr to 1. In a local and a nonlocal part *z* is written twice: 8 / N_nzr
more. From T_MVM = 8 N / B_GPU (N_nzr (alpha + 3/2) + 2) and T_PCI = 16 N / B_PCI follow equations (3) and (4): to send
*x* and *z* takes as long as the product at N_nzr = (2 B_GPU / B_PCI - 2) / (alpha + 3/2), and a tenth of it at
(20 B_GPU / B_PCI - 2) / (alpha + 3/2). They are in `petsc_gpufmt/scaling/code_balance.py`, and the command prints them
for its matrix and link. They give the paper's 25, 7, 80 and 266.

**On several ranks** rows are contiguous, as PETSc deals them. Each rank has entries in columns of its own, the local
part, and of others, the nonlocal part. Their numbers, the halo and the neighbours are counted in the pattern
(`petsc_gpufmt/scaling/partition.py`); of a stencil on many ranks ten are looked at.

    local     = what choice/model.py says of a matrix of this size in the format that gpufmt takes, with the bandwidth
                of the second-level cache where that holds the part
    nonlocal  = a launch + bytes of its entries, of its rows of z read and written, and of the ghost vector
    exchange  = start + neighbours * latency + halo * 8 / bandwidth

    vector    exchange + local + nonlocal
    overlap   exchange + what it takes more beside the local part + local + nonlocal
    task      max(local, hand-over to the thread + exchange) + nonlocal
    peer      kernels that send and wait + max(local, latency) + nonlocal; on several hosts as overlap

In `overlap` nothing overlaps, as the paper expects of MPI without progress of its own, and as was measured: messages
take even longer while the device computes. Ranks of other hosts are reached through a network. The constants, each with
its source, are in `petsc_gpufmt/scaling/machines.json`. Those of `task`, PCIe and the network are given or estimated,
and not measured.

Not modelled: what a solver does between products, and halos that change the format of the local part.
"""

COMPARED = """\
Slabs on H200s with NVLink and Open MPI 4.1.4, timed by the host between barriers, as `mpiexec -n 4 python
benchmarks/mult_ranks.py` does. 7-point stencils on several ranks are what constants of the exchange are *fitted* to;
one rank, 27 points and weak scaling are predictions. That of one rank is too slow for 27 points because the model lets
every product reach 4.0 TB/s, where these reach 4.27. In the first run the nonlocal part was launched over all rows. The
empty ones cost 1.16 us for each 270 336 of them, as many threads as run at once: with 7 points on 256^3, more than the
exchange. Since then it is launched over its own rows.
"""


def model(spec: str, compressed: bool = True, gpu_aware: bool = True) -> Model:
    """Of a matrix in double precision with 32-bit indices."""
    machine = find_machine(link="nvlink" if gpu_aware else "host")
    device = ModelledDevice(np.float64, np.int32, machine.gpu.resident_threads)
    return Model(make_problem(spec, device), machine, device, compressed=compressed)


def errors(run: dict[str, Any]) -> list[tuple[dict[str, Any], float]]:
    """The cases of a run, each with the seconds that the model gives."""
    specs = dict.fromkeys(case["matrix"] for case in run["cases"])
    models = {spec: model(spec, run.get("compressed", True), run["gpu_aware"]) for spec in specs}
    pairs = []
    for case in run["cases"]:
        ((prediction,),) = models[case["matrix"]].predict([case["ranks"]], [case["mode"]], case["weak"]).values()
        pairs.append((case, prediction.seconds))
    return pairs


def is_fitted(case: dict[str, Any]) -> bool:
    """Whether constants of the exchange were fitted to a case."""
    return case["ranks"] > 1 and case["matrix"].startswith("7point:") and not case["weak"]


def compared(run: dict[str, Any]) -> str:
    """A table of one run."""
    rows = []
    for case, seconds in errors(run):
        matrix = f"{case['matrix']}{' on each' if case['weak'] else ''}"
        times = (microseconds(case["seconds"]), microseconds(seconds), f"{seconds / case['seconds'] - 1:+.1%}")
        rows.append((matrix, str(case["ranks"]), case["mode"], *times, "fitted" if is_fitted(case) else "predicted"))
    facts = "{gpu}, PETSc {petsc}, commit {commit:.7}, {date}.\n".format(**run["environment"])
    head = ("matrix", "ranks", "mode", "measured us", "model us", "error", "")
    return f"{run['name'][0].upper()}{run['name'][1:]}: {facts}\n{table(head, rows)}"


def stated_errors(runs: Sequence[dict[str, Any]]) -> str:
    """What is fitted, and what is predicted, in a sentence."""
    pairs = [pair for run in runs for pair in errors(run)]
    sizes = {
        fitted: [abs(seconds / case["seconds"] - 1) for case, seconds in pairs if is_fitted(case) == fitted]
        for fitted in (False, True)
    }
    predicted, fitted = (f"{statistics.mean(of):.1%} on average and {max(of):.1%} at most" for of in sizes.values())
    return f"Predictions are off by {predicted}, what was fitted by {fitted}.\n"


def predicted_section(spec: str, weak: bool) -> str:
    """Modes side by side over the ranks, and where each breaks down."""
    found = model(spec).predict(RANKS, SHOWN_MODES, weak)
    head = (
        "ranks",
        "halo",
        "neighbours",
        "local us",
        "nonlocal us",
        *(f"{mode} us, efficiency" for mode in SHOWN_MODES),
    )
    rows = []
    for k, ranks in enumerate(RANKS):
        of_modes = [found[mode][k] for mode in SHOWN_MODES]
        first = of_modes[-1]
        times = (f"{microseconds(p.seconds)}, {p.efficiency:.2f}" for p in of_modes)
        parts = (microseconds(first.local), microseconds(first.nonlocal_))
        rows.append((str(ranks), str(first.halo), str(first.neighbours), *parts, *times))
    lines = "".join(f"- {breakdown(found[mode], weak)}\n" for mode in SHOWN_MODES)
    stencil, points = spec.split(":")
    title = f"{stencil.replace('point', '-point')} {points}^3" + (" on each rank" if weak else "")
    return section(f"Prediction: {title}", table(head, rows), lines)


def make_page(runs: Sequence[dict[str, Any]]) -> str:
    return "\n".join(
        [
            INTRODUCTION,
            section("Equations", EQUATIONS),
            section("Against what was measured", COMPARED, stated_errors(runs), *(compared(run) for run in runs)),
            *(predicted_section(*shown) for shown in SHOWN),
        ]
    )


def main() -> int:
    print(make_page(read_runs(RESULTS)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("scaling_report", main))
