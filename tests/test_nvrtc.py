"""Every kernel instance that the formats ask for compiles for every architecture, within its registers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from builders import uniform
from option_sets import ALL_OPTION_SETS

from petsc_gpufmt.backend import Backend
from petsc_gpufmt.compile import device_flags, instance_name, kernel_directory
from petsc_gpufmt.plan import Launch, Operation, Slot
from petsc_gpufmt.registry import FORMATS, find_format

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="no NVRTC: pip install cuda-bindings nvidia-cuda-nvrtc")

try:
    nvrtc.nvrtcVersion()
except RuntimeError as e:
    pytest.skip(f"no NVRTC ({e}): pip install nvidia-cuda-nvrtc", allow_module_level=True)

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
OTHER_TYPES = [(np.float64, np.int64), (np.float32, np.int32), (np.float32, np.int64)]
# 2048 threads of a multiprocessor share 65536 registers: with 32 each all of them run at once, with 40 three quarters.
REGISTERS = 40
ALL = "all"
DEFAULT = "default"


class RecordingBackend(Backend):
    """Notes which kernels are asked for, and runs none."""

    name = "recording"
    xp = np

    def __init__(self, scalar: Any, index: Any, resident_threads: int):
        super().__init__(scalar, index)
        self.resident_threads = resident_threads
        self.instances: set[tuple[str, str, tuple[int, ...]]] = set()

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        self.instances.add((stem, kernel, template_arguments))
        return 1

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        pass

    def to_host(self, array: np.ndarray) -> np.ndarray:
        return array


@cache
def instances(scalar: Any, index: Any, options_covered: str) -> dict[str, list[str]]:
    """Names of each file's kernel instances, with all or default options, for one and for several threads a row."""
    backend = RecordingBackend(scalar, index, resident_threads=1 << 20)
    for format_name in FORMATS:
        cls = find_format(format_name)
        for options in ALL_OPTION_SETS[format_name] if options_covered == ALL else [{}]:
            for row_length in 2 ** np.arange(11):
                csr = uniform(1, int(row_length), int(row_length), seed=60).pattern(np, backend.index)
                for pattern in (csr, csr.transposed(np)):
                    stored = cls.build(pattern, backend, {**cls.default_options, **options})
                    for operation in Operation:
                        stored.plan(operation)
    names: dict[str, list[str]] = {}
    for stem, kernel, template_arguments in sorted(backend.instances):
        names.setdefault(stem, []).append(instance_name(kernel, template_arguments))
    return names


def compile_log(stem: str, names: list[str], scalar: Any, index: Any, architecture: str) -> str:
    """Compile instances of ``kernels/<stem>.cu`` as compile.py does; returns what the assembler says about each."""
    source = (kernel_directory() / f"{stem}.cu").read_bytes()
    program = checked(nvrtc.nvrtcCreateProgram(source, f"{stem}.cu".encode(), 0, [], []))
    for name in names:
        checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
    flags = [*device_flags(np.dtype(scalar), np.dtype(index)), f"-I{kernel_directory()}"]
    flags += [f"-arch={architecture}", "--ptxas-options=-v"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
    log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
    checked(nvrtc.nvrtcGetProgramLog(program, log))
    checked(nvrtc.nvrtcDestroyProgram(program))
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    return log.decode()


def checked(result: tuple) -> Any:
    status, *values = result
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    return values[0] if values else None


def check_instances(scalar: Any, index: Any, architecture: str, options_covered: str) -> None:
    for stem, names in instances(scalar, index, options_covered).items():
        log = compile_log(stem, names, scalar, index, architecture)
        registers = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
        spilled = [int(n) for n in re.findall(r"(\d+) bytes spill stores", log)]

        assert len(registers) == len(spilled) == len(names)
        assert max(registers) <= REGISTERS
        assert max(spilled) == 0
        assert "warning" not in log


def test_kernels_compile_within_their_registers():
    check_instances(np.float64, np.int32, "sm_90", DEFAULT)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_with_all_options_compile_within_their_registers(architecture):
    check_instances(np.float64, np.int32, architecture, ALL)


@pytest.mark.slow
@pytest.mark.parametrize(("scalar", "index"), OTHER_TYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_other_types_compile_within_their_registers(architecture, scalar, index):
    check_instances(scalar, index, architecture, DEFAULT)


def test_every_kernel_of_every_file_is_asked_for_by_a_format():
    for file in kernel_directory().glob("*.cu"):
        declared = set(re.findall(r"__global__\s+void\s+(?:__launch_bounds__\(.*?\)\s+)?(\w+)\(", file.read_text()))
        asked_for = {name.partition("<")[0] for name in instances(np.float64, np.int32, DEFAULT)[file.stem]}

        assert declared == asked_for
