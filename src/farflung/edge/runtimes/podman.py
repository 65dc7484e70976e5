"""Containers run by podman, through its command line: as root or not, with no daemon and no socket.

podman keeps containers apart from us.  What is ours carries a label of the edge and one of this instance of its
process; nothing else is touched.  What an earlier instance left is removed at the start, and a guard removes what is
ours when we end without being able to.

How a container ends we hear from the process that podman starts to mind it, by waiting for that: no process of ours
for each container, and no asking again and again.
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

from farflung.edge.runtimes import marked_processes
from farflung.edge.runtimes import podman_arguments as words
from farflung.edge.runtimes.base import Address, ContainerExit, ContainerSpec, ImageError, StartedContainer, StartError
from farflung.edge.runtimes.images import qualified_name, repository
from farflung.edge.runtimes.podman_arguments import InstanceIdentity
from farflung.edge.runtimes.podman_calls import PodmanGuard, PodmanResult, run_podman, run_podman_truncated
from farflung.edge.runtimes.podman_output import InspectedContainer, inspected, last_line
from farflung.lib.klog import Logger

SCHEME: Final = "podman://"
MOST_OUTPUT: Final = 10 * 1024  #: bytes of a command that is run beside a container
STARTS_AT_ONCE: Final = 4  #: each takes two processes of some 40 MB for a moment
ALLOWANCE: Final = 2.0  #: seconds that podman itself may take to run a command in a container
PAUSE: Final = 1.0  #: seconds before podman is asked again what it could not say
KILLED: Final = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class _Known:
    """A container that was started here."""

    container: ContainerSpec
    secrets: tuple[str, ...]
    minder: int | None  #: descriptor of the process that minds it; None if that was gone already, or Linux is too old


class Podman:
    """Made by `open`; `close` it."""

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
        self._known: dict[str, _Known] = {}
        self._starting = asyncio.Semaphore(STARTS_AT_ONCE)
        self._pulling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._executed = 0

    @classmethod
    async def open(
        cls, program: str, version: str, directory: Path, instance: str, now: Callable[[], datetime], log: Logger
    ) -> Podman:
        """Of the edge in `directory`, which no other process may be running.  `instance` is unlike that of any other
        time."""
        identity = InstanceIdentity.of(directory, instance)
        left = await remove_edge_containers(program, identity)
        if left:
            log.info("removed containers of an earlier run", containers=left)
        guard = await PodmanGuard.post(program, identity)
        return cls(program, version, identity, guard, now, log)

    @property
    def name(self) -> str:
        return f"{SCHEME}{self._version}"

    # --- images -------------------------------------------------------------------------------------------------------

    async def pull(self, image: str, policy: str) -> None:
        name = qualified_name(image)
        async with self._pulling.setdefault(name, asyncio.Lock()):
            if policy != "Always" and (await self._ask("image", "exists", name)).worked:
                return
            if policy == "Never":
                raise ImageError(
                    "ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never'
                )
            answer = await self._ask("pull", "--quiet", name)
            if not answer.worked:
                raise ImageError("ErrImagePull", last_line(answer.errors))

    # --- containers ---------------------------------------------------------------------------------------------------

    async def start(self, container: ContainerSpec) -> StartedContainer:
        image = qualified_name(container.image)
        variables = words.variables(container.environment)
        secrets = words.secret_names(self._identity.name(container), variables)
        arguments = words.run(container, self._identity, image, secrets)
        container.log.parent.mkdir(parents=True, exist_ok=True)
        async with self._starting:
            try:
                for variable, secret in secrets.items():
                    await self._keep(secret, variables.secrets[variable])
                await self._networks.join(container)
                found = await self._run(arguments, variables.lines)
            except BaseException:
                await asyncio.shield(self._discard(container, tuple(secrets.values())))
                raise
        self._known[found.id] = _Known(container, tuple(secrets.values()), _minder(found))
        return StartedContainer(
            f"{SCHEME}{found.id}", f"{repository(image)}@{found.image_digest}", _own(found, container)
        )

    async def _keep(self, secret: str, value: str) -> None:
        answer = await self._ask("secret", "create", secret, words.GIVEN, given=value.encode())
        if not answer.worked:
            raise StartError("CreateContainerConfigError", last_line(answer.errors))

    async def _run(self, arguments: Sequence[str], lines: str) -> InspectedContainer:
        answer = await self._ask(*arguments, given=lines.encode())
        if not answer.worked:
            ran = answer.code in (words.NOT_FOUND, words.NOT_RUN)
            raise StartError("RunContainerError" if ran else "CreateContainerError", last_line(answer.errors))
        found = await self._inspect(answer.output.decode().strip())
        if found is None:
            raise StartError("RunContainerError", "the container was removed when it had hardly been started")
        return found

    async def wait(self, id: str) -> ContainerExit:
        container_id = id.removeprefix(SCHEME)
        known = self._known.get(container_id)
        if known is not None and known.minder is not None:
            await _readable(known.minder)
        while True:
            found = await self._inspect(container_id)
            if found is not None and found.over:
                return found.finished
            if found is None and await self._is_gone(container_id):
                return ContainerExit(KILLED, self._now(), "Error", "the container was removed by somebody else")
            if not (await self._ask("wait", container_id)).worked:
                await asyncio.sleep(PAUSE)

    async def stop(self, id: str, grace: float) -> None:
        container_id = id.removeprefix(SCHEME)
        answer = await self._ask(*words.stop(container_id, grace))
        if not answer.worked:
            self._log.warning(
                "podman could not stop a container", container=container_id, reason=last_line(answer.errors)
            )
            await self._ask("kill", container_id)

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> tuple[int, bytes]:
        self._executed += 1
        mark = f"FARFLUNG_EXECUTED={self._identity.instance}-{self._executed}"
        try:
            async with asyncio.timeout(seconds + ALLOWANCE):
                arguments = words.execute(id.removeprefix(SCHEME), mark, command)
                return await run_podman_truncated(self._program, arguments, MOST_OUTPUT)
        except (TimeoutError, asyncio.CancelledError):
            await asyncio.shield(self._kill(mark))
            raise

    async def _kill(self, mark: str) -> None:
        if os.geteuid() == 0:
            marked_processes.kill(mark)
        else:
            await self._ask("unshare", sys.executable, "-I", marked_processes.__file__, mark)

    async def remove(self, id: str) -> None:
        known = self._known.pop(id.removeprefix(SCHEME), None)
        if known is None:
            await self._ask(*words.remove([id.removeprefix(SCHEME)]))
            return
        if known.minder is not None:
            os.close(known.minder)
        await self._discard(known.container, known.secrets)

    async def _discard(self, container: ContainerSpec, secrets: Sequence[str]) -> None:
        await self._ask(*words.remove([self._identity.name(container)]))
        await self._networks.leave(container)
        if secrets:
            await self._ask("secret", "rm", *secrets)

    async def close(self) -> None:
        await remove_edge_containers(self._program, self._identity)
        await self._guard.dismiss()
        for known in self._known.values():
            if known.minder is not None:
                os.close(known.minder)
        self._known.clear()

    # --- podman -------------------------------------------------------------------------------------------------------

    async def _ask(self, *arguments: str, given: bytes = b"") -> PodmanResult:
        return await run_podman(self._program, arguments, given)

    async def _inspect(self, container_id: str) -> InspectedContainer | None:
        """None if podman cannot tell."""
        answer = await self._ask("container", "inspect", container_id)
        return inspected(answer.output) if answer.worked else None

    async def _is_gone(self, container_id: str) -> bool:
        return (await self._ask("container", "exists", container_id)).code == words.NOT_THERE


async def remove_edge_containers(program: str, identity: InstanceIdentity) -> int:
    """Everything of an edge, whichever of its instances it is of.  How many containers and pods there were."""
    pods = (await run_podman(program, words.pods_of(identity.edge_filter))).output.decode().split()
    if pods:
        await run_podman(program, words.remove_pods(pods))
    found = (await run_podman(program, words.all_of(identity.edge_filter))).output.decode().split()
    if found:
        await run_podman(program, words.remove(found))
    names = (await run_podman(program, ("secret", "ls", "--format={{.Name}}"))).output.decode().split()
    secrets = [name for name in names if name.startswith(identity.edge_prefix)]
    if secrets:
        await run_podman(program, ("secret", "rm", *secrets))
    return len(pods) + len(found)


def _own(found: InspectedContainer, container: ContainerSpec) -> dict[int, Address]:
    """Without the addresses of those that it shares a network with."""
    return {port: address for port, address in found.addresses.items() if port in container.ports}


def _minder(found: InspectedContainer) -> int | None:
    """A descriptor of the process that minds a container, which is readable when that ends."""
    minder = found.state.conmon_pid
    if not minder:
        return None
    try:
        descriptor = os.pidfd_open(minder)
    except OSError:
        return None
    if found.id.encode() in _command_line(minder):
        return descriptor
    os.close(descriptor)
    return None


async def _readable(descriptor: int) -> None:
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
    """Nothing if it is gone."""
    try:
        return Path("/proc", str(process), "cmdline").read_bytes()
    except OSError:
        return b""


class PodNetworks:
    def __init__(self, program: str, identity: InstanceIdentity) -> None:
        self._program = program
        self._identity = identity
        self._members: dict[str, set[str]] = {}  #: names of containers, by the name of their pod
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def join(self, container: ContainerSpec) -> None:
        """The first makes it.  Nothing to do for a container that is alone.  Raises StartError."""
        if container.shared_ports is None:
            return
        pod = self._identity.pod_name(container)
        async with self._changing.setdefault(pod, asyncio.Lock()):
            if pod not in self._members:
                answer = await run_podman(self._program, words.create_pod(container, self._identity))
                if not answer.worked:
                    raise StartError("CreateContainerError", last_line(answer.errors))
            self._members.setdefault(pod, set()).add(self._identity.name(container))

    async def leave(self, container: ContainerSpec) -> None:
        """When the container is removed.  The last takes it away."""
        pod = self._identity.pod_name(container)
        async with self._changing.setdefault(pod, asyncio.Lock()):
            members = self._members.get(pod, set())
            members.discard(self._identity.name(container))
            if not members and self._members.pop(pod, None) is not None:
                await run_podman(self._program, words.remove_pods([pod]))
