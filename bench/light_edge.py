"""A cluster that is a dict: as much of a Kubernetes API as a syncer uses, in the process of its client.

What is applied is there at once, and a Deployment says at once that all of it is up to date.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import orjson

from farflung.apis.edge.names import PROJECTED, SYNCER_MANAGER
from farflung.client.transport import OutgoingRequest, Reply
from farflung.machinery.errors import Obj

REMEMBERED = 100  #: changes, for who lists first and watches then
VERSION = orjson.dumps({"gitVersion": "v1.30.0"})
VERBS = ["create", "delete", "get", "list", "patch", "watch"]
#: group, version, plural, kind, whether it is in namespaces
KINDS = (
    ("", "v1", "namespaces", "Namespace", False),
    ("", "v1", "configmaps", "ConfigMap", True),
    ("", "v1", "limitranges", "LimitRange", True),
    ("", "v1", "pods", "Pod", True),
    ("", "v1", "resourcequotas", "ResourceQuota", True),
    ("", "v1", "secrets", "Secret", True),
    ("", "v1", "serviceaccounts", "ServiceAccount", True),
    ("", "v1", "services", "Service", True),
    ("apps", "v1", "deployments", "Deployment", True),
    ("coordination.k8s.io", "v1", "leases", "Lease", True),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", True),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", True),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False),
)
NAMES = {plural: (f"{group}/{version}" if group else version, kind) for group, version, plural, kind, _ in KINDS}


def _served(*, core: bool) -> bytes:
    groups: dict[str, Obj] = {}
    for group, version, plural, kind, namespaced in KINDS:
        if bool(group) is core:
            continue
        resource = {
            "resource": plural,
            "scope": "Namespaced" if namespaced else "Cluster",
            "responseKind": {"group": group, "version": version, "kind": kind},
            "verbs": VERBS,
            "subresources": [{"subresource": "status", "verbs": ["get", "patch", "update"]}],
        }
        empty = {"metadata": {"name": group}, "versions": [{"version": version, "resources": []}]}
        groups.setdefault(group, empty)["versions"][0]["resources"].append(resource)
    return orjson.dumps({"kind": "APIGroupDiscoveryList", "items": list(groups.values())})


FIXED = {"/api": _served(core=True), "/apis": _served(core=False), "/version": VERSION}


@dataclass(slots=True)
class LightReply:
    status: int
    body: bytes = b""
    lines: AsyncIterator[bytes] | None = None

    def header(self, name: str) -> str:
        return ""

    async def read(self) -> bytes:
        return self.body

    def chunks(self) -> AsyncIterator[bytes]:
        assert self.lines is not None
        return self.lines


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names.  Without a name: all of a kind."""

    plural: str
    namespace: str
    name: str


def place_of(path: str) -> Place | None:
    rest = path.split("/")[3 if path.startswith("/api/") else 4 :]
    if rest[0] == "namespaces" and len(rest) > 2:
        _, namespace, plural, *names = rest
        return Place(plural, namespace, "".join(names))
    plural, *names = rest
    return Place(plural, "", "".join(names)) if plural in NAMES else None


@dataclass(slots=True)
class LightEdge:
    """A `Transport`."""

    applied: int = 0
    deleted: int = 0
    _version: int = 1
    _objects: dict[str, dict[tuple[str, str], Obj]] = field(default_factory=dict)
    _changes: deque[tuple[int, str, bytes]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _watchers: dict[str, set[asyncio.Queue[bytes]]] = field(default_factory=dict)

    @asynccontextmanager
    async def open(self, request: OutgoingRequest) -> AsyncIterator[Reply]:
        parts = urlsplit(request.target)
        fixed = FIXED.get(parts.path)
        place = None if fixed else place_of(parts.path)
        if fixed is not None:
            yield LightReply(200, fixed)
        elif place is None:
            yield _missing()
        elif request.method == "PATCH":
            yield LightReply(200, orjson.dumps(self._apply(place, orjson.loads(request.body))))
        elif request.method == "DELETE":
            yield self._delete(place)
        elif place.name:
            found = self._objects.get(place.plural, {}).get((place.namespace, place.name))
            yield _missing(place.plural, place.name) if found is None else LightReply(200, orjson.dumps(found))
        elif "watch" in (query := parse_qs(parts.query)):
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            watchers = self._watchers.setdefault(place.plural, set())
            watchers.add(queue)
            try:
                yield LightReply(200, lines=self._lines(place.plural, int(query["resourceVersion"][0]), queue))
            finally:
                watchers.discard(queue)
        else:
            yield self._list(place.plural)

    # --- reading ----------------------------------------------------------------------------------

    def _list(self, plural: str) -> LightReply:
        """Everything but what is there from the beginning is a syncer's."""
        items = list(self._objects.get(plural, {}).values())
        api_version, kind = NAMES[plural]
        metadata = {"resourceVersion": str(self._version)}
        return LightReply(
            200, orjson.dumps({"apiVersion": api_version, "kind": f"{kind}List", "metadata": metadata, "items": items})
        )

    async def _lines(self, plural: str, since: int, queue: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
        for version, concerned, line in list(self._changes):
            if version > since and concerned == plural:
                yield line
        while True:
            yield await queue.get()

    # --- writing ----------------------------------------------------------------------------------

    def _apply(self, place: Place, desired: Obj) -> Obj:
        some = self._objects.setdefault(place.plural, {})
        before = some.get((place.namespace, place.name))
        generation = before["metadata"]["generation"] if before else 0
        generation += before is None or before.get("spec") != desired.get("spec")
        metadata = {
            **desired["metadata"],
            "uid": before["metadata"]["uid"] if before else f"{place.plural}-{self._version}",
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": SYNCER_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        }
        assert metadata["labels"][PROJECTED] == "yes", "all that is listed here is a syncer's"
        obj = {**desired, "metadata": metadata}
        if before and "status" in before:
            obj["status"] = before["status"]
        self.applied += 1
        applied = self._put(place, obj, "MODIFIED" if before else "ADDED")
        if place.plural == "deployments":
            status = {"observedGeneration": generation, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
            self._put(place, {**obj, "status": status}, "MODIFIED")
        return applied

    def _put(self, place: Place, obj: Obj, event: str) -> Obj:
        self._version += 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self._objects[place.plural][place.namespace, place.name] = obj
        self._tell(place.plural, event, obj)
        return obj

    def _delete(self, place: Place) -> LightReply:
        gone = self._objects.get(place.plural, {}).pop((place.namespace, place.name), None)
        if gone is None:
            return _missing(place.plural, place.name)
        self._version += 1
        self.deleted += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._version)}}
        self._tell(place.plural, "DELETED", gone)
        return LightReply(200, orjson.dumps(gone))

    def _tell(self, plural: str, event: str, obj: Obj) -> None:
        line = orjson.dumps({"type": event, "object": obj}) + b"\n"
        self._changes.append((self._version, plural, line))
        for queue in self._watchers.get(plural, ()):
            queue.put_nowait(line)


def _missing(plural: str = "", name: str = "") -> LightReply:
    """Whoever names what is not there is believed."""
    details = {"kind": plural, "name": name}
    said = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found", "details": details}
    return LightReply(404, orjson.dumps(said))
