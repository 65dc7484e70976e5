"""Names of images as Kubernetes reads them."""

from __future__ import annotations

import re
from typing import Final

from farflung.edge.runtimes.base import ImageError

DEFAULT_REGISTRY: Final = "docker.io"
LONGEST: Final = 255  #: characters, registry and path together
REGISTRY: Final = re.compile(
    r"[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*(:[0-9]+)?"
)
COMPONENT: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*")
TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
DIGEST: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")


def qualified(image: str) -> str:
    """Registry, path, and a digest or else a tag: what says neither registry nor tag means docker.io and `latest`, and
    a digest makes the tag beside it meaningless.  Raises ImageError(InvalidImageName)."""
    rest, at, digest = image.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise _invalid(image)
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not TAG.fullmatch(tag):
        raise _invalid(image)
    name = _with_registry(f"{head}{slash}{last}")
    if not _is_name(name):
        raise _invalid(image)
    return f"{name}@{digest}" if at else f"{name}:{tag or 'latest'}"


def repository(qualified: str) -> str:
    """A qualified name without its tag or digest."""
    name, at, _ = qualified.partition("@")
    return name if at else name.rpartition(":")[0]


def _with_registry(name: str) -> str:
    first, slash, _ = name.partition("/")
    if not slash:
        return f"{DEFAULT_REGISTRY}/library/{name}"
    if "." in first or ":" in first or first == "localhost":
        return name
    return f"{DEFAULT_REGISTRY}/{name}"


def _is_name(name: str) -> bool:
    registry, _, path = name.partition("/")
    components = path.split("/")
    return (
        len(name) <= LONGEST
        and REGISTRY.fullmatch(registry) is not None
        and all(COMPONENT.fullmatch(component) for component in components)
    )


def _invalid(image: str) -> ImageError:
    return ImageError("InvalidImageName", f'Failed to apply default image tag "{image}": couldn\'t parse image name')
