"""The volumes of one pod, on disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from farflung.edge.node import atomic
from farflung.edge.node.downward import downward
from farflung.edge.node.environment import Unavailable, expanded
from farflung.edge.node.payloads import Payload, is_made_of_objects, payload, tokens_wanted
from farflung.edge.node.place import Place
from farflung.edge.node.tokens import Tokens
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


class Volumes:
    """They are below a directory that nobody else can look into, and as readable in there as the pod wants it."""

    def __init__(self, place: Place, pod: Obj, directory: Path) -> None:
        self._place = place
        self._directory = directory
        self._tokens = Tokens(place, pod)
        self._written: dict[str, Payload] = {}
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
        problems: list[Unavailable] = []
        await self._tokens.have(tokens_wanted(volumes))
        for volume in volumes:
            try:
                await self._fill(pod, volume)
            except Unavailable as error:
                problems.append(Unavailable(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'))
        if problems:
            raise problems[0]

    async def _fill(self, pod: Obj, volume: Obj) -> None:
        name = volume["name"]
        path = self._directory / name
        if is_made_of_objects(volume):
            namespace = pod["metadata"]["namespace"]
            about = downward(pod, None, self._place.address, self._place.allocatable)
            files = payload(volume, lambda kind, one: self._place.find(kind, namespace, one), about, self._tokens.get)
            if self._written.get(name) != files:
                await asyncio.to_thread(atomic.write, path, files, self._place.now())
                self._written[name] = files
        elif "emptyDir" in volume:
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o777)
        elif "hostPath" in volume:
            path = self._host_path(volume["hostPath"])
        elif "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"].get("claimName", "")
            raise Unavailable(f'this node has no persistent volumes, so it waits for "{claim}"')
        else:
            kinds = ", ".join(sorted(set(volume) - {"name"}))
            raise Unavailable(f"this node does not know volumes of {kinds}")
        self._sources[name] = path

    def _host_path(self, wanted: Obj) -> Path:
        if not self._place.host_paths:
            raise Unavailable("hostPath is not allowed on this node")
        path, type = Path(wanted.get("path", "/")), wanted.get("type") or ""
        if type == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif type == "FileOrCreate":
            path.touch(exist_ok=True)
        check = HOST_PATHS.get(type, None)
        if check is not None and not check(path):
            raise Unavailable(f"hostPath type check failed: {path} is not a {type.lower()}")
        return path

    def mounts(self, container: Obj, values: Mapping[str, str]) -> tuple[Mount, ...]:
        """What a container sees of them; what is made of objects is not its to change.  `values`: its environment.
        Raises Unavailable."""
        return tuple(self._mount(wanted, values) for wanted in container.get("volumeMounts") or ())

    def _mount(self, wanted: Obj, values: Mapping[str, str]) -> Mount:
        volume = self._sources.get(wanted["name"])
        if volume is None:
            raise Unavailable(f'volume "{wanted["name"]}" is not there')
        inside = wanted.get("subPath") or expanded(wanted.get("subPathExpr") or "", values)
        source = self._within(volume, inside, wanted["name"]) if inside else volume
        return Mount(source, wanted["mountPath"], bool(wanted.get("readOnly")) or wanted["name"] in self._written)

    def _within(self, volume: Path, inside: str, name: str) -> Path:
        """A part of a volume, which no link leads out of."""
        path = volume / inside
        outside = inside.startswith("/") or ".." in Path(inside).parts or "\0" in inside
        if outside or not path.resolve().is_relative_to(volume.resolve()):
            raise Unavailable(f'failed to prepare subPath for volumeMount "{name}" : it leads out of the volume')
        if not path.exists():
            if name in self._written:
                raise Unavailable(f'failed to prepare subPath for volumeMount "{name}" : it is not in the volume')
            path.mkdir(parents=True)
            path.chmod(0o777)
        return path

    async def remove(self) -> None:
        self._written.clear()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
