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


REASONS: tuple[Reason, ...] = (
    Reason(
        ".*", "error", r"Mat\w*SetAIJ\(\) with MAT\w*KAIJ does not support", "MATKAIJ takes aij by its exact name alone"
    ),
    Reason(
        "ksp/ksp/tutorials/ex2 ex2_help ",
        "numbers",
        r"Matrix type \(one of\)",
        "-help lists the registered types, of which there are more",
    ),
)


def reason(task: str, kind: str, detail: str) -> str:
    """The first reason that fits, or ""."""
    for known in REASONS:
        if re.match(known.task, task) and kind in known.kinds.split() and re.search(known.detail, detail):
            return known.why
    return ""
