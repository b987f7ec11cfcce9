"""The symmetric positive definite matrices of ``bench ksp``, and their right-hand sides."""

from __future__ import annotations

import re

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")
scipy_io = pytest.importorskip("scipy.io")

from petsc_gpufmt.bench.elasticity import elasticity_pattern, elasticity_values  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.rank_spd import (  # noqa: E402
    check_names,
    check_spd_matrix,
    make_spd_rows,
    matrix_name,
    right_hand_side,
)

SCALAR, INDEX = np.dtype(np.float64), np.dtype(np.int32)


def whole(spec, size=1):
    """The matrix that so many ranks make, with its block size."""
    parts = [make_spd_rows(spec, rank, size, SCALAR, INDEX) for rank in range(size)]
    rows = [scipy_sparse.csr_matrix((p.values, p.colidx, p.rowptr), (p.rowptr.size - 1, p.size)) for p in parts]
    assert {part.colidx.dtype for part in parts} == {INDEX} and {part.values.dtype for part in parts} == {SCALAR}
    return scipy_sparse.vstack(rows, "csr"), parts[0].block_size


@pytest.mark.parametrize(("spec", "neighbours"), [("7point:5", 6), ("27point:4", 26)])
def test_stencils_are_laplacians(spec, neighbours):
    A, block_size = whole(spec)
    points = round(A.shape[0] ** (1 / 3))
    assert block_size == 1 and (A != A.T).nnz == 0
    assert (A.diagonal() == neighbours).all() and set(A.data) == {-1, neighbours}
    inside = points**2 + points + 1
    assert A[inside].sum() == 0 and A[0].sum() > 0
    assert np.linalg.eigvalsh(A.toarray())[0] > 0


def test_values_of_the_poisson_problem():
    A, _ = whole("7point:3")
    line = scipy_sparse.diags([-1.0, 2.0, -1.0], [-1, 0, 1], (3, 3))
    one = scipy_sparse.identity(3)
    kron = scipy_sparse.kron
    expected = kron(kron(line, one), one) + kron(kron(one, line), one) + kron(kron(one, one), line)
    np.testing.assert_array_equal(A.toarray(), expected.toarray())


def test_elasticity_is_symmetric_and_positive_definite():
    A, block_size = whole("elasticity:4")
    assert block_size == 3 and A.shape == (192, 192) and A.has_sorted_indices
    np.testing.assert_allclose(A.toarray(), A.T.toarray(), atol=1e-15)
    assert np.linalg.eigvalsh(A.toarray())[0] > 1e-3
    inside = 3 * ((1 * 4 + 1) * 4 + 1)
    assert (np.diff(A.indptr)[inside : inside + 3] == 81).all() and np.diff(A.indptr)[0] == 24


def test_elasticity_without_a_held_face_lets_bodies_move():
    nodes = 4
    rowptr, columns = elasticity_pattern(nodes, INDEX, range(nodes))
    values = elasticity_values(nodes, SCALAR, range(nodes), held=False)
    A = scipy_sparse.csr_matrix((values, columns, rowptr))
    z, y, x = np.meshgrid(*[np.arange(nodes)] * 3, indexing="ij")
    nothing, one = np.zeros(nodes**3), np.ones(nodes**3)
    motions = [(one, nothing, nothing), (nothing, one, nothing), (nothing, nothing, one)]
    motions += [(y.ravel(), -z.ravel(), nothing), (x.ravel(), nothing, -z.ravel()), (nothing, x.ravel(), -y.ravel())]
    for motion in motions:
        np.testing.assert_allclose(A @ np.stack(motion, axis=1).ravel(), 0, atol=1e-13)
    found = np.linalg.eigvalsh(A.toarray())
    assert abs(found[:6]).max() < 1e-13 and found[6] > 1e-3


def test_elasticity_under_tension_has_the_stress_of_hookes_law():
    """Stretched along x by 1, the face at the end of x pulls with LAME + 2 SHEAR on each unit of its area."""
    nodes = 4
    rowptr, columns = elasticity_pattern(nodes, INDEX, range(nodes))
    A = scipy_sparse.csr_matrix((elasticity_values(nodes, SCALAR, range(nodes), held=False), columns, rowptr))
    u = np.zeros((nodes, nodes, nodes, 3))
    u[..., 2] = np.arange(nodes)
    force = (A @ u.ravel()).reshape(u.shape)[:, :, -1, 2].sum()
    assert force == pytest.approx((0.4 + 2 * 0.4) * (nodes - 1) ** 2)


@pytest.mark.parametrize("spec", ["7point:5", "27point:4", "elasticity:4", "FILE", "FILE*3"])
def test_rows_of_several_ranks_are_those_of_one(spec, tmp_path):
    path = tmp_path / "some.npz"
    scipy_sparse.save_npz(path, scipy_sparse.random(20, 20, 0.1, format="csr", random_state=3))
    spec = spec.replace("FILE", str(path))
    one, three = whole(spec)[0], whole(spec, 3)[0]
    np.testing.assert_array_equal(one.toarray(), three.toarray())


def test_files_keep_their_values_in_each_copy(tmp_path):
    matrix = scipy_sparse.csr_matrix(np.array([[4.0, -1, 0], [-1, 5, -2], [0, -2, 6]]))
    scipy_io.mmwrite(path := tmp_path / "small.mtx", matrix, symmetry="symmetric")
    A, _ = whole(f"{path}*2")
    expected = scipy_sparse.block_diag([matrix, matrix])
    np.testing.assert_array_equal(A.toarray(), expected.toarray())
    assert matrix_name(f"{path}*2", 6) == "small x2" and matrix_name(str(path), 3) == "small"
    assert matrix_name("elasticity:4", 192) == "elasticity:4"


def test_right_hand_sides_do_not_depend_on_the_ranks():
    b = right_hand_side(range(1000), SCALAR)
    np.testing.assert_array_equal(b[300:400], right_hand_side(range(300, 400), SCALAR))
    assert -0.5 <= b.min() < -0.48 and 0.48 < b.max() < 0.5 and abs(b.mean()) < 0.03 and np.unique(b).size == 1000


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("elasticity:1", "give the nodes in each direction, 2 at least: elasticity:60"),
        ("elasticity:a", "give the nodes in each direction"),
        ("elasticity:400", "are too many for the int32"),
        ("27point:9x3", "it has no values that are positive definite"),
        ("reservoir:2", "it has no values that are positive definite"),
        ("7point:0", "give the grid points in each direction"),
        ("absent.mtx", "there is no such file"),
    ],
)
def test_what_cannot_be_made_is_refused(spec, text):
    with pytest.raises(BenchError, match=re.escape(text)) as error:
        check_spd_matrix(spec, INDEX)
    assert f"--matrix {spec}" in str(error.value)


def test_files_that_are_not_square_or_not_real_are_refused(tmp_path):
    scipy_sparse.save_npz(wide := tmp_path / "wide.npz", scipy_sparse.random(3, 4, 0.5, format="csr"))
    scipy_io.mmwrite(pattern := tmp_path / "pattern.mtx", scipy_sparse.identity(3), field="pattern")
    for path, text in ((wide, "it is 3 x 4; choose a square matrix"), (pattern, "its values are pattern; choose")):
        with pytest.raises(BenchError, match=text):
            check_spd_matrix(str(path), INDEX)


def test_files_that_would_have_one_name_are_refused():
    check_names(["7point:3", "a/x.mtx", "a/y.mtx", "a/x.mtx*2", "a/x.mtx"])
    with pytest.raises(BenchError, match=re.escape("--matrix b/x.npz: results would call it x, as a/x.mtx")):
        check_names(["a/x.mtx", "b/x.npz"])
