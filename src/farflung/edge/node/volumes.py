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

from farflung.apis.names import SERVICE_ACCOUNTS
from farflung.client.errors import ClientError
from farflung.edge.node.context import NODE_ADDRESS, NodeContext, wait_for_either
from farflung.edge.node.environment import PodConfigError, downward_api, expand
from farflung.edge.node.volume_files import TokenSpec, VolumeFiles, has_generated_files, requested_tokens, volume_files
from farflung.edge.runtimes.base import Mount
from farflung.machinery.errors import Obj

Warn = Callable[[str, str], None]  #: record a warning Event with reason and message
RENEW_AFTER: Final = 0.8  #: share of its lifetime after which a token is replaced
MAX_AGE: Final = 24 * 3600.0  #: seconds after which a token is replaced in any case
DATA: Final = "..data"
NEXT: Final = "..data_tmp"


class Volumes:
    """The files are in a directory that only this user can enter; their modes are those of the pod."""

    def __init__(self, context: NodeContext, pod: Obj, directory: Path) -> None:
        self._context = context
        self._directory = directory
        self._tokens = PodTokens(context, pod)
        self._written: dict[str, VolumeFiles] = {}
        self._sources: dict[str, Path] = {}

    @property
    def renewal(self) -> float | None:
        """Seconds until a token must be renewed; None without tokens."""
        return self._tokens.renewal

    async def fill(self, pod: Obj) -> None:
        """Write all volumes that changed.  Raises PodConfigError after all other volumes are written, ClientError and
        OSError."""
        volumes = pod["spec"].get("volumes") or ()
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        self._directory.parent.chmod(0o700)
        problems: list[PodConfigError] = []
        await self._tokens.ensure(requested_tokens(volumes))
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
            downward = downward_api(pod, None, NODE_ADDRESS, self._context.allocatable)
            files = volume_files(
                volume, lambda kind, one: self._context.find(kind, namespace, one), downward, self._tokens.get
            )
            if self._written.get(name) != files:
                await asyncio.to_thread(write_files, path, files, self._context.now())
                self._written[name] = files
        elif "emptyDir" in volume:
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o777)
        elif "hostPath" in volume:
            raise PodConfigError("hostPath is not allowed on this node")
        elif "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"].get("claimName", "")
            raise PodConfigError(f'this node has no persistent volumes; the pod waits for "{claim}"')
        else:
            kinds = ", ".join(sorted(set(volume) - {"name"}))
            raise PodConfigError(f"this node does not support volumes of type {kinds}")
        self._sources[name] = path

    def mounts(self, container: Obj, values: Mapping[str, str]) -> tuple[Mount, ...]:
        """The mounts of a container; generated files are read-only.  `values`: its environment.  Raises
        PodConfigError."""
        return tuple(self._mount(wanted, values) for wanted in container.get("volumeMounts") or ())

    def _mount(self, wanted: Obj, values: Mapping[str, str]) -> Mount:
        volume = self._sources.get(wanted["name"])
        if volume is None:
            raise PodConfigError(f'volume "{wanted["name"]}" does not exist')
        inside = wanted.get("subPath") or expand(wanted.get("subPathExpr") or "", values)
        source = self._sub_path(volume, inside, wanted["name"]) if inside else volume
        return Mount(source, wanted["mountPath"], bool(wanted.get("readOnly")) or wanted["name"] in self._written)

    def _sub_path(self, volume: Path, inside: str, name: str) -> Path:
        """Resolve a subPath, which must not leave the volume."""
        path = volume / inside
        outside = inside.startswith("/") or ".." in Path(inside).parts or "\0" in inside
        if outside or not path.resolve().is_relative_to(volume.resolve()):
            raise PodConfigError(f'failed to prepare subPath for volumeMount "{name}" : it is outside of the volume')
        if not path.exists():
            if name in self._written:
                raise PodConfigError(f'failed to prepare subPath for volumeMount "{name}" : it does not exist')
            path.mkdir(parents=True)
            path.chmod(0o777)
        return path

    async def remove(self) -> None:
        self._written.clear()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)


class VolumeManager:
    """Writes the volumes of a pod, and again when the pod or an object that they show changes."""

    def __init__(self, context: NodeContext, volumes: Volumes, pod: Callable[[], Obj], warn: Warn) -> None:
        self.ready = asyncio.Event()  #: all volumes were written once
        self._context = context
        self._volumes = volumes
        self._pod = pod
        self._warn = warn
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        failures = 0
        while True:
            self._changed.clear()
            retry_after = None
            try:
                await self._volumes.fill(self._pod())
                failures = 0
                self.ready.set()
                retry_after = self._volumes.renewal
            except PodConfigError as error:
                self._warn("FailedMount", str(error))
            except ClientError as error:
                failures += 1
                self._warn("FailedMount", f"MountVolume.SetUp failed : {error}")
                retry_after = self._context.env.backoff.delay(failures, error.retry_after)
            except OSError as error:
                failures += 1
                self._warn("FailedMount", f"MountVolume.SetUp failed : {error.strerror}")
                retry_after = self._context.env.backoff.delay(failures)
            if retry_after is None:
                await self._changed.wait()
            else:
                await wait_for_either(self._changed, self._context.env.sleep(retry_after))


@dataclass(frozen=True, slots=True)
class _Issued:
    token: str
    renew: float  #: monotonic time


class PodTokens:
    """ServiceAccount tokens of one pod: bound to it, and renewed before they expire."""

    def __init__(self, context: NodeContext, pod: Obj) -> None:
        self._context = context
        self._metadata = pod["metadata"]
        self._account = pod["spec"].get("serviceAccountName") or "default"
        self._issued: dict[TokenSpec, _Issued] = {}

    async def ensure(self, wanted: Iterable[TokenSpec]) -> None:
        """Request missing and old tokens.  Raises ClientError."""
        now = self._context.env.monotonic()
        for one in sorted(wanted, key=lambda one: (one.audience, one.seconds)):
            issued = self._issued.get(one)
            if issued is None or now >= issued.renew:
                token = await self._request(one)
                self._issued[one] = _Issued(token, now + min(one.seconds * RENEW_AFTER, MAX_AGE))

    def get(self, wanted: TokenSpec) -> str:
        issued = self._issued.get(wanted)
        if issued is None:
            raise PodConfigError("the token is not available yet")
        return issued.token

    @property
    def renewal(self) -> float | None:
        """Seconds until the next renewal; None without tokens."""
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
        answer = await self._context.client.create(SERVICE_ACCOUNTS, request, metadata["namespace"], "token")
        token: str = answer["status"]["token"]
        return token


# --- atomic writes --------------------------------------------------------------------------------


def write_files(directory: Path, files: VolumeFiles, moment: datetime) -> None:
    """Replace the content of a volume atomically: a reader sees all old files or all new ones.  Raises OSError; the
    volume is unchanged then.

    ..2026_11_16_06_30_00.k3j2/    the files
    ..data                         a link to that directory, replaced atomically
    index.html                     a link to ..data/index.html
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    stamp = moment.strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=directory))
    try:
        _write_all(fresh, files)
        _replace_link(directory, fresh.name)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _link(directory, {path.partition("/")[0] for path in files})
    for entry in directory.iterdir():
        if entry.name.startswith("..") and entry.name not in (DATA, fresh.name):
            shutil.rmtree(entry, ignore_errors=True)


def _write_all(fresh: Path, files: VolumeFiles) -> None:
    fresh.chmod(0o755)
    for path, file in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(file.content)
            os.fchmod(descriptor, file.mode & 0o777)


def _replace_link(directory: Path, name: str) -> None:
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
            if entry.is_dir() and not entry.is_symlink():  # created by a container
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()
