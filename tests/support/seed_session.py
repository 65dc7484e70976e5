"""Sessions at a terminal, typed again: `$ command` lines, each followed by what it prints.

A command with `<<EOF` goes on to the line `EOF`.  What is different at every run does not count: ids of workspaces and
objects, times and ages, addresses, and the widths of columns that follow from them.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from executable import Directory
from hub_process import PATIENCE, HubProcess

CONTINUED = re.compile(r"<<(\w+)")
VOLATILE = [
    (re.compile(r"https://[\w.]+:\d+"), "https://HUB"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b(?=[a-z]*\d)[0-9a-z]{13,16}\b"), "CLUSTER"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"(?<=resourceVersion: )\"\d+\""), "VERSION"),
    (re.compile(r"\bv1alpha1-[0-9a-f]{8}(?=\.)"), "SCHEMA"),
    (re.compile(r"(?<=\s)(\d+[smhd])+$", re.MULTILINE), "AGE"),
    (re.compile(r" {2,}"), "  "),
]


class Step(NamedTuple):
    command: str
    output: str


def steps(transcript: str) -> Iterator[Step]:
    command: list[str] = []
    output: list[str] = []
    end: str | None = None  #: the line that a command goes on to
    for line in transcript.strip().splitlines():
        if end is not None:
            command.append(line)
            if line == end:
                end = None
        elif line.startswith("$ "):
            if command:
                yield Step("\n".join(command), "\n".join(output))
            command, output = [line[2:]], []
            continued = CONTINUED.search(line)
            end = continued[1] if continued else None
        else:
            output.append(line)
    yield Step("\n".join(command), "\n".join(output))


def comparable(printed: str) -> str:
    for volatile, placeholder in VOLATILE:
        printed = volatile.sub(placeholder, printed)
    return printed.strip()


class Session:
    """A terminal in a directory like a clone of this repository, with one kubectl and our plugins on the PATH."""

    def __init__(self, directory: Directory, kubectl: Path, hub: HubProcess) -> None:
        self._directory = directory
        commands = directory.path / "bin"
        commands.mkdir()
        (commands / "kubectl").symlink_to(kubectl)
        directory.environment |= {
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(hub.kubeconfig),
        }

    def type(self, transcript: str) -> None:
        """Every command succeeds and prints what the transcript shows, and no complaint."""
        for step in steps(transcript):
            self._type(step)

    def _type(self, step: Step) -> None:
        """What the hub counts in its own time is looked at until it is right, as people do it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            code, printed = self._directory.run(step.command)
            if code == 0 and comparable(printed) == comparable(step.output):
                return
            looking = step.command.startswith("kubectl get ") and time.monotonic() < deadline
            assert looking, f"$ {step.command}\n{printed}[exit {code}]\ninstead of\n{step.output}"
