"""Compilation of the device kernels: flags, architecture and cache are decided here and nowhere else."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np

C_NAMES = {
    np.dtype(np.float64): "double",
    np.dtype(np.float32): "float",
    np.dtype(np.int32): "int",
    np.dtype(np.int64): "long long",
}


def kernel_directory() -> Path:
    """Where the .cu files are: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent
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
    """CUfunction handle of a kernel of ``kernels/<stem>.cu`` on `device`, which must be current.

    CuPy keeps the compiled code on disk.
    """
    import cupy

    name = instance_name(kernel, template_arguments)
    directory = kernel_directory()
    module = cupy.RawModule(
        code=f"{(directory / f'{stem}.cu').read_text()}\n// headers: {headers_digest(directory)}\n",
        options=(*device_flags(scalar, index), f"-I{directory}"),
        name_expressions=(name,),
    )
    function = module.get_function(name)
    LOADED_MODULES.append(module)
    return function.kernel.ptr


@functools.cache
def headers_digest(directory: Path) -> str:
    """Changes with any header: what CuPy keeps on disk goes by the text of a kernel, not by what that includes."""
    texts = b"".join(path.read_bytes() for path in sorted(directory.glob("*.cuh")))
    return hashlib.sha256(texts).hexdigest()


LOADED_MODULES: list[object] = []
"""Modules stay loaded for the life of the process: plans hold bare handles into them."""
