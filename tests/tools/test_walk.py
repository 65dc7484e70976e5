"""What tools/walk.py counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def test_a_flow_is_traced_from_its_first_file_to_its_last() -> None:
    command = [sys.executable, str(PROJECT / "tools" / "walk.py"), "--flow", "copy", "--list"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    files, functions, calls, switches = map(int, printed[1].split()[1:])
    listed = [line.strip() for line in printed[2:]]
    assert len(listed) == files > 10
    assert files < functions < calls
    assert switches < calls
    assert "syncer/downsync.py" in listed
    assert not [file for file in listed if file.startswith(("hub/", "store/"))]
