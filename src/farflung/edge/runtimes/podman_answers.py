"""What podman answers."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from farflung.edge.runtimes.base import Address, Finished

OLDEST: Final = (4, 3)  #: the first that can do what is asked of it here
LONGEST_SENTENCE: Final = 1024


class Version(msgspec.Struct, frozen=True, rename={"version": "Version"}):
    version: str = ""


class Information(msgspec.Struct, frozen=True):
    """Of `podman info`."""

    version: Version = Version()


class State(msgspec.Struct, frozen=True, rename="pascal"):
    status: str = ""
    running: bool = False
    exit_code: int = 0
    finished_at: str = ""
    error: str = ""
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")
    conmon_pid: int = 0  #: the process that minds it; ends when all about the end of the container is known


class Binding(msgspec.Struct, frozen=True, rename="pascal"):
    host_ip: str = ""
    host_port: str = ""


class Network(msgspec.Struct, frozen=True, rename="pascal"):
    ports: dict[str, list[Binding] | None] | None = None  #: by `80/tcp`


class Inspected(msgspec.Struct, frozen=True, rename="pascal"):
    """Of `podman inspect`, as far as we look."""

    id: str
    image: str = ""
    image_digest: str = ""
    state: State = State()
    network_settings: Network = Network()

    @property
    def over(self) -> bool:
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
    def finished(self) -> Finished:
        """Only if it is over."""
        return Finished(
            exit_code=self.state.exit_code,
            at=datetime.fromisoformat(self.state.finished_at),
            reason=_reason(self.state),
            message=self.state.error,
        )


def _reason(state: State) -> str:
    if state.oom_killed:
        return "OOMKilled"
    return "Completed" if state.exit_code == 0 else "Error"


def inspected(output: bytes) -> Inspected | None:
    """The first of them; None if podman knew none."""
    found = msgspec.json.decode(output or b"[]", type=list[Inspected])
    return found[0] if found else None


def version(output: bytes) -> str:
    return msgspec.json.decode(output, type=Information).version.version


def is_new_enough(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= OLDEST


def last_line(errors: bytes) -> str:
    """What podman says in the end, which is why it failed."""
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ")[:LONGEST_SENTENCE] if lines else "podman did not say why"
