"""The site of the documents (`make docs`): complete, without broken links, and self-contained."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from executable import ROOT

#: elements that a browser loads with the page → their attribute
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "srcset"}
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"url\(['\"]?(https?:|//)|@import ['\"]?(https?:|//)")


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.navigation: list[str] = []  #: links of the menu
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        address = values.get(LOADED.get(tag, ""))
        if address and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(address)
        if tag == "a" and "md-nav__link" in (values.get("class") or ""):
            self.navigation.append(values["href"] or "")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` does: a broken link, and a page that the navigation omits, are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_navigation_of_the_site_reaches_every_document(site: Path) -> None:
    documents = {path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]}
    pages = {Path("index.html") if path.name == "README.md" else path.with_suffix(".html") for path in documents}
    assert Path("ARCHITECTURE.html") in pages
    reached = {Path(link.partition("#")[0]) for link in Page(site / "index.html").navigation}
    assert pages - reached == set()


def test_pages_of_the_site_load_nothing_but_files_of_the_site(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 50
    for page in pages:
        loaded = Page(page).loaded
        assert loaded
        assert [one for one in loaded if not (page.parent / one.partition("?")[0]).is_file()] == [], page
    styles = list(site.rglob("*.css"))
    assert styles
    assert [str(path) for path in styles if ADDRESS.search(path.read_text())] == []


def test_lists_and_blocks_in_lists_are_indented_as_the_site_needs_it() -> None:
    """By four columns: with fewer, they end the list, and the next item is number 1 again."""
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        text = BLOCK.sub("", document.read_text())
        assert re.findall(r"^ {1,3}(?:[-*] |\d+\. |```).*", text, re.MULTILINE) == [], document


def test_the_site_can_be_searched(site: Path) -> None:
    index = (site / "search/search_index.json").read_text()
    assert "docs/howto/place-workloads.html" in index
