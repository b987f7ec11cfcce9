"""The user's cache is for its owner alone: how it is made, and when what lies there is not used."""

import os
import stat
import warnings

import numpy as np
import pytest

from petsc_gpufmt import tuned_options, user_cache
from petsc_gpufmt.backends import kernel_store
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.kernel_store import Compiled, Folder
from petsc_gpufmt.user_cache import UntrustedCacheError, make_folder, untrusted

MODULE = Module("formats/pjds", ("pjds_slice_sizes",))
COMPILED = Compiled({"pjds_slice_sizes": "_Z16pjds_slice_sizes"}, b"machine code")
GPU = "NVIDIA Test 100"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache that is not there yet, and no mask that would make its folders narrower."""
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", str(tmp_path / "cache"))
    before = os.umask(0)
    kernel_store.warn_once.cache_clear()
    tuned_options.known_options.cache_clear()
    yield tmp_path / "cache"
    os.umask(before)
    tuned_options.known_options.cache_clear()


def modules():
    return Folder(kernel_store.cache_place(), "sm_90", np.dtype(np.float64), np.dtype(np.int32))


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_new_cache_is_for_its_owner_alone(cache):
    modules().write(MODULE, COMPILED)
    tuned_options.save_tuning(tuned_options.cache_file(GPU), GPU, {}, {})

    made = [cache, *(path for path in cache.rglob("*") if path.is_dir())]
    assert len(made) == 6 and {mode(path) for path in made} == {0o700}
    assert modules().read(MODULE) == COMPILED


def test_folders_in_a_cache_that_was_there_are_for_the_owner_too(cache):
    cache.mkdir(mode=0o755)
    modules().write(MODULE, COMPILED)
    assert mode(cache) == 0o755 and mode(cache / "kernels") == 0o700


def test_a_folder_elsewhere_is_as_any_other(tmp_path):
    make_folder(str(tmp_path / "other" / "below"))
    assert mode(tmp_path / "other" / "below") == 0o777 and untrusted(str(tmp_path / "other")) is None


@pytest.mark.parametrize("bits", [0o770, 0o702, 0o777, 0o1777], ids=oct)
@pytest.mark.parametrize("which", ["", "kernels", "kernels/version"])
def test_where_others_can_write_nothing_is_used(cache, bits, which, monkeypatch):
    monkeypatch.setattr(kernel_store, "version", lambda scalar, index: "version")
    modules().write(MODULE, COMPILED)
    os.chmod(cache / which, bits)

    with pytest.warns(
        UserWarning, match="is not used: others can write there; chmod go-w it, or set PETSC_GPU"
    ) as told:
        assert list(kernel_store.folders((9, 0), np.dtype(np.float64), np.dtype(np.int32))) == []
        assert modules().read(MODULE) is None and modules().read(MODULE) is None
    assert len(told) == 1 and "\n" not in str(told[0].message)
    with pytest.raises(UntrustedCacheError, match="others can write"):
        modules().write(MODULE, COMPILED)


def test_a_cache_of_another_user_is_not_used(cache, monkeypatch):
    modules().write(MODULE, COMPILED)
    owner = os.stat(cache).st_uid
    monkeypatch.setattr(user_cache, "ROOT", owner + 1)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.warns(UserWarning, match="belongs to another user; set PETSC_GPUFMT_CACHE to a folder of yours"):
        assert modules().read(MODULE) is None
    with pytest.raises(UntrustedCacheError, match="another user"):
        modules().write(MODULE, COMPILED)


def test_a_cache_of_root_is_used(cache, monkeypatch):
    modules().write(MODULE, COMPILED)
    owner = os.stat(cache).st_uid
    monkeypatch.setattr(user_cache, "ROOT", owner)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert modules().read(MODULE) == COMPILED


def test_options_from_a_cache_that_others_can_write_are_not_used(cache):
    options = {"made": {"key": {"number": 3}}}
    tuned_options.save_tuning(tuned_options.cache_file(GPU), GPU, options, {})
    assert tuned_options.known_options(GPU) == options
    os.chmod(cache, 0o777)
    tuned_options.known_options.cache_clear()

    with pytest.warns(UserWarning, match="others can write there"):
        assert tuned_options.known_options(GPU) == {}


def test_a_cache_that_is_not_to_be_used_keeps_nothing_and_stops_nothing(cache):
    cache.mkdir(mode=0o777)
    with pytest.warns(UserWarning, match="compiled kernels are not kept .*others can write there"):
        modules().keep(MODULE, COMPILED)
    assert list(cache.iterdir()) == []
