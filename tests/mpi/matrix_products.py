"""Sparse products of parallel matrices against NumPy: all types, layouts and mixes, and every way to reuse one."""

import ctypes
import itertools

import numpy as np
from dense import COMM, FORMAT, TYPE, check_products, csr, distribute, layouts, own_rows, random_dense, scalars
from failing import OUT_OF_MEMORY, Allocations, Events, error_of
from launch import petsc_checks
from petsc4py import PETSc

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.patterns import entry_sum, union
from petsc_gpufmt.spgemm import chain

ALGORITHM_OPTIONS = {
    "AB": "matmatmult_via",
    "AtB": "mattransposematmult_via",
    "ABt": "matmattransmult_via",
    "PtAP": "matptap_via",
    "RARt": "matrart_via",
    "ABC": "matmatmatmult_via",
}
NUMERIC_EVENTS = (
    *("MatMatMultNum", "MatTrnMatMultNum", "MatMatTrnMultNum"),
    *("MatPtAPNumeric", "MatRARtNum", "MatMatMatMultNum"),
)
LIBRARY = native_library.load()
LIBRARY.GpufmtManagedManyRows(8)  # of most blocks, the row pointer and the lengths of rows are managed as well
EPS = np.finfo(PETSc.RealType).eps
ROWS, COLUMNS = 41, 23
# name of the product: (what petsc4py calls it, what it is, shapes of the operands)
PRODUCTS = {
    "AB": ("matMult", lambda a, b: a @ b, [(ROWS, COLUMNS), (COLUMNS, 30)]),
    "AtB": ("transposeMatMult", lambda a, b: a.T @ b, [(ROWS, COLUMNS), (ROWS, 30)]),
    "ABt": ("matTransposeMult", lambda a, b: a @ b.T, [(ROWS, COLUMNS), (30, COLUMNS)]),
    "PtAP": ("ptap", lambda a, p: p.T @ a @ p, [(ROWS, ROWS), (ROWS, COLUMNS)]),
    "RARt": ("rart", lambda a, r: r @ a @ r.T, [(ROWS, ROWS), (COLUMNS, ROWS)]),
    "ABC": ("matMatMult", lambda a, b, c: a @ b @ c, [(ROWS, COLUMNS), (COLUMNS, 30), (30, ROWS)]),
}
HOLES = [None, "none_on_first", "none_on_middle", "none_on_last", "all_on_last"]


def multiply(name, matrices, result=None):
    """The product, made anew, or its numeric phase alone for a result that there is."""
    method = getattr(matrices[0], PRODUCTS[name][0])
    return method(*matrices[1:]) if result is None else method(*matrices[1:], result=result)


def distribute_as(dense, layout, matrix_type=TYPE):
    if layout is None:
        return distribute(dense, matrix_type)
    local = [layouts(count) for count in dense.shape]
    if layout not in local[0]:
        return distribute(dense, matrix_type)
    return distribute(dense, matrix_type, local[0][layout], local[1][layout])


def values_of(name, seeds):
    """Operands with the pattern of the shapes alone, so that the seeds only change values."""
    denses = []
    for k, (shape, seed) in enumerate(zip(PRODUCTS[name][2], seeds, strict=False)):
        pattern = random_dense(*shape, seed=100 + k) != 0.0
        values = np.random.default_rng(seed).uniform(-1, 1, shape).astype(PETSc.ScalarType)
        denses.append(np.where(pattern, values, 0.0).astype(PETSc.ScalarType))
    return denses


def check(C, name, denses, what):
    """Values within k eps |A| |B|, the structural pattern with sorted columns, and no entry beside it."""
    function = PRODUCTS[name][1]
    expected = function(*denses)
    sizes = function(*(np.abs(dense) for dense in denses))
    pattern = function(*((dense != 0.0).astype(float) for dense in denses)) > 0
    bound = 2 * (sum(max(dense.shape) for dense in denses) + 4) * EPS * sizes
    first, last = C.getOwnershipRange()
    for row in range(first, last):
        columns, values = C.getRow(row)
        assert columns.tolist() == np.flatnonzero(pattern[row]).tolist(), f"{what}: pattern of row {row}"
        error = np.abs(values - expected[row, columns])
        assert np.all(error <= bound[row, columns]), f"{what}: row {row} is off by {error.max()}"


def bits(C):
    """All entries of this rank, byte by byte."""
    return b"".join(C.getRow(row)[1].tobytes() for row in range(*C.getOwnershipRange()))


def check_layouts():
    for name in PRODUCTS:
        denses = values_of(name, (1, 2, 3))
        for layout in HOLES:
            matrices = [distribute_as(dense, layout) for dense in denses]
            C = multiply(name, matrices)
            check(C, name, denses, f"{name}, {layout}")
            assert C.getType() == matrices[0].getType()
            again = multiply(name, matrices)
            assert bits(again) == bits(C), f"{name}, {layout}: not the same bits again"


def check_shapes():
    """No rows, no columns, no entries, one full row, off-diagonal blocks alone."""
    full_row = np.zeros((30, 30))
    full_row[17] = 1.5
    reversed_rows = np.eye(30)[::-1].copy()
    for A, B in (
        (np.zeros((0, 0)), np.zeros((0, 0))),
        (np.zeros((0, 5)), random_dense(5, 7)),
        (random_dense(7, 5), np.zeros((5, 0))),
        (np.zeros((30, 30)), random_dense(30, 30)),
        (full_row, random_dense(30, 30)),
        (random_dense(30, 30), full_row),
        (reversed_rows, random_dense(30, 30)),
        (random_dense(30, 30), reversed_rows),
    ):
        left, right = distribute(A), distribute(B)
        check(left.matMult(right), "AB", (A, B), f"{A.shape} x {B.shape}")
        if A.shape == (30, 30):
            check(left.ptap(right), "PtAP", (A, B), f"{A.shape} x {B.shape}")
            check(left.transposeMatMult(right), "AtB", (A, B), f"{A.shape} x {B.shape}")


def check_cancellation_stays_in_the_pattern():
    """A row of A times a column of B is 1 - 1, with the two terms on different ranks."""
    count = 4 * COMM.size
    A, B = np.eye(count), np.eye(count)
    A[0, 1], A[0, count - 1], B[1, 2], B[count - 1, 2] = 1.0, -1.0, 1.0, 1.0
    C = distribute(A).matMult(distribute(B))
    check(C, "AB", (A, B), "cancellation")
    if COMM.rank == 0:
        columns, values = C.getRow(0)
        assert values[columns.tolist().index(2)] == 0.0


def check_mixed_types():
    for name in PRODUCTS:
        denses = values_of(name, (1, 2, 3))
        for types in ((TYPE, "aij", "aij"), ("aij", TYPE, "aij"), ("aij", TYPE, TYPE)):
            matrices = [distribute(dense, kind) for dense, kind in zip(denses, types, strict=False)]
            check(multiply(name, matrices), name, denses, f"{name} of {types}")


def set_values(A, dense):
    """New values in the pattern there is."""
    first, last = A.getOwnershipRange()
    A.setValuesCSR(*csr(dense[first:last]))
    A.assemble()


def check_reuse():
    """The numeric phase alone: the same values, new values, other matrices for each operand and for all of them."""
    for name in PRODUCTS:
        denses = values_of(name, (1, 2, 3))
        matrices = [distribute(dense) for dense in denses]
        C = multiply(name, matrices)
        before = bits(C)
        assert multiply(name, matrices, C).handle == C.handle
        assert bits(C) == before, f"{name}: reuse changed the bits"
        new = values_of(name, (4, 5, 6))
        for k in range(len(matrices)):
            set_values(matrices[k], new[k])
            denses[k] = new[k]
            multiply(name, matrices, C)
            check(C, name, denses, f"{name}: new values of operand {k}")
        other = values_of(name, (7, 8, 9))
        for k in range(len(matrices)):
            replaced = matrices[k]
            matrices[k] = distribute(other[k])
            kept, denses[k] = denses[k], other[k]
            multiply(name, matrices, C)
            check(C, name, denses, f"{name}: operand {k} replaced")
            own = slice(*replaced.getOwnershipRange())
            assert rows_of(replaced) == kept[own].tolist(), f"{name}: changed operand {k}"
        last = values_of(name, (10, 11, 12))
        matrices = [distribute(dense) for dense in last]
        multiply(name, matrices, C)
        check(C, name, last, f"{name}: all operands replaced")


def rows_of(A):
    """The rows of this rank, dense."""
    first, last = A.getOwnershipRange()
    dense = np.zeros((last - first, A.getSize()[1]), dtype=PETSc.ScalarType)
    for row in range(first, last):
        columns, values = A.getRow(row)
        dense[row - first, columns] = values
    return dense.tolist()


def check_blocks_made_anew():
    """MatSetPreallocationCOO() once more gives a matrix other blocks."""
    for name in ("AB", "AtB", "PtAP"):
        denses, new = values_of(name, (1, 2)), values_of(name, (3, 4))
        matrices = [distribute(dense) for dense in denses]
        for A, dense in zip(matrices, denses, strict=True):
            set_coordinates(A, dense)
        C = multiply(name, matrices)
        for k, A in enumerate(matrices):
            set_coordinates(A, new[k])
            denses[k] = new[k]
            multiply(name, matrices, C)
            check(C, name, denses, f"{name}: blocks of operand {k} made anew")


def check_operands_of_another_type():
    """A matrix is the same to PETSc, and has other blocks, of another type: they are made anew and converted."""
    for name in PRODUCTS:
        denses = values_of(name, (1, 2, 3))
        matrices = [distribute(dense) for dense in denses]
        C = multiply(name, matrices)
        for k, kind in itertools.product(range(len(matrices)), ("aijcsrscalar", "aij", "aijbsr")):
            set_coordinates(matrices[k], denses[k])
            matrices[k].convert(kind)
            multiply(name, matrices, C)
            check(C, name, denses, f"{name}: operand {k} of type {kind}")


def set_coordinates(A, dense):
    first, last = A.getOwnershipRange()
    rows, columns = np.nonzero(dense[first:last])
    A.setPreallocationCOO((rows + first).astype(PETSc.IntType), columns.astype(PETSc.IntType))
    A.setValuesCOO(scalars(dense[first:last][rows, columns]))


def check_changed_pattern_is_an_error():
    """On all ranks, though the pattern changed on one; the result keeps its values."""
    for name in PRODUCTS:
        denses = values_of(name, (1, 2, 3))
        for k in range(len(denses)):
            matrices = [distribute(dense) for dense in denses]
            C = multiply(name, matrices)
            before = bits(C)
            changed = [dense.copy() for dense in denses]
            changed[k][0] = 2.0
            matrices[k] = distribute(changed[k])
            try:
                multiply(name, matrices, C)
            except PETSc.Error as error:
                assert error.ierr == 73, str(error)  # PETSC_ERR_ARG_WRONGSTATE
            else:
                raise AssertionError(f"{name}: the pattern of operand {k} changed and nobody said so")
            assert bits(C) == before
            check(multiply(name, matrices), name, changed, f"{name}: made anew")


def check_algorithms_of_petsc():
    """The options that choose an algorithm of PETSc's still do."""
    database = PETSc.Options()
    for name, word in (("AB", "scalable"), ("PtAP", "scalable"), ("AB", "default"), ("PtAP", "default")):
        option = ALGORITHM_OPTIONS[name]
        database[option] = word
        denses = values_of(name, (1, 2))
        matrices = [distribute(dense) for dense in denses]
        check(multiply(name, matrices), name, denses, f"-{option} {word}")
        database[option] = "rmerge"


def check_result_is_a_matrix_like_others():
    """Multiplied, duplicated, changed; then the product is made once more."""
    denses = values_of("PtAP", (1, 2))
    matrices = [distribute(dense) for dense in denses]
    C = multiply("PtAP", matrices)
    double = C.copy()
    double.scale(2.0)
    x, y = C.createVecs()
    x.set(1.0)
    double.mult(x, y)
    first, last = own_rows(y.getLocalSize())
    expected = 2.0 * PRODUCTS["PtAP"][1](*denses).sum(axis=1)
    assert np.allclose(y.getArray(readonly=True), expected[first:last], atol=1e5 * EPS)
    C.scale(3.0)
    multiply("PtAP", matrices, C)
    check(C, "PtAP", denses, "after the result was scaled")
    assert C.getDiagonalBlock().getType() == "seqaij" + FORMAT if COMM.size > 1 else C.getType() == "seqaij" + FORMAT


def are_results_managed():
    result = multiply("PtAP", [distribute(dense) for dense in values_of("PtAP", (1, 2))])
    count = LIBRARY.GpufmtManagedCount()
    result.destroy()
    return count > 0


def check_failure_on_one_rank():
    """It is one on all ranks, in whatever step; nothing is left behind, and the operands serve afterwards.

    On several ranks rows are put together on the host and their sums planned, or both is done on the device.
    """
    for name in ("AB", "AtB", "PtAP"):
        failed, managed = [], are_results_managed()
        denses = values_of(name, (1, 2))
        matrices = [distribute(dense) for dense in denses]
        check(multiply(name, matrices), name, denses, f"{name}: before a failure")
        planned = (
            (entry_sum, "plan_entry_sum"),
            (union, "merge"),
            (entry_sum, "known_entry_sum"),
            (chain, "plan_product"),
        )
        for module, function in planned:
            for number in itertools.count():
                original = getattr(module, function)
                if COMM.rank == COMM.size - 1:
                    setattr(module, function, out_of_memory_from(number, original))
                with Allocations() as allocations:
                    error = error_of(multiply, name, matrices)
                setattr(module, function, original)
                if not error:
                    break
                what = f"{name}: call {number} of {function}"
                assert error == OUT_OF_MEMORY, what
                assert not allocations.alive, f"{what}, left are {[*allocations.alive.values()]}"
                failed.append(function)
        sums = [] if COMM.size == 1 else ["merge" if managed else "plan_entry_sum", "known_entry_sum"]
        assert [*dict.fromkeys(failed)] == [*sums, "plan_product"], f"{name}: only {failed} failed"
        check(multiply(name, matrices), name, denses, f"{name}: after a failure")


def check_numeric_failure_on_one_rank():
    """Of whatever sequential product: an error on all ranks, the result is what it was, and the next phase is right."""
    for name in PRODUCTS:
        denses = values_of(name, (1, 2, 3))
        matrices = [distribute(dense) for dense in denses]
        C = multiply(name, matrices)
        before = bits(C)
        with Events(NUMERIC_EVENTS) as events:
            multiply(name, matrices, C)
        first = 2 if name == "ABC" else 1  # those of parallel products begin on all ranks
        for rank, begun in enumerate(COMM.tompi4py().allgather(events.begun)):
            assert begun > first, name
            for number in range(first, begun):
                what = f"{name}: number {number} of rank {rank}"
                with Events(NUMERIC_EVENTS, number if COMM.rank == rank else None):
                    assert error_of(multiply, name, matrices, C) == OUT_OF_MEMORY, what
                assert bits(C) == before, what
        denses = values_of(name, (4, 5, 6))
        for matrix, dense in zip(matrices, denses, strict=False):
            set_values(matrix, dense)
        multiply(name, matrices, C)
        check(C, name, denses, f"{name}: after a failure")


def check_memory_fails_on_one_rank():
    """Each allocation of a symbolic phase in turn: an error on all ranks, none waits, and nothing is left behind."""
    denses = values_of("PtAP", (1, 2))
    matrices = [distribute(dense) for dense in denses]
    check(multiply("PtAP", matrices), "PtAP", denses, "before a failure")
    managed = are_results_managed()
    for files in ("parallel/exchange", "parallel/messages", "parallel/columns", "parallel/result", "parallel/union"):
        failed, number = True, 0
        while failed:
            with Allocations(files, number if COMM.rank == COMM.size - 1 else None) as allocations:
                error = error_of(multiply, "PtAP", matrices)
            failed = COMM.tompi4py().allreduce(allocations.failed)
            what = f"allocation {number} of {files}"
            assert error == (OUT_OF_MEMORY if failed else 0), what
            assert not allocations.alive, f"{what}, left are {[*allocations.alive.values()]}"
            number += 1
        assert number > 1 or managed, files  # what some files need is on the device then
    check(multiply("PtAP", matrices), "PtAP", denses, "after failures")


def check_layouts_that_differ_on_some_ranks():
    """An error on all ranks, though the columns of A and the rows of B on the last of three agree."""
    if COMM.size < 3:
        return
    size = 10 * COMM.size
    A, B = random_dense(size, size, seed=1), random_dense(size, size, seed=2)
    shifted = 10 + {0: 2, 1: -2}.get(COMM.rank, 0)
    matrices = [distribute(A, TYPE, 10, 10), distribute(B, TYPE, shifted, shifted)]
    for name in ("AB", "AtB", "PtAP"):
        assert error_of(multiply, name, matrices) == 60, name  # PETSC_ERR_ARG_SIZ


def check_bound_by_the_rows_of_each_rank():
    """-mat_bind_below binds matrices to the CPU on some ranks; where there is a device, others have theirs there."""
    database, size = PETSc.Options(), 10 * COMM.size
    local = 10 + (COMM.rank == COMM.size - 1) - (COMM.rank == 0)
    for option in ALGORITHM_OPTIONS.values():
        del database[option]
    database["mat_bind_below"] = 10
    A, B = (random_dense(size, size, seed=seed) for seed in (1, 2))
    for name in ("AB", "AtB", "PtAP"):
        for bound in ((True, True), (True, False), (False, True)):
            matrices = [distribute(dense, TYPE, local, local) for dense in (A, B)]
            for matrix, own in zip(matrices, bound, strict=True):
                if own:
                    matrix.setFromOptions()
            C = multiply(name, matrices)
            check(C, name, (A, B), f"{name}, bound by rows: {bound}")
            check_products(matrices[0], A, f"bound by rows: {bound}")
            multiply(name, matrices, C)
            check(C, name, (A, B), f"{name} again, bound by rows: {bound}")
    del database["mat_bind_below"]
    for option in ALGORITHM_OPTIONS.values():
        database[option] = "rmerge"


def out_of_memory_from(number, function):
    """A function whose calls fail from that number on: the planner tries once more."""
    count = itertools.count()

    def call(*arguments):
        if next(count) >= number:
            raise MemoryError("on purpose")
        return function(*arguments)

    return call


def results():
    """Rows of products on this rank with their values, to the last bit."""
    made = []
    for name in ("AB", "AtB", "ABt", "PtAP", "RARt"):
        denses = values_of(name, (1, 2))
        made += multiply(name, [distribute(dense) for dense in denses]).getValuesCSR()
    return [array.tobytes() for array in made]


def check_inserted_entries():
    """On one rank: the next numeric phase replaces values of entries that are there; new entries are an error."""
    name = "PtAP"
    denses = values_of(name, (1, 2))
    matrices = [distribute(dense) for dense in denses]
    C = multiply(name, matrices)
    first, last = C.getOwnershipRange()
    if COMM.rank == 0 and first < last:
        columns, _ = C.getRow(first)
        C.setValues([first], columns, np.ones((1, columns.size), PETSc.ScalarType), addv=True)
    C.assemble()
    multiply(name, matrices, C)
    check(C, name, denses, "after values were added")
    A, B = reversed_identity(), reversed_identity()
    C = multiply("AB", [A, B])
    if COMM.rank == 0:
        C.setValues([0], range(1, C.getSize()[1]), np.ones((1, C.getSize()[1] - 1), PETSc.ScalarType))
    C.assemble()
    try:
        multiply("AB", [A, B], C)
    except PETSc.Error as error:
        assert error.ierr == 73, str(error)  # PETSC_ERR_ARG_WRONGSTATE
    else:
        raise AssertionError("the pattern of the result changed and nobody said so")


def check_eliminated_zeros():
    """On one rank: PETSc counts the change of the pattern for blocks alone; it is an error on all ranks."""
    eye = np.eye(30)
    for which in ("A", "B", "the result"):
        A, B = (distribute(eye + 1.0) for _ in range(2))
        C = A.matMult(B)
        changed = {"A": A, "B": B, "the result": C}[which]
        if COMM.rank == 0:
            changed.setValues([0], range(30), np.zeros((1, 30), PETSc.ScalarType))
        changed.assemble()
        assert LIBRARY.MatEliminateZeros(ctypes.c_void_p(changed.handle), 0) == 0
        try:
            A.matMult(B, result=C)
        except PETSc.Error as error:
            assert error.ierr == 73, str(error)  # PETSC_ERR_ARG_WRONGSTATE
        else:
            raise AssertionError(f"zeros of {which} were eliminated and nobody said so")


def check_factors_without_their_zeros():
    """Results whose zeros were eliminated are factors: other ranks get the rows that are left. All are in one block."""
    first, second, third = (random_dense(30, 30, seed=seed) for seed in (31, 32, 33))
    owner = np.repeat(np.arange(COMM.size), np.diff(PETSc.Vec().createMPI(30, comm=COMM).getOwnershipRanges()))
    first, second = (np.where(owner == owner[:, None], dense, 0.0) for dense in (first, second))
    C, dense = distribute(first).matMult(distribute(second)), first @ second
    kept, factors = np.arange(30) % 3 > 0, C.createVecRight()
    entries = np.count_nonzero(dense)
    factors.setArray(kept[slice(*factors.getOwnershipRange())].astype(PETSc.ScalarType))
    C.diagonalScale(R=factors)
    assert LIBRARY.MatEliminateZeros(ctypes.c_void_p(C.handle), 0) == 0
    dense = dense * kept
    assert C.getInfo(PETSc.Mat.InfoType.GLOBAL_SUM)["nz_used"] == np.count_nonzero(dense) < entries
    check(distribute(third).matMult(C), "AB", [third, dense], "a factor without its zeros")


def reversed_identity():
    return distribute(np.eye(30)[::-1].copy())


for option in ALGORITHM_OPTIONS.values():
    PETSc.Options()[option] = "rmerge"  # the default with a device; without one it is PETSc's
check_layouts()
check_shapes()
check_cancellation_stays_in_the_pattern()
check_mixed_types()
check_reuse()
check_blocks_made_anew()
check_operands_of_another_type()
check_changed_pattern_is_an_error()
check_algorithms_of_petsc()
check_result_is_a_matrix_like_others()
check_failure_on_one_rank()
if COMM.size > 1:
    check_numeric_failure_on_one_rank()
check_inserted_entries()
check_eliminated_zeros()
check_factors_without_their_zeros()
check_layouts_that_differ_on_some_ranks()
if not petsc_checks():  # with its own checks PETSc waits for all ranks to bind a matrix
    check_bound_by_the_rows_of_each_rank()
if COMM.size == 2:
    check_memory_fails_on_one_rank()
before = results()
LIBRARY.GpufmtManagedSimulate(1)  # without a device: with one, results have such arrays already
assert results() == before
check_shapes()
check_reuse()
check_operands_of_another_type()
check_failure_on_one_rank()
check_mixed_types()
check_result_is_a_matrix_like_others()
check_inserted_entries()
check_eliminated_zeros()
check_factors_without_their_zeros()
