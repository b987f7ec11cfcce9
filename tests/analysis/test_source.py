"""The matrices of an analysis: what is read, and what is refused."""

import gzip
import struct

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")
scipy_io = pytest.importorskip("scipy.io")

from petsc_files import write_petsc_binary  # noqa: E402

from petsc_gpufmt.analysis import petsc_binary, source  # noqa: E402
from petsc_gpufmt.backends.native_library import petsc_types  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402

SCALAR, INDEX = petsc_types()
MATRIX_MARKET = "%%MatrixMarket matrix coordinate real general\n"
KINDS = ("mtx", "mtx.gz", "npz", "petsc")


def read(spec):
    return source.read_source(str(spec), SCALAR, INDEX)


@pytest.fixture
def matrix():
    made = scipy_sparse.random(30, 20, 0.2, format="csr", random_state=977)
    made.sort_indices()
    return made


def write(folder, kind, matrix):
    path = folder / f"a.{kind}"
    if kind == "petsc":
        return write_petsc_binary(path, matrix)
    if kind == "npz":
        scipy_sparse.save_npz(path, matrix)
        return path
    scipy_io.mmwrite(folder / "a.mtx", matrix, precision=17)
    if kind == "mtx.gz":
        path.write_bytes(gzip.compress((folder / "a.mtx").read_bytes()))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_read_as_they_were_written(tmp_path, matrix, kind):
    found = read(write(tmp_path, kind, matrix))
    assert found.has_values and found.block_size == 1
    assert found.matrix.shape == matrix.shape
    np.testing.assert_array_equal(found.matrix.indptr, matrix.indptr)
    np.testing.assert_array_equal(found.matrix.indices, matrix.indices)
    np.testing.assert_allclose(found.matrix.data, matrix.data, rtol=4 * np.finfo(SCALAR).eps)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_file_is_refused(tmp_path, matrix, kind):
    path = write(tmp_path, kind, matrix)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BenchError, match=f"^{path}: "):
        read(path)


def test_block_sizes_are_told_by_petsc_files_and_generators(tmp_path):
    matrix = scipy_sparse.kron(scipy_sparse.identity(4), np.ones((3, 3)), format="csr")
    assert read(write_petsc_binary(tmp_path / "blocks.petsc", matrix, block_size=3)).block_size == 3
    generated = read("7point:3x2")
    assert generated.block_size == 2 and not generated.has_values
    assert read("reservoir:1").block_size == 7


def test_columns_that_repeat_are_added_up(tmp_path):
    (tmp_path / "a.mtx").write_text(f"{MATRIX_MARKET}2 3 3\n2 3 1.5\n2 1 1.0\n2 3 2.0\n")
    found = read(tmp_path / "a.mtx").matrix
    np.testing.assert_array_equal(found.toarray(), [[0, 0, 0], [1, 0, 3.5]])
    law = read("powerlaw:500").matrix
    assert law.has_canonical_format and law.shape == (500, 500)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("text.mtx", "no matrix\n", "not a sparse matrix"),
        ("other.txt", "", "not a sparse matrix"),
        ("range.mtx", f"{MATRIX_MARKET}3 3 1\n4 1 1.0\n", "out of bounds"),
        ("huge.mtx", f"{MATRIX_MARKET}3 3 99999999999999\n1 1 1.0\n", "choose a smaller matrix"),
    ],
)
def test_text_that_is_no_matrix_is_refused(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(BenchError, match=f"^{tmp_path / name}: .*{complaint}"):
        read(tmp_path / name)


@pytest.mark.parametrize("member", ["indices", "indptr"])
def test_a_scipy_file_with_indices_out_of_range_is_refused(tmp_path, matrix, member):
    arrays = {"data": matrix.data, "indices": matrix.indices.copy(), "indptr": matrix.indptr.copy()}
    arrays[member][3] = 10**6
    np.savez(tmp_path / "range.npz", format=b"csr", shape=matrix.shape, **arrays)
    with pytest.raises(BenchError, match="not a sparse matrix"):
        read(tmp_path / "range.npz")


@pytest.mark.parametrize(
    ("place", "number", "complaint"),
    [
        (1, -5, "is damaged"),
        (3, -1, "dense matrix"),
        (3, 2**31 - 1, "truncated, or of another precision"),
        (4, 77, "do not add up"),
        (4 + 30, 20, r"column indices lie in \[0, 20\], outside of 20 columns"),
    ],
    ids=["rows", "dense", "truncated", "lengths", "columns"],
)
def test_a_petsc_file_is_checked_before_petsc_reads_it(tmp_path, monkeypatch, matrix, place, number, complaint):
    path = write_petsc_binary(tmp_path / "a.petsc", matrix)
    width = INDEX.itemsize
    content = bytearray(path.read_bytes())
    content[width * place : width * (place + 1)] = struct.pack(">i" if width == 4 else ">q", number)
    path.write_bytes(content)
    monkeypatch.setattr("petsc4py.PETSc.Viewer", lambda: pytest.fail("was read"))
    with pytest.raises(BenchError, match=f"^{path}: .*{complaint}"):
        read(path)


def test_a_petsc_file_that_petsc_refuses_is_one_line(tmp_path, matrix):
    """Its options beside it ask for blocks that 30 rows are not made of."""
    path = write_petsc_binary(tmp_path / "a.petsc", matrix)
    (tmp_path / "a.petsc.info").write_text("-matload_block_size 7\n")
    with pytest.raises(BenchError, match=rf"^{path}: PETSc cannot load it \(error \d+\)$"):
        read(path)


def test_a_file_that_cannot_be_opened_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "a.mtx").touch()

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(petsc_binary, "class_id", refuse)
    with pytest.raises(BenchError, match=r"a\.mtx: cannot be read \(Permission denied\)$"):
        read(tmp_path / "a.mtx")


def test_other_files_of_petsc_are_refused(tmp_path):
    (tmp_path / "vector").write_bytes(struct.pack(">ii", petsc_binary.VECTOR, 0))
    with pytest.raises(BenchError, match="a vector of PETSc"):
        read(tmp_path / "vector")
    other = ">qqqq" if INDEX.itemsize == 4 else ">iiii"
    (tmp_path / "other_indices").write_bytes(struct.pack(other, petsc_binary.MATRIX, 1, 1, 0))
    with pytest.raises(BenchError, match=f"with {INDEX} indices"):
        read(tmp_path / "other_indices")


@pytest.mark.parametrize(
    "spec", ["absent.mtx", "9point:4", "7point:", "7point:0", "27point:4x0", "reservoir:0", "powerlaw:", "powerlaw:0"]
)
def test_what_names_no_matrix_is_refused(spec):
    with pytest.raises(BenchError, match=f"^{spec}: .*give "):
        read(spec)


@pytest.mark.parametrize("spec", ["7point:400", "reservoir:20", "powerlaw:10000000"])
def test_a_matrix_larger_than_memory_is_refused_before_it_is_made(monkeypatch, spec):
    monkeypatch.setattr(source, "memory_bytes", lambda: 10**9)
    for maker in ("make_matrix", "power_law"):
        monkeypatch.setattr(source, maker, lambda *arguments: pytest.fail("was made"))
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 10**12}.get)
    with pytest.raises(BenchError, match="GB to analyse, and this machine has 1 GB"):
        read(spec)


@pytest.mark.parametrize("kind", ["mtx", "petsc"])
def test_a_file_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch, matrix, kind):
    path = write(tmp_path, kind, matrix)
    monkeypatch.setattr(source, "memory_bytes", lambda: 1000)
    monkeypatch.setattr(source, "read_pattern", lambda *arguments: pytest.fail("was read"))
    monkeypatch.setattr(petsc_binary, "load", lambda *arguments: pytest.fail("was read"))
    with pytest.raises(BenchError, match="30 rows and .* entries take"):
        read(path)


def test_memory_that_runs_out_is_one_line(tmp_path, monkeypatch, matrix):
    def fails(*arguments):
        raise MemoryError

    monkeypatch.setattr(source, "read_pattern", fails)
    with pytest.raises(BenchError, match="does not fit into the memory"):
        read(write(tmp_path, "mtx", matrix))
