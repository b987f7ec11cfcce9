"""Row merging: widths, splitting and its levels, ranges of columns, the figures of the paper, errors."""

from dataclasses import replace

import numpy as np
import pytest
from builders import CsrMatrix, from_row_lengths, uniform
from emulation.backend import EmulatedBackend
from sparse_products import ComputedProduct, chained
from stored_matrix import assert_same_bits

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.spgemm.census import count_terms
from petsc_gpufmt.spgemm.product import DEFAULT_OPTIONS
from petsc_gpufmt.spgemm.rmerge import MergeAccumulator
from petsc_gpufmt.spgemm.splitting import WIDTHS, LeftRows, bins, split

EVERY_WIDTH = pytest.mark.parametrize("width", WIDTHS)

# Table 1.1, longest row, and table 3.1, calls of MulLimited with 16 threads a sub-warp
ITERATIONS = {
    "cantilever": (78, 2),
    "economics": (44, 2),
    "epidemiology": (4, 1),
    "harbor": (145, 2),
    "mouse280": (7, 1),
    "protein": (204, 2),
    "qcd": (39, 2),
    "ship": (102, 2),
    "spheres": (81, 2),
    "windtunnel": (180, 2),
    "accelerator": (81, 2),
    "amazon0312": (10, 1),
    "ca-CondMat": (280, 3),
    "cit-Patents": (770, 3),
    "circuit": (353, 3),
    "email-Enron": (1383, 3),
    "p2p-Gnutella31": (78, 2),
    "roadNet-CA": (12, 1),
    "webbase1m": (4700, 4),
    "web-Google": (456, 3),
    "wiki-Vote": (893, 3),
}


@pytest.fixture
def host():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture(params=["host", "emulation"])
def place(request):
    if request.param == "host":
        return HostBackend(*native_library.petsc_types())
    return EmulatedBackend("float64", "int32", request.getfixturevalue("emulation_folder"))


def merging(A, B, backend, **options):
    patterns = (m.pattern(backend.xp, backend.index) for m in (A, B))
    return MergeAccumulator(count_terms(*patterns, backend), backend, {**DEFAULT_OPTIONS, **options})


def one_row(length):
    return uniform(1, length, length, seed=100), uniform(length, 1, 1, seed=101)


def long_and_short_rows():
    lengths = np.array([0, 3, 33, 32, 600, 2, 40, 9, 17, 1, 513])
    A = from_row_lengths(lengths, 700, seed=102)
    return A, chained(A)


@pytest.mark.parametrize(("longest", "iterations"), ITERATIONS.values(), ids=ITERATIONS)
def test_iterations_are_those_of_the_paper(host, longest, iterations):
    assert merging(*one_row(longest), host, merge_width=16).iterations == iterations


def test_the_splitting_of_section_2_3(host):
    columns = np.array([0, 2, 3, 4, 6, 7, 0, 3, 5, 7])
    A = CsrMatrix(2, 8, np.array([0, 6, 10]), columns, np.array([2.0, 7, 4, 6, 2, 2, 3, 2, 5, 3]))
    pattern = A.pattern(np, host.index)

    splitting = split(pattern, np.array([0, 1], dtype=host.index), 6, 2, 2, host)

    assert splitting.rows.tolist() == [0, 1]
    first, second = splitting.levels
    assert first.pieces.begin.tolist() == [0, 2, 4, 6, 8]  # rows of G_1
    assert first.pieces.end.tolist() == [2, 4, 6, 8, 10]
    assert first.pieces.columns is pattern.colidx
    assert [(r.rows.tolist(), r.begin.tolist(), r.end.tolist()) for r in first.last] == [([1], [3], [5])]
    assert second.pieces.begin.tolist() == [0, 2]  # rows of G_2, but for the blue row, which needs none
    assert second.pieces.end.tolist() == [2, 3]
    assert second.pieces.columns is None
    assert [(r.rows.tolist(), r.begin.tolist(), r.end.tolist()) for r in second.last] == [([0], [0], [2])]


def test_rows_are_merged_in_the_smallest_sufficient_width(host):
    lengths = np.array([1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 0])
    A = from_row_lengths(lengths, 40, seed=103)
    direct = merging(A, chained(A), host).direct

    assert {left.width: lengths[left.rows].tolist() for left in direct} == {
        2: [1, 2, 0],
        4: [3, 4],
        8: [5, 8],
        16: [9, 16],
        32: [17, 32],
    }


def test_rows_too_few_for_a_launch_join_the_next_width(host):
    host.resident_threads = 4000
    end = np.repeat([2, 3, 8, 30], [700, 20, 500, 4])
    whole = LeftRows(0, np.zeros_like(end), end)

    assert [(left.width, left.count) for left in bins(whole, 30, host)] == [(2, 700), (8, 520), (32, 4)]
    assert [(left.width, left.rows) for left in bins(LeftRows(0, end[:9] * 0, end[:9]), 2, host)] == [(2, None)]


def test_rows_of_one_width_are_not_gathered(host):
    A = uniform(50, 60, 7, seed=104)
    (left,) = merging(A, chained(A), host).direct

    assert (left.width, left.rows) == (8, None)


@pytest.mark.slow
@EVERY_WIDTH
def test_every_width_of_splitting(place, width):
    A, B = long_and_short_rows()
    computed = ComputedProduct(A, B, place, {"accumulator": "merge", "merge_width": width})
    (accumulator,) = computed.plan.accumulators

    computed.check()
    assert all(level.pieces.width == width for level in accumulator.splitting.levels)
    assert max(left.width for left in accumulator.direct) <= width


@pytest.mark.parametrize("longest", [1, 2, 3, 4, 5, 8, 9, 16, 17, 32])
def test_every_width_of_rows_merged_at_once(place, longest):
    A = uniform(37, 50, longest, seed=105)
    computed = ComputedProduct(A, chained(A), place, {"accumulator": "merge"})

    computed.check()
    assert computed.plan.accumulators[0].splitting is None


def test_rows_up_to_a_warp_are_not_split_by_default(host):
    accumulator = merging(*long_and_short_rows(), host)

    assert sorted(accumulator.splitting.rows.tolist()) == [2, 4, 6, 10]
    assert [level.pieces.count for level in accumulator.splitting.levels] == [3 + 38 + 3 + 33, 3 + 3]
    assert accumulator.iterations == 3


def test_rows_with_most_levels_come_first(host):
    assert merging(*long_and_short_rows(), host).splitting.rows.tolist() == [4, 10, 2, 6]


@pytest.mark.parametrize("buffer", [pytest.param(buffer, marks=pytest.mark.slow) for buffer in (3000, 600, 1)])
def test_intermediates_beyond_the_buffer_are_made_in_ranges_of_columns(place, buffer):
    A, B = long_and_short_rows()
    whole = ComputedProduct(A, B, place, {"accumulator": "merge"})
    ranged = ComputedProduct(A, B, place, {"accumulator": "merge", "merge_buffer": buffer})
    (accumulator,) = ranged.plan.accumulators

    ranged.check()
    assert_same_bits(ranged.values, whole.values)
    assert len(whole.plan.accumulators[0].ranges) == 1
    assert len(accumulator.ranges) > 1
    bounds = [(part.begin, part.end) for part in accumulator.ranges]
    assert bounds[0][0] == 0 and bounds[-1][1] == B.ncols
    assert all(left[1] == right[0] for left, right in zip(bounds[:-1], bounds[1:], strict=True))
    assert accumulator.intermediates.nbytes <= buffer or max(end - begin for begin, end in bounds) == 1
    assert f"{len(bounds)} ranges of columns" in accumulator.summary()


def test_three_levels_share_two_intermediates(place):
    A, B = one_row(40)
    computed = ComputedProduct(A, B, place, {"accumulator": "merge", "merge_width": 2})

    computed.check()
    assert len(computed.plan.accumulators[0].splitting.levels) == 5
    assert len(computed.plan.accumulators[0].intermediates.arrays) == 4


def test_an_intermediate_never_has_more_entries_than_its_indices_count(emulation_folder):
    backend = EmulatedBackend("float64", "int32", emulation_folder)
    accumulator = merging(*one_row(100), backend, merge_buffer=1 << 60)

    assert accumulator._largest_intermediate == 2**31 - 1


@pytest.mark.parametrize("left", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("right", [1, 2, 3, 4, 5, 8])
def test_short_rows_of_both_factors_are_merged_in_a_network(place, left, right):
    A = from_row_lengths(np.random.default_rng(106).integers(0, left + 1, 75), 30, seed=107)
    A = replace(A, colidx=A.colidx[::-1].copy()) if left > 1 else uniform(75, 30, 1, seed=107)
    B = from_row_lengths(np.full(30, right), 12, seed=108)
    computed = ComputedProduct(A, B, place, {"accumulator": "merge"})
    (accumulator,) = computed.plan.accumulators

    computed.check()
    sizes = [next(n for n in (2, 4, 8) if n >= longest) for longest in (int(np.diff(A.rowptr).max()), right)]
    assert accumulator.network == tuple(sizes)


@pytest.mark.parametrize(("left", "right", "options"), [(9, 8, {}), (8, 9, {}), (8, 8, {"merge_width": 8})])
def test_rows_that_are_longer_or_for_a_given_width_are_not(host, left, right, options):
    assert merging(uniform(5, 9, left, seed=109), uniform(9, 9, right, seed=110), host, **options).network is None


def test_what_is_needed_covers_what_is_held(host):
    for options in ({}, {"merge_buffer": 3000}):
        computed = ComputedProduct(*long_and_short_rows(), host, {"accumulator": "merge", **options})
        (accumulator,) = computed.plan.accumulators

        assert accumulator.bytes_needed() > accumulator.intermediates.nbytes > 0
        assert accumulator.bytes_held > accumulator.intermediates.nbytes


def test_the_summary_says_how_rows_are_merged(host):
    assert merging(*one_row(7), host).summary() == "merge: rows of 8 by 2 in a network"
    assert merging(*one_row(9), host).summary() == "merge: 1 rows 16 wide"
    assert merging(*one_row(700), host).summary() == "merge: 1 rows in 44, 3 pieces of 16"
