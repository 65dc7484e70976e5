"""Arguments of podman commands.  Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from farflung.edge.runtimes.base import ContainerSpec, Mount, StartError

STDIN: Final = "/proc/self/fd/0"  #: standard input as a file name
EDGE_LABEL: Final = "io.farflung.edge"
INSTANCE_LABEL: Final = "io.farflung.instance"
CONTAINER_LABEL: Final = "io.kubernetes.container.name"
#: Capabilities that containers do not have in Kubernetes by default.  They are dropped one by one, because podman would
#: give added capabilities to users other than root too.
DROPPED: Final = (
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "BLOCK_SUSPEND",
    "DAC_READ_SEARCH",
    "IPC_LOCK",
    "IPC_OWNER",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "NET_ADMIN",
    "NET_BROADCAST",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
)
VARIABLE: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
#: values that all versions of podman read literally from an environment file
PLAIN: Final = re.compile(r"([^\s'\"`#$\\\x00-\x1f\x7f]([^'\"`#$\\\x00-\x1f\x7f]*[^\s'\"`#$\\\x00-\x1f\x7f])?)?")
MAX_PLAIN: Final = 32 * 1024  #: characters; podman fails at lines of 64 KiB
MAX_LOG: Final = 10 * 1024 * 1024  #: bytes; then podman truncates it
MAX_HOST_NAME: Final = 63
UNSUPPORTED_IN_PATHS: Final = re.compile(r'[,:"\x00-\x1f\x7f]')  #: characters that podman would interpret


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """Names and labels of containers.  The directory identifies the edge; an instance is one run of its process."""

    directory: Path  #: absolute
    instance: str

    @classmethod
    def of(cls, directory: Path, instance: str) -> InstanceIdentity:
        return cls(directory.resolve(), instance)

    @property
    def edge(self) -> str:
        return hashlib.sha256(str(self.directory).encode()).hexdigest()[:12]

    @property
    def edge_prefix(self) -> str:
        """Prefix of the names of all its containers and secrets."""
        return f"farflung-{self.edge}-"

    @property
    def instance_prefix(self) -> str:
        return f"{self.edge_prefix}{self.instance}-"

    @property
    def edge_filter(self) -> str:
        return f"label={EDGE_LABEL}={self.edge}"

    @property
    def instance_filter(self) -> str:
        return f"label={INSTANCE_LABEL}={self.edge}-{self.instance}"

    def pod_name(self, container: ContainerSpec) -> str:
        return f"{self.instance_prefix}{container.pod_uid}"

    def name(self, container: ContainerSpec) -> str:
        return f"{self.instance_prefix}{container.pod_uid}-{container.name}-{container.attempt}"

    def labels(self, container: ContainerSpec) -> dict[str, str]:
        return {
            EDGE_LABEL: self.edge,
            INSTANCE_LABEL: f"{self.edge}-{self.instance}",
            CONTAINER_LABEL: container.name,
            "io.kubernetes.pod.name": container.pod,
            "io.kubernetes.pod.namespace": container.namespace,
            "io.kubernetes.pod.uid": container.pod_uid,
        }


@dataclass(frozen=True, slots=True)
class EnvironmentArguments:
    """The environment of a container.  It is never on the command line, which all users of the machine can read."""

    lines: str  #: of an environment file
    secrets: Mapping[str, str]  #: other values, by the name of the variable


def variables(environment: Mapping[str, str]) -> EnvironmentArguments:
    """Raises StartError if podman does not support a name."""
    lines: list[str] = []
    secrets: dict[str, str] = {}
    for name, value in sorted(environment.items()):
        if not VARIABLE.fullmatch(name):
            raise StartError("CreateContainerConfigError", f"podman cannot set an environment variable named {name!r}")
        if len(value) <= MAX_PLAIN and PLAIN.fullmatch(value):
            lines.append(f"{name}={value}\n")
        else:
            secrets[name] = value
    return EnvironmentArguments("".join(lines), secrets)


def secret_names(container_name: str, variables: EnvironmentArguments) -> dict[str, str]:
    """By the name of the variable."""
    return {name: f"{container_name}-{number}" for number, name in enumerate(variables.secrets)}


def run(
    container: ContainerSpec, identity: InstanceIdentity, image: str, secrets: Mapping[str, str]
) -> tuple[str, ...]:
    """Starts the container and prints its id.  Reads an environment file from standard input.  Mounts from the edge's
    directory may be relabelled for SELinux."""
    return (
        *("run", "--detach", "--pull=never", "--replace", f"--name={identity.name(container)}"),
        *(f"--label={name}={value}" for name, value in sorted(identity.labels(container).items())),
        *_kubernetes_defaults(container),
        *(f"--cap-drop={capability}" for capability in DROPPED),
        *("--log-driver=k8s-file", f"--log-opt=path={checked_path(container.log)}", f"--log-opt=max-size={MAX_LOG}"),
        f"--env-file={STDIN}",
        *(f"--secret={secret},type=env,target={name}" for name, secret in sorted(secrets.items())),
        *_network(container, identity),
        *(f"--volume={_volume(mount, identity.directory)}" for mount in container.mounts),
        *_process(container),
        *("--", image),
        *(container.arguments or ()),
    )


def _network(container: ContainerSpec, identity: InstanceIdentity) -> Iterable[str]:
    if container.shared_ports is None:
        return _published(container.ports)
    return (f"--pod={identity.pod_name(container)}",)


def _published(ports: Iterable[int]) -> Iterable[str]:
    return (f"--publish=127.0.0.1::{port}" for port in sorted(set(ports)))


def create_pod(container: ContainerSpec, identity: InstanceIdentity) -> tuple[str, ...]:
    """Creates a podman pod, which holds the network of its containers."""
    labels = sorted(identity.labels(container).items())
    return (
        *("pod", "create", "--share=net", "--replace", f"--name={identity.pod_name(container)}"),
        *(f"--label={name}={value}" for name, value in labels if name != CONTAINER_LABEL),
        *_published(container.shared_ports or ()),
    )


def remove_pods(pods: Sequence[str]) -> tuple[str, ...]:
    """With their containers."""
    return ("pod", "rm", "--force", "--ignore", "--time=0", *pods)


def pods_of(label_filter: str) -> tuple[str, ...]:
    """Prints ids, one per line."""
    return ("pod", "ps", "--quiet", "--no-trunc", f"--filter={label_filter}")


def _kubernetes_defaults(container: ContainerSpec) -> Iterable[str]:
    """Disable defaults of podman that Kubernetes does not have."""
    yield f"--hostname={host_name(container.pod)}"
    yield f"--stop-timeout={whole_seconds(container.grace)}"
    yield "--security-opt=no-new-privileges"
    yield "--http-proxy=false"
    yield "--no-healthcheck"
    yield "--sdnotify=ignore"
    yield "--systemd=false"


def _process(container: ContainerSpec) -> Iterable[str]:
    if container.command is not None:
        yield f"--entrypoint={json.dumps(container.command)}"
    if container.working_directory:
        yield f"--workdir={container.working_directory}"
    if container.user is not None:
        yield f"--user={container.user}"


def _volume(mount: Mount, directory: Path) -> str:
    options = [
        *(["ro"] if mount.read_only else []),
        *(["z"] if mount.source.is_relative_to(directory) else []),
    ]
    if ":" in mount.target:
        raise StartError("CreateContainerError", f"podman does not support mounts at {mount.target!r}")
    return ":".join([checked_path(mount.source), mount.target, *([",".join(options)] if options else [])])


def checked_path(path: Path) -> str:
    """Raises StartError for characters that podman would interpret."""
    if UNSUPPORTED_IN_PATHS.search(str(path)):
        raise StartError("CreateContainerError", f"podman does not support the path {str(path)!r}")
    return str(path)


def host_name(pod: str) -> str:
    return pod[:MAX_HOST_NAME].rstrip("-.")


def whole_seconds(grace: float) -> int:
    return max(0, math.ceil(grace))


def execute(container_id: str, mark: str, command: Sequence[str]) -> tuple[str, ...]:
    """`mark` (`NAME=value`) is in the environment of the command and of everything it starts."""
    return ("exec", f"--env={mark}", container_id, *command)


def stop(container_id: str, grace: float) -> tuple[str, ...]:
    return ("stop", "--ignore", f"--time={whole_seconds(grace)}", container_id)


def remove(container_ids: Sequence[str]) -> tuple[str, ...]:
    """Also running ones, with the anonymous volumes of their images."""
    return ("rm", "--force", "--ignore", "--time=0", "--volumes", *container_ids)


def all_of(label_filter: str) -> tuple[str, ...]:
    """Prints ids, one per line."""
    return ("ps", "--all", "--quiet", "--no-trunc", f"--filter={label_filter}")


def probe(rootfs: Path) -> tuple[str, ...]:
    """A trial container in an empty `rootfs`.  If podman works, the exit code is NOT_FOUND."""
    return (
        *("run", "--rm", "--cap-drop=all", "--security-opt=no-new-privileges", "--log-driver=none"),
        *("--publish=127.0.0.1::80", "--rootfs", checked_path(rootfs), "/farflung-probe"),
    )


DOES_NOT_EXIST: Final = 1  #: exit code of `podman … exists`
NOT_FOUND: Final = 127  #: exit code: the command does not exist in the container
NOT_RUN: Final = 126  #: exit code: the command cannot be executed
