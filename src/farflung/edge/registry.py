"""The embedded edges of a user: their directories and the phases of their processes.

    <home>/edges/NAME/edge.json     its EdgeSpec
    <home>/edges/NAME/process       its Phase; the process locks this file and `lock` while it runs
    <home>/edges/NAME/log           log of the process
    <home>/edges/NAME/hub/          data of the API server
    <home>/edges/NAME/node/         data of the node
    <home>/edges/NAME/runtime/      data of the container runtime
    <home>/edges/NAME/containers    exists if podman runs its pods

A lock ends with its process, so a reused process id is never mistaken for that of an edge.
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
)  #: short enough for the name of the node to be a label value
STARTING: Final = "Starting"
READY: Final = "Ready"
STOPPING: Final = "Stopping"
STOPPED: Final = "Stopped"


class EdgeError(Exception):
    """An error message for users."""


class EdgeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The options of `farflung edge create`."""

    created: datetime
    runtime: str = "auto"
    local_commands: bool = False
    api_address: str = "127.0.0.1"
    api_port: int = 0
    ports: tuple[ports.PortMapping, ...] = ()
    context: str = ""  #: in the kubeconfig; empty: none
    kubeconfig: str = ""  #: file of the context


class Phase(msgspec.Struct, frozen=True):
    """The state of the process of an edge."""

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
        """Deleted when the process ends."""
        return self.directory / "runtime"

    @property
    def containers(self) -> Path:
        """If this file exists, podman may still have containers after the process ended."""
        return self.directory / "containers"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def node_name(self) -> str:
        """As in kind."""
        return f"{self.name}-control-plane"

    @property
    def spec(self) -> EdgeSpec:
        """Raises EdgeError."""
        path = self.directory / "edge.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=EdgeSpec)
        except FileNotFoundError:
            raise EdgeError(f"edge {self.name} does not exist") from None
        except (OSError, msgspec.MsgspecError) as error:
            raise EdgeError(f"cannot read {path}: {error}; `farflung edge delete {self.name}` removes it") from None

    def write_spec(self, spec: EdgeSpec) -> None:
        write_private(self.directory / "edge.json", msgspec.json.format(msgspec.json.encode(spec)))

    # --- process ----------------------------------------------------------------------------------

    @property
    def _process(self) -> Path:
        return self.directory / "process"

    @contextlib.contextmanager
    def locked(self) -> Iterator[EdgeLock]:
        """Called by the process of the edge.  Raises EdgeError if it is already running."""
        with _opened(self.directory / "lock") as file:
            if not _try_lock(file, fcntl.LOCK_EX):
                raise EdgeError(f"edge {self.name} is already running")
            # renamed last, so that readers never see the phase of an earlier process in a locked file
            unnamed = self.directory / "process.new"
            unnamed.unlink(missing_ok=True)
            with _opened(unnamed) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                lock = EdgeLock(file)
                lock.write_phase(STARTING)
                unnamed.replace(self._process)
                yield lock

    @property
    def phase(self) -> Phase:
        try:
            with self._process.open("rb") as file:
                if _try_lock(file, fcntl.LOCK_SH):
                    return Phase()  # not locked: the process has ended
                return msgspec.json.decode(file.read(), type=Phase)
        except (OSError, msgspec.MsgspecError):
            return Phase()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if it is running."""
        pid = self.phase.pid
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if self.phase.pid == pid:  # the pidfd is that of its process
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


@dataclass(slots=True)
class EdgeLock:
    """The locked file in which the process writes its phase."""

    _file: BinaryIO
    _phase: Phase = field(default_factory=Phase)

    def write_phase(self, phase: str, **more: Any) -> None:
        known = {name: getattr(self._phase, name) for name in ("api", "runtime")}
        self._phase = Phase(os.getpid(), phase, **(known | more))
        data = msgspec.json.encode(self._phase)
        # padded to the old length: a reader sees the old phase or the new one
        size = os.fstat(self._file.fileno()).st_size
        os.pwrite(self._file.fileno(), data.ljust(size), 0)


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)


def _try_lock(file: BinaryIO, how: int) -> bool:
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
        """It need not exist.  Raises EdgeError for an invalid name."""
        if not NAME.fullmatch(name):
            raise EdgeError(
                f"{name!r} is not a valid name of an edge: it must have at most 49 lower-case letters, digits, '-' and "
                "'.', and letters or digits at both ends and next to each '.'"
            )
        return EmbeddedEdge(name, self._edges / name)

    def existing(self, name: str) -> EmbeddedEdge:
        edge = self.edge(name)
        if not edge.directory.is_dir():
            raise EdgeError(f"edge {name} does not exist; `farflung edge list` lists all edges")
        return edge

    def all(self) -> list[EmbeddedEdge]:
        if not self._edges.is_dir():
            return []
        names = sorted(path.name for path in self._edges.iterdir() if path.is_dir() and NAME.fullmatch(path.name))
        return [self.edge(name) for name in names]

    def create(self, name: str, spec: EdgeSpec) -> EmbeddedEdge:
        """Raises EdgeError if it exists or the directory cannot be created."""
        edge = self.edge(name)
        try:
            self._edges.mkdir(mode=0o700, parents=True, exist_ok=True)
            edge.directory.mkdir(mode=0o700)
        except FileExistsError:
            raise already_exists(edge) from None
        except OSError as error:
            raise cannot("create", edge, error) from None
        try:
            edge.write_spec(spec)
        except OSError as error:
            shutil.rmtree(edge.directory, ignore_errors=True)
            raise cannot("create", edge, error) from None
        return edge

    def remove(self, edge: EmbeddedEdge) -> None:
        """Its process must have ended.  After an error, it can be called again.  Raises EdgeError."""
        try:
            shutil.rmtree(edge.directory, ignore_errors=False, onerror=_remove_read_only)
            if self._edges.is_dir():
                sync_directory(self._edges)
        except FileNotFoundError:
            return
        except OSError as error:
            raise cannot("remove", edge, error) from None


def already_exists(edge: EmbeddedEdge) -> EdgeError:
    name, state = edge.name, edge.phase.phase.lower()
    return EdgeError(f"edge {name} already exists, and it is {state}; `farflung edge delete {name}` deletes it")


def cannot(what: str, edge: EmbeddedEdge, error: OSError) -> EdgeError:
    return EdgeError(f"cannot {what} {edge.directory}: {(error.strerror or str(error)).lower()}")


def _remove_read_only(function: Any, path: str, failure: Any) -> None:
    """Remove directories that a pod made read-only."""
    if isinstance(failure[1], FileNotFoundError):
        return
    Path(path).parent.chmod(0o700)
    if Path(path).is_dir() and not Path(path).is_symlink():
        Path(path).chmod(0o700)
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)
