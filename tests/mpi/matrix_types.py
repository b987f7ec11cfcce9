"""Names of the types, changes of type, binding to the CPU, null spaces, and matrices of several types together."""

import ctypes

import numpy as np
from dense import COMM, FORMAT, TYPE, block_types, check_products, csr, distribute, layouts, random_dense, random_vector
from failing import LIBRARY
from launch import petsc_checks
from petsc4py import PETSc

COUNT = 50
SEQ, MPI = "seqaij" + FORMAT, "mpiaij" + FORMAT
OWN = SEQ if COMM.size == 1 else MPI
PARENT = "seqaij" if COMM.size == 1 else "mpiaij"
OTHER = "csrscalar" if FORMAT == "jds" else "jds"
ON_DEVICE_ALONE = 2  # PETSC_OFFLOAD_GPU
ROWS = PETSc.Log.Event("MatGetRow")


def check_names():
    """Root name and alias choose by the size of the communicator; explicit names are taken as given."""
    for name in (FORMAT, TYPE, OWN):
        A = distribute(random_dense(COUNT, COUNT), name)
        assert A.getType() == OWN, f"{name} gave {A.getType()}"
        assert block_types(A) == SEQ, f"the diagonal block of {name} is {block_types(A)}"
        check_products(A, random_dense(COUNT, COUNT), f"type {name}")
    A = distribute(random_dense(COUNT, COUNT), MPI)
    assert A.getType() == MPI
    check_products(A, random_dense(COUNT, COUNT), "mpi type on any number of ranks")


def check_blocks_of_every_creation_path():
    """The blocks have our type however the matrix came to be."""
    dense = random_dense(COUNT, COUNT)
    rows, columns = (part[COMM.rank :: COMM.size].astype(PETSc.IntType) for part in np.nonzero(dense))
    values = dense[rows, columns]

    def created(option=None):
        A = PETSc.Mat().create(COMM)
        A.setSizes(COUNT)
        A.setType(FORMAT)
        if option is not None:
            A.setPreallocationNNZ(option)
        return A

    without_preallocation, preallocated, coordinates = created(), created(COUNT), created()
    for A in (without_preallocation, preallocated):
        A.setUp()
        for row, column, value in zip(rows, columns, values, strict=True):
            A.setValue(row, column, value)
        A.assemble()
    coordinates.setPreallocationCOO(rows.copy(), columns.copy())
    coordinates.setValuesCOO(values)
    loaded = from_file(dense)
    paths = {
        "MatSetValues without preallocation": without_preallocation,
        "MatSetValues": preallocated,
        "COO": coordinates,
        "CSR": distribute(dense),
        "load": loaded,
        "duplicate": loaded.duplicate(copy=True),
        "convert": distribute(dense, "aij").convert(FORMAT, PETSc.Mat()),
        "convert in place": distribute(dense, "aij").convert(FORMAT),
        "submatrix": whole(distribute(dense)),
    }
    for name, A in paths.items():
        assert A.getType() == OWN, f"{name} gave {A.getType()}"
        assert block_types(A) == SEQ, f"the diagonal block by {name} is {block_types(A)}"
        check_products(A, dense, name)


def from_file(dense):
    """Written by aij, read back as our type."""
    import tempfile

    folder = COMM.tompi4py().bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
    path = f"{folder}/matrix"
    for writer in ("aij", FORMAT):
        viewer = PETSc.Viewer().createBinary(path, "w", comm=COMM)
        distribute(dense, writer).view(viewer)
        viewer.destroy()
        A = PETSc.Mat().create(COMM)
        A.setType(FORMAT)
        A.load(PETSc.Viewer().createBinary(path, "r", comm=COMM))
        check_products(A, dense, f"written by {writer}")
    return A


def whole(A):
    first, last = A.getOwnershipRange()
    rows = PETSc.IS().createStride(last - first, first, 1, comm=COMM)
    return A.createSubMatrix(rows, rows)


def check_change_of_type_keeps_values():
    dense = random_dense(COUNT, COUNT)
    for name, local in layouts(COUNT).items():
        A = distribute(dense, "aij", local, local)
        for target in (FORMAT, "aij", OWN, PARENT, TYPE):
            A.convert(target)
            assert A.getType() == (PARENT if target in ("aij", PARENT) else OWN)
            check_products(A, dense, f"convert to {target}, {name}")
    A = distribute(dense, "aij")
    A.setType(OWN)
    assert A.getType() == OWN
    check_products(A, dense, "setType")


def check_convert_into_existing():
    """MAT_REUSE_MATRIX copies new values into a matrix that has products behind it."""
    dense = random_dense(COUNT, COUNT)
    A = distribute(dense, "aij")
    B = A.convert(FORMAT, PETSc.Mat())
    check_products(B, dense, "first convert")
    A.scale(3.0)
    A.convert(FORMAT, B)
    check_products(B, 3.0 * dense, "convert with reuse")


def check_conversions_to_other_types():
    """They go as those of aij: as many rows are asked for one by one, and none from one of our formats to another."""
    dense, rows_of, database = random_dense(48, 48), {}, PETSc.Options()
    database["mat_sell_slice_height"] = 8  # the height that a PETSc with CUDA takes has no product on the host
    sell = ["sell"] if COMM.size == 1 or PETSc.Sys.getVersion() >= (3, 25) else []  # of aij gives wrong products
    for target in (*sell, "baij", "dense", "mpiadj", OTHER, "aij" + OTHER):
        for source in ("aij", FORMAT):
            A = distribute(dense, source)
            check_product_matrix(A, dense, "before the conversion")
            before = rows_read()
            new = A.convert(target, PETSc.Mat())
            rows_of[source] = [rows_read() - before]
            if target != "mpiadj":  # which has no values, and is made anew only
                check_product_matrix(new, dense, f"{source} to {target}")
                A.scale(2.0)
                for out in (new, None):  # in place last
                    before = rows_read()
                    found = A.convert(target, out)
                    rows_of[source].append(rows_read() - before)
                    check_product_matrix(found, 2.0 * dense, f"{source} to {target}")
                    assert found.getType() == new.getType(), f"{source} to {target} gave {found.getType()}"
        assert rows_of[FORMAT] == rows_of["aij"], f"to {target}: {rows_of}"
    assert rows_of[FORMAT] == [0, 0, 0], rows_of
    del database["mat_sell_slice_height"]


def rows_read():
    """How often MatGetRow() has been called on this rank."""
    return ROWS.getPerfInfo()["count"]


def check_kronecker_products():
    dense_a, dense_b = random_dense(6, 5, 1), random_dense(4, 7, 2)
    factors = {name: [sequential(d, name) for d in (dense_a, dense_b)] for name in ("aij", FORMAT)}
    for first, second in ((FORMAT, FORMAT), (FORMAT, "aij")):
        A, B = factors[first][0], factors[second][1]
        C = A.kron(B)
        assert C.getType() == SEQ and np.allclose(values_of(C), np.kron(dense_a, dense_b)), (first, second)
        B.scale(2.0)
        A.kron(B, C)
        assert np.allclose(values_of(C), 2.0 * np.kron(dense_a, dense_b)), (first, second)


def sequential(dense, matrix_type):
    return PETSc.Mat().createAIJ(dense.shape, csr=csr(dense), comm=PETSc.COMM_SELF).convert(matrix_type)


def values_of(A):
    return A.convert("dense", PETSc.Mat()).getDenseArray()


def check_duplicate_is_independent():
    dense = random_dense(COUNT, COUNT)
    A = distribute(dense)
    check_products(A, dense, "original")
    B = A.duplicate(copy=True)
    B.scale(2.0)
    check_products(B, 2.0 * dense, "changed duplicate")
    check_products(A, dense, "original beside the changed duplicate")
    A.destroy()
    check_products(B, 2.0 * dense, "duplicate without its original")
    C = B.duplicate(copy=False)
    check_products(C, 0.0 * dense, "duplicate without values")


def check_null_spaces_survive():
    dense = random_dense(COUNT, COUNT)
    A = distribute(dense, "aij")
    vector = A.createVecRight()
    random_vector(vector, 3)
    vector.normalize()
    A.setNearNullSpace(PETSc.NullSpace().create(vectors=[vector], comm=COMM))
    A.setNullSpace(PETSc.NullSpace().create(constant=True, comm=COMM))
    A.setOptionsPrefix("mine_")
    A.setName("Jacobian")
    for target in (FORMAT, OTHER, FORMAT, "aij", FORMAT):
        A.convert(target)
        assert (A.getOptionsPrefix(), A.getName()) == ("mine_", "Jacobian"), f"lost in convert to {target}"
        kept = A.getNearNullSpace().getVecs()
        assert len(kept) == 1 and kept[0].equal(vector), f"near-null space lost in convert to {target}"
        assert A.getNullSpace().hasConstant(), f"null space lost in convert to {target}"


def check_diagonal():
    """MatGetDiagonal into vectors of the matrix and of the host, before a product, after it, with new values."""
    dense = random_dense(COUNT, COUNT)
    dense[::4, ::4] += np.eye(len(dense[::4]))  # the other entries of the diagonal are mostly absent
    for name, local in layouts(COUNT).items():
        A = distribute(dense, TYPE, local, local)
        own, host = A.createVecLeft(), PETSc.Vec().createMPI((local, COUNT), comm=COMM)
        first, last = A.getOwnershipRange()
        for factor in (1.0, -2.0):
            for when in ("before a product", "after a product"):
                for kind, vector in (("own", own), ("host", host)):
                    vector.set(np.nan)
                    A.getDiagonal(vector)
                    found = vector.getArray(readonly=True).tolist()
                    expected = (factor * dense.diagonal())[first:last].tolist()
                    assert found == expected, f"diagonal of {A.getType()} in {kind} vectors, {name}, {when}: {found}"
                check_products(A, factor * dense, f"beside the diagonal, {name}")
            A.scale(-2.0)


def check_block_size_survives():
    A = distribute(random_dense(COUNT, COUNT), "aij")
    B = PETSc.Mat().create(COMM)
    B.setSizes(((None, 48), (None, 48)), bsize=3)
    B.setType("aij")
    B.setUp()
    B.assemble()
    assert B.convert(FORMAT).getBlockSize() == 3
    assert A.convert(FORMAT).getBlockSize() == 1


def check_binding_to_cpu():
    dense = random_dense(COUNT, COUNT)
    A = distribute(dense)
    for bound in (True, False, True):
        A.bindToCPU(bound)
        check_products(A, dense, f"bindToCPU({bound})")
        A.scale(1.0)
        check_products(A, dense, f"bindToCPU({bound}), values touched")


def check_vectors():
    """Zeros, of the matrix's layout; on a device without an array on the host, until one is asked for."""
    dense = random_dense(COUNT, 24)
    for name, local in layouts(COUNT).items():
        for bound in (False, True):
            A = distribute(dense, TYPE, local)
            # on some ranks, as -mat_bind_below may where PETSc does not look whether all do
            A.bindToCPU(bound and (COMM.rank > 0 or petsc_checks()))
            assert not LIBRARY.MatSetBindingPropagates(ctypes.c_void_p(A.handle), 1)  # of libpetsc
            for vector, sizes in zip(A.createVecs(), reversed(A.getSizes()), strict=True):
                assert vector.getSizes() == sizes and vector.getBlockSize() == 1, name
                if COMM.size > 1 and not bound and sizes[0] and "cuda" in vector.getType():
                    assert vector.getOffloadMask() == ON_DEVICE_ALONE, name
                copy = vector.duplicate()
                vector.copy(copy)
                assert vector.norm() == 0.0 and copy.norm() == 0.0
                assert not np.any(vector.getArray(readonly=True)), name
            check_products(A, dense, f"vectors of {name}")
    A = PETSc.Mat().create(COMM)
    A.setSizes((12, 36), bsize=(2, 3))
    A.setType(TYPE)
    A.setUp()
    A.assemble()
    assert [v.getBlockSize() for v in A.createVecs()] == [3, 2]


def check_mixed_types():
    """Sums, products and copies of our matrices with aij ones, in both orders."""
    dense_a, dense_b = random_dense(COUNT, COUNT, 11), random_dense(COUNT, COUNT, 12)
    for first, second in ((FORMAT, "aij"), ("aij", FORMAT), (FORMAT, FORMAT)):
        A, B = distribute(dense_a, first), distribute(dense_b, second)
        name = f"{first} and {second}"
        check_product_matrix(A.matMult(B), dense_a @ dense_b, f"{name}: matMult")
        check_product_matrix(A.transposeMatMult(B), dense_a.T @ dense_b, f"{name}: transposeMatMult")
        check_product_matrix(A.ptap(B), dense_b.T @ dense_a @ dense_b, f"{name}: ptap")
        C = A.copy()
        C.axpy(-2.0, B, PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)
        check_products(C, dense_a - 2.0 * dense_b, f"{name}: axpy")
        C = PETSc.Mat().createTranspose(A)
        x, y = C.createVecs()
        values = random_vector(x, 4)
        C.mult(x, y)
        first_row, last_row = y.getOwnershipRange()
        assert np.allclose(y.getArray(readonly=True), (dense_a.T @ values)[first_row:last_row])


def check_product_matrix(C, dense, what):
    """A product matrix rounds in an order of its own, so it is held against NumPy by the norm of its action."""
    x, y = C.createVecs()
    values = random_vector(x, 5)
    C.mult(x, y)
    first, last = y.getOwnershipRange()
    error = np.abs(y.getArray(readonly=True) - (dense @ values)[first:last])
    limit = 1000 * np.finfo(PETSc.RealType).eps * (1.0 + np.abs(dense).sum())
    assert np.all(error <= limit), f"{what}: off by {error.max()} on rank {COMM.rank}"


def check_types_of_petsc_that_take_our_blocks():
    """They convert blocks as if these were plain ones: what is left of our operations does what PETSc's do.

    Of a PETSc with CUDA, products of aijsell end in an error: their kernels are for other slices than it makes.
    """
    options = PETSc.Options()
    for name in ("aijperm",) if PETSc.Sys.hasExternalPackage("cuda") else ("aijperm", "aijsell"):
        plain = list(seen(name))
        options["mat_seqaij_type"] = SEQ
        for found, expected in zip(seen(name), plain, strict=True):
            np.testing.assert_array_equal(found, expected, f"blocks of type {name}")
        del options["mat_seqaij_type"]


def seen(name):
    """What comes of the operations of a matrix of PETSc's type, and of its block."""
    dense = random_dense(COUNT, COUNT) + np.eye(COUNT)  # after new entries, products of aijsell are an error
    A = distribute(dense, name)
    A.setOption(PETSc.Mat.Option.KEEP_NONZERO_PATTERN, True)
    A.setFromOptions()
    yield from products(A)
    A.scale(2.0)
    A.shift(3.0)
    yield from products(A)
    A.diagonalScale(*(A.getDiagonal() for _ in range(2)))
    A.zeroRows([0], 5.0)
    copy = A.duplicate(copy=True)
    copy.axpy(1.0, A)
    yield from products(copy)
    viewer = PETSc.Viewer().createASCII("/dev/null", comm=PETSc.COMM_SELF)
    viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO)
    block = A.getDiagonalBlock()
    assert block.getType() == "seq" + name, block.getType()
    block.view(viewer)
    block.setFromOptions()
    for converted in (block.convert("dense", PETSc.Mat()), block.convert(SEQ, PETSc.Mat()), block.copy()):
        yield converted.norm()
    A.zeroEntries()
    yield A.norm()


def products(A):
    x, y = A.createVecs()
    for product, operand, result in ((A.mult, x, y), (A.multTranspose, y.duplicate(), x.duplicate())):
        random_vector(operand, 7)
        product(operand, result)
        yield result.getArray().copy()
    yield A.getDiagonal().getArray().copy()
    yield A.norm(PETSc.NormType.INFINITY)


check_names()
check_types_of_petsc_that_take_our_blocks()
check_blocks_of_every_creation_path()
check_change_of_type_keeps_values()
check_convert_into_existing()
PETSc.Log.begin()
ROWS.activate()
check_conversions_to_other_types()
check_kronecker_products()
check_duplicate_is_independent()
check_null_spaces_survive()
check_diagonal()
check_block_size_survives()
check_binding_to_cpu()
check_vectors()
check_mixed_types()
