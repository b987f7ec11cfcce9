"""A format that asks for a second look at a matrix after some products, and what MatView() says of it."""

import numpy as np
import pytest
from petsc4py import PETSc

import petsc_gpufmt  # noqa: F401
from petsc_gpufmt.formats.pjds import Pjds

PRODUCTS = 3


@pytest.fixture
def calls(monkeypatch):
    """Names of the calls of Pjds.build and Pjds.rebuild; the format asks to be built again after PRODUCTS products."""
    names = []
    build = Pjds.build.__func__

    def record(name, replan_after):
        def recorded(cls, *arguments):
            names.append(name)
            stored = build(cls, *arguments)
            stored.replan_after = replan_after
            return stored

        return classmethod(recorded)

    monkeypatch.setattr(Pjds, "build", record("build", PRODUCTS))
    monkeypatch.setattr(Pjds, "rebuild", record("rebuild", 0))
    return names


@pytest.fixture
def matrix():
    A = PETSc.Mat().createAIJ((4, 4), nnz=2, comm=PETSc.COMM_SELF)
    for i in range(4):
        A.setValue(i, i, i + 1.0)
    A.assemble()
    A.convert("aijpjds")
    yield A
    A.destroy()


def multiply(A, times=1):
    x, z = A.createVecs()
    x.set(1.0)
    for _ in range(times):
        A.mult(x, z)
    return z.getArray().tolist()


def test_it_is_built_again_once_after_so_many_products(calls, matrix):
    assert multiply(matrix, PRODUCTS) == [1, 2, 3, 4]
    assert calls == ["build"]

    assert multiply(matrix, 10) == [1, 2, 3, 4]
    assert calls == ["build", "rebuild"]


def test_products_count_across_changes_of_values(calls, matrix):
    for factor in range(1, PRODUCTS + 2):
        matrix.setValue(0, 0, factor)
        matrix.assemble()
        assert multiply(matrix) == [factor, 2, 3, 4]

    assert calls == ["build", "rebuild"]


def test_a_new_pattern_starts_the_count_again(calls, matrix):
    multiply(matrix, PRODUCTS)
    matrix.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    matrix.setValue(0, 3, 5.0)
    matrix.assemble()

    assert multiply(matrix, PRODUCTS) == [6, 2, 3, 4]
    assert calls == ["build", "build"]


def test_transposed_products_are_counted_apart(calls, matrix):
    multiply(matrix, PRODUCTS)
    x, z = matrix.createVecs()
    matrix.multTranspose(x, z)

    assert calls == ["build", "build"]


def test_detail_is_shown_in_lines_where_it_is_asked_for(monkeypatch, matrix, tmp_path):
    monkeypatch.setattr(Pjds, "detail", lambda self: "first line\nsecond line")
    multiply(matrix)
    texts = {}
    for form in (PETSc.Viewer.Format.ASCII_INFO, PETSc.Viewer.Format.ASCII_INFO_DETAIL):
        viewer = PETSc.Viewer().createASCII(str(tmp_path / "view.txt"), comm=PETSc.COMM_SELF)
        viewer.pushFormat(form)
        matrix.view(viewer)
        viewer.destroy()
        texts[form] = (tmp_path / "view.txt").read_text()

    lines = [line.strip() for line in texts[PETSc.Viewer.Format.ASCII_INFO_DETAIL].splitlines()]
    assert lines[-2:] == ["storage: first line", "storage: second line"]
    assert "first line" not in texts[PETSc.Viewer.Format.ASCII_INFO]


def test_the_diagonal_is_that_of_aij(matrix):
    assert matrix.getDiagonal().getArray().tolist() == [1, 2, 3, 4]
    assert np.all(matrix.getDiagonal().getArray() == matrix.convert("aij").getDiagonal().getArray())
