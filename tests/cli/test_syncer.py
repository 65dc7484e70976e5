"""`farflung syncer`: what it refuses, in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from farflung.cli.main import main


def test_outside_of_a_pod_the_cluster_has_to_be_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    named = ["--from-kubeconfig", "none", "--sync-target-name", "a", "--sync-target-uid", "b"]
    ended = CliRunner().invoke(main, ["syncer", *named, "--state-directory", str(tmp_path / "state")])
    assert ended.exit_code == 1
    said = ended.output + capfd.readouterr().err
    assert "farflung syncer: --to-kubeconfig has to name the way to the cluster" in said
    assert not (tmp_path / "state").exists()
