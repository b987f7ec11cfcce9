"""The CSR pattern: what is refused, and its transpose."""

import numpy as np
import pytest
from builders import SHAPES, shape

from petsc_gpufmt.csr import CsrPattern
from petsc_gpufmt.errors import PatternError


def pattern(rowptr, colidx, nrows=2, ncols=3):
    return CsrPattern(nrows, ncols, np.array(rowptr, dtype=np.int32), np.array(colidx, dtype=np.int32))


def triplets(csr: CsrPattern, values):
    """(nnz, 3) row, column and value of each entry, sorted."""
    rows = np.repeat(np.arange(csr.nrows), np.diff(csr.rowptr))
    entries = np.arange(csr.nnz) if csr.source is None else csr.source
    return sorted_rows(np.stack([rows, csr.colidx, values[entries]], axis=1))


def sorted_rows(array):
    return array[np.lexsort(array.T)]


@pytest.mark.parametrize(
    ("csr", "message"),
    [
        (pattern([0, 1], [0]), "row pointer of a 2 x 3 matrix must run from 0 to 1 in 3 entries"),
        (pattern([1, 1, 1], [0]), "must run from 0 to 1"),
        (pattern([0, 1, 3], [0, 1]), "must run from 0 to 2"),
        (pattern([0, 2, 1], [0]), "row pointer decreases"),
        (pattern([0, 1, 2], [0, 3]), r"column indices lie in \[0, 3\], the matrix has 3 columns"),
        (pattern([0, 1, 2], [-1, 2]), r"column indices lie in \[-1, 2\]"),
    ],
)
def test_an_invalid_pattern_is_refused(csr, message):
    with pytest.raises(PatternError, match=message):
        csr.validate()


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("shape_name", SHAPES)
def test_transpose(shape_name, index):
    matrix = shape(shape_name)
    csr = matrix.pattern(np, index)

    transposed = csr.transposed(np)

    transposed.validate()
    assert {a.dtype for a in (transposed.rowptr, transposed.colidx, transposed.source)} == {np.dtype(index)}
    assert np.array_equal(triplets(transposed, matrix.values), sorted_rows(triplets(csr, matrix.values)[:, [1, 0, 2]]))


def test_transposing_twice_finds_the_values_of_the_first_pattern():
    matrix = shape("unsorted_columns")
    csr = matrix.pattern(np, np.int32)

    twice = csr.transposed(np).transposed(np)

    assert sorted(twice.source) == list(range(csr.nnz))
    assert np.array_equal(triplets(twice, matrix.values), triplets(csr, matrix.values))


def test_entries_of_a_transposed_row_keep_the_order_of_the_rows_they_came_from():
    transposed = pattern([0, 3, 6], [2, 0, 2, 2, 1, 0]).transposed(np)

    assert transposed.rowptr.tolist() == [0, 2, 3, 6]
    assert transposed.colidx.tolist() == [0, 1, 1, 0, 0, 1]
    assert transposed.source.tolist() == [1, 5, 4, 0, 2, 3]
