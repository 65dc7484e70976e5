"""Which cluster a text in a URL means, and which path a cluster has.

A cluster is its LogicalCluster, and the tree of workspaces is their Workspace objects: both are in memory, found by
their keys, so there is no index beside them that could be wrong.  A step of a path is one look-up and a glance at the
stored bytes.

What users may write does not lead astray: a path goes by Workspaces, whose `spec.cluster` only the hub sets, and the
path that is told of a cluster is one that leads there.
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
from farflung.store.base import Entry, Store

ROOT: Final = "root"
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
LONGEST: Final = 16_384  #: characters of a path; a workspace that would have a longer one is refused
DEEPEST: Final = 10_000  #: steps up; more can only be a circle


def logical_cluster_key(cluster: str) -> str:
    return f"{LOGICAL_CLUSTERS}{cluster}/{SINGLETON}"


def workspace_key(cluster: str, name: str) -> str:
    return f"{WORKSPACES}{cluster}/{name}"


def is_path(text: str) -> bool:
    """Whether it is a cluster's name or a path, by its looks."""
    return len(text) <= LONGEST and _PATH.fullmatch(text) is not None


def invalid_cluster(text: str) -> ApiError:
    """What is said of a cluster that can be none."""
    return bad_request(f'invalid cluster: "{text}" does not match the regex')


def home_path(user: str) -> str:
    """Where a user's home is: a user whose name is no segment has one without a path of that kind."""
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
    """One that exists."""

    name: str
    phase: str
    deleting: bool
    annotations: dict[str, str]
    owner: WorkspaceOwner | None = None  #: the Workspace it belongs to; roots and homes have none
    initializers: tuple[str, ...] = ()  #: whom it waits for


def read_logical_cluster(entry: Entry) -> LogicalCluster:
    """By its LogicalCluster."""
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

    def exists(self, cluster: str) -> bool:
        return self._store.get(logical_cluster_key(cluster)) is not None

    def read(self, cluster: str) -> LogicalCluster | None:
        entry = self._store.get(logical_cluster_key(cluster))
        return None if entry is None else read_logical_cluster(entry)

    def resolve(self, text: str) -> str | None:
        """The name of the cluster that a name or path means; None if there is none (or it is neither)."""
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
        """The cluster of a workspace; empty if there is no such workspace, or it has no cluster yet."""
        return self._workspace(cluster, name).cluster

    def path_of(self, cluster: str) -> str:
        """The path that leads to a cluster from the root or from somebody's home; its name if there is none."""
        names: list[str] = []
        for _ in range(DEEPEST):
            owner = self.owner_of(cluster)
            if owner is None:
                break
            names.append(owner.name)
            cluster = owner.cluster
        names.append(self._path_of_top(cluster))
        return ":".join(reversed(names))

    def ancestors(self, cluster: str) -> Iterator[str]:
        """The clusters above a cluster, the nearest first."""
        for _ in range(DEEPEST):
            owner = self.owner_of(cluster)
            if owner is None:
                return
            cluster = owner.cluster
            yield cluster

    def type_of(self, cluster: str) -> TypeReference | None:
        """The type of a cluster: its Workspace's, which never changes, or what a LogicalCluster without one says."""
        found = self.read(cluster)
        if found is None:
            return None
        owner = self._checked(found)
        if owner is not None:
            return self._workspace(owner.cluster, owner.name).type
        path, colon, name = found.annotations.get(TYPE_ANNOTATION, "").rpartition(":")
        return TypeReference(name, path) if colon else None

    def owner_of(self, cluster: str) -> WorkspaceOwner | None:
        """The Workspace that a cluster belongs to, if both say so."""
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
        """A home says whose it is, and its name proves it."""
        found = self.read(cluster)
        said = "" if found is None else found.annotations.get(PATH_ANNOTATION, "")
        kind, _, user = said.partition(":")
        return said if kind == USER and user and home_cluster_name(user) == cluster else cluster
