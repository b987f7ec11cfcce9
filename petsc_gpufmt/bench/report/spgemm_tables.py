"""The tables of sparse products on the page with the results, and what the real matrices show in sum."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from petsc_gpufmt.bench.report.markdown import number, section, table
from petsc_gpufmt.bench.spgemm_contenders import OURS
from petsc_gpufmt.bench.summary import compare
from petsc_gpufmt.spgemm.splitting import WIDTHS

TITLES = {"square": "Sparse products: A A", "galerkin": "Sparse products: Galerkin pyramids"}
TEXTS = {
    "square": """\
*Both phases*: from two matrices to the product, symbolic and numeric, until the device has ended; medians of up to 11
calls, in ms. *ratio* is the fastest peer on the same place over rmerge. *compression* is terms (multiplications) over
entries of the product, *calls* those of MulLimited that merging 16 rows at a time takes. `rmerge` is our plan alone,
`gpufmt` the same through PETSc's MatMatMult. Every result was compared with SciPy's, with the componentwise bound
|C - C_ref| <= k eps |A| |B|, k the length of the row of A plus 2, and its pattern was the same.
""",
    "galerkin": """\
P^T A P from the matrix named down to a width below 1000, all levels added up; P has the pattern of smoothed
aggregates. cuSPARSE gets P^T beforehand, the others make it. Otherwise as for A A.
""",
}
NUMERIC_TEXT = """\
The numeric phase alone, as MAT_REUSE_MATRIX runs it: new values on a known pattern, between two CUDA events, in ms.
"""
FIRST_TEXT = """\
The first product of matrices of PETSc that were just assembled, in ms: sending them to the device is part of it.
"""
MEMORY_TEXT = """\
Device memory beside the operands and the product at its largest, in MB, of those who take it from CuPy's pool or are
given their buffers from there. *share* is that of rmerge over that of the fastest of them.
"""
WIDTHS_TEXT = """\
Merging alone, W rows at a time: GF/s of both phases (two flops a term), in parentheses the calls of MulLimited
(figures 3.1 and 3.5 of the paper). *hash* is the other accumulator alone, *rmerge* the choice by row.
"""
LEVELS_TEXT = """\
Entries of the intermediate matrices over the terms when two rows are merged at each level (figure 3.4).
"""


def cases_of(run: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [case for case in run["cases"] if case["kind"] == kind]


def main_products(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The products of a case without those of ours that have options."""
    return [product for product in case["products"] if not product["name"].startswith(f"{OURS}:")]


def product_of(case: dict[str, Any], name: str) -> dict[str, Any]:
    """The product of a contender; as if it had been skipped, if it was not measured."""
    return next((product for product in case["products"] if product["name"] == name), {"skipped": "-"})


def column_names(cases: Iterable[dict[str, Any]], figure: str) -> list[str]:
    """Who has a figure in some case, in the order in which they were measured; those who failed everywhere too."""
    products = [product for case in cases for product in main_products(case)]
    has = {product["name"] for product in products if figure in product}
    if figure == "cold_seconds":
        has |= {product["name"] for product in products if "failed" in product}
    return [name for name in dict.fromkeys(product["name"] for product in products) if name in has]


def cell(product: dict[str, Any], figure: str, unit: float) -> str:
    """A figure in units of `unit`; in a word, why there is none."""
    if "failed" in product:
        return "failed"
    if not product.get("correct", True):
        return "WRONG RESULT"
    return number(product[figure] / unit) if figure in product else "-"


def spgemm_sections(run: dict[str, Any]) -> list[str]:
    """All tables of the run."""
    sections = []
    for kind, title in TITLES.items():
        if not (cases := cases_of(run, kind)):
            continue
        sections.append(section(title, TEXTS[kind], real_text(real_squares(run)) if kind == "square" else ""))
        sections[-1] += "\n" + cold_table(cases) + failures(cases)
        sections.append(section(f"{title}, numeric phase", NUMERIC_TEXT, numeric_table(cases)))
        if names := column_names(cases, "first_seconds"):
            sections.append(section(f"{title}, first call", FIRST_TEXT, first_table(cases, names)))
        if column_names(cases, "extra_bytes"):
            sections.append(section(f"{title}, extra memory", MEMORY_TEXT, memory_table(cases)))
        if any(product["name"].startswith(f"{OURS}:") for case in cases for product in case["products"]):
            sections.append(section(f"{title}, sub-warp widths", WIDTHS_TEXT, widths_table(cases)))
    with_levels = [case for case in cases_of(run, "square") if case.get("compression_levels")]
    if with_levels:
        sections.append(section("Compression while rows are merged", LEVELS_TEXT, levels_table(with_levels)))
    return sections


def sizes(case: dict[str, Any]) -> list[str]:
    matrix = case["matrix"]
    return [matrix["name"], str(matrix["nnz"]), str(matrix["result_nnz"]), f"{matrix['compression']:.2f}"]


def cold_table(cases: Sequence[dict[str, Any]]) -> str:
    names = column_names(cases, "cold_seconds")
    last = "calls" if cases[0]["kind"] == "square" else "levels"
    heading = ["matrix", "nonzeros", "of the product", "compression", last, *names, "ratio", f"{OURS} GF/s"]
    rows = []
    for case in cases:
        compared, own = compare(case, OURS, "cold_seconds"), product_of(case, OURS)
        rows.append(
            [
                *sizes(case),
                str(case["matrix"]["iterations" if last == "calls" else "levels"]),
                *(cell(product_of(case, name), "cold_seconds", 1e-3) for name in names),
                f"{compared.ratio:.2f}" if compared else "-",
                cell(own, "flops_per_second", 1e9),
            ]
        )
    return table(heading, rows)


def failures(cases: Sequence[dict[str, Any]]) -> str:
    """A line for each reason for which someone has no result."""
    where: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        for product in case["products"]:
            if "skipped" in product:
                where.setdefault((product["name"], product["skipped"]), []).append(case["matrix"]["name"])
    lines = []
    for (name, reason), matrices in where.items():
        on = "all matrices" if len(matrices) == len(cases) else ", ".join(matrices)
        lines.append(f"- {name} on {on}: {reason}\n")
    return "\n" + "".join(lines) if lines else ""


def numeric_table(cases: Sequence[dict[str, Any]]) -> str:
    names = column_names(cases, "numeric_seconds")
    rows = []
    for case in cases:
        compared, matrix = compare(case, OURS, "numeric_seconds"), case["matrix"]
        own = product_of(case, OURS)
        rows.append(
            [
                matrix["name"],
                *(cell(product_of(case, name), "numeric_seconds", 1e-3) for name in names),
                f"{compared.ratio:.2f}" if compared else "-",
                number(2e-9 * matrix["terms"] / own["numeric_seconds"]) if "numeric_seconds" in own else "-",
            ]
        )
    return table(["matrix", *names, "ratio", f"{OURS} GF/s"], rows)


def first_table(cases: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    rows = []
    for case in cases:
        rows.append([case["matrix"]["name"], *(cell(product_of(case, name), "first_seconds", 1e-3) for name in names)])
    return table(["matrix", *names], rows)


def memory_table(cases: Sequence[dict[str, Any]]) -> str:
    names = column_names(cases, "extra_bytes")
    rows = []
    for case in cases:
        share = memory_share(case)
        cells = (cell(product_of(case, name), "extra_bytes", 1e6) for name in names)
        rows.append([case["matrix"]["name"], *cells, "-" if share is None else f"{share:.3f}"])
    return table(["matrix", *names, "share"], rows)


def memory_share(case: dict[str, Any]) -> float | None:
    """Extra memory of ours over that of the fastest peer whose memory is known; None if one of them is not."""
    known = [product for product in case["products"] if "extra_bytes" in product]
    compared = compare({**case, "products": known}, OURS, "cold_seconds")
    if not compared:
        return None
    return product_of(case, OURS)["extra_bytes"] / max(1, product_of(case, compared.peer)["extra_bytes"])


def widths_table(cases: Sequence[dict[str, Any]]) -> str:
    merging = [f"{OURS}:accumulator=merge,merge_width={width}" for width in WIDTHS]
    rows = []
    for case in cases:
        row = [case["matrix"]["name"], str(case["matrix"]["longest_row"])]
        for name in merging:
            product = product_of(case, name)
            calls = f" ({product['iterations']})" if "iterations" in product else ""
            row.append(cell(product, "flops_per_second", 1e9) + calls)
        row += [cell(product_of(case, name), "flops_per_second", 1e9) for name in (f"{OURS}:accumulator=hash", OURS)]
        rows.append(row)
    return table(["matrix", "longest row", *(f"W = {width}" for width in WIDTHS), "hash", OURS], rows)


def levels_table(cases: Sequence[dict[str, Any]]) -> str:
    depth = max(len(case["compression_levels"]) for case in cases)
    rows = []
    for case in cases:
        shares = [f"{share:.3f}" for share in case["compression_levels"]]
        rows.append([case["matrix"]["name"], *shares, *[""] * (depth - len(shares))])
    return table(["matrix", *(str(2**level) for level in range(depth))], rows)


def real_squares(run: dict[str, Any]) -> dict[str, Any]:
    """What the squares of the real matrices show in sum; empty if there are none.

    `matrices`, and `missing`: those that rmerge did not compute, or wrong. Of those that a device peer computed too:
    `compared`, `geometric_mean_ratio`, `worst_ratio` and `worst_matrix` of the fastest peer over rmerge, both phases;
    `worst_share` and `share_matrix` of the memory. `correlation` of GF/s with compression (figure 3.3).
    """
    cases = [case for case in cases_of(run, "square") if case["real"]]
    if not cases:
        return {}
    own = [(case, product_of(case, OURS)) for case in cases]
    right = [(case, product) for case, product in own if product.get("correct")]
    compared = [comparison for case, _ in right if (comparison := compare(case, OURS, "cold_seconds"))]
    shares = [(share, case["matrix"]["name"]) for case, _ in right if (share := memory_share(case)) is not None]
    found: dict[str, Any] = {
        "matrices": len(cases),
        "missing": len(cases) - len(right),
        "compared": len(compared),
        "place": own[0][1].get("place"),
    }
    if compared:
        worst = min(compared, key=lambda comparison: comparison.ratio)
        found["geometric_mean_ratio"] = statistics.geometric_mean(c.ratio for c in compared)
        found["worst_ratio"], found["worst_matrix"] = worst.ratio, worst.matrix
    if shares:
        found["worst_share"], found["share_matrix"] = max(shares)
    rates = [(product["flops_per_second"], case["matrix"]["compression"]) for case, product in right]
    if rates:
        found["geometric_mean_flops"] = statistics.geometric_mean(rate for rate, _ in rates)
    if len({rate for rate, _ in rates}) > 1 and len({factor for _, factor in rates}) > 1:
        found["correlation"] = statistics.correlation(*zip(*rates, strict=True))
    return found


def real_text(found: dict[str, Any]) -> str:
    """The sum in words; empty without real matrices."""
    if not found:
        return ""
    parts = [f"Real matrices: {found['matrices'] - found['missing']} of {found['matrices']} squared"]
    if "geometric_mean_flops" in found:
        parts.append(f"{found['geometric_mean_flops'] / 1e9:.1f} GF/s in the geometric mean")
    if "worst_ratio" in found:
        parts.append(
            f"fastest peer over {OURS} on {found['compared']} of them: geometric mean "
            f"{found['geometric_mean_ratio']:.2f}, worst {found['worst_ratio']:.2f} ({found['worst_matrix']})"
        )
    if "worst_share" in found:
        parts.append(f"largest share of its memory {found['worst_share']:.2f} ({found['share_matrix']})")
    if "correlation" in found:
        parts.append(f"correlation of GF/s with compression {found['correlation']:.2f}")
    return ";\n".join(parts) + ".\n"
