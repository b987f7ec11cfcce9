"""``python -m petsc_gpufmt model``: arguments of the models of MatMult, on many GPUs their tables, and their file."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petsc_gpufmt.bench.command import optional_packages
from petsc_gpufmt.cli import model_device
from petsc_gpufmt.errors import UnsupportedError

if TYPE_CHECKING:
    from petsc_gpufmt.scaling.machine import Machine
    from petsc_gpufmt.scaling.prediction import Prediction
    from petsc_gpufmt.scaling.problem import Problem

MOST_RANKS = 1 << 20
RANKS = "1:64"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "matrix",
        metavar="MATRIX",
        help="what `bench mult --matrix` takes, stencils of any size, or powerlaw:ROWS; rows are contiguous",
    )
    parser.add_argument(
        "--ranks",
        default=RANKS,
        metavar="N",
        help="ranks with a GPU each: FIRST:LAST doubles, or a list such as 1,2,3 (default %(default)s)",
    )
    parser.add_argument(
        "--weak", action="store_true", help="the stencil grows with the ranks: MATRIX is what each of them has"
    )
    parser.add_argument(
        "--mode",
        action="append",
        metavar="M",
        help="mode of the halo exchange: vector, overlap, task or peer; may be repeated (default: all)",
    )
    parser.add_argument(
        "--format", default="gpufmt", metavar="F", help="type of ours (default %(default)s: the format that it takes)"
    )
    parser.add_argument(
        "--gpu", default="h200", metavar="G", help="h200, h100, or the memory's TB/s (default %(default)s)"
    )
    parser.add_argument(
        "--link",
        default="nvlink",
        metavar="L",
        help="between the GPUs of a host: nvlink, pcie, or host where MPI is not GPU-aware (default %(default)s)",
    )
    parser.add_argument("--bandwidth", type=float, metavar="GB/S", help="of the link, in place of its own")
    parser.add_argument("--latency", type=float, metavar="US", help="of a message over the link, in place of its own")
    parser.add_argument(
        "--gpus-per-host", type=int, default=8, metavar="N", help="more ranks need a network (default %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the predictions to this file")
    model_device.add_arguments(parser)
    parser.set_defaults(run=run_model)


@optional_packages()
def run_model(arguments: argparse.Namespace) -> int:
    from petsc_gpufmt.backends.native_library import petsc_types
    from petsc_gpufmt.scaling.machine import ModelledDevice, find_machine
    from petsc_gpufmt.scaling.prediction import MODES, Model, breakdown
    from petsc_gpufmt.scaling.problem import make_problem

    ranks, modes = parse_ranks(arguments.ranks), tuple(dict.fromkeys(arguments.mode or MODES))
    for mode in modes:
        if mode not in MODES:
            raise UnsupportedError(f"--mode {mode}: choose {', '.join(MODES)}")
    machine = find_machine(
        arguments.gpu,
        arguments.link,
        arguments.gpus_per_host,
        arguments.bandwidth,
        arguments.latency,
    )
    device = ModelledDevice(*petsc_types(), machine.gpu.resident_threads)
    if model_device.is_asked_for(arguments):
        model_device.check(arguments)
        if arguments.weak or arguments.mode or arguments.ranks != RANKS:
            raise UnsupportedError("--one-device: it has no --ranks, --mode or --weak; leave them out")
        found = model_device.run(arguments, make_problem(arguments.matrix, device), machine.gpu, device.scalar.itemsize)
        write(arguments, {"matrix": arguments.matrix, **found})
        return 0
    if machine.peer is None and not arguments.mode:
        modes = tuple(mode for mode in modes if mode != "peer")
    problem = make_problem(arguments.matrix, device)
    model = Model(problem, machine, device, arguments.format)
    predictions = model.predict(ranks, modes, arguments.weak)
    chosen = model.local_part(problem.profile.nrows, problem.profile.nnz)
    lines = {mode: breakdown(of_mode, arguments.weak) for mode, of_mode in predictions.items()}
    print("\n".join(head(problem, machine, chosen.name, device.scalar.itemsize, arguments.weak)))
    for mode, of_mode in predictions.items():
        print(f"\n{table(of_mode)}\n{lines[mode]}")
    content = {
        "matrix": arguments.matrix,
        "weak": arguments.weak,
        "format": chosen.name,
        "machine": dataclasses.asdict(machine),
        "modes": {
            mode: {"breakdown": lines[mode], "predictions": [dataclasses.asdict(p) for p in of_mode]}
            for mode, of_mode in predictions.items()
        },
    }
    write(arguments, content)
    return 0


def parse_ranks(text: str) -> list[int]:
    """1, 2, 4 of "1:4", and of "1,2,4"; UnsupportedError for what is neither."""
    if numbers := re.fullmatch(r"(\d+):(\d+)", text):
        first, last = int(numbers[1]), int(numbers[2])
        doubled = [first << k for k in range(MOST_RANKS.bit_length()) if first << k <= last]
        ranks = doubled if first else []
    else:
        ranks = [int(word) for word in text.split(",")] if re.fullmatch(r"\d+(,\d+)*", text) else []
    if not ranks or not all(0 < number <= MOST_RANKS for number in ranks):
        raise UnsupportedError(
            f"--ranks {text}: give FIRST:LAST, such as 1:4096, or a list, such as 1,2,4; at most {MOST_RANKS}"
        )
    return list(dict.fromkeys(ranks))


def head(problem: Problem, machine: Machine, format_name: str, scalar_bytes: int, weak: bool) -> Iterable[str]:
    """What is modelled, and what the paper's equations say of its rows."""
    from petsc_gpufmt.scaling.code_balance import balanced_nnz_per_row, code_balance, split_balance

    p, alpha = problem.profile, problem.alpha(scalar_bytes)
    each = " on each rank" if weak else ""
    yield (
        f"{problem.name}: {p.nrows} rows, {p.nnz} entries{each}, {format_name} on {machine.gpu.name}, "
        f"{machine.mpi.bandwidth / 1e9:g} GB/s between GPUs of a host"
    )
    if p.mean >= 1:
        ratio = machine.gpu.bandwidth / machine.mpi.bandwidth
        equal, tenth = (balanced_nnz_per_row(times, ratio, alpha) for times in (1, 10))
        yield (
            f"N_nzr {p.mean:.3g}, alpha {alpha:.2g}: {code_balance(p.mean, alpha):.3g} bytes a flop in pJDS with full "
            f"columns, {split_balance(p.mean, alpha):.3g} in two parts; to send x and z over the link would take as "
            f"long as the product at N_nzr {equal:.3g}, a tenth of it at {tenth:.3g}"
        )


COLUMNS = ("ranks", "rows", "entries", "halo", "nbrs", "local us", "nonlocal us", "exchange us", "waited us", "us")
WIDTHS = (7, 10, 11, 8, 6, 10, 12, 12, 10, 9)


def table(predictions: Sequence[Prediction]) -> str:
    """Of one mode."""
    from petsc_gpufmt.scaling.prediction import in_microseconds

    rows: list[Sequence[Any]] = [(*COLUMNS, "GF/s", "efficiency")]
    for p in predictions:
        times = (in_microseconds(t) for t in (p.local, p.nonlocal_, p.exchange, p.waited, p.seconds))
        counts = (p.ranks, p.rows, p.entries, p.halo, p.neighbours)
        rows.append((*counts, *times, f"{p.gflops:.0f}", f"{p.efficiency:.2f}"))
    return "\n".join(
        "".join(f"{cell!s:>{width}}" for cell, width in zip(row, (*WIDTHS, 9, 12), strict=True)) for row in rows
    )


def write(arguments: argparse.Namespace, content: dict[str, Any]) -> None:
    """The file that --json names, if it does; UnsupportedError where it cannot be written."""
    if not arguments.json:
        return
    try:
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    except OSError as e:
        raise UnsupportedError(f"--json {arguments.json}: {e.strerror}; name a file that can be written") from e
