"""The interface between a node and its container runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Mount:
    source: Path  #: a file or directory of the machine
    target: str  #: path in the container
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One start of a container of a pod."""

    pod_uid: str
    namespace: str
    pod: str
    name: str
    attempt: int  #: number of earlier starts
    image: str
    command: tuple[str, ...] | None = None  #: None: that of the image
    arguments: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    mounts: tuple[Mount, ...] = ()
    ports: tuple[int, ...] = ()  #: TCP ports that it listens on
    log: Path = Path("/dev/null")  #: in CRI format: `<time> stdout F <text>`
    user: int | None = None
    grace: float = 30.0  #: seconds between SIGTERM and SIGKILL
    shared_ports: tuple[int, ...] | None = None  #: ports of all containers of the pod, if they share a network


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a container port on this machine."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StartedContainer:
    id: str  #: `process://…` or `podman://…`
    image_id: str
    addresses: Mapping[int, Address]  #: by the container's port
    stand_in: str = ""  #: a message, if another program runs instead of the image


@dataclass(frozen=True, slots=True)
class ContainerExit:
    exit_code: int
    at: datetime
    reason: str = "Completed"  #: or Error, OOMKilled
    message: str = ""


class ImageError(Exception):
    """`reason`: ErrImagePull, ErrImageNeverPull or InvalidImageName."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class StartError(Exception):
    """`reason`: CreateContainerConfigError, CreateContainerError or RunContainerError."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Runtime(Protocol):
    @property
    def name(self) -> str:
        """The containerRuntimeVersion of the Node: `podman://5.4.2`, `process://0.1.0`."""

    async def pull(self, image: str, policy: str) -> None:
        """`policy`: Always, IfNotPresent or Never.  Raises ImageError."""

    async def start(self, container: ContainerSpec) -> StartedContainer:
        """Raises ImageError or StartError."""

    async def wait(self, id: str) -> ContainerExit:
        """Wait for its exit."""

    async def stop(self, id: str, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds.  Does nothing after its exit."""

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> tuple[int, bytes]:
        """Run a command in the container: its exit code and the first 10 KiB of its output.  Raises TimeoutError."""

    async def remove(self, id: str) -> None:
        """Remove an exited container, except for its log."""

    async def close(self) -> None:
        """Stop all containers."""


class Publisher(Protocol):
    """Forwards ports of the node to ports of pods."""

    async def publish(self, pod_uid: str, node_port: int, protocol: str, to: Address) -> None:
        """Replaces an earlier address of the pod.  Raises OSError if the port is not available."""

    async def withdraw(self, pod_uid: str) -> None:
        """All ports of the pod."""
