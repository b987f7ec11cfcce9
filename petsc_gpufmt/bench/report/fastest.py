"""Who is fastest on each matrix, ours and others', and how much faster: a line for each case of any benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Run = dict[str, Any]


@dataclass(frozen=True)
class Fastest:
    """Of one case.

    Attributes
    ----------
    what : matrix, product or program, and how many ranks if there are several
    ours, ours_seconds : the fastest of this package; None where none was right
    peer, peer_seconds : the fastest of the others
    """

    what: str
    ours: str | None
    ours_seconds: float
    peer: str | None
    peer_seconds: float

    @property
    def name(self) -> str:
        """Of the fastest of all."""
        return str(
            self.ours if self.peer is None or (self.ours and self.ours_seconds <= self.peer_seconds) else self.peer
        )

    @property
    def ratio(self) -> float | None:
        """How many times as fast ours is; None where one of both is missing."""
        return self.peer_seconds / self.ours_seconds if self.ours and self.peer and self.ours_seconds else None


Entry = tuple[str, bool, float]
"""Name, whether it is ours, seconds."""


def best(what: str, entries: Sequence[Entry]) -> Fastest | None:
    """None where nothing was measured."""
    ours, peers = ([(seconds, name) for name, own, seconds in entries if own is kind] for kind in (True, False))
    if not ours and not peers:
        return None
    own, peer = (min(found) if found else (0.0, None) for found in (ours, peers))
    return Fastest(what, own[1], own[0], peer[1], peer[0])


def of_run(run: Run) -> Iterator[Fastest]:
    """Each matrix of a run, on the device where one was measured; those who were wrong do not count."""
    kind = run["name"].partition(",")[0]
    grouped: dict[str, list[Entry]] = {}
    for case in run["cases"]:
        what, entries = KINDS.get(kind, products)(case)
        grouped.setdefault(what, []).extend(entries)
    yield from filter(None, (best(what, entries) for what, entries in grouped.items()))


def products(case: Run) -> tuple[str, list[Entry]]:
    """Of mult, bsr, sets of matrices and spgemm, whose both phases count."""
    place = "cuda" if any(product["place"] == "cuda" for product in case["products"]) else "host"
    what = ": ".join(filter(None, (case["matrix"]["name"], case.get("kind"))))
    seconds = "cold_seconds" if "kind" in case else "median_seconds"
    measured = [p for p in case["products"] if p["place"] == place and seconds in p and p.get("correct", True)]
    return what, [(p["name"], p["ours"], p[seconds]) for p in measured]


def solver(case: Run) -> tuple[str, list[Entry]]:
    """Whole solves; a method of PETSc's with a type of ours is ours."""
    from petsc_gpufmt.bench.ksp import is_peer

    entries = [(case["label"], not is_peer(case), case["solve_seconds"])] if case["correct"] else []
    return _on_ranks(case["matrix"], case["ranks"]), [e for e in entries if e[2] is not None]


def on_ranks(case: Run) -> tuple[str, list[Entry]]:
    """MatMult over the ranks."""
    name = f"{case['type']}, {case['mode']}" if case["mode"] else case["type"]
    entries = [(name, case["ours"], case["seconds"])] if case["correct"] else []
    return _on_ranks(case["matrix"] + (" on each" if case["weak"] else ""), case["ranks"]), entries


def whole_program(case: Run) -> tuple[str, list[Entry]]:
    """By the median of the wall clock."""
    entries = [(e["mat_type"], e["ours"], e["warm"]["median_seconds"]) for e in case["entries"] if "warm" in e]
    return _on_ranks(f"{case['program']} {case['size']}", case["ranks"]), entries


def experiments(case: Run) -> tuple[str, list[Entry]]:
    """Has nobody to compare with."""
    return case["matrix"]["name"], []


KINDS = {"ksp": solver, "scaling": on_ranks, "programs": whole_program, "parts": experiments}


def _on_ranks(what: str, ranks: int) -> str:
    return f"{what} on {ranks} ranks" if ranks > 1 else what


def line(found: Fastest) -> str:
    """For people."""
    if found.ours is None or found.peer is None:
        seconds = found.ours_seconds if found.ours else found.peer_seconds
        return f"{found.what}: {found.name}, {in_unit(seconds)}; nothing to compare with"
    return (
        f"{found.what}: fastest is {found.name}; {found.ours} {in_unit(found.ours_seconds)}, "
        f"{found.peer} {in_unit(found.peer_seconds)}, {found.ratio or 0:.2f} times as fast"
    )


def in_unit(seconds: float) -> str:
    """Three digits, in us, ms or s."""
    unit, scale = next(((u, s) for u, s in (("us", 1e6), ("ms", 1e3)) if seconds * s < 1000), ("s", 1.0))
    return f"{seconds * scale:.3g} {unit}"
