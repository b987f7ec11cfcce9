"""``python -m petsc_gpufmt info``."""

from __future__ import annotations

import argparse
import importlib.util
import os

import numpy as np
import petsc4py

from petsc_gpufmt.backends import driver, native_library
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.cli.compile import kernel_rows
from petsc_gpufmt.errors import UnsupportedError
from petsc_gpufmt.formats.common.base import Format
from petsc_gpufmt.spgemm.product import DEFAULT_OPTIONS, OPTION_NAMES
from petsc_gpufmt.version import __version__


def show_info(arguments: argparse.Namespace) -> int:
    from petsc4py import PETSc

    config = petsc4py.get_config()
    cuda = "with CUDA" if PETSc.Sys.hasExternalPackage("cuda") else "without CUDA"
    version = ".".join(map(str, PETSc.Sys.getVersion()))
    scalar, index = native_library.petsc_types()
    rows = [
        ("petsc_gpufmt", __version__),
        ("library", native_library.library_path()),
        (
            "PETSc",
            f"{version} {cuda}, {scalar} values, {index} indices, in {config['PETSC_DIR']} {config['PETSC_ARCH']}",
        ),
        ("petsc4py", petsc4py.__version__),
        *numpy_rows(),
        *gpu_rows(),
        *kernel_rows(),
        *(row for cls in FORMATS.values() for row in format_rows(cls)),
        ("products", "-mat_product_algorithm rmerge"),
        *(("", f"{OPTION_NAMES[option]} <{default}>") for option, default in DEFAULT_OPTIONS.items()),
    ]
    for label, text in rows:
        print(f"{label:14}{str(text).rstrip()}")
    return 0


def numpy_rows() -> list[tuple[str, str]]:
    """NumPy, and whether each process has to compile its modules: this one would have kept them."""
    folder = os.path.dirname(np.__file__)
    if os.path.exists(importlib.util.cache_from_source(np.__file__)):
        return [("NumPy", np.__version__)]
    remedy = f"python -m compileall -q {folder}"
    return [("NumPy", f"{np.__version__}, compiled anew by each process for 0.2 s: run `{remedy}` once")]


def gpu_rows() -> list[tuple[str, str]]:
    """The GPUs that the driver sees, and CuPy, which some formats and options need there."""
    try:
        rows = [(f"GPU {device}", describe_gpu(device)) for device in range(driver.device_count())]
    except UnsupportedError:
        return [("GPU", "none: NVIDIA's driver is not there")]
    except driver.DriverError as e:
        return [("GPU", f"none ({e})")]
    try:
        import cupy
    except ImportError as e:
        return [*rows, ("CuPy", f"not usable ({e}): formats and options that are not defaults need it on a GPU")]
    return [*rows, ("CuPy", cupy.__version__)]


def describe_gpu(device: int) -> str:
    """Name, memory and compute capability."""
    major, minor = driver.compute_capability(device)
    memory = driver.device_bytes(device) / 2**30
    return f"{driver.device_name(device)}, {memory:.0f} GiB, compute capability {major}.{minor}"


def format_rows(cls: type[Format]) -> list[tuple[str, str]]:
    rows = [("format", f"{cls.name}: -mat_type {cls.name}")]
    for option, default in cls.default_options.items():
        others = cls.words.get(option, ())[1:]
        rows.append(("", f"-mat_{cls.name}_{option} <{default}> {' '.join(others)}"))
    return rows
