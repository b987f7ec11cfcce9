"""Edits made to outputs before they are compared, each with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Filter:
    """An edit made to the output of the program and to the expected output before they are compared."""

    reason: str
    pattern: str
    action: str = "drop"  # drop: remove the lines that match; keep: remove the others; replace: edit within lines
    replacement: str = ""

    def apply(self, text: str) -> str:
        lines = text.splitlines()
        if self.action == "replace":
            lines = [re.sub(self.pattern, self.replacement, line) for line in lines]
        else:
            keep = self.action == "keep"
            lines = [line for line in lines if bool(re.search(self.pattern, line)) == keep]
        return "\n".join(lines)


FILTERS = {
    "parent": Filter(
        "the name of the type is printed; cut to that of the parent type, so that the rest of the line is compared",
        r"\b((?:seq|mpi)?aij)(?:pjds|cusparse|kokkos|sell)\b",
        "replace",
        r"\1",
    ),
    "vectors": Filter("the expected output is of vectors on a GPU", r"\b(seq|mpi)cuda\b", "replace", r"\1"),
    "storage": Filter(
        "our types add lines on their storage to -mat_view ::ascii_info and ::ascii_info_detail", r"^ {2,}storage:"
    ),
    "levels": Filter("our type of GAMG adds lines on the set-up of levels to -ksp_view", r"^ +gpufmt, level \d"),
    "smoothers": Filter("GAMG's smoothers on our types say in -ksp_view how they are solved", r"^ +petsc_gpufmt: "),
    "type": Filter("PETSc's own filter: the expected output is shared by several types", r"type"),
    "seqaij": Filter("PETSc's own filter: the expected output is shared by several types", "type: seqaij"),
    "object": Filter(
        "PETSc's own filter: the expected output is shared by sequential and parallel types", "Mat Object"
    ),
    "ranks": Filter("PETSc's own filter: an mpi type on one rank", " MPI process"),
    "inodes": Filter("the expected output is of a type that switches I-nodes off; ours keeps those of aij", "I-node"),
    "aij alone": Filter("the program makes this test with aij alone, by name", "Test MatISFixLocalEmpty"),
    "product": Filter(
        "the expected output is of a type with another product algorithm; ours names that of aij",
        r"MatPtAP\(\) implementation",
    ),
    "package": Filter("the expected output factors with cuSPARSE; our types use PETSc's own", "package used"),
    "hermitian": Filter("PETSc's own filter: the line depends on the scalar type", "variant HERMITIAN"),
    "reuse": Filter("PETSc's own filter: only these lines are compared", "^Submatrix reuse", "keep"),
    "benchmark": Filter("PETSc's own filter: timings", "Benchmarking"),
    "15 is 14": Filter(
        "PETSc's own filter: the count differs by one between compilers",
        r"CONVERGED_RTOL iterations 15",
        "replace",
        "CONVERGED_RTOL iterations 14",
    ),
    "8 is 7": Filter(
        "PETSc's own filter: the count differs by one between compilers",
        r"CONVERGED_RTOL iterations 8",
        "replace",
        "CONVERGED_RTOL iterations 7",
    ),
    "7 is 6": Filter(
        "PETSc's own filter: the count differs by one between compilers",
        r"CONVERGED_RTOL iterations 7",
        "replace",
        "CONVERGED_RTOL iterations 6",
    ),
}
