"""Compiled kernels on disk: what is read back, and what never is."""

import hashlib
import os
import zlib

import numpy as np
import pytest

from petsc_gpufmt.backends import kernel_sources, kernel_store, native_library
from petsc_gpufmt.backends.kernel_modules import Module
from petsc_gpufmt.backends.kernel_store import Compiled, Folder

F8, I4 = np.dtype(np.float64), np.dtype(np.int32)
MODULE = Module("formats/pjds", ("pjds_spmv<1,7>", "pjds_slice_sizes"))
SYMBOLS = {"pjds_spmv<1,7>": "_Z9pjds_spmvILi1E", "pjds_slice_sizes": "_Z16pjds_slice_sizes"}
COMPILED = Compiled(SYMBOLS, b"\x7fELF\n\n\x00machine code")


@pytest.fixture
def folder(tmp_path):
    made = Folder(str(tmp_path), "sm_90", F8, I4)
    made.write(MODULE, COMPILED)
    return made


def file_of(folder):
    """The bytes of the only file."""
    (name,) = os.listdir(folder.path)
    return os.path.join(folder.path, name)


def test_a_module_is_read_as_it_was_written(folder):
    assert folder.read(MODULE) == COMPILED
    assert folder.missing([MODULE]) == [] and folder.nbytes([MODULE]) == os.path.getsize(file_of(folder))


def test_what_was_never_written_is_missing(folder):
    other = Module("formats/pjds", ("pjds_spmv<1,4>",))
    assert folder.read(other) is None and folder.missing([MODULE, other]) == [other]


@pytest.mark.parametrize("keep", [0, 10, 60, -1], ids=lambda n: f"{n} bytes")
def test_a_truncated_file_is_not_used(folder, keep):
    with open(file_of(folder), "rb") as file:
        data = file.read()
    with open(file_of(folder), "wb") as file:
        file.write(data[:keep])
    assert folder.read(MODULE) is None


def test_a_changed_file_is_not_used(folder):
    with open(file_of(folder), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    assert folder.read(MODULE) is None


def test_no_changed_byte_goes_unseen(folder):
    with open(file_of(folder), "rb") as file:
        data = file.read()
    for place in range(len(data)):
        with open(file_of(folder), "wb") as file:
            file.write(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert folder.read(MODULE) is None, place


def test_a_change_that_sums_do_not_see_is_seen(folder):
    with open(file_of(folder), "rb") as file:
        data = bytearray(file.read())
    before, contents = zlib.adler32(data), len(data) - len(COMPILED.image)
    for place, change in zip(range(contents, contents + 3), (1, -2, 1), strict=True):
        data[place] += change
    assert zlib.adler32(data) == before
    with open(file_of(folder), "wb") as file:
        file.write(data)
    assert folder.read(MODULE) is None


@pytest.mark.parametrize("key", ["", "k", "k" * 50, "k" * 64], ids=len)
def test_the_digest_is_that_of_hashlib(tmp_path, key):
    path = str(tmp_path / "file")
    for nbytes in (0, 1, 127, 128, 129, 255, 256, 257, 5000):
        contents = bytes(k * 7 % 251 for k in range(nbytes))
        digest = hashlib.blake2b(contents, digest_size=32, key=key.encode()).hexdigest()
        with open(path, "wb") as file:
            file.write(f"format {nbytes} {digest}\n".encode() + contents)
        assert native_library.module_file(path, "format", key) == contents
        assert native_library.module_file(path, "format", "?" + key[1:]) is None


@pytest.mark.parametrize("other", [("sm_80", F8, I4), ("sm_90", np.dtype(np.float32), I4)], ids=["arch", "scalar"])
def test_a_file_of_another_folder_is_not_used(folder, tmp_path, other):
    elsewhere = Folder(str(tmp_path), *other)
    os.makedirs(elsewhere.path)
    os.rename(file_of(folder), elsewhere.file(MODULE))
    assert elsewhere.read(MODULE) is None


def test_a_file_of_other_kernels_is_not_used(folder):
    other = Module("formats/pjds", ("pjds_spmv<1,4>",))
    os.rename(file_of(folder), folder.file(other))
    assert folder.read(other) is None


def test_another_version_of_a_kernel_is_another_folder(folder, tmp_path, monkeypatch):
    for cached in (kernel_sources.source_digest, kernel_store.version):
        cached.cache_clear()
    text = tmp_path / "kernels" / "formats" / "pjds.cu"
    text.parent.mkdir(parents=True)
    text.write_text("__global__ void pjds_slice_sizes() {}")
    monkeypatch.setattr(kernel_sources, "kernel_directory", lambda: tmp_path / "kernels")
    paths = set()
    for change in ("", "// changed", "// changed again"):
        with open(text, "a") as file:
            file.write(change)
        changed = Folder(str(tmp_path), "sm_90", F8, I4)
        paths.add(changed.path)
        assert changed.read(MODULE) is None
        kernel_sources.source_digest.cache_clear()
        kernel_store.version.cache_clear()
    assert len(paths) == 3


def test_headers_change_the_version_and_host_functions_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_sources, "kernel_directory", lambda: tmp_path)
    digests = []
    for name in ("common/scan.cuh", "host/scan.h", "common/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        kernel_sources.source_digest.cache_clear()
        digests.append(kernel_sources.source_digest())
    kernel_sources.source_digest.cache_clear()
    assert digests[0] == digests[1] == digests[2]
    (tmp_path / "common/scan.cuh").write_text("other")
    assert kernel_sources.source_digest() != digests[0]
    kernel_sources.source_digest.cache_clear()


def test_a_place_that_takes_no_files_is_one_warning(tmp_path, monkeypatch):
    kernel_store.warn_once.cache_clear()
    (tmp_path / "file").touch()
    unwritable = Folder(str(tmp_path / "file" / "below"), "sm_90", F8, I4)
    with pytest.warns(UserWarning, match="compiled kernels are not kept .*set PETSC_GPUFMT_CACHE") as warned:
        for _ in range(3):
            unwritable.keep(MODULE, COMPILED)
    assert len(warned) == 1
    with pytest.raises(OSError):
        unwritable.write(MODULE, COMPILED)


def test_a_write_that_fails_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda source, target: (_ for _ in ()).throw(OSError("full")))
    other = Module("formats/pjds", ("pjds_slice_sizes",))
    with pytest.raises(OSError, match="full"):
        folder.write(other, COMPILED)
    assert len(os.listdir(folder.path)) == 1


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((9, 0), ["sm_90", "compute_90", "compute_80"]),
        ((8, 9), ["sm_86", "sm_80", "compute_80"]),
        ((8, 0), ["sm_80", "compute_80"]),
        ((10, 3), ["sm_100", "compute_90", "compute_80"]),
        ((7, 5), []),
    ],
    ids=str,
)
def test_a_gpu_takes_code_of_its_family_and_older_ptx(capability, expected):
    names = ["compute_80", "compute_90", "sm_80", "sm_86", "sm_90", "sm_100"]
    assert kernel_store.usable(names, capability) == expected


def test_the_package_comes_before_the_cache_and_machine_code_before_ptx(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_store, "PACKAGE", str(tmp_path / "package"))
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", str(tmp_path / "cache"))
    places = (str(tmp_path / "package"), str(tmp_path / "cache" / "kernels"))
    for place, architecture in ((places[0], "compute_80"), (places[0], "sm_90"), (places[1], "sm_90")):
        Folder(place, architecture, F8, I4).write(MODULE, COMPILED)
    os.makedirs(os.path.join(places[0], kernel_store.version(F8, I4), "other"))

    found = kernel_store.folders((9, 0), F8, I4)

    assert [(folder.architecture, folder.path.startswith(places[0])) for folder in found] == [
        ("sm_90", True),
        ("sm_90", False),
        ("compute_80", True),
    ]
    assert list(kernel_store.folders((9, 0), F8, np.dtype(np.int64))) == []


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", "/named")
    assert kernel_store.cache_place() == "/named/kernels"
    monkeypatch.delenv("PETSC_GPUFMT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert kernel_store.cache_place() == "/xdg/petsc_gpufmt/kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/own")
    assert kernel_store.cache_place() == "/own/.cache/petsc_gpufmt/kernels"
