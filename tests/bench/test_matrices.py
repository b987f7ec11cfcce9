"""The matrices of the benchmarks."""

from __future__ import annotations

import contextlib
import gzip
import os
import zipfile

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")
scipy_io = pytest.importorskip("scipy.io")

from petsc_gpufmt.bench import matrices, matrix_files  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402

SCALAR, INDEX = np.dtype(np.float64), np.dtype(np.int32)


def rng():
    return np.random.default_rng(977)


def make(spec):
    return matrices.make_matrix(str(spec), SCALAR, INDEX, rng())


def write_npz(path, *shape, density=0.2):
    matrix = scipy_sparse.random(*shape, density, format="csr", random_state=rng())
    matrix.sort_indices()
    scipy_sparse.save_npz(path, matrix)
    return matrix


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(("stencil", "power"), [("7point", 1), ("27point", 3)])
def test_stencil_is_the_kronecker_one(stencil, power, n):
    step = scipy_sparse.diags([1.0, 1.0, 1.0], [-1, 0, 1], shape=(n, n))
    identity = scipy_sparse.identity(n)
    if power == 1:
        terms = [(step, identity, identity), (identity, step, identity), (identity, identity, step)]
    else:
        terms = [(step, step, step)]
    expected = sum(scipy_sparse.kron(scipy_sparse.kron(a, b), c) for a, b, c in terms).tocsr()
    expected.eliminate_zeros()
    expected.sort_indices()

    rowptr, columns = matrices.stencil_pattern(stencil, n, INDEX)

    assert rowptr.dtype == columns.dtype == INDEX
    np.testing.assert_array_equal(rowptr, expected.indptr)
    np.testing.assert_array_equal(columns, expected.indices)


@pytest.mark.parametrize("stencil", ["7point", "27point"])
def test_slabs_of_a_stencil_are_its_rows(stencil):
    rowptr, columns = matrices.stencil_pattern(stencil, 4, INDEX)
    slabs = [matrices.stencil_pattern(stencil, 4, INDEX, rows) for rows in (range(1), range(1, 3), range(3, 4))]

    np.testing.assert_array_equal(np.concatenate([part for _, part in slabs]), columns)
    np.testing.assert_array_equal(np.concatenate([np.diff(part) for part, _ in slabs]), np.diff(rowptr))


def test_a_stencil_on_more_planes_goes_on_above():
    rowptr, columns = matrices.stencil_pattern("7point", 3, INDEX, planes=6)
    lower = matrices.stencil_pattern("7point", 3, INDEX, range(0, 3), 6)

    assert rowptr.size == 6 * 9 + 1 and columns.size == 7 * 54 - 2 * 9 - 4 * 18
    assert lower[1].size == matrices.stencil_pattern("7point", 3, INDEX)[1].size + 9
    np.testing.assert_array_equal(lower[1], columns[: lower[1].size])


@pytest.mark.parametrize("block_size", [2, 3, 7])
def test_blocks_take_the_place_of_entries(block_size):
    plain = make("7point:3").csr
    expected = scipy_sparse.kron(abs(plain), np.ones((block_size, block_size))).tocsr()
    expected.sort_indices()

    blocked = make(f"7point:3x{block_size}")

    assert blocked.name == f"7-point 3^3, {block_size} x {block_size} blocks"
    assert blocked.block_size == block_size
    assert blocked.csr.indptr.dtype == blocked.csr.indices.dtype == INDEX
    np.testing.assert_array_equal(blocked.csr.indptr, expected.indptr)
    np.testing.assert_array_equal(blocked.csr.indices, expected.indices)


@pytest.mark.parametrize("spec", ["27point:700", "27point:100x20"])
def test_matrix_too_large_for_the_index_is_refused(spec):
    with pytest.raises(BenchError, match="too many for the int32"):
        make(spec)


@pytest.mark.parametrize("suffix", matrices.SUFFIXES)
def test_files_give_the_pattern_and_values_are_random(tmp_path, suffix):
    matrix = scipy_sparse.random(30, 20, 0.2, format="csr", random_state=rng())
    matrix.data[:] = 1.0
    matrix.data[5] = 0.0  # a stored zero belongs to the pattern
    matrix.sort_indices()
    path = tmp_path / f"given{suffix}"
    if suffix == ".npz":
        scipy_sparse.save_npz(path, matrix)
    else:
        opener = gzip.open if suffix == ".mtx.gz" else open
        with opener(path, "wb") as stream:
            scipy_io.mmwrite(stream, matrix)

    found = make(path)

    assert (found.name, found.block_size) == ("given", 1)
    assert found.csr.shape == (30, 20)
    assert found.csr.indptr.dtype == found.csr.indices.dtype == INDEX
    np.testing.assert_array_equal(found.csr.indptr, matrix.indptr)
    np.testing.assert_array_equal(found.csr.indices, matrix.indices)
    assert np.unique(found.csr.data).size == matrix.nnz
    assert abs(found.csr.data).max() <= 0.5


def test_copies_stand_along_the_diagonal(tmp_path):
    matrix = write_npz(tmp_path / "a.npz", 7, 11)
    expected = scipy_sparse.kron(scipy_sparse.identity(3), matrix).tocsr()
    expected.sort_indices()

    found = make(f"{tmp_path / 'a.npz'}*3")

    assert found.name == "a x3"
    assert found.csr.shape == (21, 33)
    assert found.csr.indptr.dtype == found.csr.indices.dtype == INDEX
    np.testing.assert_array_equal(found.csr.indptr, expected.indptr)
    np.testing.assert_array_equal(found.csr.indices, expected.indices)
    assert np.unique(found.csr.data).size == expected.nnz  # no copy has the values of another


def test_a_star_alone_fills_up_to_so_many_nonzeros(tmp_path, monkeypatch):
    monkeypatch.setattr(matrices, "REPLICATED_NONZEROS", 1000)
    matrix = write_npz(tmp_path / "a.npz", 20, 20)
    found = make(f"{tmp_path / 'a.npz'}*")
    assert 1000 <= found.csr.nnz < 1000 + matrix.nnz


def test_copies_too_many_for_the_index_are_refused(tmp_path):
    write_npz(tmp_path / "a.npz", 20, 20)
    with pytest.raises(BenchError, match="too many for the int32"):
        make(f"{tmp_path / 'a.npz'}*100000000")


@pytest.mark.parametrize("replicate", [False, True])
def test_folder_gives_its_larger_matrices_in_order(tmp_path, monkeypatch, replicate):
    monkeypatch.setattr(matrices, "REAL_NONZEROS", 50)
    monkeypatch.setattr(matrices, "REPLICATED_NONZEROS", 500)
    write_npz(tmp_path / "small.npz", 5, 5)
    write_npz(tmp_path / "b.npz", 20, 20, density=0.25)
    scipy_io.mmwrite(tmp_path / "a.mtx", scipy_sparse.random(30, 10, 1.0, random_state=rng()))
    (tmp_path / "README.md").write_text("not a matrix")

    found = list(matrices.folder_matrices(tmp_path, replicate, SCALAR, INDEX, rng()))

    assert [matrix.name for matrix in found] == (["a x2", "b x5"] if replicate else ["a", "b"])
    assert [matrix.csr.nnz for matrix in found] == ([600, 500] if replicate else [300, 100])


def test_folder_without_matrices_is_refused(tmp_path):
    with pytest.raises(BenchError, match="name a folder with matrices"):
        list(matrices.folder_matrices(tmp_path, False, SCALAR, INDEX, rng()))


@pytest.mark.parametrize(
    "spec", ["9point:4", "7point:", "7point:none", "7point:0", "7point:4x", "7point:4x0", "absent.mtx", "a.mtx*none"]
)
def test_unusable_matrix_says_what_to_give(spec):
    with pytest.raises(BenchError, match="--matrix"):
        make(spec)


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ("99999999999 3 1", "too many for the int32"),
        ("3 3 99999999999", "too many for the int32"),
        ("2000000000 2000000000 1", "take 40 GB and this machine has 8 GB"),
        ("99999999999999999999 3 1", "not a sparse matrix"),
    ],
)
def test_sizes_of_a_file_are_checked_before_memory_is_taken(tmp_path, monkeypatch, sizes, complaint):
    path = tmp_path / "large.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate real general\n{sizes}\n1 1 1.0\n")
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 8 * 10**9}.get)
    monkeypatch.setattr(scipy_io, "mmread", lambda path: pytest.fail("was read"))
    with pytest.raises(BenchError, match=f"^--matrix {path}: .*{complaint}") as caught:
        make(path)
    assert "\n" not in str(caught.value)


def test_columns_of_a_scipy_file_are_checked(tmp_path):
    scipy_sparse.save_npz(tmp_path / "wide.npz", scipy_sparse.coo_matrix(([1.0], ([0], [5])), shape=(2, 10**11)))
    with pytest.raises(BenchError, match="too many for the int32"):
        make(tmp_path / "wide.npz")


HEADS = {layout: f"%%MatrixMarket matrix {layout} real general\n" for layout in ("coordinate", "array")}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        # SciPy's reader crashes on these
        (HEADS["coordinate"] + "3 3 1\n3 1 8.8\0\0\x10\0\0\0\x00984113E-1", "zero bytes"),
        (HEADS["array"] + "5 12\n7.685169988962544E", "not a sparse matrix"),
        (HEADS["array"] + "2 1\n7.685169988962544E\n1", None),
        (HEADS["coordinate"] + "9 9 1\n8 6 7.24789940w73533", None),
        (HEADS["array"] + "-0 12\n1\n", None),
        # takes memory for entries that are not there
        (HEADS["coordinate"] + "3 3 300000000\n1 1 1\n", "truncated: its head says 300000000 entries"),
        (HEADS["array"] + "30000 10000\n1\n", "truncated: its head says 300000000 entries"),
        (HEADS["coordinate"] + "3 3 -1\n1 1 1\n", "not a sparse matrix"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_text_is_refused_or_read_and_no_more(tmp_path, text, complaint, packed):
    path = tmp_path / ("damaged.mtx.gz" if packed else "damaged.mtx")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    if complaint:
        with pytest.raises(BenchError, match=complaint) as caught:
            make(path)
        assert "\n" not in str(caught.value)
    else:
        with contextlib.suppress(BenchError):
            make(path)


def test_text_may_end_without_the_end_of_its_last_line(tmp_path):
    path = tmp_path / "short.mtx"
    path.write_text(HEADS["coordinate"] + "3 4 2\n1 1 1.0\n3 4 2.5")
    matrix = make(path).csr
    assert matrix.shape == (3, 4) and matrix.indices.tolist() == [0, 3]


@pytest.mark.parametrize("pointer", [[0, 2, 1, 0], [0, -(2**31), -1, 2], [0, 1, 2**31 - 1, 0]], ids=str)
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_pointers_that_fall_are_refused(tmp_path, kind, pointer):
    arrays = {"indptr": np.array(pointer, np.int32), "indices": np.array([0, 1], np.int32), "data": np.ones(2)}
    np.savez(tmp_path / "a.npz", format=kind.encode(), shape=(3, 3), **arrays)
    with pytest.raises(BenchError, match="not a sparse matrix"):
        make(tmp_path / "a.npz")


def test_an_array_that_is_shorter_than_its_head_says_takes_no_memory(tmp_path):
    path = tmp_path / "a.npz"
    scipy_sparse.save_npz(path, scipy_sparse.eye(3, format="csr"))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, contents in members.items():
            long = contents.replace(b"(3,)", b"(300000000000,)").replace(b"           \n", b"\n")
            archive.writestr(name, long if name == "data.npy" else contents)
    with pytest.raises(BenchError, match="truncated: its array 'data.npy' is shorter than its head says"):
        make(path)


def test_what_does_not_fit_into_memory_is_an_error_of_one_line(tmp_path, monkeypatch):
    path = tmp_path / "a.mtx"
    path.write_text(HEADS["coordinate"] + "1 1 1\n1 1 1\n")

    def fails(path):
        raise MemoryError

    monkeypatch.setattr(scipy_io, "mmread", fails)
    with pytest.raises(BenchError, match="does not fit into the memory"):
        make(path)


def test_nor_does_its_pattern_once_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "a.mtx"
    path.write_text(HEADS["coordinate"] + "1 1 1\n1 1 1\n")
    sizes = iter([lambda: None])

    def check(*_):
        next(sizes, fails)()

    def fails():
        raise MemoryError

    monkeypatch.setattr(matrices, "check_sizes", check)
    with pytest.raises(BenchError, match="does not fit into the memory"):
        make(path)


def test_an_error_of_the_benchmark_is_told_as_it_is(tmp_path):
    with pytest.raises(BenchError, match="^as it is$"), matrix_files.of_a_matrix(tmp_path):
        raise BenchError("as it is")


def test_a_shape_below_zero_is_refused(tmp_path):
    arrays = {"indices": np.zeros(0, int), "indptr": np.zeros(1, int), "data": np.zeros(0)}
    np.savez(tmp_path / "a.npz", format=b"csr", shape=(-1, 3), **arrays)
    with pytest.raises(ValueError, match="its head says -1 x 3"):
        matrix_files.file_sizes(tmp_path / "a.npz")


def test_file_that_is_no_matrix_is_refused(tmp_path):
    path = tmp_path / "text.mtx"
    path.write_text("no matrix\n")
    with pytest.raises(BenchError, match="not a sparse matrix"):
        make(path)
