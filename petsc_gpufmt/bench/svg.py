"""Pictures as SVG, made of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

GRID = "#dddddd"
FONT = 'font-family="sans-serif" font-size="13"'
STEPS = (1, 2, 5)


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1) -> str:
    pale = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{pale}/>'


def upright(x: float, top: float, bottom: float) -> str:
    """A line of a grid."""
    return f'<path d="M{x:.1f} {top:g}V{bottom:g}" stroke="{GRID}"/>'


def level(y: float, left: float, right: float) -> str:
    """A line of a grid."""
    return f'<path d="M{left:g} {y:.1f}H{right:g}" stroke="{GRID}"/>'


def dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'


def path(points: Sequence[tuple[float, float]], colour: str, width: float = 1, dashes: str = "") -> str:
    """A line through points; `dashes` are lengths of dashes and gaps."""
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'


def ticks(largest: float, most: int) -> list[float]:
    """0, and multiples of 1, 2 or 5 times a power of ten up to `largest`; at most so many beside 0."""
    step = next(
        digit * 10.0**power for power in range(-12, 100) for digit in STEPS if largest / (digit * 10.0**power) <= most
    )
    # the last one may be the largest but for rounding
    return [k * step for k in range(int(largest / step * (1 + 1e-9)) + 1)]


def picture(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Parts on a white ground; the title is for readers of the screen."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {FONT}>'
    lines = [head, f"<title>{escape(title)}</title>", box(0, 0, width, height, "#ffffff"), *parts, "</svg>"]
    return "\n".join(lines) + "\n"
