"""What is refused as a CSR pattern, on the host and by the device kernel."""

import itertools

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, shape
from places import EVERY_PLACE, INDEX, make_backend

from petsc_gpufmt.backends.plan import Slot
from petsc_gpufmt.errors import PatternError
from petsc_gpufmt.patterns.csr import SLICE_HEIGHT, CsrPattern, gather_indices, plan_gather, validated_patterns


@pytest.fixture(params=[*EVERY_PLACE, "device_like"])
def backend(request):
    return make_backend(request, request.param, resident_threads=512)


def pattern(rowptr, colidx, nrows=2, ncols=3):
    return CsrPattern(nrows, ncols, np.array(rowptr, dtype=INDEX), np.array(colidx, dtype=INDEX))


def validate(csr, backend):
    rowptr, colidx = (backend.adopt(a) for a in (csr.rowptr, csr.colidx))
    return CsrPattern(csr.nrows, csr.ncols, rowptr, colidx).validated(backend)


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
def test_an_invalid_pattern_is_refused(backend, csr, message):
    with pytest.raises(PatternError, match=message):
        validate(csr, backend)


def test_patterns_are_checked_together_with_one_wait(backend, monkeypatch):
    waits, first = [], backend.first
    monkeypatch.setattr(backend, "first", lambda array, count: waits.append(count) or first(array, count))
    matrices = [shape("banded"), shape("1xN"), shape("dense")]

    validated = validated_patterns([m.pattern_on(backend) for m in matrices], backend)

    assert [v.longest for v in validated] == [np.diff(m.rowptr).max() for m in matrices] and len(waits) == 1
    assert [sum(v.counts.lengths) for v in validated] == [m.nrows for m in matrices]
    wrong = pattern([0, 2, 1], [0])
    wrong = CsrPattern(2, 3, backend.adopt(wrong.rowptr), backend.adopt(wrong.colidx))
    with pytest.raises(PatternError, match="row pointer decreases"):
        validated_patterns([validated[0], wrong, validated[1]], backend)


@EVERY_SHAPE_MOST_SLOW
def test_what_is_a_pattern_is_taken_and_its_longest_row_is_known(backend, shape_name):
    matrix = shape(shape_name)

    validated = validate(matrix.pattern(np, INDEX), backend)

    assert validated.longest == np.diff(matrix.rowptr).max(initial=0) and validated.nnz == matrix.values.size


@EVERY_SHAPE_MOST_SLOW
def test_the_lengths_of_rows_are_counted(backend, shape_name):
    matrix = shape(shape_name)
    lengths = np.diff(matrix.rowptr)

    _, counts = matrix.pattern_on(backend).counted(backend)

    bounds = [-1, 0, *(2**k for k in range(10)), np.inf]
    expected = [int(((lengths > low) & (lengths <= high)).sum()) for low, high in itertools.pairwise(bounds)]
    padded = np.append(lengths, np.zeros(-lengths.size % SLICE_HEIGHT, dtype=lengths.dtype))
    assert list(counts.lengths) == expected
    assert counts.nonempty_rows == (lengths > 0).sum() and counts.longest == lengths.max(initial=0)
    assert counts.descends == bool((lengths[:-1] > lengths[1:]).any())
    assert counts.padding == tuple((-lengths[lengths > long] % SLICE_HEIGHT).sum() for long in (64, 128))
    assert counts.sliced_entries == SLICE_HEIGHT * padded.reshape(-1, SLICE_HEIGHT).max(axis=1).sum()


def test_what_is_known_is_not_counted_again(backend, monkeypatch):
    known = validate(pattern([0, 1, 2], [0, 1]), backend)
    monkeypatch.setattr(backend, "run", None)

    again, counts = known.counted(backend)

    assert again is known and counts is known.counts


@pytest.mark.parametrize("n", [0, 1, 300])
def test_indices_are_gathered(backend, n):
    indices = np.arange(400, dtype=INDEX) * 3
    places = np.random.default_rng(5).integers(0, 400, n)

    for given in (places, backend.adopt(places.astype(INDEX))):
        assert gather_indices(backend, backend.adopt(indices), given).tolist() == indices[places].tolist()


@pytest.mark.parametrize("words", [1, 2, 3, 12])
@pytest.mark.parametrize("n", [0, 1, 300])
def test_entries_of_any_length_are_gathered(backend, n, words):
    entries = np.arange(400 * words, dtype=np.uint32).reshape(400, words)
    places = np.random.default_rng(5).integers(0, 400, n).astype(INDEX)
    gathered = backend.adopt(np.full((n + 1) * words, 7, np.uint32), keep=True)
    slots = {Slot.A_VALUES: backend.adopt(entries.ravel()), Slot.RESULT: gathered, Slot.ALPHA: np.int64(words)}

    backend.run(plan_gather(backend.adopt(places), backend), slots)

    assert backend.to_host(gathered).reshape(n + 1, words).tolist() == [*entries[places].tolist(), [7] * words]


@pytest.mark.parametrize(("fault", "message"), [("row", "row pointer decreases"), ("column", r"lie in \[0, 9\]")])
@pytest.mark.parametrize("place", [0, 2999, 4998])
def test_one_fault_anywhere_is_found(backend, fault, message, place):
    rowptr, colidx = np.arange(5001), np.zeros(5000, dtype=INDEX)
    if fault == "row":
        rowptr[1 + place] = 5000 if place < 2999 else 0
    else:
        colidx[place + 1] = 9

    with pytest.raises(PatternError, match=message):
        validate(pattern(rowptr, colidx, 5000, 9), backend)


@pytest.mark.parametrize("place", [0, 2999, 4998])
def test_the_longest_row_is_found_anywhere(backend, place):
    lengths = np.ones(4999, dtype=INDEX)
    lengths[place] = 7
    rowptr = np.concatenate([[0], np.cumsum(lengths)])

    assert validate(pattern(rowptr, np.zeros(rowptr[-1]), 4999, 9), backend).longest == 7


def test_a_matrix_without_rows_or_columns_is_taken(backend):
    validate(pattern([0], [], 0, 0), backend)
    validate(pattern([0], [], 0, 5), backend)
    validate(pattern([0] * 6, [], 5, 0), backend)
