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


BY_NAME = "the program wants aij by its exact name; PETSc's type aijperm ends likewise"
FORGOTTEN = "PETSc forgets a preallocation when the type changes after it; PETSc's type aijperm ends likewise"

REASONS: tuple[Reason, ...] = (
    Reason("mat/tests/ex237 ", "error", "Must indicate a MatAIJ input matrix", BY_NAME),
    Reason("mat/tests/(bench_spmv|ex72) ", "error", "Only AIJ and SBAIJ are supported", BY_NAME),
    Reason("mat/tests/ex267 ", "error", "No method choleskyfactor", BY_NAME),
    Reason("mat/tutorials/ex4 ", "error", "New nonzero at .* caused a malloc", FORGOTTEN),
    Reason("tao/tests/taotermtest2 ", "error", "Must set preallocation first", FORGOTTEN),
    Reason(
        ".*", "error", r"Mat\w*SetAIJ\(\) with MAT\w*KAIJ does not support", "MATKAIJ takes aij by its exact name alone"
    ),
    Reason(
        "ksp/ksp/tutorials/ex2 ex2_help ",
        "numbers",
        r"Matrix type \(one of\)",
        "-help lists the registered types, of which there are more",
    ),
    Reason(
        "mat/tests/ex250 ex250_2 ",
        "numbers",
        "",
        "aij is wrong: its algorithm backend goes on with the first factors (mpiaij.c:7105); ours is as PETSc expects",
    ),
    Reason(
        "snes/tutorials/ex8 ex8_fas_multiplicative_linesearch ",
        "numbers",
        "iterations 12",
        "another order of sums, that of evchyb: steps of NGMRES and of a line search enlarge the rounding",
    ),
)


def reason(task: str, kind: str, detail: str) -> str:
    """The first reason that fits, or ""."""
    for known in REASONS:
        if re.match(known.task, task) and kind in known.kinds.split() and re.search(known.detail, detail):
            return known.why
    return ""
