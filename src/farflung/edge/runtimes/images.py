"""Which images can be stood in for by something of this machine."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REFERENCE: Final = re.compile(
    r"(?:(?P<registry>(?:[a-zA-Z0-9-]+\.)*[a-zA-Z0-9-]+(?::[0-9]+)?)/)??"
    rf"(?P<path>{COMPONENT}(?:/{COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>[a-z0-9]+:[a-fA-F0-9]{32,}))?"
)
LONGEST: Final = 500  #: characters of a reference that is looked at


class Standing(StrEnum):
    """What stands in for an image."""

    HTTPD = "httpd"
    NGINX = "nginx"
    PAUSE = "pause"  #: does nothing, for as long as it may
    SHELL = "shell"  #: runs commands, and nothing without them
    UNKNOWN = "unknown"


SHELLS: Final = frozenset(
    {
        "almalinux", "alpine", "amazonlinux", "archlinux", "bash", "busybox", "centos", "debian", "fedora",
        "rockylinux", "ubuntu",
    }
)  # fmt: skip
DOCUMENTS: Final = {Standing.HTTPD: "/usr/local/apache2/htdocs", Standing.NGINX: "/usr/share/nginx/html"}
OWN_COMMANDS: Final = {Standing.HTTPD: ("httpd-foreground", "httpd"), Standing.NGINX: ("nginx",)}
WEB_PORT: Final = 80  #: that web servers of images listen on


class InvalidReference(ValueError):
    pass


def repository(image: str) -> str:
    """The path within its registry: `library/httpd` for `docker.io/library/httpd:2.4`.  Raises InvalidReference."""
    match = REFERENCE.fullmatch(image) if len(image) <= LONGEST else None
    if match is None:
        raise InvalidReference(f'couldn\'t parse image name "{image[:LONGEST]}": invalid reference format')
    path, registry = match["path"], match["registry"]
    first, slash, rest = path.partition("/")
    if registry is None and slash and ("." in first or first == "localhost"):
        return rest
    if registry is not None and not _is_registry(registry):
        return f"{registry}/{path}"
    return path


def _is_registry(text: str) -> bool:
    return "." in text or ":" in text or text == "localhost"


def standing(image: str) -> Standing:
    """By the last part of its name, if nobody in particular made it: `httpd`, `library/httpd`, of whatever registry.
    Raises InvalidReference."""
    *owners, name = repository(image).split("/")
    if owners and owners[-1] != "library":
        return Standing.UNKNOWN
    if name in SHELLS:
        return Standing.SHELL
    return Standing(name) if name in (Standing.HTTPD, Standing.NGINX, Standing.PAUSE) else Standing.UNKNOWN


def is_own_command(kind: Standing, command: tuple[str, ...] | None, arguments: tuple[str, ...] | None) -> bool:
    """Whether an image would do with it what it does anyway."""
    said = [*(command or ()), *(arguments or ())]
    if not said:
        return True
    return command is not None and said[0].rpartition("/")[2] in OWN_COMMANDS.get(kind, ())
