"""The structure of EVC-HYB: sorting, what is counted, and builds with no more than the arrays of a device."""

import numpy as np
import pytest
from builders import from_row_lengths, shape
from places import make_backend
from stored_matrix import assert_multiplies

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.formats.evchyb import layout as evchyb_layout
from petsc_gpufmt.formats.evchyb import order as evchyb_order
from petsc_gpufmt.formats.evchyb.evchyb import EvcHyb
from petsc_gpufmt.formats.evchyb.layout import RowCounts, Split
from petsc_gpufmt.formats.evchyb.order import TILE, padding_share, sort_rows, split_rows
from petsc_gpufmt.formats.evchyb.parameters import is_scattered
from petsc_gpufmt.patterns.csr import CsrPattern

BOTH_PLACES = pytest.mark.parametrize("place", ["host", "device_like"])


@pytest.fixture
def host():
    """The host backend with slices as high as a warp, as on a device."""
    backend = HostBackend(*native_library.petsc_types())
    backend.simd_width = 32
    return backend


@pytest.fixture
def device_like(request):
    """Whose arrays offer no more than those of a device: nothing but kernels can build with them."""
    return make_backend(request, "device_like", np.float64, np.int32)


def pattern(lengths, here):
    """Rows of these lengths, all entries in column 0."""
    rowptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return CsrPattern(len(lengths), 1, here.adopt(rowptr), here.adopt(np.zeros(rowptr[-1], dtype=np.int32)))


def brought(matrix, here):
    csr = matrix.pattern(np, np.int32)
    return CsrPattern(csr.nrows, csr.ncols, here.adopt(csr.rowptr), here.adopt(csr.colidx))


@BOTH_PLACES
@pytest.mark.parametrize(
    ("longest", "window"),
    [
        *[(0, 10**6), (5, 96), (255, TILE), (255, 10**6), (300, 2 * TILE)],
        pytest.param(70000, 10**6, marks=pytest.mark.slow),
    ],
)
def test_rows_of_one_length_keep_their_order(request, place, longest, window):
    """In one pass or several, in windows that are less than a tile of rows, or several."""
    here = request.getfixturevalue(place)
    lengths = np.random.default_rng(74).integers(0, longest + 1, 2 * TILE + 77)
    lengths[5] = longest
    listed = np.random.default_rng(75).permutation(lengths.size).astype(np.int32)
    for rows, first in ((None, 0), (None, 40), (listed, 0)):
        given = np.arange(first, lengths.size) if rows is None else rows
        (into,) = here.empty((given.size, here.index))

        adopted = None if rows is None else here.adopt(rows)
        sort_rows(pattern(lengths, here), adopted, first, given.size, window, longest, into, here)

        expected = given[np.lexsort((lengths[given], np.arange(given.size) // window))]
        assert here.to_host(into).tolist() == expected.tolist()


@BOTH_PLACES
@pytest.mark.parametrize("n", [1, 2, 31, 700, TILE])
def test_rows_of_one_tile_are_sorted_at_once(request, monkeypatch, place, n):
    here = request.getfixturevalue(place)
    lengths = np.random.default_rng(76).integers(0, 90, TILE + 9)
    listed = np.random.default_rng(77).permutation(lengths.size).astype(np.int32)[:n]
    run, launched = here.run, []
    monkeypatch.setattr(here, "run", lambda launches: launched.extend(launches) or run(launches))
    for rows, first in ((None, 0), (None, 9), (here.adopt(listed), 0)):
        (into,) = here.empty((n, here.index))
        sort_rows(pattern(lengths, here), rows, first, n, n + 5, 90, into, here)

        given = np.arange(first, first + n) if rows is None else listed
        assert here.to_host(into).tolist() == given[np.argsort(lengths[given], kind="stable")].tolist()
    assert len(launched) == 3


@BOTH_PLACES
@pytest.mark.parametrize("nrows", [1, 31, 32, 900])
def test_what_is_counted_of_rows(request, place, nrows):
    here = request.getfixturevalue(place)
    here.resident_threads = 256  # several rows a thread
    lengths = np.random.default_rng(78).integers(0, 90, nrows)
    lengths[nrows // 2 :: 7] = 700
    whole = lengths[: nrows // 32 * 32].reshape(-1, 32)

    counts = RowCounts.of(pattern(lengths, here), (40, 64), 32, 8, here)

    assert counts == RowCounts(
        padding=int((-lengths[lengths > 40] % 32).sum()),
        nshort=(np.count_nonzero(lengths <= 40), np.count_nonzero(lengths <= 64)),
        segments=tuple(int((-(-lengths[lengths > split] // 256)).sum()) for split in (40, 64)),
        nonempty_rows=np.count_nonzero(lengths),
        descends=bool((np.diff(lengths) < 0).any()),
        sliced=int(whole.max(axis=1).sum()),
        longest=int(lengths.max()),
        in_slices=int(whole.sum()),
    )


@pytest.mark.parametrize("longest", [0, 64, 65, 128, 129, 4096, 4097])
def test_the_counts_of_a_small_pattern_say_as_much(device_like, monkeypatch, longest):
    lengths = np.minimum(np.random.default_rng(79).geometric(0.02, 200), longest)
    lengths[::50] = longest
    csr = pattern(lengths, device_like)
    counted = RowCounts.of(csr, (64, 128), 32, 128, device_like)
    known, counts = csr.counted(device_like)
    asked = []
    monkeypatch.setattr(device_like, "run", lambda launches: asked.append(launches))
    monkeypatch.setattr(device_like, "first", lambda array, count: [0] * count)
    told = RowCounts.of(known, (64, 128), 32, 128, device_like)

    assert bool(asked) == (longest > 128 * 32)
    if not asked:
        assert told == counted._replace(sliced=0, in_slices=0)
    RowCounts.of(known, (100, 100), 32, 128, device_like)
    assert asked and counts.longest == longest


@BOTH_PLACES
@pytest.mark.parametrize("window", [1, 64])
@pytest.mark.parametrize("split_length", [40, 10**4])
def test_padding_is_that_of_some_sorted_windows_of_short_rows(request, monkeypatch, place, window, split_length):
    here = request.getfixturevalue(place)
    monkeypatch.setattr(evchyb_order, "SAMPLED_WINDOWS", 5)
    lengths = np.random.default_rng(82).integers(0, 50, 1300)
    csr = pattern(lengths, here)
    counts = RowCounts.of(csr, (split_length, split_length), 32, 128, here)
    split = Split(split_length, counts.nshort[0], counts.segments[0])
    short = lengths[lengths <= split_length]
    windows = short[: short.size // 64 * 64].reshape(-1, 64)
    slices = np.sort(windows[np.linspace(0, len(windows) - 1, 5).astype(int)], axis=1).reshape(-1, 32)
    if window == 1:
        slices = short[: short.size // 32 * 32].reshape(-1, 32)

    share = padding_share(csr, counts, split, split_rows(csr, split, here), window, 32, here)

    assert share == pytest.approx(1 - slices.sum() / (32 * slices.max(axis=1).sum()))


LENGTHS = {
    "stencil": np.resize([4, 5, 5, 5, 4, 3], 700),
    "ascending": np.repeat([1, 2, 130, 5000], [40, 40, 7, 2]),
    "mixed": np.random.default_rng(79).permutation(np.repeat([0, 3, 5, 70, 130, 9000], [20, 70, 40, 33, 10, 2])),
    "no_whole_slice": np.array([3, 1, 2]),
    "only_long": np.full(40, 300),
    "empty_rows": np.zeros(70, dtype=int),
    "no_rows": np.zeros(0, dtype=int),
}


@pytest.mark.real
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sigma_window": 1},
        {"sigma_window": 40},
        {"split_length": 3, "segment_length": 256},
        {"sigma_window": 1, "split_length": 700, "segment_length": 256},
    ],
    ids=str,
)
@pytest.mark.parametrize("small_bytes", [30e6, 0], ids=["small", "large"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_a_device_builds_what_the_host_builds(host, device_like, monkeypatch, lengths, small_bytes, options):
    """Told of as many threads, the host takes the same teams; its columns are full, and x is never scattered."""
    monkeypatch.setattr(evchyb_layout, "SMALL_BYTES", small_bytes)
    host.resident_threads = device_like.resident_threads = 2048
    given = {"index": "full", "block_threads": 256, "batch": 4, "entries_per_thread": 8, **options}
    matrix = from_row_lengths(lengths, 9500, seed=80)
    one, other = (
        EvcHyb.build(brought(matrix, here), here, {**EvcHyb.default_options, **given}) for here in (host, device_like)
    )

    assert (one.summary(), one.stats(), one.detail()) == (other.summary(), other.stats(), other.detail())
    arrays = [
        (one.ell_rows, other.ell_rows),
        (one.slices.offsets, other.slices.offsets),
        (one.slices.segment_row, other.slices.segment_row),
        (one.slices.segments, other.slices.segments),
        (one.columns.col, other.columns.col),
        (one.tasks, other.tasks),
        (one.partials, other.partials),
        (one.tickets, other.tickets),
    ]
    for expected, array in arrays:
        assert array is None if expected is None else np.array_equal(device_like.to_host(array), expected)


@pytest.mark.parametrize("lengths", [LENGTHS["stencil"], LENGTHS["mixed"]], ids=["stencil", "mixed"])
def test_a_small_matrix_waits_for_its_rows_and_for_its_slices(request, monkeypatch, lengths):
    emulation = make_backend(request, "emulation", np.float64, np.int32, resident_threads=2048)
    fetched = []
    monkeypatch.setattr(emulation, "first", lambda array, count: fetched.append(count) or array[:count].tolist())
    monkeypatch.setattr(emulation, "to_host", lambda array: pytest.fail("brought to the host"))

    EvcHyb.build(brought(from_row_lengths(lengths, 9500, seed=80), emulation), emulation, EvcHyb.default_options)

    assert len(fetched) == 2 and max(fetched) * 8 <= 4096


@pytest.mark.real
def test_a_device_looks_at_sectors_as_the_host_does(host, device_like):
    columns = np.random.default_rng(81).integers(0, 10**6, 512 * 9).astype(np.int32)
    columns[::7] = -1
    scattered = [
        [is_scattered(here.adopt(columns % span), 32, here) for span in (40, 700, 1000, 1300, 10**6)]
        for here in (host, device_like)
    ]

    assert scattered[0] == scattered[1] and set(scattered[0]) == {False, True}


def test_the_rows_of_a_shape_that_needs_two_digits(host, device_like, monkeypatch):
    monkeypatch.setattr(evchyb_layout, "SMALL_SPLIT_LENGTHS", (10, 20))
    rows = [
        EvcHyb.build(brought(shape("one_huge_row"), here), here, EvcHyb.default_options).slices.segment_row
        for here in (host, device_like)
    ]

    assert device_like.to_host(rows[1]).tolist() == rows[0].tolist()


@pytest.mark.parametrize(
    "matrix", [shape("power_law"), from_row_lengths(LENGTHS["mixed"], 9500, seed=83)], ids=["power_law", "mixed"]
)
def test_products_with_what_a_device_has_built(device_like, matrix):
    device_like.resident_threads = 2048
    stored = EvcHyb.build(brought(matrix, device_like), device_like, EvcHyb.default_options)

    assert_multiplies(stored, matrix, device_like)
