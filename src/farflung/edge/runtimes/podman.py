"""The podman runtime: runs containers with podman's command line, as root or rootless, without a daemon.

Containers of an edge have a label of the edge and a label of this instance of its process; other containers are never
touched.  The runtime removes containers of earlier instances at the start.  If it is killed, a guard process removes
its containers.

The runtime learns of a container's exit by waiting for conmon, podman's monitor process, without polling.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from farflung.edge.runtimes import marked_processes, podman_arguments
from farflung.edge.runtimes.base import Address, ContainerExit, ContainerSpec, ImageError, StartedContainer, StartError
from farflung.edge.runtimes.images import qualified_name, repository
from farflung.edge.runtimes.podman_arguments import InstanceIdentity
from farflung.edge.runtimes.podman_calls import PodmanGuard, PodmanResult, run_podman, run_podman_truncated
from farflung.edge.runtimes.podman_output import InspectedContainer, inspected, last_line
from farflung.lib.klog import Logger

SCHEME: Final = "podman://"
MAX_OUTPUT: Final = 10 * 1024  #: bytes of the output of an exec
MAX_CONCURRENT_STARTS: Final = 4  #: each start needs two processes of about 40 MB
EXEC_OVERHEAD: Final = 2.0  #: seconds that podman itself may take for an exec
RETRY_DELAY: Final = 1.0  #: seconds after a failed `podman wait`
KILLED: Final = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class _RunningContainer:
    """A container of this instance."""

    container: ContainerSpec
    secrets: tuple[str, ...]
    conmon: int | None  #: pidfd of its conmon; None if that has ended or Linux is too old


class Podman:
    """Created by `open`."""

    def __init__(
        self,
        program: str,
        version: str,
        identity: InstanceIdentity,
        guard: PodmanGuard,
        now: Callable[[], datetime],
        log: Logger,
    ) -> None:
        self._program = program
        self._version = version
        self._identity = identity
        self._guard = guard
        self._now = now
        self._log = log
        self._networks = PodNetworks(program, identity)
        self._containers: dict[str, _RunningContainer] = {}
        self._starting = asyncio.Semaphore(MAX_CONCURRENT_STARTS)
        self._pulling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._executed = 0

    @classmethod
    async def open(
        cls, program: str, version: str, directory: Path, instance: str, now: Callable[[], datetime], log: Logger
    ) -> Podman:
        """`directory`: the runtime directory of the edge, which no other process uses.  `instance`: a unique name."""
        identity = InstanceIdentity.of(directory, instance)
        left = await remove_edge_containers(program, identity)
        if left:
            log.info("removed containers of an earlier run", containers=left)
        guard = await PodmanGuard.start(program, identity)
        return cls(program, version, identity, guard, now, log)

    @property
    def name(self) -> str:
        return f"{SCHEME}{self._version}"

    # --- images -------------------------------------------------------------------------------------------------------

    async def pull(self, image: str, policy: str) -> None:
        name = qualified_name(image)
        async with self._pulling.setdefault(name, asyncio.Lock()):
            if policy != "Always" and (await self._podman("image", "exists", name)).succeeded:
                return
            if policy == "Never":
                raise ImageError(
                    "ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never'
                )
            result = await self._podman("pull", "--quiet", name)
            if not result.succeeded:
                raise ImageError("ErrImagePull", last_line(result.errors))

    # --- containers ---------------------------------------------------------------------------------------------------

    async def start(self, container: ContainerSpec) -> StartedContainer:
        image = qualified_name(container.image)
        variables = podman_arguments.variables(container.environment)
        secrets = podman_arguments.secret_names(self._identity.name(container), variables)
        arguments = podman_arguments.run(container, self._identity, image, secrets)
        container.log.parent.mkdir(parents=True, exist_ok=True)
        async with self._starting:
            try:
                for variable, secret in secrets.items():
                    await self._create_secret(secret, variables.secrets[variable])
                await self._networks.join(container)
                found = await self._run(arguments, variables.lines)
            except BaseException:
                await asyncio.shield(self._discard(container, tuple(secrets.values())))
                raise
        self._containers[found.id] = _RunningContainer(container, tuple(secrets.values()), _open_conmon(found))
        return StartedContainer(
            f"{SCHEME}{found.id}", f"{repository(image)}@{found.image_digest}", _own_addresses(found, container)
        )

    async def _create_secret(self, secret: str, value: str) -> None:
        result = await self._podman("secret", "create", secret, podman_arguments.STDIN, stdin=value.encode())
        if not result.succeeded:
            raise StartError("CreateContainerConfigError", last_line(result.errors))

    async def _run(self, arguments: Sequence[str], lines: str) -> InspectedContainer:
        result = await self._podman(*arguments, stdin=lines.encode())
        if not result.succeeded:
            ran = result.code in (podman_arguments.NOT_FOUND, podman_arguments.NOT_RUN)
            raise StartError("RunContainerError" if ran else "CreateContainerError", last_line(result.errors))
        found = await self._inspect(result.output.decode().strip())
        if found is None:
            raise StartError("RunContainerError", "the container was removed right after its start")
        return found

    async def wait(self, id: str) -> ContainerExit:
        container_id = id.removeprefix(SCHEME)
        known = self._containers.get(container_id)
        if known is not None and known.conmon is not None:
            await _wait_readable(known.conmon)
        while True:
            found = await self._inspect(container_id)
            if found is not None and found.exited:
                return found.finished
            if found is None and await self._does_not_exist(container_id):
                return ContainerExit(KILLED, self._now(), "Error", "the container was removed by another program")
            if not (await self._podman("wait", container_id)).succeeded:
                await asyncio.sleep(RETRY_DELAY)

    async def stop(self, id: str, grace: float) -> None:
        container_id = id.removeprefix(SCHEME)
        result = await self._podman(*podman_arguments.stop(container_id, grace))
        if not result.succeeded:
            self._log.warning("podman cannot stop a container", container=container_id, reason=last_line(result.errors))
            await self._podman("kill", container_id)

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> tuple[int, bytes]:
        self._executed += 1
        mark = f"FARFLUNG_EXECUTED={self._identity.instance}-{self._executed}"
        try:
            async with asyncio.timeout(seconds + EXEC_OVERHEAD):
                arguments = podman_arguments.execute(id.removeprefix(SCHEME), mark, command)
                return await run_podman_truncated(self._program, arguments, MAX_OUTPUT)
        except (TimeoutError, asyncio.CancelledError):
            await asyncio.shield(self._kill(mark))
            raise

    async def _kill(self, mark: str) -> None:
        if os.geteuid() == 0:
            marked_processes.kill(mark)
        else:
            await self._podman("unshare", sys.executable, "-I", marked_processes.__file__, mark)

    async def remove(self, id: str) -> None:
        known = self._containers.pop(id.removeprefix(SCHEME), None)
        if known is None:
            await self._podman(*podman_arguments.remove([id.removeprefix(SCHEME)]))
            return
        if known.conmon is not None:
            os.close(known.conmon)
        await self._discard(known.container, known.secrets)

    async def _discard(self, container: ContainerSpec, secrets: Sequence[str]) -> None:
        await self._podman(*podman_arguments.remove([self._identity.name(container)]))
        await self._networks.leave(container)
        if secrets:
            await self._podman("secret", "rm", *secrets)

    async def close(self) -> None:
        await remove_edge_containers(self._program, self._identity)
        await self._guard.dismiss()
        for known in self._containers.values():
            if known.conmon is not None:
                os.close(known.conmon)
        self._containers.clear()

    # --- podman -------------------------------------------------------------------------------------------------------

    async def _podman(self, *arguments: str, stdin: bytes = b"") -> PodmanResult:
        return await run_podman(self._program, arguments, stdin)

    async def _inspect(self, container_id: str) -> InspectedContainer | None:
        """None if podman fails."""
        result = await self._podman("container", "inspect", container_id)
        return inspected(result.output) if result.succeeded else None

    async def _does_not_exist(self, container_id: str) -> bool:
        return (await self._podman("container", "exists", container_id)).code == podman_arguments.DOES_NOT_EXIST


async def remove_edge_containers(program: str, identity: InstanceIdentity) -> int:
    """Remove pods, containers and secrets of all instances of an edge.  Returns the number of pods and containers."""
    pods = (await run_podman(program, podman_arguments.pods_of(identity.edge_filter))).output.decode().split()
    if pods:
        await run_podman(program, podman_arguments.remove_pods(pods))
    found = (await run_podman(program, podman_arguments.all_of(identity.edge_filter))).output.decode().split()
    if found:
        await run_podman(program, podman_arguments.remove(found))
    names = (await run_podman(program, ("secret", "ls", "--format={{.Name}}"))).output.decode().split()
    secrets = [name for name in names if name.startswith(identity.edge_prefix)]
    if secrets:
        await run_podman(program, ("secret", "rm", *secrets))
    return len(pods) + len(found)


def _own_addresses(found: InspectedContainer, container: ContainerSpec) -> dict[int, Address]:
    """Without the ports of other containers of its pod."""
    return {port: address for port, address in found.addresses.items() if port in container.ports}


def _open_conmon(found: InspectedContainer) -> int | None:
    """A pidfd of conmon, which becomes readable when conmon ends."""
    conmon = found.state.conmon_pid
    if not conmon:
        return None
    try:
        descriptor = os.pidfd_open(conmon)
    except OSError:
        return None
    if found.id.encode() in _command_line(conmon):
        return descriptor
    os.close(descriptor)
    return None


async def _wait_readable(descriptor: int) -> None:
    own = os.dup(descriptor)
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(own, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(own)
        os.close(own)


def _command_line(process: int) -> bytes:
    """Empty if the process has ended."""
    try:
        return Path("/proc", str(process), "cmdline").read_bytes()
    except OSError:
        return b""


class PodNetworks:
    """Networks that the containers of a pod share.  A podman pod holds each, so that it outlives single containers."""

    def __init__(self, program: str, identity: InstanceIdentity) -> None:
        self._program = program
        self._identity = identity
        self._members: dict[str, set[str]] = {}  #: names of containers, by the name of their pod
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def join(self, container: ContainerSpec) -> None:
        """The first container of a pod creates the network; a single container needs none.  Raises StartError."""
        if container.shared_ports is None:
            return
        pod = self._identity.pod_name(container)
        async with self._changing.setdefault(pod, asyncio.Lock()):
            if pod not in self._members:
                result = await run_podman(self._program, podman_arguments.create_pod(container, self._identity))
                if not result.succeeded:
                    raise StartError("CreateContainerError", last_line(result.errors))
            self._members.setdefault(pod, set()).add(self._identity.name(container))

    async def leave(self, container: ContainerSpec) -> None:
        """Called when a container is removed.  The last one removes the network."""
        pod = self._identity.pod_name(container)
        async with self._changing.setdefault(pod, asyncio.Lock()):
            members = self._members.get(pod, set())
            members.discard(self._identity.name(container))
            if not members and self._members.pop(pod, None) is not None:
                await run_podman(self._program, podman_arguments.remove_pods([pod]))
