"""What the numbers were measured with."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy
import petsc4py

from petsc_gpufmt.version import __version__

COMMIT_VARIABLE = "PETSC_GPUFMT_COMMIT"
COMMAND_SECONDS = 20


def _first_line(*command: str) -> str | None:
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = finished.stdout.splitlines()
    return lines[0].strip() if finished.returncode == 0 and lines else None


def processor() -> str:
    """Model name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def gpu_environment() -> dict[str, Any]:
    """GPU, driver, CUDA and CuPy; empty without CuPy or a GPU."""
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except Exception:  # CuPy missing, or no driver: CuPy raises its own error classes
        return {}
    return {
        "gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "gpu_count": count,
        "driver": _first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "unknown",
        "cuda_driver": cupy.cuda.runtime.driverGetVersion(),
        "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
    }


@cache
def petsc_variables() -> dict[str, str]:
    """The assignments of PETSc's petscvariables file, with PETSC_DIR and PETSC_ARCH filled in."""
    config = petsc4py.get_config()
    text = Path(config["PETSC_DIR"], config["PETSC_ARCH"], "lib/petsc/conf/petscvariables").read_text()
    pairs = re.findall(r"^(\w+) *=[ \t]*(.*)$", text, re.MULTILINE)
    return {name: Template(value).safe_substitute(config).strip() for name, value in pairs}


def without_paths(options: str) -> str:
    """Configure options less those whose value is a path: where things lie on one machine tells others nothing."""
    return re.sub(r"(?<!\S)--?[\w-]+=/\S*\s*", "", options).strip()


def describe(commit: str | None = None) -> dict[str, Any]:
    """Versions, hardware, commit and date; the commit is `commit`, or PETSC_GPUFMT_COMMIT, or what git says."""
    from petsc4py import PETSc

    commit = (
        commit
        or os.environ.get(COMMIT_VARIABLE)
        or _first_line("git", "describe", "--always", "--dirty", "--abbrev=12")
    )
    return {
        "package": __version__,
        "commit": commit or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "processor": processor(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "petsc": ".".join(map(str, PETSc.Sys.getVersion())),
        "petsc4py": petsc4py.__version__,
        "petsc_scalar": numpy.dtype(PETSc.ScalarType).name,
        "petsc_index": numpy.dtype(PETSc.IntType).name,
        "petsc_configure_options": without_paths(petsc_variables().get("CONFIGURE_OPTIONS", "unknown")),
        **gpu_environment(),
    }
