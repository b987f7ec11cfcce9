"""What is seen of a pattern before a format is chosen: rows, row patterns, blocks, the reach of columns."""

import numpy as np
import pytest
from builders import blocked, shape, uniform
from patterns import MadeUpDevice, long_rows, of_arrays, pattern, scattered, stencil
from places import make_backend

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.bench.matrices import stencil_pattern
from petsc_gpufmt.choice import profile, sample
from petsc_gpufmt.choice.model import rank
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.choice.sample import find_blocks
from petsc_gpufmt.formats.common import row_patterns


@pytest.fixture
def host():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture
def device():
    return MadeUpDevice(*native_library.petsc_types())


@pytest.mark.parametrize("name", ["banded", "power_law", "one_huge_row", "empty_rows", "tall", "1xN", "Nx1", "dense"])
def test_rows_are_counted(host, name):
    matrix = shape(name)
    lengths = np.diff(matrix.rowptr)
    seen = Profile.of(pattern(matrix, host), host)

    def slices(rows):
        return sum(32 * int(rows[k : k + 32].max()) for k in range(0, rows.size, 32))

    assert (seen.nrows, seen.ncols, seen.nnz) == (matrix.nrows, matrix.ncols, matrix.values.size)
    assert (seen.longest, seen.empty_rows) == (lengths.max(), (lengths == 0).sum())
    assert seen.mean == pytest.approx(lengths.mean()) and seen.spread == pytest.approx(lengths.max() / lengths.mean())
    assert seen.sliced_entries == slices(lengths)
    assert seen.long_rows == (lengths > 128).sum()
    expected = [np.sum((lengths > low) & (lengths <= high)) for low, high in ((-1, 0), (0, 1), (1, 2), (2, 4), (4, 8))]
    assert list(seen.lengths[:5]) == expected and sum(seen.lengths) == matrix.nrows
    assert slices(np.sort(lengths)[::-1]) <= seen.sorted_entries <= seen.sliced_entries


@pytest.mark.parametrize("name", ["banded", "power_law", "empty_rows"])
def test_counts_that_are_known_are_all_that_a_small_matrix_needs(device, monkeypatch, name):
    csr = pattern(shape(name), device).validated(device)
    monkeypatch.setattr(device, "run", None)
    monkeypatch.setattr(device, "adopt", None)

    seen = Profile.of(csr, device)

    assert (seen.longest, seen.npatterns, seen.sampled) == (csr.counts.longest, 0, False)


@pytest.mark.parametrize("name", ["0x0", "0xN", "Nx0", "all_empty"])
def test_a_matrix_without_entries(device, name):
    csr = pattern(shape(name), device)
    seen = Profile.of(csr, device)

    assert seen.nnz == 0 and seen.describe() == "no entries"
    assert len(rank(seen, device)) == 3


def test_row_patterns_of_stencils_are_counted(host):
    assert Profile.of(stencil("7point", 30, host), host).npatterns == 27
    assert Profile.of(stencil("27point", 20, host), host).npatterns == 27
    assert Profile.of(scattered(np.full(30000, 7), 30000, host), host).npatterns == 0
    assert Profile.of(stencil("27point", 20, host, block_size=3), host).npatterns == 0  # 81 rows of 81, beyond a table


def test_row_patterns_are_not_sought_where_entries_are_few(host, device):
    assert Profile.of(stencil("7point", 20, host), host).npatterns == 0
    assert Profile.of(stencil("7point", 30, host), device).npatterns == 0


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 8])
def test_blocks_are_found_in_a_large_matrix(host, size, monkeypatch):
    monkeypatch.setattr(sample, "LEAST_BLOCK_SEARCH_ENTRIES", 1)
    csr = stencil("7point", 12, host, block_size=size)

    assert find_blocks(csr, sample.Sample.of(csr, host)) == ((size, size), 1.0)


def test_blocks_that_the_matrix_tells_are_looked_at_whatever_its_size(host):
    csr = pattern(blocked(7, 12, declared=False), host, row_block=7, col_block=7)

    assert find_blocks(csr, sample.Sample.of(csr, host)) == ((7, 7), 1.0)


def test_rectangular_blocks_that_the_matrix_tells(host, device):
    rowptr, colidx = stencil_pattern("7point", 6, host.index)
    tall = np.repeat(np.diff(rowptr), 3)
    rowptr_tall = np.concatenate([[0], np.cumsum(tall)]).astype(host.index)
    colidx_tall = np.concatenate([np.tile(colidx[rowptr[k] : rowptr[k + 1]], 3) for k in range(216)])
    csr = of_arrays(rowptr_tall, colidx_tall, 216, row_block=3)

    assert find_blocks(csr, sample.Sample.of(csr, host)) == ((3, 1), 1.0)
    assert Profile.of(csr, device).block_shape == (3, 1)


def test_blocks_of_the_sample_are_counted_in_all_rows(host, monkeypatch):
    """Here only its rows have any; then a choice that went by the sample would store twice as much."""
    monkeypatch.setattr(sample, "SAMPLED_ENTRIES", 1)
    random, nrows, sampled = np.random.default_rng(80), 45_000, sample.CHUNK_ROWS
    columns = np.sort(3 * random.integers(0, nrows // 3, (nrows, 3)) + np.arange(3), axis=1)
    columns[:sampled] = 3 * (np.arange(sampled)[:, None] // 3) + np.arange(3)
    rowptr = 3 * np.arange(nrows + 1, dtype=host.index)
    csr = of_arrays(rowptr, columns.ravel().astype(host.index), nrows, row_block=3, col_block=3)
    seen = Profile.of(csr, host)

    assert find_blocks(csr, sample.Sample.of(csr, host)) == ((3, 3), 1.0)
    assert seen.sampled and seen.block_shape == (3, 3) and seen.block_fill < 0.2
    assert seen.block_fill == csr.nnz / (9 * seen.known.blocks.nblocks)
    assert rank(seen, host)[0].name != "bsr"


def test_the_share_of_entries_in_blocks_is_seen(host):
    matrix = blocked(4, 60, declared=False, missing=0.1)
    csr = pattern(matrix, host, row_block=4, col_block=4)
    (rows, columns), fill = find_blocks(csr, sample.Sample.of(csr, host))
    blocks = {(r // 4, c // 4) for r, c in zip(matrix.rows, matrix.colidx, strict=True)}

    assert (rows, columns) == (4, 4)
    assert fill == pytest.approx(matrix.values.size / (16 * len(blocks)), abs=0.05)


def test_blocks_that_are_hardly_full_are_none(host):
    csr = pattern(uniform(120, 500, 4, seed=71), host, row_block=4, col_block=4)

    assert find_blocks(csr, sample.Sample.of(csr, host)) == ((1, 1), 1.0)


def test_stencils_without_blocks_have_none(host, monkeypatch):
    monkeypatch.setattr(sample, "LEAST_BLOCK_SEARCH_ENTRIES", 1)
    for name in ("7point", "27point"):
        csr = stencil(name, 20, host)
        assert find_blocks(csr, sample.Sample.of(csr, host)) == ((1, 1), 1.0)


def test_a_sample_holds_whole_chunks_of_the_matrix(host):
    csr = scattered(np.random.default_rng(72).integers(0, 9, 100_000), 100_000, host)
    taken = sample.Sample.of(csr, host)

    assert 0.5 * sample.SAMPLED_ENTRIES < taken.columns.size < 1.5 * sample.SAMPLED_ENTRIES
    assert (taken.rows.reshape(-1, sample.CHUNK_ROWS)[:, 0] % sample.CHUNK_ROWS == 0).all()
    assert np.unique(taken.rows).size == taken.rows.size
    expected = np.concatenate([csr.colidx[csr.rowptr[r] : csr.rowptr[r + 1]] for r in taken.rows])
    assert taken.columns.tolist() == expected.tolist()


def test_dense_rows_are_not_sampled(host, monkeypatch):
    monkeypatch.setattr(sample, "MOST_CHUNK_ENTRIES", 1000)
    csr = long_rows(host, 240, 5000)
    taken = sample.Sample.of(csr, host)

    assert taken.columns.size == 0
    assert taken.short_columns(csr.ncols) == (1.0, True) and find_blocks(csr, taken) == ((1, 1), 1.0)


def test_columns_that_fit_16_bits(host):
    n, span = 36_000, 65535
    near = scattered(np.full(n, 5), 60000, host)
    assert sample.Sample.of(near, host).short_columns(near.ncols) == (1.0, True)

    far = scattered(np.full(n, 5), 10**7, host)
    assert sample.Sample.of(far, host).short_columns(far.ncols) == (0.0, False)

    # entry j of neighbouring rows close together, entries of a row far apart
    columns = (np.arange(n)[:, None] + np.arange(5) * 2 * span).astype(host.index)
    by_column = of_arrays(np.arange(0, 5 * n + 1, 5, dtype=host.index), columns.ravel(), 10**7)
    assert sample.Sample.of(by_column, host).short_columns(by_column.ncols) == (1.0, False)

    # the other way round, in every second chunk
    columns = (np.arange(5) + np.arange(n)[:, None] * 200).astype(host.index)
    columns[np.arange(n) // sample.CHUNK_ROWS % 2 == 0, :] *= 11
    by_row = of_arrays(np.arange(0, 5 * n + 1, 5, dtype=host.index), columns.ravel(), 10**8)
    share, rows = sample.Sample.of(by_row, host).short_columns(by_row.ncols)
    assert 0.2 < share < 0.8 and rows


@pytest.mark.parametrize(
    ("scalar_bytes", "step", "sectors"), [(8, 0, 1), (8, 4, 10), (8, 2, 5), (4, 4, 5), (64, 1, 10)]
)
def test_rows_of_a_chunk_share_sectors_of_x(scalar_bytes, step, sectors):
    columns = np.tile(np.arange(10) * step, 2)  # of two chunks of five rows
    taken = sample.Sample(120, np.repeat([0, 120], 5) + np.tile(np.arange(5), 2), np.full(10, 2), columns)

    assert taken.sectors(scalar_bytes) == sectors / 10


def test_a_sample_without_entries_reads_no_sectors():
    empty = np.zeros(0, dtype=np.int64)

    assert sample.Sample(120, empty, empty, empty).sectors(8) == 0


@pytest.mark.parametrize("matrix", ["banded", "power_law", "empty_rows", "blocked"])
def test_a_device_is_seen_as_the_host_is(request, host, monkeypatch, matrix):
    monkeypatch.setattr(profile, "least_looked_at", lambda backend: 1)
    monkeypatch.setattr(row_patterns, "MOST_PATTERNS", 0)
    monkeypatch.setattr(sample, "LEAST_BLOCK_SEARCH_ENTRIES", 1)
    backend = make_backend(request, "device_like", resident_threads=512)
    given = blocked(4, 60, declared=False) if matrix == "blocked" else shape(matrix)

    seen = Profile.of(given.pattern_on(backend), backend)

    assert seen == Profile.of(given.pattern_on(host), host) and seen.sampled
