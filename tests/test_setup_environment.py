"""What the set-up builds PETSc with, and which wheels it takes for it; nothing is built or installed here."""

from pathlib import Path

import pytest
import setup_environment


@pytest.fixture
def pip_calls(monkeypatch, tmp_path):
    """First words of the calls of pip, which do nothing but leave the wheel of CPython 3.13."""
    calls = []

    def pip(*words, **keywords):
        calls.append(words[0])
        if words[0] == "wheel":
            folder = words[words.index("-w") + 1]
            Path(folder, f"petsc4py-{setup_environment.PETSC_VERSION}-cp313-cp313-any.whl").touch()

    monkeypatch.setattr(setup_environment, "pip", pip)
    return calls


def test_options_of_the_user_count_last(monkeypatch):
    monkeypatch.setenv("PETSC_CONFIGURE_OPTIONS", "--with-debugging=1  COPTFLAGS=-O0")
    words = setup_environment.configure_options().split()
    assert words[-2:] == ["--with-debugging=1", "COPTFLAGS=-O0"] and words.index("COPTFLAGS=-O3") < len(words) - 2


def test_a_wheel_is_built_once_for_each_interpreter(tmp_path, pip_calls):
    def install(tag):
        setup_environment.wheel_from_pypi("petsc4py", tag, tmp_path, {}, "no time")

    (tmp_path / f"petsc4py-{setup_environment.PETSC_VERSION}-cp311-cp311-any.whl").touch()
    install("cp311")
    assert pip_calls == ["install"]
    install("cp313")
    install("cp313")
    assert pip_calls == ["install", "wheel", "install", "install"]


def test_wheels_are_kept_apart_by_options_and_mpi(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stores = {setup_environment.wheel_store(*facts) for facts in (("-O3", "a"), ("-O0", "a"), ("-O3", "b"))}
    assert len(stores) == 3 and all(store.is_relative_to(tmp_path) for store in stores)
    assert setup_environment.wheel_store("-O3", "a") in stores
    monkeypatch.setattr(setup_environment, "PETSC_VERSION", "3.0.0")
    assert setup_environment.wheel_store("-O3", "a") not in stores
