"""The recordings in `recordings/`: gzip files, written so that the same text always gives the same bytes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "recordings"
SUFFIX: Final = ".gz"


def recordings(folder: str) -> list[Path]:
    """The files of one folder, sorted by name."""
    return sorted((FOLDER / folder).glob(f"*{SUFFIX}"))


def name_of(path: Path) -> str:
    """`basics.jsonl.gz` → `basics.jsonl`, the name that the lists of differences use."""
    return path.name.removesuffix(SUFFIX)


def read(path: Path) -> str:
    """The text of a recording; a file without the suffix `.gz` is read as it is."""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == SUFFIX else path.read_text()


def write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == SUFFIX else text.encode())
