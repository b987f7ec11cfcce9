"""The type that chooses its format: what it says, what it passes on, and when and what it times."""

import gc
import weakref

import numpy as np
import pytest
from builders import from_row_lengths, shape, uniform
from patterns import MadeUpDevice, long_rows, pattern, scattered, stencil
from stored_matrix import StoredMatrix, assert_product

from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.choice import gpufmt, mult_timer
from petsc_gpufmt.choice.gpufmt import SECONDS_OF_TIMING, TIMED_MULTS, Gpufmt, in_bytes, mults_before_timing
from petsc_gpufmt.choice.model import MOST_TIMED, Candidate, csr_bytes, rank, worth_timing
from petsc_gpufmt.choice.profile import Profile
from petsc_gpufmt.errors import OptionError, OutOfMemoryError
from petsc_gpufmt.formats.common.base import parse_options


@pytest.fixture
def host():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture
def device():
    return MadeUpDevice(*native_library.petsc_types())


def options(**given):
    return {**Gpufmt.default_options, **given}


def test_it_says_what_it_chose_and_why(device):
    csr = stencil("7point", 60, device)
    stored = Gpufmt.build(csr, device, options())
    moved, as_csr = stored.stats().bytes_per_mult, csr_bytes(Profile.of(csr, device), device)

    assert stored.chosen.name == "pjds"
    assert stored.summary().startswith(
        "chose pjds: 6.9 entries a row, at most 7, 1.01 times the mean; 27 row patterns; "
        f"{in_bytes(moved)} a product against {in_bytes(as_csr)} as CSR; slice height "
    )
    lines = stored.detail().splitlines()
    assert any(line.startswith("27 row patterns, which take the place of columns") for line in lines)
    assert [line.split(":")[0] for line in lines if line.startswith("estimate")] == [
        "estimate of pjds",
        "estimate of evchyb",
        "estimate of csradaptive",
    ]


def test_the_detail_tells_blocks_and_row_lengths(device):
    assert (
        "dense blocks: 3 x 3, 100% full"
        in Gpufmt.build(stencil("27point", 20, device, block_size=3), device, options()).detail()
    )
    detail = Gpufmt.build(long_rows(device), device, options()).detail()
    assert "rows of 0, 1, 2, 3-4, 5-8, ... entries: 0, 0, 0, 0, 19998, 0, " in detail
    assert "formats are timed after 50 products" not in detail
    assert "vCSR part: " in detail  # of the chosen format


def test_the_host_is_not_told_microseconds(device, host):
    csr = scattered(np.full(30_000, 9), 30_000, device)

    assert " us; " in Gpufmt.build(csr, device, options()).detail()
    assert " us; " not in Gpufmt.build(csr, host, options()).detail()
    assert "columns fit 16 bits in 100% of the slices" in Gpufmt.build(csr, host, options()).detail()


@pytest.mark.parametrize("name", ["pjds", "evchyb", "csradaptive", "bsr", "ellpack", "csrscalar"])
def test_a_format_may_be_asked_for(device, name):
    stored = Gpufmt.build(stencil("7point", 8, device), device, options(format=name))

    assert stored.chosen.name == name and stored.replan_after == 0
    assert stored.summary().startswith(f"chose {name}, as asked for; ")


@pytest.mark.parametrize("name", ["jad", "gpufmt", "", "AUTO"])
def test_an_unknown_format_is_refused_with_the_names_of_those_there_are(host, name):
    with pytest.raises(
        OptionError, match=f"-mat_gpufmt_format {name}: choose auto or one of pjds, evchyb, bsr, .*ellpackr$"
    ):
        Gpufmt.build(stencil("7point", 4, host), host, options(format=name))


def test_a_negative_number_of_products_is_refused(host):
    with pytest.raises(
        OptionError, match="-mat_gpufmt_timed_after -2: choose a number of products, 0 for no timing, or -1"
    ):
        Gpufmt.build(stencil("7point", 4, host), host, options(timed_after=-2))


def test_options_of_the_formats_are_passed_on(host):
    text = "format=pjds;timed_after=7;pjds.slice_height=64;bsr.block_size=3;"
    given = parse_options(Gpufmt, text)

    assert given == {"format": "pjds", "timed_after": 7, "pjds.slice_height": 64, "bsr.block_size": 3}
    assert Gpufmt.build(stencil("7point", 8, host), host, given).chosen.slice_height == 64


def test_the_users_options_go_before_the_chosen_ones(device):
    csr = stencil("27point", 20, device, block_size=3)

    assert Gpufmt.build(csr, device, options()).chosen.row_block == 3
    assert Gpufmt.build(csr, device, options(**{"bsr.block_size": 6})).chosen.row_block == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "pjds.colour=1;",
            "-mat_pjds_colour is not an option: there are -mat_pjds_slice_height, -mat_pjds_sigma_window",
        ),
        ("jad.width=1;", "-mat_jad_width is not an option: there are -mat_gpufmt_format, -mat_gpufmt_timed_after"),
        ("pjds.slice_height=tall;", "-mat_pjds_slice_height tall: a whole number is needed"),
        ("timed_after=soon;", "-mat_gpufmt_timed_after soon: a whole number is needed"),
        (f"timed_after={2**64};", f"-mat_gpufmt_timed_after {2**64}: a whole number is needed, of 64 bits at most"),
    ],
)
def test_options_that_do_not_exist_or_are_no_numbers_are_refused(text, message):
    with pytest.raises(OptionError, match=message):
        parse_options(Gpufmt, text)


def test_other_formats_do_not_take_options_with_a_dot():
    from petsc_gpufmt.formats.pjds import Pjds

    with pytest.raises(OptionError, match="-mat_bsr_block_size is not an option: there are -mat_pjds_slice_height"):
        parse_options(Pjds, "bsr.block_size=3;")


def test_timing_is_due_on_a_device_where_formats_are_close(device, host):
    close, clear = scattered(np.full(50_000, 9), 50_000, device), long_rows(device, 50_000, 50_000)

    candidates = worth_timing(rank(Profile.of(close, device), device))
    assert Gpufmt.build(close, device, options()).replan_after == mults_before_timing(candidates)
    assert Gpufmt.build(close, device, options(timed_after=7)).replan_after == 7
    assert "formats are timed after 7 products" in Gpufmt.build(close, device, options(timed_after=7)).detail()
    assert Gpufmt.build(close, device, options(timed_after=0)).replan_after == 0
    assert Gpufmt.build(clear, device, options()).replan_after == 0
    assert Gpufmt.build(close, host, options()).replan_after == 0
    assert Gpufmt.build(pattern(shape("all_empty"), device), device, options()).replan_after == 0


def test_timing_is_due_for_small_matrices_only_if_it_is_asked_for(device):
    csr = scattered(np.full(500, 9), 500, device)

    assert len(worth_timing(rank(Profile.of(csr, device), device))) > 1
    assert Gpufmt.build(csr, device, options()).replan_after == 0
    assert Gpufmt.build(csr, device, options(timed_after=7)).replan_after == 7


def test_timing_adds_a_twentieth_to_the_products_so_far():
    close = [Candidate("pjds", 0, 5e-5), Candidate("evchyb", 0, 5.5e-5)]

    products = mults_before_timing(close) * 5e-5

    assert 20 * (SECONDS_OF_TIMING + 150 * 1.05e-4) == pytest.approx(products, rel=1e-3)


def test_nothing_is_timed_where_the_runner_up_is_far_behind(device, monkeypatch):
    csr = pattern(uniform(100, 100, 10, seed=74), device)
    for behind, timed in ((1.14, True), (1.16, False)):
        ranked = [Candidate("pjds", 0, 1e-5), Candidate("evchyb", 0, behind * 1e-5)]
        monkeypatch.setattr(gpufmt, "rank", lambda seen, backend, ranked=ranked: ranked)

        assert (Gpufmt.build(csr, device, options()).replan_after > 0) == timed
        assert (Gpufmt.build(csr, device, options(timed_after=7)).replan_after == 7) == timed


class MadeUpTimer:
    """Seconds by format; remembers how many copies were alive at once."""

    def __init__(self, seconds):
        self._seconds, self.alive, self.most_alive, self.asked = seconds, [], 0, []

    def __call__(self, backend):
        return self

    def seconds(self, stored, csr, mults):
        gc.collect()
        self.alive = [r for r in self.alive if r() is not None] + [weakref.ref(stored)]
        self.most_alive = max(self.most_alive, len(self.alive))
        self.asked.append((stored.name, mults))
        value = self._seconds[stored.name]
        if isinstance(value, Exception):
            raise value
        return value


@pytest.fixture
def timer(monkeypatch):
    def install(seconds):
        made = MadeUpTimer(seconds)
        monkeypatch.setattr(gpufmt, "MultTimer", made)
        return made

    return install


@pytest.fixture
def close(monkeypatch):
    """Three candidates that the model finds equally fast."""
    ranked = [Candidate(name, 1000.0, 1e-5) for name in ("pjds", "evchyb", "csradaptive")]
    monkeypatch.setattr(gpufmt, "rank", lambda seen, backend: list(ranked))
    return uniform(100, 100, 10, seed=74)


@pytest.mark.parametrize(
    "fastest", ["pjds", *(pytest.param(name, marks=pytest.mark.slow) for name in ("evchyb", "csradaptive"))]
)
def test_the_fastest_is_kept(device, timer, close, fastest):
    made = timer({name: 4e-6 if name == fastest else 5e-6 for name in ("pjds", "evchyb", "csradaptive")})

    stored = Gpufmt.rebuild(pattern(close, device), device, options())

    assert stored.chosen.name == fastest and stored.replan_after == 0
    times = ", ".join(f"{name} {4.0 if name == fastest else 5.0}" for name in ("pjds", "evchyb", "csradaptive"))
    assert stored.summary().startswith(
        f"chose {fastest}: 10 entries a row, at most 10, 1 times the mean; timed in us: {times}; "
    )
    assert stored.detail().startswith(f"{fastest}: 10 entries a row")
    assert [name for name, _ in made.asked] == ["pjds", "evchyb", "csradaptive"]
    assert made.most_alive == 2


def test_a_gain_within_the_noise_changes_nothing(device, timer, close):
    timer({"pjds": 1.0e-5, "evchyb": 0.98e-5, "csradaptive": 0.99e-5})

    assert Gpufmt.rebuild(pattern(close, device), device, options()).chosen.name == "pjds"


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("no room"),
        *(pytest.param(e, marks=pytest.mark.slow) for e in (OptionError("too wide"), MemoryError("no room"))),
    ],
)
def test_a_candidate_that_does_not_fit_is_left_out(device, timer, close, error):
    timer({"pjds": 1e-5, "evchyb": error, "csradaptive": 0.5e-5})

    stored = Gpufmt.rebuild(pattern(close, device), device, options())

    assert stored.chosen.name == "csradaptive"
    assert f"evchyb could not be timed: {error}" in stored.detail()


def test_errors_of_another_kind_are_not_hidden(device, timer, close):
    timer({"pjds": 1e-5, "evchyb": ZeroDivisionError()})

    with pytest.raises(ZeroDivisionError):
        Gpufmt.rebuild(pattern(close, device), device, options())


def test_nothing_is_timed_where_memory_is_scarce(device, timer, close, monkeypatch):
    made = timer({})
    monkeypatch.setattr(device, "free_bytes", lambda: 100_000)

    stored = Gpufmt.rebuild(pattern(close, device), device, options())

    assert stored.chosen.name == "pjds" and not made.asked and stored.replan_after == 0
    assert "not timed: two copies need" in stored.detail()


def test_a_format_that_was_asked_for_is_not_timed(device, timer, close):
    made = timer({})

    assert Gpufmt.rebuild(pattern(close, device), device, options(format="evchyb")).chosen.name == "evchyb"
    assert not made.asked


def test_timing_takes_less_than_sixty_products():
    assert MOST_TIMED * (1 + TIMED_MULTS * (1 + mult_timer.SEQUENCES)) < 60


def test_products_after_timing_are_right(device, timer, close, monkeypatch):
    timer({"pjds": 5e-6, "evchyb": 4e-6, "csradaptive": 5e-6})
    monkeypatch.setattr(Gpufmt, "build", Gpufmt.rebuild)
    stored = StoredMatrix(close, Gpufmt, device, {})
    x, _ = stored.vectors()

    assert stored.format.chosen.name == "evchyb"
    assert_product(stored.mult(x), stored.matrix, x)


@pytest.mark.gpu
def test_timing_on_a_device():
    from petsc_gpufmt.backends.backend import CudaBackend

    backend = CudaBackend(np.float64, np.int32, device=0)
    matrix = from_row_lengths(np.full(2000, 9), 2000, seed=75)
    csr = matrix.pattern(backend.xp, backend.index)
    stored = Gpufmt.rebuild(csr, backend, options())

    assert "timed in us: " in stored.summary() and stored.replan_after == 0
    assert 1e-7 < mult_timer.MultTimer(backend).seconds(stored.chosen, csr, TIMED_MULTS) < 1e-3


@pytest.mark.parametrize(("count", "text"), [(5.8e8, "0.58 GB"), (1.23e7, "12.3 MB"), (45e3, "45 kB"), (2e5, "0.2 MB")])
def test_sizes_are_short(count, text):
    assert in_bytes(count) == text
