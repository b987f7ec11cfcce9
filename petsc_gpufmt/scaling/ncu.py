"""What NVIDIA's profiler ncu counted of kernels, from its CSV: bytes of memory, and hit rates of caches."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from petsc_gpufmt.errors import UnsupportedError

VOLUME, FIRST_HITS, SECOND_HITS = "dram__bytes.sum", "l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"
METRICS = (VOLUME, FIRST_HITS, SECOND_HITS)
KERNEL, NAME, UNIT, VALUE = "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
UNITS = {"": 1.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "%": 1.0}
LARGEST_FILE = 1 << 26  # bytes
LONGEST_SHOWN = 60


class Counted(NamedTuple):
    """Medians over the launches of one kernel.

    Attributes
    ----------
    launches : how many there were
    volume : bytes that memory has read and written
    first_hits, second_hits : shares of 0 to 1
    """

    launches: int
    volume: float
    first_hits: float
    second_hits: float


def read_counts(path: Path) -> dict[str, Counted]:
    """Kernels by their names without template arguments, in the order of their first launch.

    Takes both forms of ``ncu --csv --metrics``: a line for each metric, and with ``--page raw`` a column, with units
    below the names. UnsupportedError for what is neither, or lacks one of METRICS.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UnsupportedError(f"--ncu {path}: it has more than {LARGEST_FILE >> 20} MiB; profile fewer launches")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise UnsupportedError(f"--ncu {path}: it cannot be read ({e}); give what ncu --csv has printed") from e
    lines = text.splitlines(keepends=True)
    first = next((k for k, line in enumerate(lines) if f'"{KERNEL}"' in line), None)  # before: lines of the program
    if first is None:
        raise UnsupportedError(f"--ncu {path}: no line has the column {KERNEL!r}; give what ncu --csv has printed")
    try:
        rows = [row for row in csv.DictReader(io.StringIO("".join(lines[first:]))) if row.get(KERNEL) is not None]
    except csv.Error as e:
        raise UnsupportedError(f"--ncu {path}: it is no CSV ({e}); give what ncu --csv has printed") from e
    values = _by_lines(rows, path) if NAME in (rows[0] if rows else {}) else _by_columns(rows, path)
    return {kernel: _counted(kernel, of_kernel, path) for kernel, of_kernel in values.items()}


Values = dict[str, dict[str, list[float]]]


def _by_lines(rows: Sequence[dict[str, str]], path: Path) -> Values:
    found: Values = {}
    for row in rows:
        if row[NAME] in METRICS:
            value = _number(row.get(VALUE), row.get(UNIT) or "", path)
            found.setdefault(_plain(row[KERNEL]), {}).setdefault(row[NAME], []).append(value)
    return found


def _by_columns(rows: Sequence[dict[str, str]], path: Path) -> Values:
    found: Values = {}
    units = {name: rows[0].get(name) or "" for name in METRICS} if rows and not rows[0][KERNEL] else {}
    for row in rows[1:] if units else rows:
        for name in METRICS:
            if name in row:
                value = _number(row[name], units.get(name, ""), path)
                found.setdefault(_plain(row[KERNEL]), {}).setdefault(name, []).append(value)
    return found


def _plain(kernel: str) -> str:
    """``evchyb_spmv`` of ``void evchyb_spmv<8, 4, 1>(EvcHyb, const double *)``."""
    return next(iter(reversed(kernel.partition("(")[0].partition("<")[0].split())), "")


def _shown(text: str | None) -> str:
    """What a message says of a field, which may hold anything: one line of it."""
    return " ".join((text or "").split())[:LONGEST_SHOWN]


def _number(text: str | None, unit: str, path: Path) -> float:
    try:
        value = float((text or "").replace(",", "")) * UNITS[unit]
    except (ValueError, KeyError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise UnsupportedError(
            f"--ncu {path}: {_shown(text)!r} {_shown(unit)} is no count of bytes or percentage; "
            "profile again, with --print-units base"
        )
    return value


def _counted(kernel: str, values: dict[str, list[float]], path: Path) -> Counted:
    shown = _shown(kernel)
    if missing := [name for name in METRICS if not values.get(name)]:
        raise UnsupportedError(
            f"--ncu {path}: {_shown(kernel)} has no {missing[0]}; ask for --metrics {','.join(METRICS)}"
        )
    volume, first, second = (statistics.median(values[name]) for name in METRICS)
    if max(first, second) > 100:
        raise UnsupportedError(f"--ncu {path}: {shown} has a hit rate of {max(first, second):g} %; profile again")
    return Counted(len(values[VOLUME]), volume, first / 100, second / 100)
