"""Whether patterns are symmetric: on the host and by the device kernel."""

import numpy as np
import pytest
from builders import CsrMatrix, from_entries, stencil
from places import INDEX, make_backend

from petsc_gpufmt.patterns.symmetry import is_symmetric

PLACES = [
    pytest.param(("host", INDEX, 0), id="host"),
    pytest.param(("emulation", np.int32, 0), id="emulation"),
    pytest.param(("emulation", np.int64, 256), id="emulation in turns"),
    pytest.param(("cuda", np.int32, 0), marks=pytest.mark.gpu, id="cuda"),
]


@pytest.fixture(params=PLACES)
def check(request):
    place, index, resident_threads = request.param
    backend = make_backend(request, place, index=index, resident_threads=resident_threads)

    def check(matrix: CsrMatrix) -> bool:
        pattern = matrix.pattern(np, backend.index)
        rowptr, colidx = (backend.adopt(a, keep=True) for a in (pattern.rowptr, pattern.colidx))
        return is_symmetric(type(pattern)(pattern.nrows, pattern.ncols, rowptr, colidx), backend)

    return check


def symmetric(n: int, density: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Entries of a random symmetric pattern with its diagonal, and with a row of nothing else."""
    dense = np.random.default_rng(seed).random((n, n)) < density
    dense[n // 2] = dense[:, n // 2] = False
    return np.nonzero(dense | dense.T | np.eye(n, dtype=bool))


def without(entries: tuple[np.ndarray, np.ndarray], k: int) -> CsrMatrix:
    """All of `entries` but one, -1: all of them."""
    rows, columns = entries
    n = int(rows.max()) + 1
    left = np.arange(rows.size) != k
    return from_entries(n, n, rows[left], columns[left], seed=3)


def test_a_stencil_is_symmetric(check):
    assert check(stencil())


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33])
def test_diagonals_are_symmetric(check, n):
    assert check(from_entries(n, n, np.arange(n), np.arange(n), seed=4))


@pytest.mark.parametrize(("n", "density"), [(70, 0.02), (40, 0.9)])
def test_one_missing_entry_is_noticed(check, n, density):
    rows, columns = entries = symmetric(n, density, seed=5)
    assert check(without(entries, -1))
    diagonal = np.nonzero(rows == columns)[0]
    lower, upper = (np.nonzero(side)[0] for side in (rows > columns, rows < columns))
    for k in [
        diagonal[0],
        diagonal[n // 2],
        diagonal[-1],
        lower[0],
        lower[-1],
        upper[0],
        upper[-1],
        lower[7],
        upper[7],
    ]:
        assert not check(without(entries, k)), (rows[k], columns[k])


def test_an_empty_row_lacks_its_diagonal(check):
    rows, columns = entries = symmetric(40, 0.1, seed=6)
    alone = np.nonzero((rows == 20) & (columns == 20))[0][0]
    assert np.count_nonzero(rows == 20) == 1
    assert not check(without(entries, alone))
