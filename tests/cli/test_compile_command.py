"""The command compile, and what info says of compiled kernels; the compiler is a function that returns bytes."""

import os
import subprocess
import sys

import fake_gpu
import pytest

from petsc_gpufmt.backends import driver, kernel_store, native_library, nvrtc
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.kernel_store import Folder
from petsc_gpufmt.cli import compile as command
from petsc_gpufmt.cli.main import main
from petsc_gpufmt.errors import UnsupportedError

MODULES = [Module("formats/pjds", ("pjds_a<1>", "pjds_a<2>")), Module("patterns/csr", ("csr_c",))]
KNOWN = [(8, 0), (9, 0), (10, 0)]


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine with NVRTC and no GPU."""

    def no_driver():
        raise UnsupportedError("no driver")

    monkeypatch.setattr(command, "default_modules", lambda: list(MODULES))
    monkeypatch.setattr(command, "PACKAGE", str(tmp_path / "package"))
    monkeypatch.setattr(nvrtc, "supported_capabilities", lambda: KNOWN)
    monkeypatch.setattr(driver, "device_count", no_driver)
    return fake_gpu.install(monkeypatch, tmp_path / "cache", tmp_path / "package")


def folder(place, architecture):
    return Folder(str(place), architecture, *native_library.petsc_types())


def test_without_a_gpu_it_compiles_for_common_ones_and_ptx_for_later_ones(gpu, tmp_path, capsys):
    assert main(["compile"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = tmp_path / "cache" / "kernels"
    for line, architecture in zip(lines, ("sm_80", "sm_90", "sm_100", "compute_100"), strict=False):
        there = folder(place, architecture)
        assert line == f"{architecture:12}2 of 2 modules of kernels, {there.nbytes(MODULES) / 1e6:.1f} MB"
        assert there.missing(MODULES) == [] and there.read(MODULES[0]).image.endswith(architecture.encode())
    assert len(lines) == 5 and lines[-1].startswith(f"in {place}, after ")


def test_the_gpus_that_are_there_are_compiled_for(gpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(driver, "device_count", lambda: 3)
    monkeypatch.setattr(driver, "compute_capability", lambda device: KNOWN[device > 0])
    assert main(["compile"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["sm_80", "sm_90", "in"]


@pytest.mark.parametrize("words", [["--arch", "sm_90, sm_80"], ["--arch", "sm_90", "--arch", "sm_80,sm_90"]])
def test_architectures_are_a_list_or_repeated(gpu, words, capsys):
    assert main(["compile", *words]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["sm_90", "sm_80", "in"]


@pytest.mark.parametrize("name", ["sm_70", "sm_x", "90", "", "compute_123"])
def test_an_architecture_that_is_not_known_is_one_line(gpu, name, capsys):
    assert main(["compile", "--arch", f"sm_90,{name}"]) == 2
    expected = f"petsc_gpufmt: --arch {name}: NVRTC here compiles for sm_80, sm_90, sm_100, or for one of them as"
    shown = capsys.readouterr().err
    assert shown.startswith(expected) and shown.count("\n") == 1
    assert gpu.compiled == []


def test_what_the_compiler_is_too_old_for_is_left_out(gpu, monkeypatch, capsys):
    monkeypatch.setattr(nvrtc, "compiles", lambda module: module != MODULES[0])
    assert main(["compile", "--arch", "sm_90"]) == 0
    assert gpu.compiled == MODULES[1:]
    assert capsys.readouterr().out.splitlines()[0].startswith("sm_90       1 of 1 modules of kernels, ")


@pytest.mark.parametrize("option", ["--output", "--in-package"])
def test_they_are_put_where_they_are_asked_for(gpu, option, tmp_path, capsys):
    place = tmp_path / ("package" if option == "--in-package" else "elsewhere")
    words = [option] if option == "--in-package" else [option, str(place)]
    assert main(["compile", "--arch", "sm_90", *words]) == 0
    assert folder(place, "sm_90").missing(MODULES) == []
    assert not (tmp_path / "cache").exists()


def test_only_what_is_missing_or_damaged_is_compiled(gpu, tmp_path, capsys):
    words = ["compile", "--arch", "sm_90"]
    assert main(words) == 0 and main(words) == 0
    assert len(gpu.compiled) == 2
    os.truncate(folder(tmp_path / "cache" / "kernels", "sm_90").file(MODULES[1]), 20)
    assert main(words) == 0
    assert gpu.compiled[2:] == [MODULES[1]]


def test_what_the_package_has_is_not_compiled_for_the_user(gpu, tmp_path, capsys):
    assert main(["compile", "--arch", "sm_90", "--in-package"]) == 0
    capsys.readouterr()
    assert main(["compile", "--arch", "sm_90"]) == 0
    package = tmp_path / "package"
    assert capsys.readouterr().out == f"sm_90       2 of 2 modules of kernels, 0.0 MB, in the package {package}\n"
    assert len(gpu.compiled) == 2 and not (tmp_path / "cache").exists()
    os.truncate(folder(package, "sm_90").file(MODULES[0]), 20)
    assert main(["compile", "--arch", "sm_90"]) == 0
    assert folder(tmp_path / "cache" / "kernels", "sm_90").missing(MODULES) == []


def test_kernels_that_do_not_compile_are_one_line(gpu, capsys):
    gpu.failing = {"patterns/csr"}
    assert main(["compile", "--arch", "sm_90"]) == 2
    assert capsys.readouterr().err == "petsc_gpufmt: patterns/csr does not compile\n"


def test_a_folder_that_takes_no_files_is_one_line(gpu, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["compile", "--arch", "sm_90", "--output", str(tmp_path / "file")]) == 2
    shown = capsys.readouterr().err
    assert "compiled kernels cannot be kept" in shown and "--output" in shown and shown.count("\n") == 1


def test_without_a_compiler_it_says_what_to_install():
    program = (
        "import sys; sys.modules['cupy'] = None\nfrom petsc_gpufmt.cli.main import main\nsys.exit(main(['compile']))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2 and found.stderr.count("\n") == 1, found
    assert "cannot be used (ModuleNotFoundError" in found.stderr and "pip install 'cupy-cuda13x[ctk]'" in found.stderr


def test_progress_is_one_line_on_a_terminal(gpu, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["compile", "--arch", "sm_90"]) == 0
    assert capsys.readouterr().out.startswith("\r1 of 2 modules\r2 of 2 modules\n")


def test_info_says_what_is_there(gpu, tmp_path, capsys):
    assert main(["info"]) == 0
    assert "kernels       not compiled ahead: run `petsc-gpufmt compile`\n" in capsys.readouterr().out
    assert main(["compile", "--arch", "sm_80", "--in-package"]) == main(["compile", "--arch", "sm_90"]) == 0
    os.unlink(folder(tmp_path / "package", "sm_80").file(MODULES[0]))
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert f"sm_80: 1 of 2 modules of kernels, 0.0 MB, in the package {tmp_path}/package\n" in text
    assert f"sm_90: 2 of 2 modules of kernels, 0.0 MB, in the cache {tmp_path}/cache/kernels\n" in text


def test_a_gpu_that_the_compiler_does_not_know_gets_ptx_of_an_older_one(monkeypatch):
    monkeypatch.setattr(nvrtc, "supported_capabilities", lambda: KNOWN)
    assert nvrtc.architecture_for((9, 0)) == "sm_90"
    assert nvrtc.architecture_for((12, 1)) == "compute_100"
    monkeypatch.setattr(nvrtc, "binding", lambda: type("Nvrtc", (), {"getVersion": lambda: (13, 0)}))
    with pytest.raises(UnsupportedError, match="NVRTC 13.0 compiles for compute capability 8.0 and later.*has 7.0"):
        nvrtc.architecture_for((7, 0))
    assert kernel_store.is_ptx("compute_100") and not kernel_store.is_ptx("sm_100")
