"""Hierarchies of GAMG through petsc4py, and what -ksp_view says of them."""

from __future__ import annotations

import ctypes
import re
from typing import Any, NamedTuple

import numpy as np
from bounds import rounding
from builders import CsrMatrix, from_entries
from petsc4py import PETSc
from petsc_products import petsc_matrix

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask


class Level(NamedTuple):
    """A level below the finest: the operator there, and the interpolation from it, as CSR arrays on the host."""

    operator: tuple[np.ndarray, ...]
    interpolation: tuple[np.ndarray, ...]


def solver(A: Any, prefix: str | None = None) -> Any:
    """A KSP with GAMG for a matrix, with the options that are set; nothing is set up."""
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.setOptionsPrefix(prefix)
    ksp.setOperators(A)
    ksp.setType("cg")
    ksp.getPC().setType("gamg")
    ksp.setFromOptions()
    return ksp


def gamg_type(ksp: Any) -> str:
    name = ctypes.c_char_p()
    assert native_library.load().PCGAMGGetType(ctypes.c_void_p(ksp.getPC().handle), ctypes.byref(name)) == 0
    return name.value.decode()


def levels(ksp: Any) -> list[Level]:
    """From the coarsest on."""
    pc = ksp.getPC()
    count = pc.getMGLevels()
    operators = [pc.getMGSmoother(k).getOperators()[0] for k in range(count - 1)]
    interpolations = [pc.getMGInterpolation(k) for k in range(1, count)]
    return [
        Level(*(tuple(a.copy() for a in M.getValuesCSR()) for M in pair))
        for pair in zip(operators, interpolations, strict=True)
    ]


def check_same(ours: list[Level], theirs: list[Level], tolerance: float = 1e-12) -> None:
    """The same patterns on all levels, and the same values but for rounding."""
    assert len(ours) == len(theirs)
    for level, expected in zip(ours, theirs, strict=True):
        for (rowptr, colidx, values), other in zip(level, expected, strict=True):
            assert rowptr.tolist() == other[0].tolist()
            assert colidx.tolist() == other[1].tolist()
            assert np.abs(values - other[2]).max(initial=0.0) <= rounding(tolerance) * np.abs(other[2]).max(initial=1.0)


def setups(ksp: Any, tmp_path: Any) -> list[str]:
    """What -ksp_view says of the set-up of each level, from the finest on."""
    viewer = PETSc.Viewer().createASCII(str(tmp_path / "view.txt"), comm=PETSc.COMM_SELF)
    ksp.view(viewer)
    viewer.destroy()
    return re.findall(r"gpufmt, level \d+ from the finest: (.*)", (tmp_path / "view.txt").read_text())


def graph_laplacian(n: int, rows: np.ndarray, columns: np.ndarray, seed: int = 0) -> CsrMatrix:
    """Of an undirected graph of n nodes with an edge between rows[i] and columns[i]; positive definite."""
    both = np.unique(np.concatenate([rows * n + columns, columns * n + rows, np.arange(n) * (n + 1)]))
    matrix = from_entries(n, n, both // n, both % n, seed)
    lengths = np.diff(matrix.rowptr)
    matrix.values[:] = np.where(matrix.rows == matrix.colidx, np.repeat(lengths, lengths) + 0.1, -1.0)
    return matrix


def geometric_graph(n: int, neighbours: float, seed: int) -> CsrMatrix:
    """Random points of the unit square, joined to those that are near: about so many each."""
    points = np.random.default_rng(seed).random((n, 2))
    near = ((points[:, None] - points) ** 2).sum(axis=2) < neighbours / (np.pi * n)
    return graph_laplacian(n, *np.nonzero(np.triu(near, 1)))


def with_dirichlet_rows(matrix: CsrMatrix, every: int) -> CsrMatrix:
    """Rows that have nothing but their diagonal, and columns likewise."""
    fixed = np.arange(matrix.nrows) % every == 0
    kept = (matrix.rows == matrix.colidx) | ~(fixed[matrix.rows] | fixed[matrix.colidx])
    changed = from_entries(matrix.nrows, matrix.ncols, matrix.rows[kept], matrix.colidx[kept], seed=0)
    changed.values[:] = matrix.values[kept]
    return changed


def one_sided(n: int = 300) -> CsrMatrix:
    """A graph without some entries of its upper half."""
    matrix = geometric_graph(n, 8.0, seed=5)
    kept = (matrix.rows >= matrix.colidx) | (matrix.colidx % 3 > 0)
    changed = from_entries(n, n, matrix.rows[kept], matrix.colidx[kept], seed=0)
    changed.values[:] = matrix.values[kept]
    return changed


def in_blocks(nodes: CsrMatrix, block: int, share: float = 0.8) -> CsrMatrix:
    """Blocks of random entries in the place of each entry, that share of them; the diagonal is there."""
    within = np.arange(block)
    rows = (nodes.rows[:, None, None] * block + within[:, None] + 0 * within).ravel()
    columns = (nodes.colidx[:, None, None] * block + 0 * within[:, None] + within).ravel()
    kept = (np.random.default_rng(130).random(rows.size) < share) | (rows == columns)
    n = nodes.nrows * block
    return from_entries(n, n, rows[kept], columns[kept], seed=131, block=block)


def pair(matrix: CsrMatrix, mat_type: str = "pjds") -> tuple[Any, Any]:
    """The matrix in a type of ours, and in aij."""
    return petsc_matrix(matrix, mat_type), petsc_matrix(matrix, "aij")


def compare(
    matrix: CsrMatrix, options: Any, more: dict[str, Any], tmp_path: Any, mat_type: str = "pjds", prepare: Any = None
) -> list[str]:
    """The same hierarchy and iterations in a type of ours as in aij; what was said of the set-ups of ours.

    `prepare` is called with each matrix.
    """
    for name, value in more.items():
        options[name] = value
    found = []
    for A in pair(matrix, mat_type):
        if prepare:
            prepare(A)
        ksp = solver(A)
        x, b = A.createVecs()
        b.set(1.0)
        ksp.solve(b, x)
        found.append((gamg_type(ksp), levels(ksp), ksp.getIterationNumber(), setups(ksp, tmp_path)))
        ksp.destroy()
    (ours, hierarchy, iterations, said), (theirs, expected, expected_iterations, nothing) = found
    assert (ours, theirs, nothing) == ("gpufmt", "agg", [])
    check_same(hierarchy, expected)
    assert iterations == expected_iterations
    return said


def elasticity(block: int = 3, nodes: int = 90) -> tuple[CsrMatrix, np.ndarray]:
    """A matrix of dense blocks, and coordinates of its nodes."""
    points = np.random.default_rng(7).random((nodes, 3))
    near = ((points[:, None] - points) ** 2).sum(axis=2) < 0.12
    i, j = np.nonzero(near | np.eye(nodes, dtype=bool))
    within = np.arange(block)
    rows = (i[:, None, None] * block + within[:, None] + 0 * within).ravel()
    columns = (j[:, None, None] * block + within + 0 * within[:, None]).ravel()
    matrix = from_entries(nodes * block, nodes * block, rows, columns, seed=0)
    diagonal = matrix.rows == matrix.colidx
    matrix.values[:] = np.where(diagonal, 4.0 * np.diff(matrix.rowptr)[matrix.rows], -1.0)
    return matrix, points


def fail(patch: Any, ask: Ask, number: int) -> None:
    """The request of that kind and number raises an error."""
    kind, calls = requests.KINDS[ask], []

    def fill(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            raise ValueError("made to fail")
        return kind.fill(*arguments)

    patch.setitem(requests.KINDS, ask, kind._replace(fill=fill))
