"""The embedded edges of a user: a directory for each, and whether its process runs.

    <home>/edges/NAME/edge.json     what was asked for
    <home>/edges/NAME/process       how far its process is, which has this file and `lock` locked as long as it lives
    <home>/edges/NAME/log           what the process says
    <home>/edges/NAME/hub/          of its API server
    <home>/edges/NAME/node/         of its node
    <home>/edges/NAME/runtime/      of what runs its pods
    <home>/edges/NAME/containers    there if some of its pods were run in containers

A lock cannot outlive a process, so that no number of a process is ever taken for that of another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from farflung.edge import ports
from farflung.lib.files import sync_directory, write_private

PART: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
NAME: Final = re.compile(
    rf"(?=.{{1,49}}\Z){PART}(\.{PART})*"
)  #: with which that of the node can be the value of a label
STARTING: Final = "Starting"
READY: Final = "Ready"
STOPPING: Final = "Stopping"
STOPPED: Final = "Stopped"


class EdgeError(Exception):
    """A sentence that a user can do something with."""


class EdgeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What was asked for when an edge was made."""

    created: datetime
    runtime: str = "auto"
    local_commands: bool = False
    api_address: str = "127.0.0.1"
    api_port: int = 0
    ports: tuple[ports.PortMapping, ...] = ()
    context: str = ""  #: of kubectl; empty if there is none
    kubeconfig: str = ""  #: the file that the context is in


class Phase(msgspec.Struct, frozen=True):
    """How far the process of an edge is."""

    pid: int = 0
    phase: str = STOPPED
    api: str = ""  #: a URL
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class EmbeddedEdge:
    name: str
    directory: Path

    @property
    def hub(self) -> Path:
        return self.directory / "hub"

    @property
    def node(self) -> Path:
        return self.directory / "node"

    @property
    def runtime(self) -> Path:
        """What is in it goes with the process."""
        return self.directory / "runtime"

    @property
    def containers(self) -> Path:
        """Where this is, containers may be left though the process has ended."""
        return self.directory / "containers"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def node_name(self) -> str:
        """As kind calls it."""
        return f"{self.name}-control-plane"

    @property
    def asked(self) -> EdgeSpec:
        """Raises EdgeError."""
        path = self.directory / "edge.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=EdgeSpec)
        except FileNotFoundError:
            raise EdgeError(f"there is no edge {self.name}") from None
        except (OSError, msgspec.MsgspecError) as error:
            raise EdgeError(f"{path} cannot be read: {error}; `farflung edge delete {self.name}` removes it") from None

    def ask(self, asked: EdgeSpec) -> None:
        write_private(self.directory / "edge.json", msgspec.json.format(msgspec.json.encode(asked)))

    # --- its process ------------------------------------------------------------------------------

    @property
    def _process(self) -> Path:
        return self.directory / "process"

    @contextlib.contextmanager
    def held(self) -> Iterator[EdgeLock]:
        """By the process that is the edge, as long as it is.  Raises EdgeError if there is one already."""
        with _opened(self.directory / "lock") as lock:
            if not _is_locked(lock, fcntl.LOCK_EX):
                raise EdgeError(f"edge {self.name} is running already")
            # nobody who looks ever sees words of another process in a file that is locked: it gets its name last
            unnamed = self.directory / "process.new"
            unnamed.unlink(missing_ok=True)
            with _opened(unnamed) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                held = EdgeLock(file)
                held.tell(STARTING)
                unnamed.replace(self._process)
                yield held

    @property
    def phase(self) -> Phase:
        try:
            with self._process.open("rb") as file:
                if _is_locked(file, fcntl.LOCK_SH):
                    return Phase()  # we could not have it if its process were alive
                return msgspec.json.decode(file.read(), type=Phase)
        except (OSError, msgspec.MsgspecError):
            return Phase()

    def signal(self, number: signal.Signals) -> None:
        """To its process, if there is one, and never to another."""
        pid = self.phase.pid
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if self.phase.pid == pid:  # so it was its process that was opened
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


@dataclass(slots=True)
class EdgeLock:
    """The lock of a process, and what it says of itself."""

    _file: BinaryIO
    _said: Phase = field(default_factory=Phase)

    def tell(self, phase: str, **more: Any) -> None:
        known = {name: getattr(self._said, name) for name in ("api", "runtime")}
        self._said = Phase(os.getpid(), phase, **(known | more))
        data = msgspec.json.encode(self._said)
        # spaces to the end of what was there: a reader sees the old words or the new ones
        size = os.fstat(self._file.fileno()).st_size
        os.pwrite(self._file.fileno(), data.ljust(size), 0)


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)


def _is_locked(file: BinaryIO, how: int) -> bool:
    """By us, now."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class EdgeRegistry:
    def __init__(self, home: Path) -> None:
        self._edges = home / "edges"

    @classmethod
    def of_user(cls, environment: Mapping[str, str]) -> EdgeRegistry:
        home = environment.get("FARFLUNG_HOME")
        return cls(Path(home) if home else Path("~/.farflung").expanduser())

    def edge(self, name: str) -> EmbeddedEdge:
        """Whether it is there or not.  Raises EdgeError for what cannot be a name."""
        if not NAME.fullmatch(name):
            raise EdgeError(
                f"{name!r} is no name for an edge: at most 49 lower-case letters, digits, '-' and '.' are, with a "
                "letter or a digit at both ends and beside each '.'"
            )
        return EmbeddedEdge(name, self._edges / name)

    def existing(self, name: str) -> EmbeddedEdge:
        edge = self.edge(name)
        if not edge.directory.is_dir():
            raise EdgeError(f"there is no edge {name}; `farflung edge list` lists those that there are")
        return edge

    def all(self) -> list[EmbeddedEdge]:
        if not self._edges.is_dir():
            return []
        names = sorted(path.name for path in self._edges.iterdir() if path.is_dir() and NAME.fullmatch(path.name))
        return [self.edge(name) for name in names]

    def make(self, name: str, asked: EdgeSpec) -> EmbeddedEdge:
        """Raises EdgeError if there is one of this name, and if there can be none."""
        edge = self.edge(name)
        try:
            self._edges.mkdir(mode=0o700, parents=True, exist_ok=True)
            edge.directory.mkdir(mode=0o700)
        except FileExistsError:
            raise already(edge) from None
        except OSError as error:
            raise cannot("make", edge, error) from None
        try:
            edge.ask(asked)
        except OSError as error:
            shutil.rmtree(edge.directory, ignore_errors=True)
            raise cannot("make", edge, error) from None
        return edge

    def remove(self, edge: EmbeddedEdge) -> None:
        """An edge whose process has ended.  One that is removed in part can be removed again.  Raises EdgeError."""
        try:
            shutil.rmtree(edge.directory, ignore_errors=False, onerror=_writable)
            if self._edges.is_dir():
                sync_directory(self._edges)
        except FileNotFoundError:
            return
        except OSError as error:
            raise cannot("remove", edge, error) from None


def already(edge: EmbeddedEdge) -> EdgeError:
    name, state = edge.name, edge.phase.phase.lower()
    return EdgeError(f"there is an edge {name} already, and it is {state}; `farflung edge delete {name}` removes it")


def cannot(what: str, edge: EmbeddedEdge, error: OSError) -> EdgeError:
    return EdgeError(f"cannot {what} {edge.directory}: {(error.strerror or str(error)).lower()}")


def _writable(function: Any, path: str, failure: Any) -> None:
    """Directories that a pod made read-only are ours all the same."""
    if isinstance(failure[1], FileNotFoundError):
        return
    Path(path).parent.chmod(0o700)
    if Path(path).is_dir() and not Path(path).is_symlink():
        Path(path).chmod(0o700)
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)
