"""The site of the pages: it builds without a warning, and would not with a link that leads nowhere."""

import re
import shutil
import sys
from pathlib import Path

import launch
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def build(source: Path, out: Path) -> launch.Finished:
    """As `make docs` does, whose command is in the Makefile."""
    command = re.search(r"(?m)^SPHINX = python (.*)$", (ROOT / "Makefile").read_text())[1]
    return launch.run([sys.executable, *command.split(), "-b", "html", source, out])


@pytest.mark.slow
def test_the_site_builds_and_needs_nothing_of_the_web(tmp_path):
    built = build(DOCS, tmp_path)
    assert built.status == 0, str(built)
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")}
    pages -= {"performance_notes", "performance_h100_notes"}
    made = {str(page.relative_to(tmp_path).with_suffix("")): page for page in tmp_path.rglob("*.html")}
    assert pages <= set(made)
    for name in ("index", "usage", "formats/pjds"):
        assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="https?:[^"]*"', made[name].read_text())
    overview = made["overview"].read_text()  # of README.md, whose links are those of another folder
    assert 'href="formats/pjds.html"' in overview and 'href="contributing.html"' in overview


@pytest.mark.slow
def test_links_and_anchors_that_lead_nowhere_are_errors(tmp_path):
    docs = tmp_path / "docs"
    (tmp_path / "petsc_gpufmt").symlink_to(ROOT / "petsc_gpufmt")
    docs.mkdir()
    shutil.copy(DOCS / "conf.py", docs)
    (docs / "index.md").write_text("# A\n\n```{toctree}\nb\n```\n\n[b](b.md#there), [b](b.md#nowhere), [c](c.md)\n")
    (docs / "b.md").write_text("# B\n\n## There\n")
    (docs / "orphan.md").write_text("# Orphan\n")
    built = build(docs, tmp_path / "out")
    assert built.status != 0, str(built)
    warnings = re.findall(r"WARNING: (.*)", built.output)
    assert len(warnings) == 3, str(built)
    assert all(word in "".join(warnings) for word in ("nowhere", "c.md", "toctree"))


def test_what_the_site_needs_is_installed_with_the_tools():
    text = (ROOT / "pyproject.toml").read_text()
    extra = re.findall(r'"([^"]+)"', re.search(r"(?m)^docs = \[(.*)\]$", text)[1])
    tools = re.findall(r'"([^"]+)"', re.search(r"(?ms)^dev = \[\n(.*?)^\]", text)[1])
    assert "sphinx>=8" in extra and set(extra) <= set(tools)
