"""The tables of products: by all who multiply, by block sizes, and of sets of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from petsc_gpufmt.bench.report.markdown import microseconds, section, table
from petsc_gpufmt.bench.storage import in_mults
from petsc_gpufmt.bench.summary import compare

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

BSR_TEXT = """\
27-point stencils of dense blocks. Medians of single calls between two CUDA events. *copy* is the share of the bandwidth
of a large copy in the same run, of the bytes that a BSR product must move: the values, an index for each block and each
block row, x and z once. cuSPARSE takes the entries of a block in the order of rows or of columns.
"""

SET_TEXT = {
    "real": """\
Matrices from applications, as they are: all of them live in the cache, and the launch decides. Medians of single calls
between two CUDA events, in us; *ratio* is the fastest peer over ours.
""",
    "real-replicated": """\
The same matrices repeated along the diagonal until they have 40 million nonzeros: the same rows, out of the cache.
Medians of single calls between two CUDA events, in us; *ratio* is the fastest peer over ours, *copy* our CSR-equivalent
bandwidth over that of a large copy.
""",
}
SET_TITLES = {"real": "Real matrices", "real-replicated": "Real matrices, replicated"}


def after_comma(name: str) -> str:
    """The part of the name of a run that tells it from others of its kind, with its comma."""
    _, comma, rest = name.partition(",")
    return comma + rest


def mult_sections(run: dict[str, Any]) -> list[str]:
    """Products from Python, and what storing the matrices costs."""
    ceilings = run["copy_bytes_per_second"]
    ceiling = "; ".join(f"{place}: {value / 1e12:.3f} TB/s" for place, value in ceilings.items())
    pairs = [(case["matrix"], product) for case in run["cases"] for product in case["products"]]
    with_spread = any("least_seconds" in product for _, product in pairs)  # not in results of earlier versions
    rows = [(*mult_row(*pair, ceilings), *([spread(pair[1])] if with_spread else [])) for pair in pairs]
    heading = ["matrix", "type", "on", "median us", "back to back us", "host us", "TB/s", "copy"]
    heading += ["least-largest us"] if with_spread else []
    products = section(
        f"MatMult from Python{after_comma(run['name'])}",
        MULT_TEXT,
        f"Bandwidth of a large copy, read and written bytes counted: {ceiling}.\n",
        table(heading, rows),
    )
    return [products, storage_section(run)]


def mult_row(matrix: dict[str, Any], product: dict[str, Any], ceilings: dict[str, float]) -> Sequence[str]:
    head = matrix["name"], product["name"], product["place"]
    if "skipped" in product:
        return *head, product["skipped"], *["-"] * 4
    return (
        *head,
        *(microseconds(product[f"{name}_seconds"]) for name in ("median", "back_to_back", "host")),
        f"{product['bytes_per_second'] / 1e12:.3f}",
        copy_share(product, ceilings),
    )


def spread(product: dict[str, Any]) -> str:
    """Of single calls, in us."""
    keys = ("least_seconds", "largest_seconds")
    return "-".join(microseconds(product[key]) for key in keys) if keys[0] in product else "-"


def copy_share(product: dict[str, Any], ceilings: dict[str, float]) -> str:
    if not product["correct"]:
        return "WRONG RESULT"
    return f"{product['bytes_per_second'] / ceilings[product['place']]:.2f}"


def storage_section(run: dict[str, Any]) -> str:
    heading = (
        *("matrix", "format", "on", "build", "refresh", "upload"),
        *("nnz", "stored", "fill ratio", "MB", "parameters"),
    )
    rows = [storage_row(case, entry) for case in run["cases"] for entry in case["storage"]]
    return section(f"Storing a matrix{after_comma(run['name'])}", STORAGE_TEXT, table(heading, rows))


def storage_row(case: dict[str, Any], entry: dict[str, Any]) -> Sequence[str]:
    costs = in_mults(entry, case["products"])
    stats = entry["stats"]
    sizes = str(stats["nnz"]), str(stats["nstored"]), f"{stats['fill_ratio']:.4f}", f"{stats['bytes_held'] / 1e6:.1f}"
    return (
        case["matrix"]["name"],
        entry["format"],
        entry["place"],
        *(f"{costs[n]:.1f}" for n in ("build", "refresh", "upload")),
        *sizes,
        chosen_format(entry["summary"]),
    )


def contender_names(run: dict[str, Any]) -> list[str]:
    """Who computes in a run, in the order of the first case that has them."""
    return list(dict.fromkeys(product["name"] for case in run["cases"] for product in case["products"]))


def bsr_section(run: dict[str, Any]) -> str:
    """A row for each block size."""
    names = contender_names(run)
    rows = []
    for case in run["cases"]:
        products = {product["name"]: product for product in case["products"]}
        row = [str(case["matrix"]["block_size"]), case["matrix"]["name"].split(",")[0], str(case["matrix"]["nnz"])]
        for name in names:
            product = products.get(name, {"skipped": "-"})
            if "skipped" in product:
                row += [product["skipped"], "-"]
            else:
                row += [microseconds(product["median_seconds"]), copy_share(product, run["copy_bytes_per_second"])]
        rows.append(row)
    heading = ["block size", "stencil", "nonzeros"]
    for name in names:
        heading += [f"{name} us", "copy"]
    return section("Matrices of dense blocks", BSR_TEXT, table(heading, rows))


def set_section(run: dict[str, Any]) -> str:
    """A row for each matrix of a set, and what they show in sum."""
    summary, names = run["summary"], contender_names(run)
    with_copy = run["name"] == "real-replicated"
    heading = [
        "matrix",
        "rows",
        "nonzeros",
        "longest row",
        *names,
        "ratio",
        *(["copy"] if with_copy else []),
        "stored as",
    ]
    rows = [set_row(case, summary.get("format", ""), names, run, with_copy) for case in run["cases"]]
    return section(SET_TITLES[run["name"]], SET_TEXT[run["name"]], summary_text(summary), table(heading, rows))


def set_row(
    case: dict[str, Any], variant: str, names: Sequence[str], run: dict[str, Any], with_copy: bool
) -> Sequence[str]:
    products = {product["name"]: product for product in case["products"]}
    compared, own = compare(case, variant), products.get(variant, {"skipped": "-"})
    measured = "skipped" not in own
    sizes = (str(case["matrix"][key]) for key in ("nrows", "nnz", "longest_row"))
    return (
        case["matrix"]["name"],
        *sizes,
        *(set_cell(products.get(name, {"skipped": "-"})) for name in names),
        f"{compared.ratio:.2f}" if compared else "-",
        *([copy_share(own, run["copy_bytes_per_second"]) if measured else "-"] if with_copy else []),
        chosen_format(own.get("stored_as", "-")),
    )


def chosen_format(stored_as: str) -> str:
    """Of the words of the type that chooses, the format; those of another format as they are."""
    return stored_as.partition(":")[0].removeprefix("chose ") if stored_as.startswith("chose ") else stored_as


def set_cell(product: dict[str, Any]) -> str:
    if "skipped" in product:
        return "-"
    return microseconds(product["median_seconds"]) if product["correct"] else "WRONG RESULT"


def summary_text(summary: dict[str, Any]) -> str:
    if not summary:
        return ""
    ours, peers = (microseconds(summary[f"{who}geometric_mean_seconds"]) for who in ("", "peer_"))
    return (
        f"{summary['format']} on {summary['matrices']} matrices: geometric mean {ours} us, fastest peer of each\n"
        f"{peers} us. Ratio: geometric mean {summary['geometric_mean_ratio']:.3f}, "
        f"worst {summary['worst_ratio']:.3f} ({summary['worst_matrix']}).\n"
    )
