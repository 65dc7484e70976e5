"""Atomic changes of volumes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from farflung.edge.node import volumes
from farflung.edge.node.volume_files import VolumeFile

NOW = datetime(2026, 11, 16, 6, 30, tzinfo=UTC)


def files(**contents: str) -> dict[str, VolumeFile]:
    return {name.replace("_", "/"): VolumeFile(content.encode(), 0o644) for name, content in contents.items()}


def test_a_failed_write_leaves_the_volume_unchanged(tmp_path: Path) -> None:
    volumes.write_files(tmp_path, files(a="first"), NOW)
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(OSError):
        volumes.write_files(tmp_path, files(a="second", a_b="a file and a directory"), NOW)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert (tmp_path / "a").read_text() == "first"


def test_a_directory_that_a_container_created_does_not_prevent_changes_of_a_volume(tmp_path: Path) -> None:
    volumes.write_files(tmp_path, files(a="first"), NOW)
    (tmp_path / "made" / "here").mkdir(parents=True)
    volumes.write_files(tmp_path, files(a="second"), NOW)
    assert (tmp_path / "a").read_text() == "second"
    assert len(list(tmp_path.iterdir())) == 3, "the link, what it leads to, and the files"
