"""Values at coordinates: those of a matrix of type aij, wherever they are given and added up.

Where there is no device, ordinary memory takes the place of managed one, or PETSc adds up.
"""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from answers import settled_tokens
from bounds import rounding
from copies import copied_bytes
from petsc4py import PETSc
from petsc_products import stencil_csr, symbolic_phases

from petsc_gpufmt import set_preallocation_coo, set_values_coo
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.errors import GpufmtError, PatternError
from petsc_gpufmt.planning import planner, requests
from petsc_gpufmt.planning.abi import Ask

N, M, COUNT = 40, 50, 900
ADD, INSERT = PETSc.InsertMode.ADD_VALUES, PETSc.InsertMode.INSERT_VALUES
Option = PETSc.Mat.Option
NEW_NONZERO, SIZE, UNSUPPORTED, NULL, STATE = 63, 60, 56, 85, 73  # error codes of PETSc
LIBRARY = native_library.load()


def managed_matrices():
    if LIBRARY.GpufmtManagedCount():
        gc.collect()
    return LIBRARY.GpufmtManagedCount()


@pytest.fixture(
    params=["host", "simulated", *(pytest.param(p, marks=pytest.mark.gpu) for p in ("device", "device values"))],
    autouse=True,
)
def place(request):
    """Where values are given and added up; no managed arrays may be left behind."""
    before = managed_matrices()
    if request.param in ("host", "simulated") and not LIBRARY.GpufmtManagedSimulate(request.param == "simulated"):
        pytest.skip("there is a device")
    yield request.param
    assert managed_matrices() == before
    LIBRARY.GpufmtManagedSimulate(0)


def given(values, place):
    if place != "device values":
        return values
    import cupy

    return cupy.asarray(values)


def random_coordinates(count=COUNT, seed=3, low=-2):
    """Some repeated, some negative."""
    rng = np.random.default_rng(seed)
    return [rng.integers(low, n, count).astype(PETSc.IntType) for n in (N, M)]


def ones(shape):
    return np.ones(shape, PETSc.ScalarType)


def random_values(count=COUNT, seed=4):
    return np.random.default_rng(seed).uniform(-1, 1, count).astype(PETSc.ScalarType)


def matrix(mat_type, coordinates, size=(N, M)):
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes(size)
    A.setType(mat_type)
    A.setPreallocationCOO(*(c.copy() for c in coordinates))  # PETSc may change them
    return A


def pair(coordinates=None, mat_type="aijpjds", size=(N, M)):
    coordinates = random_coordinates() if coordinates is None else coordinates
    return [matrix(t, coordinates, size) for t in (mat_type, "aij")]


def products(A):
    (x, z), (y, w) = A.createVecs(), A.createVecs()[::-1]
    x.setArray(np.arange(1.0, x.size + 1, dtype=PETSc.ScalarType))
    y.setArray(np.arange(1.0, y.size + 1, dtype=PETSc.ScalarType))
    A.mult(x, z)
    A.multTranspose(y, w)
    return np.concatenate((z.getArray(), w.getArray()))


def assert_same(A, B):
    ours, theirs = A.getValuesCSR(), B.getValuesCSR()
    assert all(np.array_equal(a, b) for a, b in zip(ours[:2], theirs[:2], strict=True))
    np.testing.assert_allclose(ours[2], theirs[2], rtol=rounding(1e-13), atol=rounding(1e-13))
    np.testing.assert_allclose(products(A), products(B), rtol=rounding(1e-11), atol=rounding(1e-11))


def set_both(matrices, place, addv=None, seed=4):
    A, B = matrices
    values = random_values(seed=seed)
    set_values_coo(A, given(values, place), addv)
    B.setValuesCOO(values, addv)


def test_coordinates_after_a_set_up_are_sorted_where_others_are(place, monkeypatch):
    """MatSetUp(), as DMCreateMatrix() calls it too, prepares for values of any entries."""
    matrices, coordinates, sizes, kind = [], random_coordinates(), [], requests.KINDS[Ask.COO]

    def fill(request, answer, backend):
        sizes.append(request.nentries)
        return kind.fill(request, answer, backend)

    monkeypatch.setitem(requests.KINDS, Ask.COO, kind._replace(fill=fill))
    for mat_type in ("aijpjds", "aij"):
        A = PETSc.Mat().create(PETSc.COMM_SELF)
        A.setSizes((N, M))
        A.setType(mat_type)
        A.setUp()
        A.setPreallocationCOO(*(c.copy() for c in coordinates))
        matrices.append(A)
    assert sizes == ([] if place == "host" else [COUNT])
    set_both(matrices, place)
    assert_same(*matrices)


@pytest.mark.parametrize("mat_type", FORMATS)
def test_values_of_all_modes(place, mat_type):
    matrices = pair(mat_type=mat_type)
    for seed, addv in enumerate((None, True, False, ADD, ADD, INSERT)):
        set_both(matrices, place, addv, seed)
        assert_same(*matrices)
    assert managed_matrices() == (place != "host")


@pytest.mark.double
def test_values_that_replace_others_have_the_bits_of_aij(place):
    A, B = matrices = pair()
    set_both(matrices, place)
    assert A.getValuesCSR()[2].tobytes() == B.getValuesCSR()[2].tobytes()


def test_values_that_are_added_at_first(place):
    matrices = pair()
    for seed, addv in enumerate((True, True, None)):
        set_both(matrices, place, addv, seed)
        assert_same(*matrices)


@pytest.mark.parametrize("size", [(N, M), (0, M), (N, 0), (0, 0)])
@pytest.mark.parametrize("count", [0, 5])
def test_no_entries(place, size, count):
    A, _ = pair([np.full(count, -1, dtype=PETSc.IntType)] * 2, size=size)
    for addv in (None, True):
        set_values_coo(A, given(ones(count), place), addv)
    assert A.getInfo()["nz_used"] == 0
    assert not products(A).any()


def test_one_entry_many_times(place):
    coordinates = [np.full(3000, 7, dtype=PETSc.IntType)] * 2
    A, _ = pair(coordinates)
    set_values_coo(A, given(ones(3000), place))
    assert A.getValuesCSR()[2].tolist() == [3000.0]


def test_coordinates_from_python_stay_as_they_are(place):
    rows, columns = random_coordinates()
    A, B = matrices = pair([rows, columns])
    kept = rows.copy(), columns.copy()
    arrays = [given(c, place) for c in (rows, columns)]
    set_preallocation_coo(A, *arrays)
    assert all(np.array_equal(a.get() if place == "device values" else a, k) for a, k in zip(arrays, kept, strict=True))
    set_both(matrices, place)
    assert_same(A, B)


def test_new_values_need_one_plan(place):
    matrices = pair()
    set_both(matrices, place)
    products(matrices[0])
    before = settled_tokens()
    for seed in range(5):
        set_both(matrices, place, seed=seed)
        assert_same(*matrices)
    assert planner.owned_tokens() == before


def test_new_coordinates(place):
    A, B = matrices = pair()
    set_both(matrices, place)
    products(A)
    for seed in (5, 6):
        for mat in matrices:
            mat.setPreallocationCOO(*random_coordinates(seed=seed))
        set_both(matrices, place)
        assert_same(A, B)


@pytest.mark.parametrize("copy", [True, False])
def test_a_copy_takes_values_of_its_own(place, copy):
    A, B = matrices = pair()
    set_both(matrices, place)
    copies = [mat.duplicate(copy=copy) for mat in matrices]
    assert_same(*copies)
    set_both(copies, place, True, seed=5)
    assert_same(*copies)
    assert_same(A, B)
    A.destroy()
    set_both(copies, place, None, seed=6)
    assert_same(*copies)


@pytest.mark.parametrize("other", ["aijbsr", "aij"])
def test_another_type_takes_values_at_the_same_coordinates(place, other):
    A, B = matrices = pair()
    set_both(matrices, place)
    A.convert(other)
    assert_same(A, B)
    values = random_values(seed=5)
    for mat in matrices:
        mat.setValuesCOO(values, True)
    assert_same(A, B)
    A.convert("aijpjds")
    set_both(matrices, place, None, seed=6)
    assert_same(A, B)


def zero_rows(A):
    A.setOption(Option.KEEP_NONZERO_PATTERN, True)
    A.zeroRows([1, 4], diag=3.0)


def on_the_host(A):
    A.setOption(Option.NEW_NONZERO_LOCATION_ERR, True)


WRITERS = {
    "zero rows": zero_rows,
    "zero rows and columns": lambda A: A.zeroRowsColumns([1, 4], diag=3.0),
    "shift": lambda A: A.shift(2.0),
    "scale": lambda A: A.scale(2.0),
    "zero": lambda A: A.zeroEntries(),
    "leave": on_the_host,
}


@pytest.mark.parametrize("write", WRITERS)
def test_values_after_a_change_on_the_host(place, write):
    """And the changes themselves."""
    diagonal = np.arange(N, dtype=PETSc.IntType)
    rows, columns = (np.concatenate((c[: COUNT - N] % N, diagonal)) for c in random_coordinates())
    A, B = matrices = pair([rows, columns], size=(N, N))
    set_both(matrices, place)
    for seed, addv in enumerate((None, True, None)):
        for mat in matrices:
            WRITERS[write](mat)
        assert_same(A, B)
        set_both(matrices, place, addv, seed)
        assert_same(A, B)


def test_what_belongs_to_the_matrix_stays(place):
    A, B = pair()
    space = PETSc.NullSpace().create(constant=True, comm=PETSc.COMM_SELF)
    mappings = [PETSc.LGMap().create(np.arange(n, dtype=PETSc.IntType), comm=PETSc.COMM_SELF) for n in (N, M)]
    A.setNearNullSpace(space)
    A.setLGMap(*mappings)
    A.setOptionsPrefix("mine_")
    A.compose("other", B)
    A.setOption(Option.SYMMETRIC, False)
    A.setOption(Option.SYMMETRY_ETERNAL, True)
    set_values_coo(A, given(random_values(), place))
    assert A.getNearNullSpace().handle == space.handle
    assert [m.handle for m in A.getLGMap()] == [m.handle for m in mappings]
    assert A.getOptionsPrefix() == "mine_" and A.query("other").handle == B.handle
    assert A.isSymmetricKnown() == (True, False)


def column_oriented(A):
    A.setOption(Option.ROW_ORIENTED, False)


def zeros_ignored(A):
    A.setOption(Option.IGNORE_ZERO_ENTRIES, True)


def nonzeros_taken(A):
    A.setOption(Option.NEW_NONZERO_ALLOCATION_ERR, False)


def nonzeros_left_out(A):
    A.setOption(Option.NEW_NONZERO_LOCATION_ERR, True)
    A.setOption(Option.NEW_NONZERO_LOCATIONS, False)


def insert_a_block(A):
    A.setValues([0, 1], range(M), np.arange(2.0 * M, dtype=PETSc.ScalarType), addv=True)
    A.assemble()


def insert_in_pattern(A):
    rowptr, colidx, _ = A.getValuesCSR()
    columns = np.intersect1d(*(colidx[rowptr[i] : rowptr[i + 1]] for i in (0, 1)))
    A.setValues([0, 1], columns, np.arange(2.0 * columns.size, dtype=PETSc.ScalarType), addv=True)
    A.assemble()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("set_option", [column_oriented, zeros_ignored, nonzeros_taken, nonzeros_left_out])
def test_options_of_insertion_stay(place, set_option, late):
    """Those set before the coordinates, as far as they stay with type aij, or after them."""
    matrices = pair()
    for mat in matrices:
        set_option(mat)
        if not late:
            mat.setPreallocationCOO(*random_coordinates())
    set_both(matrices, place)
    insert = insert_a_block if late and set_option in (nonzeros_taken, nonzeros_left_out) else insert_in_pattern
    for mat in matrices:
        insert(mat)
    assert_same(*matrices)


@pytest.mark.parametrize("copied", [False, True])
def test_a_new_nonzero_is_an_error_as_with_aij(place, copied):
    matrices = pair()
    set_both(matrices, place)
    for mat in matrices:
        mat = mat.duplicate(copy=True) if copied else mat
        with pytest.raises(PETSc.Error) as failure:
            insert_a_block(mat)
        assert failure.value.ierr == NEW_NONZERO


def test_a_new_nonzero_is_an_error_where_aij_has_got_the_coordinates(place):
    A, B = matrices = pair(mat_type="aij")
    A.setValuesCOO(random_values())
    A.convert("pjds")
    set_both(matrices, place)
    for mat in matrices:
        with pytest.raises(PETSc.Error) as failure:
            insert_a_block(mat)
        assert failure.value.ierr == NEW_NONZERO


def test_sparse_products_of_matrices_with_coordinates(place, options):
    """Operands and results take new values without another symbolic phase."""
    options["matmatmult_via"] = "rmerge"
    PETSc.Log.begin()
    grid = stencil_csr(4)
    rows = np.repeat(np.arange(grid.nrows), np.diff(grid.rowptr)).astype(PETSc.IntType)
    A, B = pair([rows, grid.colidx.astype(PETSc.IntType)], size=(grid.nrows,) * 2)
    result, before = None, symbolic_phases() + 1
    for seed in range(3):
        values = random_values(grid.values.size, seed)
        set_values_coo(A, given(values, place))
        B.setValuesCOO(values)
        result = A.matMult(A) if seed == 0 else A.matMult(A, result=result)
        np.testing.assert_allclose(result[:, :], B[:, :] @ B[:, :], rtol=rounding(1e-12), atol=rounding(1e-13))
    assert symbolic_phases() == before


class OnADevice:
    """What CuPy's arrays show of themselves, with the memory of the host."""

    def __init__(self, array, **fields):
        shown = {"shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False), "version": 3}
        self.__cuda_array_interface__ = {**shown, "strides": None, **fields}
        self.array = array


WRONG_CALLS = [
    (np.ones(COUNT, dtype=np.float16), None, TypeError, "values are of type float16"),
    (ones((COUNT, 1)), None, ValueError, "must be one contiguous row"),
    (ones(2 * COUNT)[::2], None, ValueError, "must be one contiguous row"),
    (OnADevice(np.ones(COUNT, dtype=np.int32)), None, TypeError, "values are of type int32"),
    (
        OnADevice(ones(2 * COUNT)[::2], strides=(2 * np.dtype(PETSc.ScalarType).itemsize,)),
        None,
        ValueError,
        "must be one contiguous row",
    ),
    (ones(COUNT), 7, ValueError, "addv is 7"),
]


WRONG_COORDINATES = [
    ([np.zeros(3), np.zeros(3)], TypeError, "indices are of type float64"),
    ([np.zeros((3, 1), dtype=PETSc.IntType)] * 2, ValueError, "must be one contiguous row"),
    ([np.zeros(n, dtype=PETSc.IntType) for n in (3, 4)], ValueError, "must be as many"),
    ([np.zeros(3, PETSc.IntType), OnADevice(np.zeros(3, PETSc.IntType))], ValueError, "both on the host or both"),
]


@pytest.mark.parametrize(("arrays", "error", "text"), WRONG_COORDINATES)
def test_wrong_coordinates_are_refused(arrays, error, text):
    with pytest.raises(error, match=text):
        set_preallocation_coo(pair()[0], *arrays)


@pytest.mark.parametrize(("values", "addv", "error", "text"), WRONG_CALLS)
def test_wrong_arrays_are_refused(values, addv, error, text):
    with pytest.raises(error, match=text):
        set_values_coo(pair()[0], values, addv)


def refused(code, text, A, values):
    with pytest.raises(GpufmtError, match=f"^PETSc error {code}: .*{text}"):
        set_values_coo(A, values)


def test_what_does_not_fit_the_matrix_is_one_clear_error(place):
    A, B = matrices = pair()
    set_both(matrices, place)
    refused(SIZE, f"899 values for {COUNT} coordinates", A, given(ones(COUNT - 1), place))
    refused(UNSUPPORTED, "the matrix is of type seqaij: use the matrix's own method", B, given(ones(COUNT), place))
    fresh = PETSc.Mat().createAIJ((4, 4), nnz=1, comm=PETSc.COMM_SELF)
    fresh.assemble()
    fresh.convert("pjds")
    refused(STATE, "call MatSetPreallocationCOO", fresh, ones(0))
    assert LIBRARY.MatSetValuesCOO(ctypes.c_void_p(A.handle), None, INSERT) == NULL
    assert_same(A, B)
    nonzeros_taken(A)
    insert_a_block(A)
    refused(STATE, "the pattern has changed since MatSetPreallocationCOO", A, given(ones(COUNT), place))


def test_coordinates_outside_are_an_error_after_which_the_matrix_takes_others(place):
    rows, columns = random_coordinates()
    rows[17] = N
    A = matrix("aijpjds", random_coordinates(seed=8))
    with pytest.raises(PETSc.Error) as failure:
        A.setPreallocationCOO(rows.copy(), columns.copy())
    assert failure.value.ierr == (63 if place == "host" else PatternError.petsc_code)
    rows[17] = N - 1
    B = matrix("aij", [rows, columns])
    A.setPreallocationCOO(rows.copy(), columns.copy())
    set_both([A, B], place)
    assert_same(A, B)


def test_stored_values_are_there_after_new_ones(place):
    matrices = pair()
    set_both(matrices, place)
    for copy in (copies := [M.duplicate(copy=True) for M in matrices]):
        copy.setOption(Option.NEW_NONZERO_LOCATIONS, False)
        copy.storeValues()
        copy.setValuesCOO(np.zeros(COUNT, PETSc.ScalarType))
        copy.retrieveValues()
    assert_same(copies[1], copies[0])


def test_values_of_a_device_need_one(place):
    A, _ = pair()
    if place.startswith("device"):
        A.bindToCPU(True)
        refused(UNSUPPORTED, "the matrix is bound to the CPU", A, given(ones(COUNT), "device values"))
        set_values_coo(A, ones(COUNT))
    else:
        refused(UNSUPPORTED, "PETSc has none here", A, OnADevice(ones(COUNT)))
        with pytest.raises(GpufmtError, match="PETSc has none here"):
            set_preallocation_coo(A, *[OnADevice(c) for c in random_coordinates()])
    with pytest.raises(GpufmtError, match="the matrix is of type seqaij"):
        set_preallocation_coo(matrix("aij", random_coordinates()), *random_coordinates())


@pytest.mark.gpu
def test_values_on_the_device_are_not_copied(place):
    """Nor do those wait that are still computed on another stream, or change afterwards."""
    if place != "device values":
        pytest.skip("for values on the device")
    import cupy

    PETSc.Log.begin()
    A, B = pair()
    A.setValuesCOO(random_values())
    products(A)
    before = [copied_bytes(direction) for direction in ("ctog", "gtoc")]
    x, z = A.createVecs()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        values = cupy.zeros(COUNT, PETSc.ScalarType)
        for _ in range(1000):
            values += 1.0
        set_values_coo(A, values)
        values[:] = -1.0
    A.mult(x, z)
    assert [copied_bytes(direction) for direction in ("ctog", "gtoc")] == before
    B.setValuesCOO(np.full(COUNT, 1000.0, PETSc.ScalarType))
    assert_same(A, B)
