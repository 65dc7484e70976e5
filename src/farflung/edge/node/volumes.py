"""The volumes of one pod, on disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from farflung.apis.names import Collection
from farflung.client.errors import ClientError
from farflung.edge.node import volumes
from farflung.edge.node.context import NodeContext, wait_for_either
from farflung.edge.node.environment import PodConfigError, downward, expand
from farflung.edge.node.volume_files import TokenSpec, VolumeFiles, has_generated_files, requested_tokens, volume_files
from farflung.edge.runtimes.base import Mount
from farflung.machinery.errors import Obj

#: how hostPath is checked: whether it has to be there, as what, and whether it is made
HOST_PATHS: Final = {
    "": None,
    "Directory": Path.is_dir,
    "DirectoryOrCreate": Path.is_dir,
    "File": Path.is_file,
    "FileOrCreate": Path.is_file,
    "Socket": Path.is_socket,
    "CharDevice": Path.is_char_device,
    "BlockDevice": Path.is_block_device,
}
Warn = Callable[[str, str], None]  #: by a reason and a message
ACCOUNTS: Final = Collection("", "v1", "serviceaccounts", "ServiceAccount")
FRESH: Final = 0.8  #: of its life, after which a token is replaced
LONGEST: Final = 24 * 3600.0  #: seconds, after which it is at any rate
DATA: Final = "..data"
NEXT: Final = "..data_tmp"


class Volumes:
    """They are below a directory that nobody else can look into, and as readable in there as the pod wants it."""

    def __init__(self, context: NodeContext, pod: Obj, directory: Path) -> None:
        self._context = context
        self._directory = directory
        self._tokens = PodTokens(context, pod)
        self._written: dict[str, VolumeFiles] = {}
        self._sources: dict[str, Path] = {}

    @property
    def renewal(self) -> float | None:
        """Seconds until something has to be looked at again, even if nothing changes."""
        return self._tokens.renewal

    async def fill(self, pod: Obj) -> None:
        """Make all of them as they should be now; nothing is written that is so already.  Raises Unavailable, with the
        others as they should be, and ClientError and OSError."""
        volumes = pod["spec"].get("volumes") or ()
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        self._directory.parent.chmod(0o700)
        problems: list[PodConfigError] = []
        await self._tokens.have(requested_tokens(volumes))
        for volume in volumes:
            try:
                await self._fill(pod, volume)
            except PodConfigError as error:
                problems.append(PodConfigError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'))
        if problems:
            raise problems[0]

    async def _fill(self, pod: Obj, volume: Obj) -> None:
        name = volume["name"]
        path = self._directory / name
        if has_generated_files(volume):
            namespace = pod["metadata"]["namespace"]
            about = downward(pod, None, self._context.address, self._context.allocatable)
            files = volume_files(
                volume, lambda kind, one: self._context.find(kind, namespace, one), about, self._tokens.get
            )
            if self._written.get(name) != files:
                await asyncio.to_thread(volumes.write, path, files, self._context.now())
                self._written[name] = files
        elif "emptyDir" in volume:
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o777)
        elif "hostPath" in volume:
            path = self._host_path(volume["hostPath"])
        elif "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"].get("claimName", "")
            raise PodConfigError(f'this node has no persistent volumes, so it waits for "{claim}"')
        else:
            kinds = ", ".join(sorted(set(volume) - {"name"}))
            raise PodConfigError(f"this node does not know volumes of {kinds}")
        self._sources[name] = path

    def _host_path(self, wanted: Obj) -> Path:
        if not self._context.host_paths:
            raise PodConfigError("hostPath is not allowed on this node")
        path, type = Path(wanted.get("path", "/")), wanted.get("type") or ""
        if type == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif type == "FileOrCreate":
            path.touch(exist_ok=True)
        check = HOST_PATHS.get(type, None)
        if check is not None and not check(path):
            raise PodConfigError(f"hostPath type check failed: {path} is not a {type.lower()}")
        return path

    def mounts(self, container: Obj, values: Mapping[str, str]) -> tuple[Mount, ...]:
        """What a container sees of them; what is made of objects is not its to change.  `values`: its environment.
        Raises Unavailable."""
        return tuple(self._mount(wanted, values) for wanted in container.get("volumeMounts") or ())

    def _mount(self, wanted: Obj, values: Mapping[str, str]) -> Mount:
        volume = self._sources.get(wanted["name"])
        if volume is None:
            raise PodConfigError(f'volume "{wanted["name"]}" is not there')
        inside = wanted.get("subPath") or expand(wanted.get("subPathExpr") or "", values)
        source = self._within(volume, inside, wanted["name"]) if inside else volume
        return Mount(source, wanted["mountPath"], bool(wanted.get("readOnly")) or wanted["name"] in self._written)

    def _within(self, volume: Path, inside: str, name: str) -> Path:
        """A part of a volume, which no link leads out of."""
        path = volume / inside
        outside = inside.startswith("/") or ".." in Path(inside).parts or "\0" in inside
        if outside or not path.resolve().is_relative_to(volume.resolve()):
            raise PodConfigError(f'failed to prepare subPath for volumeMount "{name}" : it leads out of the volume')
        if not path.exists():
            if name in self._written:
                raise PodConfigError(f'failed to prepare subPath for volumeMount "{name}" : it is not in the volume')
            path.mkdir(parents=True)
            path.chmod(0o777)
        return path

    async def remove(self) -> None:
        self._written.clear()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)


class VolumeManager:
    """Filled once, they change with what they are made of; what is not there any more stays as it was."""

    def __init__(self, context: NodeContext, volumes: Volumes, pod: Callable[[], Obj], warn: Warn) -> None:
        self.ready = asyncio.Event()  #: all of them were there
        self._context = context
        self._volumes = volumes
        self._pod = pod
        self._warn = warn
        self._news = asyncio.Event()

    def notify(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            self._news.clear()
            again = None
            try:
                await self._volumes.fill(self._pod())
                failures = 0
                self.ready.set()
                again = self._volumes.renewal
            except PodConfigError as error:
                self._warn("FailedMount", str(error))
            except ClientError as error:
                failures += 1
                self._warn("FailedMount", f"MountVolume.SetUp failed : {error}")
                again = self._context.env.backoff.delay(failures, error.retry_after)
            except OSError as error:
                failures += 1
                self._warn("FailedMount", f"MountVolume.SetUp failed : {error.strerror}")
                again = self._context.env.backoff.delay(failures)
            if again is None:
                await self._news.wait()
            else:
                await wait_for_either(self._news, self._context.env.sleep(again))


@dataclass(frozen=True, slots=True)
class _Issued:
    token: str
    renew: float  #: when, on the monotonic clock


class PodTokens:
    """Those of one pod: bound to it, and replaced before they end."""

    def __init__(self, context: NodeContext, pod: Obj) -> None:
        self._context = context
        self._metadata = pod["metadata"]
        self._account = pod["spec"].get("serviceAccountName") or "default"
        self._issued: dict[TokenSpec, _Issued] = {}

    async def have(self, wanted: Iterable[TokenSpec]) -> None:
        """All of them, and none of them too old.  Raises ClientError."""
        now = self._context.env.monotonic()
        for one in sorted(wanted, key=lambda one: (one.audience, one.seconds)):
            issued = self._issued.get(one)
            if issued is None or now >= issued.renew:
                token = await self._request(one)
                self._issued[one] = _Issued(token, now + min(one.seconds * FRESH, LONGEST))

    def get(self, wanted: TokenSpec) -> str:
        issued = self._issued.get(wanted)
        if issued is None:
            raise PodConfigError("there is no token yet")
        return issued.token

    @property
    def renewal(self) -> float | None:
        """Seconds until one of them has to be replaced."""
        moments = [issued.renew for issued in self._issued.values()]
        return max(0.0, min(moments) - self._context.env.monotonic()) if moments else None

    async def _request(self, wanted: TokenSpec) -> str:
        metadata = self._metadata
        spec: Obj = {
            "expirationSeconds": wanted.seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
        }
        if wanted.audience:
            spec["audiences"] = [wanted.audience]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": self._account, "namespace": metadata["namespace"]},
            "spec": spec,
        }
        answer = await self._context.client.create(ACCOUNTS, request, metadata["namespace"], "token")
        token: str = answer["status"]["token"]
        return token


def write(directory: Path, volume_files: VolumeFiles, moment: datetime) -> None:
    """Make the volume have exactly these files.  Raises OSError; then it is as it was before."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    stamp = moment.strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=directory))
    try:
        _fill(fresh, volume_files)
        _point(directory, fresh.name)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _link(directory, {path.partition("/")[0] for path in volume_files})
    for entry in directory.iterdir():
        if entry.name.startswith("..") and entry.name not in (DATA, fresh.name):
            shutil.rmtree(entry, ignore_errors=True)


def _fill(fresh: Path, volume_files: VolumeFiles) -> None:
    fresh.chmod(0o755)
    for path, file in volume_files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
            os.fchmod(descriptor, file.mode & 0o777)


def _point(directory: Path, name: str) -> None:
    upcoming = directory / NEXT
    upcoming.unlink(missing_ok=True)
    upcoming.symlink_to(name)
    upcoming.replace(directory / DATA)


def _link(directory: Path, names: set[str]) -> None:
    for name in sorted(names):
        with suppress(FileExistsError):
            (directory / name).symlink_to(f"{DATA}/{name}")
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            if entry.is_dir() and not entry.is_symlink():  # made by a container
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
