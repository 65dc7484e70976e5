"""What commands with a server share: the kubeconfig, its workspace and a connection."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from farflung.cli.plugins import kubeconfig
from farflung.cli.plugins.commands import CommandCall, CommandError
from farflung.cli.plugins.kubeconfig import Kubeconfig, PluginAccess

if TYPE_CHECKING:
    from farflung.cli.plugins.connection import PluginConnection

ROOT = "root"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
BINDINGS = "/apis/apis.kcp.io/v1alpha1/apibindings"
POLL_INTERVAL = 0.5

_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_PATH = re.compile(f"{_LABEL}(?::{_LABEL})*")


class WorkspaceLocation(NamedTuple):
    """A workspace on a server: `base` is the URL without `/clusters/…`."""

    base: str
    path: str

    @property
    def server(self) -> str:
        return f"{self.base}/clusters/{self.path}"


class PluginSession:
    def __init__(self, call: CommandCall) -> None:
        self.overrides = call.flags
        self.paths: list[Path] = kubeconfig.locations(call.flags.get("kubeconfig", ""), os.environ)
        self.kubeconfig: Kubeconfig = kubeconfig.load(self.paths)
        self.access: PluginAccess = kubeconfig.resolve(self.kubeconfig, self.overrides)
        self._connection: PluginConnection | None = None

    def __enter__(self) -> PluginSession:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def connection(self) -> PluginConnection:
        if self._connection is None:
            self._connection = connect(self.access, self.overrides)
        return self._connection

    def location(self, words: str = 'current URL "{}" does not point to a workspace') -> WorkspaceLocation:
        """The workspace of the context."""
        found = parse_server(self.access.server)
        if found is None:
            raise CommandError(words.format(self.access.server))
        return found

    @property
    def base(self) -> str:
        found = parse_server(self.access.server)
        return found.base if found else self.access.server.rstrip("/")

    def path(self, cluster: str, resource: str, name: str = "") -> str:
        """The URL path of a resource in a workspace."""
        return request_path(self.base, cluster, resource, name)


def request_path(base: str, cluster: str, resource: str, name: str = "") -> str:
    return f"{urlsplit(base).path}/clusters/{cluster}{resource}" + (f"/{quote(name, safe='~')}" if name else "")


def connect(access: PluginAccess, overrides: dict[str, str]) -> PluginConnection:
    """Imported lazily: printing the current workspace needs no network."""
    from farflung.cli.plugins.connection import PluginConnection

    level = overrides.get("v", "0")
    return PluginConnection(access, int(level) if level.isdigit() else 0)


def is_workspace_path(path: str) -> bool:
    return _PATH.fullmatch(path) is not None


def parse_server(url: str) -> WorkspaceLocation | None:
    """The workspace in a server's URL, if any."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    before, found, after = parts.path.partition("/clusters/")
    path = after.partition("/")[0]
    if not found or not is_workspace_path(path):
        return None
    return WorkspaceLocation(f"{parts.scheme}://{parts.netloc}{before}", path)


def wait_until(done: Callable[[], bool], timeout: float) -> bool:
    """Retry; False after the timeout."""
    deadline = time.monotonic() + timeout
    while not done():
        if time.monotonic() + POLL_INTERVAL > deadline:
            return False
        time.sleep(POLL_INTERVAL)
    return True


def phase(thing: dict[str, Any]) -> str:
    status = thing.get("status")
    return str(status.get("phase", "")) if isinstance(status, dict) else ""


def warn(text: str) -> None:
    sys.stdout.flush()
    print(text, file=sys.stderr)
