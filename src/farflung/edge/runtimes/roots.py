"""What a container sees of the file system, made of links in a directory."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path

from farflung.edge.runtimes.base import Mount, StartError


def below(root: Path, path: str) -> Path:
    """A path of a container as one of this machine, which is never outside of the root."""
    return root / posixpath.normpath(f"/{path}").lstrip("/")


def furnish(root: Path, mounts: Sequence[Mount]) -> None:
    """Links at the targets.  Raises StartError for what only a real file system can do: a mount within another one, or
    one in place of everything."""
    for mount in sorted(mounts, key=lambda mount: mount.target):
        target = below(root, mount.target)
        parents = [parent for parent in target.parents if parent.is_relative_to(root)]
        if target == root or target.is_symlink() or any(parent.is_symlink() for parent in parents):
            raise StartError("CreateContainerError", f"{mount.target} lies within another mount, which needs podman")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(mount.source)


def directory(root: Path, path: str, mounts: Sequence[Mount]) -> Path:
    """One that the container needs, made if it is not there.  Raises StartError within what it may not change."""
    found = below(root, path)
    if not found.is_dir() and any(found.is_relative_to(below(root, one.target)) for one in mounts if one.read_only):
        raise StartError("CreateContainerError", f"{path} is not there, and what is mounted there is read-only")
    found.mkdir(parents=True, exist_ok=True)
    return found
