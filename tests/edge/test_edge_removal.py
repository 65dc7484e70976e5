"""Calls of podman when an edge is deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from farflung.edge.cluster import EdgeManager, Interruption
from farflung.edge.registry import EdgeRegistry, EdgeSpec

ASKED = EdgeSpec(datetime(2026, 11, 16, 6, 30, 0, tzinfo=UTC))


@pytest.mark.parametrize("contained", [True, False])
def test_podman_is_called_only_if_containers_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contained: bool
) -> None:
    """A call takes seconds on a busy machine."""
    calls = tmp_path / "calls"
    (tmp_path / "podman").write_text(f"#!/bin/sh\necho >> {calls}\n")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    registry = EdgeRegistry(tmp_path / "home")
    edge = registry.create("florin", ASKED)
    if contained:
        edge.containers.touch()
    EdgeManager(registry, {}, Interruption(), print).delete(edge)
    assert not edge.directory.exists()
    assert calls.exists() == contained
