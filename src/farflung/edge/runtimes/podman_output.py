"""Parsers of podman's output.  Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from farflung.edge.runtimes.base import Address, ContainerExit

OLDEST: Final = (4, 3)  #: oldest supported version
MAX_ERROR: Final = 1024


class PodmanVersion(msgspec.Struct, frozen=True, rename={"version": "Version"}):
    version: str = ""


class PodmanInfo(msgspec.Struct, frozen=True):
    """Output of `podman info`."""

    version: PodmanVersion = PodmanVersion()


class InspectedState(msgspec.Struct, frozen=True, rename="pascal"):
    status: str = ""
    running: bool = False
    exit_code: int = 0
    finished_at: str = ""
    error: str = ""
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")
    conmon_pid: int = 0  #: the monitor process, which ends after it recorded the exit of the container


class PortBinding(msgspec.Struct, frozen=True, rename="pascal"):
    host_ip: str = ""
    host_port: str = ""


class NetworkSettings(msgspec.Struct, frozen=True, rename="pascal"):
    ports: dict[str, list[PortBinding] | None] | None = None  #: by `80/tcp`


class InspectedContainer(msgspec.Struct, frozen=True, rename="pascal"):
    """Output of `podman inspect`."""

    id: str
    image: str = ""
    image_digest: str = ""
    state: InspectedState = InspectedState()
    network_settings: NetworkSettings = NetworkSettings()

    @property
    def exited(self) -> bool:
        return self.state.status in ("exited", "stopped", "removing")

    @property
    def addresses(self) -> dict[int, Address]:
        found: dict[int, Address] = {}
        for name, bindings in sorted((self.network_settings.ports or {}).items()):
            port, _, protocol = name.partition("/")
            if protocol == "tcp" and bindings and bindings[0].host_port:
                found[int(port)] = Address(bindings[0].host_ip or "127.0.0.1", int(bindings[0].host_port))
        return found

    @property
    def finished(self) -> ContainerExit:
        """Only if `exited`."""
        state = self.state
        reason = "OOMKilled" if state.oom_killed else "Completed" if state.exit_code == 0 else "Error"
        return ContainerExit(state.exit_code, datetime.fromisoformat(state.finished_at), reason, state.error)


def inspected(output: bytes) -> InspectedContainer | None:
    """The first container; None if there is none."""
    found = msgspec.json.decode(output or b"[]", type=list[InspectedContainer])
    return found[0] if found else None


def version(output: bytes) -> str:
    return msgspec.json.decode(output, type=PodmanInfo).version.version


def is_new_enough(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= OLDEST


def last_line(errors: bytes) -> str:
    """The last line of the errors, which has the cause."""
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ")[:MAX_ERROR] if lines else "podman printed no error"
