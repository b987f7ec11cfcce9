"""Calls of the compiler of kernels, in the order that it wants, and what is said where it refuses."""

import numpy as np
import pytest

from petsc_gpufmt.backends import nvrtc
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.errors import GpufmtError, UnsupportedError

MODULE = Module("formats/pjds", ("pjds_spmv<32,1,4>",))
TYPES = np.dtype(np.float64), np.dtype(np.int32)


class NvrtcError(RuntimeError):
    """What CuPy's binding raises."""


class Compiler:
    """In the place of CuPy's binding: it notes its calls, and refuses where it has something to say."""

    NVRTCError = NvrtcError

    def __init__(self, log=""):
        self.log, self.calls = log, []

    def getVersion(self):  # noqa: N802
        return 12, 4

    def getSupportedArchs(self):  # noqa: N802
        return [80, 90]

    def createProgram(self, source, name, headers, names):  # noqa: N802
        assert "pjds_spmv" in source
        return name

    def addNameExpression(self, program, name):  # noqa: N802
        self.calls.append(name)

    def compileProgram(self, program, flags):  # noqa: N802
        self.calls.append(next(flag for flag in flags if flag.startswith("-arch")))
        if self.log:
            raise NvrtcError("NVRTC_ERROR_COMPILATION")

    def getProgramLog(self, program):  # noqa: N802
        return self.log

    def getPTX(self, program):  # noqa: N802
        return b"ptx"

    def getCUBIN(self, program):  # noqa: N802
        return b"cubin"

    def getLoweredName(self, program, name):  # noqa: N802
        return f"_Z{name}"

    def destroyProgram(self, program):  # noqa: N802
        self.calls.append("destroyed")


@pytest.fixture
def compiler(monkeypatch):
    made = Compiler()
    monkeypatch.setattr(nvrtc, "binding", lambda: made)
    return made


@pytest.mark.parametrize(
    ("capability", "architecture", "image"), [((9, 0), "sm_90", b"cubin"), ((10, 0), "compute_90", b"ptx")]
)
def test_a_module_is_compiled_for_a_gpu(compiler, capability, architecture, image):
    assert nvrtc.architecture_for(capability) == architecture
    compiled = nvrtc.compile_module(MODULE, *TYPES, architecture)
    assert compiled == ({MODULE.names[0]: f"_Z{MODULE.names[0]}"}, image)
    assert compiler.calls == [MODULE.names[0], f"-arch={architecture}", "destroyed"]


def test_a_gpu_older_than_all_that_are_known_is_refused(compiler):
    with pytest.raises(UnsupportedError, match=r"NVRTC 12.4 compiles for compute capability 8.0 and later, .* has 7.0"):
        nvrtc.architecture_for((7, 0))


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("warning: unused\npjds.cu(3): error: no such type\nmore", r"pjds.cu\(3\): error: no such type"),
        ("?", "NvrtcError: NVRTC_ERROR_COMPILATION$"),
    ],
)
def test_a_kernel_that_does_not_compile_is_named_with_the_first_error(compiler, log, reason):
    compiler.log = log
    with pytest.raises(
        GpufmtError, match=rf"^pjds_spmv<32,1,4> of formats/pjds.cu does not compile for sm_90: {reason}"
    ):
        nvrtc.compile_module(MODULE, *TYPES, "sm_90")
    assert compiler.calls[-1] == "destroyed"
