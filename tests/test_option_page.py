"""docs/options.md has every option that there is, as it is, and other pages name no others."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import option_page
import pytest
from petsc_config import find_petsc

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "petsc_gpufmt" / "native"
OURS = r"gpufmt|rmerge|halo|mixedcg|gpucg|gpubcgs|gpugmres|gpufgmres|gpuchebyshev"
# performance pages tell of earlier releases
PAGES = sorted({*ROOT.glob("docs/**/*.md"), ROOT / "README.md"} - set(ROOT.glob("docs/performance*.md")), key=str)
NOT_HERE = {"-log_view_gpu_time"}  # in PETSc's library with a device alone
NOT_HERE |= {"-pc_gamg_prolongator_filter"} if find_petsc().version < (3, 26) else set()


@functools.cache
def listed() -> set[str]:
    return set(re.findall(r"^\| `(-\w+)` \|", (ROOT / "docs" / "options.md").read_text(), re.MULTILINE))


def test_the_page_is_up_to_date():
    assert "\n".join(option_page.page()).rstrip() + "\n" == (ROOT / "docs" / "options.md").read_text(), (
        "python tools/option_page.py > docs/options.md"
    )


def test_each_option_that_the_library_reads_is_on_the_page():
    sources = "\n".join(path.read_text() for path in NATIVE.rglob("*.[ch]"))
    read = set(re.findall(rf'"(-\w*(?:{OURS})\w*)"', sources))
    assert {"-mat_halo_mode", "-pc_gamg_gpufmt_order"} <= read <= listed()
    formats = (NATIVE / "formats.def").read_text()
    declared = re.findall(r"^GPUFMT_(?:OPTION|CHOICE)\((\w+), (\w+),", formats, re.MULTILINE)
    assert declared and {f"-mat_{name}_{option}" for name, option in declared} <= listed()


def test_each_variable_that_is_read_is_on_the_page():
    sources = [*(ROOT / "petsc_gpufmt").rglob("*.[chp]*"), ROOT / "setup.py"]
    texts = [path.read_text() for path in sources if path.suffix in (".py", ".c", ".h")]
    assert set(re.findall(r"PETSC_GPUFMT_[A-Z]+", "\n".join(texts))) == set(option_page.VARIABLES)


@functools.cache
def known_to_petsc() -> frozenset[str]:
    """What looks like an option among the strings of PETSc's library, whose first name may stand for a script."""
    libraries = find_petsc().library_directory.glob("libpetsc.so*")
    strings = [re.findall(rb"-\w{3,}", path.read_bytes()) for path in libraries]
    return frozenset(name.decode() for names in strings for name in names)


def exists(option: str) -> bool:
    """Of this package or of PETSc, with any prefix: of solvers inside of others, or of matrices."""
    words = option[1:].split("_")
    return any(f"-{'_'.join(words[k:])}" in listed() | known_to_petsc() for k in range(len(words)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_that_pages_name_exist(page):
    code = re.findall(r"^```(?!c$|fortran$|python$).*?^```|`[^`\n]+`", page.read_text(), re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"(?<![\w-])-[a-z]+(?:_\w+)+(?<!_)(?![\w<*]|\.\.\.)", "\n".join(code)))
    assert not [name for name in sorted(named - NOT_HERE) if not exists(name)]
