"""Results of sparse products whose arrays are not PETSc's: the host sees and changes them as those of any matrix.

On a device they are in managed memory. Elsewhere ordinary memory takes its place: where pages lie is not shown then.
"""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from bounds import rounding
from chains import Exact, operands_of
from petsc4py import PETSc
from petsc_products import (
    METHODS,
    VIA,
    gamg_iterations,
    multiply,
    other_values,
    petsc_matrix,
    stencil_csr,
    symbolic_phases,
)
from places import INDEX

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.plan import Product
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.planning.given import host_view

EVERY_PRODUCT = pytest.mark.parametrize("product", METHODS, ids=lambda p: p.formula)
NEW_NONZERO = 63
VIEW = 61  # MATOP_VIEW
LOCATION = PETSc.Mat.Option.NEW_NONZERO_LOCATION_ERR
N, M = 60, 40


def managed_matrices():
    return native_library.load().GpufmtManagedCount()


def settled_count():
    """Their number without those that only wait for the garbage collector."""
    if managed_matrices():
        gc.collect()
    return managed_matrices()


@pytest.fixture(params=["simulated", pytest.param("device", marks=pytest.mark.gpu)], autouse=True)
def place(request, options):
    """All products by RMerge, with managed arrays; none may be left behind."""
    PETSc.Log.begin()
    library = native_library.load()
    before = settled_count()
    if request.param == "simulated":
        if not library.GpufmtManagedSimulate(1):
            pytest.skip("there is a device")
        for via in VIA.values():
            options[via] = "rmerge"
    yield request.param
    assert settled_count() == before
    if request.param == "simulated":
        assert library.GpufmtManagedSimulate(0)


def product(which=Product.PTAP, mat_type="aijpjds", **sizes):
    """Operands, their matrices and the result, which has managed arrays."""
    operands = operands_of(which, N, M, **sizes)
    matrices = [petsc_matrix(m, mat_type) for m in operands]
    before = managed_matrices()
    C = multiply(which, matrices)
    assert managed_matrices() == before + 1
    return operands, matrices, C


def ordinary(C):
    """The same matrix of type aij, made from its rows."""
    rowptr, colidx, values = (a.copy() for a in C.getValuesCSR())
    return PETSc.Mat().createAIJ(C.size, csr=(rowptr, colidx, values), comm=PETSc.COMM_SELF)


def check(which, operands, C):
    Exact.of(which, operands).check(*C.getValuesCSR())


def diagonally_dominant():
    grid = stencil_csr(4)
    matrices = [petsc_matrix(grid), petsc_matrix(grid)]
    return matrices, multiply(Product.AB, matrices)


@EVERY_PRODUCT
def test_products_and_their_reuse(product):
    operands = operands_of(product, N, M)
    matrices = [petsc_matrix(m) for m in operands]
    C = multiply(product, matrices)
    check(product, operands, C)
    before = symbolic_phases()
    for seed in range(2):
        operands = other_values(matrices, operands, seed)
        multiply(product, matrices, result=C)
        check(product, operands, C)
    assert symbolic_phases() == before


@pytest.mark.parametrize("mat_type", FORMATS)
def test_every_type(mat_type):
    operands, _, C = product(Product.PTAP, mat_type)
    check(Product.PTAP, operands, C)
    assert C.getType() == f"seqaij{mat_type}"


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 7), (7, 0), (1, 1)])
def test_small_and_empty_results(n, m):
    operands = operands_of(Product.PTAP, n, m)
    matrices = [petsc_matrix(o) for o in operands]
    C = multiply(Product.PTAP, matrices)
    multiply(Product.PTAP, matrices, result=C)
    check(Product.PTAP, operands, C)


def test_eager_results_have_ordinary_arrays(options):
    options["mat_rmerge_host_values"] = "eager"
    operands = operands_of(Product.PTAP, N, M)
    C = multiply(Product.PTAP, [petsc_matrix(m) for m in operands])
    assert managed_matrices() == 0
    check(Product.PTAP, operands, C)


def test_a_wrong_word_is_an_error(options):
    options["mat_rmerge_host_values"] = "late"
    with pytest.raises(PETSc.Error, match="late"):
        multiply(Product.PTAP, [petsc_matrix(m) for m in operands_of(Product.PTAP, N, M)])


def test_results_of_type_aij_have_ordinary_arrays():
    operands = operands_of(Product.AB, N, M)
    C = multiply(Product.AB, [petsc_matrix(m, t) for m, t in zip(operands, ("aij", "pjds"), strict=True)])
    assert managed_matrices() == 0
    check(Product.AB, operands, C)


def test_columns_are_aligned_for_any_scalar_and_index():
    """They follow the values: an odd number of single-precision ones must not leave indices of 64 bits astride."""
    grid = petsc_matrix(stencil_csr(3))
    C, columns = multiply(Product.AB, [grid, grid]), ctypes.c_void_p()
    assert C.getInfo()["nz_used"] % 2 == 1
    handle = ctypes.c_void_p(C.handle)
    assert native_library.load().MatSeqAIJGetCSRAndMemType(handle, None, ctypes.byref(columns), None, None) == 0
    assert columns.value % 16 == 0


def copied_rowptr(A, nbytes=None):
    """The copy of the row pointer beside the columns, None if there is none."""
    library, rowptr = native_library.load(), ctypes.c_void_p()
    library.GpufmtManagedCopiedRowptr.restype = ctypes.c_void_p
    handle, nbytes = ctypes.c_void_p(A.handle), nbytes or (A.size[0] + 1) * INDEX.itemsize
    assert library.MatSeqAIJGetCSRAndMemType(handle, ctypes.byref(rowptr), None, None, None) == 0
    copy = library.GpufmtManagedCopiedRowptr(rowptr, ctypes.c_size_t(nbytes))
    return copy and host_view(copy, A.size[0] + 1, INDEX).copy()


def test_row_pointers_are_copied_until_zeros_are_eliminated():
    matrices, C = diagonally_dominant()
    assert copied_rowptr(C).tolist() == C.getRowIJ()[0].tolist()
    assert copied_rowptr(C, 8) is None and copied_rowptr(matrices[0]) is None
    matrices[0].zeroEntries()
    multiply(Product.AB, matrices, result=C)
    eliminate_zeros(C)
    assert copied_rowptr(C) is None
    add_everywhere(C)
    assert copied_rowptr(C) is None


READERS = {
    "rows": lambda A: np.concatenate([A.getRow(i)[1] for i in range(A.size[0])]),
    "dense": lambda A: A.copy().convert("dense").getDenseArray().copy(),
    "diagonal": lambda A: A.getDiagonal().getArray().copy(),
    "norms": lambda A: np.array([A.norm(PETSc.NormType.FROBENIUS), A.norm(PETSc.NormType.INFINITY)]),
    "copy": lambda A: A.duplicate(copy=True).getValuesCSR()[2].copy(),
    "shared pattern": lambda A: np.array(A.duplicate().getValuesCSR()[1]),
    "aij": lambda A: A.convert("aij", PETSc.Mat()).getValuesCSR()[2].copy(),
    "baij": lambda A: A.convert("baij", PETSc.Mat()).getValuesCSR()[2].copy(),
    "transpose": lambda A: A.transpose(PETSc.Mat()).getValuesCSR()[2].copy(),
    "submatrix": lambda A: A.createSubMatrix(*[PETSc.IS().createStride(9, 3, 2, PETSc.COMM_SELF)] * 2)[:, :],
    "sum": lambda A: (A + A)[:, :],
    "product": lambda A: product_with_vector(A),
    "transposed product": lambda A: product_with_vector(A, transposed=True),
    "relaxation": lambda A: solve_with("sor", A),
    "ilu": lambda A: solve_with("ilu", A),
    "lu": lambda A: solve_with("lu", A),
}


def product_with_vector(A, transposed=False):
    x, z = A.createVecLeft(), A.createVecRight()
    x.setArray(np.arange(1.0, x.size + 1, dtype=PETSc.ScalarType))
    (A.multTranspose if transposed else A.mult)(x, z)
    return z.getArray().copy()


def solve_with(pc_type, A):
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    pc.setOperators(A)
    pc.setType(pc_type)
    pc.setUp()
    b, x = A.createVecs()
    b.set(1.0)
    pc.apply(b, x)
    pc.destroy()
    return x.getArray().copy()


@pytest.mark.parametrize("reader", READERS)
def test_who_reads_on_the_host_sees_the_values_of_the_last_numeric_phase(reader):
    matrices, C = diagonally_dominant()
    for factor in (1.0, 3.0):
        matrices[0].scale(factor)
        multiply(Product.AB, matrices, result=C)
        np.testing.assert_allclose(READERS[reader](C), READERS[reader](ordinary(C)), rtol=rounding(1e-12))
        assert C[0, 0] == pytest.approx(ordinary(C)[0, 0])
    assert C[0, 0] == pytest.approx(3.0 * sum(stencil_csr(4).values[:4] ** 2))


def test_views_on_the_host(tmp_path, capfd):
    matrices, C = diagonally_dominant()
    viewer = PETSc.Viewer().createBinary(str(tmp_path / "c"), "w", PETSc.COMM_SELF)
    C.view(viewer)
    viewer.destroy()
    viewer = PETSc.Viewer().createBinary(str(tmp_path / "c"), "r", PETSc.COMM_SELF)
    loaded = PETSc.Mat().create(PETSc.COMM_SELF)
    loaded.setType("aij")
    loaded.load(viewer)
    viewer.destroy()
    assert all(np.array_equal(a, b) for a, b in zip(loaded.getValuesCSR(), C.getValuesCSR(), strict=True))
    C.view(PETSc.Viewer.STDOUT(PETSc.COMM_SELF))
    assert "row 0: (0, 39.)" in capfd.readouterr().out


def test_allocated_nonzeros_are_those_used():
    _, _, C = product()
    info = C.getInfo()
    assert info["nz_allocated"] == info["nz_used"] == C.getValuesCSR()[2].size and info["nz_unneeded"] == 0


def scale(A):
    A.scale(2.0)


def scale_rows(A):
    d = A.createVecLeft()
    d.setArray(np.linspace(1.0, 2.0, A.size[0], dtype=PETSc.ScalarType))
    A.diagonalScale(d, d)


def add_in_pattern(A):
    columns = A.getRow(3)[0]
    A.setValues(3, columns, np.ones(columns.size, PETSc.ScalarType), addv=True)
    A.assemble()


def add_everywhere(A):
    A.setValues([0, 1], range(A.size[1]), np.ones((2, A.size[1]), PETSc.ScalarType), addv=True)
    A.assemble()


def zero_rows(A):
    A.zeroRows([1, 4, 5], diag=3.0)


def zero_rows_and_keep(A):
    A.setOption(PETSc.Mat.Option.KEEP_NONZERO_PATTERN, True)
    A.zeroRows([1, 4, 5], diag=3.0)


def zero_rows_and_columns(A):
    A.zeroRowsColumns([1, 4, 5], diag=3.0)


def add_same_pattern(A):
    A.axpy(2.0, A.duplicate(copy=True), structure=PETSc.Mat.Structure.SAME_NONZERO_PATTERN)


def add_other_pattern(A):
    other = A.duplicate(copy=False)
    add_everywhere(other)
    A.axpy(2.0, other, structure=PETSc.Mat.Structure.DIFFERENT_NONZERO_PATTERN)


def transpose(A):
    A.transpose()


def shift(A):
    A.shift(2.0)


def chop(A):
    A.chop(0.5)


def convert(A):
    A.convert("aij")
    add_everywhere(A)


def allow_nonzeros(A):
    A.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    add_everywhere(A)


def whole_rows(A):
    columns = A.getRow(3)[0].copy()
    A.setOption(PETSc.Mat.Option.SORTED_FULL, True)
    A.setValues(3, columns, np.ones(columns.size, PETSc.ScalarType))
    A.assemble()
    A.setOption(PETSc.Mat.Option.SORTED_FULL, False)
    add_everywhere(A)


def preallocate(A):
    A.setPreallocationNNZ(A.size[1])
    add_everywhere(A)


def coordinates(A):
    A.setPreallocationCOO([0, 1, 1], [1, 0, 1])
    A.setValuesCOO([1.0, 2.0, 3.0])


WRITERS = [
    *(scale, scale_rows, add_in_pattern, add_everywhere, zero_rows, zero_rows_and_keep, zero_rows_and_columns),
    *(add_same_pattern, add_other_pattern, transpose, shift, chop, convert, allow_nonzeros, whole_rows, preallocate),
    coordinates,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("full_diagonal", [True, False])
def test_who_changes_a_result_on_the_host_finds_an_ordinary_matrix(write, full_diagonal):
    C = diagonally_dominant()[1] if full_diagonal else product(longest=20)[2]
    if not full_diagonal and write in (zero_rows_and_keep, coordinates):
        pytest.skip("needs diagonal entries, or these entries")
    same = ordinary(C)
    same.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, False)
    space = PETSc.NullSpace().create(constant=True, comm=PETSc.COMM_SELF)
    for A in (C, same):
        A.setNearNullSpace(space)
    product_with_vector(C)
    for _ in range(2):
        write(C)
        write(same)
    np.testing.assert_array_equal(C.getValuesCSR()[1], same.getValuesCSR()[1])
    np.testing.assert_allclose(C[:, :], same[:, :])
    np.testing.assert_allclose(product_with_vector(C), product_with_vector(same), rtol=rounding(1e-12))
    left = same.getNearNullSpace().handle  # not where PETSc makes a new matrix
    assert not left or C.getNearNullSpace().handle == left
    space.destroy()


@pytest.mark.parametrize("write", [scale, scale_rows, add_in_pattern, zero_rows_and_keep, zero_rows_and_columns, shift])
def test_a_numeric_phase_after_a_change_of_values(write):
    operands, matrices, C = product(longest=20)
    if write in (zero_rows_and_keep, zero_rows_and_columns, shift):
        matrices, C = diagonally_dominant()
    before, values = symbolic_phases(), C.getValuesCSR()[2].copy()
    write(C)
    which = Product.AB if matrices[0].size == (64, 64) else Product.PTAP
    multiply(which, matrices, result=C)
    np.testing.assert_array_equal(C.getValuesCSR()[2], values)
    assert symbolic_phases() == before


def test_a_numeric_phase_after_a_change_of_the_pattern_is_an_error():
    _, matrices, C = product()
    add_everywhere(C)
    with pytest.raises(PETSc.Error, match="the pattern of the result has changed since the symbolic phase"):
        multiply(Product.PTAP, matrices, result=C)


def test_a_new_nonzero_that_the_user_has_ruled_out_is_an_error():
    _, _, C = product()
    C.setOption(LOCATION, True)
    with pytest.raises(PETSc.Error) as failure:
        add_everywhere(C)
    assert failure.value.ierr == NEW_NONZERO


def test_a_product_of_products_and_their_order_of_destruction():
    operands = operands_of(Product.ABC, N, M)
    R, A, P = (petsc_matrix(m) for m in operands)
    first = multiply(Product.AB, [R, A])
    C = multiply(Product.AB, [first, P])
    assert managed_matrices() == 2
    for seed in (8, 9):
        operands = other_values([R, A, P], operands, seed)
        multiply(Product.AB, [R, A], result=first)
        multiply(Product.AB, [first, P], result=C)
        check(Product.ABC, operands, C)
    first.destroy()
    P.destroy()
    check(Product.ABC, operands, C)


def test_another_result_of_the_same_pattern_may_take_the_place_of_an_operand():
    operands = operands_of(Product.ABC, N, M)
    R, A, P = (petsc_matrix(m) for m in operands)
    C = multiply(Product.AB, [multiply(Product.AB, [R, A]), P])
    before = symbolic_phases()
    for seed in (8, 9):
        operands = other_values([R, A, P], operands, seed)
        first = multiply(Product.AB, [R, A])
        multiply(Product.AB, [first, P], result=C)
        check(Product.ABC, operands, C)
    assert symbolic_phases() == before + 2
    multiply(Product.AB, [ordinary(first).convert("pjds"), P], result=C)
    check(Product.ABC, operands, C)


@pytest.mark.parametrize("change", [add_everywhere, zero_rows, chop], ids=lambda f: f.__name__)
def test_an_operand_whose_managed_pattern_changed_is_an_error(change):
    grid = petsc_matrix(stencil_csr(4))
    first = multiply(Product.AB, [grid, grid])
    second = multiply(Product.AB, [first, grid])
    if change is chop:
        columns = first.getRow(3)[0][1:]
        first.setValues(3, columns, np.zeros(columns.size, PETSc.ScalarType))
        first.assemble()
        second = multiply(Product.AB, [first, grid])
    change(first)
    if change is chop:
        eliminate_zeros(first)
    with pytest.raises(PETSc.Error, match="the pattern of A has changed"):
        multiply(Product.AB, [first, grid], result=second)


def eliminate_zeros(A):
    library = native_library.load()
    assert library.MatEliminateZeros(ctypes.c_void_p(A.handle), 0) == 0


def test_zeros_are_eliminated_in_place():
    matrices, C = diagonally_dominant()
    matrices[0].zeroEntries()
    multiply(Product.AB, matrices, result=C)
    eliminate_zeros(C)
    assert C.getValuesCSR()[2].size == 0
    add_everywhere(C)
    assert np.count_nonzero(C[:, :]) == 128


def test_block_sizes_and_prefix_stay():
    A, P = (petsc_matrix(m) for m in operands_of(Product.PTAP, N, M))
    P.setBlockSizes(1, 4)
    C = PETSc.Mat()
    C = A.ptap(P, result=None)
    assert C.getBlockSizes() == (4, 4) and C.isAssembled()
    C.setOptionsPrefix("mine_")
    add_everywhere(C)
    assert C.getBlockSizes() == (4, 4) and C.getOptionsPrefix() == "mine_"


@pytest.mark.parametrize("function", ["MatHeaderMerge", "MatHeaderReplace"])
@pytest.mark.parametrize("onto_a_result", [True, False])
def test_a_result_takes_the_place_of_another_matrix(function, onto_a_result):
    """As PETSc does where a matrix is made anew."""
    A = product()[2] if onto_a_result else petsc_matrix(operands_of(Product.AB, M, M)[0])
    operands = operands_of(Product.PTAP, N, M, seed=77)
    factors = [petsc_matrix(m) for m in operands]
    library, C = native_library.load(), ctypes.c_void_p()
    handles = [ctypes.c_void_p(f.handle) for f in factors]
    assert library.MatPtAP(*handles, 0, np.ctypeslib.as_ctypes_type(PETSc.RealType)(-1.0), ctypes.byref(C)) == 0
    assert getattr(library, function)(ctypes.c_void_p(A.handle), ctypes.byref(C)) == 0
    check(Product.PTAP, operands, A)
    assert managed_matrices() == 1
    add_everywhere(A)
    assert managed_matrices() == 0


@pytest.mark.parametrize("reuse", [True, False])
def test_multigrid_takes_as_many_iterations_as_with_aij(options, reuse):
    options["pc_gamg_reuse_interpolation"] = reuse
    grid = stencil_csr(9)
    managed = []
    ours = gamg_iterations(petsc_matrix(grid), at_end=lambda: managed.append(managed_matrices()))
    assert managed[0] > 0
    for via in VIA.values():
        options.delValue(via)  # PETSc's own types do not know the name
    assert gamg_iterations(petsc_matrix(grid, "aij")) == ours


def test_another_function_to_view_a_result_changes_nothing_else():
    A = petsc_matrix(stencil_csr(4), "pjds")
    C, before = A.matMult(A), managed_matrices()
    viewed = []
    view = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: viewed.append(1) or 0)
    assert not native_library.load().MatSetOperation(ctypes.c_void_p(C.handle), VIEW, view)
    copy = C.duplicate(copy=True)
    copy.setOption(LOCATION, False)
    copy.setValue(0, copy.size[1] - 1, 3.0)
    copy.assemble()
    copy.view()
    assert viewed and copy.norm() > C.norm()
    for matrix in (copy, C):
        matrix.destroy()
    assert managed_matrices() < before
