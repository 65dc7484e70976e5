"""`farflung demo global`: machines find their Clusters, one when there is room again, and nothing is left behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 120.0  #: seconds
FARFLUNG = Path(sys.executable).with_name("farflung")


def demo(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "FARFLUNG_HOME": str(home / "farflung")}
    return subprocess.run(
        [FARFLUNG, "demo", *words], capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False
    )


@pytest.mark.slow
def test_the_demo_shows_where_machines_go_replaces_an_earlier_one_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "farflung" / "demo").mkdir(parents=True)  # as a demo that was killed leaves it
    ended = demo(tmp_path, "global", "--replace")
    assert ended.returncode == 0, ended.stderr
    assert "Stopped and removed the earlier demo." in ended.stderr
    output = ended.stdout
    assert "\n0/12 clusters fit: 11 no flavor p2.gpu.8, 1 out of p2.gpu.8" in output
    assert re.search(r"default +shop +Bound +True +\[\"az4\",\"az5\",\"az6\",\"az7\",\"az8\",\"az9\"\] +6 ", output)
    assert re.search(r"default +demovm .* az1 ", output)
    assert re.search(r"default +render2 .* az12 ", output)
    assert re.search(r"^az1 +region1 +az1 +8 +\S+ +yes$", output, re.MULTILINE)
    assert "$ kubectl get allocations -A " in output
    assert "placed on az1 with c6.large.2" in output
    assert "Stopped and removed the demo." in ended.stderr
    assert not (tmp_path / "farflung" / "demo").exists()
