"""Small matrices coarsened on the GPU, for compute-sanitizer: graphs, the order of rows, aggregates, their
prolongators, and the start of estimates.

Exits with status 1 if a result is not that of the host. Each array has memory of its own, so that an access outside
shows.
"""

import sys

import numpy as np
import scipy.sparse
from graphs import Graph
from several_ranks import a_rank_alone
from small_programs import right_or_wrong

from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.bench.matrices import stencil_pattern
from petsc_gpufmt.bench.places import SEED
from petsc_gpufmt.coarsening.aggregates import aggregate
from petsc_gpufmt.coarsening.prolongator import tentative
from petsc_gpufmt.coarsening.shuffle import shuffled
from petsc_gpufmt.coarsening.smoothed import smoothed
from petsc_gpufmt.coarsening.start_vector import start_vector
from petsc_gpufmt.coarsening.strength import strength_graph
from petsc_gpufmt.patterns.csr import CsrPattern
from petsc_gpufmt.patterns.symmetry import is_symmetric

SIZES = ((1, 1), (1, 3), (3, 6))  # rows of a node, vectors
ALPHA = -0.7


def small_graphs(backend, rng):
    """Name -> (rowptr, colidx)"""
    random = scipy.sparse.random(1500, 1500, 0.004, format="csr", random_state=rng)
    random = (random + random.T + scipy.sparse.identity(1500)).tocsr()
    nothing = np.arange(34, dtype=backend.index)
    arrow = scipy.sparse.lil_matrix((700, 700))
    arrow[0], arrow[:, 0] = 1, 1
    arrow.setdiag(1)
    arrow = arrow.tocsr()
    return {
        "one row": (np.array([0, 1]), np.array([0])),
        "no rows": (np.array([0]), np.array([], dtype=int)),
        "rows alone": (nothing, nothing[:-1]),
        "7 points": stencil_pattern("7point", 11, backend.index),
        "27 points": stencil_pattern("27point", 9, backend.index),
        "random": (random.indptr, random.indices),
        "a long row": (arrow.indptr, arrow.indices),
    }


def coarsened(graph, distance, backend, rng):
    """What a backend makes of a graph: arrays on the host."""
    index, n = backend.index, graph[0].size - 1
    rowptr, colidx, order = (backend.adopt(a.astype(index)) for a in (*graph, rng.permutation(n)))
    matrix = CsrPattern(n, n, rowptr, colidx).validated(backend)
    found = aggregate(matrix, order, distance, backend)
    made = [found.numbers, found.turns, shuffled(n, backend)]
    assert is_symmetric(matrix, backend)
    (start,) = backend.empty((n, backend.scalar))
    backend.run(start_vector(n, 7, backend), {Slot.RESULT: start})
    made.append(start)
    made += graphs_with_values(graph, backend, rng)
    for block, nvectors in ((1, None), *SIZES):
        vectors = None
        if nvectors is not None:
            vectors = backend.adopt(rng.standard_normal(nvectors * n * block).astype(backend.scalar))
        start = tentative(found.numbers, found.count, block, vectors, nvectors or 1, backend, found.turns)
        made += [start.coarse, *values_of(start, {}, backend)]
        end = smoothed(matrix, found.numbers, found.count, 1, nvectors or 1, backend) if block == 1 else None
        if end is not None:
            slots = {Slot.A_VALUES: matrix.nnz, Slot.X: n, Slot.B_VALUES: start.pattern.nnz}
            slots = {s: backend.adopt(rng.standard_normal(size).astype(backend.scalar)) for s, size in slots.items()}
            made += values_of(end, {**slots, Slot.ALPHA: backend.scalar.type(ALPHA)}, backend)
    of_a_rank = a_rank_alone(Graph(*graph), distance, backend)
    return [*of_a_rank, *(backend.to_host(array) for array in made if array is not None)]


def graphs_with_values(graph, backend, rng):
    """Of a matrix without some of the entries above the diagonal, and of blocks of it: the arrays of each."""
    n, index = graph[0].size - 1, backend.index
    rows = np.repeat(np.arange(n), np.diff(graph[0]))
    kept = (graph[1] <= rows) | (graph[1] % 3 > 0)
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=n))])
    rowptr, colidx = (backend.adopt(a.astype(index)) for a in (rowptr, graph[1][kept]))
    matrix = CsrPattern(n, n, rowptr, colidx).validated(backend)
    values = backend.adopt(rng.uniform(0.5, 2.0, matrix.nnz).astype(backend.scalar))
    made = []
    for block in (1, 2):
        if n % block == 0:
            found = strength_graph(matrix, values, backend, block=block, symmetrize=True, threshold=0.6).pattern
            made += [found.rowptr, found.colidx]
    return made


def values_of(made, slots, backend):
    """The pattern of a prolongator, and its values."""
    (values,) = backend.empty((made.pattern.nnz, backend.scalar))
    backend.run(made.numeric, {**slots, Slot.RESULT: values})
    return made.pattern.rowptr, made.pattern.colidx, values


def small_results(backend):
    """Name -> whether a graph is coarsened as on the host"""
    host, results = HostBackend(backend.scalar, backend.index), {}
    for name, graph in small_graphs(backend, np.random.default_rng(SEED)).items():
        for distance in (1, 2):
            both = (coarsened(graph, distance, place, np.random.default_rng(SEED)) for place in (backend, host))
            right = [np.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(*both, strict=True)]
            results[f"{name}, distance {distance}"] = all(right)
    return results


def main():
    return right_or_wrong("small_coarsening", __doc__, {"all": small_results})


if __name__ == "__main__":
    sys.exit(main())
