"""Private files: rewritten only if they differ, also on a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from full_disk import full_disk

from farflung.lib.files import file_version, write_private


def test_an_equal_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, b"content")
    version = file_version(path)
    with full_disk():
        write_private(path, b"content")
    assert file_version(path) == version
    path.chmod(0o644)
    write_private(path, b"content")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_replaced_stays_and_nothing_else_does(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(path, b"content")
    with full_disk(), pytest.raises(OSError, match="File too large"):
        write_private(path, b"other")
    assert path.read_bytes() == b"content"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
