"""Return the status of the only copy to the object in its workspace."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from farflung.apis.edge.names import EXECUTING_COUNT, STATUS_RETURNED_FROM
from farflung.apis.globalscheduler.names import CLUSTER_LABEL, DELIVERED, DELIVERY_PREFIX
from farflung.apis.kcp.names import CLUSTER_ANNOTATION
from farflung.apis.names import POD_SCHEDULED, Collection
from farflung.client.errors import NotFound, Refused
from farflung.client.rest import Client, ListOptions, PatchType
from farflung.controllers.status_summarizer.health import sentence
from farflung.lib.groups import discard_from
from farflung.lib.klog import Logger
from farflung.machinery.errors import Obj
from farflung.placement.index import CopyKey
from farflung.placement.names import (
    BINDINGS,
    DEFINITIONS,
    NAMESPACES,
    PODS,
    STATUS_BY_HUB,
    Category,
    GroupResource,
    ObjectRef,
    PlacementKey,
    WatchedCollection,
    category,
)
from farflung.placement.select import Selected
from farflung.placement.state import PlacementState
from farflung.placement.types import ObservedObject
from farflung.runtime.recorder import InvolvedObject, Recorder

MARKS: Final = (EXECUTING_COUNT, STATUS_RETURNED_FROM)
OWN: Final = (POD_SCHEDULED, DELIVERED)  #: conditions of the global scheduler
ENDED: Final = ("Failed", "Succeeded")


class Returned(NamedTuple):
    """The returned status of one cluster."""

    target: str  #: the name of its SyncTarget
    status: Mapping[str, Any]


class ReturnRequest(NamedTuple):
    """The placements that request the status of an object."""

    clusters: int  #: number of clusters with a copy
    only: Returned | None = None  #: the status of the only copy
    placements: frozenset[str] = frozenset()  #: their names


class ReturnStep(NamedTuple):
    """The next write: a label and an annotation (None: remove them), or the status."""

    executing: str | None = None
    returned: str | None = None
    status: Obj | None = None


def is_returnable(resource: GroupResource) -> bool:
    """Whether status is ever returned to objects of this kind."""
    return category(resource) is Category.EDGE and resource not in STATUS_BY_HUB


def is_marked(document: bytes) -> bool:
    """Whether an object may have one of the marks."""
    return any(mark.encode() in document for mark in MARKS)


def next_step(resource: GroupResource, obj: Mapping[str, Any], request: ReturnRequest | None) -> ReturnStep | None:
    """`request`: None if no placement requests the status.  Returns None if nothing is to be written."""
    metadata = obj.get("metadata") or {}
    there = (
        (metadata.get("labels") or {}).get(EXECUTING_COUNT),
        (metadata.get("annotations") or {}).get(STATUS_RETURNED_FROM),
    )
    only = (
        request.only if request is not None and request.clusters == 1 and _uses_copy(resource, obj, request) else None
    )
    if only is None and there[1] is not None and is_returnable(resource):
        left = _without_copy(resource, obj)
        if (obj.get("status") or {}) != left:
            return ReturnStep(status=left)
    wanted = None if request is None else str(request.clusters), None if only is None else only.target
    if there != wanted:
        return ReturnStep(*wanted)
    if only is None:
        return None
    status = {**only.status, **_with_own(resource, obj, only.status)}
    return None if obj.get("status") == status else ReturnStep(*wanted, status)


# --- virtual machines -----------------------------------------------------------------------------


def _machine(resource: GroupResource, obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The spec of a virtual machine."""
    spec = obj.get("spec")
    is_machine = resource == PODS and isinstance(spec, dict) and spec.get("virtualMachine") is not None
    return spec if is_machine else None


def _uses_copy(resource: GroupResource, obj: Mapping[str, Any], request: ReturnRequest) -> bool:
    spec, labels = _machine(resource, obj), (obj.get("metadata") or {}).get("labels") or {}
    is_bound = spec is not None and bool(spec.get("nodeName") or spec.get("clusterName"))
    return is_returnable(resource) and (
        not is_bound or f"{DELIVERY_PREFIX}{labels.get(CLUSTER_LABEL)}" in request.placements
    )


def _own_conditions(resource: GroupResource, obj: Mapping[str, Any]) -> list[Obj]:
    """The status that the global scheduler writes."""
    if _machine(resource, obj) is None:
        return []
    return [one for one in _conditions(obj.get("status")) if one.get("type") in OWN]


def _conditions(status: object) -> list[Obj]:
    found = status.get("conditions") if isinstance(status, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _with_own(resource: GroupResource, obj: Mapping[str, Any], returned: Mapping[str, Any]) -> Obj:
    """The conditions, if they differ from the returned ones."""
    if _machine(resource, obj) is None:
        return {}
    all_returned = _conditions(returned)
    others = [one for one in all_returned if one.get("type") != DELIVERED]
    types = [one.get("type") for one in others]
    kept = [one for one in _own_conditions(resource, obj) if one.get("type") not in types]
    return {"conditions": [*others, *kept]} if kept or others != all_returned else {}


def _without_copy(resource: GroupResource, obj: Mapping[str, Any]) -> Obj:
    """The status of an object without an only copy."""
    own, status = _own_conditions(resource, obj), obj.get("status")
    if own and isinstance(status, dict) and status.get("phase") in ENDED:
        return status
    return {"phase": "Pending", "conditions": own} if own else {}


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)
MARKED: Final = ListOptions(labels=EXECUTING_COUNT)
MAX_STEPS: Final = 4  #: writes in a row: the marks, the status, the marks again
PERMANENT_ERRORS: Final = frozenset({400, 405, 413, 415, 422})  #: statuses of writes that will not succeed later


class WorkspaceObject(NamedTuple):
    """An object in a workspace."""

    cluster: str
    ref: ObjectRef


class StatusReturner:
    def __init__(self, known: PlacementState, everywhere: Client, recorder: Recorder, log: Logger) -> None:
        self._known = known
        self._everywhere = everywhere
        self._recorder = recorder
        self._log = log
        self._marked: dict[ObjectRef, set[str]] = {}  #: clusters in which the object has marks
        self._marked_in: dict[str, set[ObjectRef]] = {}  #: the same by cluster
        self._refused: dict[WorkspaceObject, tuple[str, bytes]] = {}  #: refused writes, by version

    def affected(self, copy: CopyKey) -> set[WorkspaceObject]:
        """The objects whose status may change because of a copy."""
        wanted = self._known.selections.reasons(copy.mailbox, copy.ref)
        requesting = {one.placement.cluster for one in wanted if _requests_status(one.selected, copy.ref)}
        return {WorkspaceObject(cluster, copy.ref) for cluster in requesting | self._marked.get(copy.ref, set())}

    def requested_by(self, key: PlacementKey) -> set[WorkspaceObject]:
        """The objects whose status a placement requests or requested: without destinations, no copy has an event."""
        selected = self._known.selections.selected(key)
        requesting = {ref for ref, how in selected.items() if _requests_status(how, ref)}
        return {WorkspaceObject(key.cluster, ref) for ref in requesting | self._marked_in.get(key.cluster, set())}

    def on_object(self, cluster: str, ref: ObjectRef, seen: ObservedObject | None) -> set[WorkspaceObject]:
        """An object in a workspace changed.  Returns the objects to reconcile; objects without copies have no other
        event."""
        found: set[WorkspaceObject] = set()
        if seen is None:
            self._refused.pop(WorkspaceObject(cluster, ref), None)
        if self._note_marks(cluster, ref, seen) or (
            seen is not None and not seen.ours and self._requesting(cluster, ref)
        ):
            found.add(WorkspaceObject(cluster, ref))
        if ref.resource == NAMESPACES and cluster in self._known.selections.source_workspaces():
            for key in [one for one in self._known.placements if one.cluster == cluster]:
                found |= self.requested_by(key)
        if ref.resource in (DEFINITIONS, BINDINGS):
            found |= self._reconsidered(cluster)
        return found

    def _reconsidered(self, cluster: str) -> set[WorkspaceObject]:
        """Forget refusals in a workspace whose schema may have changed."""
        found = {one for one in self._refused if one.cluster == cluster}
        for one in found:
            del self._refused[one]
        return found

    def _note_marks(self, cluster: str, ref: ObjectRef, seen: ObservedObject | None) -> bool:
        """Whether it has or had marks."""
        if seen is not None and not seen.ours and is_marked(seen.document):
            self._marked.setdefault(ref, set()).add(cluster)
            self._marked_in.setdefault(cluster, set()).add(ref)
            return True
        if cluster not in self._marked.get(ref, ()):
            return False
        discard_from(self._marked, ref, cluster)
        discard_from(self._marked_in, cluster, ref)
        return True

    def unwatched(self) -> list[WatchedCollection]:
        """Kinds without an informer, in workspaces without placements."""
        return sorted(
            self._known.served_kinds.everything().difference(
                self._known.served_kinds.builtin(), self._known.collections
            )
        )

    async def find(self, watched: WatchedCollection) -> set[WorkspaceObject]:
        """Objects with marks.  Raises ClientError."""
        found: set[WorkspaceObject] = set()
        everywhere = self._everywhere.workspace(watched.cluster) if watched.cluster else self._everywhere
        for obj in await everywhere.list(watched.collection(), MARKED):
            metadata = obj["metadata"]
            cluster = watched.cluster or (metadata.get("annotations") or {}).get(CLUSTER_ANNOTATION, "")
            found.add(
                WorkspaceObject(cluster, ObjectRef(watched.resource, metadata.get("namespace", ""), metadata["name"]))
            )
        return found

    async def reconcile(self, one: WorkspaceObject) -> bool:
        """Whether a placement requests its status."""
        seen = self._known.objects.get(*one)
        watched = self._known.served_kinds.collection(one.cluster, one.ref.resource)
        request = self._request(one)
        if watched is None or (seen is not None and (seen.is_terminating or seen.ours)):
            return False
        client = self._everywhere.workspace(one.cluster)
        collection = Collection(one.ref.resource.group, watched.version, one.ref.resource.resource, "")
        if seen is not None:
            obj: Obj = orjson.loads(seen.document)
        else:  # workspaces without placements may have no informer
            try:
                obj = await client.get(collection, one.ref.name, one.ref.namespace)
            except NotFound:
                return False
        for _ in range(MAX_STEPS):
            following = next_step(one.ref.resource, obj, request)
            if following is None:
                self._refused.pop(one, None)
                break
            try:
                written = await self._write(one, client, collection, obj, following)
            except NotFound:
                break  # deleted, or without a status subresource
            if written is None:
                break
            obj = written
            if following.status is not None:
                obj["status"] = following.status  # the server may add fields
        return request is not None

    async def _write(
        self, one: WorkspaceObject, client: Client, collection: Collection, obj: Obj, following: ReturnStep
    ) -> Obj | None:
        """None if the server refuses it, which has an Event; retried when the object changes."""
        patch, subresource, how = _patch(obj, following)
        attempt = obj["metadata"].get("resourceVersion", ""), hashlib.sha256(orjson.dumps(patch)).digest()
        if self._refused.get(one) == attempt:
            return None
        self._refused[one] = attempt  # before the request, so that a schema change meanwhile causes a retry
        try:
            written = await client.patch(collection, one.ref.name, patch, one.ref.namespace, subresource, how=how)
        except BaseException as error:
            if isinstance(error, Refused) and error.status in PERMANENT_ERRORS:
                self._report_refusal(one, obj, error)
                return None
            self._refused.pop(one, None)
            raise
        self._refused.pop(one, None)
        self._log.info(
            "Returned status of the only copy",
            v=3,
            object=str(one.ref),
            cluster=one.cluster,
            what=subresource or "marks",
        )
        return written

    def _report_refusal(self, one: WorkspaceObject, obj: Obj, error: Refused) -> None:
        ref, uid = one.ref, obj["metadata"]["uid"]
        about = InvolvedObject(
            one.cluster, obj.get("apiVersion", ""), obj.get("kind", ""), ref.name, ref.namespace, uid
        )
        self._recorder.record(about, "Warning", "StatusNotReturned", sentence(f"its server refuses it: {error}"))
        self._log.error(error, "cannot return status", object=str(ref), cluster=one.cluster)

    def _requesting(self, cluster: str, ref: ObjectRef) -> set[PlacementKey]:
        """The placements that request the status of an object."""
        selections = self._known.selections
        holders = [key for key in selections.holders(ref) if key.cluster == cluster]
        return {key for key in holders if _requests_status(selections.selected(key).get(ref), ref)}

    def _request(self, one: WorkspaceObject) -> ReturnRequest | None:
        selections, requesting = self._known.selections, self._requesting(*one)
        if not requesting:
            return None
        mailboxes = {
            mailbox: destination for key in requesting for mailbox, destination in selections.destinations(key).items()
        }
        if len(mailboxes) != 1:
            return ReturnRequest(len(mailboxes))
        names = frozenset(key.name for key in requesting)
        [(mailbox, destination)] = mailboxes.items()
        copy = self._known.objects.get(self._known.mailboxes.get(mailbox, ""), one.ref)
        if copy is None or copy.is_terminating or copy.placements.isdisjoint(requesting):
            return ReturnRequest(1)
        status = orjson.loads(copy.document).get("status")
        return ReturnRequest(
            1, Returned(destination.target, status) if isinstance(status, dict) and status else None, names
        )


def _requests_status(selected: Selected | None, ref: ObjectRef) -> bool:
    """Status is returned only for kinds that are applied at the edge."""
    return selected is not None and selected.singleton and category(ref.resource) is Category.EDGE


def _patch(obj: Obj, following: ReturnStep) -> tuple[Any, str, PatchType]:
    """A patch of the marks or the status only, with the uid; and its subresource."""
    uid = obj["metadata"]["uid"]
    if following.status is not None:
        test = {"op": "test", "path": "/metadata/uid", "value": uid}
        put = {"op": "add", "path": "/status", "value": following.status}
        removal = {"op": "remove", "path": "/status"}  # some kinds refuse an empty status
        return [test, put if following.status else removal], "status", PatchType.JSON
    metadata: Obj = {"uid": uid}
    for section, name, value in (
        ("labels", EXECUTING_COUNT, following.executing),
        ("annotations", STATUS_RETURNED_FROM, following.returned),
    ):
        if value is not None or name in (obj["metadata"].get(section) or {}):
            metadata[section] = {name: value}
    return {"metadata": metadata}, "", PatchType.MERGE
