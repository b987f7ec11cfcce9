"""Distributed matrices with a known dense counterpart, and the comparison of products with it.

Every rank holds the whole dense matrix, so that each product has an oracle that is independent of PETSc.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import petsc4py

petsc4py.init(sys.argv)

from petsc4py import PETSc  # noqa: E402

sys.path += [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2] / "tools")]

from bounds import rounding  # noqa: E402, F401

import petsc_gpufmt  # noqa: E402, F401
from petsc_gpufmt.backends import driver  # noqa: E402

COMM = PETSc.COMM_WORLD
FORMAT = PETSc.Options().getString("format")
TYPE = "aij" + FORMAT
SEED = 20260821
IS_COMPLEX = np.issubdtype(PETSc.ScalarType, np.complexfloating)


def layouts(count):
    """Ways to give `count` rows to the ranks: {name: local size}; ranks without rows first, in the middle and last."""
    size, rank = COMM.size, COMM.rank
    named = {"balanced": np.full(size, count // size)}
    named["balanced"][: count % size] += 1
    holes = {"none_on_first": 0, "none_on_middle": size // 2, "none_on_last": size - 1}
    for name, hole in holes.items():
        if size > 1:
            owners = [r for r in range(size) if r != hole]
            sizes = np.zeros(size, dtype=int)
            sizes[owners] = count // len(owners)
            sizes[owners[-1]] += count % len(owners)
            named[name] = sizes
    named["all_on_last"] = np.zeros(size, dtype=int)
    named["all_on_last"][-1] = count
    return {name: int(sizes[rank]) for name, sizes in named.items()}


def random_dense(rows, columns, seed=SEED):
    """A matrix with rows of very different lengths, some of them empty; the same one on every rank."""
    random = np.random.default_rng(seed)
    density = random.choice([0.0, 0.05, 0.2, 0.9], size=(rows, 1), p=[0.1, 0.5, 0.3, 0.1])
    dense = np.where(random.random((rows, columns)) < density, random.uniform(-1, 1, (rows, columns)), 0.0)
    if IS_COMPLEX:
        dense = dense * np.exp(2j * np.pi * random.random((rows, columns)))
    return dense.astype(PETSc.ScalarType)


def own_rows(local_rows):
    """First and past-the-last row of this rank."""
    last = COMM.tompi4py().scan(local_rows)
    return last - local_rows, last


def scalars(values):
    """As PETSc has them: petsc4py narrows none."""
    return np.asarray(values, PETSc.ScalarType)


def csr(dense_rows):
    """Row pointers, column indices and values of the nonzeros."""
    rows, columns = np.nonzero(dense_rows)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense_rows)))])
    return pointers.astype(PETSc.IntType), columns.astype(PETSc.IntType), scalars(dense_rows[rows, columns])


def distribute(dense, matrix_type=TYPE, local_rows=None, local_columns=None):
    """The PETSc matrix of a type with the nonzeros of `dense`, balanced where no local size is given."""
    given = (local_rows, local_columns)
    local = [layouts(n)["balanced"] if size is None else size for n, size in zip(dense.shape, given, strict=True)]
    A = PETSc.Mat().create(COMM)
    A.setSizes(list(zip(local, dense.shape, strict=True)))
    A.setType(matrix_type)
    first, last = own_rows(local[0])
    A.setPreallocationCSR(csr(dense[first:last]))
    A.assemble()
    return A


def random_vector(vector, seed):
    """Fill a vector with random numbers; returns all of them."""
    random = np.random.default_rng(seed)
    values = random.uniform(-1, 1, vector.getSize()).astype(PETSc.ScalarType)
    if IS_COMPLEX:
        values += 1j * random.uniform(-1, 1, vector.getSize())
    first, last = vector.getOwnershipRange()
    vector.setArray(scalars(values[first:last]))
    return values


def assert_close(vector, expected, bound, what):
    """Every local entry within its error bound."""
    first, last = vector.getOwnershipRange()
    error = np.abs(vector.getArray(readonly=True) - expected[first:last])
    wrong = np.flatnonzero(~(error <= bound[first:last]))
    assert wrong.size == 0, f"{what}: entry {first + wrong[0]} is off by {error[wrong[0]]} on rank {COMM.rank}"


def check_products(A, dense, what):
    """Products, transposed, Hermitian transposed and added ones, with fresh and with aliased results, against NumPy."""
    eps = np.finfo(PETSc.RealType).eps
    products = {
        "": (A.mult, A.multAdd, dense),
        " transposed": (A.multTranspose, A.multTransposeAdd, dense.T),
        " Hermitian transposed": (A.multHermitian, A.multHermitianAdd, dense.conj().T),
    }
    for words, (mult, mult_add, matrix) in products.items():
        x, y = A.createVecs()[:: -1 if words else 1]
        values_x, values_y = random_vector(x, 7), random_vector(y, 8)
        product = matrix @ values_x
        # the sum of n terms in any order, twice: here and in the oracle
        terms = 2 * np.count_nonzero(matrix, axis=1) + 4
        bound = terms * eps * (np.abs(matrix) @ np.abs(values_x))
        bound_add = bound + terms * eps * np.abs(values_y)
        name = f"{what}, {A.getType()}{words}"

        z = y.duplicate()
        z.set(np.nan)  # a product must not read what it overwrites
        mult(x, z)
        assert_close(z, product, bound, f"{name} mult")
        z.set(np.nan)
        mult_add(x, y, z)
        assert_close(z, values_y + product, bound_add, f"{name} multAdd")
        mult_add(x, y, y)
        assert_close(y, values_y + product, bound_add, f"{name} multAdd in place")


def block_types(A):
    """Type names of the sequential blocks: the matrix itself on one rank, else the diagonal block."""
    return A.getType() if A.getType().startswith("seq") else A.getDiagonalBlock().getType()


def halo_mode(A):
    """The mode of the halo exchange that the detailed view of a matrix shows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(COMM.tompi4py().bcast(folder)) / "view"
        viewer = PETSc.Viewer().createASCII(str(path), comm=COMM)
        viewer.pushFormat(PETSc.Viewer.Format.ASCII_INFO_DETAIL)
        A.view(viewer)
        viewer.destroy()
        text = COMM.tompi4py().bcast(path.read_text() if COMM.rank == 0 else None)
        COMM.barrier()
    return text.partition("storage: halo exchange in mode ")[2].split()[0]


def on_host():
    """Whether vectors of matrices are there."""
    return distribute(np.eye(COMM.size, dtype=PETSc.ScalarType)).createVecs()[0].getType() in ("seq", "mpi")


def ranks_share_gpus():
    """PETSc deals ranks to the devices of a host in turn; ranks may see different ones."""
    seen = COMM.tompi4py().allgather(os.environ.get("CUDA_VISIBLE_DEVICES"))
    return not on_host() and COMM.size > len(set(seen)) * driver.device_count()


def mode_instead_of(mode):
    """Where it cannot be: one rank has no peers, and ranks that share a GPU have none either."""
    return mode if mode != "peer" or (COMM.size > 1 and not ranks_share_gpus()) else "overlap"


def default_mode():
    return "overlap" if on_host() else mode_instead_of("peer")
