"""Pictures of results by matplotlib: a roofline, time over block size, and how many times as fast as the best peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.report import fastest

Run = dict[str, Any]

PANEL, DOTS_AN_INCH = (7.0, 4.5), 100  # inches
MOST_BARS = 40
PANELS_BESIDE = 2
FEWEST_BARS = 5  # that there is room for: one alone is no wall
PROGRAMS = "programs"


def check_plot(path: Path) -> None:
    """BenchError if matplotlib is not there, or does not know the suffix of `path`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise BenchError(f"--plot needs matplotlib ({e}): pip install 'petsc_gpufmt[plot]', or matplotlib") from e
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise BenchError(f"--plot {path}: name a file that ends in one of .{', .'.join(known)}")


def draw(runs: Sequence[Run], path: Path) -> None:
    """Write a picture with the panels of all runs; `check_plot` has looked at `path`. BenchError without anything."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = [(run, panel) for run in together(runs) for panel in panels_of(run)]
    if not panels:
        raise BenchError(f"--plot {path}: the results have nothing to draw: no case has both ours and a peer")
    rows = -(-len(panels) // PANELS_BESIDE)
    columns = min(PANELS_BESIDE, len(panels))
    # text stays text, and the same results give the same file
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "petsc_gpufmt"}):
        figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), dpi=DOTS_AN_INCH, layout="constrained")
        for place, (run, panel) in enumerate(panels):
            panel(figure.add_subplot(rows, columns, place + 1), run)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def together(runs: Sequence[Run]) -> list[Run]:
    """The runs, with those of whole programs, which are a run each, as one."""
    programs = [run for run in runs if run["name"].startswith(PROGRAMS)]
    others = [run for run in runs if run not in programs]
    cases = [case for run in programs for case in run["cases"]]
    return [*others, {"name": PROGRAMS, "cases": cases}] if programs else others


def panels_of(run: Run) -> list[Callable[[Any, Run], None]]:
    """What is drawn of a run."""
    found: list[Callable[[Any, Run], None]] = []
    if roofline_points(run):
        found.append(draw_roofline)
    if len(block_times(run)) > 0 and run["name"] == "bsr":
        found.append(draw_blocks)
    if any(entry.ratio for entry in fastest.of_run(run)):
        found.append(draw_speedups)
    return found


def device_products(case: Run) -> list[Run]:
    """The right ones of a case, on the device where one was measured."""
    products = [p for p in case.get("products", ()) if "median_seconds" in p and p.get("correct", True)]
    place = "cuda" if any(p["place"] == "cuda" for p in products) else "host"
    return [p for p in products if p["place"] == place]


def roofline_points(run: Run) -> dict[str, list[tuple[float, float]]]:
    """(flops a byte of a product in CSR, GF/s) of each contender; 2 flops an entry."""
    found: dict[str, list[tuple[float, float]]] = {}
    for case in run["cases"]:
        nbytes = case.get("bsr_bytes") or case.get("matrix", {}).get("csr_bytes") if "products" in case else None
        if not nbytes:
            continue
        flops = 2 * case["matrix"]["nnz"]
        for product in device_products(case):
            point = (flops / nbytes, 1e-9 * flops / product["median_seconds"])
            found.setdefault(product["name"], []).append(point)
    return found


def draw_roofline(axes: Any, run: Run) -> None:
    """Bandwidth alone bounds sparse products: the line is that of a copy in the same run."""
    points = roofline_points(run)
    intensities = [intensity for of_name in points.values() for intensity, _ in of_name]
    ends = [min(intensities) / 1.3, max(intensities) * 1.3]
    ceilings = run["copy_bytes_per_second"]
    ceiling = ceilings.get("cuda", ceilings["host"])
    axes.loglog(ends, [1e-9 * ceiling * end for end in ends], color="black", label="a copy's bandwidth")
    for number, (name, of_name) in enumerate(points.items()):
        axes.plot(*zip(*of_name, strict=True), "o", color=f"C{number % 10}", label=name, linestyle="none")
    axes.set(title=f"{run['name']}: roofline", xlabel="flops a byte of a product in CSR", ylabel="GF/s", xlim=ends)
    axes.legend(fontsize=7)


def block_times(run: Run) -> dict[str, list[tuple[int, float]]]:
    """(block size, us) of each contender, in the order of the sizes."""
    found: dict[str, list[tuple[int, float]]] = {}
    for case in run["cases"]:
        for product in device_products(case):
            point = (case["matrix"]["block_size"], product["median_seconds"] * 1e6)
            found.setdefault(product["name"], []).append(point)
    return {name: sorted(points) for name, points in found.items()}


def draw_blocks(axes: Any, run: Run) -> None:
    for name, points in block_times(run).items():
        axes.plot(*zip(*points, strict=True), "o-", label=name)
    axes.set(title=f"{run['name']}: time over block size", xlabel="block size", ylabel="us", ylim=(0, None))
    axes.legend(fontsize=7)


def draw_speedups(axes: Any, run: Run) -> None:
    """Bars of the first matrices."""
    found = [entry for entry in fastest.of_run(run) if entry.ratio][:MOST_BARS]
    places = range(len(found))
    axes.barh(list(places), [entry.ratio for entry in found], color="C0")
    axes.set_yticks(list(places), [f"{entry.what}: {entry.ours} / {entry.peer}" for entry in found], fontsize=6)
    axes.set_ylim(max(len(found), FEWEST_BARS) - 0.4, -0.6)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(title=f"{run['name']}: times as fast as the best peer", xlabel="times")
