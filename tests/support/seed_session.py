"""Sessions at a terminal, typed again: `$ command` lines, each followed by what it prints.

A command with `<<EOF` goes on to the line `EOF`.  What is different at every run does not count: ids of workspaces and
objects, times and ages, addresses, and the widths of columns that follow from them; nor does the order of destinations
and of the lists of a SyncerConfig, which Go's maps decided.  `…` is anything within a line.

A command of ours that goes on until ^C has a terminal of its own.  What follows it is the log that it is waited for:
`...` are any lines, and where in the code a line comes from does not count; nor does the order of the parts between
`...`, or what follows the last one.  If the last line is `^C`, it is ended then, else when the session ends; always in
good order, and without an error in its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from executable import Directory
from hub_process import PATIENCE, HubProcess, eventually

CONTINUED = re.compile(r"<<(\w+)")
VOLATILE = [
    (re.compile(r"https://[\w.]+:\d+"), "https://HUB"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"(?<=resourceVersion: )\"\d+\""), "VERSION"),
    (re.compile(r"\b(?=[a-z]*\d)[0-9a-z]{13,16}\b"), "CLUSTER"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ| \d\d:\d\d:\d\d [+-]\d{4} \w+)"), "TIME"),
    (re.compile(r"\bv1alpha1-[0-9a-f]{8}(?=\.)"), "SCHEMA"),
    (re.compile(r"(?<=\s)(\d+[smhd])+$", re.MULTILINE), "AGE"),
    (re.compile(r"(?<=\" deleted) from \S+ namespace$", re.MULTILINE), ""),  # since 1.34
    (re.compile(r" annotate$", re.MULTILINE), " annotated"),  # as kubectl before 1.28 has it
    (re.compile(r"(?<=\S) {2,}(?=\S)"), "  "),
    (re.compile(r" +$", re.MULTILINE), ""),
]
SYNCER_CONFIG = "apiVersion: edge.kcp.io/v1alpha1\nkind: SyncerConfig\n"
DESTINATION = r"(?: *- cluster: .*\n(?: +\w+: .*\n){3})"
DESTINATIONS = re.compile(rf"^{DESTINATION}{{2,}}", re.MULTILINE)
ORIGIN = re.compile(r"^([IWE])\d{4} [\d:.]+ +\d+ [\w.-]+:\d+\]", re.MULTILINE)
NUMBERS = re.compile(
    r"(?<=worker=)\d+|(?<=resourceVersion=)\"\d+\"|(?<=resourceVersion(?:Old|New)=)\"\d+\"|(?<=ResourceVersion:)\d+"
)
FOREGROUND = re.compile(
    r"farflung (scheduler|mailbox-controller|placement-translator|controllers|syncer|global-scheduler)(?= |$)"
    r"|hack/gs-scheduler-up\.sh"
)
LOOKING = re.compile(r"(KUBECONFIG=\S+ )?kubectl (get|describe) |curl |farflung (trace|status) ")
ANYTHING = "…"  #: within a line
LAST_WORDS = ('I] "shutting down controller" controller=', 'I] "stopped syncer"')


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
    if SYNCER_CONFIG in printed:
        printed = _in_order(printed)
    return DESTINATIONS.sub(_sorted, f"{printed}\n").strip()


def _in_order(printed: str) -> str:
    """A SyncerConfig: its lists have no order that matters."""
    return yaml.safe_dump(_ordered(yaml.safe_load(printed)), allow_unicode=True)


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted(map(_ordered, value), key=json.dumps)
    return value


def _sorted(found: re.Match[str]) -> str:
    return "".join(sorted(re.findall(DESTINATION, found[0])))


def comparable_log(printed: str) -> str:
    return comparable(NUMBERS.sub("NUMBER", ORIGIN.sub(r"\1]", printed)))


def shows(printed: str, expected: str) -> bool:
    """Whether a log begins as expected, and has the other parts."""
    log = f"{comparable_log(printed)}\n"
    first, *others = re.split(r"^\.\.\.$\n?", f"{comparable_log(expected)}\n", flags=re.MULTILINE)
    return re.match(_pattern(first), log) is not None and all(
        len(re.findall(f"^(?={_pattern(part)})", log, re.MULTILINE)) >= times for part, times in Counter(others).items()
    )


def matches(printed: str, expected: str) -> bool:
    return re.fullmatch(_pattern(comparable(expected)), comparable(printed)) is not None


def _pattern(expected: str) -> str:
    return re.escape(expected).replace(ANYTHING, ".*")


class Terminal:
    """One of our commands that go on until ^C."""

    def __init__(self, command: str, directory: Directory, log: Path) -> None:
        self._command = command
        self._log = log
        self.process = directory.start(command, log)

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, expected: str) -> None:
        with contextlib.suppress(AssertionError):  # what it logged tells more
            eventually(lambda: shows(self.log(), expected) or self.process.poll() is not None)
        assert shows(self.log(), expected), f"$ {self._command}\n{self.log()}instead of\n{expected}"

    def interrupt(self) -> None:
        """^C.  It had nothing to complain about, and ends in good order."""
        self.end()
        assert [line for line in self._lines() if not line.startswith("I] ")] == []

    def end(self) -> None:
        """^C.  It ends in good order, whatever it had to complain about."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=PATIENCE) == 0, self.log()
        if '"starting ' in self.log():
            last = self._lines()[-1]
            assert last.startswith(LAST_WORDS), last

    def _lines(self) -> list[str]:
        return comparable_log(self.log()).splitlines()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=PATIENCE)


class Session:
    """A terminal in a directory like a clone of this repository, with one kubectl and our plugins on the PATH."""

    def __init__(self, directory: Directory, kubectl: Path, hub: HubProcess) -> None:
        self._directory = directory
        self.path, self.home = directory.path, directory.home
        commands = directory.path / "bin"
        commands.mkdir()
        (commands / "kubectl").symlink_to(kubectl)
        directory.environment |= {
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(hub.kubeconfig),
            "HUB": f"https://{hub.address.netloc}",
        }
        self.terminals: list[Terminal] = []

    def export(self, **values: str) -> None:
        """What commands have in their environment from now on."""
        self._directory.environment |= values

    def type(self, transcript: str, adjust: Callable[[str], str] = str) -> None:
        """Every command succeeds and prints what the transcript shows, and no complaint.  `adjust` is for both."""
        for step in steps(self._directory.here(transcript)):
            if FOREGROUND.match(step.command):
                self._run(step)
            else:
                self._type(step, adjust)

    def _run(self, step: Step) -> None:
        log = self._directory.path / f"terminal-{len(self.terminals)}.log"
        terminal = Terminal(step.command, self._directory, log)
        self.terminals.append(terminal)
        terminal.wait_for(step.output.removesuffix("^C"))
        if step.output.endswith("^C"):
            terminal.interrupt()

    def interrupt(self) -> None:
        """^C in all terminals that something runs in."""
        for terminal in self.terminals:
            if terminal.process.poll() is None:
                terminal.interrupt()

    def kill(self) -> None:
        for terminal in self.terminals:
            terminal.kill()

    def run(self, command: str) -> str:
        """What it prints.  It succeeds."""
        code, printed = self._directory.run(command)
        assert code == 0, f"$ {command}\n{printed}[exit {code}]"
        return printed

    def _type(self, step: Step, adjust: Callable[[str], str]) -> None:
        """What others do in their own time is looked at until it is right, as people do it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            began = time.monotonic()
            code, printed = self._directory.run(step.command)
            if code == 0 and matches(adjust(printed), adjust(step.output)):
                return
            looking = LOOKING.match(step.command) and time.monotonic() < deadline
            assert looking, f"$ {step.command}\n{printed}[exit {code}]\ninstead of\n{step.output}"
            time.sleep(time.monotonic() - began)  # whoever is waited for needs the processor, too
