"""The container that a runtime starts, from the container of a pod."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from farflung.edge.node.context import NODE_ADDRESS, NodeContext
from farflung.edge.node.environment import PodConfigError, downward_api, environment, expanded_command
from farflung.edge.node.probes import find_unsupported_probe, handler_ports
from farflung.edge.node.volumes import Volumes
from farflung.edge.runtimes.base import ContainerSpec, Mount
from farflung.edge.runtimes.log_files import log_file, pods_directory
from farflung.machinery.errors import Obj

MAX_MESSAGE: Final = 4096  #: bytes
MESSAGE_PATH: Final = "/dev/termination-log"


def build_container_spec(
    context: NodeContext, pod: Obj, definition: Obj, attempt: int, volumes: Volumes, grace: float
) -> ContainerSpec:
    """Raises PodConfigError."""
    if reason := find_unsupported_probe(definition):
        raise PodConfigError(reason)
    metadata, name = pod["metadata"], definition["name"]
    namespace, uid = metadata["namespace"], metadata["uid"]
    downward = downward_api(pod, definition, NODE_ADDRESS, context.allocatable)
    values = environment(definition, lambda kind, one: context.find(kind, namespace, one), downward)
    mounts = volumes.mounts(definition, values)
    container = ContainerSpec(
        pod_uid=uid,
        namespace=namespace,
        pod=metadata["name"],
        name=name,
        attempt=attempt,
        image=definition.get("image", ""),
        command=expanded_command(definition, "command", values),
        arguments=expanded_command(definition, "args", values),
        environment=values,
        working_directory=definition.get("workingDir") or "",
        mounts=(*mounts, *_message_mount(context, uid, definition, attempt, mounts)),
        ports=_ports(definition),
        shared_ports=shared_ports(pod),
        log=log_file(context.directory, uid, name, attempt),
        user=_user(pod, definition),
        grace=grace,
    )
    _check_texts(container)
    return container


def _check_texts(container: ContainerSpec) -> None:
    """JSON strings may contain null characters; arguments of processes must not."""
    texts = {
        "command": container.command or (),
        "args": container.arguments or (),
        "env": container.environment.values(),
        "workingDir": (container.working_directory,),
        "mountPath": [mount.target for mount in container.mounts],
    }
    for name, values in texts.items():
        if any("\0" in text for text in values):
            raise PodConfigError(f"{name} contains a null character")


def _ports(definition: Obj) -> tuple[int, ...]:
    declared = {
        port["containerPort"] for port in definition.get("ports") or () if (port.get("protocol") or "TCP") == "TCP"
    }
    return tuple(sorted(declared | handler_ports(definition)))


def shared_ports(pod: Obj) -> tuple[int, ...] | None:
    """Ports of all containers and sidecars; None if there is only one container."""
    spec = pod["spec"]
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    together = [*sidecars, *spec["containers"]]
    return None if len(together) < 2 else tuple(sorted({port for one in together for port in _ports(one)}))


def _user(pod: Obj, definition: Obj) -> int | None:
    for context in (definition.get("securityContext") or {}, pod["spec"].get("securityContext") or {}):
        if context.get("runAsUser") is not None:
            return int(context["runAsUser"])
    return None


# --- termination message --------------------------------------------------------------------------


def _message_mount(
    context: NodeContext, uid: str, definition: Obj, attempt: int, others: tuple[Mount, ...]
) -> tuple[Mount, ...]:
    target = definition.get("terminationMessagePath") or MESSAGE_PATH
    if any(f"{target}/".startswith(f"{other.target.rstrip('/')}/") for other in others):
        return ()  # the file is in a volume
    path = _message_file(context, uid, definition["name"], attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o666)
    return (Mount(path, target),)


def read_termination_message(context: NodeContext, uid: str, container: str, attempt: int) -> str:
    """The message is deleted."""
    path = _message_file(context, uid, container, attempt)
    try:
        with path.open("rb") as file:
            return file.read(MAX_MESSAGE).decode(errors="replace")
    except OSError:
        return ""
    finally:
        path.unlink(missing_ok=True)


def _message_file(context: NodeContext, uid: str, container: str, attempt: int) -> Path:
    return pods_directory(context.directory) / uid / "messages" / f"{container}-{attempt}"
