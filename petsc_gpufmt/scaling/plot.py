"""The picture of MatMult over the ranks: what was measured, what the model predicts, and the ideal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.rank_mult import AS_MADE
from petsc_gpufmt.bench.scaling import Case, gflops, lines_of
from petsc_gpufmt.bench.svg import dot, level, path, picture, text, ticks, upright
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.scaling.machine import ModelledDevice, nvlink_machine
from petsc_gpufmt.scaling.prediction import Model
from petsc_gpufmt.scaling.problem import make_problem

COLOURS = ("#c8553d", "#3b6ea5", "#588b5b", "#e3a857", "#7d5ba6")
PEER_COLOUR, IDEAL_COLOUR = "#7d8fa3", "#999999"
PREDICTED, DOTTED = "6 4", "2 3"
"""Lengths of dashes and gaps."""

MODEL, IDEAL = "model", "ideal"

PANELS_BESIDE = 2
PANEL, HEIGHT = 400, 330  # width and height of what belongs to one matrix, its axes' words included
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 64, 40  # around the axes, in a panel
LEGEND_STEP, LEGEND_COLUMNS = 20, 3
MOST_TICKS = 6
MOST_PREDICTED = 16
BEYOND = 2
"""The model and the ideal go on to so many times the most ranks that were measured."""


@dataclass(frozen=True)
class Curve:
    """A contender.

    Attributes
    ----------
    name : for the legend
    ours : else PETSc's
    measured : (ranks, GF/s, least, largest) in the order of the ranks
    predicted : (ranks, GF/s), empty where the model knows nothing of it
    """

    name: str
    ours: bool
    measured: list[tuple[int, float, float, float]]
    predicted: list[tuple[int, float]]


@dataclass(frozen=True)
class Panel:
    """A matrix, the most ranks shown, GF/s of the fastest of ours on one rank (0: not measured), and the contenders."""

    matrix: str
    ranks: int
    alone: float
    curves: list[Curve]

    @property
    def largest(self) -> float:
        """GF/s at the upper end."""
        shown = [point[1] for curve in self.curves for point in (*curve.measured, *curve.predicted)]
        return max(shown) * 1.05


def models_of(cases: Sequence[Case], gpu: str, gpu_aware: bool, types: tuple[np.dtype, np.dtype]) -> dict[str, Model]:
    """Of matrices in contiguous rows, of a type that is modelled; `types` are those of values and indices."""
    machine = nvlink_machine(gpu, gpu_aware)
    device = ModelledDevice(*types, machine.gpu.resident_threads)
    contiguous = {case["matrix"]: case["type"] for case in cases if case["ours"] and case["distribution"] == AS_MADE}
    found = {}
    for matrix, matrix_type in contiguous.items():
        model = Model(make_problem(matrix, device), machine, device, matrix_type)
        with contextlib.suppress(UnsupportedError):  # not of all types
            model.local_part(model.problem.rows.nrows, model.problem.rows.nnz)
            found[matrix] = model
    return found


def make_panels(cases: Sequence[Case], models: Mapping[str, Model]) -> list[Panel]:
    """A panel for each matrix; `models` of the matrices that are to be predicted, for the type of ours."""
    panels: dict[str, Panel] = {}
    most = BEYOND * max(case["ranks"] for case in cases)
    for matrix, name, of_line in lines_of(cases):
        panel = panels.setdefault(matrix, Panel(matrix, most, alone(cases, matrix), []))
        last, predicted = of_line[-1], []
        if matrix in models and last["mode"]:
            ranks = sorted({round(1 + k * (most - 1) / MOST_PREDICTED) for k in range(MOST_PREDICTED + 1)})
            (found,) = models[matrix].predict(ranks, [last["mode"]], last["weak"]).values()
            predicted = [(p.ranks, p.gflops) for p in found]
        panel.curves.append(Curve(name, last["ours"], [measured_point(case) for case in of_line], predicted))
    return list(panels.values())


def alone(cases: Sequence[Case], matrix: str) -> float:
    """GF/s of ours on one rank, 0 if that was not measured."""
    ours = (case for case in cases if case["ours"] and (case["matrix"], case["ranks"]) == (matrix, 1))
    return max((gflops(case) for case in ours), default=0.0)


def measured_point(case: Case) -> tuple[int, float, float, float]:
    least, largest = (gflops({**case, "seconds": case[name]}) for name in ("largest_seconds", "least_seconds"))
    return case["ranks"], gflops(case), least, largest


def colours(panels: Sequence[Panel]) -> dict[str, str]:
    """Of each contender, the same in all panels."""
    ours = {curve.name: curve.ours for panel in panels for curve in panel.curves}
    found = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(filter(ours.get, ours))}
    return {name: found.get(name, PEER_COLOUR) for name in ours}


def make_plot(cases: Sequence[Case], models: Mapping[str, Model], machine: str) -> str:
    """The picture as SVG: GF/s over the ranks, a panel for each matrix; `machine` is for its title.

    BenchError if there is nothing to draw, since all modes gave way to another one.
    """
    panels = make_panels(cases, models)
    if not panels:
        raise BenchError("there is nothing to draw: all modes gave way to another one, as -info says")
    colour = colours(panels)
    beside = min(PANELS_BESIDE, len(panels))
    rows = -(-len(panels) // beside)
    legend = [*colour, *([MODEL] if models else []), IDEAL]
    height = TOP + (HEIGHT - TOP) * rows + LEGEND_STEP * -(-len(legend) // LEGEND_COLUMNS) + 10
    weak = ", the matrix grows with them" if cases[0]["weak"] else ""
    title = f"MatMult on {machine}: GF/s over the ranks{weak}"
    parts = [text(10, 24, title)]
    for k, panel in enumerate(panels):
        parts += draw_panel(panel, colour, PANEL * (k % beside), (HEIGHT - TOP) * (k // beside))
    parts += draw_legend(legend, colour, PANEL * beside, TOP + (HEIGHT - TOP) * rows + 6)
    return picture(PANEL * beside, height, title, parts)


def draw_panel(panel: Panel, colour: Mapping[str, str], x0: float, y0: float) -> Iterator[str]:
    """Axes, the ideal, and the lines of all contenders; (x0, y0) is the corner of the panel."""
    left, right, top, bottom = x0 + LEFT, x0 + PANEL - RIGHT, y0 + TOP, y0 + HEIGHT - BOTTOM
    largest = panel.largest

    def at(ranks: float, value: float) -> tuple[float, float]:
        return left + (right - left) * ranks / panel.ranks, bottom - (bottom - top) * value / largest

    yield text(left, top - 10, panel.matrix)
    for ranks in filter(float.is_integer, ticks(panel.ranks, MOST_TICKS)):
        x, _ = at(ranks, 0)
        yield upright(x, top, bottom)
        yield text(x, bottom + 16, f"{ranks:g}", "middle")
    for value in ticks(largest, MOST_TICKS):
        _, y = at(0, value)
        yield level(y, left, right)
        yield text(left - 6, y + 4, f"{value:g}", "end")
    if panel.alone:
        end = min(panel.ranks, largest / panel.alone)
        yield path([at(0, 0), at(end, end * panel.alone)], IDEAL_COLOUR, 1.5, DOTTED)
    for curve in panel.curves:
        drawn = colour[curve.name]
        if curve.predicted:
            yield path([at(*point) for point in curve.predicted], drawn, 1.5, PREDICTED)
        yield path([at(ranks, value) for ranks, value, _, _ in curve.measured], drawn, 2)
        for ranks, value, least, most in curve.measured:
            yield path([at(ranks, least), at(ranks, min(most, largest))], drawn)
            yield dot(*at(ranks, value), drawn)


def draw_legend(names: Sequence[str], colour: Mapping[str, str], width: float, top: float) -> Iterator[str]:
    """What each line is."""
    dashes = {MODEL: PREDICTED, IDEAL: DOTTED}
    for k, name in enumerate(names):
        x = 20 + (k % LEGEND_COLUMNS) * (width - 20) / LEGEND_COLUMNS
        y = top + LEGEND_STEP * (k // LEGEND_COLUMNS)
        yield path([(x, y), (x + 24, y)], colour.get(name, IDEAL_COLOUR), 2, dashes.get(name, ""))
        yield text(x + 32, y + 4, name)
