"""Documents that run: their fenced blocks, and what they print.

    ```shell             is run with bash; every command must succeed
    ```shell fails       the last command must not
    ```shell terminal    is a hub in a terminal of its own, until <!-- ^C -->, the next such block or the end
    ```shell terminal own    the same, of a document that stops its hub or replaces its files
    ```text              right after one of these: what it prints

Other fences are not looked at.  In an expected text `…` stands for anything within a line; ages, ports of this machine
and the width of columns do not count.  Each document has a directory of its own that looks like the repository after
`make install`, a home directory, and ports of its own for those that it chooses; what a block exports, the next one
has.  What a block leaves in the background ends with the document.

Documents that start a hub without options share one, one after the other, and delete what they create: that hub goes on
at `^C`.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubectl_runner import kubectls
from own_ports import with_ports
from shared_hubs import SharedHub, SharedHubs

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  #: seconds for one block, more than its commands wait themselves
STOP = "<!-- ^C -->"
SHARED = re.compile(r"\.venv/bin/farflung (start|hub)\s*")  #: a command whose hub documents share
READY = "export KUBECONFIG="  #: in the last line a hub prints before it serves
LOG = re.compile(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} ")  #: the beginning of a line that documents do not show
FENCE = re.compile(r"^```(?P<words>[^\n`]*)\n(?P<content>.*?)^```$|^" + re.escape(STOP) + "$", re.MULTILINE | re.DOTALL)


#: of a hub: any free one, and the one it had if it was started before
PORTS = r"""
case "$1" in hub|start)
  known=$(cat */admin.kubeconfig .farflung/admin.kubeconfig 2> /dev/null)
  port=$(echo "$known" | sed -n 's|.*server: https://127.0.0.1:\([0-9]*\).*|\1|p' | head -n 1)
  set -- "$@" --port "${port:-0}" ;;
esac
"""


@dataclass
class Step:
    line: int  #: where it begins in its document
    script: str
    words: list[str] = field(default_factory=list)  #: of its fence, after `shell`; `^C` for the end of a hub
    output: str | None = None


def steps_of(text: str) -> list[Step]:
    steps: list[Step] = []
    end = 0
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        kind, *words = ("^C" if found["words"] is None else found["words"]).split() or [""]
        if kind == "^C":
            steps.append(Step(line, "", ["^C"]))
        elif kind == "shell":
            steps.append(Step(line, found["content"], words))
        elif kind == "text" and steps and not text[end : found.start()].strip():
            steps[-1].output = found["content"]
        end = found.end()
    return steps


class Differs(Exception):
    """A block that did not do what its document says."""


class Directory:
    """A document's own: a copy of the repository with the samples, and a `.venv/bin` with kubectl's plugins and a
    `farflung` that takes any free port; and a home directory.  `ports`: which stand for those that it shows."""

    def __init__(self, parent: Path, ports: Mapping[str, str] | None = None) -> None:
        self.path = path = parent / "farflung"
        self.home = parent / "home"
        self._ports = ports or {}
        path.mkdir()
        tools = self.home / "bin"
        tools.mkdir(parents=True)
        # the one on the PATH may be a dispatcher, which asks the server for its version before it runs this one
        (tools / "kubectl").symlink_to(kubectls()[-1])
        (path / "config").symlink_to(ROOT / "config")
        command = path / ".venv" / "bin" / "farflung"
        command.parent.mkdir(parents=True)
        installed = Path(sys.executable).parent
        real = shlex.quote(str(installed / "farflung"))
        command.write_text(f'#!/bin/sh\n{PORTS}exec {real} "$@"\n')
        command.chmod(0o755)
        for plugin in installed.glob("kubectl-*"):
            command.with_name(plugin.name).symlink_to(plugin)
        self._state = path / ".exported"
        self._state.write_text("")
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "GOGC": "off",  # kubectl ends before its garbage matters
        }
        self._left: list[int] = []  #: process groups that are in the background

    def here(self, text: str) -> str:
        """What a document says, with the ports of this directory."""
        return with_ports(text, self._ports)

    def run(self, script: str) -> tuple[int, str]:
        """(exit code, output).  The environment it leaves is that of the next one."""
        state = shlex.quote(str(self._state))
        whole = f"source {state}\ntrap 'export -p > {state}' EXIT\nset -euo pipefail\n{script}"
        with subprocess.Popen(
            ["bash", "-c", whole],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.path,
            env=self.environment,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=PATIENCE)
            except BaseException:
                _send(process.pid, signal.SIGKILL)
                raise
        if _send(process.pid, 0):
            self._left.append(process.pid)
        return process.returncode, output

    def end(self) -> None:
        """What is still in the background."""
        for group in self._left:
            _send(group, signal.SIGKILL)

    def start(self, command: str, log: Path) -> subprocess.Popen[bytes]:
        """One command in a terminal of its own, which has what was exported so far."""
        with log.open("wb") as output:
            return subprocess.Popen(
                ["bash", "-c", f"source {shlex.quote(str(self._state))}\nexec {command}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.path,
                env=self.environment,
            )


def _send(group: int, number: int) -> bool:
    """A signal to all processes of a group; whether there are any."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


class Terminal:
    """A hub in the foreground of a terminal of its own."""

    def __init__(self, script: str, directory: Directory) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {script}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory.path,
            env=directory.environment,
        )
        self.output = "".join(self._until_ready())
        self._rest = ""
        self._reader = threading.Thread(target=self._read, daemon=True)  # a hub that nobody listens to gets stuck
        self._reader.start()

    def _until_ready(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not LOG.match(line):
                yield line
            if READY in line:
                return

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self._rest = output.read()

    def interrupt(self) -> None:
        """^C.  Whoever is asked to stop stops cleanly."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(timeout=PATIENCE)
        self._reader.join(timeout=PATIENCE)
        if code:
            raise Differs(f"the hub stopped with {code}: {self.output}{self._rest}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=PATIENCE)


class Sharing:
    """One document's use of a shared hub, from construction until `leave`."""

    def __init__(self, hub: SharedHub, directory: Directory) -> None:
        self.hub = hub
        self.output = hub.output
        self._link = directory.path / ".farflung"
        self._link.symlink_to(hub.directory)

    def interrupt(self) -> None:
        """^C: the document must have deleted what it created, and the hub goes on."""
        self._link.unlink()
        self.hub.check()


def run(document: Path, directory: Directory, hubs: SharedHubs) -> None:
    """Run a document from its first block to its last.  Raises Differs."""
    terminal: Terminal | Sharing | None = None
    try:
        for step in steps_of(directory.here(document.read_text())):
            if terminal is not None and step.words[:1] in (["^C"], ["terminal"]):
                terminal.interrupt()
                terminal = None
            if step.words[:1] == ["terminal"]:
                shared = None if "own" in step.words else SHARED.fullmatch(step.script)
                terminal = Sharing(hubs.hub(shared[1]), directory) if shared else Terminal(step.script, directory)
                compare(document, step, terminal.output)
            elif step.words != ["^C"]:
                code, output = directory.run(step.script)
                if bool(code) != (step.words == ["fails"]):
                    raise Differs(f"{place(document, step)} ends with {code}:\n{output}")
                compare(document, step, output)
        if terminal is not None:
            terminal.interrupt()
            terminal = None
    finally:
        if isinstance(terminal, Terminal):
            terminal.kill()
        elif terminal is not None:
            hubs.discard(terminal.hub)
        directory.end()
        if any((directory.home / ".farflung" / "edges").glob("*")):
            directory.run(".venv/bin/farflung edge delete --all")


def place(document: Path, step: Step) -> str:
    return f"{document.relative_to(ROOT)}:{step.line}"


def compare(document: Path, step: Step, output: str) -> None:
    if step.output is not None and not matches(step.output, output):
        raise Differs(f"{place(document, step)} prints\n{output}\nand not\n{step.output}")


AGE = re.compile(r"(?<=\s)(\d+[smhd])+$")
PORT = re.compile(r"(?<=://127\.0\.0\.1:)\d+")


def matches(expected: str, output: str) -> bool:
    """Whether an output is what a document shows, but for what may differ."""
    return bool(re.fullmatch(pattern_of(expected), "\n".join(plain(output))))


def pattern_of(expected: str) -> str:
    return ".*".join(re.escape(part) for part in "\n".join(plain(expected)).split("…"))


def plain(text: str) -> list[str]:
    """Lines with single blanks between words, without ages and ports."""
    return [PORT.sub("PORT", AGE.sub("AGE", " ".join(line.split()))) for line in text.strip().splitlines()]
