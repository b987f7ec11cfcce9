"""The texts of the kernels, and the flags that they are compiled with."""

from __future__ import annotations

import functools
import os
import zlib
from pathlib import Path

import numpy as np

C_NAMES = {
    np.dtype(np.float64): "double",
    np.dtype(np.float32): "float",
    np.dtype(np.complex128): "Complex<double>",
    np.dtype(np.complex64): "Complex<float>",
    np.dtype(np.int32): "int",
    np.dtype(np.int64): "long long",
}


def kernel_directory() -> Path:
    """Where the .cu files are: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def compile_flags(scalar: np.dtype, index: np.dtype) -> tuple[str, ...]:
    """Options that every compiler of the kernels takes, NVRTC and the host compiler of the emulation."""
    return ("-std=c++17", f"-DSCALAR={C_NAMES[scalar]}", f"-DINDEX={C_NAMES[index]}")


def device_flags(scalar: np.dtype, index: np.dtype) -> tuple[str, ...]:
    """Options of NVRTC. The limit is for kernels whose launch bounds set none: ptxas does not spill to reach 32.

    Lambdas without a word of where they run are of the device: before CUDA 13.1 NVRTC refuses them otherwise.
    """
    return (*compile_flags(scalar, index), "--maxrregcount=40", "--device-as-default-execution-space")


@functools.cache
def source_digest() -> str:
    """Changes with any text that is compiled for a device."""
    directory, crc, adler = str(kernel_directory()), 0, 1
    for room in sorted(os.listdir(directory)):
        folder = os.path.join(directory, room)
        for name in sorted(os.listdir(folder)) if room != "host" and os.path.isdir(folder) else ():
            if name.endswith((".cu", ".cuh")):
                with open(os.path.join(folder, name), "rb") as file:
                    text = f"{room}/{name}\n".encode() + file.read()
                crc, adler = zlib.crc32(text, crc), zlib.adler32(text, adler)
    return f"{crc:08x}{adler:08x}"
