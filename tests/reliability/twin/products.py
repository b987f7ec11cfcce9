"""Sparse products, and the same ones with other values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from petsc4py import PETSc

from reliability.twin.matrices import COMM, Pattern, Sibling, layouts, same_layouts
from reliability.twin.operations import Step, changes, looks, rows_long, rows_long_twice
from reliability.twin.petsc_faults import left_out
from reliability.twin.vectors import entries

NOT_SQUARE = "MatPtAP() and MatRARt() of a matrix that is not square"
OTHER_COLUMNS = "MAT_REUSE_MATRIX of products of several ranks, other columns in the off-diagonal block"


def _thin(step: Step, nrows: int, ncols: int) -> Pattern:
    """A pattern of some three entries a row: products stay sparse for a while."""
    places = step.rng.random((nrows, ncols)) < min(1.0, 2.0 / max(ncols, 1))
    return Pattern(*(a.astype(PETSc.IntType) for a in np.nonzero(places)))


def _coarse(count: int) -> tuple[int, int]:
    """A layout of fewer rows, as of a coarse grid."""
    few = (count + 1) // 2
    return few // COMM.size + (COMM.rank < few % COMM.size), few


def _product(
    s: Sibling, step: Step, name: str, multiply: Callable, shapes: Callable, other_type: bool = False
) -> list[Any]:
    """With a new operand; then with the same one, after both got other values."""
    if not s.structured and name in s.kept:
        s.keep(name)  # magnitudes are computed anew
    sizes = shapes(s.A.getSizes())
    pattern = _thin(step, sizes[0][1], sizes[1][1])
    P = s.matrix(pattern, step.rng, sizes, s.plain if other_type else None)
    C = multiply(s.A, P, None)
    first = entries(s, C)
    P.scale(s.given(-0.5))
    s.A.scale(2.0)
    again = multiply(s.A, P, C)
    second = entries(s, again)
    s.A.scale(0.5)
    s.keep(name, C, P, step.A, layouts(s.A), s.A.getBlockSizes())
    return [first, second]


def _again(s: Sibling, step: Step, name: str, multiply: Callable) -> list[Any] | None:
    """The kept product with the values that the matrix has by now, if its pattern is still that one.

    And its blocks: where the type is another one meanwhile, PETSc begins the product anew, and takes the blocks over.
    """
    if name not in s.kept:
        return None
    C, P, pattern, dealt, blocks = s.kept[name]
    if not pattern.same(step.A) or (layouts(s.A), s.A.getBlockSizes()) != (dealt, blocks):
        return None
    if pattern.ghosts != step.A.ghosts:
        return left_out(OTHER_COLUMNS)
    if s.structured:
        return entries(s, multiply(s.A, P, C))
    other = multiply(s.A, P, None)
    result = entries(s, other)
    other.destroy()
    return result


def mat_mult(A, P, C):
    return A.matMult(P, result=C)


def transpose_mat_mult(A, P, C):
    return A.transposeMatMult(P, result=C)


def mat_transpose_mult(A, P, C):
    return A.matTransposeMult(P, result=C)


def galerkin(A, P, C):
    return A.ptap(P, result=C)


def galerkin_by_restriction(A, R, C):
    return A.rart(R, result=C)


@looks(rows_long)
def product(s: Sibling, step: Step):
    return _product(s, step, "product", mat_mult, lambda sizes: (sizes[1], _coarse(sizes[1][1])))


@looks(rows_long)
def product_again(s: Sibling, step: Step):
    return _again(s, step, "product", mat_mult)


@looks(rows_long)
def product_with_aij(s: Sibling, step: Step):
    shapes = lambda sizes: (sizes[1], _coarse(sizes[1][1]))  # noqa: E731
    return _product(s, step, "mixed product", mat_mult, shapes, other_type=True)


@looks(rows_long)
def product_of_transpose(s: Sibling, step: Step):
    return _product(s, step, "transposed", transpose_mat_mult, lambda sizes: (sizes[0], _coarse(sizes[0][1])))


@looks(rows_long)
def product_of_transpose_again(s: Sibling, step: Step):
    return _again(s, step, "transposed", transpose_mat_mult)


@looks(rows_long)
def product_with_transpose(s: Sibling, step: Step):
    """PETSc has none of parallel matrices."""
    if s.A.getType().startswith("mpi"):
        return None
    return _product(s, step, "with transpose", mat_transpose_mult, lambda sizes: (_coarse(sizes[1][1]), sizes[1]))


@looks(rows_long_twice)
def galerkin_product(s: Sibling, step: Step):
    if not same_layouts(s.A):
        return left_out(NOT_SQUARE)
    return _product(s, step, "galerkin", galerkin, lambda sizes: (sizes[1], _coarse(sizes[1][1])))


@looks(rows_long_twice)
def galerkin_product_again(s: Sibling, step: Step):
    return _again(s, step, "galerkin", galerkin)


@looks(rows_long_twice)
def galerkin_product_by_restriction(s: Sibling, step: Step):
    """PETSc has none of parallel matrices."""
    if s.A.getType().startswith("mpi"):
        return None
    if not same_layouts(s.A):
        return left_out(NOT_SQUARE)
    return _product(s, step, "rart", galerkin_by_restriction, lambda sizes: (_coarse(sizes[1][1]), sizes[1]))


@changes(rows_long)
def product_from_here_on(s: Sibling, step: Step):
    """The matrix is the product of itself and a new one, whose sizes are those of its columns."""
    sizes = s.A.getSizes()
    P = s.matrix(_thin(step, sizes[1][1], sizes[1][1]), step.rng, (sizes[1], sizes[1]))
    s.replace(s.A.matMult(P))
    P.destroy()


@changes(rows_long, doubles=True)
def product_with_spare(s: Sibling, step: Step):
    if COMM.size > 1 and layouts(s.A)[1] != layouts(s.B)[0]:
        return left_out("MatMatMult() and MatAXPY() of several ranks, sizes that fit on some")
    return s.replace(s.A.matMult(s.B))


@changes(rows_long_twice)
def galerkin_product_from_here_on(s: Sibling, step: Step):
    """The spare matrix is that of a coarse grid."""
    sizes = s.A.getSizes()
    if not same_layouts(s.A):
        return left_out(NOT_SQUARE)
    P = s.matrix(_thin(step, sizes[1][1], _coarse(sizes[1][1])[1]), step.rng, (sizes[1], _coarse(sizes[1][1])))
    s.replace(s.A.ptap(P), "B")
    P.destroy()
    return entries(s, s.B)
