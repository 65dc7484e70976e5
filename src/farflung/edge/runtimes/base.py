"""What a node asks of whatever runs its containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Mount:
    source: Path  #: a file or directory of the machine
    target: str  #: where the container sees it
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One attempt to run a container of a pod."""

    pod_uid: str
    namespace: str
    pod: str
    name: str
    attempt: int  #: how often it was started before
    image: str
    command: tuple[str, ...] | None = None  #: None: what the image says
    arguments: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    mounts: tuple[Mount, ...] = ()
    ports: tuple[int, ...] = ()  #: that it listens on
    log: Path = Path("/dev/null")  #: lines as a container runtime writes them: `<time> stdout F <text>`
    user: int | None = None
    grace: float = 30.0  #: seconds between asking it to end and ending it
    shared_ports: tuple[int, ...] | None = None  #: of all containers of its pod, if they share localhost


@dataclass(frozen=True, slots=True)
class Address:
    """Where a port of a container can be reached from this machine."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StartedContainer:
    id: str  #: `process://…` or `podman://…`
    image_id: str
    addresses: Mapping[int, Address]  #: by the container's port
    stand_in: str = ""  #: a sentence that says so, if this is not the image but something in its place


@dataclass(frozen=True, slots=True)
class ContainerExit:
    exit_code: int
    at: datetime
    reason: str = "Completed"  #: or Error, OOMKilled
    message: str = ""


class ImageError(Exception):
    """An image that cannot be had.  `reason`: ErrImagePull, ErrImageNeverPull, InvalidImageName."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StartError(Exception):
    """A container that cannot be started, as CreateContainerError or RunContainerError say it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Runtime(Protocol):
    @property
    def name(self) -> str:
        """As in `containerRuntimeVersion` of a Node: `podman://5.4.2`, `process://0.1.0`."""

    async def pull(self, image: str, policy: str) -> None:
        """Have it here.  `policy`: Always, IfNotPresent or Never.  Raises ImageError."""

    async def start(self, container: ContainerSpec) -> StartedContainer:
        """Raises ImageError or StartError."""

    async def wait(self, id: str) -> ContainerExit:
        """Until it ends, however it does."""

    async def stop(self, id: str, grace: float) -> None:
        """Ask it to end, and end it after so many seconds.  Nothing happens if it has ended."""

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> tuple[int, bytes]:
        """Run a command beside it, for a probe: its exit code and the first 10 KiB of what it printed.  Raises
        TimeoutError."""

    async def remove(self, id: str) -> None:
        """What is left of it when it has ended, its log aside."""

    async def close(self) -> None:
        """End everything that is still running."""


class Publisher(Protocol):
    """Makes ports of pods reachable as ports of the node, and so as those of this machine that are mapped to them."""

    async def publish(self, pod_uid: str, node_port: int, protocol: str, to: Address) -> None:
        """Replaces what the pod published there before.  Raises OSError if the machine's port cannot be had."""

    async def withdraw(self, pod_uid: str) -> None:
        """All that it published."""
