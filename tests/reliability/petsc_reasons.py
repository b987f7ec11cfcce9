"""Why a test block of PETSc ends otherwise with a type of ours than with aij, where that is as it should be."""

from __future__ import annotations

import re
from typing import NamedTuple


class Reason(NamedTuple):
    """Patterns of a task's name, of kinds and of what was seen; and the reason."""

    task: str
    kinds: str
    detail: str
    why: str


REASONS: tuple[Reason, ...] = ()


def reason(task: str, kind: str, detail: str) -> str:
    """The first reason that fits, or ""."""
    for known in REASONS:
        if re.match(known.task, task) and kind in known.kinds.split() and re.search(known.detail, detail):
            return known.why
    return ""
