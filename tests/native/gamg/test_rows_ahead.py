"""Memory for rows of prolongators is prepared while a level is set up: who takes it, and where the rest goes."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager

import pytest
from multigrid import fail, levels, one_sided, solver
from petsc4py import PETSc
from petsc_products import petsc_matrix, stencil_csr

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning.abi import Ask

LIBRARY = native_library.load()
INDEX = PETSc.IntType().itemsize
OUT_OF_MEMORY = 55
ALLOCATE = ctypes.CFUNCTYPE(
    *(ctypes.c_int, ctypes.c_size_t, ctypes.c_bool, ctypes.c_int),
    *(ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("small"),
    pytest.mark.skipif(PETSc.Sys.getVersion() < (3, 25), reason="PETSc 3.24 takes other memory for rows"),
]


@pytest.fixture(autouse=True)
def nothing_kept(managed):
    """Of any matrix, however small, rows are prepared; none is kept from before."""
    LIBRARY.GpufmtManagedKeptRows.restype = ctypes.c_size_t
    LIBRARY.GpufmtManagedRowsAheadFrom.restype = ctypes.c_size_t
    LIBRARY.GpufmtManagedRowsAheadFrom.argtypes = [ctypes.c_size_t]
    native_library.trim()
    before = LIBRARY.GpufmtManagedRowsAheadFrom(1)
    assert before == 1 << 20
    yield
    LIBRARY.GpufmtManagedRowsAheadFrom(before)
    native_library.trim()
    assert LIBRARY.GpufmtManagedKeptRows() == 0


def totals():
    """Arrays that were prepared so far, and those of them that were taken."""
    prepared, taken = ctypes.c_int(), ctypes.c_int()
    LIBRARY.GpufmtManagedRowsAheadCount(ctypes.byref(prepared), ctypes.byref(taken))
    return prepared.value, taken.value


@contextmanager
def counted():
    """In the list, at the end of the block: arrays that were prepared in it, and taken."""
    found, before = [], totals()
    yield found
    found += [now - then for now, then in zip(totals(), before, strict=True)]


def hierarchy(matrix):
    """The levels of a new solver; arrays prepared, and taken; bytes that are kept before it is destroyed."""
    ksp = solver(petsc_matrix(matrix, "pjds"))
    with counted() as found:
        ksp.setUp()
    kept, found_levels = LIBRARY.GpufmtManagedKeptRows(), levels(ksp)
    ksp.destroy()
    return found_levels, found, kept


def bits(found):
    return [array.tobytes() for level in found for arrays in level for array in arrays]


@pytest.mark.parametrize("smoothing_steps", [0, 1])
def test_prolongators_take_what_was_prepared_and_have_the_same_bits(options, smoothing_steps):
    options["pc_gamg_agg_nsmooths"] = smoothing_steps
    found, (prepared, taken), kept = hierarchy(stencil_csr(12))
    assert len(found) >= 2 and prepared == taken == 3 * len(found) and kept == 0
    native_library.trim()
    LIBRARY.GpufmtManagedRowsAheadFrom(12**3 + 1)
    without, counts, _ = hierarchy(stencil_csr(12))
    assert counts == [0, 0] and bits(without) == bits(found)


def test_only_levels_that_are_large_are_prepared():
    LIBRARY.GpufmtManagedRowsAheadFrom(12**3)
    found, counts, _ = hierarchy(stencil_csr(12))
    assert len(found) >= 2 and counts == [3, 3]


def test_what_is_kept_of_a_matrix_that_is_gone_is_not_prepared():
    n = 26  # lengths of fewer rows are not kept
    LIBRARY.GpufmtManagedRowsAheadFrom(n**3)
    first, counts, _ = hierarchy(stencil_csr(n))
    assert counts == [3, 3] and LIBRARY.GpufmtManagedKeptRows() >= 3 * n**3 * INDEX
    second, counts, _ = hierarchy(stencil_csr(n))
    assert counts == [0, 0] and bits(second) == bits(first)


def test_what_no_prolongator_takes_is_kept(options):
    """The aggregates turn out to be those of agg, whose prolongator has arrays of PETSc's own."""
    options["pc_gamg_agg_nsmooths"] = 0
    options["pc_gamg_graph_symmetrize"] = False
    matrix = one_sided()
    LIBRARY.GpufmtManagedRowsAheadFrom(matrix.nrows)
    _, counts, kept = hierarchy(matrix)
    assert counts == [3, 0] and kept == 3 * (matrix.nrows + 1) * INDEX


@pytest.mark.parametrize("ask", [Ask.GRAPH, Ask.AGGREGATES, Ask.TENTATIVE, Ask.SMOOTHED])
def test_it_is_kept_after_an_error_and_taken_by_the_next_set_up(monkeypatch, ask):
    ksp = solver(petsc_matrix(stencil_csr(12), "pjds"))
    LIBRARY.GpufmtManagedRowsAheadFrom(12**3)
    with monkeypatch.context() as patch, counted() as counts:
        fail(patch, ask, 1)
        with pytest.raises(PETSc.Error):
            ksp.setUp()
    assert counts == [3, 0] and LIBRARY.GpufmtManagedKeptRows() == 3 * (12**3 + 1) * INDEX
    with counted() as counts:
        ksp.setUp()
    assert counts == [0, 0] and LIBRARY.GpufmtManagedKeptRows() == 0
    ksp.destroy()


def test_nothing_is_prepared_for_arrays_of_petscs_own(options):
    options["mat_rmerge_host_values"] = "eager"
    assert hierarchy(stencil_csr(12))[1] == [0, 0]
    options.delValue("mat_rmerge_host_values")
    assert LIBRARY.GpufmtManagedSimulate(0)
    assert hierarchy(stencil_csr(12))[1] == [0, 0]
    assert LIBRARY.GpufmtManagedSimulate(1)


@contextmanager
def failing(number):
    """Of the allocations that prepare rows, those from this number on fail, as PETSc's do: with a message."""
    pointer, count = ctypes.c_void_p.in_dll(LIBRARY, "PetscTrMalloc"), [0]
    original = pointer.value
    allocate = ALLOCATE(original)

    def watched(size, clear, line, function, file, result):
        if function == b"GpufmtManagedRowsAhead":
            count[0] += 1
            if count[0] > number:
                assert LIBRARY.PetscOptionsSetValue(None, b"made to fail", None) != 0
                return OUT_OF_MEMORY
        return allocate(size, clear, line, function, file, result)

    callback = ALLOCATE(watched)
    pointer.value = ctypes.cast(callback, ctypes.c_void_p).value
    try:
        yield count
    finally:
        pointer.value = original


@pytest.mark.parametrize("number", [0, 1, 2])
def test_without_memory_it_is_as_before(number, capfd):
    expected = bits(hierarchy(stencil_csr(12))[0])
    native_library.trim()
    LIBRARY.GpufmtManagedRowsAheadFrom(12**3)
    ksp = solver(petsc_matrix(stencil_csr(12), "pjds"))
    handler = ctypes.cast(LIBRARY.PetscTraceBackErrorHandler, ctypes.c_void_p)
    assert LIBRARY.PetscPushErrorHandler(handler, None) == 0
    capfd.readouterr()
    with failing(number) as count, counted() as counts:
        ksp.setUp()
    assert LIBRARY.PetscPopErrorHandler() == 0
    assert count == [number + 1] and counts == [number, number]
    assert "made to fail" not in "".join(capfd.readouterr())
    assert bits(levels(ksp)) == expected
    ksp.destroy()
