"""The model that ranks the formats: which one telling matrices lead to."""

import numpy as np
import pytest
from patterns import MadeUpDevice, long_rows, of_arrays, stencil

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.choice import gpufmt
from petsc_gpufmt.choice.model import (
    MOST_TIMED,
    SECTOR_SECONDS,
    WORTH_LOADING,
    WORTH_TIMING,
    Candidate,
    csr_bytes,
    rank,
    takes_a_launch,
    worth_timing,
)
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.tune.matrices import power_law

pytestmark = pytest.mark.real


@pytest.fixture
def host():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture
def device():
    return MadeUpDevice(*native_library.petsc_types())


def best(csr, backend):
    return rank(Profile.of(csr, backend), backend)[0]


def test_stencils_take_pjds_with_row_patterns(device):
    for csr in (stencil("7point", 60, device), stencil("27point", 40, device)):
        first = best(csr, device)
        assert (first.name, first.why) == ("pjds", "27 row patterns")
        assert first.nbytes < 0.8 * csr_bytes(Profile.of(csr, device), device)


@pytest.mark.parametrize("told", [{"row_block": 3, "col_block": 3}, {}], ids=["told", "found"])
def test_dense_blocks_take_bsr(device, told):
    first = best(stencil("27point", 20, device, block_size=3, **told), device)

    assert (first.name, first.options, first.why) == ("bsr", {"block_size": 3}, "blocks of 3 x 3, 100% full")


def test_rectangular_blocks_leave_their_size_to_the_matrix(device):
    wide = Profile(3000, 1000, 300_000, 100, 0, 300_000, 300_000, block_shape=(3, 1), short_slices=0.0)
    bsr = next(c for c in rank(wide, device) if c.name == "bsr")

    assert bsr.options == {}


def test_blocks_with_much_padding_do_not_take_bsr(device):
    padded = Profile(3000, 3000, 300_000, 100, 0, 300_000, 300_000, block_shape=(3, 3), block_fill=0.6)

    assert "bsr" not in [c.name for c in rank(padded, device)]


def test_a_few_huge_rows_take_evchyb(device):
    ranked = rank(Profile.of(long_rows(device, 50000, 50000), device), device)
    seconds = {c.name: c.seconds for c in ranked}

    assert ranked[0].name == "evchyb" and "rows of up to 50000 entries" in ranked[0].why
    assert seconds["pjds"] > 100 * seconds["evchyb"] and seconds["csradaptive"] > 5 * seconds["evchyb"]


def test_a_power_law_does_not_take_pjds(device):
    csr = of_arrays(*power_law(100_000, device.index, np.random.default_rng(73)), 100_000)

    assert best(csr, device).name != "pjds"
    assert "pjds" not in [c.name for c in worth_timing(rank(Profile.of(csr, device), device))]


def test_large_unstructured_matrices_of_even_rows_take_pjds(device):
    even = Profile(10**6, 10**6, 2 * 10**7, 24, 0, int(2.2e7), 2 * 10**7, short_slices=0.0, short_rows=False)
    ranked = rank(even, device)

    assert [c.name for c in worth_timing(ranked)][:2] == ["pjds", "evchyb"]


def test_reads_of_x_that_rows_do_not_share_cost_time(device):
    def seconds(sectors):
        even = Profile(10**6, 10**6, 2 * 10**7, 24, 0, int(2.2e7), 2 * 10**7, sectors=sectors)
        return {c.name: c.seconds for c in rank(even, device)}

    together, scattered = seconds(0.0), seconds(1.0)
    for name, cost in SECTOR_SECONDS.items():
        if name in together:
            assert scattered[name] - together[name] == pytest.approx(2 * 10**7 * cost)
    assert min(scattered, key=scattered.get) == "evchyb"


@pytest.mark.parametrize(
    ("nnz", "sectors", "long_rows", "options"),
    [
        (2 * 10**7, 0.3, 10, {"split_length": 256}),
        (2 * 10**7, 0.1, 10, {}),
        (2 * 10**7, 0.3, 0, {}),
        (10**6, 0.3, 10, {}),
    ],
)
def test_large_scattered_matrices_keep_longer_rows_in_slices(device, nnz, sectors, long_rows, options):
    facts = Profile(10**6, 10**6, nnz, 500, 0, 2 * nnz, nnz, long_rows, sectors=sectors)

    assert next(c for c in rank(facts, device) if c.name == "evchyb").options == options


def test_short_columns_count_where_they_fit(device):
    def bytes_of(**facts):
        even = Profile(10**6, 10**6, 10**7, 10, 0, 10**7, 10**7, **facts)
        return {c.name: c.nbytes for c in rank(even, device)}

    full = bytes_of(short_slices=0.0, short_rows=False)
    short = bytes_of(short_slices=1.0, short_rows=True)
    saved = device.index.itemsize - 2
    assert full["csradaptive"] - short["csradaptive"] == saved * 10**7 - device.index.itemsize * 10**6
    for name in ("pjds", "evchyb"):
        assert full[name] - short[name] == pytest.approx((saved - device.index.itemsize / 32) * 10**7)


def test_the_estimate_of_bytes_is_that_of_the_formats(device):
    for csr in (stencil("27point", 28, device), stencil("27point", 12, device, block_size=4), long_rows(device)):
        for c in rank(Profile.of(csr, device), device):
            stored = gpufmt.store(c.name, c.options, csr, device, {})
            assert stored.stats().bytes_per_mult == pytest.approx(c.nbytes, rel=0.25), c.name


def test_the_host_takes_pjds_or_evchyb_by_their_padding(host):
    even, uneven = stencil("27point", 20, host, block_size=3), long_rows(host, 3000, 3000)

    assert {c.name for c in rank(Profile.of(even, host), host)} == {"pjds", "evchyb"}
    assert best(stencil("7point", 30, host), host).name == "pjds"
    assert best(uneven, host).name == "evchyb"


def test_only_close_candidates_are_worth_timing():
    def candidates(*seconds):
        return [Candidate(str(k), 0, s) for k, s in enumerate(seconds)]

    assert len(worth_timing(candidates(1.0, WORTH_TIMING * 0.99, WORTH_TIMING * 1.01))) == 2
    assert len(worth_timing(candidates(1.0, 1.0, 1.0, 1.0))) == MOST_TIMED == 3


def test_small_matrices_take_pjds_unless_another_format_is_much_faster(device):
    def first(**facts):
        return rank(Profile(**{**SMALL, **facts}), device)[0].name

    large = {"nrows": 10**6, "ncols": 10**6, "nnz": 10**7, "sliced_entries": 11 * 10**6, "sorted_entries": 11 * 10**6}
    assert first() == "pjds"
    assert first(longest=3000) == "evchyb"
    assert first(block_shape=(3, 3)) == "bsr"
    assert first(**large) != "pjds"
    seconds = {c.name: c.seconds for c in rank(Profile(**SMALL), device)}
    assert seconds["evchyb"] < seconds["pjds"] < WORTH_LOADING * seconds["evchyb"]


SMALL = {
    "nrows": 40_000,
    "ncols": 40_000,
    "nnz": 400_000,
    "longest": 20,
    "sliced_entries": 600_000,
    "sorted_entries": 410_000,
    "sectors": 0.5,
}


@pytest.mark.parametrize(
    ("ncols", "empty_rows", "name"), [(4000, 0, "evchyb"), (500, 0, "pjds"), (500, 2900, "evchyb")]
)
def test_an_interpolation_takes_pjds_where_a_square_matrix_would_not(device, ncols, empty_rows, name):
    """A level multiplies its matrix several times, its interpolation once; blocks between ranks have empty rows."""
    lengths = (empty_rows, 0, 0, 0, 4000 - empty_rows)
    p = Profile(4000, ncols, 80_000, 120, empty_rows, 120_000, 84_000, lengths=lengths, short_slices=0.0)
    ranked = {c.name: c.seconds for c in rank(p, device)}

    assert WORTH_LOADING * ranked["evchyb"] < ranked["pjds"] < ranked["evchyb"] + 5e-6
    assert rank(p, device)[0].name == name


def test_a_block_whose_rows_are_mostly_empty_takes_pjds_which_adds_the_others_alone(device):
    lengths = (3_960_000, 0, 0, 0, 0, 40_000)
    facts = {"short_slices": 0.0, "short_rows": False, "lengths": lengths}
    p = Profile(4_000_000, 40_000, 360_000, 9, 3_960_000, 390_000, 361_000, **facts)
    ranked = rank(p, device)

    assert (ranked[0].name, ranked[0].why) == ("pjds", "40000 rows with entries")
    assert ranked[0].nbytes < 10**7 < min(c.nbytes for c in ranked[1:])


def test_a_product_that_takes_a_launch_is_not_worth_a_measurement(device):
    small, large = (Profile.of(stencil("7point", n, device), device) for n in (10, 60))

    assert takes_a_launch(rank(small, device)[0]) and not takes_a_launch(rank(large, device)[0])
