"""A picture of an analysis by matplotlib: where the entries are, how long rows are, and a roofline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from petsc_gpufmt.analysis.analysis import Analysis
from petsc_gpufmt.analysis.facts import histogram_labels, row_chunks

MOST_PIXELS = 400
"""Rows and columns of the picture of the pattern: more are drawn together."""

SIZE, DOTS_AN_INCH = (17.0, 5.0), 100


def density(matrix: scipy.sparse.csr_matrix, pixels: int = MOST_PIXELS) -> np.ndarray:
    """(rows, columns) of a picture, at most `pixels` each: the share of the places of a pixel that have an entry."""
    shape = [max(1, min(pixels, n)) for n in matrix.shape]
    counts = np.zeros(shape[0] * shape[1], dtype=np.int64)
    nrows, ncols = (max(1, n) for n in matrix.shape)
    for rows, columns in row_chunks(matrix):
        place = rows * shape[0] // nrows * shape[1] + columns.astype(np.int64) * shape[1] // ncols
        counts += np.bincount(place, minlength=counts.size)
    return counts.reshape(shape) / (nrows / shape[0] * ncols / shape[1])


def roofline_points(analysis: Analysis) -> list[tuple[str, float, float]]:
    """(format, flops of a byte that a product moves, GF/s) of the formats that are stored; 2 flops an entry."""
    flops = 2 * analysis.facts.nnz
    return [
        (row.name, flops / row.bytes_per_mult, 1e-9 * flops / row.seconds)
        for row in analysis.rows
        if flops and row.bytes_per_mult and row.seconds
    ]


def draw(analysis: Analysis, matrix: scipy.sparse.csr_matrix, path: Path) -> None:
    """Write the picture, in the form of the suffix of `path`, which bench/report/pictures.py has looked at."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DOTS_AN_INCH, layout="constrained")
    figure.suptitle(f"{analysis.name}: {analysis.facts.nrows} x {analysis.facts.ncols}, {analysis.facts.nnz} entries")
    pattern, lengths, roofline = figure.subplots(1, 3)
    _draw_pattern(pattern, matrix)
    _draw_lengths(lengths, analysis)
    _draw_roofline(roofline, analysis)
    figure.savefig(path)


def _draw_pattern(axes: Any, matrix: scipy.sparse.csr_matrix) -> None:
    nrows, ncols = (max(1, n) for n in matrix.shape)
    shares = np.ma.masked_equal(density(matrix), 0.0)
    axes.imshow(
        np.ma.sqrt(shares), cmap="Blues", vmin=-0.3, aspect="auto", interpolation="nearest", extent=(0, ncols, nrows, 0)
    )
    axes.set(title="entries (darker: more of a pixel's places)", xlabel="column", ylabel="row")


def _draw_lengths(axes: Any, analysis: Analysis) -> None:
    lengths = analysis.facts.lengths
    axes.bar(histogram_labels(len(lengths)), lengths)
    axes.tick_params(axis="x", rotation=60)
    axes.set(title="rows by their entries", xlabel="entries of a row", ylabel="rows", yscale="symlog")
    axes.set_ylim(bottom=0)


def _draw_roofline(axes: Any, analysis: Analysis) -> None:
    """Bandwidth alone bounds sparse products: arithmetic would from some 8 flops a byte on, far to the right."""
    axes.set(title=f"roofline of {analysis.gpu.name}, predicted", xlabel="flops a byte", ylabel="GF/s")
    points = roofline_points(analysis)
    if not points:
        return
    intensities = [intensity for _, intensity, _ in points]
    ends = np.array([min(intensities) / 1.5, max(intensities) * 1.5])
    axes.loglog(ends, 1e-9 * analysis.gpu.copy * ends, color="black", label="a copy's bandwidth")
    for number, (name, intensity, gflops) in enumerate(points):
        bound, picked = analysis.row(name).at_least, name == analysis.pick.name
        marker = "*" if picked else "^" if bound else "o"
        label = f"{name}, chosen" if picked else f"{name}, at most" if bound else name
        style = {"markersize": 14 if picked else 7, "fillstyle": "none" if bound else "full"}
        axes.plot(intensity, gflops, marker, color=f"C{number}", label=label, linestyle="none", **style)
    axes.set(xlim=tuple(ends))
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
