"""The recipes below packaging/: they can be read, and say of versions, needs and files what the package says."""

import re
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType

import petsc_config
import pytest

from petsc_gpufmt.version import __version__

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "packaging"
PYPROJECT = (ROOT / "pyproject.toml").read_text()
OLDEST = petsc_config.dotted(petsc_config.OLDEST)
NEWEST = "3.26"  # that was tested


def quoted(pattern: str) -> str:
    """What pyproject.toml has in the group of a pattern; Python 3.10 has no reader of TOML."""
    (found,) = re.findall(pattern, PYPROJECT, re.MULTILINE)
    return found


OLDEST_PYTHON = quoted(r'^requires-python = ">=([\d.]+)"')
DESCRIPTION = quoted(r'^description = "(.*)"')
SETUPTOOLS = quoted(r'^requires = \["setuptools>=(\d+)", "wheel"\]')
ENTRY_POINT = quoted(r'^petsc-gpufmt = "(.*)"')
EXTRAS = {
    name: set(re.findall(r'"([\w-]+)', packages))
    for name, packages in re.findall(
        r"^(\w+) = (\[.*\])$", PYPROJECT.partition("[project.optional-dependencies]")[2], re.M
    )
}


class Recipe:
    """What a recipe for Spack calls: every name of spack.package that it uses, writing down its arguments."""

    def __init__(self) -> None:
        self.needs: list[tuple[str, str]] = []
        self.versions: list[str] = []
        self.variants: list[str] = []
        self.licences: list[str] = []

    def names(self) -> dict:
        return {
            "depends_on": lambda spec, when="", type=(): self.needs.append((spec, when)),
            "version": self.versions.append,
            "variant": lambda name, default, description: self.variants.append(name),
            "license": self.licences.append,
            "run_after": lambda phase: lambda function: function,
            "on_package_attributes": lambda **attributes: lambda function: function,
        }


@pytest.fixture
def spack(monkeypatch):
    """The recipe for Spack, run with names in place of Spack's, and its class."""
    recipe = Recipe()
    stubs = {"spack.package": recipe.names(), "spack_repo.builtin.build_systems.python": {"PythonPackage": object}}
    for name, contents in stubs.items():
        for k in range(1, name.count(".") + 2):
            parent = ".".join(name.split(".")[:k])
            if parent not in stubs and not isinstance(sys.modules.get(parent), ModuleType):
                monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return recipe, runpy.run_path(str(RECIPES / "spack" / "package.py"))["PyPetscGpufmt"]


def test_the_recipe_for_spack_says_what_the_package_says(spack):
    recipe, package = spack
    assert package.__doc__ == DESCRIPTION
    assert recipe.versions == [__version__] and package.url.endswith(f"/petsc_gpufmt-{__version__}.tar.gz")
    assert recipe.licences == ["BSD-2-Clause"]
    always = {spec for spec, when in recipe.needs if not when}
    assert {f"python@{OLDEST_PYTHON}:", f"py-setuptools@{SETUPTOOLS}:", "py-wheel", "py-numpy", "c"} <= always
    assert f"py-petsc4py@{OLDEST}:{NEWEST}" in always
    pinned = [(spec.split()[0].split("@")[1], when) for spec, when in recipe.needs if spec.startswith("petsc@")]
    assert [minor for minor, _ in pinned] == [OLDEST, "3.25", NEWEST]
    assert all(when == f"^py-petsc4py@{minor}" for minor, when in pinned)
    for extra in ("bench", "plot"):
        assert {spec for spec, when in recipe.needs if when == f"+{extra}"} == {f"py-{name}" for name in EXTRAS[extra]}
    assert set(recipe.variants) == {"bench", "plot", "cuda"}


def test_the_recipe_for_conda_says_what_the_package_says():
    """Rendered with the values of its context; the functions of the builder become words."""
    yaml, jinja2 = pytest.importorskip("yaml"), pytest.importorskip("jinja2")
    text = (RECIPES / "conda" / "recipe.yaml").read_text()
    environment = jinja2.Environment(
        variable_start_string="${{", variable_end_string="}}", undefined=jinja2.StrictUndefined
    )
    words = {
        **yaml.safe_load(text)["context"],
        **{"PREFIX": "/prefix", "PYTHON": "python", "hash": "0123456"},
        "compiler": lambda language: f"{language}_compiler",
        "pin_compatible": lambda name, lower_bound, upper_bound: f"{name} {lower_bound} {upper_bound}",
    }
    recipe = yaml.safe_load(environment.from_string(text).render(words))
    assert recipe["package"] == {"name": "petsc_gpufmt", "version": __version__}
    assert recipe["about"]["summary"] == DESCRIPTION
    assert (RECIPES / "conda" / recipe["source"]["path"]).resolve() == ROOT
    assert (ROOT / recipe["about"]["license_file"]).is_file()
    host, run = recipe["requirements"]["host"], recipe["requirements"]["run"]
    assert {f"setuptools >={SETUPTOOLS}", "wheel", "numpy", "petsc * *real*", f"petsc4py >={OLDEST}"} <= set(host)
    assert {f"python >={OLDEST_PYTHON}", "numpy", "petsc * *real*", "petsc4py x.x x.x"} == set(run)
    assert recipe["build"]["python"]["entry_points"] == [f"petsc-gpufmt = {ENTRY_POINT}"]
    assert recipe["build"]["script"]["env"]["PETSC_DIR"] == "/prefix"


def test_the_containerfile_copies_what_the_build_needs():
    lines = (RECIPES / "Containerfile").read_text()
    steps = [shlex.split(step, comments=True) for step in re.sub(r"\\\n", " ", lines).splitlines()]
    steps = [step for step in steps if step]
    assert [step[0] for step in steps[:2]] == ["ARG", "FROM"]
    assert {step[0] for step in steps} <= {"ARG", "FROM", "RUN", "ENV", "COPY", "CMD"}
    copied = [word for step in steps if step[0] == "COPY" for word in step[1:-1]]
    assert all((ROOT / word).exists() for word in copied)
    assert {"pyproject.toml", "setup.py", "README.md", "tools", "kernels", "petsc_gpufmt"} <= set(copied)
    arguments = dict(step[1].split("=", 1) for step in steps if step[0] == "ARG")
    assert arguments["PETSC_MINOR"] == NEWEST
    named = {extra for extras in re.findall(r"\[([\w,]+)\]\"", lines) for extra in extras.split(",")}
    assert named and named <= set(EXTRAS)
    assert set(re.findall(r"\$\{(\w+)\}", lines)) <= {*arguments, "VIRTUAL_ENV", "PATH"}
