"""Small sparse products on the GPU, for compute-sanitizer: every accumulator and width, every product of PETSc.

Exits with status 1 if a result is wrong. Each array has memory of its own, so that an access outside shows.
"""

import contextlib
import sys
from unittest import mock

import numpy as np
import scipy.sparse
from petsc4py import PETSc
from small_programs import command_line, place_of

from petsc_gpufmt.backends.plan import Product, Slot
from petsc_gpufmt.bench.places import SEED
from petsc_gpufmt.bench.spgemm_contender import host_csr
from petsc_gpufmt.bench.spgemm_tasks import Bounded, ProductReference, row_lengths, sorted_transpose
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.spgemm import hash as hashing
from petsc_gpufmt.spgemm.chain import plan_product
from petsc_gpufmt.spgemm.splitting import WIDTHS

OPTIONS = (
    {},
    {"accumulator": "hash"},
    *({"accumulator": "merge", "merge_width": width} for width in WIDTHS),
)
EVERY_PRODUCT = "every product"
SLOTS = (Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES)


def small_factors(scalar, index, rng):
    """Name -> (A, B): shapes at which a kernel can leave its arrays."""

    def random(nrows, ncols, density):
        matrix = scipy.sparse.random(nrows, ncols, density, format="csr", dtype=scalar, random_state=rng)
        matrix.sort_indices()
        matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
        return matrix

    def stacked(*parts):
        matrix = scipy.sparse.vstack(parts, format="csr")
        matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
        return matrix

    return {
        "one entry": (random(1, 1, 1.0), random(1, 1, 1.0)),
        "no rows": (random(0, 7, 0.0), random(7, 5, 0.5)),
        "no entries": (random(70, 50, 0.0), random(50, 30, 0.5)),
        "some rows empty": (
            stacked(random(60, 90, 0.1), random(40, 90, 0.0), random(33, 90, 0.1)),
            random(90, 80, 0.1),
        ),
        "short rows": (random(133, 90, 0.02), random(90, 80, 0.02)),
        "full rows": (random(40, 45, 1.0), random(45, 50, 1.0)),
        "few long rows": (random(5, 2000, 0.5), random(2000, 300, 0.02)),
        "one long row": (stacked(random(1, 1500, 1.0), random(120, 1500, 0.003)), random(1500, 900, 0.01)),
        "columns far apart": (random(60, 40, 0.2), random(40, 70_000, 0.0003)),
        "long row of the product": (random(3, 300, 1.0), random(300, 60_000, 0.001)),
        "many rows": (random(17_000, 60, 0.02), random(60, 50, 0.1)),
    }


def reference(factors):
    """The product of two or three factors, from the right."""
    product = Bounded.of(factors[-1])
    for factor in reversed(factors[:-1]):
        product = Bounded.of(factor) @ product
    most = sum(int(row_lengths(factor).max(initial=0)) for factor in factors[:-1])
    return ProductReference(product, np.full(factors[0].shape[0], most + 2))


@contextlib.contextmanager
def taken_for_large():
    """Products are made as if their rows filled the device: counted first, and with a launch for each bin."""
    with mock.patch.object(hashing, "MANY_THREADS", 0), mock.patch.object(hashing, "FEW_THREADS", 0):
        yield


def in_ranges(A, B):
    """Options that cut the columns into a few ranges: intermediates may take a quarter of what all terms would."""
    terms = int(row_lengths(B)[A.indices].sum())
    entry = A.indices.itemsize + A.data.itemsize
    return {"accumulator": "merge", "merge_width": min(WIDTHS), "merge_buffer": max(1, 2 * terms * entry // 4)}


def planned_error(product, operands, right, options, backend):
    """Error over its bound of one planned product; its numeric phase runs twice, on values that were NaN."""
    xp = backend.xp
    patterns = [CsrPattern(*m.shape, xp.asarray(m.indptr), xp.asarray(m.indices)).validated(backend) for m in operands]
    planned = plan_product(product, patterns, backend, options)
    C = planned.pattern
    slots = {slot: xp.asarray(matrix.data) for slot, matrix in zip(SLOTS, operands, strict=False)}
    slots[Slot.RESULT] = xp.empty(C.nnz, dtype=backend.scalar)
    errors = []
    for _ in range(2):
        slots[Slot.RESULT].fill(np.nan)
        backend.run(planned.numeric, slots)
        arrays = (backend.to_host(array) for array in (C.rowptr, C.colidx, slots[Slot.RESULT]))
        errors.append(right.error(host_csr((C.nrows, C.ncols), *arrays)))
    return max(errors)


def all_products(A, B, square):
    """Each product of PETSc: its kind, its operands, its factors from left to right, its call in petsc4py."""
    transposed_a, transposed_b = sorted_transpose(A), sorted_transpose(B)
    return (
        (Product.AB, (A, B), (A, B), "matMult"),
        (Product.ATB, (transposed_a, B), (A, B), "transposeMatMult"),
        (Product.ABT, (A, transposed_b), (A, B), "matTransposeMult"),
        (Product.PTAP, (square, B), (transposed_b, square, B), "ptap"),
        (Product.RART, (square, transposed_b), (transposed_b, square, B), "rart"),
        (Product.ABC, (A, square, B), (A, square, B), "matMatMult"),
    )


def petsc_error(call, operands, right):
    """Error over its bound of a product of PETSc matrices of ours, first as it is, then with MAT_REUSE_MATRIX."""
    matrices = []
    for matrix in operands:
        made = PETSc.Mat().createAIJWithArrays(
            matrix.shape, (matrix.indptr, matrix.indices, matrix.data), comm=PETSc.COMM_SELF
        )
        made.convert("seqaijgpufmt")
        matrices.append(made)
    multiply = getattr(matrices[0], call)
    C = multiply(*matrices[1:])
    errors = []
    for _ in range(2):
        errors.append(right.error(host_csr(C.getSize(), *C.getValuesCSR())))
        multiply(*matrices[1:], result=C)
    for matrix in (C, *matrices):
        matrix.destroy()
    return max(errors)


def every_product(A, B, place):
    """Largest error over its bound of all products of PETSc, planned and by PETSc."""
    backend, worst = place.backend, 0.0
    square = sorted_transpose(A) @ A
    square.sort_indices()
    square.indptr, square.indices = square.indptr.astype(backend.index), square.indices.astype(backend.index)
    for product, operands, chain, call in all_products(A, B, square):
        right = reference(chain)
        errors = [planned_error(product, operands, right, {}, backend), petsc_error(call, operands, right)]
        worst = max(worst, *errors)
        report(product.formula, errors, place)
    return worst


def main():
    parser = command_line(__doc__)
    parser.add_argument(
        "--case", action="append", metavar="NAME", help=f"one of the shapes by its name, or {EVERY_PRODUCT}; repeatable"
    )
    arguments = parser.parse_args()
    worst = 0.0
    with place_of("small_spgemm", arguments.host) as place:
        backend = place.backend
        rng = np.random.default_rng(SEED)
        factors = small_factors(backend.scalar, backend.index, rng)
        names = (*factors, EVERY_PRODUCT)
        cases = arguments.case or names
        for unknown in set(cases) - set(names):
            parser.error(f"--case {unknown}: there are {', '.join(names)}")
        for label in filter(factors.get, cases):
            A, B = factors[label]
            right = reference((A, B))
            every_option = (*OPTIONS, in_ranges(A, B))
            errors = [planned_error(Product.AB, (A, B), right, options, backend) for options in every_option]
            by_transpose = (sorted_transpose(A), B)
            for options in ({}, {"accumulator": "merge"}):
                errors.append(planned_error(Product.ATB, by_transpose, right, options, backend))
            with taken_for_large():
                errors.append(planned_error(Product.AB, (A, B), right, {"accumulator": "hash"}, backend))
            worst = max(worst, *errors)
            report(label, errors, place)
        if EVERY_PRODUCT in cases:
            worst = max(worst, every_product(*factors["some rows empty"], place))
    return 0 if worst <= 1.0 else 1


def report(label, errors, place):
    error = f"largest error {max(errors):.3g} of its bound"
    print(f"{label:24} {len(errors)} products on {place.name}, {error}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
