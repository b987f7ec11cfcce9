"""Values at coordinates of a parallel matrix, given by any rank: those of type aij, wherever they are added up.

Where there is no device, ordinary memory takes the place of managed one, and then PETSc adds up.
"""

import gc

import numpy as np
from dense import COMM, TYPE, rounding, scalars
from failing import OUT_OF_MEMORY, Allocations, error_of
from petsc4py import PETSc

from petsc_gpufmt import set_values_coo
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.errors import GpufmtError, PatternError
from petsc_gpufmt.patterns import coo

N, M, COUNT = 40, 33, 500
ADD, INSERT = PETSc.InsertMode.ADD_VALUES, PETSc.InsertMode.INSERT_VALUES
LIBRARY = native_library.load()
LIBRARY.GpufmtManagedManyRows(8)  # of most blocks, the row pointer and the lengths of rows are managed as well
Option = PETSc.Mat.Option
SORTED = [False]  # whether the planner sorts coordinates now


def to_the_device(values):
    import cupy

    return cupy.asarray(values)


def as_they_are(values):
    return values


def count():
    """Of the entries on this rank; none on the last of several."""
    return 0 if 0 < COMM.rank == COMM.size - 1 else COUNT + COMM.rank


def coordinates(seed, low=-2):
    """Some repeated, some negative, rows of all ranks."""
    rng = np.random.default_rng((seed, COMM.rank))
    return [rng.integers(low, n, count()).astype(PETSc.IntType) for n in (N, M)]


def values_of(seed):
    return np.random.default_rng((seed, COMM.rank)).uniform(-1, 1, count()).astype(PETSc.ScalarType)


def matrices(places, prepare=None):
    made = []
    for mat_type in (TYPE, "aij"):
        A = PETSc.Mat().create(COMM)
        A.setSizes((N, M))
        A.setType(mat_type)
        if prepare:
            prepare(A)
        A.setPreallocationCOO(*(p.copy() for p in places))
        made.append(A)
    return made


def set_both(pair, to_place, addv, seed):
    values = values_of(seed)
    set_values_coo(pair[0], to_place(values), addv)
    pair[1].setValuesCOO(scalars(values), addv)


def check(pair, what):
    A, B = pair
    ours, theirs = A.getValuesCSR(), B.getValuesCSR()
    for a, b in zip(ours[:2], theirs[:2], strict=True):
        np.testing.assert_array_equal(a, b, err_msg=what)
    np.testing.assert_allclose(ours[2], theirs[2], rtol=rounding(1e-12), atol=rounding(1e-12), err_msg=what)
    (x, z), (y, w) = A.createVecs(), A.createVecs()[::-1]
    for v in (x, y):
        v.setArray(scalars(np.cos(np.arange(*v.getOwnershipRange()))))
    expected = [v.duplicate() for v in (z, w)]
    A.mult(x, z)
    A.multTranspose(y, w)
    B.mult(x, expected[0])
    B.multTranspose(y, expected[1])
    for v, e in zip((z, w), expected, strict=True):
        np.testing.assert_allclose(v.getArray(), e.getArray(), rtol=rounding(1e-11), atol=rounding(1e-11), err_msg=what)


def check_managed_arrays(expected):
    pair = matrices(coordinates(1))
    set_values_coo(pair[0], values_of(1))
    assert (LIBRARY.GpufmtManagedCount() > 0) == expected


def check_modes(to_place):
    pair = matrices(coordinates(1))
    for seed, addv in enumerate((None, True, ADD, False, INSERT, True)):
        set_both(pair, to_place, addv, seed)
        check(pair, f"mode {addv} after {seed} others")
    for seed in (3, 4):
        for A in pair:
            A.setPreallocationCOO(*coordinates(seed))
        for addv in (None, True):
            set_both(pair, to_place, addv, seed)
            check(pair, f"new coordinates, mode {addv}")


def check_added_at_first(to_place):
    pair = matrices(coordinates(5))
    for addv in (True, True, None):
        set_both(pair, to_place, addv, 6)
        check(pair, f"added at first, mode {addv}")


def check_copies_and_conversions(to_place):
    pair = matrices(coordinates(7))
    set_both(pair, to_place, None, 8)
    copies = [A.duplicate(copy=True) for A in pair]
    for seed, addv in enumerate((True, None)):
        set_both(copies, to_place, addv, seed)
        check(copies, f"copy, mode {addv}")
    check(pair, "the original of a copy")
    empty = [A.duplicate(copy=False) for A in copies]
    for A in copies:
        A.destroy()
    set_both(empty, to_place, True, 2)
    check(empty, "copy of a copy")
    empty[0].convert("aij")
    for A in empty:
        A.setValuesCOO(scalars(values_of(3)), True)
    check(empty, "copy of a copy, as aij")
    pair[0].convert("aij")
    for A in pair:
        A.setValuesCOO(scalars(values_of(9)), True)
    check(pair, "as aij")
    pair[0].convert(TYPE)
    set_both(pair, to_place, True, 10)
    check(pair, "back from aij")


def check_values_on_the_host_for_sorted_coordinates(to_place):
    """The matrix is bound to the CPU, or ordinary memory is not managed any more: PETSc adds up. Then as before."""
    pair = matrices(coordinates(32))
    for addv in (None, True):
        pair[0].bindToCPU(True)
        LIBRARY.GpufmtManagedSimulate(0)
        set_both(pair, as_they_are, addv, 33)
        check(pair, f"on the host, mode {addv}")
        pair[0].bindToCPU(False)
        LIBRARY.GpufmtManagedSimulate(int(SORTED[0]))
        set_both(pair, to_place, addv, 34)
        check(pair, f"back from the host, mode {addv}")


def check_own_rows_alone(to_place):
    """No entry of another rank, which the matrix may be told."""

    def tell(A):
        A.setOption(Option.NO_OFF_PROC_ENTRIES, True)

    first, last = PETSc.Vec().createMPI(N, comm=COMM).getOwnershipRange()
    rows, columns = coordinates(11, low=0)
    rows = (first + rows % (last - first)).astype(PETSc.IntType)
    pair = matrices([rows, columns], tell)
    for addv in (None, True):
        set_both(pair, to_place, addv, 12)
        check(pair, f"own rows, mode {addv}")


def check_other_ranks_ignored(to_place):
    """Entries of their rows are left out."""

    def ignore(A):
        A.setOption(Option.IGNORE_OFF_PROC_ENTRIES, True)

    pair = matrices(coordinates(28), ignore)
    for addv in (None, True):
        set_both(pair, to_place, addv, 28)
        check(pair, f"other ranks ignored, mode {addv}")


def check_what_is_ignored_stays_so(to_place):
    """Coordinates give a matrix new blocks: it goes on leaving out entries of other ranks, and takes columns first."""

    def ignore(A):
        A.setOption(Option.IGNORE_OFF_PROC_ENTRIES, True)

    first, last = PETSc.Vec().createMPI(N, comm=COMM).getOwnershipRange()
    pair = matrices(coordinates(30), ignore)
    for A in pair:
        A.setOption(Option.ROW_ORIENTED, False)
        A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
        A.setPreallocationCOO(*coordinates(31))
        if COMM.size == 1:
            A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)  # of type seqaij coordinates leave none
    set_both(pair, to_place, None, 31)
    for A in pair:
        A.setValues([first, last % N], range(3), np.arange(6.0, dtype=PETSc.ScalarType), addv=True)
        A.assemble()
    check(pair, "others ignored, columns first")


def check_coordinates_that_are_wrong_on_one_rank(to_place):
    """An error on all ranks, and the matrix takes other coordinates; PETSc's function fails on one rank alone."""
    if not SORTED[0]:
        return
    first, last = PETSc.Vec().createMPI(N, comm=COMM).getOwnershipRange()
    culprit = COMM.rank == COMM.size - 1

    def tell(A):
        A.setOption(Option.NO_OFF_PROC_ENTRIES, True)

    for place in ((N, 0), (0, M), (first - 1 if first else last, 0)):
        pair = matrices([np.full(1, first, PETSc.IntType), np.zeros(1, PETSc.IntType)], tell)
        rows, columns = ([k] if culprit else [0 * k - 1] for k in place)
        assert error_of(pair[0].setPreallocationCOO, rows, columns), place
        for A in pair:
            A.setPreallocationCOO([first], [first % M])
            A.setValuesCOO(scalars(np.ones(1)))
        check(pair, f"after {place}")


def check_changes_afterwards(to_place):
    """On the host, by one rank or by all; then values at the same coordinates again."""

    def take_new_nonzeros(A):
        A.setUp()
        A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)

    rows, columns = coordinates(13, low=0)
    rows[:5], columns[:5] = 0, np.arange(5)[: rows[:5].size]
    pair = matrices([rows, columns], take_new_nonzeros)
    for addv in (None, True, None):
        set_both(pair, to_place, addv, 14)
        for A in pair:
            if COMM.rank == COMM.size // 2:
                A.setValues([0], range(3), np.ones(3, PETSc.ScalarType), addv=True)
            A.assemble()
            A.scale(2.0)
        check(pair, f"changed, mode {addv}")
    for A in pair:
        if COMM.size == 1:
            A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)  # of type seqaij coordinates leave none
        if COMM.rank == 0:
            A.setValues([N - 1], range(M), np.ones(M, PETSc.ScalarType), addv=True)
        A.assemble()
    check(pair, "new nonzeros")
    check_error(pair[0], to_place(values_of(15)), "the pattern has changed|failed on another rank")


def check_error(A, values, text):
    """On all ranks."""
    try:
        set_values_coo(A, values)
    except GpufmtError as e:
        assert any(part in str(e) for part in text.split("|")), e
    else:
        raise AssertionError(f"no error on rank {COMM.rank}: {text}")


def check_wrong_calls(to_place):
    """By one rank alone: an error on all, and the values stay."""
    pair = matrices(coordinates(16))
    set_both(pair, to_place, None, 17)
    wrong = np.ones(count() + (COMM.rank == COMM.size // 2), PETSc.ScalarType)
    check_error(pair[0], to_place(wrong), "coordinates|failed on another rank")
    check(pair, "after an error")
    set_both(pair, to_place, True, 18)
    check(pair, "after an error, added")


def check_the_block_that_the_planner_sorts(to_place):
    """Its arrays are managed at once, and it takes a new nonzero before there are values, and after them."""

    def keep(A):
        A.setOption(Option.KEEP_NONZERO_PATTERN, True)

    if COMM.size == 1:
        return  # the matrix is sequential
    for late in (False, True):
        pair = matrices(coordinates(21))
        assert (LIBRARY.GpufmtManagedCount() > 0) == SORTED[0]
        for A in pair:
            A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
            keep(A)
        if late:
            set_both(pair, to_place, None, 22)
        for A in pair:
            A.setValues([COMM.rank % N, N - 1], range(M), np.ones((2, M), PETSc.ScalarType), addv=True)
            A.assemble()
            A.zeroRows([0], 0.0)
        check(pair, f"new nonzeros {'after' if late else 'before'} the values")
        PETSc.garbage_cleanup(COMM)


def out_of_memory(*_, **__):
    raise MemoryError("on purpose")


def check_a_sort_that_fails(to_place):
    """On one rank: an error on all, which values cannot follow, but other coordinates can."""
    if COMM.size == 1 or not SORTED[0]:
        return
    pair, assemble = matrices(coordinates(25)), coo.assemble
    if COMM.rank == 1:
        coo.assemble = out_of_memory
    try:
        pair[0].setPreallocationCOO(*coordinates(26))
    except PETSc.Error as e:
        assert ("on purpose" if COMM.rank == 1 else "failed on another rank") in str(e), e
    else:
        raise AssertionError("no error")
    coo.assemble = assemble
    check_error(pair[0], values_of(26), "has no coordinates")
    for A in pair:
        A.setPreallocationCOO(*coordinates(27))
    set_both(pair, to_place, None, 27)
    check(pair, "after a sort that failed")


def check_memory_fails_on_one_rank(to_place):
    """Each allocation of the sort in turn: an error on all ranks, none waits."""
    pair, failed, number = matrices(coordinates(28)), True, 0
    while failed:
        with Allocations("mpi_coo_", number if COMM.rank == COMM.size - 1 else None) as allocations:
            error = error_of(pair[0].setPreallocationCOO, *coordinates(29))
        failed = COMM.tompi4py().allreduce(allocations.failed)
        assert error == (OUT_OF_MEMORY if failed else 0), f"allocation {number}"
        number += 1
    assert number > 8 or COMM.size == 1 or not SORTED[0]
    pair[1].setPreallocationCOO(*coordinates(29))
    set_both(pair, to_place, None, 29)
    check(pair, "after memory that was lacking")


def check_memory_fails_after_a_set_up(to_place):
    """Of a sequential matrix that is ready for any entries: it is usable afterwards, with coordinates and without.

    PETSc leaves one of its own without arrays then.
    """
    sequential = failed = COMM.size == 1 and SORTED[0]
    number = 0
    while failed:
        A, B = pair = [PETSc.Mat().create(COMM) for _ in range(2)]
        for matrix, mat_type in zip(pair, (TYPE, "aij"), strict=True):
            matrix.setSizes((N, M))
            matrix.setType(mat_type)
            matrix.setUp()
        with Allocations("", number) as allocations:
            error = error_of(A.setPreallocationCOO, *coordinates(39))
            allocations.failing = None
        failed = allocations.failed
        assert error == (OUT_OF_MEMORY if failed else 0), f"allocation {number}"
        if failed and number % 2:
            A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
            for matrix in pair:
                matrix.setValue(3, 5, 2.0)
                matrix.assemble()
        else:
            for matrix in pair[not failed :]:
                matrix.setPreallocationCOO(*coordinates(39))
            set_both(pair, to_place, None, 39)
        check(pair, f"after allocation {number} has failed, {allocations.place}")
        number += 1
    assert number > 3 or not sequential


def check_nothing_inside(to_place):
    """All in rows of other ranks, or in columns outside of the diagonal block; or nothing at all."""
    first, last = PETSc.Vec().createMPI(M, comm=COMM).getOwnershipRange()
    rows, columns = coordinates(23, low=0)
    columns = np.where((columns >= first) & (columns < last), (last + columns - first) % M, columns)
    for places in ([rows, columns.astype(PETSc.IntType)], [-1 - rows, columns.astype(PETSc.IntType)]):
        pair = matrices(places)
        for addv in (None, True):
            set_both(pair, to_place, addv, 24)
            check(pair, f"nothing inside, mode {addv}")


def check_new_coordinates_after_a_shift(to_place):
    """A shift preallocates a diagonal block that is empty, on one rank: blocks that follow have the options of all."""
    first, last = PETSc.Vec().createMPI(N, comm=COMM).getOwnershipRange()
    empty = COMM.rank == COMM.size // 2
    pair = []
    for mat_type in (TYPE, "aij"):
        A = PETSc.Mat().create(COMM)
        A.setSizes((N, N))
        A.setType(mat_type)
        A.setPreallocationCOO(*([[], []] if empty else [[first], [first]]))
        A.setValuesCOO(scalars([] if empty else [1.0]))
        A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
        A.shift(2.0)
        A.setPreallocationCOO([first, first], [first, last % N])
        A.setValuesCOO([3.0, 4.0])
        pair.append(A)
    check(pair, "new coordinates after a shift")


def check_options_after_a_failure(to_place):
    """Wrong coordinates on all ranks; then right ones, and a new nonzero."""
    pair = matrices(coordinates(19))
    for A in pair:
        A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
        try:
            A.setPreallocationCOO(np.full(3, N, PETSc.IntType), np.zeros(3, PETSc.IntType))
        except PETSc.Error as e:
            assert e.ierr in (63, PatternError.petsc_code), e
        else:
            raise AssertionError("no error")
        A.setPreallocationCOO(*coordinates(19))
        if COMM.size == 1:
            A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)  # of type seqaij coordinates leave none
    set_both(pair, to_place, None, 20)
    for A in pair:
        A.setValues([COMM.rank % N], range(M), np.ones(M, PETSc.ScalarType), addv=True)
        A.assemble()
    check(pair, "a new nonzero after a failure")


CHECKS = (
    *(check_modes, check_added_at_first, check_copies_and_conversions, check_own_rows_alone),
    check_values_on_the_host_for_sorted_coordinates,
    *(check_changes_afterwards, check_wrong_calls, check_options_after_a_failure, check_other_ranks_ignored),
    *(check_the_block_that_the_planner_sorts, check_a_sort_that_fails, check_nothing_inside),
    *(check_memory_fails_on_one_rank, check_what_is_ignored_stays_so, check_coordinates_that_are_wrong_on_one_rank),
    check_memory_fails_after_a_set_up,
    check_new_coordinates_after_a_shift,
)


def main():
    on_a_device = not LIBRARY.GpufmtManagedSimulate(1)
    runs = [as_they_are, to_the_device] if on_a_device else [as_they_are, as_they_are]
    for k, to_place in enumerate(runs):
        LIBRARY.GpufmtManagedSimulate(1 - k)  # changes nothing where there is a device
        SORTED[0] = k == 0 or on_a_device
        check_managed_arrays(SORTED[0])
        for run in CHECKS:
            run(to_place)
            PETSc.garbage_cleanup(COMM)
            gc.collect()
            assert LIBRARY.GpufmtManagedCount() == 0, run.__name__


main()
