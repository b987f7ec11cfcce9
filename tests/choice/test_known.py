"""What the choice of a format finds on its way is not looked for again, and little is looked for in small matrices."""

from collections import Counter

import numpy as np
import pytest
from builders import blocked, from_row_lengths
from patterns import MadeUpDevice, of_arrays, pattern, stencil

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.choice.gpufmt import Gpufmt
from petsc_gpufmt.choice.model import rank
from petsc_gpufmt.choice.profile import LEAST_BLOCK_FILL, Profile, least_in_blocks, least_looked_at
from petsc_gpufmt.formats.bsr.bsr import Bsr
from petsc_gpufmt.formats.common.row_patterns import may_be_few
from petsc_gpufmt.formats.pjds import PATTERN, Pjds


class WatchedDevice(MadeUpDevice):
    """Counts kernels that are asked for by name, and waits."""

    def __init__(self, *types):
        super().__init__(*types)
        self.asked, self.waits = Counter(), 0

    def function(self, stem, kernel, template_arguments):
        self.asked[kernel] += 1
        return super().function(stem, kernel, template_arguments)

    def first(self, array, count):
        self.waits += 1
        return super().first(array, count)


@pytest.fixture
def device():
    return WatchedDevice(*native_library.petsc_types())


def test_row_patterns_are_found_once(device):
    csr = stencil("7point", 45, device).validated(device)
    stored = Gpufmt.build(csr, device, dict(Gpufmt.default_options))

    assert stored.chosen.columns.summary() == "27 row patterns"
    assert device.asked["row_patterns_collect"] == 1 and device.waits == 2  # one of them for the counts


def test_row_patterns_that_are_too_many_are_not_looked_for_again(device):
    rng = np.random.default_rng(77)
    csr = of_arrays(
        np.arange(0, 600_001, 6, dtype=device.index), rng.integers(60_000, size=600_000, dtype=device.index), 60_000
    )
    stored = Gpufmt.build(csr, device, {**Gpufmt.default_options, "timed_after": 0})

    assert stored.chosen.name == "pjds" and "row pattern" not in stored.chosen.summary()
    assert device.asked["row_patterns_collect"] == 1


def test_row_patterns_of_sorted_rows_are_those_of_the_sorted_order(device):
    csr = stencil("7point", 45, device).validated(device)
    options = {**Pjds.default_options, "sigma_window": -1}
    known = Profile.of(csr, device).known
    stored = Pjds.build_knowing(csr, device, options, known)

    expected = Pjds.build(csr, device, {**options, "index": PATTERN}).columns
    assert known.patterns and stored.row_perm is not None
    assert stored.columns.row_pattern.tolist() == expected.row_pattern.tolist()
    assert stored.columns.row_pattern.tolist() != known.patterns.row_pattern.tolist()


@pytest.mark.parametrize("size", [2, 4])
def test_blocks_that_the_matrix_tells_are_counted_once(device, size):
    matrix = blocked(size, 12, declared=False)
    csr = pattern(matrix, device, row_block=size, col_block=size).validated(device)
    device.waits = 0
    stored = Gpufmt.build(csr, device, {**Gpufmt.default_options, "format": "auto"})

    assert stored.chosen.name == "bsr" and stored.chosen.row_block == size
    assert device.asked["bsr_count_blocks"] == 1 and device.waits == 1
    alone = Bsr.build(csr, device, dict(Bsr.default_options))
    assert stored.chosen.stats() == alone.stats()
    assert stored.chosen.block_col.tolist() == alone.block_col.tolist()


def test_other_blocks_than_those_that_were_counted_are_counted(device):
    csr = pattern(blocked(4, 12, declared=False), device, row_block=4, col_block=4)
    stored = Gpufmt.build(csr, device, {**Gpufmt.default_options, "bsr.block_size": 2})

    assert (
        stored.chosen.row_block == 2
        and stored.chosen.nblocks == 4 * Bsr.build(csr, device, Bsr.default_options).nblocks
    )


def test_rows_that_are_too_short_for_blocks_are_not_looked_at(device):
    lengths = np.tile([1, 2, 2, 4], 200)  # an interpolation between points with four unknowns each
    csr = pattern(from_row_lengths(lengths, 200, seed=78), device, row_block=4, col_block=4).validated(device)
    asked = Counter(device.asked)

    assert Profile.of(csr, device).block_shape == (1, 1)
    assert device.asked == asked


def test_blocks_that_are_hardly_full_are_none(device):
    csr = pattern(from_row_lengths(np.full(800, 5), 800, seed=79), device, row_block=2, col_block=2)
    seen = Profile.of(csr, device)

    assert seen.block_shape == (1, 1) and seen.known.blocks is None
    assert device.asked["bsr_count_blocks"] == 1


@pytest.mark.parametrize("col_block", [1, 2, 3, 4])
def test_the_fewest_entries_of_blocks(col_block):
    lengths = (5, 4, 3, 2, 1)  # rows of 0, 1, 2, 3-4 and 5-8 entries
    one, two, three, five = (-(-n // col_block) * col_block for n in (1, 2, 3, 5))

    assert least_in_blocks(lengths, col_block) == 4 * one + 3 * two + 2 * three + five
    assert 0 < LEAST_BLOCK_FILL < 1


@pytest.mark.parametrize("transposed", [False, True])
def test_large_interpolations_are_not_looked_at(device, transposed):
    coarse, fine = 30_000, 240_000
    rows = np.repeat(np.arange(fine), 4)
    columns = (rows * coarse // fine + np.tile(np.arange(4) * 7, fine)) % coarse
    if transposed:
        order = np.argsort(columns, kind="stable")
        rows, columns, coarse, fine = columns[order], rows[order], fine, coarse
    rowptr = np.searchsorted(rows, np.arange(fine + 1)).astype(device.index)
    csr = of_arrays(rowptr, columns.astype(device.index), coarse).validated(device)
    asked, device.waits = Counter(device.asked), 0
    seen = Profile.of(csr, device)

    assert csr.nnz >= least_looked_at(device) and device.asked == asked and not device.waits
    assert (seen.npatterns, seen.sampled, seen.known.sought_patterns) == (0, False, True)
    assert rank(seen, device)[0].name == "pjds"


def test_rows_of_interpolations_are_not_taken_to_be_alike(device):
    tall = of_arrays(np.arange(0, 400_001, 2, dtype=device.index), np.zeros(400_000, device.index), 40_000)
    stored = Pjds.build(tall, device, dict(Pjds.default_options))

    assert not may_be_few(tall) and not device.asked["row_patterns_collect"]
    assert stored.columns.summary() == "16-bit columns"
