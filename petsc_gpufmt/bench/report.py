"""Results as Markdown."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from petsc_gpufmt.bench.bratu import matmult_seconds
from petsc_gpufmt.bench.storage import in_products
from petsc_gpufmt.bench.targets import TARGETS, Runs, Target

ENVIRONMENT_LABELS = {
    "gpu": "GPU",
    "driver": "driver",
    "cuda_runtime": "CUDA runtime",
    "cupy": "CuPy",
    "processor": "processor",
    "petsc": "PETSc",
    "petsc_scalar": "PETSc values",
    "petsc_index": "PETSc indices",
    "petsc_configure_options": "PETSc configure options",
    "python": "Python",
    "numpy": "NumPy",
    "package": "petsc_gpufmt",
    "commit": "commit",
    "date": "date",
}

INTRODUCTION = """\
# Performance

Made from `benchmarks/results/` by `python -m petsc_gpufmt bench report`. Do not edit this page: the text below the
first table is in `docs/performance_notes.md`.
"""

MULT_TEXT = """\
Times of MatMult are medians. *median*: single calls between two CUDA events. *back to back*: calls in a row between two
events. *host*: until a call returns to its caller. On the host all are taken with the host's clock. TB/s are
CSR-equivalent: the bytes that a CSR product must move (values, column indices, row pointer, x and z once, which is
12 nnz + 4 (n + 1) + 16 n in double precision with 32-bit indices) over the median, for every type alike. *copy* is
their share of the bandwidth of a large copy in the same run. Every result was compared with a reference product on the
host, within (nnz of the row + 2) eps (|A| |x|) in each row.
"""

STORAGE_TEXT = """\
In products of the same format: time to store the pattern (CSR arrays in place), to refresh the values (CSR values in
place), and to upload these.
"""

BRATU_TEXT = """\
PETSc's SNES tutorial ex14, unmodified, `-ksp_type cg -pc_type jacobi`. SNESSolve and KSPSolve are from a run as users
make it, the rest from one with `-log_view_gpu_time`, which waits for the device after each event. *plan* stores the
pattern of a matrix: the first one starts Python and CuPy and is logged beside the solver's events, not inside them.
*refresh* brings new values and is part of MatMult. Copies and flops are those inside KSPSolve.
"""

REPRODUCE = """\
    benchmarks/run_on_gpu.sh                   # with a GPU: build, test, measure; writes results/results.json
    make bench BENCH_ARGS=mult                 # MatMult alone, on the GPU or without one on the host
    python -m petsc_gpufmt bench mult --help   # other matrices, also .mtx and .npz files; other options of a format
    python -m petsc_gpufmt bench report benchmarks/results/*.json > docs/performance.md
"""


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are right-aligned."""
    lines = [heading, ["---", *["--:"] * (len(heading) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(title: str, *parts: str) -> str:
    return f"## {title}\n\n" + "\n".join(part for part in parts if part)


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent; a dash for None."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:.{max(0, digits - len(str(int(abs(rounded)))))}f}" if abs(rounded) >= 1 else f"{rounded:g}"


def targets_section(runs: Runs) -> str:
    return section(
        "Figures to reach",
        table(("figure", "reach", "measured", "best peer", "reached"), (target_row(t, runs) for t in TARGETS)),
    )


def target_row(target: Target, runs: Runs) -> Sequence[str]:
    measured = target.find(runs)
    reach = f"{number(target.limit)} {target.unit}"
    if measured is None:
        return target.what, reach, "not measured", "-", "-"
    return (
        target.what,
        reach,
        number(measured.value, digits=4),
        number(measured.best_peer, digits=4),
        "yes" if measured.value <= target.limit else "no",
    )


def mult_section(run: dict[str, Any]) -> str:
    ceilings = run["copy_bytes_per_second"]
    ceiling = "; ".join(f"{place}: {value / 1e12:.3f} TB/s" for place, value in ceilings.items())
    rows = [mult_row(case["matrix"], product, ceilings) for case in run["cases"] for product in case["products"]]
    heading = ("matrix", "type", "on", "median us", "back to back us", "host us", "TB/s", "copy")
    return section(
        "MatMult from Python",
        MULT_TEXT,
        f"Bandwidth of a large copy, read and written bytes counted: {ceiling}.\n",
        table(heading, rows),
    )


def mult_row(matrix: dict[str, Any], product: dict[str, Any], ceilings: dict[str, float]) -> Sequence[str]:
    head = matrix["name"], product["name"], product["place"]
    if "skipped" in product:
        return *head, product["skipped"], *["-"] * 4
    times = (number(product[f"{name}_seconds"] * 1e6) for name in ("median", "back_to_back", "host"))
    share = product["bytes_per_second"] / ceilings[product["place"]]
    return (
        *head,
        *times,
        f"{product['bytes_per_second'] / 1e12:.3f}",
        f"{share:.2f}" if product["correct"] else "WRONG RESULT",
    )


def storage_section(run: dict[str, Any]) -> str:
    heading = (
        "matrix",
        "format",
        "on",
        "build",
        "refresh",
        "upload",
        "nnz",
        "stored",
        "fill ratio",
        "MB",
        "parameters",
    )
    rows = [storage_row(case, entry) for case in run["cases"] for entry in case["storage"]]
    return section("Storing a matrix", STORAGE_TEXT, table(heading, rows))


def storage_row(case: dict[str, Any], entry: dict[str, Any]) -> Sequence[str]:
    costs = in_products(entry, case["products"])
    stats = entry["stats"]
    sizes = str(stats["nnz"]), str(stats["nstored"]), f"{stats['fill_ratio']:.4f}", f"{stats['bytes_held'] / 1e6:.1f}"
    return (
        case["matrix"]["name"],
        entry["format"],
        entry["place"],
        *(f"{costs[n]:.1f}" for n in ("build", "refresh", "upload")),
        *sizes,
        entry["summary"],
    )


def from_c_section(run: dict[str, Any]) -> str:
    rows = [
        (
            c["matrix"],
            c["mat_type"],
            c["vec_type"],
            number(c["host_seconds"] * 1e6),
            number(c["back_to_back_seconds"] * 1e6),
        )
        for c in run["cases"]
    ]
    return section("MatMult from C", table(("matrix", "type", "vectors", "host us", "back to back us"), rows))


def bratu_section(run: dict[str, Any]) -> str:
    heading = (
        "grid",
        "type",
        "Newton / Krylov",
        "SNESSolve s",
        "KSPSolve s",
        "MatMult s",
        "calls",
        "plan s",
        "refresh s",
        "copies to GPU",
        "flops on GPU %",
    )
    rows = [bratu_row(case, entry) for case in run["cases"] for entry in case["runs"]]
    title = "Bratu problem" if run["name"] == "bratu" else f"Bratu problem, {run['name'].partition(', ')[2]}"
    return section(title, BRATU_TEXT, table(heading, rows))


def bratu_row(case: dict[str, Any], entry: dict[str, Any]) -> Sequence[str]:
    events, mult = entry["asynchronous"]["events"], matmult_seconds(entry)
    gpu = entry["synchronous"]["gpu"].get("KSPSolve", {"to_gpu_count": None, "gpu_flop_percent": None})
    return (
        f"{case['grid']}^3",
        entry["mat_type"],
        f"{entry['newton_iterations']} / {entry['krylov_iterations']}",
        *(number(events[name]["seconds"]) for name in ("SNESSolve", "KSPSolve")),
        number(mult["total"]),
        str(entry["synchronous"]["events"]["MatMult"]["count"]),
        *(number(mult[name]) for name in ("plan", "refresh")),
        *(number(gpu[name]) for name in ("to_gpu_count", "gpu_flop_percent")),
    )


def environment_section(runs: Runs) -> str:
    """One table for each environment that differs in more than the date."""
    groups: list[tuple[list[str], dict[str, Any]]] = []
    for name, run in runs.items():
        environment = {key: run["environment"][key] for key in ENVIRONMENT_LABELS if key in run["environment"]}
        known = next((names for names, other in groups if _undated(other) == _undated(environment)), None)
        if known is None:
            groups.append(([name], environment))
        else:
            known.append(name)
    parts = [
        f"{'; '.join(names)}:\n\n" + table(("", ""), [(ENVIRONMENT_LABELS[k], str(v)) for k, v in environment.items()])
        for names, environment in groups
    ]
    return section("Environment", *parts)


def _undated(environment: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in environment.items() if key != "date"}


def make_report(all_runs: Sequence[dict[str, Any]], notes: str) -> str:
    """The whole page. Of runs of one name in several files the last counts."""
    runs: Runs = functools.reduce(operator.or_, ({run["name"]: run} for run in all_runs), {})
    parts = [INTRODUCTION, targets_section(runs)]
    parts += [notes.strip() + "\n"] if notes.strip() else []
    for name, run in runs.items():
        if name == "mult":
            parts += [mult_section(run), storage_section(run)]
        elif name == "mult-from-c":
            parts.append(from_c_section(run))
        else:
            parts.append(bratu_section(run))
    parts += [environment_section(runs), section("How to measure again", REPRODUCE)]
    return "\n".join(parts)
