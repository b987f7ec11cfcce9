"""Small sums of matrices on the GPU, for compute-sanitizer: patterns, entry sums, values changed, matrices assembled.

Exits with status 1 if a result is wrong. Each array has memory of its own, so that an access outside shows.
"""

import sys

import numpy as np
import scipy.sparse
from small_programs import right_or_wrong

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.bench.places import SEED
from petsc_gpufmt.patterns import coo, norms, scale_and_add, zero_rows
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.entry_sum import known_entry_sum, plan_entry_sum
from petsc_gpufmt.patterns.lengths import lengths
from petsc_gpufmt.patterns.union import Summand, merge

SLOTS = (Slot.A_VALUES, Slot.B_VALUES, Slot.C_VALUES)
ALPHA = 3.0


def random(nrows, ncols, density, backend, rng):
    """A matrix of small whole numbers: its sums are exact."""
    matrix = scipy.sparse.random(nrows, ncols, density, format="csr", dtype=backend.scalar, random_state=rng)
    matrix.sort_indices()
    matrix.data[:] = rng.integers(1, 9, matrix.nnz)
    matrix.indptr, matrix.indices = matrix.indptr.astype(backend.index), matrix.indices.astype(backend.index)
    return matrix


def small_sums(backend, rng):
    """Name -> shape, inner columns, summands as (matrix, places of columns, target of each row or None)."""

    def summand(nrows, ncols, density, width, rows=None):
        targets = None if rows is None else rng.integers(-1, rows, nrows).astype(backend.index)
        places = np.sort(rng.choice(width, ncols, replace=False)).astype(backend.index)
        return random(nrows, ncols, density, backend, rng), places, targets

    return {
        "one entry": ((1, 1), (0, 1), [summand(1, 1, 1.0, 1)]),
        "no rows": ((0, 5), (0, 5), [summand(0, 5, 0.0, 5)]),
        "no entries": ((7, 5), (1, 3), [summand(7, 5, 0.0, 5)]),
        "one in two parts": ((700, 2000), (300, 900), [summand(700, 1500, 0.002, 2000)]),
        "three": ((700, 2500), (300, 900), [summand(700, n, 0.003, 2500) for n in (2500, 900, 1300)]),
        "rows elsewhere": (
            (3000, 5000),
            (0, 4000),
            [summand(n, 4500, 0.001, 5000, rows=3000) for n in (2000, 900, 1)],
        ),
        "many rows for few": ((3, 90), (10, 80), [summand(1900, 90, 0.1, 90, rows=3)]),
    }


def sum_is_right(shape, inner, summands, backend):
    """Whether both parts of a sum have the entries that there are, and their values."""
    asarray = backend.xp.asarray
    given = [
        Summand(
            CsrPattern(*m.shape, asarray(m.indptr), asarray(m.indices)),
            asarray(places),
            None if targets is None else asarray(targets),
        )
        for m, places, targets in summands
    ]
    parts, ghosts = merge(shape, inner, given, backend)
    total = scipy.sparse.csr_matrix(shape, dtype=backend.scalar)
    for matrix, places, targets in summands:
        rows = np.arange(matrix.shape[0]) if targets is None else targets
        coo = matrix.tocoo()
        kept = rows[coo.row] >= 0
        total += scipy.sparse.csr_matrix((coo.data[kept], (rows[coo.row[kept]], places[coo.col[kept]])), shape)
    others = np.delete(np.arange(shape[1]), np.arange(*inner))
    occur = others[total[:, others].getnnz(axis=0) > 0]
    right = np.array_equal(backend.to_host(ghosts), occur)
    values = {**dict.fromkeys(SLOTS), **{s: asarray(m.data) for s, (m, _, _) in zip(SLOTS, summands, strict=False)}}
    sizes = tuple(summands[i][0].nnz if i < len(summands) else 0 for i in range(3))
    for part, columns in zip(parts, (np.arange(*inner), occur), strict=True):
        result = backend.xp.full(part.colidx.size, np.nan, dtype=backend.scalar)
        for plan, added in ((plan_entry_sum, None), (known_entry_sum, None), (known_entry_sum, result)):
            slots = {**values, Slot.Y: added, Slot.RESULT: result}
            backend.run(plan(part.begins, part.index, sizes, backend), slots)
        expected = (2 * total[:, columns]).tocsr()
        expected.sort_indices()
        arrays = (backend.to_host(a) for a in (part.rowptr, part.colidx, result))
        pairs = zip(arrays, (expected.indptr, expected.indices, expected.data), strict=True)
        right &= all([np.array_equal(a, b) for a, b in pairs])
    return right


def scaling_is_right(nrows, ncols, backend, rng):
    """Whether values of a random matrix are scaled, and added to, as they are on the host."""
    asarray = backend.xp.asarray
    matrix = random(nrows, ncols, min(1.0, 3 / ncols), backend, rng)
    added = matrix.multiply(random(nrows, ncols, 0.7, backend, rng) > 0).tocsr().astype(backend.scalar)
    added.sort_indices()
    rowptr, colidx, values = map(asarray, (matrix.indptr, matrix.indices, matrix.data.copy()))
    subset = tuple(asarray(a.astype(backend.index)) for a in (added.indptr, added.indices))
    rows, columns = (rng.integers(1, 9, n).astype(backend.scalar) for n in matrix.shape)
    by_index = scale_and_add.plan_add_subset((rowptr, colidx), subset, None, backend)
    slots = {Slot.ALPHA: backend.scalar.type(ALPHA), Slot.RESULT: values}
    for plan, more in (
        (scale_and_add.plan_scale(matrix.nnz, backend), {}),
        (scale_and_add.plan_scale_rows(matrix.nnz, rowptr, backend), {Slot.X: asarray(rows)}),
        (scale_and_add.plan_scale_columns(colidx, backend), {Slot.X: asarray(columns)}),
        (scale_and_add.plan_add(matrix.nnz, backend), {Slot.A_VALUES: asarray(matrix.data)}),
        (by_index, {Slot.A_VALUES: asarray(added.data)}),
    ):
        backend.run(plan, {**slots, **more})
    scaled = scipy.sparse.diags(rows) @ matrix @ scipy.sparse.diags(columns)
    expected = ALPHA * (scaled + matrix + added)
    expected.sort_indices()
    return np.array_equal(backend.to_host(values), expected.data)


def diagonal_is_right(n, backend, rng):
    """Whether the diagonal of a random matrix is set, and added to."""
    matrix = (random(n, n, min(1.0, 3 / n), backend, rng) + scipy.sparse.identity(n, backend.scalar)).tocsr()
    matrix.sort_indices()
    pattern = (backend.xp.asarray(a.astype(backend.index)) for a in (matrix.indptr, matrix.indices))
    values = backend.xp.asarray(matrix.data.copy())
    plan = scale_and_add.plan_set_diagonal(*pattern, backend)
    slots = {Slot.ALPHA: backend.scalar.type(ALPHA), Slot.RESULT: values}
    x = rng.integers(1, 9, n).astype(backend.scalar)
    backend.run(plan, {**slots, Slot.X: backend.xp.asarray(x), Slot.Y: None})
    backend.run(plan, {**slots, Slot.X: None, Slot.Y: values})
    matrix.setdiag(x + ALPHA)
    return np.array_equal(backend.to_host(values), matrix.data)


def zeros_are_right(nrows, ncols, backend, rng):
    """Whether rows and columns of a random matrix become zeros, in a fixed order of sums, and b what goes."""
    asarray = backend.xp.asarray
    matrix = random(nrows, ncols, min(1.0, 9 / ncols), backend, rng)
    rowptr, colidx, values = map(asarray, (matrix.indptr, matrix.indices, matrix.data.copy()))
    rows, columns = (rng.random(n) < 0.3 for n in matrix.shape)
    x, b = (rng.integers(1, 9, n).astype(backend.scalar) for n in (ncols, nrows))
    places, _ = zero_rows.find_diagonal(rowptr, colidx, backend)
    slots = {
        **{Slot.COLIDX: colidx, Slot.ROWS: asarray(rows.astype(np.uint8)), Slot.ALPHA: backend.scalar.type(ALPHA)},
        **{Slot.COLUMNS: asarray(columns.astype(np.uint8)), Slot.X: asarray(x), Slot.RESULT: values},
    }
    changed = asarray(b.copy())
    backend.run(zero_rows.plan_zero_rows(rowptr, ncols, places, backend), {**slots, Slot.Z: changed})
    dense, there = matrix.toarray(), matrix.toarray() != 0
    b = np.where(rows, b, b - dense[:, columns] @ x[columns])
    dense[rows], dense[:, columns] = 0, 0
    for i in np.flatnonzero(rows[:ncols]):
        dense[i, i], b[i] = ALPHA * there[i, i], ALPHA * x[i]
    right = np.array_equal(backend.to_host(changed), b)
    return right and np.array_equal(backend.to_host(values), dense[there])


def norms_are_right(nrows, ncols, backend, rng):
    """Whether the sums for norms of a random matrix are those of the host: of whole numbers, they are exact."""
    asarray = backend.xp.asarray
    matrix = random(nrows, ncols, min(1.0, 9 / ncols), backend, rng)
    matrix.data[::2] *= -1
    rowptr, values = asarray(matrix.indptr), asarray(matrix.data)
    parts, sums = (backend.xp.full(n, np.nan, dtype=backend.scalar) for n in (norms.PARTS, nrows))
    backend.run(norms.plan_sum_of_squares(matrix.nnz, backend), {Slot.A_VALUES: values, Slot.RESULT: parts})
    right = backend.to_host(parts).sum() == (matrix.data**2).sum()
    slots = {Slot.A_VALUES: values, Slot.Y: None, Slot.Z: parts, Slot.RESULT: sums}
    backend.run(norms.plan_absolute_sums(rowptr, None, backend), slots)
    expected = np.asarray(abs(matrix).sum(axis=1)).ravel()
    right &= np.array_equal(backend.to_host(sums), expected)
    return right and backend.to_host(parts).max() == expected.max()


def lengths_are_right(nrows, ncols, backend, rng):
    """Whether the lengths of rows of a random matrix are those of the host, twice, and what is noted of them."""
    matrix = random(nrows, ncols, min(1.0, 2 / ncols), backend, rng)
    expected = np.diff(matrix.indptr)
    room, present = (backend.xp.full(nrows, -1, dtype=backend.index) for _ in range(2))
    made = lengths(backend)
    slots = {Slot.ALPHA: np.int64(nrows), Slot.X: backend.xp.asarray(matrix.indptr), Slot.Y: room, Slot.Z: present}
    backend.run(made.launches, slots)
    right = all(np.array_equal(backend.to_host(array), expected) for array in (room, present))
    return right and backend.to_host(made.seen).tolist() == [expected.max(), np.count_nonzero(expected)]


def assembly_is_right(shape, nentries, backend, rng):
    """Whether a matrix from random coordinates, some of them left out and many in one row, has its entries."""
    rows, cols = (rng.integers(-1, n, nentries).astype(backend.index) for n in shape)
    rows[rng.random(nentries) < 0.4] = shape[0] // 2
    values = rng.integers(1, 9, nentries).astype(backend.scalar)
    made = coo.assemble(shape, rows, cols, backend)
    result = backend.xp.full(made.pattern.nnz, np.nan, dtype=backend.scalar)
    slots = {**dict.fromkeys((*SLOTS, Slot.Y)), Slot.A_VALUES: backend.xp.asarray(values), Slot.RESULT: result}
    backend.run(made.plan_sum(backend), slots)
    kept = (rows >= 0) & (cols >= 0)
    expected = scipy.sparse.coo_matrix((values[kept], (rows[kept], cols[kept])), shape).tocsr()
    arrays = (backend.to_host(a) for a in (made.pattern.rowptr, made.pattern.colidx, result))
    pairs = zip(arrays, (expected.indptr, expected.indices, expected.data), strict=True)
    return all([np.array_equal(a, b) for a, b in pairs])


def block_is_right(shape, nentries, backend, rng):
    """Whether a quarter of a matrix has the coordinates that lie in it, in two parts, and others are found."""
    rows, cols = (rng.integers(-1, n, nentries).astype(backend.index) for n in shape)
    nrows, ncols = (n // 2 for n in shape)
    block, half = coo.Block(nrows, nrows, ncols, ncols), nentries // 2
    found = coo.outside(block, backend.adopt(rows), backend.adopt(cols), backend)
    inside = (rows >= nrows) & (rows < 2 * nrows) & (cols >= ncols) & (cols < 2 * ncols)
    (others,) = np.nonzero((rows >= 0) & (cols >= 0) & ~inside)
    made = coo.assemble((nrows, ncols), rows[:half], cols[:half], backend, block=block, more=(rows[half:], cols[half:]))
    entries = np.ones(inside.sum()), (rows[inside] - nrows, cols[inside] - ncols)
    expected = scipy.sparse.coo_matrix(entries, (nrows, ncols)).tocsr()
    pattern = (backend.to_host(a) for a in (made.pattern.rowptr, made.pattern.colidx))
    pairs = zip((*pattern, found[2]), (expected.indptr, expected.indices, others), strict=True)
    return all([np.array_equal(a, b) for a, b in pairs])


def small_results(backend):
    """Name -> whether a sum, a change of values or a matrix from coordinates is right"""
    rng, results = np.random.default_rng(SEED), {}
    for name, (shape, inner, summands) in small_sums(backend, rng).items():
        results[name] = sum_is_right(shape, inner, summands, backend)
    for nrows, ncols in ((1, 1), (400, 30), (2000, 3000)):
        results[f"{nrows} x {ncols} scaled"] = scaling_is_right(nrows, ncols, backend, rng)
        results[f"{nrows} x {ncols} zeroed"] = zeros_are_right(nrows, ncols, backend, rng)
        results[f"norms of {nrows} x {ncols}"] = norms_are_right(nrows, ncols, backend, rng)
        results[f"lengths of {nrows} x {ncols}"] = lengths_are_right(nrows, ncols, backend, rng)
    for n in (1, 700):
        results[f"{n} on the diagonal"] = diagonal_is_right(n, backend, rng)
    for shape, nentries in (((1, 1), 1), ((300, 20), 2000), ((900, 5000), 9000)):
        results[f"{nentries} coordinates"] = assembly_is_right(shape, nentries, backend, rng)
        results[f"block of {nentries} coordinates"] = block_is_right(shape, nentries, backend, rng)
    return results


def main():
    return right_or_wrong("small_sums", __doc__, {"all": small_results})


if __name__ == "__main__":
    sys.exit(main())
