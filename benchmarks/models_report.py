"""The page of the papers' models of one device: ``python benchmarks/models_report.py > docs/models.md``."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from report import committed_results

from petsc_gpufmt.analysis.analysis import modelled_device
from petsc_gpufmt.analysis.facts import pattern_of
from petsc_gpufmt.analysis.source import read_source
from petsc_gpufmt.analysis.times import modelled_seconds
from petsc_gpufmt.backends.native_library import petsc_types
from petsc_gpufmt.bench.parts import parts, sum_over_whole
from petsc_gpufmt.bench.report.markdown import microseconds, number, section, table
from petsc_gpufmt.bench.report.mult_tables import chosen_format
from petsc_gpufmt.bench.results import read_runs
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.cli.outcome import program
from petsc_gpufmt.scaling.code_balance import (
    balanced_nnz_per_row,
    code_balance,
    hybrid_balance,
    hybrid_flops,
    measured_alpha,
    transfer_seconds,
)
from petsc_gpufmt.scaling.machine import constants, find_gpu
from petsc_gpufmt.scaling.ncu import Counted, read_counts
from petsc_gpufmt.scaling.one_device import WITHOUT_VALUES, WITHOUT_X, hits_of, latencies

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/models"
PAPER_FORMATS = ("ellpack", "ellpackr", "pjds", "evchyb")
BEYOND_CACHE = 200e6  # bytes: what the second-level cache holds of so many is lost in the rest
SPECS = {
    "7-point 100^3": "7point:100",
    "7-point 50^3": "7point:50",
    "27-point 64^3": "27point:64",
    "27-point 20^3": "27point:20",
    "27-point 40^3, 3 x 3 blocks": "27point:40x3",
}
"""Matrices of the committed results that can be made here."""

Case = dict[str, Any]
Run = dict[str, Any]

INTRODUCTION = """\
# Models of one device

Made by `python benchmarks/models_report.py` from `benchmarks/results/`; do not edit this page. For many GPUs see
[scaling.md](scaling.md), for a matrix of your own:

    petsc-gpufmt model 27point:128 --one-device                     # code balance of each format, transfers over a bus
    petsc-gpufmt model 27point:128 --bus 25 --alpha 1               # a bus of 25 GB/s, no reuse of x
    petsc-gpufmt model 27point:128 --volume 6.2e8                   # alpha and code balance of a measured volume
    petsc-gpufmt model 27point:128 --hit-rates 85,60,0,5            # latencies C_X and C_A
    petsc-gpufmt model 27point:128 --ncu counted.csv                # both from the CSV of ncu
"""

EQUATIONS = """\
From M. Kreutzer et al., *Sparse matrix-vector multiplication on GPGPU clusters*, 2012, equations (1) to (4), and D.
Guo, W. Gropp, L. N. Olson, *A hybrid format for better performance of sparse matrix-vector multiplication on a GPU*,
2016, section 3.2; in double precision with 32-bit columns. N_nzr are the entries of a row, alpha the share of the reads
of *x* that go to memory, beta the share of the entries in what is stored.

    ELLPACK-R, pJDS    B = 6 + 4 alpha + 8 / N_nzr                                      bytes a flop, 2 flops an entry
    EVC-HYB            B = (12 / beta + 8 alpha + 16 / N_nzr) / (2 + 3 / N_nzr)         of alpha A x + beta y
    of a volume V      alpha = (V / (2 nnz) - 6 / beta - 8 / N_nzr) / 4
    at most            P_max = b / B flops a second, b the bandwidth of a copy
    product, bus       T_MVM = 8 N / b (N_nzr (alpha + 3/2) + 2), T_PCI = 16 N / b_PCI
    as long            N_nzr = (2 b / b_PCI - 2) / (alpha + 3/2); a tenth: (20 b / b_PCI - 2) / (alpha + 3/2)
    latency            C = C_1 h_1 + C_2 h_2 (1 - h_1) + C_d (1 - h_2) (1 - h_1) cycles

They are in `petsc_gpufmt/scaling/code_balance.py` and `latency.py`. ELLPACK reads the columns and values of its
padding, too. Tests hold them against the figures of the papers: thresholds of 25, 7, 80 and 266 entries, B = 21.4 and
C_X = 444 of web-Google.
"""

BALANCE = """\
Matrices of more than 200 MB on an H200, products in a row. *model us* is B 2 nnz over the bandwidth of a copy in the
same run, *x* read once: a bound for the format as its paper stores it. *stored* are the bytes a flop that this package
counts, with 16-bit columns or row patterns where they suffice: with fewer bytes than the paper's it can beat the
bound. *by time* is what the product would have moved at the speed of a copy, and *alpha* that of EVC-HYB's model if all
of it beyond the paper's matrix and vectors were reads of *x*: an upper bound, which `ncu` would replace, and below 0
where columns are shorter.
"""

TRANSFERS = """\
*x* to the device and *z* back, at the link's {bus:g} GB/s (PCIe 5.0 x16), beside the measured product. Rows of
{equal:.0f} entries (alpha = 1 / N_nzr) would take as long as that, {tenth:.0f} ten times as long: with a memory that is
{ratio:.0f} times as fast as the bus, and not 10 to 20 times as in 2012, vectors have to stay on the device.
"""

EXPERIMENTS = """\
EVC-HYB, by three kernels beside that of the product (`kernels/formats/evchyb.cu`): one does not load *x* and columns
(T_A + T_Y), one not the values (T_X + T_Y), one neither (T_Y); all results are checked. The paper finds sums of up to
1.21 times the product.

    petsc-gpufmt bench parts --json benchmarks/results/models/h200-parts.json
"""

LATENCIES = """\
The hit rates of both levels, and the bytes of memory, are counted by NVIDIA's `ncu`. The kernel without values has
those of *x* and its columns, that without *x* those of the matrix. The first four launches are one of each:

    ncu --csv --page raw --print-units base --cache-control none -k 'regex:evchyb_(spmv|without)' -c 4 \\
        --metrics dram__bytes.sum,l1tex__t_sector_hit_rate.pct,lts__t_sector_hit_rate.pct \\
        python -m petsc_gpufmt bench parts --matrix 27point:128 > benchmarks/results/models/27point-128.csv
    petsc-gpufmt model 27point:128 --ncu benchmarks/results/models/27point-128.csv

Cycles are the paper's, of a Kepler GPU: 110 in the first level, 220 (*x*) or 230 in the second, 600 in memory. What
counts is how C_X differs between matrices.
"""

CACHE = """\
`petsc-gpufmt analyze` and `model` take the second-level cache for one that replaces lines at random. Of a product that
moves V bytes again and again, a line is still there with probability

    h = exp(-(1 - h) V / C),  C = {megabytes:g} MB,  and what is there comes {factor:g} times as fast as from memory

C, of the 50 MB of an H200, and the factor are fitted to these {count} products, off by {mean:.1%} on
average and {most:.1%} at most, and to those on two GPUs ([scaling](scaling.md)). The choice of a format does not use
them.
"""


def mult_cases(names: Sequence[str]) -> Iterator[tuple[Run, Case]]:
    for path in committed_results():
        for run in read_runs(path):
            if run["name"] in names:
                yield from ((run, case) for case in run["cases"])


def measured_products(names: Sequence[str]) -> Iterator[tuple[Run, Case, str, Case, Case]]:
    """Run, case, format, product and statistics of storage of each product of ours on a device, in such a format."""
    for run, case in mult_cases(names):
        storage = {s["format"]: s for s in case["storage"] if s["place"] == "cuda"}
        for product in case["products"]:
            if product["place"] != "cuda" or not product["ours"] or not product.get("correct"):
                continue
            name, stored = chosen_format(product.get("stored_as", "")), storage.get(product["name"])
            if stored is None:
                continue
            if product["name"] != "gpufmt":
                name = product["name"].partition(":")[0]
            elif chosen_format(stored["summary"]) != name:
                continue  # storing was measured before the device was asked which format is the fastest
            yield run, case, name, product, stored["stats"]


def moved_bytes(stats: Case) -> int:
    """Of a product; results of earlier versions have another word for it."""
    return stats["bytes_per_mult"] if "bytes_per_mult" in stats else stats["bytes_per_product"]


def balance_section() -> str:
    """Equation (1) and EVC-HYB's B against times."""
    rows, ratios = {}, []
    for run, case, name, product, stats in measured_products(("mult", "mult, all formats", "real-replicated")):
        matrix, seconds = case["matrix"], product["back_to_back_seconds"]
        if name not in PAPER_FORMATS or moved_bytes(stats) < BEYOND_CACHE:
            continue
        nnz, mean = matrix["nnz"], matrix["nnz"] / matrix["nrows"]
        beta, bandwidth = nnz / stats["nstored"], run["copy_bytes_per_second"]["cuda"]
        of_entry = hybrid_flops(mean) if name == "evchyb" else 2.0
        least = hybrid_balance(mean, 1 / mean, beta) if name == "evchyb" else code_balance(mean, 1 / mean)
        model, volume = least * of_entry * nnz / bandwidth, seconds * bandwidth
        ratios.append(seconds / model)
        rows[matrix["name"], name] = (
            matrix["name"],
            name,
            *(number(value) for value in (mean, beta, least, moved_bytes(stats) / of_entry / nnz)),
            *(microseconds(value) for value in (model, seconds)),
            number(seconds / model),
            number(volume / of_entry / nnz),
            number(measured_alpha(volume, nnz, mean, beta)),
        )
    head = ("matrix", "format", "N_nzr", "beta", "B", "stored", "model us", "us", "times", "by time", "alpha")
    said = (
        f"Of {len(ratios)} products the median takes {statistics.median(ratios):.2f} times the model's time, the "
        f"fastest {min(ratios):.2f}, the slowest {max(ratios):.2f}.\n"
    )
    return section("Code balance against what was measured", BALANCE, table(head, rows.values()), said)


def transfers_section() -> str:
    gpu, bus = find_gpu("h200"), constants()["links"]["pcie"]["mpi"]["bandwidth"]
    ratio = gpu.copy / bus
    equal, tenth = (balanced_nnz_per_row(times, ratio) for times in (1.0, 10.0))
    rows = []
    for _, case, name, product, _ in measured_products(("mult",)):
        if product["name"] == "gpufmt":
            matrix, seconds = case["matrix"], product["back_to_back_seconds"]
            sent = transfer_seconds(matrix["nrows"], bus)
            cells = (number(matrix["nnz"] / matrix["nrows"]), *map(microseconds, (seconds, sent)))
            rows.append((matrix["name"], name, *cells, number(sent / seconds)))
    text = TRANSFERS.format(bus=bus / 1e9, equal=equal, tenth=tenth, ratio=ratio)
    return section(
        "Transfers of vectors", text, table(("matrix", "format", "N_nzr", "product us", "T_PCI us", "times"), rows)
    )


def experiments_section(runs: Sequence[Run]) -> str:
    rows = []
    for case in (case for run in runs for case in run["cases"]):
        split = parts(case)
        whole, total = case["seconds"]["whole"], sum(split.values())
        shares = (f"{seconds / total:.0%}" for seconds in split.values())
        sent = case["x_to_device_seconds"] + case["z_to_host_seconds"]
        cells = (microseconds(whole), *shares, f"{sum_over_whole(case):.2f}", microseconds(sent))
        rows.append((case["matrix"]["name"], *cells))
    head = ("matrix", "product us", "T_A", "T_X", "T_Y", "T_total / T_SpMV", "x there, z back us")
    return section("Three experiments", EXPERIMENTS, table(head, rows) if rows else "Not measured yet.\n")


def latencies_section(counts: dict[str, dict[str, Counted]]) -> str:
    rows = []
    for name, kernels in counts.items():
        hits = hits_of(kernels)
        if hits:
            x_cycles, matrix_cycles = latencies(*hits)
            rates = (f"{rate:.0%}" for pair in hits for rate in pair)
            split = "yes" if {WITHOUT_VALUES, WITHOUT_X} <= set(kernels) else "no"
            rows.append((name, split, *rates, number(x_cycles), number(matrix_cycles)))
    head = ("matrix", "apart", "x, first", "second", "matrix, first", "second", "C_X", "C_A")
    return section("Latencies", LATENCIES, table(head, rows) if rows else "Not counted yet.\n")


def cached_products() -> list[tuple[str, str, int, float, float]]:
    """Matrix, format, bytes, seconds measured and predicted, of what can be made here and has a model."""
    gpu, types = find_gpu("h200"), petsc_types()
    device, profiles, found = modelled_device(types, gpu), {}, []
    for _, case, name, product, stats in measured_products(("mult", "mult, all formats")):
        matrix = case["matrix"]["name"]
        if matrix not in SPECS or product["name"] == "gpufmt":
            continue
        if matrix not in profiles:
            profiles[matrix] = Profile.of(pattern_of(read_source(SPECS[matrix], *types), device), device)
        predicted = modelled_seconds(name, moved_bytes(stats), profiles[matrix], device, gpu)
        if predicted is not None:
            found.append((matrix, name, moved_bytes(stats), product["back_to_back_seconds"], predicted))
    return found


def cache_section() -> str:
    gpu, products = find_gpu("h200"), cached_products()
    errors = [abs(predicted / seconds - 1) for *_, seconds, predicted in products]
    text = CACHE.format(
        megabytes=gpu.cache_bytes / 1e6,
        factor=gpu.cache_factor,
        count=len(products),
        mean=statistics.mean(errors),
        most=max(errors),
    )
    rows = [
        (
            matrix,
            name,
            number(nbytes / 1e6),
            *map(microseconds, (seconds, predicted)),
            f"{predicted / seconds - 1:+.0%}",
        )
        for matrix, name, nbytes, seconds, predicted in sorted(products, key=lambda product: product[2])
    ]
    head = ("matrix", "format", "MB a product", "us", "model us", "error")
    return section("What the second-level cache holds", text, table(head, rows))


def make_page() -> str:
    runs = [run for path in sorted(RESULTS.glob("*.json")) for run in read_runs(path) if run["name"] == "parts"]
    counts = {path.stem: read_counts(path) for path in sorted(RESULTS.glob("*.csv"))}
    return "\n".join(
        [
            INTRODUCTION,
            section("Equations", EQUATIONS),
            balance_section(),
            transfers_section(),
            experiments_section(runs),
            latencies_section(counts),
            cache_section(),
        ]
    )


def main(words: Sequence[str] | None = None) -> int:
    print(make_page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(program("models_report", main))
