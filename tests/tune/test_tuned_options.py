"""Options measured best for a GPU model: where they are looked up, and what happens to damaged files."""

import json
import warnings

import numpy as np
import pytest

from petsc_gpufmt import tuned_options
from petsc_gpufmt.backends.backend import HostBackend
from petsc_gpufmt.choice.registry import FORMATS
from petsc_gpufmt.formats.common.base import Format
from petsc_gpufmt.tuned_options import cache_file, file_name, known_options, read_tuning, save_tuning, tuned

MODEL = "NVIDIA Test 100-SXM"
FILE = "nvidia_test_100_sxm.json"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Empty folders in place of the user's and of the shipped one."""
    monkeypatch.setenv("PETSC_GPUFMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tuned_options, "SHIPPED", tmp_path / "shipped")
    known_options.cache_clear()
    yield tmp_path
    known_options.cache_clear()


@pytest.fixture
def gpu():
    backend = HostBackend(np.float64, np.int32)
    backend.model = MODEL
    return backend


def ship(folders, formats):
    save_tuning(folders / "shipped" / FILE, MODEL, formats, {})


def test_nothing_is_known_of_an_unmeasured_gpu(gpu):
    assert tuned(gpu, "pjds", "any") == {}


def test_the_host_and_the_emulation_have_no_model():
    assert HostBackend(np.float64, np.int32).model is None
    assert tuned(HostBackend(np.float64, np.int32), "pjds", "any") == {}


@pytest.mark.gpu
def test_the_model_of_a_device_is_its_name():
    import cupy

    from petsc_gpufmt.backends.backend import CudaBackend

    model = CudaBackend(np.float64, np.int32, device=0).model
    assert model == cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def test_what_is_shipped_is_used(folders, gpu):
    ship(folders, {"pjds": {"short": {"slice_height": 64}}})

    assert tuned(gpu, "pjds", "short") == {"slice_height": 64}
    assert tuned(gpu, "pjds", "long") == {} and tuned(gpu, "bsr", "short") == {}


def test_what_was_measured_here_replaces_what_is_shipped_key_by_key(folders, gpu):
    ship(folders, {"pjds": {"short": {"slice_height": 64, "sigma_window": 1}, "long": {"slice_height": 8}}})
    save_tuning(cache_file(MODEL), MODEL, {"pjds": {"short": {"slice_height": 32}}}, {})

    assert tuned(gpu, "pjds", "short") == {"slice_height": 32}
    assert tuned(gpu, "pjds", "long") == {"slice_height": 8}


def test_choices_are_words_and_in_older_files_numbers(folders, gpu):
    ship(folders, {"bsr": {"new": {"kernel": "k3", "tile_height": 3}, "old": {"kernel": 3, "tile_height": 3}}})

    assert FORMATS["bsr"].measured(gpu, "new") == FORMATS["bsr"].measured(gpu, "old") == tuned(gpu, "bsr", "new")


def test_that_the_formats_own_choice_is_the_best_can_be_measured_too(folders, gpu):
    ship(folders, {"pjds": {"short": {"slice_height": 64}}})
    save_tuning(cache_file(MODEL), MODEL, {"pjds": {"short": {}}}, {})

    assert tuned(gpu, "pjds", "short") == {}


def test_the_answer_may_be_changed_without_harm(folders, gpu):
    ship(folders, {"pjds": {"short": {"slice_height": 64}}})
    tuned(gpu, "pjds", "short")["slice_height"] = 5

    assert tuned(gpu, "pjds", "short") == {"slice_height": 64}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H200", "nvidia_h200.json"),
        ("NVIDIA A100-SXM4-40GB", "nvidia_a100_sxm4_40gb.json"),
        ("NVIDIA H200 MIG 1g.18gb", "nvidia_h200_mig_1g_18gb.json"),
        ("../../etc/passwd", "etc_passwd.json"),
        ("Größe", "gr_e.json"),
        ("", "unknown.json"),
    ],
)
def test_file_names_are_safe(model, name):
    assert file_name(model) == name


def test_the_folder_of_the_user(monkeypatch, tmp_path):
    assert cache_file(MODEL) == tmp_path / "cache" / "tuning" / FILE
    monkeypatch.delenv("PETSC_GPUFMT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_file(MODEL) == tmp_path / "home" / ".cache" / "petsc_gpufmt" / "tuning" / FILE


DAMAGED = {
    "not JSON": "{",
    "not text": b"\xff\xfe\x00",
    "a list": "[]",
    "formats of another kind": '{"formats": [1]}',
    "keys of another kind": '{"formats": {"pjds": 3}}',
    "options of another kind": '{"formats": {"pjds": {"short": [1]}}}',
    "a value that is no number": '{"formats": {"pjds": {"short": {"slice_height": "64"}}}}',
    "a value that is no whole number": '{"formats": {"pjds": {"short": {"slice_height": 1.5}}}}',
    "a truth value": '{"formats": {"pjds": {"short": {"slice_height": true}}}}',
    "facts of another kind": '{"formats": {}, "measured": {"pjds": 3}}',
}


def damage(text):
    path = cache_file(MODEL)
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_one_warning_that_names_it(folders, gpu, text):
    ship(folders, {"pjds": {"short": {"slice_height": 64}}})
    path = damage(text)

    with pytest.warns(UserWarning) as warned:
        assert tuned(gpu, "pjds", "short") == {"slice_height": 64}
        assert tuned(gpu, "pjds", "long") == {}
    assert len(warned) == 1 and str(warned[0].message).startswith(str(path))


def test_facts_may_be_words(folders, gpu):
    damage('{"formats": {"pjds": {"short": {"slice_height": 8}}}, "measured": {"pjds": {"short": "by hand"}}}')
    assert tuned(gpu, "pjds", "short") == {"slice_height": 8}


def test_a_folder_in_place_of_the_file_is_a_warning(gpu):
    cache_file(MODEL).mkdir(parents=True)

    with pytest.warns(UserWarning, match=FILE):
        assert tuned(gpu, "pjds", "short") == {}


def test_a_damaged_file_is_kept_when_new_options_are_saved(gpu):
    path = damage(DAMAGED["a list"])

    kept = save_tuning(path, MODEL, {"pjds": {"short": {"slice_height": 8}}}, {})

    assert kept != path and kept.read_text() == DAMAGED["a list"]
    assert tuned(gpu, "pjds", "short") == {"slice_height": 8}


def test_saving_keeps_other_formats_and_keys(tmp_path):
    path = tmp_path / "new" / "folder" / "t.json"
    first = {"pjds": {"short": {"slice_height": 8}, "long": {"slice_height": 16}}}

    assert save_tuning(path, MODEL, first, {"pjds": {"short": {"seconds": 1e-5}}}) is None
    save_tuning(
        path, MODEL, {"pjds": {"long": {"slice_height": 32}}, "bsr": {"3": {}}}, {"bsr": {"3": {"driver": "5"}}}
    )

    assert json.loads(path.read_text()) == {
        "gpu": MODEL,
        "formats": {"pjds": {"short": {"slice_height": 8}, "long": {"slice_height": 32}}, "bsr": {"3": {}}},
        "measured": {"pjds": {"short": {"seconds": 1e-5}}, "bsr": {"3": {"driver": "5"}}},
    }
    assert [p.name for p in path.parent.iterdir()] == ["t.json"]


def test_saved_options_count_at_once(gpu):
    assert tuned(gpu, "pjds", "short") == {}
    save_tuning(cache_file(MODEL), MODEL, {"pjds": {"short": {"slice_height": 8}}}, {})
    assert tuned(gpu, "pjds", "short") == {"slice_height": 8}


def test_the_shipped_files_are_sound(monkeypatch):
    monkeypatch.undo()
    shipped = sorted(tuned_options.SHIPPED.glob("*.json"))

    assert "nvidia_h200.json" in [path.name for path in shipped]
    for path in shipped:
        document = read_tuning(path)
        assert file_name(document["gpu"]) == path.name
        for format_name, keys in document["formats"].items():
            cls: type[Format] = FORMATS[format_name]
            assert all(set(options) <= set(cls.default_options) for options in keys.values())
            assert all(cls.with_words(options) == options for options in keys.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(known_options(read_tuning(path)["gpu"]) is not None for path in shipped)


def test_where_no_folder_can_be_there_is_no_file(tmp_path):
    (tmp_path / "file").touch()
    assert read_tuning(tmp_path / "file" / "tuning" / "gpu.json") == {}
