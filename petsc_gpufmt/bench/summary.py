"""What a set of matrices shows in sum: our times and their ratio to the best peer on each matrix."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """One matrix: who of ours, and how many seconds; the same of the fastest peer that could run and was right."""

    matrix: str
    variant: str
    seconds: float
    peer: str
    peer_seconds: float

    @property
    def ratio(self) -> float:
        """How many times our product fits into the peer's."""
        return self.peer_seconds / self.seconds


def compare(case: dict[str, Any], variant: str, seconds: str = "median_seconds") -> Comparison | None:
    """`variant` against the fastest right peer on the same place, by the time that `seconds` names.

    None where `variant` or every peer was not measured or came out wrong.
    """
    measured = [product for product in case["products"] if seconds in product and product.get("correct", True)]
    own = next((product for product in measured if product["name"] == variant), None)
    if own is None:
        return None
    peers = [product for product in measured if not product["ours"] and product["place"] == own["place"]]
    if not peers:
        return None
    best = min(peers, key=lambda product: product[seconds])
    return Comparison(case["matrix"]["name"], variant, own[seconds], best["name"], best[seconds])


def summarise(cases: Sequence[dict[str, Any]], variant: str) -> dict[str, Any]:
    """Geometric means and the worst case; empty if no matrix has both `variant` and a peer."""
    compared = [comparison for case in cases if (comparison := compare(case, variant))]
    if not compared:
        return {}
    worst = min(compared, key=lambda comparison: comparison.ratio)
    return {
        "format": variant,
        "matrices": len(compared),
        "geometric_mean_seconds": statistics.geometric_mean(c.seconds for c in compared),
        "peer_geometric_mean_seconds": statistics.geometric_mean(c.peer_seconds for c in compared),
        "geometric_mean_ratio": statistics.geometric_mean(c.ratio for c in compared),
        "worst_ratio": worst.ratio,
        "worst_matrix": worst.matrix,
    }


def summary_line(summary: dict[str, Any]) -> str:
    """For the terminal."""
    ours, peers = (summary[f"{who}geometric_mean_seconds"] * 1e6 for who in ("", "peer_"))
    return (
        f"{summary['format']} on {summary['matrices']} matrices: geometric mean {ours:.2f} us, "
        f"best peers {peers:.2f} us; ratio {summary['geometric_mean_ratio']:.3f}, "
        f"worst {summary['worst_ratio']:.3f} on {summary['worst_matrix']}"
    )


def fastest(case: dict[str, Any], seconds: str) -> Comparison | None:
    """The fastest of ours against the fastest peer, on the device where one was measured; None if either is missing."""
    place = "cuda" if any(product["place"] == "cuda" for product in case["products"]) else "host"
    products = [product for product in case["products"] if product["place"] == place]
    ours = [product["name"] for product in products if product["ours"]]
    compared = [found for name in ours if (found := compare({**case, "products": products}, name, seconds))]
    return min(compared, key=lambda comparison: comparison.seconds, default=None)


def fastest_lines(cases: Sequence[dict[str, Any]], seconds: str) -> list[str]:
    """A table for the terminal, a line for each case that has both ours and a peer; no lines if none has."""
    lines = [
        f"{': '.join(filter(None, (found.matrix, case.get('kind')))):34}{found.seconds * 1e6:12.2f}  {found.variant:24}"
        f"{found.peer_seconds * 1e6:12.2f}  {found.peer:18}{found.ratio:7.2f}"
        for case in cases
        if (found := fastest(case, seconds))
    ]
    heading = f"\n{'':34}{'ours us':>12}  {'':24}{'peer us':>12}  {'':18}{'ratio':>7}"
    return [heading, *lines] if lines else []
