"""What is compiled, and how often it is loaded; CuPy itself is not needed."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from petsc_gpufmt.backends import compile

F8, I4 = np.dtype(np.float64), np.dtype(np.int32)


class RawModule:
    made: list = []

    def __init__(self, code, options, name_expressions):
        self.code, self.options, self.names = code, options, name_expressions
        self.made.append(self)

    def get_function(self, name):
        return SimpleNamespace(kernel=SimpleNamespace(ptr=100 * len(self.made) + self.names.index(name)))


@pytest.fixture
def modules(monkeypatch):
    """The modules that are made."""
    monkeypatch.setattr(RawModule, "made", [])
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(RawModule=RawModule))
    for cached in (compile.device_function, compile.loaded_module):
        cached.cache_clear()
    yield RawModule.made
    for cached in (compile.device_function, compile.loaded_module):
        cached.cache_clear()


def test_an_instance_is_loaded_once_for_a_device(modules):
    handles = [compile.device_function("formats/pjds", "pjds_spmv", (3, 7), F8, I4, device) for device in (0, 0, 1)]

    assert [m.names for m in modules] == [("pjds_spmv<3,7>",)] * 2 and handles == [100, 100, 200]
    assert "-DSCALAR=double" in modules[0].options and "pjds_spmv" in modules[0].code


def test_kernels_that_are_used_together_are_loaded_together(modules):
    lengths, columns = (
        compile.device_function("spgemm/hash_symbolic", f"spgemm_hash_table_{what}", (8, 2, 32), F8, I4, 0)
        for what in ("lengths", "columns")
    )

    assert [m.names for m in modules] == [("spgemm_hash_table_lengths<8,2,32>", "spgemm_hash_table_columns<8,2,32>")]
    assert (lengths, columns) == (100, 101)


@pytest.mark.parametrize("family", compile.FAMILIES)
def test_those_are_in_one_file(family):
    texts = [path.read_text() for path in compile.kernel_directory().glob("*/*.cu")]

    assert sum(all(f" {name}(" in text for name in family) for text in texts) == 1
