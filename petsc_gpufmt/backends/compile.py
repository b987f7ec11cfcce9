"""Compilation of the device kernels: flags, architecture and cache are decided here and nowhere else."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

C_NAMES = {
    np.dtype(np.float64): "double",
    np.dtype(np.float32): "float",
    np.dtype(np.int32): "int",
    np.dtype(np.int64): "long long",
}

# Kernels that are used one after the other: as one module they take half the time to compile and to load, 0.5 ms each.
FAMILIES = tuple(
    (f"{kernel}_lengths", f"{kernel}_columns")
    for kernel in ("rmerge_network", "spgemm_hash_table", "spgemm_hash_tables", "spgemm_hash_bitmap")
)


def kernel_directory() -> Path:
    """Where the .cu files are: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def compile_flags(scalar: np.dtype, index: np.dtype) -> tuple[str, ...]:
    """Options that every compiler of the kernels takes, NVRTC and the host compiler of the emulation."""
    return ("-std=c++17", f"-DSCALAR={C_NAMES[scalar]}", f"-DINDEX={C_NAMES[index]}")


def device_flags(scalar: np.dtype, index: np.dtype) -> tuple[str, ...]:
    """Options of NVRTC. The limit is for kernels whose launch bounds set none: ptxas does not spill to reach 32."""
    return (*compile_flags(scalar, index), "--maxrregcount=40")


def instance_name(kernel: str, template_arguments: tuple[int, ...]) -> str:
    """The C++ name of a kernel instance, such as ``pjds_spmv<32,1,4>``."""
    return f"{kernel}<{','.join(map(str, template_arguments))}>" if template_arguments else kernel


@functools.cache
def device_function(
    stem: str, kernel: str, template_arguments: tuple[int, ...], scalar: np.dtype, index: np.dtype, device: int
) -> int:
    """CUfunction handle of a kernel of ``kernels/<stem>.cu`` on `device`, which must be current."""
    family = next((names for names in FAMILIES if kernel in names), (kernel,))
    names = tuple(instance_name(name, template_arguments) for name in family)
    module = loaded_module(stem, names, scalar, index, device)
    return module.get_function(instance_name(kernel, template_arguments)).kernel.ptr


@functools.cache
def loaded_module(stem: str, names: tuple[str, ...], scalar: np.dtype, index: np.dtype, device: int) -> Any:
    """A module with kernel instances of ``kernels/<stem>.cu``; CuPy keeps the compiled code on disk.

    It stays loaded for the life of the process: plans hold bare handles into it.
    """
    import cupy

    directory = kernel_directory()
    return cupy.RawModule(
        code=f"{(directory / f'{stem}.cu').read_text()}\n// headers: {headers_digest(directory)}\n",
        options=(*device_flags(scalar, index), f"-I{directory}"),
        name_expressions=names,
    )


@functools.cache
def headers_digest(directory: Path) -> str:
    """Changes with any header: what CuPy keeps on disk goes by the text of a kernel, not by what that includes."""
    texts = b"".join(path.read_bytes() for path in sorted(directory.glob("*/*.cuh")))
    return hashlib.sha256(texts).hexdigest()
