"""MatMult called by a C program, ``benchmarks/mult_from_c.c``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from petsc_gpufmt import library_path
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.bench.matrices import STENCILS
from petsc_gpufmt.bench.programs import run_program

RUN_SECONDS = 180


def measure_from_c(program: Path, spec: str, matrix_type: str) -> dict[str, Any]:
    """One run of the program; its line of JSON as a dictionary."""
    stencil, _, points = spec.partition(":")
    if stencil not in STENCILS or not points.isdigit():
        raise BenchError(f"--matrix {spec}: the C program knows STENCIL:POINTS with one of {', '.join(STENCILS)}")
    options = ["-stencil", stencil.removesuffix("point"), "-n", points, "-mat_type", matrix_type]
    output = run_program([str(program), "-dll_append", str(library_path()), *options], RUN_SECONDS)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if len(lines) != 1:
        raise BenchError(
            f"{program} {' '.join(options)} printed {len(lines)} lines of JSON, one was expected:\n{output}"
        )
    return json.loads(lines[0])


def case_line(case: dict[str, Any]) -> str:
    times = f"host {case['host_seconds'] * 1e6:9.3f} us, back to back {case['back_to_back_seconds'] * 1e6:9.3f} us"
    return f"  {case['matrix']:18}{case['mat_type']:18}{case['vec_type']:10}{times}"
