"""The pages: what would not render as it was meant, and what they say that there is."""

import functools
import re
from pathlib import Path

import pytest

from petsc_gpufmt.planning.abi import Ask

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests" / "petsc" / "README.md"], key=str)
FOLDERS = ("petsc_gpufmt", "kernels", "tests", "docs", "benchmarks", "examples", "packaging", "tools")
SUFFIXES = "py|c|h|def|cu|cuh|cpp|sh|md|json"
NOT_OURS = r"first\.\w+|build/.*|nvrtc/|petsc-tests/|.*tutorials/.*|\w*\.json"  # a page's own, built, PETSc's, results


def cells(line: str) -> int:
    """Cells of a row of a table: a vertical bar parts them, in code too, unless a backslash precedes it."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_rows_of_tables_belong_to_a_table_with_a_head(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\| .*\n?)+", text, re.MULTILINE):
        head, rule, *rows = table.splitlines() + [""]
        assert re.fullmatch(r"\|( *:?-+:? *\|)+", rule), f"no head above: {head}"
        assert {cells(line) for line in (rule, *rows[:-1])} == {cells(head)}, f"rows differ in cells: {head}"


@functools.cache
def paths() -> list[str]:
    """All files and folders of the project, each with a slash before it, folders with one behind."""
    files = [*ROOT.glob("*.*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    folders = [ROOT / folder for folder in FOLDERS]
    return [f"/{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}" for path in (*folders, *files)]


def exists(path: str) -> bool:
    """Whether the project has such a file or folder; a page may leave out where the path begins."""
    return any(known.endswith(f"/{path}") for known in paths())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_pages_link_to_exists(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^()\s]*)\)", text) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_and_folders_that_pages_name_exist(page):
    text = page.read_text()
    fences = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    quoted = re.findall(r"`([\w./-]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    named = {word for word in quoted if re.fullmatch(rf"[\w./-]+\.({SUFFIXES})|[a-z][a-z_/]*/", word)}
    if page.name == "design.md":  # its drawings
        named |= {path for fence in fences for path in re.findall(rf"\w+/\w+\.(?:{SUFFIXES})\b", fence)}
    assert not [path for path in sorted(named) if not exists(path) and not re.fullmatch(NOT_OURS, path)]


def test_the_page_of_planning_has_a_row_for_each_request():
    text = (ROOT / "docs/design/planning.md").read_text()
    (table,) = re.findall(r"^\| request \|.*\n\| --- .*\n((?:\| .*\n)+)", text, re.MULTILINE)
    assert {line.split(" | ")[0].strip("| ") for line in table.splitlines()} == {
        ask.name.lower().replace("_", " ") for ask in Ask
    }


def test_files_that_kernels_name_exist():
    sources = [path.read_text() for path in (ROOT / "kernels").rglob("*.*")]
    text = re.sub(r"#include <.*>", "", "\n".join(sources))
    named = set(re.findall(rf"(?:\w+/)*\w+\.(?:{SUFFIXES})\b(?!\.?\w*\()", text))  # and no members that are called
    assert named
    assert not [path for path in sorted(named) if not exists(path)]


@pytest.mark.double
@pytest.mark.real
def test_the_python_example_of_the_first_page_runs():
    from petsc4py import PETSc

    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    names = {"PETSc": PETSc}
    exec(compile(program, "README.md", "exec"), names)
    assert names["y"].getArray().tolist() == [k + 1.0 for k in range(1000)]
