"""What Firedrake and DOLFINx do with PETSc's matrices, done by petsc4py with ours, and the options of their pages.

It stands in for these packages, which pip cannot install beside any PETSc.
"""

from __future__ import annotations

import ast
import ctypes
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from petsc4py import PETSc

import petsc_gpufmt  # noqa: F401  registers the types

HOWTO = Path(__file__).resolve().parents[1] / "docs" / "howto"
PETSC_COMM = PETSc.COMM_SELF
NPOINTS = 12
UNIT = np.array([[4, -1, -1, -2], [-1, 4, -2, -1], [-1, -2, 4, -1], [-2, -1, -1, 4]], PETSc.ScalarType) / 6
"""The Laplacian of a square with bilinear elements, nodes row by row."""


def keyword(page: str, name: str) -> Any:
    """The value of a keyword argument in the first block of Python on a page."""
    code = re.findall(r"^```python\n(.*?)^```", (HOWTO / page).read_text(), re.DOTALL | re.MULTILINE)[0]
    found = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.keyword) and node.arg == name]
    return ast.literal_eval(found[0])


def elements() -> Iterator[np.ndarray]:
    """Nodes of each square of a grid."""
    for j in range(NPOINTS - 1):
        for i in range(NPOINTS - 1):
            first = j * NPOINTS + i
            yield np.array([first, first + 1, first + NPOINTS, first + NPOINTS + 1], PETSc.IntType)


def boundary() -> np.ndarray:
    nodes = np.arange(NPOINTS**2, dtype=PETSc.IntType)
    i, j = nodes % NPOINTS, nodes // NPOINTS
    return nodes[(i % (NPOINTS - 1) == 0) | (j % (NPOINTS - 1) == 0)]


def row_lengths() -> np.ndarray:
    """(nrows,) nodes that share an element with each."""
    neighbours: list[set[int]] = [set() for _ in range(NPOINTS**2)]
    for nodes in elements():
        for node in nodes:
            neighbours[node].update(nodes.tolist())
    return np.array([len(each) for each in neighbours], PETSc.IntType)


def local_numbers() -> Any:
    return PETSc.LGMap().create(np.arange(NPOINTS**2, dtype=PETSc.IntType), comm=PETSC_COMM)


def fill(A: Any, factor: float) -> None:
    """New values: zeros, elements but for Dirichlet rows and columns, a diagonal there."""
    A.zeroEntries()
    fixed = boundary()
    for nodes in elements():
        free = np.where(np.isin(nodes, fixed), -1, nodes).astype(PETSc.IntType)  # -1 is left out
        A.setValuesBlockedLocal(free, free, factor * UNIT, addv=PETSc.InsertMode.ADD_VALUES)
    A.assemble(assembly=PETSc.Mat.AssemblyType.FLUSH)
    rows = fixed.reshape(-1, 1)
    ones = np.ones(rows.shape, PETSc.ScalarType)
    A.setValuesLocalRCV(rows, rows, ones, addv=PETSc.InsertMode.INSERT_VALUES)
    A.assemble()


def as_firedrake(mat_type: str) -> Any:
    """A matrix as PyOP2 makes it, converted as the page says."""
    size = ((NPOINTS**2, None), (NPOINTS**2, None))
    A = PETSc.Mat().createAIJ(size=size, nnz=(row_lengths(), row_lengths()), bsize=(1, 1), comm=PETSC_COMM)
    A.setLGMap(rmap=local_numbers(), cmap=local_numbers())
    A.setOption(A.Option.IGNORE_OFF_PROC_ENTRIES, False)
    A.setOption(A.Option.NEW_NONZERO_ALLOCATION_ERR, True)
    A.setOption(A.Option.IGNORE_ZERO_ENTRIES, False)
    A.setOption(A.Option.KEEP_NONZERO_PATTERN, True)
    A.setOption(A.Option.UNUSED_NONZERO_LOCATION_ERR, True)
    for nodes in elements():
        A.setValuesLocal(nodes, nodes, np.zeros((4, 4), PETSc.ScalarType))
    A.assemble()
    A.setOption(A.Option.NEW_NONZERO_LOCATION_ERR, True)
    A.setOption(A.Option.IGNORE_ZERO_ENTRIES, True)
    if mat_type != "aij":
        A.convert("aij" + mat_type)
    return A


def as_dolfinx(mat_type: str) -> Any:
    """A matrix as la::petsc::create_matrix of DOLFINx makes it."""
    A = PETSc.Mat().create(PETSC_COMM)
    A.setType(mat_type)
    A.setSizes(((NPOINTS**2, NPOINTS**2), (NPOINTS**2, NPOINTS**2)))
    A.setFromOptions()
    lengths = np.ascontiguousarray(row_lengths())
    pointer = lengths.ctypes.data_as(ctypes.c_void_p)
    size = ctypes.c_int if PETSc.IntType().itemsize == 4 else ctypes.c_int64
    preallocate = ctypes.CDLL(PETSc.__file__).MatXAIJSetPreallocation
    assert preallocate(ctypes.c_void_p(A.handle), size(1), pointer, pointer, None, None) == 0
    A.setBlockSizes(1, 1)
    A.setLGMap(local_numbers(), local_numbers())
    A.setOption(A.Option.NEW_NONZERO_ALLOCATION_ERR, True)
    A.setOption(A.Option.KEEP_NONZERO_PATTERN, True)
    return A


def solves(make: Callable[[str], Any], mat_type: str, parameters: dict[str, str]) -> list[tuple[int, np.ndarray]]:
    """(iterations, solution) of two solves with one matrix, of which the second has new values."""
    A = make(mat_type)
    ksp = PETSc.KSP().create(PETSC_COMM)
    ksp.setOptionsPrefix("first_")
    database = PETSc.Options("first_")
    for name, value in parameters.items():
        database[name] = value
    ksp.setFromOptions()
    found = []
    for factor in (1.0, 3.0):
        fill(A, factor)
        ksp.setOperators(A)
        x, b = A.createVecs()
        b.set(1 / NPOINTS**2)
        ksp.solve(b, x)
        assert ksp.is_converged
        found.append((ksp.getIterationNumber(), x.array.copy()))
    for name in parameters:
        assert PETSc.Options().used(f"first_{name}"), f"{name} is no option of this solver"
        database.delValue(name)
    return found


@pytest.mark.parametrize(
    ("make", "page", "parameters"),
    [(as_firedrake, "firedrake.md", "solver_parameters"), (as_dolfinx, "dolfinx.md", "petsc_options")],
)
def test_matrices_that_are_made_as_the_package_does_solve_as_aij_does(make, page, parameters):
    given = keyword(page, parameters)
    if make is as_firedrake:
        assert given.pop("mat_type") == "aij"
        name = re.search(r'A\.convert\("aij(\w+)"\)', (HOWTO / page).read_text())[1]
    else:
        name = keyword(page, "kind")
    assert make(name).getType() == f"seqaij{name}"
    for (ours, x), (theirs, expected) in zip(solves(make, name, given), solves(make, "aij", given), strict=True):
        assert abs(ours - theirs) <= 1 and ours > 1
        assert x == pytest.approx(expected, rel=1e-4, abs=1e-8)


def nested_solve(converted: bool) -> tuple[int, float, float]:
    """(iterations, norms of the solutions) of two solves with a matrix of 2 x 2 blocks, the second with new values."""
    blocks = [as_firedrake("aij") for _ in range(2)]
    A = PETSc.Mat().createNest([[blocks[0], None], [None, blocks[1]]], comm=PETSC_COMM)
    for k in range(2 * converted):
        A.getNestSubMatrix(k, k).convert("aijgpufmt")
    ksp = PETSc.KSP().create(PETSC_COMM)
    ksp.setOperators(A)
    ksp.getPC().setType("fieldsplit")
    rows, _ = A.getNestISs()
    ksp.getPC().setFieldSplitIS(("0", rows[0]), ("1", rows[1]))
    x, b = A.createVecs()
    b.set(1)
    norms = []
    for factor in (1.0, 5.0):
        for k, block in enumerate(blocks):
            fill(block, factor + k)
        ksp.solve(b, x)
        norms.append(x.norm())
    assert A.getNestSubMatrix(0, 0).getType() == ("seqaijgpufmt" if converted else "seqaij")
    return ksp.its, *norms


def test_blocks_of_a_nest_are_converted_one_by_one():
    assert nested_solve(converted=True) == pytest.approx(nested_solve(converted=False), rel=1e-6)


def test_a_baij_matrix_is_converted_too():
    A = PETSc.Mat().createBAIJ((4, 4), 2, nnz=2, comm=PETSC_COMM)
    for k in range(2):
        A.setValuesBlocked([k], [k], [4, 1, 1, 3])
    A.assemble()
    A.convert("aijgpufmt")
    x, y = A.createVecs()
    x.set(1)
    A.mult(x, y)
    assert A.getType() == "seqaijgpufmt" and A.getBlockSize() == 2
    assert y.array == pytest.approx([5, 4, 5, 4])
