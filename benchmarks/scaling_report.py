"""The page of MatMult over the ranks, measured and modelled: ``python benchmarks/scaling_report.py > docs/scaling.md``.

Its picture: ``python benchmarks/scaling_report.py --plot > docs/scaling.svg``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report import committed_results

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import grid_and_block
from petsc_gpufmt.bench.rank_mult import AS_MADE
from petsc_gpufmt.bench.report.markdown import microseconds, section, table
from petsc_gpufmt.bench.report.page import kind_of
from petsc_gpufmt.bench.report.scaling_tables import matrix_name, measured, title
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.bench.scaling import Case
from petsc_gpufmt.cli.outcome import program
from petsc_gpufmt.scaling.machine import ModelledDevice, gpu_called, nvlink_machine
from petsc_gpufmt.scaling.plot import make_plot
from petsc_gpufmt.scaling.prediction import CHOSEN, MODES, Model, breakdown
from petsc_gpufmt.scaling.problem import make_problem

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/scaling"
KINDS = ("scaling", "mult in slabs")
DRAWN, DRAWN_GPU = "scaling, pjds", "h100"
"""The run of the picture, and the GPU as the model calls it: that of the most ranks."""
FITTED_GPU = "h200"
DRAWN_MATRICES = ("7point:128", "27point:128")
SHOWN = (("7point:256", False), ("27point:200", False), ("7point:200", True))
RANKS = (1, 2, 4, 8, 16, 64, 512, 4096)
SHOWN_MODES = ("overlap", "task", "peer")

Run = dict[str, Any]

INTRODUCTION = """\
# MatMult on many GPUs

Made by `python benchmarks/scaling_report.py`, which runs the model; do not edit this page. The picture is made by
`python benchmarks/scaling_report.py --plot`.

`petsc-gpufmt bench scaling` measures MatMult on 1, 2, 4, ... ranks, as many as there are GPUs, in all modes of the halo
exchange, and with PETSc's own type. It starts `mpiexec` itself:

    petsc-gpufmt bench scaling --matrix 7point:128 --matrix 27point:128 --ranks 1,2 --plot scaling.svg
    petsc-gpufmt bench scaling --matrix 7point:200 --weak --mode peer --json scaling.json
    petsc-gpufmt bench scaling --matrix reservoir:10 --type bsr --distribution cyclic

Ranks have whole planes of a stencil, or block rows in equal numbers; `--distribution` deals them out anew, as
[distribution.md](distribution.md) says. All entries of each product are compared with the exact ones. A product is
timed by the host between barriers, in 9 sequences of 50 that do not wait for the device: median, least and largest.

`reservoir:10` is the oil reservoir of A. Abdelfattah et al., *Performance optimization of sparse matrix-vector
multiplication for multi-component PDE-based applications using GPUs*, 2016: SPE5's 7 x 7 x 3 cells, each cut into ten
in each direction, for a porous medium and its fractures, with 7 x 7 blocks. Rows and nonzeros are those of their
spe5Ref_dpdp, whose product on two GPUs they found 1.93 times as fast as on one. The order of the rows is chosen here:
the two media of a cell lie side by side.
"""

PICTURE = """\
![GF/s over the ranks of a 7-point and a 27-point stencil](scaling.svg)

To reach on two H200s are 228 us for 27-point 200^3, 165 for 7-point 256^3, 66 and 27 for 27 and 7 points on 128^3,
0.95 of the ideal where 7-point 200^3 grows with the ranks, and 1.93 times as fast for the reservoir. *peer* misses
each by 1 to 3 in 100. What keeps it from them: after the local part the nonlocal one waits for events of two streams,
and is a launch of its own; with `bsr` it is launched over all block rows, most of which are empty there. The type
`gpufmt` has it in `pjds`, over its own rows.

Four H200s were not to be had; to reach there are 122, 92, 40 and 20 us, and 3.6 times for the reservoir. On four
H100s, whose memory has 0.7 of the bandwidth, the speed-ups over one GPU are those of these figures, but for the
shortest product: 3.62 times for 27-point 200^3 (the figures: 3.57), 3.49 for 7-point 256^3 (3.36), 3.33 for 27 points
on 128^3 (2.95), and 1.88 for 7 points (2.05), where a rank has 14 us of work, and 15 pass in sending, waiting and the
nonlocal part. In a process that multiplies in no other mode and with no peer, as an application's, that is 2.14 times
(25.7 us; 1.78 and 30.8 on two, and 3.35 and 1.87 with 27 points;
`results/comparisons/h100-x4-peer-alone-9aeca60.json`). Where the matrix grows it is 0.94 of the ideal; the reservoir
is 3.66 times as fast with `gpufmt`, 3.57 with `bsr`. A million products of 27-point 64^3 in *peer* on four ranks,
each compared with the first bit by bit, had no entry that differed; nor had a million of small matrices of all formats
on four H200s ([reliability.md](reliability.md#long-runs)).

Where PETSc is told that MPI is not GPU-aware, *peer*, which needs no MPI, is 4 to 5 us faster: 61 for 66 us with 27
points on 128^3 and two H200s, 86.3 for 90.9 on two H100s, 45.8 for 50.4 on four. What takes them is CUDA's default
stream, which is PETSc's, beside such an MPI. With `-root_device_context_stream_type nonblocking` PETSc has a stream
of its own, and with the same GPU-aware MPI the products take 86.7 and 45.4 us, with 7 points 28.6 for 33.7 and 26.3
for 29.0 (`results/comparisons/h100-x4-nonblocking-stream-47824a1.json`). Streams that this MPI keeps on the device,
and the default stream has to look after, are the likely reason. The option is not for solves: some of PETSc's own
operations on vectors stay on the default stream then, and nothing orders the two ([what is known to be
wrong](reliability.md#what-is-known-to-be-wrong)); and PETSc takes vectors from a pool that Open MPI cannot map, so that
its own messages take 2.4 ms. Where our types exchange in *peer*,
`-use_gpu_aware_mpi 0` gains the same, and costs where PETSc sends messages itself.
"""

MODEL = """\
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

    local     = what choice/model.py says of a matrix of this size in its format, with the bandwidth that the GPU has
                for so many bytes a row, and that of the second-level cache where that holds the part
    nonlocal  = a launch + bytes of its entries, of its rows of z read and written, and of the ghost vector
    exchange  = start + neighbours * latency + halo * 8 / bandwidth

    vector    exchange + local + nonlocal
    overlap   exchange + what it takes more beside the local part + local + nonlocal
    task      hand-over to the thread + exchange + local + nonlocal
    peer      max(local, exchange) + what it takes more beside the local part + nonlocal; of less than 3 million
              entries a rank exchange + local + nonlocal; on several hosts as overlap

In `overlap` nothing overlaps, as the paper expects of MPI without progress of its own, and as was measured: messages
take even longer while the device computes. Nor does it in `task`, though the thread calls MPI: copies between devices
wait behind the local part. Only `peer` hides the exchange, but for events of two streams. Ranks of other hosts are
reached through a network. The constants, each with its source, are in `petsc_gpufmt/scaling/machines.json`. Those of
PCIe and the network are given or estimated, and not measured.

Not modelled: what a solver does between products, and halos that change the format of the local part.
"""

COMPARED = """\
What was measured on one rank, and with 7 points on several, is what constants were *fitted* to; 27 points on several
ranks and weak scaling are predictions. Runs called *mult in slabs* were made in the same way before there was the
command. In that of an earlier version the nonlocal part was launched over all rows. The empty ones cost 1.16 us for
each 270 336 of them, as many threads as run at once: with 7 points on 256^3, more than the exchange. Since then it is
launched over its own rows.

Of the H100s nothing was fitted but the bandwidth of one, to two other products; their links are taken for those of the
H200s.

The host of the machine of commit 4438047 took longer for messages and launches than that of the fits, which is what
modes but *peer* wait for; for *peer* beside an MPI that is not GPU-aware see above.
"""


def model(
    spec: str, matrix_type: str = CHOSEN, compressed: bool = True, gpu_aware: bool = True, gpu: str = FITTED_GPU
) -> Model:
    """Of a matrix in double precision with 32-bit indices."""
    machine = nvlink_machine(gpu, gpu_aware)
    device = ModelledDevice(np.float64, np.int32, machine.gpu.resident_threads)
    return Model(make_problem(spec, device), machine, device, matrix_type, compressed)


def is_modelled(case: Case) -> bool:
    """Whether a case is a stencil of ours in whole planes, which the page compares with the model."""
    return (
        case.get("ours", True)
        and case.get("distribution", AS_MADE) == AS_MADE
        and grid_and_block(case["matrix"]) is not None
    )


def errors(run: Run) -> list[tuple[Case, float]]:
    """The cases of a run that are modelled, each with the seconds that the model gives."""
    cases = [case for case in run["cases"] if is_modelled(case)]
    specs = {case["matrix"]: case.get("type", CHOSEN) for case in cases}
    settings = run.get("compressed", True), run["gpu_aware"], gpu_of(run)
    models = {spec: model(spec, name, *settings) for spec, name in specs.items()}
    pairs = []
    for case in cases:
        modes = [case["mode"] or MODES[0]]
        ((prediction,),) = models[case["matrix"]].predict([case["ranks"]], modes, case["weak"]).values()
        pairs.append((case, prediction.seconds))
    return pairs


def gpu_of(run: Run) -> str:
    """The GPU of a run as the model calls it."""
    name = gpu_called(run["environment"]["gpu"])
    if name is None:
        raise BenchError(f"{run['name']}: the model does not know the GPU {run['environment']['gpu']}")
    return name


def is_fitted(run: Run, case: Case) -> bool:
    """Whether constants were fitted to a case."""
    fitted = not case["weak"] and (case["ranks"] == 1 or case["matrix"].startswith("7point:"))
    return fitted and gpu_of(run) == FITTED_GPU


def compared(run: Run) -> str:
    """A table of one run; empty if none of its cases is modelled."""
    rows = []
    for case, seconds in errors(run):
        times = (microseconds(case["seconds"]), microseconds(seconds), f"{seconds / case['seconds'] - 1:+.1%}")
        fitted = "fitted" if is_fitted(run, case) else "predicted"
        rows.append((matrix_name(case), str(case["ranks"]), case["mode"] or "", *times, fitted))
    head = ("matrix", "ranks", "mode", "measured us", "model us", "error", "")
    return f"{title(run)}\n{table(head, rows)}" if rows else ""


def stated_errors(runs: Sequence[Run]) -> str:
    """What is fitted, and what is predicted, in a sentence."""
    sizes: dict[bool, list[float]] = {False: [], True: []}
    for run in runs:
        for case, seconds in errors(run):
            sizes[is_fitted(run, case)].append(abs(seconds / case["seconds"] - 1))
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


def all_runs() -> list[Run]:
    """What was measured over the ranks. Of runs of one name and GPU in several files the last counts."""
    found = [run for path in [*sorted(RESULTS.glob("*.json")), *committed_results()] for run in read_runs(path)]
    runs = {(run["name"], gpu_of(run)): run for run in found if kind_of(run) in KINDS}
    return sorted(runs.values(), key=lambda run: (KINDS.index(kind_of(run)), run["name"], gpu_of(run)))


def of_the_command(runs: Sequence[Run]) -> list[Run]:
    """The runs of `bench scaling`; others were measured before there was such a command."""
    return [run for run in runs if kind_of(run) == KINDS[0]]


def make_page(runs: Sequence[Run]) -> str:
    return "\n".join(
        [
            INTRODUCTION,
            section("Measured", PICTURE, *(measured(run) for run in of_the_command(runs))),
            section("Model", MODEL),
            section("Equations", EQUATIONS),
            section("Model against what was measured", COMPARED, stated_errors(runs), *(compared(run) for run in runs)),
            *(predicted_section(*shown) for shown in SHOWN),
        ]
    )


def make_picture(runs: Sequence[Run]) -> str:
    """The strong scaling of two stencils that differ in the entries of a row."""
    run = next(run for run in runs if (run["name"], gpu_of(run)) == (DRAWN, DRAWN_GPU))
    cases = [case for case in run["cases"] if case["matrix"] in DRAWN_MATRICES]
    models = {spec: model(spec, "pjds", gpu=DRAWN_GPU) for spec in DRAWN_MATRICES}
    return make_plot(cases, models, run["environment"]["gpu"])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scaling_report.py", description="The page of MatMult over the ranks.")
    parser.add_argument("--plot", action="store_true", help="print its picture instead, as SVG")
    arguments = parser.parse_args(words)
    print((make_picture if arguments.plot else make_page)(all_runs()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("scaling_report", main))
