"""`make demo`, but for the set-up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from executable import ROOT

PATIENCE = 120.0  #: seconds


@pytest.mark.slow
def test_the_demo_shows_workspaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / "tools").mkdir(parents=True)
    (clone / "tools" / "demo.sh").symlink_to(ROOT / "tools" / "demo.sh")
    (clone / "config").symlink_to(ROOT / "config")
    (clone / ".venv").mkdir()
    (clone / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ended = subprocess.run(
        [clone / "tools" / "demo.sh"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(temporary)},
    )
    assert ended.returncode == 0, ended.stdout
    assert "location.scheduling.kcp.io/default   synctargets   0           2" in ended.stdout
    assert 'Current workspace is "root:my-org:web" (type root:universal).' in ended.stdout
    assert "edgeplacement.edge.kcp.io/all2all created" in ended.stdout
    assert ended.stdout.count("deployment.apps/frontend") == 3  # as it is made, there, and in a mailbox
    assert '["default","guestbook"]' in ended.stdout
    assert ended.stdout.endswith("farflung hub is stopping\n")
    assert list(temporary.iterdir()) == []
