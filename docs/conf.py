"""Sphinx makes a site of the pages in this folder: `make docs`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from petsc_gpufmt.version import __version__  # noqa: E402

project = "petsc_gpufmt"
author = "The petsc_gpufmt developers"
copyright = author
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["performance_notes.md", "performance_h100_notes.md"]  # their text is part of other pages
nitpicky = True

myst_heading_anchors = 4

html_theme = "furo"
html_title = f"petsc_gpufmt {release}"
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
highlight_language = "text"

linkcheck_timeout = 20
linkcheck_workers = 2
linkcheck_anchors = False

# what lies outside of docs/ and is a page of the site
PAGES = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md", "CHANGES.md": "changes.md"}
INCLUDE = re.compile(r"```\{include\} (\S+)\n```\n")
LINK = re.compile(r"(?s)(```.*?```)|(!?\[[^][]*\])\(([^()\s]+)\)")


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Pages are written to be read in the source tree: what they include is put in, with links for where it is now."""
    path = Path(app.env.doc2path(page))
    included = INCLUDE.fullmatch(source[0])
    if included:
        origin = (path.parent / included[1]).resolve()
        app.env.note_dependency(str(origin), docname=page)
        source[0] = with_links(origin.read_text(), origin, path)
    else:
        source[0] = with_links(source[0], path, path)


def with_links(text: str, origin: Path, page: Path) -> str:
    """The text of the file `origin` in `page`: links lead to pages, what has none is named as it is in the tree."""

    def moved(found: re.Match[str]) -> str:
        code, words, link = found.groups()
        target, _, anchor = (link or "").partition("#")
        path = (origin.parent / target).resolve()
        if code or "://" in link or not target or not path.exists():
            return found[0]
        path = DOCS / PAGES[path.name] if path.parent == ROOT and path.name in PAGES else path
        if not path.is_file() or DOCS not in path.parents:
            return f"`{path.relative_to(ROOT)}`"
        return f"{words}({os.path.relpath(path, page.parent)}{'#' * bool(anchor)}{anchor})"

    return LINK.sub(moved, text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
