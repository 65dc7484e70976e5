"""A hook of MkDocs: the site has all documents of the repository at their own paths, so that links need no change."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
#: beside docs/: the pages, and the files to which pages link
SHOWN = (
    "*.md",
    "LICENSE",
    "docs/**/*.md",
    "docs/**/*.svg",
    "docs/**/*.css",
    "tests/*/README.md",
    "tests/*/*/README.md",
    "tests/*/*differences.txt",
)
FENCE_WORDS = re.compile(r"^(```shell)(?: \w+)+$", re.MULTILINE)  #: for tests/support/executable.py, not for readers


def on_files(files: Files, config: MkDocsConfig) -> Files:
    theme = [file for file in files if not file.src_dir or Path(file.src_dir) != ROOT / "docs"]
    shown = sorted({path.relative_to(ROOT).as_posix() for pattern in SHOWN for path in ROOT.glob(pattern)})
    return Files([*theme, *(File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in shown)])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return FENCE_WORDS.sub(r"\1", markdown)
