"""A compiler that returns bytes and a driver that takes them, in place of NVRTC and of a GPU."""

import threading

from petsc_gpufmt.backends import compile, driver, kernel_store, nvrtc
from petsc_gpufmt.backends.kernel_store import Compiled
from petsc_gpufmt.errors import GpufmtError

CAPABILITY = (9, 0)


class FakeGpu:
    """What was compiled and loaded.

    Attributes
    ----------
    compiled : modules in the order in which they were begun
    loaded : images
    failing : stems whose kernels do not compile
    refused : images that the driver does not take
    may_go_on : threads wait for it before they compile anything, but the main one
    """

    def __init__(self):
        self.compiled, self.loaded, self.failing, self.refused = [], [], set(), set()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def compile_module(self, module, scalar, index, architecture):
        if threading.current_thread() is not threading.main_thread():
            assert self.may_go_on.wait(60)
        self.compiled.append(module)
        if module.stem in self.failing:
            raise GpufmtError(f"{module.stem} does not compile")
        image = f"{module.names[0]} {scalar.name} {index.name} {architecture}".encode()
        return Compiled({name: f"_Z{name}" for name in module.names}, image)

    def load_module(self, image):
        if image in self.refused:
            raise driver.DriverError(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image")
        self.loaded.append(image)
        return len(self.loaded)


def install(monkeypatch, cache, package):
    """A FakeGpu in place of compiler and driver; `cache` and `package` are the folders with compiled kernels."""
    gpu = FakeGpu()
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", str(cache))
    monkeypatch.setattr(kernel_store, "PACKAGE", str(package))
    monkeypatch.setattr(nvrtc, "compile_module", gpu.compile_module)
    monkeypatch.setattr(nvrtc, "architecture_for", lambda capability: "sm_{}{}".format(*capability))
    monkeypatch.setattr(driver, "compute_capability", lambda device: CAPABILITY)
    monkeypatch.setattr(driver, "load_module", gpu.load_module)
    monkeypatch.setattr(driver, "module_function", lambda module, name: (module, name))
    return gpu


def forget():
    """As if the process were new: nothing has been looked for, compiled or loaded."""
    compile.stop_compiling()
    compile._compilations.clear()
    for cached in (compile.device_function, compile.loaded_module, compile.known_folders, compile.compilation):
        cached.cache_clear()
    kernel_store.warn_once.cache_clear()
