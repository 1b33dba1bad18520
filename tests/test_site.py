"""The site of our pages: it builds without a warning, needs no network, and has every page and public name."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import style

ROOT = Path(__file__).parents[1]

LOADED = re.compile(
    r"""<(?:script|img|iframe|link rel="(?:stylesheet|preload|icon)")[^>]*?(?:src|href)="(?:https?:)?//"""
)
LOADED_BY_STYLE = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every page, built; a warning, such as of a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            "-c",
            "docs/site",
            "-d",
            folder / "work",
            ".",
            folder,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    assert [path for path in style.all_pages() if not (site / path).with_suffix(".html").exists()] == []
    assert 'url=README.html"' in (site / "index.html").read_text("utf-8")


def test_the_sidebar_has_the_sections_of_the_index(site: Path) -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    sections = re.findall(r"^## (.+)$", index, re.MULTILINE)
    assert sections == ["Start", "Guides", "Operate", "Reference", "Design"]
    page = (site / "docs" / "concepts.html").read_text("utf-8")
    assert re.findall(r'<p class="caption"[^>]*><span class="caption-text">([^<]+)</span>', page) == sections


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    assert [page for page in pages if LOADED.search(page.read_text("utf-8"))] == []
    assert [sheet for sheet in site.rglob("*.css") if LOADED_BY_STYLE.search(sheet.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/search.js">',
        '<script async="async" src="//cdn.example/search.js">',
        '<link rel="stylesheet" type="text/css" href="https://fonts.example/font.css" />',
        '<img alt="" src="http://example.com/picture.png">',
    ],
)
def test_a_page_that_loads_from_another_host_is_found(text: str) -> None:
    assert LOADED.search(text)


def test_the_search_finds_words_of_pages(site: Path) -> None:
    index = (site / "searchindex.js").read_text("utf-8")
    assert "unrespons" in index, "words are kept as their stems"
    assert '"docs/tables/rollouts"' in index


@pytest.mark.parametrize("package", ["producers", "trainers", "store_views"])
def test_every_public_name_is_in_the_reference(site: Path, package: str) -> None:
    pages = "".join(page.read_text("utf-8") for page in (site / "docs" / "api").glob("*.html"))
    names = import_module(f"lightstream.{package}").__all__
    lacking = [
        name
        for name in names
        if not any(f'id="lightstream.{one}.{name}"' in pages for one in ("producers", "trainers", "store_views"))
    ]
    assert lacking == [], "name them in docs/api"
