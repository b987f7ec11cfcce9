"""Rooms use those below them alone: the includes of the library and of the kernels, and the imports of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NATIVE, PACKAGE = ROOT / "petsc_gpufmt" / "native", ROOT / "petsc_gpufmt"
# the lowest first; rooms of one floor lie beside each other and do not use each other
NATIVE_ROOMS = ("runtime", "memory", "halo", "matrix", "product", "parallel", "ksp", "gamg")
PLAN_FLOORS = (("gpufmt_plan", "petsc_gpufmt", "formats", "citations"), ("gpufmt_plan_multigrid", "gpufmt_plan_krylov"))
NATIVE_FLOORS = (*PLAN_FLOORS, *((r,) for r in NATIVE_ROOMS), ("register",))
KERNEL_FLOORS = (("common",), ("formats", "spgemm", "patterns", "coarsening", "halo", "krylov"))
PACKAGE_FLOORS = (
    ("errors", "version", "user_cache"),
    ("option_value", "backends"),
    ("patterns", "assembly", "device_arrays", "distribute"),
    ("tuned_options",),
    ("formats", "spgemm", "coarsening", "halo", "krylov"),
    ("choice",),
    ("planning",),
    ("bench",),
    ("tune",),
    ("scaling",),
    ("analysis",),
    ("cli",),
    ("__init__", "__main__"),
)
COMMENT = re.compile(r"(?s) */\*.*?\*/")
INCLUDE = re.compile(r'(?m)^ *# *include "(.+)"')
# What begins at the beginning of a line is not inside of a function.
FUNCTION = re.compile(r"(?m)^(?!static\b)(\w[^\n;=(]*[ *])(\w+)\([^;{}]*\)\n\{")
VARIABLE = re.compile(r"(?m)^(?!static\b|typedef\b|extern\b)\w[^\n;=({]*[ *](\w+)(?:\[[^\n]*\])*(?: = [^\n]*)?;$")
FUNCTION_POINTER = re.compile(r"(?m)^(?!static\b|typedef\b|extern\b)\w[^\n;=(]*\(\*(\w+)\)\([^\n]*\)(?: = [^\n]*)?;$")
PROTOTYPE = re.compile(r"(?m)^(?!static\b|typedef\b)\w[^\n;=(]*[ *](\w+)\([^;{}]*\);$")
EXTERN = re.compile(r"(?m)\bextern [^\n;(]*?(?:\(\*)?(\w+)(?:\)\([^\n]*\))?;$")


def included(path: Path, folder: Path) -> Iterator[Path]:
    for name in INCLUDE.findall(path.read_text()):
        assert (folder / name).is_file(), f"{path} includes {name}, which is not named from {folder}"
        yield folder / name


def imported(path: Path, folder: Path) -> Iterator[Path]:
    """Files of the package in `folder` that a file imports, wherever in it and for whatever use."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by a relative name"
            names = [[*str(node.module).split("."), alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == folder.name:
                yield module_file(folder.joinpath(*name[1:]))


def module_file(path: Path) -> Path:
    """The file of a module, or of the one that has a name."""
    for candidate in (path.with_suffix(".py"), path / "__init__.py", path.parent.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return path.parent / "__init__.py"


def room(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").parts[0]


@pytest.mark.parametrize(
    ("folder", "pattern", "floors", "used"),
    [
        (NATIVE, "**/*.[cdh]*", NATIVE_FLOORS, included),
        (ROOT / "kernels", "*/*.cu*", KERNEL_FLOORS, included),
        (ROOT / "kernels" / "host", "*/*.[ch]", KERNEL_FLOORS, included),
        (PACKAGE, "**/*.py", PACKAGE_FLOORS, imported),
    ],
    ids=["native", "kernels", "host kernels", "package"],
)
def test_rooms_use_those_below(folder, pattern, floors, used):
    floor_of = {name: floor for floor, names in enumerate(floors) for name in names}
    files = sorted(folder.glob(pattern))
    assert {room(path, folder) for path in files} == set(floor_of)
    not_below = [
        f"{path.relative_to(folder)} uses {other.relative_to(folder)}"
        for path in files
        for other in used(path, folder)
        if room(other, folder) != room(path, folder) and floor_of[room(other, folder)] >= floor_of[room(path, folder)]
    ]
    assert not_below == []


def test_what_formats_share_uses_no_format():
    formats = PACKAGE / "formats"
    upwards = [
        f"{path.name} uses {other.relative_to(formats)}"
        for path in formats.glob("common/*.py")
        for other in imported(path, PACKAGE)
        if formats in other.parents and formats / "common" not in other.parents
    ]
    assert upwards == []


def test_each_room_of_the_library_has_one_header():
    headers = {str(path.relative_to(NATIVE)) for path in NATIVE.rglob("*.h")}
    beside = {"gpufmt_plan.h", "gpufmt_plan_multigrid.h", "gpufmt_plan_krylov.h", "petsc_gpufmt.h", "runtime/driver.h"}
    assert headers == {f"{name}/{name}.h" for name in NATIVE_ROOMS} | beside
    users = {
        room(path, NATIVE) for path in NATIVE.rglob("*.c") if NATIVE / "runtime/driver.h" in included(path, NATIVE)
    }
    assert users == {"runtime", "memory"}


def test_what_a_room_offers_is_declared_in_its_header_alone():
    """Functions and variables, except those that others than the library call by their names."""
    offered: dict[str, set[str]] = {}
    declared: dict[str, set[str]] = {}
    for path in NATIVE.rglob("*.[ch]"):
        text = COMMENT.sub("", path.read_text())
        if path.suffix == ".c":
            functions = {name for head, name in FUNCTION.findall(text) if not head.startswith("PETSC_EXTERN")}
            offered.setdefault(room(path, NATIVE), set()).update(
                functions, VARIABLE.findall(text), FUNCTION_POINTER.findall(text)
            )
        declared[str(path.relative_to(NATIVE))] = {*PROTOTYPE.findall(text), *EXTERN.findall(text)}
    assert all(offered.values())
    headers = {name: [f"{name}/{name}.h"] for name in NATIVE_ROOMS}
    headers["runtime"].append("runtime/driver.h")
    headers["register"] = ["petsc_gpufmt.h"]
    for name, of_room in headers.items():
        assert offered[name] == set().union(*(declared.pop(header) for header in of_room)), name
    everything = set().union(*offered.values())
    assert {path: names & everything for path, names in declared.items() if names & everything} == {}
