"""The figures that whole programs are to reach, those of the set-up of GAMG among them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from figures import MILLISECOND, Measured, Runs, Target, all_cases, best_of

from petsc_gpufmt.bench.programs import PROGRAM_SETS
from petsc_gpufmt.bench.report.programs_tables import has_hierarchy

GIGABYTE = 1e9

Figure = Callable[[dict[str, Any]], float | None]
"""Of one type with which a program ran."""


def run_name(program: str, ranks: int) -> str:
    return f"programs, {program}" + (f", {ranks} ranks" if ranks > 1 else "")


def program_figure(
    program: str, size: int, figure: Figure, types: Collection[str] = (), ranks: int = 1, unit: float = 1.0
) -> Callable[[Runs], Measured | None]:
    """A figure of a whole program on devices: the least of our types, or of those in `types`, in units of `unit`."""

    def find(runs: Runs) -> Measured | None:
        cases = [c for c in all_cases(runs, run_name(program, ranks)) if (c["size"], c["place"]) == (size, "cuda")]
        entries = [
            {"ours": entry["ours"], "name": entry["mat_type"], "figure": value}
            for case in cases
            for entry in case["entries"]
            if "warm" in entry and (not entry["ours"] or not types or entry["mat_type"] in types)
            if (value := figure(entry)) is not None
        ]
        return best_of(entries, "name", "figure", unit)

    return find


def wall_seconds(entry: dict[str, Any]) -> float:
    return entry["warm"]["median_seconds"]


def seconds_of_empty_caches(entry: dict[str, Any]) -> float | None:
    """What the first run on a machine takes beyond later ones."""
    return entry["cold"]["median_seconds"] - entry["warm"]["median_seconds"] if "cold" in entry else None


def ratio_to_peer(entry: dict[str, Any]) -> float | None:
    return entry["ratio"]["median"] if "ratio" in entry else None


def device_bytes(entry: dict[str, Any]) -> float | None:
    return entry.get("observed", {}).get("device_bytes")


def new_values_seconds(entry: dict[str, Any]) -> float | None:
    """What a product takes longer after new values than without."""
    steps = entry["warm"]["steps"]
    return steps["values_and_mult"] - steps["mult"] if "values_and_mult" in steps else None


def event(name: str, observed: bool = False) -> Figure:
    """Seconds of an event; `observed`: in the run in which PETSc waits for the device after each."""

    def figure(entry: dict[str, Any]) -> float | None:
        events = entry.get("observed" if observed else "warm", {}).get("events", {})
        return events[name]["seconds"] if name in events else None

    return figure


def step(name: str) -> Figure:
    """Seconds of a step that the program prints."""
    return lambda entry: entry["warm"]["steps"].get(name)


def beside_agg(difference: Callable[[dict[str, Any], dict[str, Any]], float], *all_ranks: int) -> Callable[..., Any]:
    """The largest `difference` of ours from PETSc's type with agg, over the programs of GAMG on so many ranks."""

    def find(runs: Runs) -> Measured | None:
        found = [
            (difference(entry, case["entries"][0]), f"{entry['mat_type']}, {case['program']} {case['size']}")
            for program in PROGRAM_SETS["gamg"]
            for ranks in all_ranks
            for case in all_cases(runs, run_name(program, ranks))
            if case["place"] == "cuda" and has_hierarchy(case["entries"][0])
            for entry in case["entries"][1:]
            if has_hierarchy(entry)
        ]
        return Measured(max(found)[0], by=max(found)[1]) if found else None

    return find


def complexity_difference(ours: dict[str, Any], agg: dict[str, Any]) -> float:
    """Of operator complexities, in %."""
    a, b = (entry["observed"]["operator_complexity"] for entry in (ours, agg))
    return 100 * abs(a - b) / b


def iterations_difference(ours: dict[str, Any], agg: dict[str, Any]) -> float:
    return abs(ours["krylov_iterations"] - agg["krylov_iterations"])


PROGRAM_TARGETS = (
    Target("program with one MatMult of 1000 rows", 0.75, "s", program_figure("first", 1000, wall_seconds)),
    Target(
        "first product after a second of assembly, 1000 rows",
        0.05,
        "s",
        program_figure("first-after-1s", 1000, step("mult1")),
    ),
    Target(
        "program Bratu 128^3, GAMG: caches of kernels empty, beyond later runs",
        0.5,
        "s",
        program_figure("ex14-gamg-agg", 128, seconds_of_empty_caches),
    ),
    Target(
        "program Bratu 128^3, GAMG: ours over the peer",
        1.0,
        "times",
        program_figure("ex14-gamg-agg", 128, ratio_to_peer),
    ),
    Target(
        "program Bratu 200^3, CG and Jacobi: ours over the peer",
        0.96,
        "times",
        program_figure("ex14-jacobi", 200, ratio_to_peer),
    ),
    Target("program Bratu 200^3, gpucg: KSPSolve", 0.39, "s", program_figure("ex14-gpucg", 200, event("KSPSolve"))),
    Target(
        "program Bratu 128^3, GAMG: KSPSolve with gpufmt",
        0.055,
        "s",
        program_figure("ex14-gamg-agg", 128, event("KSPSolve"), ("gpufmt",)),
    ),
    Target(
        "program ex19, 7 refinements, fgmres and mg: KSPSolve", 0.07, "s", program_figure("ex19", 7, event("KSPSolve"))
    ),
    Target("ex14 128^3, GAMG: PCSetUp of all steps", 0.14, "s", program_figure("ex14-gamg", 128, event("PCSetUp"))),
    Target("ex14 200^3, GAMG: PCSetUp of all steps", 0.42, "s", program_figure("ex14-gamg", 200, event("PCSetUp"))),
    Target("bratu3d 128^3, GAMG: PCSetUp of all steps", 0.1, "s", program_figure("bratu3d", 128, event("PCSetUp"))),
    Target("bratu3d 200^3, GAMG: PCSetUp of all steps", 0.3, "s", program_figure("bratu3d", 200, event("PCSetUp"))),
    Target(
        "bratu3d 200^3, GAMG, 2 ranks: PCSetUp of all steps",
        0.22,
        "s",
        program_figure("bratu3d", 200, event("PCSetUp"), ranks=2),
    ),
    Target(
        "bratu3d 200^3, GAMG, 4 ranks: PCSetUp of all steps",
        0.15,
        "s",
        program_figure("bratu3d", 200, event("PCSetUp"), ranks=4),
    ),
    Target("ex14 128^3, GAMG: KSPSolve", 0.05, "s", program_figure("ex14-gamg", 128, event("KSPSolve"))),
    Target("ex14 200^3, GAMG: KSPSolve", 0.13, "s", program_figure("ex14-gamg", 200, event("KSPSolve"))),
    Target("bratu3d 200^3, GAMG: SNESSolve", 0.8, "s", program_figure("bratu3d", 200, event("SNESSolve"))),
    Target("bratu3d 200^3, GAMG: whole program", 3.0, "s", program_figure("bratu3d", 200, wall_seconds)),
    Target(
        "bratu3d 128^3, GAMG: PtAP, numeric phases",
        8.0,
        "ms",
        program_figure("bratu3d", 128, event("MatPtAPNumeric", observed=True), unit=MILLISECOND),
    ),
    Target(
        "7-point 128^3, GAMG: PtAP, symbolic phases of the second set-up",
        15.0,
        "ms",
        program_figure("laplacian-7point", 128, step("symbolic2"), unit=MILLISECOND),
    ),
    Target("27-point 128^3, GAMG: set-up", 0.12, "s", program_figure("laplacian-27point", 128, step("set_up1"))),
    Target("ex56, 39 elements, GAMG: PCSetUp", 0.06, "s", program_figure("ex56", 39, event("PCSetUp"))),
    Target("ex56, 39 elements, GAMG: KSPSolve", 0.1, "s", program_figure("ex56", 39, event("KSPSolve"))),
    Target(
        "7-point 200^3: new values from a device, ready to multiply",
        0.6,
        "ms",
        program_figure("new-values", 200, new_values_seconds, unit=MILLISECOND),
    ),
    Target(
        "ex14 128^3, GAMG: most memory of the device",
        2.63,
        "GB",
        program_figure("ex14-gamg", 128, device_bytes, unit=GIGABYTE),
    ),
    Target(
        "bratu3d 128^3, GAMG: most memory of the device",
        2.63,
        "GB",
        program_figure("bratu3d", 128, device_bytes, unit=GIGABYTE),
    ),
    Target("GAMG: operator complexity, difference from agg's", 0.0, "%", beside_agg(complexity_difference, 1)),
    Target("GAMG: iterations, difference from agg's", 0.0, "iterations", beside_agg(iterations_difference, 1)),
    Target(
        "GAMG, 2 and 4 ranks: operator complexity, difference from agg's",
        1.0,
        "%",
        beside_agg(complexity_difference, 2, 4),
    ),
    Target(
        "GAMG, 2 and 4 ranks: iterations, difference from agg's",
        1.0,
        "iterations",
        beside_agg(iterations_difference, 2, 4),
    ),
)
