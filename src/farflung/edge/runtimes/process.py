"""The process runtime: runs local processes instead of well-known images, and reports that.  It pulls no images.

The processes inherit no environment, have as few privileges as possible, and end with this process.  They are not
isolated, so commands of pods run only with --allow-local-commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from farflung.edge.runtimes import web_servers
from farflung.edge.runtimes.base import (
    Address,
    ContainerExit,
    ContainerSpec,
    ImageError,
    Mount,
    StartedContainer,
    StartError,
)
from farflung.edge.runtimes.images import DOCUMENT_ROOTS, WEB_PORT, StandIn, find_stand_in, is_default_command
from farflung.edge.runtimes.log_files import LogWriter
from farflung.edge.runtimes.supervised_process import CommandSpec, SupervisedProcess, start_supervised
from farflung.edge.runtimes.web_servers import WebServer, WebSite
from farflung.lib.version import __version__

FLAG: Final = "--allow-local-commands"
LOCALHOST: Final = "127.0.0.1"
NOBODY: Final = 65534  #: uid and gid
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  #: PATH of containers
MINIMAL_ENVIRONMENT: Final[Mapping[str, str]] = {"PATH": DEFAULT_PATH}
MAX_OUTPUT: Final = 10 * 1024
ATTEMPTS: Final = 3  #: to find a port that no other process takes first
LISTEN_TIMEOUT: Final = 10.0  #: seconds
POLL_INTERVAL: Final = 0.02  #: seconds
DEFAULT_PAGE: Final = "<html><body><h1>It works!</h1></body></html>\n"


@dataclass(slots=True)
class _Running:
    container: ContainerSpec
    process: SupervisedProcess
    finished: asyncio.Task[ContainerExit]
    root: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Start:
    """A container that is being started."""

    id: str
    container: ContainerSpec
    kind: StandIn
    root: Path
    writer: LogWriter


class ProcessRuntime:
    def __init__(
        self, directory: Path, now: Callable[[], datetime], *, commands: bool = False, search: str | None = None
    ) -> None:
        """`commands`: pods may run commands as the user of this process.  `search`: directories of web servers, as in
        PATH."""
        self._directory = directory
        self._now = now
        self._commands = commands
        self._search = os.environ.get("PATH", os.defpath) if search is None else search
        self._running: dict[str, _Running] = {}
        self._executions: set[SupervisedProcess] = set()  #: commands of probes

    @property
    def name(self) -> str:
        return f"process://{__version__}"

    async def pull(self, image: str, policy: str) -> None:
        self._find_stand_in(image)

    async def start(self, container: ContainerSpec) -> StartedContainer:
        kind = self._find_stand_in(container.image)
        name = f"{container.pod_uid}-{container.name}-{container.attempt}"
        root = self._directory / name / "root"
        start = _Start(f"process://{name}", container, kind, root, LogWriter(container.log, self._now))
        try:
            await asyncio.to_thread(_prepare, root, container)
            return await self._start_stand_in(start)
        except BaseException:
            if start.id not in self._running:
                await asyncio.to_thread(shutil.rmtree, root.parent, ignore_errors=True)
            raise

    async def _start_stand_in(self, start: _Start) -> StartedContainer:
        container = start.container
        is_default = is_default_command(start.kind, container.command, container.arguments)
        if start.kind in DOCUMENT_ROOTS and is_default:
            return await self._serve(start)
        if start.kind is StandIn.PAUSE and is_default:
            await self._run(start, _unprivileged(["sleep", "infinity"]))
            message = f"{container.image} is not run: a process that sleeps stands in for it"
            return StartedContainer(start.id, "process://sleep", {}, message)
        self._check_allowed(container.image)
        command = [*(container.command or ()), *(container.arguments or ())]
        if not command:
            raise StartError("CreateContainerError", f"{container.image} has no command here: the pod must name one")
        environment = {"PATH": DEFAULT_PATH, "HOSTNAME": container.pod, **container.environment}
        await self._run(start, _as_user(command, container.user), environment)
        addresses = {port: Address(LOCALHOST, port) for port in container.ports}
        message = f"{container.image} is not run: its command runs on this machine, without isolation"
        return StartedContainer(start.id, "process://command", addresses, message)

    async def wait(self, id: str) -> ContainerExit:
        running = self._running.get(id)
        if running is None:
            return ContainerExit(137, self._now(), "ContainerStatusUnknown", "the container is unknown")
        return await asyncio.shield(running.finished)

    async def stop(self, id: str, grace: float) -> None:
        running = self._running.get(id)
        if running is None or running.finished.done():
            return
        if grace > 0:
            running.process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await asyncio.shield(running.finished)
        running.process.kill()
        await asyncio.shield(running.finished)

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> tuple[int, bytes]:
        running = self._running.get(id)
        if running is None or running.finished.done():
            return 126, b"the container is not running"
        if not self._commands:
            return 126, f"commands of pods are not run on this machine without {FLAG}".encode()
        output = bytearray()

        def printed(_: str, data: bytes) -> None:
            output.extend(data[: MAX_OUTPUT - len(output)])

        working_directory = path_in_root(running.root, running.container.working_directory or "/")
        execution = await start_supervised(CommandSpec(command, running.environment, working_directory), printed)
        self._executions.add(execution)
        try:
            async with asyncio.timeout(seconds):
                return await execution.wait(), bytes(output)
        finally:
            execution.kill()
            await asyncio.shield(execution.wait())
            self._executions.discard(execution)

    async def remove(self, id: str) -> None:
        running = self._running.pop(id, None)
        if running is not None:
            await self._kill(running)
            await asyncio.to_thread(shutil.rmtree, running.root.parent, ignore_errors=True)

    async def close(self) -> None:
        for execution in self._executions:
            execution.kill()
        await asyncio.gather(*(self._kill(running) for running in self._running.values()))
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        self._running.clear()

    # --- stand-ins --------------------------------------------------------------------------------

    def _find_stand_in(self, image: str) -> StandIn:
        kind = find_stand_in(image)
        if kind is StandIn.SHELL:
            self._check_allowed(image)
        if kind is StandIn.UNKNOWN:
            known = "the process runtime supports httpd, nginx and pause"
            raise ImageError("ErrImagePull", f"{image} cannot be run here: {known}; the podman runtime runs all images")
        return kind

    def _check_allowed(self, image: str) -> None:
        if not self._commands:
            why = f"commands of pods would run on this machine without isolation; {FLAG} allows that"
            raise ImageError("ErrImagePull", f"{image} is not run here: {why}, and the podman runtime isolates them")

    async def _serve(self, start: _Start) -> StartedContainer:
        container, document_root = start.container, DOCUMENT_ROOTS[start.kind]
        has_documents = path_in_root(start.root, document_root).exists()
        documents = ensure_directory(start.root, document_root, container.mounts)
        if not has_documents:
            (documents / "index.html").write_text(DEFAULT_PAGE)
        ports = tuple(sorted({*container.ports, WEB_PORT}))
        program = web_servers.find_web_server(start.kind, self._search)
        if program is not None:
            found = await self._serve_with(program, start, documents, ports)
            if found is not None:
                message = f"{container.image} is not run: {program.name} of this machine stands in for it"
                return StartedContainer(start.id, f"process://{program.name}", found, message)
        listening = [_listening() for _ in ports]
        numbers = [one.fileno() for one in listening]
        allowed = [mount.source for mount in container.mounts if _is_below(mount.target, document_root)]
        command = web_servers.file_server_command(documents, numbers, allowed)
        addresses = {port: _address(one) for port, one in zip(ports, listening, strict=True)}
        try:
            await self._run(start, _unprivileged(command), descriptors=tuple(numbers))
        finally:
            for one in listening:
                one.close()
        message = f"{container.image} is not run: a small web server of Farflung stands in for it"
        return StartedContainer(start.id, "process://farflung-web", addresses, message)

    async def _serve_with(
        self, program: WebServer, start: _Start, documents: Path, ports: Sequence[int]
    ) -> dict[int, Address] | None:
        """None if the server does not start.  If another process takes a port first, retries with other ports."""
        directory, owner = start.root.parent / "server", _owner()
        for _ in range(ATTEMPTS):
            addresses = {port: _free_address() for port in ports}
            site = WebSite(documents, directory, tuple(address.port for address in addresses.values()))
            command = web_servers.command(program, site)
            if owner is not None:
                os.chown(directory, owner, owner)
            running = await self._run(start, _unprivileged(command), owner=owner)
            if await _wait_until_listening(running, list(addresses.values())):
                return addresses
            await self._kill(running)
        return None

    async def _run(
        self,
        start: _Start,
        command: Sequence[str],
        environment: Mapping[str, str] = MINIMAL_ENVIRONMENT,
        *,
        descriptors: tuple[int, ...] = (),
        owner: int | None = None,
    ) -> _Running:
        """Stand-ins do not get the pod's environment variables, which could make them run other code."""
        container, root = start.container, start.root
        working_directory = ensure_directory(root, container.working_directory or "/", container.mounts)
        try:
            spec = CommandSpec(command, environment, working_directory, owner, descriptors)
            process = await start_supervised(spec, start.writer.feed)
        except OSError as error:
            raise StartError("RunContainerError", f"{command[0]}: {error.strerror}") from None
        finished = asyncio.create_task(self._wait_for_exit(process, start.writer), name=start.id)
        running = self._running[start.id] = _Running(container, process, finished, root, environment)
        return running

    async def _wait_for_exit(self, process: SupervisedProcess, writer: LogWriter) -> ContainerExit:
        code = await process.wait()
        writer.close()
        return ContainerExit(code, self._now(), "Completed" if code == 0 else "Error")

    async def _kill(self, running: _Running) -> None:
        running.process.kill()
        await asyncio.shield(running.finished)


def _prepare(root: Path, container: ContainerSpec) -> None:
    """Raises StartError."""
    shutil.rmtree(root.parent, ignore_errors=True)
    root.mkdir(parents=True)
    link_mounts(root, container.mounts)


def _is_below(path: str, directory: str) -> bool:
    return path.rstrip("/") == directory or path.startswith(f"{directory}/")


def _listening() -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.bind((LOCALHOST, 0))
    one.listen(128)
    return one


def _address(one: socket.socket) -> Address:
    host, port = one.getsockname()
    return Address(host, port)


def _free_address() -> Address:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.bind((LOCALHOST, 0))
        return _address(one)


async def _wait_until_listening(running: _Running, addresses: Sequence[Address]) -> bool:
    """Whether it listens on all addresses before it exits and within LISTEN_TIMEOUT."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LISTEN_TIMEOUT):
            for address in addresses:
                while not await _accepts_connections(address):
                    if running.finished.done():
                        return False
                    await asyncio.sleep(POLL_INTERVAL)
            return not running.finished.done()
    return False


async def _accepts_connections(address: Address) -> bool:
    try:
        _, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _owner() -> int | None:
    return NOBODY if os.geteuid() == 0 and _setpriv() else None


def _setpriv() -> str | None:
    return shutil.which("setpriv", path=DEFAULT_PATH)


def _unprivileged(command: Sequence[str]) -> list[str]:
    """As root: run as `nobody` with the capability to read all files, because documents may be in the home of root."""
    setpriv = _setpriv() if os.geteuid() == 0 else None
    if setpriv is None:
        return [*command]
    reads = "-all,+dac_read_search"
    return [
        setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--inh-caps={reads}",
        f"--ambient-caps={reads}", f"--bounding-set={reads}", "--pdeathsig=KILL", "--", *command,
    ]  # fmt: skip


def _as_user(command: Sequence[str], user: int | None) -> list[str]:
    """With runAsUser, which requires root.  Raises StartError."""
    if user is None or user == os.geteuid():
        return [*command]
    setpriv = _setpriv() if os.geteuid() == 0 else None
    if setpriv is None:
        raise StartError("CreateContainerError", f"only root can run a container as user {user}")
    return [
        setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups", "--bounding-set=-all", "--pdeathsig=KILL",
        "--", *command,
    ]  # fmt: skip


def path_in_root(root: Path, path: str) -> Path:
    """The path on this machine of a path in a container; never outside of `root`."""
    return root / posixpath.normpath(f"/{path}").lstrip("/")


def link_mounts(root: Path, mounts: Sequence[Mount]) -> None:
    """Create links for mounts.  Raises StartError for a mount within another mount or at `/`."""
    for mount in sorted(mounts, key=lambda mount: mount.target):
        target = path_in_root(root, mount.target)
        parents = [parent for parent in target.parents if parent.is_relative_to(root)]
        if target == root or target.is_symlink() or any(parent.is_symlink() for parent in parents):
            raise StartError("CreateContainerError", f"{mount.target} is in another mount, which requires podman")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(mount.source)


def ensure_directory(root: Path, path: str, mounts: Sequence[Mount]) -> Path:
    """Create a directory of a container if it does not exist.  Raises StartError in a read-only mount."""
    found = path_in_root(root, path)
    if not found.is_dir() and any(
        found.is_relative_to(path_in_root(root, one.target)) for one in mounts if one.read_only
    ):
        raise StartError("CreateContainerError", f"{path} does not exist, and the mount is read-only")
    found.mkdir(parents=True, exist_ok=True)
    return found
