"""Creates, starts, stops and deletes embedded edges, which are background processes."""

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

from farflung.edge import contexts
from farflung.edge.contexts import ContextError
from farflung.edge.ports import check_ports
from farflung.edge.registry import READY, STOPPED, EdgeError, EdgeRegistry, EdgeSpec, EmbeddedEdge, already_exists
from farflung.edge.runtimes.selection import remove_containers
from farflung.machinery.codec import yaml
from farflung.machinery.errors import Obj

COMMAND: Final = (sys.executable, "-m", "farflung", "edge", "run")
POLL_INTERVAL: Final = 0.03  #: seconds
STOP_TIMEOUT: Final = 5.0  #: seconds after the first SIGTERM, which stops pods gracefully
KILL_TIMEOUT: Final = 10.0  #: seconds after the second SIGTERM, which kills pods, and after SIGKILL
MAX_LOG: Final = 10 * 1024 * 1024  #: bytes; a larger log is renamed to `log.1` at the start
LOG_LINES: Final = 5  #: last lines of the log in error messages
PREFIX: Final = "farflung edge: "  #: of the line in the log with the reason of a failed start
KUBECONFIG: Final = "admin.kubeconfig"  #: in the directory of a hub

Report = Callable[[str], None]


class Interrupted(Exception):
    """A signal asked this process to end."""


@dataclass(slots=True)
class Interruption:
    """Defers SIGINT, SIGTERM and SIGHUP until the next `check`."""

    _received: int = 0
    _before: dict[int, object] = field(default_factory=dict)

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received = self._received or number

    def check(self) -> None:
        if self._received:
            raise Interrupted


# --- creation and deletion ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EdgeManager:
    registry: EdgeRegistry
    environment: Mapping[str, str]
    interruption: Interruption
    report: Report

    def create(self, name: str, spec: EdgeSpec, seconds: float) -> EmbeddedEdge:
        """After an error nothing is left.  Raises EdgeError, ContextError, PortUnavailable or Interrupted."""
        if self.registry.edge(name).directory.exists():
            raise already_exists(self.registry.edge(name))  # not that its ports are in use
        api = [(spec.api_address, spec.api_port)] if spec.api_port else []
        check_ports([*((mapping.address, mapping.port) for mapping in spec.ports), *api])
        if spec.context:
            contexts.current(Path(spec.kubeconfig))
        edge = self.registry.create(name, spec)
        try:
            self.start(edge, seconds)
            if spec.context:
                add_context(edge, Path(spec.kubeconfig), spec.context)
                self.report(f"kubectl context {spec.context} in {spec.kubeconfig}")
            self.interruption.check()
        except BaseException:
            self.report(f"deleting edge {name} again")
            self.delete(edge)
            raise
        return edge

    def start(self, edge: EmbeddedEdge, seconds: float) -> None:
        """Returns when its node is ready.  Raises EdgeError or Interrupted; the process has ended then."""
        process = launch(edge, self.environment)
        try:
            self._wait(edge, process, time.monotonic() + seconds, seconds)
        except BaseException:
            stop(edge, process)
            raise
        process.returncode = 0  # it keeps running after this process; no warning about it

    def _wait(self, edge: EmbeddedEdge, process: subprocess.Popen[bytes], until: float, seconds: float) -> None:
        reported = ""
        while (phase := edge.phase).phase != READY:
            self.interruption.check()
            if process.poll() is not None:
                raise EdgeError(f"edge {edge.name} did not start: {log_excerpt(edge)}")
            if time.monotonic() > until:
                raise EdgeError(f"edge {edge.name} was not ready within {seconds:g} seconds: {log_excerpt(edge)}")
            if phase.api not in ("", reported):
                reported = phase.api
                self.report(f"API server at {phase.api}")
            time.sleep(POLL_INTERVAL)
        self.report(f"node {edge.node_name} is ready, pods run by {phase.runtime}")

    def delete(self, edge: EmbeddedEdge) -> None:
        """Process, pods, context and directory.  Raises EdgeError."""
        stop(edge)
        try:
            remove_context(edge.spec)
        except (EdgeError, ContextError) as error:
            self.report(str(error))
        if edge.containers.exists():
            asyncio.run(remove_containers(edge.runtime))  # left if the machine crashed
        self.registry.remove(edge)


# --- the process ----------------------------------------------------------------------------------


def launch(edge: EmbeddedEdge, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In its own session, so that closing the terminal does not stop it."""
    home = edge.directory.parent.parent.absolute()
    if edge.log.exists() and edge.log.stat().st_size > MAX_LOG:
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


def stop(edge: EmbeddedEdge, process: subprocess.Popen[bytes] | None = None) -> None:
    """Stop pods gracefully, then kill them, then kill the process.  `process`: if this process started it, because its
    phase may not be written yet.  Raises EdgeError."""
    for number, timeout in (
        (signal.SIGTERM, STOP_TIMEOUT),
        (signal.SIGTERM, KILL_TIMEOUT),
        (signal.SIGKILL, KILL_TIMEOUT),
    ):
        if not _is_running(edge, process):
            return
        if process is not None:
            process.send_signal(number)
        else:
            edge.signal(number)
        until = time.monotonic() + timeout
        while _is_running(edge, process) and time.monotonic() < until:
            time.sleep(POLL_INTERVAL)
    if _is_running(edge, process):
        raise EdgeError(f"cannot stop the process of edge {edge.name}")


def _is_running(edge: EmbeddedEdge, process: subprocess.Popen[bytes] | None) -> bool:
    return process.poll() is None if process is not None else edge.phase.phase != STOPPED


def log_excerpt(edge: EmbeddedEdge) -> str:
    """The reason of a failed start, or the last lines of the log."""
    lines = list(tail(edge.log, LOG_LINES))
    reason = next((line for line in reversed(lines) if line.startswith(PREFIX)), "")
    if not lines:
        return "its log is empty"
    return reason.removeprefix(PREFIX) or "\n".join(["its log ends with", *(f"  {line}" for line in lines)])


def tail(path: Path, lines: int) -> Iterator[str]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    yield from text.splitlines()[-lines:] if lines else ()


# --- context in the kubeconfig --------------------------------------------------------------------


def add_context(edge: EmbeddedEdge, path: Path, name: str) -> None:
    """Raises EdgeError or ContextError."""
    config = kubeconfig(edge)
    contexts.add(path, name, config["clusters"][0]["cluster"], config["users"][0]["user"])


def move_context(edge: EmbeddedEdge, path: Path, name: str) -> None:
    """Add the context to another kubeconfig, and remove it from the current one.  Raises EdgeError or ContextError."""
    spec = edge.spec
    add_context(edge, path, name)
    if (spec.kubeconfig, spec.context) != (str(path), name):
        remove_context(spec)
        edge.write_spec(msgspec.structs.replace(spec, kubeconfig=str(path), context=name))


def remove_context(spec: EdgeSpec) -> None:
    """Raises ContextError."""
    if spec.context:
        contexts.remove(Path(spec.kubeconfig), spec.context)


def kubeconfig(edge: EmbeddedEdge) -> Obj:
    """The kubeconfig of its administrator.  Raises EdgeError."""
    try:
        config: Obj = yaml.parse((edge.hub / KUBECONFIG).read_bytes()).value
    except OSError:
        raise EdgeError(f"edge {edge.name} was never ready; `farflung edge start {edge.name}` starts it") from None
    return config


def with_names(config: Obj, name: str) -> Obj:
    """With this name for cluster, user and context."""
    return {
        **config,
        "clusters": [{"name": name, "cluster": config["clusters"][0]["cluster"]}],
        "users": [{"name": name, "user": config["users"][0]["user"]}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
