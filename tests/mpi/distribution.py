"""Rows dealt to ranks: matrices and vectors there and back, what is said about them, and errors on all ranks."""

import numpy as np
from dense import COMM, TYPE, layouts, random_dense, random_vector
from dense import distribute as on_ranks
from petsc4py import PETSc

from petsc_gpufmt import distribute
from petsc_gpufmt.distribute import METHODS
from petsc_gpufmt.errors import DistributionError, UnsupportedError

RTOL = 1000 * np.finfo(PETSc.RealType).eps
PARTITIONING = "mat_partitioning_type"


def few_long_rows(n, long, length, block_size=1, ncolumns=None):
    """Some rows of a matrix have far more entries than the others, and some none; block rows alike."""
    random = np.random.default_rng(20260823)
    blocks = np.zeros((n, (ncolumns or n * block_size) // block_size))
    for row in range(n):
        count = length if row < long else row % 4
        blocks[row, random.choice(blocks.shape[1], count, replace=False)] = 1
    dense = np.kron(blocks, np.ones((block_size, block_size)))
    return (dense * random.uniform(-1, 1, dense.shape)).astype(PETSc.ScalarType)


def error_of(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except (DistributionError, UnsupportedError) as e:
        said = COMM.tompi4py().allgather(str(e))
        assert len(set(said)) == 1 and "\n" not in said[0], said
        return said[0]
    raise AssertionError("no error")


def on_ranks_in_blocks(dense, block_size, layout):
    """With the block size set before the layout, as an application does it."""
    A = PETSc.Mat().create(COMM)
    local = layouts(dense.shape[0] // block_size)[layout] * block_size
    A.setSizes(((local, dense.shape[0]), (local, dense.shape[0])), block_size)
    A.setType(TYPE)
    A.setUp()
    for row in range(*A.getOwnershipRange()):
        columns = np.flatnonzero(dense[row]).astype(PETSc.IntType)
        A.setValues([row], columns, dense[row, columns].astype(PETSc.ScalarType))
    A.assemble()
    return A


def assert_same_values(x, y, what):
    np.testing.assert_array_equal(x.getOwnershipRanges(), y.getOwnershipRanges(), err_msg=what)
    np.testing.assert_allclose(x.getArray(), y.getArray(), rtol=RTOL, atol=RTOL, err_msg=what)


def assert_said(said, found, what):
    for name in ("rows", "nonzeros", "halo"):
        np.testing.assert_array_equal(getattr(said, name), getattr(found, name), err_msg=f"{what}: {name}")


def check_there_and_back(A, dense, d, what):
    B = d.matrix(A)
    assert B.getType() == A.getType()
    assert B.getSizes() == (d.sizes, d.sizes)
    assert B.getBlockSizes() == (d.block_size, d.block_size)
    assert_said(d.balance, distribute.balance(B), what)
    everywhere = d.permutation.allGather().getIndices()
    np.testing.assert_array_equal(np.sort(everywhere), np.arange(dense.shape[0]))
    (x, y), (new_x, new_y) = A.createVecs(), B.createVecs()
    for seed, matrix in enumerate((dense, dense * 2)):
        if seed:
            norm = B.norm()
            A.scale(2)
            assert B.norm() == norm, "not a copy"
            d.matrix(A, result=B)
        values = random_vector(x, seed)
        A.mult(x, y)
        assert d.vector(x, new_x) is new_x
        np.testing.assert_array_equal(new_x.getArray(), values[d.permutation.getIndices()])
        B.mult(new_x, new_y)
        assert_same_values(d.back(new_y), y, what)
        np.testing.assert_allclose(y.getArray(), (matrix @ values)[slice(*y.getOwnershipRange())], atol=1e-5)
        B.multTranspose(d.vector(x), new_y)
        A.multTranspose(x, y)
        assert_same_values(d.back(new_y, x), y, f"{what} transposed")
    A.scale(0.5)


def check_methods():
    for n, block_size in ((40, 1), (12, 3), (2, 2), (1, 1)):
        dense = few_long_rows(n, n // 10, n // 2, block_size)
        for layout in layouts(1) if n == 12 else ("balanced",):
            A = on_ranks_in_blocks(dense, block_size, layout)
            for method in METHODS:
                d = distribute.rows(A, method)
                assert (d.method, d.block_size) == (method, block_size)
                check_there_and_back(A, dense, d, f"{n} block rows of {block_size}, {layout}, {method}")


def check_few_long_rows():
    """What the methods are for: eight rows of 300 entries among 600 of at most 3."""
    A = on_ranks(few_long_rows(600, 8, 300), TYPE)
    uneven, even, in_turns = (distribute.rows(A, method).balance for method in ("petsc", "nonzeros", "cyclic"))
    if COMM.size > 1:
        assert uneven.largest_over_mean("nonzeros") > 1.4
    for made in (even, in_turns):
        assert made.nonzeros.max() <= made.nonzeros.sum() / COMM.size + 300
    assert in_turns.rows.max() - in_turns.rows.min() <= 1
    cut = distribute.segments(A, 16)
    assert cut.balance.nonzeros.max() - cut.balance.nonzeros.min() <= 16
    assert np.array_equal(distribute.balance(A).rows, uneven.rows)


def check_contiguous_methods_as_petsc_cuts():
    for n in (0, 1, 2, 10, 13):
        lengths = [1] * layouts(n)["all_on_last"]
        for method in ("petsc", "nonzeros"):
            d = distribute.rows(lengths, method, comm=COMM)
            v = PETSc.Vec().createMPI(n, comm=COMM)
            assert d.sizes == v.getSizes() or method == "nonzeros", (n, method)
            assert d.balance.rows.max() == -(-n // COMM.size)
            assert d.balance.halo is None
    d = distribute.rows(np.ones(6 if COMM.rank == 0 else 0, dtype=int), "petsc", 3)
    assert d.sizes == ((2 // COMM.size + (COMM.rank < 2 % COMM.size)) * 3, 6)


def check_no_rows():
    A = on_ranks(np.zeros((0, 0)), TYPE)
    for method in METHODS:
        d = distribute.rows(A, method)
        assert d.matrix(A).getSize() == (0, 0) and d.sizes == (0, 0)
        assert d.vector(A.createVecRight()).getSize() == 0
    cut = distribute.segments(A)
    assert cut.matrix.getSize() == (0, 0)
    assert cut.balance.largest_over_mean("rows") == 1


def check_rectangular():
    dense = random_dense(31, 17)
    A = on_ranks(dense, TYPE, layouts(31)["balanced"], layouts(17)["all_on_last"])
    d = distribute.rows(A, "cyclic")
    B = d.matrix(A)
    assert_said(d.balance, distribute.balance(B), "columns stay")
    x, y = A.createVecs()
    random_vector(x, 3)
    A.mult(x, y)
    new_y = B.createVecLeft()
    B.mult(x, new_y)
    assert_same_values(d.back(new_y), y, "columns stay")
    of_columns = distribute.rows(np.arange(layouts(17)["all_on_last"]), "cyclic")
    B = d.matrix(A, of_columns)
    B.mult(of_columns.vector(x), new_y)
    assert_same_values(d.back(new_y), y, "columns move")
    assert "17 columns, their distribution 31" in error_of(d.matrix, A, d)
    assert "square" in error_of(distribute.rows, A, "partition")


def check_segments():
    """y = R (S x), and S gets the values of A anew."""
    for n, block_size, long in ((40, 1, 3), (12, 3, 2), (1, 1, 0), (20, 2, 0)):
        dense = few_long_rows(n, long, n // 2, block_size)
        A = on_ranks_in_blocks(dense, block_size, "balanced")
        for limit in (None, 1, 2, 100):
            cut = distribute.segments(A, limit)
            for made in (cut.matrix, cut.reduction):
                assert (made.getType(), made.getBlockSizes()) == (A.getType(), A.getBlockSizes())
            longest = np.count_nonzero(dense, axis=1).max() // block_size
            assert cut.limit == limit or (limit is None and cut.limit >= 16)
            rowptr = cut.matrix.getRowIJ()[0]
            assert np.diff(rowptr).max(initial=0) <= min(cut.limit, longest) * block_size
            assert cut.balance.nonzeros.sum() == np.count_nonzero(dense)
            product = as_one_matrix(cut)
            x, y = A.createVecs()
            z = cut.matrix.createVecLeft()
            for seed in range(2):
                random_vector(x, seed)
                A.mult(x, y)
                cut.matrix.mult(x, z)
                found = y.duplicate()
                cut.reduction.mult(z, found)
                assert_same_values(found, y, f"{n} x {block_size}, limit {limit}")
                if product:
                    product.mult(x, found)
                    assert_same_values(found, y, "as one matrix")
                A.scale(3)
                cut.update(A)
            assert_said(cut.balance, distribute.balance(cut.matrix), "segments")
            A.scale(1 / 9)
        bigger = on_ranks_in_blocks(np.ones_like(dense), block_size, "balanced")
        if n > 1:
            assert "pattern has changed" in error_of(cut.update, bigger)
        assert "limit is 0" in error_of(distribute.segments, A, 0 if COMM.rank == COMM.size - 1 else 1)
        if COMM.size > 1:
            assert "limits" in error_of(distribute.segments, A, 1 + COMM.rank)


def as_one_matrix(cut):
    """The product R S; None where petsc4py has no such matrices, before 3.26."""
    if not hasattr(PETSc.Mat, "createComposite"):
        return None
    product = PETSc.Mat().createComposite([cut.matrix, cut.reduction])
    product.setCompositeType(PETSc.Mat.CompositeType.MULTIPLICATIVE)
    return product


def check_a_solve_with_segments():
    A = on_ranks(few_long_rows(40, 2, 30) + 50 * np.eye(40), TYPE)
    cut = distribute.segments(A, 4)
    product = as_one_matrix(cut)
    if not product:
        return
    ksp = PETSc.KSP().create(COMM)
    ksp.setOperators(product, A)
    ksp.getPC().setType(PETSc.PC.Type.JACOBI)
    x, b = A.createVecs()
    random_vector(b, 1)
    ksp.solve(b, x)
    assert ksp.getConvergedReason() > 0
    assert (b - A * x).norm() <= 1e-4 * b.norm()


def check_errors():
    A = on_ranks(few_long_rows(12, 1, 6), TYPE)
    wrong = COMM.rank == COMM.size - 1
    assert "'rows'" in error_of(distribute.rows, A, "rows" if wrong else "petsc")
    assert "block size is 0" in error_of(distribute.rows, A, "petsc", 0 if wrong else 1)
    assert "no whole blocks of 100" in error_of(distribute.rows, A, "petsc", 100)
    for lengths, words in (
        *(([1, -2], "length -2"), ([0.5], "float64"), ([[1]], "(1, 1)")),
        ([np.iinfo(PETSc.IntType).max, 9], "do not hold"),
    ):
        assert words in error_of(distribute.rows, np.array(lengths if wrong else [1]))
    assert "square matrix" in error_of(distribute.rows, np.ones(3, dtype=int), "partition")
    if COMM.size > 1:
        assert "the same on all ranks" in error_of(distribute.rows, A, METHODS[int(wrong)])
    dense = PETSc.Mat().createDense((4, 4), comm=COMM)
    dense.assemble()
    unassembled = PETSc.Mat().createAIJ((4, 4), comm=COMM)
    for call in (distribute.rows, distribute.balance, distribute.segments):
        assert "dense" in error_of(call, dense)
        assert "not assembled" in error_of(call, unassembled)
    d = distribute.rows(A)
    other = on_ranks(few_long_rows(13, 1, 6), TYPE)
    assert "rows of the matrix" in error_of(d.matrix, other)
    assert "entries of the vector" in error_of(d.vector, other.createVecRight())
    assert "entries of the result" in error_of(d.back, d.vector(A.createVecRight()), other.createVecRight())


def check_partition_without_a_package():
    A = on_ranks(few_long_rows(12, 1, 6), TYPE)
    if COMM.size > 1 and not any(map(PETSc.Sys.hasExternalPackage, ("parmetis", "ptscotch", "chaco", "party"))):
        assert "--download-ptscotch" in error_of(distribute.rows, A, "partition")
    PETSc.Options()[PARTITIONING] = "none_such"
    if COMM.size > 1:
        assert "-mat_partitioning_type is none_such" in error_of(distribute.rows, A, "partition")


def main():
    check_partition_without_a_package()
    PETSc.Options()[PARTITIONING] = "average"  # is always there
    for run in (
        *(check_methods, check_few_long_rows, check_contiguous_methods_as_petsc_cuts, check_no_rows),
        *(check_rectangular, check_segments, check_a_solve_with_segments, check_errors),
    ):
        run()
        PETSc.garbage_cleanup(COMM)


main()
