"""Who computes in the benchmarks: our formats with their options, and the peers; who is left out, and why."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

scipy_sparse = pytest.importorskip("scipy.sparse")

from petsc_gpufmt.bench import bsr, contenders, cusparse, cusparse_bsr, timing  # noqa: E402
from petsc_gpufmt.bench.contenders import format_contender, format_options  # noqa: E402
from petsc_gpufmt.bench.errors import BenchError  # noqa: E402
from petsc_gpufmt.bench.matrices import BenchMatrix, make_matrix  # noqa: E402
from petsc_gpufmt.bench.mult import Reference, measure_mult  # noqa: E402
from petsc_gpufmt.bench.places import host_place  # noqa: E402

SCALAR, INDEX = np.dtype(np.float64), np.dtype(np.int32)


def rng():
    return np.random.default_rng(977)


def make(spec):
    place = host_place()
    return make_matrix(spec, place.backend.scalar, place.backend.index, rng())


def rows_of(lengths, ncols):
    """A matrix with rows of given lengths."""
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(INDEX)
    columns = np.concatenate([np.arange(length) for length in lengths]).astype(INDEX)
    return BenchMatrix("rows", scipy_sparse.csr_matrix((np.ones(columns.size), columns, rowptr), (len(lengths), ncols)))


def test_format_variants():
    name, options = format_options("pjds:slice_height=64,sigma_window=-1")
    assert name == "pjds"
    assert (options["slice_height"], options["sigma_window"]) == (64, -1)
    assert format_contender("pjds:slice_height=64", "host").options == {"mat_pjds_slice_height": "64"}
    for variant in ("none", "pjds:slice_height=tall", "pjds:slice_height", "pjds:height=3"):
        with pytest.raises(BenchError, match="--format"):
            format_options(variant)


def test_options_with_a_dot_belong_to_another_format():
    assert contenders.option_name("gpufmt", "format") == "mat_gpufmt_format"
    assert contenders.option_name("gpufmt", "pjds.slice_height") == "mat_pjds_slice_height"


def test_variant_reaches_the_matrix():
    """The option has to arrive in the store: a slice height that is not offered fails in the first product."""
    place, matrix = host_place(), make("7point:3")
    with pytest.raises(BenchError, match="PETSc error"):
        format_contender("pjds:slice_height=7", "host").prepare(matrix, np.ones(27), place)


def test_block_size_reaches_the_matrix():
    place, matrix = host_place(), make("7point:3x4")
    product = contenders.PetscContender("aij", "host").prepare(matrix, np.ones(108), place)
    assert product.A.getBlockSize() == 4
    np.testing.assert_allclose(product.result(), matrix.csr @ np.ones(108), atol=1e-12)
    product.close()


def test_our_products_say_how_the_matrix_is_stored():
    place, matrix = host_place(), make("7point:3")
    for contender, words in ((format_contender("pjds", "host"), "slice height"), (contenders.HOST_PEERS[0], "")):
        product = contender.prepare(matrix, np.ones(27), place)
        assert words in product.describe()
        assert bool(product.describe()) == bool(words)
        product.close()


def test_padded_entries_of_slices():
    matrix = rows_of([1, 5, 2, 0, 3], 5).csr
    assert contenders.sliced_entries(matrix, 1) == 11
    assert contenders.sliced_entries(matrix, 2) == 2 * (5 + 2 + 3)
    assert contenders.sliced_entries(matrix, 5) == 5 * 5
    assert contenders.sliced_entries(scipy_sparse.csr_matrix((0, 3)), 16) == 0


def test_types_that_would_pad_too_much_are_left_out():
    even, one_long = rows_of([4] * 40, 1000), rows_of([1000] + [2] * 39, 1000)
    assert contenders.SELLCUDA.obstacle(even) is None
    assert contenders.SELLCUDA.obstacle(one_long) == "padded rows would store 15 times the nonzeros"
    assert format_contender("ellpack", "host").obstacle(one_long) == "padded rows would store 37 times the nonzeros"
    assert format_contender("pjds", "host").obstacle(one_long) is None
    place, x = host_place(), np.ones(1000)
    entry = measure_mult(contenders.SELLCUDA, one_long, x, Reference.of(one_long.csr, x), place, 1)
    assert entry["skipped"] == "padded rows would store 15 times the nonzeros"


def test_a_peer_that_fails_is_skipped_and_ours_is_not():
    place, matrix = host_place(), make("7point:3")
    reference = Reference.of(matrix.csr, np.ones(27))
    unknown = contenders.PetscContender("other", "host", types=("seqother",))
    assert "PETSc error" in measure_mult(unknown, matrix, np.ones(27), reference, place, 1)["skipped"]
    with pytest.raises(BenchError, match="pjds:slice_height=7 of 7-point 3.* on host"):
        measure_mult(format_contender("pjds:slice_height=7", "host"), matrix, np.ones(27), reference, place, 1)


def names(chosen):
    return [(contender.name, contender.place) for contender in chosen]


def test_choice_of_contenders(monkeypatch):
    monkeypatch.setattr(contenders, "default_formats", lambda matrix: ["bsr" if matrix.block_size > 1 else "jds"])
    peers = contenders.PETSC_DEVICE_PEERS[:1]
    small, blocked = rows_of([1, 2], 3), BenchMatrix("blocks", scipy_sparse.identity(4, format="csr"), 2)
    device = [("aijcusparse ALG1", "cuda")]
    host = [("pjds", "host"), ("aij", "host")]
    assert names(contenders.choose_contenders(small, ["host"], None, peers)) == host
    assert names(contenders.choose_contenders(small, ["host", "cuda"], None, peers)) == [
        ("jds", "cuda"),
        *device,
        *host,
    ]
    assert ("bsr", "cuda") in names(contenders.choose_contenders(blocked, ["host", "cuda"], None, peers))
    monkeypatch.setattr(contenders, "HOST_NONZEROS", 2)
    assert names(contenders.choose_contenders(small, ["host", "cuda"], ["pjds"], peers)) == [("pjds", "cuda"), *device]
    assert names(contenders.choose_contenders(small, ["host"], ["jds"], peers)) == [("jds", "host"), ("aij", "host")]


def test_default_formats():
    from petsc_gpufmt.choice.registry import FORMATS

    assert {"gpufmt", "pjds", "bsr"} <= set(FORMATS)
    assert contenders.default_formats(rows_of([1], 1)) == ["gpufmt", "pjds"]
    assert contenders.default_formats(BenchMatrix("blocks", scipy_sparse.identity(4, format="csr"), 2)) == [
        "gpufmt",
        "bsr",
    ]


def test_warm_up_is_longer_than_the_type_that_chooses_needs():
    from petsc_gpufmt.choice.gpufmt import TIMED_AFTER

    assert timing.WARM_UP_CALLS > TIMED_AFTER + 1


@pytest.mark.parametrize(
    ("block_size", "points", "millions"), [(2, 82, 58.1), (8, 33, 58.4), (45, 10, 44.5), (64, 10, 89.9)]
)
def test_grids_of_the_block_sizes(block_size, points, millions):
    assert bsr.grid_points(block_size, 59_000_000) == points
    assert (3 * points - 2) ** 3 * block_size**2 == pytest.approx(millions * 1e6, rel=0.01)


def test_bytes_of_a_blocked_product():
    matrix = make_matrix("7point:3x2", SCALAR, INDEX, rng())
    blocks, nrows = 27 + 2 * 3 * 18, 54
    assert bsr.bsr_bytes(matrix) == 8 * 4 * blocks + 4 * blocks + 4 * 28 + 16 * nrows


@pytest.mark.parametrize("block_size", [1, 2, 5])
def test_blocks_of_a_blocked_matrix(block_size):
    matrix = make_matrix(f"27point:3x{block_size}", SCALAR, INDEX, rng())
    expected = matrix.csr.tobsr((block_size, block_size))
    expected.sort_indices()
    rowptr, columns, values = cusparse_bsr.block_arrays(matrix, np)
    np.testing.assert_array_equal(rowptr, expected.indptr)
    np.testing.assert_array_equal(columns, expected.indices)
    np.testing.assert_array_equal(values, expected.data)
    assert rowptr.dtype == columns.dtype == INDEX


def test_matrix_without_blocks_is_refused():
    uneven, odd, shifted = rows_of([2, 4], 4), rows_of([3, 3], 4), rows_of([2, 2], 4)
    shifted.csr.indices += 1
    apart = rows_of([2, 2], 4)
    apart.csr.indices *= 2
    for matrix in (uneven, odd, shifted, apart, rows_of([2, 2, 2], 4)):
        with pytest.raises(BenchError, match="does not consist of 2 x 2 blocks"):
            cusparse_bsr.block_arrays(BenchMatrix("plain", matrix.csr, 2), np)


class FakeCusparse:
    """Records calls, hands out numbers as handles, and multiplies by way of the addresses it was given."""

    def __init__(self, failing=None, missing=None):
        self.calls, self.alive, self.failing = [], set(), failing
        for name in {**cusparse.COMMON_PROTOTYPES, **cusparse_bsr.PROTOTYPES}:
            if name != missing:
                setattr(self, name, self.function(name))
        self.cusparseGetErrorString = lambda status: b"not supported"

    def function(self, name):
        def called(*arguments):
            self.calls.append((name, *arguments))
            if name == self.failing:
                return 10
            if name.startswith("cusparseCreate"):
                handle = len(self.calls)
                self.alive.add(handle)
                arguments[0]._obj.value = handle
            if name.startswith("cusparseDestroy"):
                self.alive.remove(arguments[0].value)
            if name == "cusparseSpMV_bufferSize":
                arguments[-1]._obj.value = 24
            if name == "cusparseSpMV":
                self.multiply()
            return 0

        return called

    def given(self, name):
        return next(call[1:] for call in self.calls if call[0] == name)

    def multiply(self):
        _, brows, bcols, nblocks, size, width, rowptr, columns, values, *types = self.given("cusparseCreateBsr")
        blocks = array(values, np.float64, nblocks * size * width).reshape(nblocks, size, width)
        if types[-1] == cusparse_bsr.ORDERS["column"]:
            blocks = blocks.transpose(0, 2, 1)
        bsr_matrix = scipy_sparse.bsr_matrix(
            (blocks, array(columns, np.int32, nblocks), array(rowptr, np.int32, brows + 1)),
            shape=(brows * size, bcols * width),
        )
        (x, z) = [call[2:4] for call in self.calls if call[0] == "cusparseCreateDnVec"]
        array(z[1], np.float64, z[0])[:] = bsr_matrix @ array(x[1], np.float64, x[0])


def array(address, dtype, size):
    memory = (ctypes.c_char * (size * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(memory, dtype=dtype)


def loaded(fake):
    return cusparse.Cusparse(fake, cusparse_bsr.PROTOTYPES, cusparse_bsr.RELEASE)


def fake_product(fake, order="row"):
    place = host_place()
    if (place.backend.scalar, place.backend.index) != (SCALAR, INDEX):
        pytest.skip("the arrays of the fake are double and 32-bit")
    matrix = make("27point:3x4")
    x = rng().random(matrix.csr.shape[1])
    arrays = cusparse_bsr.block_arrays(matrix, np)
    return matrix, x, cusparse_bsr.CusparseBsrMult(loaded(fake), arrays, x, order, place.backend, 77)


@pytest.mark.parametrize("order", cusparse_bsr.ORDERS)
def test_cusparse_is_given_the_matrix(order):
    fake = FakeCusparse()
    matrix, x, product = fake_product(fake, order)
    np.testing.assert_allclose(product.result(), matrix.csr @ x)
    # 27 block rows and columns, 343 blocks of 4 x 4; 32-bit indices from 0, double values
    assert fake.given("cusparseCreateBsr")[1:6] == (27, 27, 343, 4, 4)
    assert fake.given("cusparseCreateBsr")[9:] == (2, 2, 0, 1, cusparse_bsr.ORDERS[order])
    assert fake.given("cusparseSetStream")[1] == 77
    alpha, beta = (array(fake.given("cusparseSpMV")[k], np.float64, 1)[0] for k in (2, 5))
    assert (alpha, beta) == (1, 0)
    product.close()
    assert not fake.alive


@pytest.mark.parametrize("failing", ["cusparseCreateBsr", "cusparseSpMV"])
def test_refusal_of_cusparse_is_told_and_nothing_is_left(failing):
    fake = FakeCusparse(failing=failing)
    with pytest.raises(BenchError, match=f"{failing}: not supported"):
        fake_product(fake)
    assert not fake.alive


def test_old_cusparse_is_told():
    with pytest.raises(BenchError, match="no cusparseCreateBsr: CUDA 12.6"):
        loaded(FakeCusparse(missing="cusparseCreateBsr"))
