"""Image names, and the images that a program of this machine can stand in for.  Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from farflung.edge.runtimes.base import ImageError

DEFAULT_REGISTRY: Final = "docker.io"
MAX_NAME: Final = 255  #: characters of registry and path together
REGISTRY: Final = re.compile(
    r"[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*(:[0-9]+)?"
)
COMPONENT: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*")
TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
DIGEST: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")


def qualified_name(image: str) -> str:
    """Registry, path, and tag or digest.  The defaults are docker.io and `latest`; a digest overrides a tag.  Raises
    ImageError(InvalidImageName)."""
    rest, at, digest = image.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise _invalid(image)
    head, slash, last = rest.rpartition("/")
    last, colon, tag = last.partition(":")
    if colon and not TAG.fullmatch(tag):
        raise _invalid(image)
    name = _with_registry(f"{head}{slash}{last}")
    registry, _, path = name.partition("/")
    if (
        len(name) > MAX_NAME
        or REGISTRY.fullmatch(registry) is None
        or not all(COMPONENT.fullmatch(component) for component in path.split("/"))
    ):
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


def _invalid(image: str) -> ImageError:
    name = image[: 2 * MAX_NAME]
    problem = f'couldn\'t parse image name "{name}": invalid reference format'
    return ImageError("InvalidImageName", f'Failed to apply default image tag "{name}": {problem}')


# --- stand-ins ------------------------------------------------------------------------------------


class StandIn(StrEnum):
    """The kind of program that the process runtime starts instead of an image."""

    HTTPD = "httpd"
    NGINX = "nginx"
    PAUSE = "pause"  #: sleeps
    SHELL = "shell"  #: runs the pod's command; it has none of its own
    UNKNOWN = "unknown"


SHELLS: Final = frozenset(
    {
        "almalinux", "alpine", "amazonlinux", "archlinux", "bash", "busybox", "centos", "debian", "fedora",
        "rockylinux", "ubuntu",
    }
)  # fmt: skip
DOCUMENT_ROOTS: Final = {StandIn.HTTPD: "/usr/local/apache2/htdocs", StandIn.NGINX: "/usr/share/nginx/html"}
DEFAULT_COMMANDS: Final = {StandIn.HTTPD: ("httpd-foreground", "httpd"), StandIn.NGINX: ("nginx",)}
WEB_PORT: Final = 80  #: the port of the web servers in images


def find_stand_in(image: str) -> StandIn:
    """By the last part of the name of an official image, in any registry: `httpd`, `library/httpd`.  Raises
    ImageError(InvalidImageName)."""
    _, *owners, name = repository(qualified_name(image)).split("/")
    if owners and owners[-1] != "library":
        return StandIn.UNKNOWN
    if name in SHELLS:
        return StandIn.SHELL
    return StandIn(name) if name in (StandIn.HTTPD, StandIn.NGINX, StandIn.PAUSE) else StandIn.UNKNOWN


def is_default_command(kind: StandIn, command: tuple[str, ...] | None, arguments: tuple[str, ...] | None) -> bool:
    """Whether the image would run this command anyway."""
    words = [*(command or ()), *(arguments or ())]
    if not words:
        return True
    return command is not None and words[0].rpartition("/")[2] in DEFAULT_COMMANDS.get(kind, ())
