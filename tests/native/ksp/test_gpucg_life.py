"""A solver of type gpucg over many solves: what may change between them, what is kept, and what is given back."""

from __future__ import annotations

import ctypes
import sys

import launch
import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import check_same, diagonal_matrix, make_solver, right_hand_side, run, solve, view_of

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.formats.pjds import Pjds

WITH_GRAPHS = {"ksp_gpucg_graph": True, "ksp_gpucg_check": 16}
AT_ONCE = [pytest.param({}, id="as it is"), pytest.param(WITH_GRAPHS, id="graphs")]


class Pair:
    """A solver of type gpucg and one of cg, for the same matrices, vectors and calls."""

    def __init__(self, A, pc_type="jacobi", **settings):
        self.both = make_solver(A, "gpucg", pc_type=pc_type, **settings), make_solver(A, "cg", pc_type=pc_type)
        self.x, self.b = A.createVecs()
        self.b.setArray(right_hand_side(self.b.size))

    def each(self, call):
        for ksp in self.both:
            call(ksp)

    def check(self, x=None):
        found = []
        for ksp in self.both:
            (x or self.x).set(0.0)
            found.append(run(ksp, self.b, x or self.x))
        check_same(*found)
        return found[0]


@pytest.mark.parametrize("settings", AT_ONCE)
def test_other_values_matrices_vectors_and_preconditioners(grid, settings):
    A, B = grid.duplicate(copy=True), grid.duplicate(copy=True)
    B.shift(50.0)
    pair = Pair(A, **settings)
    first = pair.check()
    A.shift(20.0)
    second = pair.check()
    assert second.iterations < first.iterations
    pair.each(lambda ksp: ksp.setOperators(B))
    assert pair.check().iterations != second.iterations
    other = pair.x.duplicate()
    pair.check(other)
    for pc_type in ("none", "icc", "jacobi"):
        pair.each(lambda ksp, name=pc_type: ksp.getPC().setType(name))
        pair.check()
    B.convert("aijcsrscalar")
    pair.check()
    pair.each(lambda ksp: ksp.setOperators(A, B))
    pair.check()
    pair.b.scale(-3.0)
    pair.check()


@pytest.mark.parametrize("settings", AT_ONCE)
def test_a_pattern_that_grows(settings):
    A = diagonal_matrix(np.linspace(1.0, 90.0, 60))
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    pair = Pair(A, **settings)
    pair.check()
    A.setValues([3, 40], [3, 40], np.array([[8.0, -2.0], [-2.0, 8.0]], PETSc.ScalarType))
    A.assemble()
    pair.check()


@pytest.mark.parametrize("check", [16, 11], ids=["between two launches", "in an iteration by itself"])
def test_a_format_that_is_built_again_after_some_products(monkeypatch, check):
    """Recorded plans go, those with dot products too."""
    build, built = Pjds.build.__func__, []

    def recorded(cls, *arguments):
        stored = build(cls, *arguments)
        stored.replan_after = 40 * (len(built) + 1)
        built.append(stored)
        return stored

    monkeypatch.setattr(Pjds, "build", classmethod(recorded))
    monkeypatch.setattr(Pjds, "rebuild", classmethod(recorded))
    pair = Pair(petsc_matrix(stencil_csr(7), "pjds"), **{**WITH_GRAPHS, "ksp_gpucg_check": check})
    for _ in range(4):
        assert pair.check().iterations > 16
    assert len(built) > 2


@pytest.mark.parametrize("pc_type", ["none", "jacobi"])
@pytest.mark.parametrize("norm", ["preconditioned", "unpreconditioned", "natural"])
def test_recorded_iterations_give_the_same_bits_in_every_run(grid, pc_type, norm):
    """Where formats make dot products beside products, these are rounded otherwise than in iterations one by one.

    What that changes grows from iteration to iteration.
    """
    plain = solve(grid, right_hand_side(343), "gpucg", pc_type=pc_type, ksp_norm_type=norm)
    for settings in (WITH_GRAPHS, {**WITH_GRAPHS, "ksp_gpucg_check": 11}):
        found = [
            solve(grid, right_hand_side(343), "gpucg", pc_type=pc_type, ksp_norm_type=norm, **settings)
            for _ in range(2)
        ]
        assert len({(solved.x.tobytes(), solved.history.tobytes()) for solved in found}) == 1
        assert found[0].iterations == plain.iterations
        assert np.allclose(found[0].history[:30], plain.history[:30], rtol=rounding(1e-8), atol=0)


def test_products_of_ones_own_are_not_recorded(grid):
    """A matrix whose product the application has replaced is multiplied by that."""
    A = grid.duplicate(copy=True)
    library, prototype = native_library.load(), ctypes.CFUNCTYPE(*(ctypes.c_int, *3 * (ctypes.c_void_p,)))
    A.mult(*A.createVecs())  # has the store of the matrix itself

    def double(_, x, y):
        return library.VecCopy(ctypes.c_void_p(x), ctypes.c_void_p(y)) or library.VecScale(
            ctypes.c_void_p(y), np.ctypeslib.as_ctypes_type(PETSc.ScalarType)(2.0)
        )

    replaced = prototype(double)
    library.MatSetOperation(ctypes.c_void_p(A.handle), 3, replaced)  # MATOP_MULT
    solved = solve(A, right_hand_side(343), "gpucg", pc_type="none", **WITH_GRAPHS)
    assert solved.iterations == 1 and np.allclose(solved.x, right_hand_side(343) / 2)


def test_sizes_change_after_a_reset(tmp_path):
    ksp = make_solver(diagonal_matrix(np.arange(1.0, 9.0)), "gpucg", pc_type="jacobi")
    for n in (8, 30, 5):
        A = diagonal_matrix(np.arange(1.0, n + 1.0))
        ksp.reset()
        assert "petsc_gpufmt" not in view_of(ksp, tmp_path)
        ksp.setOperators(A)
        x, b = A.createVecs()
        b.set(1.0)
        assert run(ksp, b, x).reason > 0
        assert np.allclose(x.array, 1 / np.arange(1.0, n + 1.0))


def test_types_come_and_go(grid, tmp_path):
    ksp, (x, b) = make_solver(grid, "gpucg", pc_type="jacobi"), grid.createVecs()
    b.setArray(right_hand_side(343))
    first = run(ksp, b, x)
    for ksp_type in ("gmres", "gpucg", "gpucg", "cg", "gpucg"):
        ksp.setType(ksp_type)
        solved = run(ksp, b, x)
        view = view_of(ksp, tmp_path)
        assert f"type: {ksp_type}\n" in view and ("petsc_gpufmt" in view) == (ksp_type == "gpucg")
        if ksp_type == "gpucg":
            assert solved.x.tobytes() == first.x.tobytes()


@pytest.mark.parametrize("settings", AT_ONCE)
def test_two_solvers_do_not_share_their_scalars(grid, settings):
    """One is solved within each iteration of the other, as an inner solver of a preconditioner is."""
    b = right_hand_side(343)
    alone = solve(grid, b, "gpucg", pc_type="jacobi")
    inner, (inner_x, inner_b) = make_solver(grid, "gpucg", pc_type="jacobi", **settings), grid.createVecs()
    inner_b.setArray(b[::-1])
    inner_alone = run(inner, inner_b, inner_x)

    def solve_inner(*_):
        assert run(inner, inner_b, inner_x).x.tobytes() == inner_alone.x.tobytes()

    both = solve(grid, b, "gpucg", lambda ksp: ksp.setMonitor(solve_inner), pc_type="jacobi", **settings)
    assert both.x.tobytes() == alone.x.tobytes()


def test_preconditioners_that_solve_by_the_same_type(grid):
    settings = {"pc_type": "ksp", "ksp_max_it": 4, "ksp_ksp_max_it": 20, "ksp_pc_type": "jacobi", "ksp_ksp_rtol": 1e-3}
    found = [
        solve(grid, right_hand_side(343), ksp_type, ksp_ksp_type=ksp_type, **settings) for ksp_type in ("gpucg", "cg")
    ]
    check_same(*found, tolerance=1e-6)  # the inner solves amplify rounding


def test_plans_are_asked_for_once_and_go_with_the_solver(grid):
    before = settled_tokens()
    for settings in ({}, WITH_GRAPHS):
        ksp, (x, b) = make_solver(grid, "gpucg", pc_type="jacobi", **settings), grid.createVecs()
        b.setArray(right_hand_side(343))
        run(ksp, b, x)
        held = settled_tokens()
        for _ in range(20):
            run(ksp, b, x)
        assert settled_tokens() == held > before
        ksp.reset()
        assert settled_tokens() == held - 1
        ksp.setOperators(grid)
        run(ksp, b, x)
        assert settled_tokens() == held
        ksp.setType("cg")
        assert settled_tokens() == held - 1
        ksp.destroy()


PROGRAM = """
import sys, petsc4py
petsc4py.init(["program", *sys.argv[1:]])
from petsc4py import PETSc
import petsc_gpufmt
A = PETSc.Mat().createAIJ((200, 200), nnz=1, comm=PETSc.COMM_SELF)
A.setType("aijpjds")
for row in range(200):
    A.setValue(row, row, row + 1.0)
A.assemble()
ksp = PETSc.KSP().create(PETSc.COMM_SELF)
ksp.setOperators(A)
ksp.setFromOptions()
x, b = A.createVecs()
b.set(1.0)
for k in range(5):
    ksp.solve(b, x)
    if k == 2:
        ksp.reset()
        ksp.setOperators(A)
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("-ksp_gpucg_graph", "-ksp_gpucg_check", "16"), ("-ksp_cg_single_reduction",)])
def test_nothing_is_left_behind_and_all_options_are_read(more):
    options = ("-ksp_type", "gpucg", "-pc_type", "none", "-malloc_dump", "-options_left", *more)
    finished = launch.run([sys.executable, "-c", PROGRAM, *options])
    assert finished.status == 0, str(finished)
    shown = finished.output.partition("#End of PETSc Option Table entries\n")  # with debugging
    assert (shown[2] or shown[0]) == "There are no unused options.\n", str(finished)
