"""Draws what each format stores of one small matrix, by the arrays that it makes on the host: docs/formats/*.svg.

Usage: python tools/format_pictures.py
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.bench import svg
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.patterns.csr import CsrPattern

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "formats"
NOTHING, PADDING = -1, 0

# Blocks of 2 x 2 of a matrix with 16 rows, by block row, and entries of them that are not there
BLOCKS = ((0, 3), (1,), (0, 1, 2, 4, 5, 7), (3, 6), (2, 4, 5), (5,), (3, 6), (2, 4, 7))
MISSING = {(1, 6), (2, 3), (4, 9), (6, 13), (8, 5), (9, 10), (11, 10), (13, 7), (15, 4), (15, 14)}
SIZE = 16

DOT, CELL_WIDTH, CELL_HEIGHT, GAP, MARGIN, PER_LINE = 12, 22, 18, 10, 20, 36
LEFT = 2 * MARGIN + SIZE * DOT + 110
"""Where the drawing of the arrays begins, right of the matrix and of the rows' names."""

PAD_COLOUR, EDGE = "#d0d0d0", "#ffffff"


@dataclass(frozen=True)
class Piece:
    """A part of an array: places of it side by side and below each other, NOTHING where there is none.

    `names` are those of its lines.
    """

    title: str
    places: np.ndarray
    names: tuple[str, ...]


def matrix() -> tuple[np.ndarray, np.ndarray]:
    """rows (nnz,) and columns (nnz,) of the matrix, in the order of CSR."""
    entries = [
        (row, 2 * block + column)
        for row in range(SIZE)
        for block in BLOCKS[row // 2]
        for column in range(2)
        if (row, 2 * block + column) not in MISSING
    ]
    rows, columns = np.array(entries).T
    return rows, columns


def stored(name: str, options: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """The matrix in a format on the host, and what is at each place of its array of values.

    That is 0 in padding, else one more than the number of the entry.
    """
    scalar, index = native_library.petsc_types()
    backend = HostBackend(scalar, index)
    rows, columns = matrix()
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=SIZE))])
    pattern = CsrPattern(SIZE, SIZE, rowptr.astype(index), columns.astype(index))
    cls = FORMATS[name]
    form = cls.build(pattern.validated(backend), backend, {**cls.default_options, **options})
    values = np.arange(1, rows.size + 1, dtype=scalar)
    backend.run(form.plan(Operation.REFRESH), {Slot.VALUES: values})
    val = getattr(form, "val", None)
    return form, (values if val is None else backend.to_host(val)).astype(int)


def in_columns(begin: int, height: int, width: int) -> np.ndarray:
    """(height, width) places of what is stored column by column."""
    return begin + np.arange(width) * height + np.arange(height)[:, None]


def padded(lines: list[np.ndarray]) -> np.ndarray:
    """Lines of different lengths as a rectangle."""
    places = np.full((len(lines), max(map(len, lines), default=0)), NOTHING)
    for line, entries in zip(places, lines, strict=True):
        line[: len(entries)] = entries
    return places


def row_names(rows: Any, count: int) -> tuple[str, ...]:
    """Names of lines: their rows, in order if None, and of what pads them."""
    known = range(SIZE) if rows is None else rows
    return tuple(f"row {known[k]}" if k < len(known) else "" for k in range(count))


def ellpack_pieces(form: Any) -> list[Piece]:
    return [
        Piece("the rectangle", in_columns(0, form.height, form.longest), row_names(None, form.height)),
    ]


def ellpackr_pieces(form: Any) -> list[Piece]:
    names = tuple(f"row {row}, rowmax {count}" for row, count in enumerate(form.rowmax))
    return [replace(piece, names=names) for piece in ellpack_pieces(form)]


def jds_pieces(form: Any) -> list[Piece]:
    diagonals = [np.arange(begin, end) for begin, end in zip(form.jd_ptr[:-1], form.jd_ptr[1:], strict=True)]
    places = padded(diagonals).T
    return [Piece("jagged diagonals, a column each", places, row_names(form.rows_of_positions(), len(places)))]


def sliced(offsets: np.ndarray, height: int, rows: Any) -> Iterator[Piece]:
    """A piece for each slice."""
    for s, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        names = row_names(rows, SIZE + height)[s * height : (s + 1) * height]
        yield Piece(f"slice {s}", in_columns(begin, height, (end - begin) // height), names)


def pjds_pieces(form: Any) -> list[Piece]:
    return list(sliced(form.slice_offsets, form.slice_height, form.row_perm))


def evchyb_pieces(form: Any) -> list[Piece]:
    slices = form.slices
    ell = list(sliced(slices.offsets[: slices.nell + 1], form.height, form.ell_rows))
    ell = [replace(piece, title=f"ELL part, {piece.title}") for piece in ell]
    offsets = slices.offsets[slices.nell :]
    lines = [np.arange(begin, end) for begin, end in zip(offsets[:-1], offsets[1:], strict=True)]
    return [*ell, Piece("vCSR part, a segment a line", padded(lines), row_names(slices.segment_row, len(lines)))]


def csr_pieces(form: Any) -> list[Piece]:
    lines = [np.arange(begin, end) for begin, end in zip(form.rowptr[:-1], form.rowptr[1:], strict=True)]
    return [Piece("rows", padded(lines), row_names(None, SIZE))]


def csradaptive_pieces(form: Any) -> list[Piece]:
    order = np.arange(SIZE) if form.row_perm is None else form.row_perm
    pieces, first = [], 0
    for r, count in enumerate(form.rows_of_range):
        rows = order[first : first + count]
        first += count
        if count:
            lines = padded([np.arange(form.rowptr[row], form.rowptr[row + 1]) for row in rows])
            threads = f"{2**r} threads a row" if r else "1 thread a row"
            pieces.append(Piece(f"range {r}, {threads}", lines, row_names(rows, count)))
    return pieces


def bsr_pieces(form: Any) -> list[Piece]:
    height, width = form.row_block, form.col_block
    pieces = []
    for b, (begin, end) in enumerate(zip(form.block_offsets[:-1], form.block_offsets[1:], strict=True)):
        blocks = [in_columns(block * height * width, height, width) for block in range(begin, end)]
        columns = ", ".join(str(column) for column in form.block_col[begin:end])
        names = row_names(range(b * height, (b + 1) * height), height)
        pieces.append(Piece(f"block row {b}: block columns {columns}", np.hstack(blocks), names))
    return pieces


PICTURES: dict[str, tuple[dict[str, Any], Callable[[Any], list[Piece]]]] = {
    "pjds": ({"slice_height": 8, "sigma_window": -1, "index": "full"}, pjds_pieces),
    "evchyb": ({"split_length": 4, "sigma_window": -1, "index": "full"}, evchyb_pieces),
    "bsr": ({"block_size": 2, "kernel": "k2"}, bsr_pieces),
    "csradaptive": ({}, csradaptive_pieces),
    "csrscalar": ({}, csr_pieces),
    "jds": ({"alignment": 4}, jds_pieces),
    "ellpack": ({}, ellpack_pieces),
    "ellpackr": ({}, ellpackr_pieces),
}
"""Options that each format is drawn with, and how."""


def colour(row: int) -> str:
    """Colours of neighbouring rows differ."""
    red, green, blue = colorsys.hls_to_rgb(row * 7 % SIZE / SIZE, 0.8, 0.75)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def cell(x: float, y: float, entry: int, rows: np.ndarray, columns: np.ndarray) -> Iterator[str]:
    """A place of an array: the colour of its row and the number of its column."""
    known = entry != PADDING
    yield svg.box(x, y, CELL_WIDTH - 1, CELL_HEIGHT - 1, colour(int(rows[entry - 1])) if known else PAD_COLOUR)
    if known:
        yield svg.text(x + CELL_WIDTH / 2, y + CELL_HEIGHT - 5, str(columns[entry - 1]), "middle")


def draw(name: str) -> str:
    """The picture of a format."""
    options, pieces_of = PICTURES[name]
    form, entries = stored(name, options)
    rows, columns = matrix()
    parts = [svg.text(MARGIN, MARGIN, "the matrix")]
    parts += [svg.box(MARGIN, 1.5 * MARGIN, SIZE * DOT, SIZE * DOT, "#f4f4f4")]
    parts += [
        svg.box(MARGIN + c * DOT, 1.5 * MARGIN + r * DOT, DOT - 1, DOT - 1, colour(int(r)))
        for r, c in zip(rows, columns, strict=True)
    ]
    y, right = float(MARGIN), 0.0
    for piece in pieces_of(form):
        parts.append(svg.text(LEFT, y, piece.title))
        y += GAP
        for line, words in zip(piece.places, piece.names, strict=True):
            parts.append(svg.text(LEFT - GAP, y + CELL_HEIGHT - 5, words, "end"))
            for k, place in enumerate(line):
                if place != NOTHING:
                    parts += cell(LEFT + k * CELL_WIDTH, y, int(entries[place]), rows, columns)
                    right = max(right, LEFT + (k + 1) * CELL_WIDTH)
            y += CELL_HEIGHT
        y += 2 * GAP
    y = max(y, 2.5 * MARGIN + SIZE * DOT) + GAP
    share = 1 - rows.size / entries.size
    parts.append(
        svg.text(MARGIN, y, f"the array of values, as it lies in memory: {entries.size} places, {share:.0%} padding")
    )
    y += GAP
    for k, entry in enumerate(entries):
        x = MARGIN + k % PER_LINE * CELL_WIDTH
        parts += cell(x, y + k // PER_LINE * CELL_HEIGHT, int(entry), rows, columns)
    y += (entries.size - 1) // PER_LINE * CELL_HEIGHT + CELL_HEIGHT + MARGIN
    width = max(right, MARGIN + PER_LINE * CELL_WIDTH) + MARGIN
    return svg.picture(round(width), round(y), f"What {name} stores of a matrix of {SIZE} rows", parts)


def main() -> None:
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(draw(name))


if __name__ == "__main__":
    main()
