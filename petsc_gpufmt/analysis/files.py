"""An analysis as JSON, and its formats as CSV, a row each."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

from petsc_gpufmt.analysis.analysis import Analysis, FormatRow

SCHEMA = 1


def as_json(analysis: Analysis) -> str:
    """All of an analysis: {"schema": 1, "matrix", "facts", "gpu", "formats": [...], "pick", "paste"}."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "matrix": analysis.name,
        "scalar": analysis.scalar,
        "index": analysis.index,
        "facts": dataclasses.asdict(analysis.facts),
        "gpu": dataclasses.asdict(analysis.gpu),
        "formats": [dataclasses.asdict(row) for row in analysis.rows],
        "pick": dataclasses.asdict(analysis.pick),
        "paste": analysis.paste,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_csv(analysis: Analysis) -> str:
    """A row for each format, under the names of FormatRow; before them matrix and GPU, and whether it is the pick."""
    text = io.StringIO()
    columns = [field.name for field in dataclasses.fields(FormatRow)]
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["matrix", "gpu", "picked", *columns])
    for row in analysis.rows:
        picked = int(row.name == analysis.pick.name)
        table.writerow([analysis.name, analysis.gpu.name, picked, *dataclasses.astuple(row)])
    return text.getvalue()
