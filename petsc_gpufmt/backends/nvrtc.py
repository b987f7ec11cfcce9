"""The compiler of kernels, NVRTC, by CuPy's binding: imported only where something has to be compiled."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from petsc_gpufmt.backends.kernel_modules import ALL_COMPILERS, Module, compiler_for
from petsc_gpufmt.backends.kernel_sources import device_flags, kernel_directory
from petsc_gpufmt.backends.kernel_store import Compiled, capability_of, is_ptx
from petsc_gpufmt.errors import GpufmtError, UnsupportedError


@functools.cache
def binding() -> Any:
    """cupy.cuda.nvrtc, which needs no driver; UnsupportedError where it, or NVRTC, is not there."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as e:  # of CuPy's, of those of what it finds libraries with
        raise UnsupportedError(
            f"kernels are compiled by CuPy and NVRTC, which cannot be used ({first_line(e)}): "
            "pip install 'cupy-cuda13x[ctk]' (or cupy-cuda12x), or compile them elsewhere with `petsc-gpufmt compile`"
        ) from e
    return nvrtc


def first_line(e: Exception) -> str:
    """What an exception says first."""
    return f"{type(e).__name__}: {e}".splitlines()[0]


def supported(architecture: str) -> bool:
    """Whether the compiler knows an architecture, such as "sm_90" or "compute_90"."""
    return capability_of(architecture) in supported_capabilities()


def supported_capabilities() -> list[tuple[int, int]]:
    """Compute capabilities of the architectures that the compiler knows."""
    return [divmod(number, 10) for number in binding().getSupportedArchs()]


def compiles(module: Module) -> bool:
    """Whether the compiler is new enough for a module."""
    oldest = compiler_for(module)
    return oldest == ALL_COMPILERS or oldest <= binding().getVersion()


def architecture_for(capability: tuple[int, int]) -> str:
    """What is compiled for a GPU: its machine code, or PTX of the latest that is known if the GPU is later."""
    known = supported_capabilities()
    if capability in known:
        return "sm_{}{}".format(*capability)
    older = [c for c in known if c < capability]
    if not older:
        raise UnsupportedError(
            f"NVRTC {'.'.join(map(str, binding().getVersion()))} compiles for compute capability "
            f"{'.'.join(map(str, min(known)))} and later, this GPU has {'.'.join(map(str, capability))}: "
            "stay on the host with -device_enable none"
        )
    return "compute_{}{}".format(*max(older))


def compile_module(module: Module, scalar: np.dtype, index: np.dtype, architecture: str) -> Compiled:
    """Compile the kernels of a module. GpufmtError with the compiler's first error if it refuses."""
    nvrtc, directory = binding(), kernel_directory()
    source = (directory / f"{module.stem}.cu").read_text()
    program = nvrtc.createProgram(source, f"{module.stem}.cu", (), ())
    try:
        for name in module.names:
            nvrtc.addNameExpression(program, name)
        try:
            flags = (*device_flags(scalar, index), f"-arch={architecture}", f"-I{directory}")
            nvrtc.compileProgram(program, flags)
        except nvrtc.NVRTCError as e:
            log = nvrtc.getProgramLog(program).splitlines()
            reason = next((line for line in log if "error" in line), first_line(e))
            raise GpufmtError(
                f"{module.names[0]} of {module.stem}.cu does not compile for {architecture}: {reason}"
            ) from e
        image = nvrtc.getPTX(program) if is_ptx(architecture) else nvrtc.getCUBIN(program)
        symbols = {name: nvrtc.getLoweredName(program, name) for name in module.names}
    finally:
        nvrtc.destroyProgram(program)
    return Compiled(symbols, image)
