"""Embedded edges as processes in the background: made, started, waited for, ended, removed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from farflung.edge import contexts, ports
from farflung.edge.contexts import ContextError
from farflung.edge.ports import PortUnavailable
from farflung.edge.registry import READY, STOPPED, EdgeError, EdgeRegistry, EdgeSpec, EmbeddedEdge, already
from farflung.edge.runtimes.selection import remove_containers
from farflung.machinery.codec import yaml
from farflung.machinery.errors import Obj

COMMAND: Final = (sys.executable, "-m", "farflung", "edge", "run")
GLANCE: Final = 0.03  #: seconds between two looks at a process
ORDERLY: Final = 5.0  #: seconds that an edge which is to go gives its pods to end
AT_ONCE: Final = 10.0  #: seconds that it then has to end them
LONGEST_LOG: Final = 10 * 1024 * 1024  #: bytes; when it is started with more, that is kept as `log.1`
TOLD: Final = 5  #: last lines of the log of a process that ended by itself
PREFIX: Final = "farflung edge: "  #: how a process says why it cannot start
KUBECONFIG: Final = "admin.kubeconfig"  #: in the directory of a hub

Tell = Callable[[str], None]


class Interrupted(Exception):
    """Somebody wants this to end."""


@dataclass(slots=True)
class Interruption:
    """Signals that ask to end count where somebody looks, and never in the middle of something."""

    _came: int = 0
    _before: dict[int, object] = field(default_factory=dict)

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._came = self._came or number

    def check(self) -> None:
        if self._came:
            raise Interrupted


# --- making and removing --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EdgeManager:
    """Where edges are, and what becomes of those who make and remove them."""

    registry: EdgeRegistry
    environment: Mapping[str, str]
    interruption: Interruption
    tell: Tell

    def create(self, name: str, asked: EdgeSpec, seconds: float) -> EmbeddedEdge:
        """Whole, or not at all.  Raises EdgeError or Interrupted."""
        if self.registry.edge(name).directory.exists():
            raise already(self.registry.edge(name))  # before its own ports are found to be in use
        check_ports(asked)
        check_kubeconfig(asked)
        edge = self.registry.make(name, asked)
        try:
            self.start(edge, seconds)
            if asked.context:
                merge(edge, Path(asked.kubeconfig), asked.context)
                self.tell(f"kubectl context {asked.context} in {asked.kubeconfig}")
            self.interruption.check()
        except BaseException:
            self.tell(f"removing edge {name} again")
            self.delete(edge)
            raise
        return edge

    def start(self, edge: EmbeddedEdge, seconds: float) -> None:
        """Until its API answers and its node is ready.  Raises EdgeError or Interrupted; then it does not run."""
        process = launch(edge, self.environment)
        try:
            self._wait(edge, process, time.monotonic() + seconds, seconds)
        except BaseException:
            end(edge, process)
            raise
        process.returncode = 0  # it is not ours to wait for: it goes on when we end

    def _wait(self, edge: EmbeddedEdge, process: subprocess.Popen[bytes], until: float, seconds: float) -> None:
        told = ""
        while (phase := edge.phase).phase != READY:
            self.interruption.check()
            if process.poll() is not None:
                raise EdgeError(why_ended(edge))
            if time.monotonic() > until:
                raise EdgeError(f"edge {edge.name} was not ready within {seconds:g} seconds: {last_words(edge)}")
            if phase.api not in ("", told):
                told = phase.api
                self.tell(f"API server at {phase.api}")
            time.sleep(GLANCE)
        self.tell(f"node {edge.node_name} is ready, pods run by {phase.runtime}")

    def delete(self, edge: EmbeddedEdge) -> None:
        """Its process, its pods, its context, its directory.  Raises EdgeError."""
        end(edge)
        try:
            forget(edge.asked)
        except EdgeError as error:
            self.tell(str(error))
        if edge.containers.exists():
            asyncio.run(remove_containers(edge.runtime))  # what is left if the machine was switched off
        self.registry.remove(edge)


def check_ports(asked: EdgeSpec) -> None:
    """Raises EdgeError."""
    wanted = [(mapping.address, mapping.port) for mapping in asked.ports]
    if asked.api_port:
        wanted.append((asked.api_address, asked.api_port))
    try:
        ports.check(wanted)
    except PortUnavailable as error:
        raise EdgeError(str(error)) from None


def check_kubeconfig(asked: EdgeSpec) -> None:
    """Raises EdgeError."""
    if not asked.context:
        return
    try:
        contexts.check(Path(asked.kubeconfig))
    except ContextError as error:
        raise EdgeError(str(error)) from None


# --- the process ----------------------------------------------------------------------------------


def launch(edge: EmbeddedEdge, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own: it stays when the terminal goes."""
    home = edge.directory.parent.parent.absolute()
    if edge.log.exists() and edge.log.stat().st_size > LONGEST_LOG:
        edge.log.replace(edge.log.with_name("log.1"))
    descriptor = os.open(edge.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as log:
        return subprocess.Popen(  # noqa: S603
            [*COMMAND, edge.name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=edge.directory,
            env={**environment, "FARFLUNG_HOME": str(home)},
            start_new_session=True,
        )


def end(edge: EmbeddedEdge, process: subprocess.Popen[bytes] | None = None) -> None:
    """Its pods are asked to end, then made to.  `process`: if we started it, and it may not have said so yet."""
    for number, patience in ((signal.SIGTERM, ORDERLY), (signal.SIGTERM, AT_ONCE), (signal.SIGKILL, AT_ONCE)):
        if not _is_running(edge, process):
            return
        if process is not None:
            process.send_signal(number)
        else:
            edge.signal(number)
        until = time.monotonic() + patience
        while _is_running(edge, process) and time.monotonic() < until:
            time.sleep(GLANCE)
    if _is_running(edge, process):
        raise EdgeError(f"the process of edge {edge.name} does not end")


def _is_running(edge: EmbeddedEdge, process: subprocess.Popen[bytes] | None) -> bool:
    return process.poll() is None if process is not None else edge.phase.phase != STOPPED


def why_ended(edge: EmbeddedEdge) -> str:
    return f"edge {edge.name} did not start: {last_words(edge)}"


def last_words(edge: EmbeddedEdge) -> str:
    """What its log ends with, or the sentence that it was meant to be."""
    lines = list(tail(edge.log, TOLD))
    sentence = next((line for line in reversed(lines) if line.startswith(PREFIX)), "")
    if not lines:
        return "its log is empty"
    return sentence.removeprefix(PREFIX) or "\n".join(["its log ends with", *(f"  {line}" for line in lines)])


def tail(path: Path, lines: int) -> Iterator[str]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    yield from text.splitlines()[-lines:] if lines else ()


# --- the context of kubectl -----------------------------------------------------------------------


def merge(edge: EmbeddedEdge, path: Path, name: str) -> None:
    """Raises EdgeError."""
    config = kubeconfig(edge)
    try:
        contexts.add(path, name, config["clusters"][0]["cluster"], config["users"][0]["user"])
    except ContextError as error:
        raise EdgeError(str(error)) from None


def adopt(edge: EmbeddedEdge, path: Path, name: str) -> None:
    """Put it there, to be taken out of it with the edge.  Raises EdgeError."""
    asked = edge.asked
    merge(edge, path, name)
    if (asked.kubeconfig, asked.context) != (str(path), name):
        forget(asked)
        edge.ask(msgspec.structs.replace(asked, kubeconfig=str(path), context=name))


def forget(asked: EdgeSpec) -> None:
    if not asked.context:
        return
    try:
        contexts.remove(Path(asked.kubeconfig), asked.context)
    except ContextError as error:
        raise EdgeError(str(error)) from None


def kubeconfig(edge: EmbeddedEdge) -> Obj:
    """Of its administrator, with the names that a hub gives to things.  Raises EdgeError."""
    try:
        config: Obj = yaml.parse((edge.hub / KUBECONFIG).read_bytes()).value
    except OSError:
        raise EdgeError(f"edge {edge.name} has never been ready; `farflung edge start {edge.name}` starts it") from None
    return config


def renamed(config: Obj, name: str) -> Obj:
    """The same with one name for everything."""
    return {
        **config,
        "clusters": [{"name": name, "cluster": config["clusters"][0]["cluster"]}],
        "users": [{"name": name, "user": config["users"][0]["user"]}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
