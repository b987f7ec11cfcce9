"""``python -m petsc_gpufmt model --one-device``: arguments and output of the papers' models of one device."""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petsc_gpufmt.errors import UnsupportedError

if TYPE_CHECKING:
    from petsc_gpufmt.scaling.machine import Gpu
    from petsc_gpufmt.scaling.problem import Problem

RATES = ("first level, x", "second level, x", "first level, matrix", "second level, matrix")
LARGEST_VOLUME = 1e15  # bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    device = parser.add_argument_group("one device", "the papers' models of a product; each of these asks for them")
    device.add_argument(
        "--one-device", action="store_true", help="code balance of each format, transfers of vectors over a bus"
    )
    device.add_argument("--bus", type=float, metavar="GB/S", help="between host and device (default: PCIe 5.0)")
    device.add_argument(
        "--alpha", type=float, metavar="A", help="share of reads of x from memory (default: by a sample)"
    )
    device.add_argument(
        "--volume", type=float, metavar="BYTES", help="that a product in EVC-HYB moved: its alpha and code balance"
    )
    device.add_argument(
        "--hit-rates",
        metavar="H,H,H,H",
        help="in per cent, of first and second level, for x and then for the matrix: latencies C_X and C_A",
    )
    device.add_argument(
        "--ncu",
        type=Path,
        metavar="FILE",
        help="volume and hit rates from the CSV of ncu (see docs/models.md)",
    )


def is_asked_for(arguments: argparse.Namespace) -> bool:
    given = (arguments.bus, arguments.alpha, arguments.volume, arguments.hit_rates, arguments.ncu)
    return arguments.one_device or any(value is not None for value in given)


def check(arguments: argparse.Namespace) -> None:
    """UnsupportedError for numbers that are none of a device, before the matrix is looked at."""
    for option, most in (("bus", 1e6), ("volume", LARGEST_VOLUME)):
        value = getattr(arguments, option)
        if value is not None and not 0 < value <= most:
            raise UnsupportedError(f"--{option} {value:g}: give a number above 0 and up to {most:g}")
    if arguments.alpha is not None and not 0 < arguments.alpha <= 1:
        raise UnsupportedError(f"--alpha {arguments.alpha:g}: give 1 / N_nzr, where x is read once, to 1")
    if arguments.ncu and (arguments.volume is not None or arguments.hit_rates):
        raise UnsupportedError("--ncu has volume and hit rates: leave --volume and --hit-rates out")


def parse_rates(text: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Shares, of x and of the matrix; UnsupportedError for what is not four percentages."""
    try:
        rates = [float(word) for word in text.split(",")]
    except ValueError:
        rates = []
    if len(rates) != len(RATES) or not all(0 <= rate <= 100 for rate in rates):
        raise UnsupportedError(f"--hit-rates {text}: give four percentages: {'; '.join(RATES)}; such as 85,60,0,5")
    x, matrix = rates[:2], rates[2:]
    return (x[0] / 100, x[1] / 100), (matrix[0] / 100, matrix[1] / 100)


def run(arguments: argparse.Namespace, problem: Problem, gpu: Gpu, scalar_bytes: int) -> dict[str, Any]:
    """Print what the models say; what --json writes."""
    from petsc_gpufmt.scaling import one_device
    from petsc_gpufmt.scaling.machine import constants
    from petsc_gpufmt.scaling.ncu import read_counts

    hits = parse_rates(arguments.hit_rates) if arguments.hit_rates else None
    volume = arguments.volume
    if arguments.ncu:
        counts = read_counts(arguments.ncu)
        hits = one_device.hits_of(counts)
        if hits is None:
            known = ", ".join(counts) or "none"
            raise UnsupportedError(
                f"--ncu {arguments.ncu}: kernels are {known}; profile {one_device.WHOLE}, as of bench parts"
            )
        volume = counts[one_device.WHOLE].volume if one_device.WHOLE in counts else None
    profile = problem.profile
    if profile.mean < 1:
        raise UnsupportedError(f"{problem.name}: it has less than an entry a row, which the models are not for")
    alpha = problem.alpha(scalar_bytes) if arguments.alpha is None else arguments.alpha
    if alpha < 1 / profile.mean and not math.isclose(alpha, 1 / profile.mean):
        raise UnsupportedError(f"--alpha {alpha:g}: x is read once at least, which is {1 / profile.mean:.3g} here")
    alpha = max(alpha, 1 / profile.mean)
    bus = arguments.bus * 1e9 if arguments.bus else constants()["links"]["pcie"]["mpi"]["bandwidth"]
    models = one_device.format_models(profile, alpha, gpu.copy)
    sent = one_device.transfers(profile.nrows, alpha, gpu.copy, bus)
    print(
        f"{problem.name}: {profile.nrows} rows, {profile.nnz} entries, N_nzr {profile.mean:.3g}, alpha {alpha:.2g}; "
        f"{gpu.name}, a copy's {gpu.copy / 1e12:.3g} TB/s"
    )
    print("\n".join(one_device.lines(models, sent, bus)))
    found: dict[str, Any] = {"alpha": alpha, "bus": bus, "gpu": dataclasses.asdict(gpu)}
    found |= {"formats": [dataclasses.asdict(model) for model in models], "transfers": dataclasses.asdict(sent)}
    if volume is not None:
        measured = one_device.volume_model(profile, volume, gpu.copy)
        print(one_device.volume_line(measured))
        found["volume"] = dataclasses.asdict(measured)
    if hits is not None:
        x_cycles, matrix_cycles = one_device.latencies(*hits)
        print(one_device.latency_line(x_cycles, matrix_cycles))
        found["latencies"] = {"x": x_cycles, "matrix": matrix_cycles}
    return found
