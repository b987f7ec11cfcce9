"""Small products of every format on the GPU, for compute-sanitizer: all plans, transposes, and the calls of PETSc.

Each format stores each matrix with its default options, as one of a large matrix with these, with options that take
other kernels, and with some from its tuning space. Exits with status 1 if a result is wrong. Each array has memory of
its own, so that an access outside shows.
"""

import contextlib
import sys
from unittest import mock

import numpy as np
import scipy.sparse
from petsc4py import PETSc
from small_programs import command_line, place_of

from petsc_gpufmt.backends.plan import Operation, Slot
from petsc_gpufmt.bench.mult import Reference
from petsc_gpufmt.bench.places import SEED, random_vector
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.formats import pjds
from petsc_gpufmt.formats.evchyb import layout, parameters
from petsc_gpufmt.patterns import transpose
from petsc_gpufmt.patterns.csr import CsrPattern

TUNED = 2  # sets of options of a tuning space that are tried
MATRIX_FOR_PETSC = "uneven rows, some empty"
SHORT = {"index": "short"}
OTHER_KERNELS = {
    "pjds": tuple(
        {**SHORT, "sigma_window": window, "slice_height": height} for window, height in ((48, 8), (-1, 128), (1, 64))
    ),
    "bsr": ({"block_size": 2}, {"block_size": 3, "lambda": 2}),
    "evchyb": (
        *({**SHORT, "sigma_window": window, "split_length": 4} for window in (1, 64, -1)),
        {"split_length": 1, "segment_length": 256},
    ),
    **{name: (SHORT, {"block_threads": 512}) for name in ("csrscalar", "csrvector", "csradaptive")},
}
"""Options that a format is built with by kernels, or branches of them, which small matrices do not take by default."""


def small_matrices(scalar, index, rng):
    """Name -> CSR matrix: shapes at which a kernel can leave its arrays. Those of blocks of 3 say so to the formats."""

    def random(nrows, ncols, density):
        return scipy.sparse.random(nrows, ncols, density, format="csr", dtype=scalar, random_state=rng)

    some_empty = random(333, 217, 0.05).tolil()
    some_empty[40:120] = 0
    many_rows = scipy.sparse.vstack([random(9000, 3000, 0.0005), random(30, 3000, 0.1), random(4000, 3000, 0.002)])
    matrices = {
        "one entry": random(1, 1, 1.0),
        "no entries": random(70, 50, 0.0),
        MATRIX_FOR_PETSC: some_empty.tocsr(),
        "few long rows": random(5, 3000, 0.5),
        "columns far apart": random(40, 200_000, 0.00008),
        "one long row": scipy.sparse.vstack([random(1, 5500, 1.0), random(200, 5500, 0.001)]).tocsr(),
        "blocks": scipy.sparse.kron(random(40, 40, 0.1), np.ones((3, 3), scalar), format="csr").multiply(
            random(120, 120, 0.9)
        ),
        "full blocks": scipy.sparse.kron(random(40, 40, 0.1), np.ones((3, 3), scalar), format="csr"),
        "stencil": scipy.sparse.diags([1.0, -4.0, 1.0], [-9, 0, 9], shape=(700, 700), format="csr", dtype=scalar),
        "many rows": scipy.sparse.hstack([many_rows, random(many_rows.shape[0], 1, 0.15)], format="csr"),
    }
    matrices = {name: matrix.tocsr() for name, matrix in matrices.items()}
    for matrix in matrices.values():
        matrix.sort_indices()
    matrices["unsorted"] = disordered(matrices[MATRIX_FOR_PETSC], rng)
    for matrix in matrices.values():
        matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
    return matrices


def disordered(matrix, rng):
    """The entries of each row in any order, and some of their columns twice."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((rng.random(matrix.nnz), rows))
    arrays = matrix.data[order], matrix.indices[order] // 2 * 2, matrix.indptr
    return scipy.sparse.csr_matrix(arrays, shape=matrix.shape)


def option_sets(cls, pattern):
    """The default, what takes other kernels, and some of the tuning space: the first, and others evenly spread."""
    space = cls.tuning_space(pattern)
    return [{}, *OTHER_KERNELS.get(cls.name, ()), *space[:: max(1, len(space) // TUNED)][:TUNED]]


@contextlib.contextmanager
def taken_for_large():
    """Matrices are stored as if their entries filled the device."""
    with (
        mock.patch.object(pjds, "FEW_ENTRIES", 0),
        mock.patch.object(pjds, "MANY_ROWS", 0),
        mock.patch.object(layout, "SMALL_BYTES", 0),
        mock.patch.object(parameters, "BUSY_ENTRIES", 0),
    ):
        yield


def plan_products(cls, options, pattern, transposed, matrix, place, rng):
    """Errors over bounds of all plans of one format, for the matrix or for its transpose."""
    backend, xp = place.backend, place.backend.xp
    expected = matrix.T.tocsr() if transposed else matrix
    pattern = transpose.transposed(pattern, backend) if transposed else pattern
    stored = cls.build(pattern, backend, {**cls.default_options, **options})
    backend.run(stored.plan(Operation.REFRESH), {Slot.VALUES: xp.asarray(matrix.data)})
    x, y = (random_vector(size, backend.scalar, rng) for size in (expected.shape[1], expected.shape[0]))
    reference = Reference.of(expected, x)
    diagonal = np.zeros(expected.shape[0], dtype=backend.scalar)
    diagonal[: min(expected.shape)] = expected.diagonal()
    results = {
        Operation.MULT: reference,
        Operation.MULTADD: sum_reference(y, reference),
        Operation.DIAGONAL: Reference(diagonal, np.zeros_like(diagonal)),
    }
    z = xp.full(expected.shape[0], np.nan, dtype=backend.scalar)
    slots = {Slot.X: xp.asarray(x), Slot.Y: xp.asarray(y), Slot.Z: z}
    errors = []
    for operation, result in results.items():
        z.fill(np.nan)
        backend.run(stored.plan(operation), slots)
        errors.append(result.error(backend.to_host(z)))
    return errors


def sum_reference(y, product):
    """y + A x and its rounding bound."""
    bound = product.bound + np.finfo(y.dtype).eps * (abs(y) + abs(product.z))
    return Reference(y + product.z, bound)


def petsc_products(name, matrix, place, rng):
    """Errors over bounds of MatMult, MatMultTranspose, MatMultAdd and MatGetDiagonal of a PETSc matrix."""
    A = PETSc.Mat().create(PETSc.COMM_SELF)
    A.setSizes(matrix.shape)
    A.setType(f"seqaij{name}")
    A.setPreallocationCSR((matrix.indptr, matrix.indices, matrix.data))
    vectors = []
    for size in (matrix.shape[1], matrix.shape[0]):
        vector = PETSc.Vec().create(PETSc.COMM_SELF)
        vector.setSizes(size)
        vector.setType(place.vector_type)
        vector.setArray(random_vector(size, place.backend.scalar, rng))
        vectors.append(vector)
    x, y = vectors
    z, w = y.duplicate(), x.duplicate()
    x_values, y_values = x.getArray(readonly=True).copy(), y.getArray(readonly=True).copy()
    forward, backward = Reference.of(matrix, x_values), Reference.of(matrix.T.tocsr(), y_values)
    A.mult(x, z)
    errors = [forward.error(z.getArray(readonly=True))]
    A.multTranspose(y, w)
    errors.append(backward.error(w.getArray(readonly=True)))
    A.multAdd(x, y, z)
    errors.append(sum_reference(y_values, forward).error(z.getArray(readonly=True)))
    A.getDiagonal(z)
    diagonal = np.zeros_like(y_values)
    diagonal[: min(matrix.shape)] = matrix.diagonal()
    errors.append(Reference(diagonal, np.zeros_like(diagonal)).error(z.getArray(readonly=True)))
    for item in (A, x, y, z, w):
        item.destroy()
    return errors


def main():
    parser = command_line(__doc__)
    parser.add_argument("--matrix", metavar="NAME", help="only this one, such as 'blocks'")
    arguments = parser.parse_args()
    worst = 0.0
    with place_of("small_products", arguments.host) as place:
        rng = np.random.default_rng(SEED)
        matrices = small_matrices(place.backend.scalar, place.backend.index, rng)
        if arguments.matrix not in (None, *matrices):
            sys.exit(f"small_products --matrix {arguments.matrix}: choose one of {', '.join(matrices)}")
        for label, matrix in matrices.items():
            if arguments.matrix not in (None, label):
                continue
            errors = []
            for cls in FORMATS.values():
                block = 3 if "blocks" in label else 1
                arrays = (place.backend.xp.asarray(array) for array in (matrix.indptr, matrix.indices))
                pattern = CsrPattern(*matrix.shape, *arrays, row_block=block, col_block=block)
                for options in option_sets(cls, pattern):
                    for transposed in (False, True) if not options else (False,):
                        errors += plan_products(cls, options, pattern, transposed, matrix, place, rng)
                with taken_for_large():
                    errors += plan_products(cls, {}, pattern, False, matrix, place, rng)
                if label == MATRIX_FOR_PETSC:
                    errors += petsc_products(cls.name, matrix, place, rng)
            worst = max(worst, *errors)
            print(
                f"{label:24} {len(errors)} products on {place.name}, largest error {max(errors):.3g} of its bound",
                flush=True,
            )
    return 0 if worst <= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
