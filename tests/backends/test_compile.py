"""Where a kernel comes from: package, cache, or compiler; and how often it is loaded. Needs neither CuPy nor a GPU."""

import os
import stat
import subprocess
import sys
import threading

import fake_gpu
import numpy as np
import pytest

from petsc_gpufmt.backends import compile, driver, kernel_modules, kernel_sources, kernel_store, native_library
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.kernel_store import Compiled, Folder
from petsc_gpufmt.errors import GpufmtError
from petsc_gpufmt.planning import start  # noqa: F401  all that declares kernels

F8, I4 = np.dtype(np.float64), np.dtype(np.int32)
STEM = "formats/pjds"
DEFAULTS = [Module(STEM, ("pjds_a<1>", "pjds_a<2>")), Module(STEM, ("pjds_b",)), Module("patterns/csr", ("csr_c",))]


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Compiler and driver that keep count, with `DEFAULTS` declared as what is compiled ahead."""
    monkeypatch.setattr(compile, "default_modules", lambda: list(DEFAULTS))
    of_name = {name: module for module in DEFAULTS for name in module.names}
    monkeypatch.setattr(compile, "module_of", lambda stem, name: of_name.get(name) or Module(stem, (name,)))
    fake_gpu.forget()
    yield fake_gpu.install(monkeypatch, tmp_path / "cache", tmp_path / "package")
    fake_gpu.forget()


def function(kernel, template=(), stem=STEM, device=0):
    return compile.device_function(stem, kernel, template, F8, I4, device)


def in_place(place, architecture="sm_90"):
    """A folder of a place, with all of DEFAULTS in it."""
    folder = Folder(str(place), architecture, F8, I4)
    for module in DEFAULTS:
        folder.write(module, Compiled({name: f"_Z{name}" for name in module.names}, b"from " + str(place).encode()))
    return folder


@pytest.mark.double
def test_of_another_precision_only_what_copies_need_is_compiled_ahead(gpu, monkeypatch):
    monkeypatch.setattr(compile, "default_modules", lambda: [*DEFAULTS, Module("spgemm/hash", ("hash_d",))])
    compile.device_function(STEM, "pjds_b", (), np.dtype(np.float32), I4, 0)
    finish()
    assert sorted(gpu.compiled) == sorted(DEFAULTS)


def finish():
    """Wait for what is compiled ahead."""
    for begun in compile._compilations:
        for thread in begun._threads or ():
            thread.join()


def test_a_module_is_loaded_once_for_a_device(gpu, tmp_path):
    in_place(tmp_path / "package")
    handles = [function("pjds_a", (n,), device=device) for device in (0, 1) for n in (1, 2)]
    assert handles == [(1, "_Zpjds_a<1>"), (1, "_Zpjds_a<2>"), (2, "_Zpjds_a<1>"), (2, "_Zpjds_a<2>")]
    assert gpu.compiled == []


def test_files_are_named_in_turn_each_from_the_best_folder(gpu, tmp_path, monkeypatch):
    package, cache = in_place(tmp_path / "package"), in_place(tmp_path / "cache" / "kernels")
    os.unlink(package.file(DEFAULTS[2]))
    named = []
    monkeypatch.setattr(native_library, "name_kernels", lambda *file: named.append(file))
    late = {"patterns.csr": 1, "formats.pjds": 2}
    compile.name_kernels(lambda file: late.get(file.rsplit(".", 2)[0]), F8, I4, 0)
    pjds = sorted(package.file(module) for module in DEFAULTS[:2])
    assert [path for path, *_ in named] == [cache.file(DEFAULTS[2]), *pjds]
    named.clear()
    compile.name_kernels(lambda file: None if "pjds" in file else 0, F8, I4, 0)
    assert [path for path, *_ in named] == [cache.file(DEFAULTS[2])]
    (file,) = named
    assert native_library.module_file(*file).endswith(b"from " + str(tmp_path / "cache" / "kernels").encode())


def test_what_the_library_has_loaded_is_not_loaded_again(gpu, tmp_path, monkeypatch):
    folder = in_place(tmp_path / "package")
    contents = [(50, b"pjds_a<1> _Z1\npjds_a<2> _Z2"), (51, b"other _Z3")]
    taken = {folder.file(module): content for module, content in zip(DEFAULTS, contents, strict=False)}
    monkeypatch.setattr(native_library, "take_kernels", taken.get)
    assert function("pjds_a", (2,)) == (50, "_Z2") and gpu.loaded == []
    assert function("pjds_b") == (1, "_Zpjds_b") and len(gpu.loaded) == 1


@pytest.mark.parametrize("found", [True, False])
def test_the_wait_for_a_compiler_is_an_event_of_its_own(gpu, tmp_path, found):
    from petsc4py import PETSc

    PETSc.Log.begin()
    event = PETSc.Log.Event("GpufmtCompile")
    before = event.getPerfInfo()["count"]
    if found:
        in_place(tmp_path / "package")
    function("pjds_b")
    assert event.getPerfInfo()["count"] == before + (not found)


@pytest.mark.parametrize("place", ["package", "cache/kernels"])
def test_kernels_that_are_there_are_not_compiled(gpu, tmp_path, place):
    in_place(tmp_path / place)
    function("pjds_b")
    assert gpu.compiled == [] and gpu.loaded == [b"from " + str(tmp_path / place).encode()]


def test_what_is_asked_for_first_is_compiled_first_and_the_rest_is_kept_for_the_next_process(gpu, tmp_path):
    gpu.may_go_on.clear()
    function("pjds_b")
    assert gpu.compiled == [DEFAULTS[1]] and len(gpu.loaded) == 1
    gpu.may_go_on.set()
    finish()
    assert sorted(gpu.compiled) == sorted(DEFAULTS)
    fake_gpu.forget()
    for module in DEFAULTS:
        compile.loaded_module(module, F8, I4, 0)
    assert len(gpu.compiled) == len(DEFAULTS) and len(gpu.loaded) == 1 + len(DEFAULTS)


def test_what_a_thread_has_begun_is_waited_for(gpu):
    function("pjds_b")
    finish()
    function("pjds_a", (1,))
    function("csr_c", stem="patterns/csr")
    assert sorted(gpu.compiled) == sorted(DEFAULTS)


def test_a_kernel_of_other_options_is_compiled_alone_and_kept(gpu):
    function("pjds_other", (3,))
    assert gpu.compiled == [Module(STEM, ("pjds_other<3>",))]
    fake_gpu.forget()
    function("pjds_other", (3,))
    assert len(gpu.compiled) == 1


def test_kernels_of_another_version_are_compiled_anew(gpu, tmp_path, monkeypatch):
    in_place(tmp_path / "package")
    old = in_place(tmp_path / "cache" / "kernels")
    monkeypatch.setattr(kernel_store, "version", lambda scalar, index: "other")
    function("pjds_b")
    finish()
    assert sorted(gpu.compiled) == sorted(DEFAULTS) and b"from" not in b"".join(gpu.loaded)
    assert old.read(DEFAULTS[1]) is not None  # for those who have that version


def test_a_truncated_file_is_compiled_anew_and_replaced(gpu, tmp_path):
    folder = in_place(tmp_path / "cache" / "kernels")
    os.truncate(folder.file(DEFAULTS[1]), 50)
    function("pjds_b")
    assert gpu.compiled == [DEFAULTS[1]]
    assert folder.read(DEFAULTS[1]) is not None


def test_a_read_only_place_is_used_and_left_as_it_is(gpu, tmp_path):
    folder = in_place(tmp_path / "package")
    os.unlink(folder.file(DEFAULTS[0]))
    os.chmod(folder.path, stat.S_IRUSR | stat.S_IXUSR)
    function("pjds_b")
    function("pjds_a", (1,))
    finish()
    assert gpu.compiled == [DEFAULTS[0]]
    os.chmod(folder.path, stat.S_IRWXU)
    assert folder.missing(DEFAULTS) == [DEFAULTS[0]]


def test_without_a_place_to_keep_them_only_what_is_asked_for_is_compiled(gpu, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="not kept") as warned:
        function("pjds_b")
        function("pjds_a", (1,))
    assert len(warned) == 1 and gpu.compiled == [DEFAULTS[1], DEFAULTS[0]] and len(gpu.loaded) == 2


def test_without_threads_only_what_is_asked_for_is_compiled(gpu, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    function("pjds_b")
    function("pjds_a", (1,))
    assert gpu.compiled == [DEFAULTS[1], DEFAULTS[0]] and len(gpu.loaded) == 2


def test_what_does_not_compile_ahead_is_an_error_of_who_asks_for_it(gpu):
    gpu.failing = {"patterns/csr"}
    function("pjds_b")
    finish()
    function("pjds_a", (1,))
    with pytest.raises(GpufmtError, match="patterns/csr does not compile"):
        function("csr_c", stem="patterns/csr")


def test_what_a_driver_refuses_is_compiled_here(gpu, tmp_path):
    in_place(tmp_path / "package")
    gpu.refused = {b"from " + str(tmp_path / "package").encode()}
    function("pjds_b")
    assert gpu.loaded == [b"pjds_b float64 int32 sm_90"]


def test_a_device_without_memory_is_an_error(gpu, tmp_path, monkeypatch):
    in_place(tmp_path / "package")

    def refuse(image):
        raise driver.DriverMemoryError(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")

    monkeypatch.setattr(driver, "load_module", refuse)
    with pytest.raises(driver.DriverMemoryError):
        function("pjds_b")
    assert gpu.compiled == []


def test_nothing_is_begun_after_the_end(gpu):
    gpu.may_go_on.clear()
    function("pjds_b")
    begun = compile._compilations[0]
    begun._stopped = True
    gpu.may_go_on.set()
    compile.stop_compiling()
    assert len(gpu.compiled) <= 1 + len(begun._threads)
    function("pjds_a", (1,))
    assert DEFAULTS[0] in gpu.compiled


def test_a_process_that_finds_its_kernels_imports_no_compiler_and_no_threads(tmp_path):
    program = f"""
import sys
import threading
sys.path[:0] = {sys.path!r}
import numpy as np
from petsc_gpufmt.backends import compile, driver, kernel_store
from petsc_gpufmt.backends.kernel_modules import module_of
kernel_store.PACKAGE = {str(tmp_path)!r}
F8, I4 = np.dtype("f8"), np.dtype("i4")
module = module_of("formats/pjds", "pjds_slice_sizes")
kernel_store.Folder(kernel_store.PACKAGE, "sm_90", F8, I4).write(
    module, kernel_store.Compiled(dict.fromkeys(module.names, "symbol"), b"image"))
driver.compute_capability = lambda device: (9, 0)
driver.load_module = lambda image: 5
driver.module_function = lambda module, name: 7
before = set(sys.modules)
assert compile.device_function("formats/pjds", "pjds_slice_sizes", (), F8, I4, 0) == 7
print(sorted(set(sys.modules) - before), "cupy" in sys.modules, "concurrent.futures" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert found.stdout == "[] False False\n", found


@pytest.mark.slow
def test_two_processes_share_the_work(gpu, tmp_path):
    """What one process compiles ahead, the other does not; what both ask for, both may compile."""
    gpu.may_go_on.clear()
    function("pjds_b")
    program = f"""
import sys
import threading
sys.path[:0] = {sys.path!r}
import fake_gpu, numpy as np, pytest
from petsc_gpufmt.backends import compile
from petsc_gpufmt.backends.kernel_modules import Module
defaults = [Module(*m) for m in {[tuple(m) for m in DEFAULTS]!r}]
compile.default_modules = lambda: defaults
compile.module_of = lambda stem, name: next(m for m in defaults if name in m.names)
gpu = fake_gpu.install(pytest.MonkeyPatch(), {str(tmp_path / "cache")!r}, {str(tmp_path / "package")!r})
for name, stem in (("pjds_b", {STEM!r}), ("csr_c", "patterns/csr")):
    compile.device_function(stem, name, (), np.dtype("f8"), np.dtype("i4"), 0)
assert compile._compilations[0]._threads == []
print(len(gpu.compiled), len(gpu.loaded))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert found.stdout == "1 2\n", found
    gpu.may_go_on.set()
    finish()
    assert Module("patterns/csr", ("csr_c",)) not in gpu.compiled


@pytest.mark.slow
def test_python_ends_while_kernels_are_compiled_ahead(tmp_path):
    """The threads end after the module that they are at, and not after all."""
    program = f"""
import sys, time
sys.path[:0] = {sys.path!r}
import fake_gpu, numpy as np, pytest
from petsc_gpufmt.backends import compile, nvrtc
from petsc_gpufmt.backends.kernel_modules import Module
defaults = [Module("a", (f"k{{n}}",)) for n in range(1000)]
compile.default_modules = lambda: defaults
compile.module_of = lambda stem, name: Module(stem, (name,))
gpu = fake_gpu.install(pytest.MonkeyPatch(), {str(tmp_path)!r}, {str(tmp_path)!r})
at_once = nvrtc.compile_module
nvrtc.compile_module = lambda *arguments: (time.sleep(0.1), at_once(*arguments))[1]
compile.device_function("a", "k0", (), np.dtype("f8"), np.dtype("i4"), 0)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_instances_that_are_declared_have_one_module_each_and_a_kernel():
    modules = kernel_modules.default_modules()
    assert all(module.names for module in modules)
    names = [(module.stem, name) for module in modules for name in module.names]
    assert len(names) == len(set(names)) > 500
    for stem, name in names:
        text = (kernel_sources.kernel_directory() / f"{stem}.cu").read_text()
        assert f" {name.partition('<')[0]}(" in text, (stem, name)
        assert name in kernel_modules.module_of(stem, name).names
