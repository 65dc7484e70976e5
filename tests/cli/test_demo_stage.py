"""Where a demo is played: one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NUMBER = 4
SCRIPT = """
import asyncio, sys
import click
from farflung.cli import demo_stage
from farflung.cli.settings import DemoOptions

class Story(demo_stage.Demo):
    async def play(self):
        (self.where.directory / "played").touch()
        print("plays", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        assert (self.where.directory / "played").exists()

print("ready", flush=True)
sys.stdin.readline()
try:
    demo_stage.run(Story, DemoOptions())
except click.ClickException as error:
    print(error.message)
    sys.exit(3)
"""


def test_of_demos_that_begin_at_the_same_moment_one_is_played_and_the_others_leave_it_alone(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "FARFLUNG_HOME": str(tmp_path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(NUMBER)
    ]
    said = []
    for one in started:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    for one in started:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    for one in started:
        assert one.stdout is not None
        said.append(one.stdout.readline())
    for one in started:
        one.communicate(timeout=60)
    assert sorted(one.returncode for one in started) == [0, *[3] * (NUMBER - 1)], said
    assert sum(line == "plays\n" for line in said) == 1
    assert all(line.startswith("an earlier demo is in ") for line in said if line != "plays\n")
    assert not (tmp_path / "demo").exists()
