"""The search for the fastest options, with made-up times in place of a GPU."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from builders import shape

from petsc_gpufmt import tuned_options
from petsc_gpufmt.backends import native_library
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.backends.driver import DriverError
from petsc_gpufmt.bench import environment, places
from petsc_gpufmt.bench.errors import BenchError
from petsc_gpufmt.cli.main import main
from petsc_gpufmt.errors import OptionError
from petsc_gpufmt.tune import search as tune
from petsc_gpufmt.tune.matrices import MATRICES, QUICK_MATRICES, make_pattern
from petsc_gpufmt.tune.search import best_options, fastest, try_options
from petsc_gpufmt.tuned_options import known_options, tuned

MODEL = "NVIDIA Test 100"
A, B, C = (("width", 1),), (("width", 2),), (("width", 3),)


@pytest.fixture
def backend():
    return HostBackend(*native_library.petsc_types())


@pytest.fixture
def pattern():
    return shape("banded").pattern(np, np.int32)


class Made:
    """A format whose only option is a width; 0 is as 4."""

    name = "made"
    default_options = {"width": 0, "other": 7}
    space = [{"width": w} for w in (1, 2, 4, 8)]

    def __init__(self, options):
        self.options = options

    @classmethod
    def tuning_key(cls, csr):
        return f"rows={csr.nrows}"

    @classmethod
    def tuning_space(cls, csr):
        return cls.space

    @classmethod
    def build(cls, csr, backend, options):
        if options["width"] == 8:
            raise OptionError("-mat_made_width 8: too wide")
        return cls(options)


class Untunable(Made):
    name = "untunable"
    space = []


class MadeTimer:
    """Seconds by width."""

    def __init__(self, seconds):
        self._seconds = seconds

    def seconds(self, stored, csr, mults):
        assert stored.options["other"] == 7
        time = self._seconds[stored.options["width"]]
        if isinstance(time, Exception):
            raise time
        return time


def test_the_best_options_are_found_and_those_that_fail_counted(backend, pattern):
    trial = try_options(Made, "m", pattern, backend, MadeTimer({0: 4.0, 1: 3.0, 2: 2.0, 4: 4.0}), 60)

    assert (trial.key, trial.best, trial.failed, trial.left_out) == ("rows=260", (("width", 2),), 1, 0)
    assert trial.seconds == {(): 4.0, (("width", 1),): 3.0, (("width", 2),): 2.0, (("width", 4),): 4.0}


def test_a_gain_within_the_noise_leaves_the_choice_to_the_format(backend, pattern):
    trial = try_options(Made, "m", pattern, backend, MadeTimer({0: 1.0, 1: 0.99, 2: 2.0, 4: 1.0}), 60)

    assert trial.best == ()
    assert best_options([trial])[0] == {"made": {"rows=260": {}}}


TOO_MANY_REGISTERS = DriverError(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch")


@pytest.mark.parametrize("error", [TOO_MANY_REGISTERS, MemoryError()])
def test_what_the_device_refuses_is_skipped(backend, pattern, error):
    trial = try_options(Made, "m", pattern, backend, MadeTimer({0: 4.0, 1: error, 2: error, 4: 3.0}), 60)

    assert (trial.best, trial.failed) == ((("width", 4),), 3)


def test_other_errors_are_not_hidden(backend, pattern):
    with pytest.raises(ZeroDivisionError):
        try_options(Made, "m", pattern, backend, MadeTimer({0: ZeroDivisionError()}), 60)


def test_time_ends_the_search_after_the_formats_own_choice(backend, pattern):
    trial = try_options(Made, "m", pattern, backend, MadeTimer({0: 4.0}), -1)

    assert (trial.seconds, trial.left_out, trial.best) == ({(): 4.0}, 4, ())


def test_matrices_of_one_key_share_the_options_that_lose_least():
    measured = [{(): 9.0, A: 1.0, B: 1.1, C: 3.0}, {(): 9.0, A: 2.0, B: 1.1, C: 1.0}]

    assert fastest(measured) == B


def test_options_that_cannot_be_run_on_all_matrices_of_a_key_are_left_out():
    assert fastest([{(): 9.0, A: 1.0, B: 5.0}, {(): 9.0, B: 5.0}]) == B


def test_matrices_without_options_in_common_leave_it_to_the_first():
    assert fastest([{A: 1.0, B: 2.0}, {C: 1.0}]) == A


def test_the_facts_name_the_matrices_and_their_times():
    trials = [
        tune.Trial("one", "made", "k", {(): 4.0, A: 1.0}),
        tune.Trial("two", "made", "k", {(): 2.0, A: 1.5}),
        tune.Trial("three", "made", "k", {}, failed=3),
    ]

    formats, facts = best_options(trials)

    assert formats == {"made": {"k": {"width": 1}}}
    assert facts == {
        "made": {"k": {"seconds": {"one": 1.0, "two": 1.5}, "seconds_of_automatic": {"one": 4.0, "two": 2.0}}}
    }


def test_earlier_results_do_not_count_during_the_search(backend, pattern):
    backend.model = MODEL
    seen = []

    class Timer(MadeTimer):
        def seconds(self, stored, csr, mults):
            seen.append(backend.model)
            return 1.0

    trials = list(tune.tune([Made, Untunable], ["m"], lambda spec: pattern, backend, Timer({}), 60))

    assert [[t.format_name for t in found] for found in trials] == [["made"]]
    assert set(seen) == {None} and backend.model == MODEL


@pytest.mark.parametrize("spec", ["7point:4", "27point:3x2", "powerlaw:300"])
def test_matrices_are_made_from_their_names(backend, spec):
    csr = make_pattern(spec, backend)

    csr.validated(backend)
    assert csr.nnz and csr.nrows == csr.ncols
    assert csr.row_block == csr.col_block == (2 if "x2" in spec else 1)
    assert csr.rowptr.dtype == csr.colidx.dtype == backend.index


def test_a_power_law_has_few_long_and_many_short_rows(backend):
    csr = make_pattern("powerlaw:20000", backend)
    lengths = np.diff(csr.rowptr)

    assert np.median(lengths) <= 2 and 4 < lengths.mean() < 10 and lengths.max() > 500
    rows = np.repeat(np.arange(csr.nrows), lengths)
    assert (np.diff(csr.colidx)[np.diff(rows) == 0] >= 0).all()


@pytest.mark.parametrize("spec", ["powerlaw:", "powerlaw:x", "powerlaw:0", "absent.mtx"])
def test_a_matrix_that_cannot_be_made_is_refused(backend, spec):
    with pytest.raises(BenchError, match=f"--matrix {spec}: "):
        make_pattern(spec, backend)


def test_the_matrices_stand_for_all_kinds():
    for specs in (MATRICES, QUICK_MATRICES):
        assert {spec.partition(":")[0] for spec in specs} == {"7point", "27point", "powerlaw"}
        assert {"x2", "x3", "x32"} <= {spec[-len(b) :] for spec in specs for b in ("x2", "x3", "x32")}
    assert "27point:60x3" in MATRICES or any(spec.endswith("x3") for spec in MATRICES)


def test_the_search_needs_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(places, "device_reason", lambda: "there is no GPU")

    assert main(["tune"]) == 2
    text = capsys.readouterr().err
    assert text == (
        "petsc_gpufmt: tune looks for options for a GPU, and there is no GPU: run it on a machine with one\n"
    )


def test_an_unknown_format_is_refused(capsys):
    assert main(["tune", "--format", "jad"]) == 2
    assert "no storage format is called 'jad'" in capsys.readouterr().err


@pytest.fixture
def made_gpu(monkeypatch, backend, tmp_path):
    """A machine whose GPU is the host, with the format "made" and times by its width."""
    backend.model = MODEL

    @contextmanager
    def device_place():
        yield SimpleNamespace(backend=backend)

    timer = MadeTimer({0: 4e-6, 1: 3e-6, 2: 2e-6, 4: 4e-6})
    monkeypatch.setattr(places, "device_reason", lambda: None)
    monkeypatch.setattr(places, "device_place", device_place)
    monkeypatch.setattr(environment, "describe", lambda: {"driver": "5.1", "commit": "abc", "date": "today"})
    monkeypatch.setattr("petsc_gpufmt.choice.mult_timer.MultTimer", lambda backend: timer)
    monkeypatch.setattr("petsc_gpufmt.choice.registry.FORMATS", {"made": Made, "untunable": Untunable})
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", str(tmp_path))
    known_options.cache_clear()
    yield backend
    known_options.cache_clear()


def test_what_is_found_is_printed_and_used_from_then_on(made_gpu, capsys):
    assert main(["tune", "--matrix", "7point:4", "--matrix", "7point:5"]) == 0

    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("7point:4"))
    assert line.split() == ["7point:4", "made", "rows=64", "4.00", "2.00", "4", "1", "width=2"]
    assert tuned(made_gpu, "made", "rows=64") == tuned(made_gpu, "made", "rows=125") == {"width": 2}
    facts = json.loads(tuned_options.cache_file(MODEL).read_text())["measured"]["made"]["rows=64"]
    assert facts == {
        "seconds": {"7point:4": 2e-6},
        "seconds_of_automatic": {"7point:4": 4e-6},
        "driver": "5.1",
        "commit": "abc",
    }


def test_the_results_go_where_they_are_wanted(made_gpu, tmp_path):
    output = tmp_path / "other.json"

    assert main(["tune", "--matrix", "7point:4", "--output", str(output)]) == 0

    assert json.loads(output.read_text())["formats"] == {"made": {"rows=64": {"width": 2}}}
    assert not tuned_options.cache_file(MODEL).exists()


def test_a_damaged_file_of_results_is_kept(made_gpu, tmp_path, capsys):
    output = tmp_path / "damaged.json"
    output.write_text("{")

    assert main(["tune", "--matrix", "7point:4", "--output", str(output)]) == 0

    assert f"{output} was damaged: it is now {output}.damaged" in capsys.readouterr().out
    assert (tmp_path / "damaged.json.damaged").read_text() == "{"


def test_formats_without_options_have_nothing_to_tune(made_gpu, capsys):
    assert main(["tune", "--matrix", "7point:4", "--format", "untunable"]) == 2
    assert "untunable: no options to choose" in capsys.readouterr().err


def test_a_time_limit_leaves_options_out(made_gpu, capsys):
    assert main(["tune", "--matrix", "7point:4", "--seconds-per-case", "1e-9"]) == 0
    assert "automatic (4 left out: no time)" in capsys.readouterr().out


def test_quick_takes_the_small_matrices(made_gpu, monkeypatch, capsys):
    monkeypatch.setattr("petsc_gpufmt.tune.matrices.QUICK_MATRICES", ("7point:3",))
    assert main(["tune", "--quick"]) == 0
    assert "7point:3" in capsys.readouterr().out
