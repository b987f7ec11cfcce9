"""Results of parallel products whose blocks have managed arrays: every way to change them acts as on type aij.

Where there is no device, ordinary memory takes the place of managed one.
"""

import gc
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from dense import COMM, FORMAT, IS_COMPLEX, TYPE, csr, random_dense, rounding, scalars
from failing import OUT_OF_MEMORY, Allocations, error_of
from petsc4py import PETSc
from solves import MODIFIED

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.planning import given, planner
from petsc_gpufmt.planning.abi import Ask

COUNT = 40
LIBRARY = native_library.load()
LIBRARY.GpufmtManagedManyRows(8)  # of most blocks, the row pointer and the lengths of rows are managed as well
Option = PETSc.Mat.Option


def on_the_diagonal(A):
    A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    first, last = A.getOwnershipRange()
    for row in range(first, last):
        A.setValue(row, row, 1.0, addv=True)
    A.assemble()


def new_nonzeros(A):
    A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    first, last = A.getOwnershipRange()
    if first < last:
        A.setValues([first], range(COUNT), np.ones((1, COUNT), PETSc.ScalarType), addv=True)
    A.assemble()


def from_the_other_ranks(A):
    """New nonzeros in the first and the last row, sent by all ranks."""
    A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    A.setValues([0, COUNT - 1], range(COUNT), np.ones((2, COUNT), PETSc.ScalarType), addv=True)
    A.assemble()


def zero_rows(A):
    A.zeroRows(range(*A.getOwnershipRange(), 3), diag=2.0)


def zero_rows_and_columns(A):
    A.zeroRowsColumns(range(*A.getOwnershipRange(), 3), diag=2.0)


def vectors(A):
    x, b = A.createVecs()
    for v, first in ((x, 0.5), (b, 7.0)):
        v.setArray(scalars(first + np.sin(np.arange(*v.getOwnershipRange()))))
    return x, b


NAMED = [0, COUNT - 1, (7 * COMM.rank + 5) % COUNT, COUNT // 2]  # by each rank, whosever rows they are


def zero_rows_where_they_are(A):
    A.setOption(Option.KEEP_NONZERO_PATTERN, True)
    x, b = vectors(A)
    A.zeroRows(NAMED, 2.0, x, b)
    A.zeroRows(range(*A.getOwnershipRange(), 4), 0.0)
    return b.getArray().copy()


def zero_own_rows(A):
    A.setOption(Option.KEEP_NONZERO_PATTERN, True)
    A.setOption(Option.NO_OFF_PROC_ZERO_ROWS, True)
    x, b = vectors(A)
    A.zeroRows(range(*A.getOwnershipRange(), 4), 3.0, x, b)
    return b.getArray().copy()


def zero_rows_and_columns_with_vectors(A):
    x, b = vectors(A)
    A.zeroRowsColumns(NAMED, 2.0, x, b)
    return b.getArray().copy()


def shift(A):
    A.shift(2.0)


def set_diagonal(A):
    d = A.createVecLeft()
    d.setArray(scalars(np.sin(np.arange(*d.getOwnershipRange()))))
    A.setDiagonal(d)
    A.setDiagonal(d, PETSc.InsertMode.ADD_VALUES)


def zero(A):
    A.zeroEntries()
    A.shift(1.0)


def scale(A):
    A.scale(-3.0)


def add_other_pattern(A):
    other = A.duplicate(copy=False)
    new_nonzeros(other)
    A.axpy(2.0, other, structure=PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)


def scale_rows_and_columns(A):
    left, right = A.createVecLeft(), A.createVecRight()
    for v in (left, right):
        v.setArray(scalars(1.0 + np.cos(np.arange(*v.getOwnershipRange())) ** 2))
    A.diagonalScale(left, None)
    A.diagonalScale(left, right)


def entries_of(A, every):
    """A matrix with every so many of the entries of A, and other values: some ghost columns have none."""
    entries = to_dense(A)
    places = np.zeros((A.getLocalSize()[0], COUNT))
    rows, columns = np.nonzero(entries)
    kept = columns % every == rows % 2
    places[rows[kept], columns[kept]] = np.cos(1.0 + rows[kept] + columns[kept])
    return places


def add_some_entries(A):
    """The second time, where every rank knows the places; then others."""
    for every in (2, 2, 3):
        other = matrix_of_rows(entries_of(A, every), A.getType())
        A.axpy(2.0, other, structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)
        A.aypx(0.5, other, structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)


def add_the_same_entries(A):
    A.axpy(2.0, A.duplicate(copy=True), structure=PETSc.Mat.Structure.SAME_NONZERO_PATTERN)


def add_the_same_entries_unannounced(A):
    for structure in (PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN, PETSc.Mat.Structure.UNKNOWN_NONZERO_PATTERN):
        A.axpy(2.0, A.duplicate(copy=True), structure=structure)


def allow_new_nonzeros(A):
    """Our results do, and have ordinary arrays once they are told to."""
    if A.getType() in ("seqaij", "mpiaij"):
        A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)


def add_a_new_entry_on_one_rank(A):
    allow_new_nonzeros(A)
    rows = entries_of(A, 2)
    if A.getOwnershipRange()[1] == COUNT:
        rows[-1] = 5.0
    A.axpy(2.0, matrix_of_rows(rows, A.getType()), structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)


def add_a_new_column_on_one_rank(A):
    """To a row that has other ghost columns."""
    allow_new_nonzeros(A)
    rows = np.zeros((A.getLocalSize()[0], COUNT))
    if COMM.rank == COMM.size // 2:
        rows[0, COUNT - 1] = 5.0
    A.axpy(2.0, matrix_of_rows(rows, A.getType()), structure=PETSc.Mat.Structure.SUBSET_NONZERO_PATTERN)


def assemble(A):
    A.assemble()


STAY_MANAGED = (
    *(scale, scale_rows_and_columns, add_some_entries, add_the_same_entries),
    *(add_the_same_entries_unannounced, assemble, shift, set_diagonal, zero, zero_rows_and_columns),
    *(zero_rows_where_they_are, zero_own_rows, zero_rows_and_columns_with_vectors),
)


def from_the_first_rank_alone(A):
    """New nonzeros in the last row: its owner sets none and is told nothing before they arrive."""
    allow_new_nonzeros(A)
    if COMM.rank == 0:
        A.setValues([COUNT - 1], range(COUNT), np.ones((1, COUNT), PETSc.ScalarType), addv=True)
    A.assemble()


def convert(A):
    A.convert("aij")
    new_nonzeros(A)


def matrix(dense):
    first = PETSc.Mat().create(COMM)
    first.setSizes((COUNT, COUNT))
    first.setUp()
    begin, end = first.getOwnershipRange()
    return matrix_of_rows(dense[begin:end], TYPE)


def matrix_of_rows(dense, mat_type):
    A = PETSc.Mat().createAIJ(((len(dense), COUNT), (len(dense), COUNT)), csr=csr(dense), comm=COMM)
    A.convert(mat_type)
    return A


def to_dense(A):
    return A.convert("dense", PETSc.Mat()).getDenseArray().copy()


def check_an_operand_of_type_aij_with_blocks_of_ours(options):
    """As -mat_seqaij_type makes them: the result is of type aij, its arrays are ordinary ones."""
    B = matrix(np.eye(COUNT))
    options["mat_seqaij_type"] = f"seqaij{FORMAT}"
    A = matrix_of_rows(to_dense(B), "aij")
    options.delValue("mat_seqaij_type")
    C = A.matMult(B)
    assert C.getType() == A.getType()
    on_the_diagonal(C)
    np.testing.assert_array_equal(to_dense(C), 2.0 * to_dense(B))
    C.destroy()


def rows_far_apart(nrows, ncols, mat_type, entries):
    """A matrix with the same number of rows and columns on each rank; `entries` are rows, columns, values."""
    sizes = ((nrows, nrows * COMM.size), (ncols, ncols * COMM.size))
    A = PETSc.Mat().createAIJ(sizes, nnz=3, comm=COMM)
    for row, column, value in zip(*entries, strict=True):
        A.setValue(row, column, value)
    A.assemble()
    A.convert(mat_type)
    return A


def galerkin_operands(mat_type, nrows=40_000, coarse=10):
    """A and P: of 40,000 rows of P on a rank, the one before takes every thousandth."""
    rows = COMM.rank * nrows + np.arange(nrows)
    some = rows[::1000]
    others = (np.concatenate([rows, some]), np.concatenate([rows, (some + nrows) % (nrows * COMM.size)]))
    if COMM.size == 1:
        others = (rows, rows)
    A = rows_far_apart(nrows, nrows, mat_type, (*others, 2.0 + np.sin(np.arange(others[0].size))))
    ncoarse = nrows // coarse
    second = (rows // coarse + 1) % (ncoarse * COMM.size)
    columns = np.concatenate([rows // coarse, second])
    return A, rows_far_apart(nrows, ncoarse, mat_type, (np.tile(rows, 2), columns, 1.0 + np.cos(np.arange(2 * nrows))))


def asked_for(action):
    """What the planner is asked for on this rank, also how many patterns it holds, and what the action returns."""
    asked, kinds, held_pattern = Counter(), dict(planner.KINDS), given.held_pattern

    def counting(ask, fill):
        def counted(*arguments):
            asked[ask] += 1
            return fill(*arguments)

        return counted

    def counting_held(*arguments, **blocks):
        pattern = held_pattern(*arguments, **blocks)
        asked["held"] += pattern is not None
        return pattern

    given.held_pattern = counting_held
    planner.KINDS.update({ask: kind._replace(fill=counting(ask, kind.fill)) for ask, kind in kinds.items()})
    try:
        return asked, action()
    finally:
        planner.KINDS.update(kinds)
        given.held_pattern = held_pattern


def check_plans_of_a_galerkin_product(options):
    """Two sequential products and three sums make one; columns for other ranks are read where they are."""
    expected = (lambda A, P: A.ptap(P))(*galerkin_operands("aij"))
    options["matptap_via"] = "rmerge"
    A, P = galerkin_operands(TYPE)
    P = P.matMult(rows_far_apart(4000, 4000, TYPE, [COMM.rank * 4000 + np.arange(4000)] * 2 + [np.ones(4000)]))
    asked, C = asked_for(lambda: A.ptap(P))
    assert asked.pop("held") >= (6 if COMM.size > 1 else 1)  # P of two products, what they make of two sums
    parallel = {Ask.PRODUCT: 2, Ask.UNION: 3, Ask.GATHER: 1}
    assert asked == (parallel if COMM.size > 1 else {Ask.PRODUCT: 1}), asked
    bound = 100 * np.finfo(PETSc.RealType).eps * expected.norm(PETSc.NormType.INFINITY)
    for factor in (1.0, 3.0):
        error = C.convert("aij", PETSc.Mat())
        error.axpy(-factor, expected, PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)
        assert error.norm(PETSc.NormType.INFINITY) <= factor * bound
        A.scale(3.0)
        asked, _ = asked_for(lambda: A.ptap(P, C))
        assert not asked, asked
    for made in (A, P, C):
        made.destroy()


WRITERS = (
    *(on_the_diagonal, new_nonzeros, from_the_other_ranks, from_the_first_rank_alone, zero_rows),
    *(add_other_pattern, convert, *STAY_MANAGED, add_a_new_entry_on_one_rank),
)


NORMS = (PETSc.NormType.NORM_1, PETSc.NormType.FROBENIUS, PETSc.NormType.NORM_INFINITY)


def check_views(options):
    """-mat_view shows the result with its values, and nothing that no user sees, of which the host has no rows."""
    A, P = (matrix(random_dense(COUNT, COUNT, seed)) for seed in (1, 2))
    with TemporaryDirectory() as folder:
        shown, wanted = Path(folder, "shown"), Path(folder, "wanted")
        options["mat_view"] = f"ascii:{shown}"
        C = A.matMult(P)
        A.scale(2.0)
        C = A.matMult(P, result=C)
        options.delValue("mat_view")
        C.view(PETSc.Viewer().createASCII(str(wanted), comm=COMM))
        assert COMM.rank or shown.read_text() == wanted.read_text()
    for M in (A, P, C):
        M.destroy()


def check_norms(C, same):
    for norm in NORMS:
        np.testing.assert_allclose(C.norm(norm), same.norm(norm), rtol=rounding(1e-12))


def without_a_diagonal_entry(row):
    """A result that lacks one, and the same of type aij."""
    dense = 2.0 * np.eye(COUNT) + np.eye(COUNT, k=1)
    dense[row, row] = 0.0
    factors = matrix(dense), matrix(np.eye(COUNT))
    C = factors[0].matMult(factors[1])
    for factor in factors:
        factor.destroy()
    return C, C.convert("aij", PETSc.Mat())


def check_a_diagonal_entry_that_is_missing(row=COUNT - 3):
    """An error on all ranks, after which nothing has changed; or PETSc inserts it."""
    C, same = without_a_diagonal_entry(row)
    C.setOption(Option.KEEP_NONZERO_PATTERN, True)
    assert error_of(C.zeroRows, [row], 1.0) == 73
    np.testing.assert_array_equal(to_dense(C), to_dense(same))
    C.zeroRows([row - 1] if COMM.rank == 0 else [], 5.0)
    assert LIBRARY.GpufmtManagedCount() > 0
    same.setOption(Option.KEEP_NONZERO_PATTERN, True)
    same.zeroRows([row - 1] if COMM.rank == 0 else [], 5.0)
    same.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)
    for A in (C, same):
        A.zeroRowsColumns([row], 4.0)
    np.testing.assert_array_equal(to_dense(C), to_dense(same))
    C.destroy()


def check_rows_that_are_none():
    C, same = without_a_diagonal_entry(1)
    for method in (C.zeroRows, C.zeroRowsColumns):
        assert error_of(method, [COUNT] if COMM.rank == COMM.size - 1 else [0], 1.0) == 63
    C.setOption(Option.NO_OFF_PROC_ZERO_ROWS, True)
    if COMM.size > 1:
        assert error_of(C.zeroRows, [0], 1.0) == 63
    np.testing.assert_array_equal(to_dense(C), to_dense(same))
    C.destroy()


def check_vectors_of_other_layouts():
    """With other entries on the first rank and the last: an error on all ranks, those between them too."""
    C, same = without_a_diagonal_entry(1)
    C.setOption(Option.KEEP_NONZERO_PATTERN, True)
    first, last = C.getOwnershipRange()
    moved = (COMM.rank == 0) - (COMM.rank == COMM.size - 1)
    other = PETSc.Vec().createMPI((last - first + moved + (COMM.size == 1), None), comm=COMM)
    for method in (C.zeroRows, C.zeroRowsColumns):
        for vectors_given in ((other, C.createVecLeft()), (C.createVecRight(), other)):
            assert error_of(method, [COUNT - 1], 1.0, *vectors_given) == 60
    np.testing.assert_array_equal(to_dense(C), to_dense(same))
    C.destroy()


def check_memory_fails_on_one_rank():
    """Each allocation of norms and of zeros in turn: an error on all ranks, none waits, and nothing is left behind."""
    C, same = without_a_diagonal_entry(1)
    C.setOption(Option.KEEP_NONZERO_PATTERN, True)
    calls = [
        ("zero_rows", lambda method=method: method([COUNT - 1], 0.0)) for method in (C.zeroRows, C.zeroRowsColumns)
    ]
    calls += [("norm.c", lambda norm=norm: C.norm(norm)) for norm in NORMS]
    for files, call in calls:
        failed, number = True, 0
        while failed:
            with Allocations(files, number if COMM.rank == COMM.size - 1 else None) as allocations:
                error = error_of(call)
            failed = COMM.tompi4py().allreduce(allocations.failed)
            what = f"allocation {number} of {files}"
            assert error == (OUT_OF_MEMORY if failed else 0), what
            assert not allocations.alive, f"{what}, left are {[*allocations.alive.values()]}"
            number += 1
        assert number > 1 or files != "zero_rows"  # on a device norms take none of PETSc's
    check_norms(C, C.convert("aij", PETSc.Mat()))
    C.destroy()
    same.destroy()


def smoothed_prolongator(dense, options, more):
    A, ksp = matrix(dense), PETSc.KSP().create(COMM)
    for name, value in more.items():
        options[name] = value
    ksp.setOperators(A)
    ksp.getPC().setType("gamg")
    ksp.setFromOptions()
    ksp.setUp()
    P = ksp.getPC().getMGInterpolation(ksp.getPC().getMGLevels() - 1)
    dense = to_dense(P)
    ksp.destroy()
    A.destroy()
    for name in more:
        options.delValue(name)
    return dense


def check_estimates(options):
    """By our solve where vectors are as on a device: it comes to what PETSc's does, which takes dots one by one."""
    by_plans = {"pc_gamg_coarse_eq_limit": 5, "vec_mdot_use_gemv": False, "vec_maxpy_use_gemv": False}
    dense = 3.0 * np.eye(COUNT) - np.eye(COUNT, k=1) - np.eye(COUNT, k=-1)
    asked, found = asked_for(lambda: smoothed_prolongator(dense, options, by_plans))
    one_by_one = smoothed_prolongator(
        dense, options, by_plans | {f"pc_gamg_esteig_{name}": value for name, value in MODIFIED.items()}
    )
    assert asked[Ask.JACOBI] == int(not IS_COMPLEX)  # else the estimate is PETSc's
    np.testing.assert_allclose(found, one_by_one, rtol=0, atol=rounding(1e-10))


def main():
    options = PETSc.Options()
    options["matmatmult_via"] = "rmerge"
    LIBRARY.GpufmtManagedSimulate(1)  # changes nothing where there is a device
    check_an_operand_of_type_aij_with_blocks_of_ours(options)
    check_a_diagonal_entry_that_is_missing()
    check_rows_that_are_none()
    check_vectors_of_other_layouts()
    check_memory_fails_on_one_rank()
    check_views(options)
    check_plans_of_a_galerkin_product(options)
    check_estimates(options)
    factor = matrix(random_dense(COUNT, COUNT, seed=5) + 3.0 * np.eye(COUNT))  # MatZeroRows() fails for empty rows
    band = matrix(np.eye(COUNT) + np.eye(COUNT, k=1) + np.eye(COUNT, k=-1))
    runs = [(factor, write) for write in WRITERS] + [(band, add_a_new_column_on_one_rank), (band, add_some_entries)]
    for operand, write in runs:
        C = operand.matMult(operand)
        assert LIBRARY.GpufmtManagedCount() > 0
        same = C.convert("aij", PETSc.Mat())
        before = LIBRARY.GpufmtManagedCount()
        for _ in range(2):
            ours, petscs = write(C), write(same)
            if petscs is not None:
                np.testing.assert_allclose(ours, petscs, atol=rounding(1e-12), err_msg=write.__name__)
            check_norms(C, same)
        gc.collect()
        assert write not in STAY_MANAGED or LIBRARY.GpufmtManagedCount() == before, write.__name__
        np.testing.assert_allclose(to_dense(C), to_dense(same), err_msg=write.__name__)
        x, z = C.createVecs()
        x.set(1.0)
        C.mult(x, z)
        np.testing.assert_allclose(z.getArray(), to_dense(same).sum(axis=1), atol=rounding(1e-9))
        C.destroy()
    factor.destroy()
    band.destroy()
    gc.collect()
    assert LIBRARY.GpufmtManagedCount() == 0


main()
