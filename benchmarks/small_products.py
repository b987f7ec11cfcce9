"""Small products of every format on the GPU, for compute-sanitizer: build, refresh, z = A x, z = y + A x, transposes.

Exits with status 1 if a result is wrong. Memory comes straight from cudaMalloc, so that an access outside an array
shows.
"""

import argparse
import sys

import numpy as np
import scipy.sparse
from petsc4py import PETSc

from petsc_gpufmt.bench.contenders import format_options
from petsc_gpufmt.bench.mult import SEED, Reference
from petsc_gpufmt.bench.places import available_places, device_reason, random_vector
from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.plan import Operation, Slot
from petsc_gpufmt.registry import FORMATS

VARIANTS = [
    *FORMATS,
    "pjds:slice_height=8",
    "pjds:slice_height=128,sigma_window=-1",
    "pjds:slice_height=16,sigma_window=100",
]


def small_matrices(scalar, index, rng):
    """Name -> CSR matrix: shapes at which a kernel can leave its arrays."""

    def random(nrows, ncols, density):
        return scipy.sparse.random(nrows, ncols, density, format="csr", dtype=scalar, random_state=rng)

    some_empty = random(333, 217, 0.05).tolil()
    some_empty[40:120] = 0
    matrices = {
        "one entry": random(1, 1, 1.0),
        "no entries": random(70, 50, 0.0),
        "uneven rows, some empty": some_empty.tocsr(),
        "few long rows": random(5, 3000, 0.5),
        "wide": random(100, 4000, 0.02),
        "tall": random(4000, 100, 0.02),
        "one long row": scipy.sparse.vstack([random(1, 500, 1.0), random(600, 500, 0.01)]).tocsr(),
    }
    for matrix in matrices.values():
        matrix.sort_indices()
        matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
    return matrices


def plan_products(variant, matrix, place, rng):
    """Errors over bounds of the plans of one format, as given and transposed."""
    name, options = format_options(variant)
    backend, xp = place.backend, place.backend.xp
    pattern = CsrPattern(*matrix.shape, xp.asarray(matrix.indptr), xp.asarray(matrix.indices))
    errors = []
    for transposed in (False, True):
        expected = matrix.T.tocsr() if transposed else matrix
        stored = FORMATS[name].build(pattern.transposed(xp) if transposed else pattern, backend, options)
        backend.run(stored.plan(Operation.REFRESH), {Slot.VALUES: xp.asarray(matrix.data)})
        x, y = (random_vector(size, backend.scalar, rng) for size in (expected.shape[1], expected.shape[0]))
        reference = Reference.of(expected, x)
        z = xp.full(expected.shape[0], np.nan, dtype=backend.scalar)
        slots = {Slot.X: xp.asarray(x), Slot.Y: xp.asarray(y), Slot.Z: z}
        backend.run(stored.plan(Operation.MULT), slots)
        errors.append(reference.error(backend.to_host(z)))
        z.fill(np.nan)
        backend.run(stored.plan(Operation.MULTADD), slots)
        bound = reference.bound + np.finfo(backend.scalar).eps * (abs(y) + abs(reference.z))
        errors.append(Reference(y + reference.z, bound).error(backend.to_host(z)))
    return errors


def petsc_products(name, matrix, place, rng):
    """Errors over bounds of MatMult, MatMultTranspose and MatMultAdd of a PETSc matrix."""
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
    bound = forward.bound + np.finfo(place.backend.scalar).eps * (abs(y_values) + abs(forward.z))
    errors.append(Reference(y_values + forward.z, bound).error(z.getArray(readonly=True)))
    for item in (A, x, y, z, w):
        item.destroy()
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", action="store_true", help="run on the host instead")
    arguments = parser.parse_args()
    if not arguments.host and device_reason():
        sys.exit(f"small_products: {device_reason()}; --host runs on the host")
    worst = 0.0
    with available_places(arguments.host) as places:
        place = places["host" if arguments.host else "cuda"]
        if not arguments.host:
            place.backend.xp.cuda.set_allocator(None)
        rng = np.random.default_rng(SEED)
        for label, matrix in small_matrices(place.backend.scalar, place.backend.index, rng).items():
            errors = [error for variant in VARIANTS for error in plan_products(variant, matrix, place, rng)]
            errors += [error for name in FORMATS for error in petsc_products(name, matrix, place, rng)]
            worst = max(worst, *errors)
            print(
                f"{label:24} {len(errors)} products on {place.name}, largest error {max(errors):.3g} of its bound",
                flush=True,
            )
    return 0 if worst <= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
