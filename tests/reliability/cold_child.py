"""A process that starts and asks for all default kernels; started by cold_start.py, which says what is planted.

It prints what was wrong, how many modules it has compiled, and the warnings that a user would have seen.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "support")]

import fake_gpu  # noqa: E402
import numpy as np  # noqa: E402
import petsc4py  # noqa: E402
import pytest  # noqa: E402

petsc4py.init(["cold_start", "-options_left", "no"])

from petsc4py import PETSc  # noqa: E402

import petsc_gpufmt  # noqa: E402, F401
from petsc_gpufmt import tuned_options  # noqa: E402
from petsc_gpufmt.backends import compile, kernel_store  # noqa: E402
from petsc_gpufmt.backends.kernel_modules import default_modules  # noqa: E402
from petsc_gpufmt.planning import start  # noqa: E402, F401  all that declares kernels
from petsc_gpufmt.user_cache import user_cache  # noqa: E402
from reliability.operations import Maker  # noqa: E402

F8, I4 = np.dtype(np.float64), np.dtype(np.int32)
MODEL = "Attacked GPU"
OPTIONS = {"pjds": {"*": {"slice_height": 32}}}


def all_kernels(planted):
    """Each default module through the real store, with a compiler that tells what it is asked for."""
    gpu, bad = fake_gpu.install(pytest.MonkeyPatch(), Path(user_cache(), "simulated"), "/nowhere"), []
    if planted == "trusting":
        kernel_store.Folder.read = trusting
    if planted == "forgetful":
        kernel_store.Folder.write = lambda *_: None
    for module in default_modules():
        before = len(gpu.loaded)
        _, symbols = compile.loaded_module(module, F8, I4, 0)
        image = f"{module.names[0]} float64 int32 sm_90".encode()
        if symbols != {name: f"_Z{name}" for name in module.names} or gpu.loaded[before:] != [image]:
            bad.append(f"{module.stem}: another module than was asked for")
    compile.stop_compiling()
    return len(gpu.compiled), bad


def trusting(folder, module):
    """With a defect, for the test that the attack finds it: whatever is there is taken."""
    try:
        contents = Path(folder.file(module)).read_bytes().partition(b"\n")[2]
        table, _, image = contents.partition(b"\n\n")
        return kernel_store.Compiled(kernel_store.symbols_in(table), image)
    except (OSError, ValueError):
        return None


def tune():
    """Reads the tuned options, and saves some if there is no file, as `petsc-gpufmt tune` does."""
    found, path = tuned_options.known_options(MODEL), tuned_options.cache_file(MODEL)
    if not path.exists():
        with contextlib.suppress(OSError):
            tuned_options.save_tuning(path, MODEL, OPTIONS, {})
    return [] if found in ({}, OPTIONS) else [f"tuned options {found}"]


def product():
    """A product of a matrix, on a device with the kernels of this cache."""
    A = Maker("aijpjds", PETSc.COMM_SELF).square()
    x, y = A.createVecs()
    x.set(1.0)
    A.mult(x, y)
    rowptr, _, values = A.getValuesCSR()
    return [] if np.allclose(y.getArray(), np.add.reduceat(values, rowptr[:-1])) else ["a wrong product"]


def main():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        bad = product()
        compiled, wrong = all_kernels(sys.argv[1])
        bad += wrong + tune()
    said = {"bad": bad, "compiled": compiled, "warnings": [str(w.message) for w in seen]}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
