"""The site of our pages, by Sphinx: ``make site``. Its sources are the pages as they lie in the repository.

The sidebar follows the tables of ``docs/README.md``; pages of a folder follow that folder's ``README.md``. Sphinx warns
of a page that neither lists, and ``make site`` ends at each warning.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx

from lightstream.schemas import __version__

ROOT = Path(__file__).parents[2]

project = "Lightstream"
version = release = __version__
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/**", "examples/**"]
exclude_patterns = ["docs/site/templates", ".*", "store_views/dashboard/node_modules"]

myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # DuckDB's parameters (`$run`) are no SQL to Pygments

html_theme = "furo"
html_title = f"Lightstream {version}"
html_copy_source = False
html_show_sourcelink = False
html_additional_pages = {"index": "to_readme.html"}
templates_path = ["templates"]

autodoc_default_options = {"members": True, "member-order": "bysource"}

_LINK = re.compile(r"\]\(([^)#:\s]+\.(?:md|rst))(?:#[^)]*)?\)")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def links(text: str, folder: str) -> list[str]:
    """The pages that a text links to, each once and in its order, as Sphinx names them."""
    found = [posixpath.normpath(f"{folder}/{address}") for address in _LINK.findall(text)]
    return list(dict.fromkeys(name.rpartition(".")[0] for name in found))


def toctree(pages: list[str], caption: str = "") -> str:
    heading = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{heading}\n" + "".join(f"/{page}\n" for page in pages) + "```\n"


def navigation() -> str:
    """A part of the sidebar for each section of the index; a page is in the first section that links to it."""
    titles_and_texts = _SECTION.split((ROOT / "docs" / "README.md").read_text("utf-8"))[1:]
    listed = {root_doc}
    parts: list[str] = []
    for title, text in zip(titles_and_texts[::2], titles_and_texts[1::2], strict=True):
        pages = [page for page in links(text, "docs") if page not in listed]
        listed.update(pages)
        parts.append(toctree((["docs/README"] if not parts else []) + pages, title))
    return "".join(parts)


def add_toctrees(app: Sphinx, docname: str, source: list[str]) -> None:
    folder, _, name = docname.rpartition("/")
    if docname == root_doc:
        source[0] += navigation()
    elif name == "README" and folder != "docs":
        source[0] += toctree([page for page in links(source[0], folder) if page.startswith(f"{folder}/")])


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_toctrees)
