"""The type gpufmt of PCGAMG on one rank: the hierarchies are those of agg, and what is not ours is left to agg."""

from __future__ import annotations

import ctypes
import sys

import launch
import numpy as np
import pytest
from answers import settled_tokens
from multigrid import (
    check_same,
    compare,
    elasticity,
    fail,
    gamg_type,
    geometric_graph,
    levels,
    pair,
    setups,
    solver,
    with_dirichlet_rows,
)
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr
from solves import NEWER

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning import requests
from petsc_gpufmt.planning.abi import Ask

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small")]

MATRICES = {
    "stencil": lambda: stencil_csr(9),
    "graph": lambda: geometric_graph(700, 7.0, seed=1),
    "rows with a diagonal alone": lambda: with_dirichlet_rows(geometric_graph(500, 9.0, seed=2), 7),
    "one row": lambda: stencil_csr(1),
}
OPTIONS = {
    "default": {},
    "tentative": {"pc_gamg_agg_nsmooths": 0},
    "smoothed twice": {"pc_gamg_agg_nsmooths": 2},
    "distance 1": {"pc_gamg_aggressive_coarsening": 0},
    "distance 2 twice": {"pc_gamg_aggressive_coarsening": 2},
    "mis": {"pc_gamg_mat_coarsen_type": "mis"},
    "mis without square": {"pc_gamg_mat_coarsen_type": "mis", "pc_gamg_aggressive_square_graph": False},
    "mis-1": {"pc_gamg_aggressive_square_graph": False, "pc_gamg_aggressive_mis_k": 1},
    "by degrees": {"pc_gamg_mis_k_minimum_degree_ordering": True},
    "low memory filter": {"pc_gamg_low_memory_threshold_filter": True},
    "filtered prolongator": {"pc_gamg_prolongator_filter": 0.1},
}
ALL_OF_AGG = {
    "misk": ({"pc_gamg_aggressive_square_graph": False}, "because the coarsening is misk with k = 2"),
    "misk 2": (
        {"pc_gamg_aggressive_coarsening": 0, "pc_gamg_mat_coarsen_misk_distance": 2},
        "because the coarsening is misk with k = 2",
    ),
    "hem": ({"pc_gamg_mat_coarsen_type": "hem"}, "because the coarsening is of type hem"),
    "aggregates for asm": ({"pc_gamg_asm_use_agg": True}, "because ASM smoothers want lists of aggregates"),
}
if NEWER:  # before, PETSc fails with aij, too
    ALL_OF_AGG["hem for asm"] = ({"pc_gamg_asm_hem_aggs": 2}, "because ASM smoothers want lists of aggregates")


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("matrix", MATRICES)
def test_hierarchies_are_those_of_agg(options, tmp_path, matrix, name):
    said = compare(MATRICES[matrix](), options, OPTIONS[name], tmp_path)
    assert all("aggregates of" in words and "agg," not in words for words in said)
    assert matrix == "one row" or len(said) >= 2


@pytest.mark.parametrize("mat_type", ["aijbsr", "gpufmt", "csrvector"])
def test_every_type_of_ours_takes_it(options, tmp_path, mat_type):
    assert compare(stencil_csr(6), options, {}, tmp_path, mat_type)


@pytest.mark.parametrize("name", ALL_OF_AGG)
def test_what_is_not_ours_is_left_to_agg(options, tmp_path, name):
    more, reason = ALL_OF_AGG[name]
    said = compare(geometric_graph(500, 8.0, seed=4), options, more, tmp_path)
    assert said[0].startswith("set-up of agg,") and reason in said[0]


def test_rows_may_come_in_the_order_of_a_hash(options, tmp_path):
    """Other aggregates, of the same quality."""
    found = []
    for options["pc_gamg_gpufmt_order"] in ("petsc", "hash"):
        ksp = solver(petsc_matrix(stencil_csr(12), "pjds"))
        ksp.setUp()
        found.append((setups(ksp, tmp_path), [level.operator[0].size for level in levels(ksp)]))
        ksp.destroy()
    (in_order, expected), (by_hash, sizes) = found
    assert all("hash" not in words for words in in_order)
    assert all("in the order of a hash, in" in words for words in by_hash)
    assert sizes[-1] != expected[-1] and np.isclose(sizes[-1], expected[-1], rtol=0.05)


def test_the_order_of_a_hash_is_not_that_of_degrees(options, tmp_path):
    more = {"pc_gamg_gpufmt_order": "hash", "pc_gamg_mis_k_minimum_degree_ordering": True}
    said = compare(geometric_graph(500, 8.0, seed=4), options, more, tmp_path)
    assert said[0] == "set-up of agg, because rows are to be in the order of their degrees, and not of a hash"


def test_an_order_that_is_none_is_an_error(options):
    options["pc_gamg_gpufmt_order"] = "random"
    with pytest.raises(
        PETSc.Error, match="Unknown option .random. for -pc_gamg_gpufmt_order. Available options: petsc hash"
    ):
        solver(petsc_matrix(stencil_csr(5), "pjds")).setUp()


def test_coordinates_are_there_again_after_an_error(monkeypatch):
    """A set-up that fails on the second level has replaced them by the near-null space of that level."""
    matrix, points = elasticity()
    A = petsc_matrix(matrix, "pjds")
    A.setBlockSize(3)
    found = []
    for failures in (0, 1):
        ksp = solver(A)
        ksp.getPC().setCoordinates(points.astype(PETSc.RealType))
        if failures:
            with monkeypatch.context() as patch, pytest.raises(PETSc.Error, match="made to fail"):
                fail(patch, Ask.AGGREGATES, 2)
                ksp.setUp()
        ksp.setUp()
        found.append(levels(ksp))
        ksp.destroy()
    assert found[0][-1].interpolation[0].size == matrix.nrows + 1
    check_same(*found, tolerance=0.0)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("ask", [Ask.GRAPH, Ask.AGGREGATES, Ask.TENTATIVE])
def test_after_an_error_the_solver_can_be_used_and_holds_nothing(monkeypatch, ask, number):
    A, other = pair(stencil_csr(8))
    ksp, expected = solver(A), solver(other)
    expected.setUp()
    references = A.getRefCount()
    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(PETSc.Error, match="made to fail"):
            fail(patch, ask, number)
            ksp.setUp()
        assert A.getRefCount() == references
    ksp.setUp()
    check_same(levels(ksp), levels(expected))
    ksp.destroy()


@pytest.mark.slow
def test_set_ups_that_fail_leave_no_memory_behind():
    finished = launch.run([sys.executable, launch.PROGRAMS / "failing_set_up.py"])
    assert (finished.status, finished.output) == (0, "6 failures, 3 levels\n"), str(finished)


def test_agg_is_taken_where_the_user_names_it(options, tmp_path):
    options["pc_gamg_type"] = "agg"
    ksp = solver(petsc_matrix(stencil_csr(5), "pjds"))
    ksp.setUp()
    assert gamg_type(ksp) == "agg" and setups(ksp, tmp_path) == []


def test_agg_is_taken_where_a_program_names_it():
    ksp = solver(petsc_matrix(stencil_csr(5), "pjds"))
    ksp.getPC().setGAMGType("agg")
    ksp.setUp()
    assert gamg_type(ksp) == "agg"


def test_the_name_that_petsc_holds_may_be_given_back():
    ksp = solver(petsc_matrix(stencil_csr(5), "pjds"))
    pc, name = ctypes.c_void_p(ksp.getPC().handle), ctypes.c_char_p()
    ksp.getPC().setGAMGType("agg")
    library = native_library.load()
    assert library.PCGAMGGetType(pc, ctypes.byref(name)) == 0
    assert library.PCGAMGSetType(pc, name) == 0
    assert gamg_type(ksp) == "agg"


def test_strength_indices_are_looked_at_by_agg(options):
    options["pc_gamg_mat_coarsen_strength_index"] = "1"  # beyond the only row of a node
    with pytest.raises(PETSc.Error) as failure:
        solver(petsc_matrix(stencil_csr(5), "pjds")).setUp()
    assert failure.value.ierr == 62


def test_a_matrix_of_another_type_is_left_to_agg_even_where_ours_is_named(options, tmp_path):
    options["pc_gamg_type"] = "gpufmt"
    ksp = solver(petsc_matrix(stencil_csr(6), "aij"))
    ksp.setUp()
    assert gamg_type(ksp) == "gpufmt"
    assert set(setups(ksp, tmp_path)) == {"set-up of agg, because the matrix is of type seqaij"}


def test_another_type_of_gamg_stays(options):
    options["pc_gamg_type"] = "classical"
    ksp = solver(petsc_matrix(stencil_csr(5), "pjds"))
    assert gamg_type(ksp) == "classical"
    ksp.destroy()


OTHER_AGG = """
import ctypes, sys, petsc4py
petsc4py.init([sys.argv[0], "-pc_gamg_type", "gpufmt"])
from petsc4py import PETSc
import petsc_gpufmt
from petsc_gpufmt.backends import native_library
library = native_library.load()
create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
    lambda pc: library.PCGAMGSetType(ctypes.c_void_p(pc), b"geo")
)
library.PCGAMGRegister(b"agg", create)
pc = PETSc.PC().create(PETSc.COMM_SELF)
pc.setType("gamg")
try:
    pc.setFromOptions()
except PETSc.Error as error:
    print(error)
"""


def test_an_agg_that_is_not_as_it_was_is_an_error():
    """As in a release of PETSc that we do not know; here its name is given to another type."""
    finished = launch.run([sys.executable, "-c", OTHER_AGG])
    assert finished.status == 0, str(finished)
    assert "-pc_gamg_type gpufmt: agg of PETSc" in finished.output, str(finished)
    assert "is not as petsc_gpufmt knows it; use -pc_gamg_type agg" in finished.output


@pytest.mark.parametrize("mat_type", ["aij", "aijpjds"])
def test_near_null_vectors_of_another_size_are_an_error(mat_type):
    A = petsc_matrix(stencil_csr(9), mat_type)
    short = PETSc.Vec().createWithArray(np.full(7, 7**-0.5, PETSc.ScalarType), comm=PETSc.COMM_SELF)
    A.setNearNullSpace(PETSc.NullSpace().create(vectors=[short], comm=PETSc.COMM_SELF))
    ksp = solver(A)
    with pytest.raises(PETSc.Error, match="Attached null space vector size 7 != matrix size 729") as error:
        ksp.setUp()
    assert error.value.ierr == 77  # PETSC_ERR_PLIB


def test_options_may_come_before_the_matrix(options, tmp_path):
    options["pc_gamg_aggressive_coarsening"] = 0
    ksp = PETSc.KSP().create(PETSc.COMM_SELF)
    ksp.getPC().setType("gamg")
    ksp.setFromOptions()
    ksp.setOperators(petsc_matrix(stencil_csr(6), "pjds"))
    assert gamg_type(ksp) == "agg"
    ksp.setUp()
    assert gamg_type(ksp) == "gpufmt"
    assert "distance 1" in setups(ksp, tmp_path)[0]


def test_what_a_program_sets_before_the_type_is_known_stays(tmp_path):
    ksp = solver(petsc_matrix(stencil_csr(6), "pjds"))
    library, pc = native_library.load(), ctypes.c_void_p(ksp.getPC().handle)
    assert library.PCGAMGSetAggressiveLevels(pc, 0) == 0
    ksp.setUp()
    assert "distance 1" in setups(ksp, tmp_path)[0]


def test_the_type_follows_the_matrix():
    ours, aij = pair(stencil_csr(6))
    ksp = solver(ours)
    for A, name in ((ours, "gpufmt"), (aij, "agg"), (ours, "gpufmt")):
        ksp.reset()
        ksp.setOperators(A)
        ksp.setUp()
        assert gamg_type(ksp) == name


def test_a_solver_that_was_of_another_type_between():
    ksp = solver(petsc_matrix(stencil_csr(6), "pjds"))
    for _ in range(2):
        ksp.setOperators(*ksp.getOperators())
        ksp.setUp()
        assert gamg_type(ksp) == "gpufmt"
        ksp.getPC().setType("jacobi")
        ksp.getPC().setType("gamg")


@pytest.mark.parametrize("reuse", [True, False])
def test_further_set_ups(options, reuse):
    """With other values, and then with another pattern."""
    options["pc_gamg_reuse_interpolation"] = reuse
    found = []
    for matrices in zip(*map(pair, (stencil_csr(7), geometric_graph(343, 8.0, seed=8))), strict=True):
        ksp = solver(matrices[0])
        hierarchies = []
        for A in (matrices[0], matrices[0], matrices[1]):
            A.shift(0.5)
            ksp.setOperators(A)
            ksp.setUp()
            hierarchies.append(levels(ksp))
        found.append(hierarchies)
        ksp.destroy()
    for ours, theirs in zip(*found, strict=True):
        check_same(ours, theirs)


def test_the_symmetry_of_a_pattern_is_looked_at_once(monkeypatch, options):
    options["pc_gamg_reuse_interpolation"] = False
    known, kind = [], requests.KINDS[Ask.GRAPH]

    def fill(request, *others):
        known.append(request.symmetric)
        return kind.fill(request, *others)

    monkeypatch.setitem(requests.KINDS, Ask.GRAPH, kind._replace(fill=fill))
    A = petsc_matrix(stencil_csr(8), "pjds")
    ksp = solver(A)
    for _ in range(2):
        A.shift(0.5)
        ksp.setOperators(A)
        ksp.setUp()
    half = len(known) // 2
    assert half >= 2 and known == [0, *[1] * (half - 1), *[1] * half]
    ksp.destroy()


def test_several_solvers_side_by_side():
    matrices = [pair(m) for m in (stencil_csr(6), stencil_csr(7), geometric_graph(300, 7.0, seed=9))]
    solvers = [[solver(A) for A in both] for both in matrices]
    for ksp in [ksp for both in solvers for ksp in both]:
        ksp.setUp()
    for ours, theirs in solvers:
        check_same(levels(ours), levels(theirs))
    solvers[1][0].destroy()
    check_same(levels(solvers[2][0]), levels(solvers[2][1]))


@pytest.fixture
def managed(options):
    """Products by RMerge and managed arrays, as on a device."""
    library = native_library.load()
    if not library.GpufmtManagedSimulate(1):
        pytest.skip("there is a device")
    yield library.GpufmtManagedCount
    settled_tokens()
    assert library.GpufmtManagedSimulate(0)


def test_prolongators_have_managed_arrays_where_a_device_has_them(options, managed):
    options["pc_gamg_agg_nsmooths"] = 0
    ours, theirs = map(solver, pair(stencil_csr(8)))
    for ksp in (ours, theirs):
        ksp.setUp()
    assert managed() == ours.getPC().getMGLevels() - 1
    check_same(levels(ours), levels(theirs))
    ours.destroy()
    assert managed() == 0
