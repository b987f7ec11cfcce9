"""Pieces of Markdown: tables, sections, numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are right-aligned."""
    lines = [heading, ["---", *["--:"] * (len(heading) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def section(title: str, *parts: str) -> str:
    """A heading and what stands below it; empty parts are left out."""
    return f"## {title}\n\n" + "\n".join(part for part in parts if part)


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent; a dash for None."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:.{max(0, digits - len(str(int(abs(rounded)))))}f}" if abs(rounded) >= 1 else f"{rounded:g}"


def microseconds(seconds: float) -> str:
    return number(seconds * 1e6)
