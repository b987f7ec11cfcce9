"""The papers' models of a product on one device: code balance, most flops, alpha of what was measured, latencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from petsc_gpufmt.choice.model import LONG_ROW_PADDING
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.scaling.code_balance import (
    balanced_nnz_per_row,
    code_balance,
    hybrid_balance,
    hybrid_flops,
    measured_alpha,
    most_flops,
    transfer_seconds,
)
from petsc_gpufmt.scaling.latency import MATRIX_LEVELS, X_LEVELS, mean_latency
from petsc_gpufmt.scaling.ncu import Counted

WHOLE, WITHOUT_X, WITHOUT_VALUES = "evchyb_spmv", "evchyb_without_x", "evchyb_without_values"
"""Kernels of EVC-HYB: of a product, and of the experiments that load the matrix alone, and x with its columns."""


@dataclass(frozen=True)
class FormatModel:
    """A product in one format as its paper stores it, with full columns.

    Attributes
    ----------
    name : of the format
    beta : share of the entries in what a product loads, with padding
    balance : bytes a flop for the alpha that was asked for
    least, worst : where x is read once, and where every entry reads it from memory
    flops : in a second, at most
    seconds : of a product, at least
    """

    name: str
    beta: float
    balance: float
    least: float
    worst: float
    flops: float
    seconds: float


def format_models(profile: Profile, alpha: float, bandwidth: float) -> list[FormatModel]:
    """ELLPACK, ELLPACK-R, pJDS and EVC-HYB of a matrix with at least an entry a row, with a memory of `bandwidth`.

    ELLPACK loads all entries of its rectangle; threads of ELLPACK-R and pJDS stop at the end of their rows. EVC-HYB
    pads each long row to 32 entries, by half of them in the mean. alpha lies from 1 / N_nzr to 1.
    """
    mean = profile.mean
    rectangle = max(1, profile.nrows * profile.longest)
    stored = profile.nnz + profile.long_rows * LONG_ROW_PADDING / 2
    found = []
    for name, beta in (("ELLPACK", profile.nnz / rectangle), ("ELLPACK-R", 1.0), ("pJDS", 1.0)):
        # the columns of padding read nothing: equation (1) with N_nzr^max entries of which so many are there
        padding = 6 * (1 / beta - 1)
        balances = [code_balance(mean, share) + padding for share in (alpha, 1 / mean, 1.0)]
        found.append((name, beta, balances, 2.0))
    beta = profile.nnz / stored
    balances = [hybrid_balance(mean, share, beta) for share in (alpha, 1 / mean, 1.0)]
    found.append(("EVC-HYB", beta, balances, hybrid_flops(mean)))
    return [
        FormatModel(
            name,
            beta,
            *(balance, least, worst),
            most_flops(balance, bandwidth),
            balance * of_entry * profile.nnz / bandwidth,
        )
        for name, beta, (balance, least, worst), of_entry in found
    ]


@dataclass(frozen=True)
class Transfers:
    """Equations (2) to (4).

    Attributes
    ----------
    seconds : T_PCI, for x to the device and z back
    equal, tenth : N_nzr at which that takes as long as the product, and a tenth of it
    """

    seconds: float
    equal: float
    tenth: float


def transfers(nrows: int, alpha: float, bandwidth: float, bus: float) -> Transfers:
    """Over a bus of so many bytes a second."""
    ratio = bandwidth / bus
    return Transfers(
        transfer_seconds(nrows, bus), *(balanced_nnz_per_row(times, ratio, alpha) for times in (1.0, 10.0))
    )


@dataclass(frozen=True)
class Volume:
    """What was moved, as EVC-HYB's model has it: alpha, bytes a flop, and flops in a second at most."""

    nbytes: float
    alpha: float
    balance: float
    flops: float


def volume_model(profile: Profile, nbytes: float, bandwidth: float) -> Volume:
    """alpha below 0 counts as 0 in the balance, which is of what was moved in any case."""
    beta = profile.nnz / (profile.nnz + profile.long_rows * LONG_ROW_PADDING / 2)
    balance = nbytes / profile.nnz / hybrid_flops(profile.mean)
    alpha = measured_alpha(nbytes, profile.nnz, profile.mean, beta)
    return Volume(nbytes, alpha, balance, most_flops(balance, bandwidth))


def latencies(x_hits: tuple[float, float], matrix_hits: tuple[float, float]) -> tuple[float, float]:
    """C_X and C_A, of hit rates of both levels of caches."""
    return mean_latency(*x_hits, X_LEVELS), mean_latency(*matrix_hits, MATRIX_LEVELS)


def hits_of(counts: dict[str, Counted]) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Hit rates of x and of the matrix: of the experiments' kernels, or of the product's for both; None without."""
    x, matrix = counts.get(WITHOUT_VALUES, counts.get(WHOLE)), counts.get(WITHOUT_X, counts.get(WHOLE))
    if x is None or matrix is None:
        return None
    return (x.first_hits, x.second_hits), (matrix.first_hits, matrix.second_hits)


def lines(models: list[FormatModel], sent: Transfers, bus: float) -> Iterator[str]:
    """For the terminal."""
    yield f"{'format':12}{'beta':>7}{'bytes a flop':>14}{'x once':>9}{'no reuse':>10}{'most GF/s':>11}{'us':>10}"
    for m in models:
        yield (
            f"{m.name:12}{m.beta:7.3f}{m.balance:14.2f}{m.least:9.2f}{m.worst:10.2f}{m.flops / 1e9:11.0f}"
            f"{m.seconds * 1e6:10.2f}"
        )
    yield (
        f"x and z over {bus / 1e9:g} GB/s take {sent.seconds * 1e6:.1f} us: as long as the product at N_nzr "
        f"{sent.equal:.3g}, a tenth of it at {sent.tenth:.3g}"
    )


def volume_line(volume: Volume) -> str:
    return (
        f"{volume.nbytes / 1e6:.1f} MB moved: alpha {volume.alpha:.2f}, {volume.balance:.2f} bytes a flop, "
        f"at most {volume.flops / 1e9:.0f} GF/s"
    )


def latency_line(x_cycles: float, matrix_cycles: float) -> str:
    return f"C_X {x_cycles:.0f} cycles for a load of x, C_A {matrix_cycles:.0f} for one of the matrix"
