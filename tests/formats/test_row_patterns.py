"""Row patterns: which are found, that every row is compared with its own, and when there is no dictionary."""

from dataclasses import replace

import numpy as np
import pytest
from builders import EVERY_SHAPE_MOST_SLOW, CsrMatrix, banded, from_row_lengths, shape, stencil, uniform
from fake_driver import fake_driver
from places import make_backend

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import CudaBackend, HostBackend
from petsc_gpufmt.formats.common.row_patterns import MOST_PATTERNS, MOST_TABLE_BYTES, NoRowPatternsError, RowPatterns

pytestmark = pytest.mark.real

SEVERAL_BLOCKS = 1024
DELTAS = 7  # argument of row_patterns_assign


@pytest.fixture(params=["host", "device_like", "emulation int64", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    name, _, index = request.param.partition(" ")
    return make_backend(request, name, np.float64, index or np.int32, resident_threads=SEVERAL_BLOCKS)


def find(matrix, backend, row_perm=None):
    longest = int(np.diff(matrix.rowptr).max(initial=0))
    if row_perm is not None:
        row_perm = backend.adopt(row_perm.astype(backend.index))
    return RowPatterns.find(matrix.pattern_on(backend), longest, row_perm, backend)


def rows_of(matrix):
    return [matrix.colidx[matrix.rowptr[i] : matrix.rowptr[i + 1]].tolist() for i in range(matrix.nrows)]


def decoded(patterns):
    return [row[row >= 0].tolist() for row in patterns.decode()]


def shifted(nrows=300, ncols=400, shift=90):
    """A rectangular matrix with two entries in most rows."""
    rows = np.repeat(np.arange(nrows), 2)
    colidx = rows + np.tile([shift, 0], nrows)
    rowptr = np.arange(0, 2 * nrows + 1, 2)
    return CsrMatrix(nrows, ncols, rowptr, colidx, np.ones(colidx.size))


def many_patterns(count):
    """Rows of one entry each, at `count` different distances from the diagonal, each in 3 rows."""
    nrows = 3 * count
    colidx = np.arange(nrows) + np.arange(nrows) % count
    return CsrMatrix(nrows, nrows + count, np.arange(nrows + 1), colidx, np.ones(nrows))


@pytest.mark.parametrize(
    ("matrix", "npatterns"),
    [
        pytest.param(stencil(), 27, id="stencil"),
        pytest.param(stencil().transposed(), 27, id="transposed stencil"),
        pytest.param(banded(), 7, id="banded"),
        pytest.param(shifted(), 1, id="wide"),
        pytest.param(shifted().transposed(), 4, id="tall"),
        pytest.param(uniform(70, 70, 0, seed=27), 1, id="empty rows"),
        pytest.param(many_patterns(MOST_PATTERNS), MOST_PATTERNS, id="as many as there may be"),
    ],
)
def test_stencils_have_few_patterns_and_all_rows_are_found_again(backend, matrix, npatterns):
    patterns = find(matrix, backend)

    assert patterns.npatterns == npatterns
    assert decoded(patterns) == rows_of(matrix)
    assert patterns.nbytes == matrix.nrows + patterns.pattern_deltas.size * backend.index.itemsize


def test_patterns_follow_the_order_of_sorted_rows(backend):
    matrix = stencil()
    row_perm = np.random.default_rng(51).permutation(matrix.nrows)
    rows = rows_of(matrix)

    assert decoded(find(matrix, backend, row_perm)) == [rows[row] for row in row_perm]


def test_the_order_of_entries_and_repeated_columns_are_part_of_a_pattern(backend):
    colidx = np.array([0, 1, 2, 1, 2, 3, 4, 3, 4, 4, 4])
    matrix = CsrMatrix(5, 5, np.array([0, 2, 4, 6, 8, 11]), colidx, np.ones(11))

    patterns = find(matrix, backend)

    assert patterns.npatterns == 3  # of rows 0 and 2, of 1 and 3, and of 4
    assert decoded(patterns) == rows_of(matrix)


def test_numbers_of_patterns_do_not_depend_on_where_they_are_found(backend):
    host = find(stencil(), HostBackend(*native_library.petsc_types()))
    found = find(stencil(), backend)

    assert backend.to_host(found.row_pattern).tolist() == host.row_pattern.tolist()


def test_a_device_tells_how_many_there_are_without_a_copy(emulation_folder):
    with fake_driver(emulation_folder) as fake:
        backend = CudaBackend(np.float64, np.int32, device=0)

        assert find(stencil(), backend).npatterns == 27
        assert len(fake.named("launch")) == 2 and len(fake.named("cuStreamSynchronize")) == 1
        assert not fake.named("cuMemcpyDtoHAsync_v2")
        with pytest.raises(NoRowPatternsError, match="more than 256"):
            find(many_patterns(MOST_PATTERNS + 1), backend)


@EVERY_SHAPE_MOST_SLOW
def test_every_shape_is_found_again_or_refused(backend, shape_name):
    matrix = shape(shape_name)
    try:
        patterns = find(matrix, backend)
    except NoRowPatternsError:
        return
    assert decoded(patterns) == rows_of(matrix)
    assert patterns.pattern_deltas.nbytes <= MOST_TABLE_BYTES and patterns.npatterns <= MOST_PATTERNS


def test_more_patterns_than_a_byte_numbers_are_refused(backend):
    with pytest.raises(NoRowPatternsError, match="more than 256 row patterns of up to 1 entries"):
        find(many_patterns(MOST_PATTERNS + 1), backend)


def test_a_table_that_is_too_large_is_refused(backend):
    with pytest.raises(
        NoRowPatternsError, match="90 row patterns of up to 80 entries, where .* 16384 bytes are the limit"
    ):
        find(uniform(90, 100, 80, seed=52), backend)


def test_rows_that_are_too_long_are_refused_unread(backend):
    longest = MOST_TABLE_BYTES // backend.index.itemsize + 1
    csr = replace(uniform(3, 5, 1, seed=53).pattern(np, backend.index), colidx=None, rowptr=None)

    with pytest.raises(
        NoRowPatternsError, match=f"rows of up to {longest} entries, too long for a table of 16384 bytes"
    ):
        RowPatterns.find(csr, longest, None, backend)


def test_no_rows_have_no_patterns(backend):
    with pytest.raises(NoRowPatternsError, match="no rows"):
        find(shape("0xN"), backend)


@pytest.mark.parametrize("other", ["length", "columns"])
def test_a_collision_of_hashes_gives_no_dictionary(backend, monkeypatch, other):
    """A row of another pattern has the hash of one: the table is changed between its making and its use."""
    matrix = from_row_lengths(np.where(np.arange(60) % 2, 3, 5), 60, seed=54)

    def collide(program, blocks, given):
        collect, assign = program.launches(backend.function, blocks, given)
        backend.run([collect])
        deltas = backend.to_host(assign.arguments[DELTAS]).copy()
        deltas[2 if other == "length" else 0] = np.iinfo(deltas.dtype).min if other == "length" else 99
        arguments = (*assign.arguments[:DELTAS], backend.adopt(deltas), *assign.arguments[DELTAS + 1 :])
        backend.run([replace(assign, arguments=arguments)])

    monkeypatch.setattr(backend, "carry_out", collide)

    with pytest.raises(NoRowPatternsError, match="two row patterns with the same hash"):
        find(matrix, backend)


def test_summary_counts_patterns(backend):
    assert find(stencil(), backend).summary() == "27 row patterns"
    assert find(shifted(), backend).summary() == "1 row pattern"
