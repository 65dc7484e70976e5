"""Paths and names of logical clusters.

A cluster exists if its LogicalCluster exists, and Workspace objects form the tree.  Both are looked up in the store by
key, so there is no index that could be stale.

Users cannot redirect a path: it follows Workspaces, whose `spec.cluster` only the hub sets, and the path of a cluster
is one that resolves to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from farflung.apis.kcp.names import PATH_ANNOTATION, TYPE_ANNOTATION
from farflung.hub.catalog.objects import cluster_in
from farflung.hub.tenancy.hashes import home_cluster_name
from farflung.machinery.errors import ApiError, bad_request
from farflung.store.base import Entry, Store, Watcher

ROOT: Final = "root"
PROVIDER: Final = "espw"  #: the workspace in root with the export of the edge API and the mailboxes
WILDCARD: Final = "*"
USER: Final = "user"
SYSTEM: Final = "system:"

LOGICAL_CLUSTERS: Final = "/core.kcp.io/logicalclusters/"
WORKSPACES: Final = "/tenancy.kcp.io/workspaces/"
WORKSPACE_TYPES: Final = "/tenancy.kcp.io/workspacetypes/"
SINGLETON: Final = "cluster"  #: the name of every LogicalCluster


SEGMENT: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_PATH: Final = re.compile(f"{SEGMENT}(:{SEGMENT})*", re.ASCII)
_SEGMENT: Final = re.compile(SEGMENT, re.ASCII)
MAX_PATH: Final = 16_384  #: characters of a path; a Workspace with a longer one is refused
DEEPEST: Final = 10_000  #: levels; more can only be a cycle


def logical_cluster_key(cluster: str) -> str:
    return f"{LOGICAL_CLUSTERS}{cluster}/{SINGLETON}"


def workspace_key(cluster: str, name: str) -> str:
    return f"{WORKSPACES}{cluster}/{name}"


def is_path(text: str) -> bool:
    """Whether the syntax is that of a cluster's name or path."""
    return len(text) <= MAX_PATH and _PATH.fullmatch(text) is not None


def invalid_cluster(text: str) -> ApiError:
    """400 for a cluster name with invalid syntax."""
    return bad_request(f'invalid cluster: "{text}" does not match the regex')


def home_path(user: str) -> str:
    """The path of a user's home.  The name of its cluster, if the user name is not a valid path segment."""
    return f"{USER}:{user}" if _SEGMENT.fullmatch(user) else home_cluster_name(user)


class TypeReference(msgspec.Struct, gc=False, frozen=True):
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.name}" if self.path else self.name


class _WorkspaceSpec(msgspec.Struct, gc=False):
    cluster: str = ""
    type: TypeReference | None = None


class _Workspace(msgspec.Struct, gc=False):
    spec: _WorkspaceSpec | None = None


class WorkspaceOwner(msgspec.Struct, gc=False, frozen=True):
    cluster: str = ""
    name: str = ""
    uid: str = ""


class _Metadata(msgspec.Struct, gc=False):
    annotations: dict[str, str] | None = None
    deletionTimestamp: str | None = None


class _LogicalClusterSpec(msgspec.Struct, gc=False):
    owner: WorkspaceOwner | None = None


class _LogicalClusterStatus(msgspec.Struct, gc=False):
    phase: str = ""
    initializers: tuple[str, ...] | None = None


class _LogicalCluster(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _LogicalClusterSpec | None = None
    status: _LogicalClusterStatus | None = None


_read_workspace = msgspec.json.Decoder(_Workspace).decode
_read_logical_cluster = msgspec.json.Decoder(_LogicalCluster).decode
_NO_WORKSPACE: Final = _WorkspaceSpec()


class LogicalCluster(msgspec.Struct, frozen=True):
    name: str
    phase: str
    deleting: bool
    annotations: dict[str, str]
    owner: WorkspaceOwner | None = None  #: its Workspace; root and homes have none
    initializers: tuple[str, ...] = ()  #: that it waits for


def read_logical_cluster(entry: Entry) -> LogicalCluster:
    seen = _read_logical_cluster(entry.value)
    metadata, status = seen.metadata, seen.status
    return LogicalCluster(
        cluster_in(entry.key),
        "" if status is None else status.phase,
        metadata.deletionTimestamp is not None,
        metadata.annotations or {},
        None if seen.spec is None else seen.spec.owner,
        () if status is None else status.initializers or (),
    )


class LogicalClusters:
    def __init__(self, store: Store) -> None:
        self._store = store

    def subscribe(self, watcher: Watcher) -> None:
        """`watcher` is called whenever a name or path may mean another cluster than before."""
        self._store.subscribe(WORKSPACES, watcher)
        self._store.subscribe(LOGICAL_CLUSTERS, watcher)

    def exists(self, cluster: str) -> bool:
        return self._store.get(logical_cluster_key(cluster)) is not None

    def read(self, cluster: str) -> LogicalCluster | None:
        entry = self._store.get(logical_cluster_key(cluster))
        return None if entry is None else read_logical_cluster(entry)

    def resolve(self, text: str) -> str | None:
        """The name of the cluster with a name or path; None if it does not exist or the syntax is invalid."""
        if not is_path(text):
            return None
        if ":" not in text or text.startswith(SYSTEM):
            return text if self.exists(text) else None
        first, *steps = text.split(":")
        if first == USER:
            first, *steps = home_cluster_name(steps[0]), *steps[1:]
        cluster = first
        for name in steps:
            cluster = self.child(cluster, name)
            if not cluster:
                return None
        return cluster if self.exists(cluster) else None

    def child(self, cluster: str, name: str) -> str:
        """The cluster of a child workspace; empty if the Workspace does not exist or has no cluster yet."""
        return self._workspace(cluster, name).cluster

    def path_of(self, cluster: str) -> str:
        """The path of a cluster from root or from a home; its name if it has none."""
        names: list[str] = []
        for _ in range(DEEPEST):
            owner = self.owner_of(cluster)
            if owner is None:
                break
            names.append(owner.name)
            cluster = owner.cluster
        names.append(self._path_of_top(cluster))
        return ":".join(reversed(names))

    def workspaces_of_home(self, cluster: str, most: int) -> int:
        """The number of workspaces below the home workspace that a cluster belongs to, counted up to `most`; 0 if it
        belongs to none."""
        *_, top = cluster, *self.ancestors(cluster)
        if not self._path_of_top(top).startswith(f"{USER}:"):
            return 0
        found, waiting = 0, [top]
        while waiting and found < most:
            children = self._store.list(f"{WORKSPACES}{waiting.pop()}/", limit=most).entries
            found += len(children)
            waiting += [spec.cluster for one in children if (spec := _read_workspace(one.value).spec) and spec.cluster]
        return found

    def ancestors(self, cluster: str) -> Iterator[str]:
        """The clusters above a cluster, nearest first."""
        for _ in range(DEEPEST):
            owner = self.owner_of(cluster)
            if owner is None:
                return
            cluster = owner.cluster
            yield cluster

    def type_of(self, cluster: str) -> TypeReference | None:
        """The type of a cluster: that of its Workspace, or the annotation of a LogicalCluster without one."""
        found = self.read(cluster)
        if found is None:
            return None
        owner = self._checked(found)
        if owner is not None:
            return self._workspace(owner.cluster, owner.name).type
        path, colon, name = found.annotations.get(TYPE_ANNOTATION, "").rpartition(":")
        return TypeReference(name, path) if colon else None

    def owner_of(self, cluster: str) -> WorkspaceOwner | None:
        """The Workspace of a cluster, if both objects reference each other."""
        found = self.read(cluster)
        return None if found is None else self._checked(found)

    def _checked(self, found: LogicalCluster) -> WorkspaceOwner | None:
        owner = found.owner
        if owner is None or self.child(owner.cluster, owner.name) != found.name:
            return None
        return owner

    def _workspace(self, cluster: str, name: str) -> _WorkspaceSpec:
        entry = self._store.get(workspace_key(cluster, name))
        return _NO_WORKSPACE if entry is None else _read_workspace(entry.value).spec or _NO_WORKSPACE

    def _path_of_top(self, cluster: str) -> str:
        """The path of a home is only valid if the cluster's name is the hash of its user."""
        found = self.read(cluster)
        path = "" if found is None else found.annotations.get(PATH_ANNOTATION, "")
        kind, _, user = path.partition(":")
        return path if kind == USER and user and home_cluster_name(user) == cluster else cluster
