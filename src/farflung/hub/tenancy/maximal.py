"""The maximal permission policy of an export: what anybody may do with its API, wherever it is bound.

The owner of an export writes it as roles in the export's own workspace.  A consumer is known there by a prefix, which
no name can take by itself: `apis.kcp.io:binding:system:authenticated` are all consumers.  So is somebody who sees the
API through the view of another export, which claims it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from farflung.hub.auth.user import User
from farflung.hub.objects import cluster_in, name_in
from farflung.hub.tenancy.claims import claim_of, wishes
from farflung.machinery.errors import Obj
from farflung.store.base import Change, Entry, Store

PREFIX: Final = "apis.kcp.io:binding:"
EXPORTS: Final = "/apis.kcp.io/apiexports/"
BINDINGS: Final = "/apis.kcp.io/apibindings/"
REMEMBERED: Final = 1024  #: clusters whose bindings are kept as they were read


class Export(NamedTuple):
    cluster: str
    name: str


def consumer(user: User) -> User:
    """A user as the export's workspace knows them."""
    return User(PREFIX + user.name, tuple(PREFIX + group for group in user.groups))


def is_limited(export: Obj) -> bool:
    policy = (export.get("spec") or {}).get("maximalPermissionPolicy") or {}
    return policy.get("local") is not None


def identity_of(export: Obj) -> str:
    return str((export.get("status") or {}).get("identityHash") or "")


def claimed_by(export: Obj) -> Mapping[tuple[str, str], str]:
    """(group, resource) → the identity of the export whose API it is, of what an export claims of others."""
    claims = map(claim_of, wishes(export))
    return {(one.group, one.resource): one.identity for one in claims if one.identity}


def bound_by(binding: Obj) -> Mapping[tuple[str, str], Export]:
    """(group, resource) → whose API it is, of what a binding has bound."""
    status = binding.get("status") or {}
    reference = ((binding.get("spec") or {}).get("reference") or {}).get("export") or {}
    export = Export(status.get("apiExportClusterName", ""), reference.get("name", ""))
    return {(one.get("group", ""), one.get("resource", "")): export for one in status.get("boundResources") or ()}


class Limits:
    """Which exports have a policy, and which of them a cluster's resource comes from; in step with the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limited: dict[Export, str] = {}  #: with their identities
        self._identified: dict[str, set[Export]] = {}  #: the same, the other way round
        self._claims: dict[Export, Mapping[tuple[str, str], str]] = {}
        self._bound: dict[str, Mapping[tuple[str, str], Export]] = {}
        store.subscribe(EXPORTS, self._hear_exports)
        store.subscribe(BINDINGS, self._hear_bindings)
        for entry in store.list(EXPORTS).entries:
            self._follow(entry.key, entry)

    def on(self, cluster: str, group: str, resource: str) -> Export | None:
        """The export whose policy counts for a resource of a cluster."""
        if not self._limited:
            return None
        bound = self._bound.get(cluster)
        if bound is None:
            bound = self._read(cluster)
        export = bound.get((group, resource))
        return export if export in self._limited else None

    def on_view(self, view: Export, group: str, resource: str) -> Export | None:
        """The export whose policy counts for a resource that another one claims."""
        claims = self._claims.get(view)
        limiting = None if claims is None else self._identified.get(claims.get((group, resource), ""))
        return min(limiting) if limiting else None

    def _read(self, cluster: str) -> Mapping[tuple[str, str], Export]:
        found: dict[tuple[str, str], Export] = {}
        for entry in self._store.list(f"{BINDINGS}{cluster}/").entries:
            found.update(bound_by(orjson.loads(entry.value)))
        if len(self._bound) >= REMEMBERED:
            del self._bound[next(iter(self._bound))]
        self._bound[cluster] = found
        return found

    def _hear_exports(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._follow(change.key, change.entry)

    def _hear_bindings(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._bound.pop(cluster_in(change.key), None)

    def _follow(self, key: str, entry: Entry | None) -> None:
        export = Export(cluster_in(key), name_in(key)[1])
        found = {} if entry is None else orjson.loads(entry.value)
        if before := self._limited.pop(export, ""):
            self._identified[before].discard(export)
            if not self._identified[before]:
                del self._identified[before]
        if is_limited(found):
            identity = self._limited[export] = identity_of(found)
            if identity:
                self._identified.setdefault(identity, set()).add(export)
        self._claims.pop(export, None)
        if claims := claimed_by(found):
            self._claims[export] = claims
