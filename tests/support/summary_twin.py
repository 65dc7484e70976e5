"""What summaries should say, and objects of what came back, by nested loops over what the API says now."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple

import orjson
from fleet import EDGE
from translated import NAMESPACES, PROJECTED, World

from farflung.apis.edge.names import EXECUTING_COUNT, STATUS_RETURNED_FROM
from farflung.controllers.status_summarizer.collector_results import CollectorResult
from farflung.controllers.status_summarizer.collectors import CollectorQuery, InvalidQueryError, parse_query
from farflung.controllers.status_summarizer.decide import summary_labels, summary_name
from farflung.controllers.status_summarizer.health import CopyStatus, DestinationRow, progress_of, read_copy_status
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.placement.names import GroupResource, ObjectRef
from farflung.placement.types import CopyDestination, projection_of

DEPLOYMENTS, WIDGETS = GroupResource("apps", "deployments"), GroupResource("example.org", "widgets")
PATHS = {DEPLOYMENTS: "/apis/apps/v1/deployments", WIDGETS: "/apis/example.org/v1/widgets"}
STALE_AFTER = timedelta(seconds=60)
SUMMARIZE = "edge.kcp.io/summarize"
HEARTBEAT = "f:lastSyncerHeartbeatTime"
MISSING = "there is no StatusCollector of this name"
INVALID = "it is invalid; its status has the errors"


class Copy(NamedTuple):
    """One destination of an object, and what is known of it."""

    mailbox: str
    destination: CopyDestination
    there: Obj | None  #: the copy, if there is one that was made for the placement
    refused: tuple[str, str] | None  #: reason and message
    stale: tuple[str, str, str] | None  #: and since when


class How(NamedTuple):
    """How a placement selects an object."""

    collectors: tuple[str, ...] = ()
    singleton: bool = False


def labels_of(obj: Obj | None) -> Obj:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def annotations_of(obj: Obj) -> Obj:
    return obj["metadata"].get("annotations") or {}


def is_there(obj: Obj | None) -> bool:
    return obj is not None and "deletionTimestamp" not in obj["metadata"]


def by_name(objects: list[Obj]) -> dict[str, Obj]:
    return {obj["metadata"]["name"]: obj for obj in objects}


class Twin:
    """`placements`, `slices`, `collectors`: by cluster and name."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.refs: dict[str, dict[ObjectRef, Obj]] = {}
        self.spaces: dict[str, dict[str, Obj]] = {}
        self.placements: dict[str, dict[str, Obj]] = {}
        self.slices: dict[str, list[Obj]] = {}
        self.collectors: dict[str, dict[str, Obj]] = {}
        self.summaries: dict[str, dict[tuple[str, str], Obj]] = {}
        self.told: dict[str, Obj] = {}  #: by mailbox
        self.locations: dict[str, Obj] = {}

    async def read(self) -> Twin:
        one = self.world
        for cluster in [*one.workloads, *one.boxes.values()]:
            self.refs[cluster] = {
                ObjectRef(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj
                for resource, path in PATHS.items()
                for obj in await one.items(cluster, path)
            }
            self.spaces[cluster] = by_name(await one.items(cluster, NAMESPACES))
        for cluster in one.workloads:
            self.placements[cluster] = by_name(await one.items(cluster, f"{EDGE}/edgeplacements"))
            self.collectors[cluster] = by_name(await one.items(cluster, f"{EDGE}/statuscollectors"))
            self.slices[cluster] = await one.items(cluster, f"{EDGE}/singleplacementslices")
            self.summaries[cluster] = {
                (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj
                for obj in await one.items(cluster, f"{EDGE}/statussummaries")
            }
        for target, cluster in one.boxes.items():
            found = await one.get(cluster, f"{EDGE}/syncerconfigs/the-one")
            self.told[one.names[target]] = found or {"metadata": {}}
        self.locations = by_name(await one.items(one.inventory, "/apis/scheduling.kcp.io/v1alpha1/locations"))
        return self

    # --- what goes where --------------------------------------------------------------------------

    def selected(self, cluster: str, placement: Obj, ref: ObjectRef) -> How | None:
        """By the fields that histories use."""
        obj = self.refs[cluster].get(ref)
        around = self.spaces[cluster].get(ref.namespace)
        if not is_there(obj) or not is_there(around):
            return None
        spec, found, collectors = placement["spec"], False, set()
        if "namespaceSelector" in spec:
            found = matches(spec["namespaceSelector"], around)
        for clause in spec.get("downsync") or ():
            names, selectors = clause.get("objectNames") or ["*"], clause.get("labelSelectors") or [{}]
            if clause["apiGroup"] != ref.resource.group or ref.resource.resource not in clause["resources"]:
                continue
            if (names == ["*"] or ref.name in names) and any(matches(one, obj) for one in selectors):
                found = True
                collectors |= set(clause.get("statusCollectors") or ())
        return How(tuple(sorted(collectors)), bool(spec.get("wantSingletonReportedState"))) if found else None

    def places(self, cluster: str, placement: Obj) -> dict[str, CopyDestination]:
        """By mailbox."""
        found: dict[str, CopyDestination] = {}
        for one in self.slices[cluster]:
            if all(owner["uid"] != placement["metadata"]["uid"] for owner in one["metadata"]["ownerReferences"]):
                continue
            for to in sorted(one.get("destinations") or (), key=lambda to: str(to["locationName"])):
                destination = CopyDestination(to["cluster"], to["locationName"], to["syncTargetName"])
                found.setdefault(f"{to['cluster']}-mb-{to['syncTargetUID']}", destination)
        return found

    def copies(self, cluster: str, placement: Obj, ref: ObjectRef) -> list[Copy]:
        """As they are listed."""
        found = []
        for mailbox, destination in self.places(cluster, placement).items():
            copy = self.refs[self.world.boxes[destination.target]].get(ref)
            key = f"{cluster}|{placement['metadata']['name']}"
            is_ours = copy is not None and is_there(copy) and labels_of(copy).get(PROJECTED) == "yes"
            there = copy if copy is not None and is_ours and key in projection_of(copy).placements else None
            stale = self.stale(mailbox) or self.unreturned(mailbox, ref)
            found.append(Copy(mailbox, destination, there, self.problem(mailbox, ref, "down"), stale))
        return sorted(found, key=lambda one: (one.destination[:3], one.mailbox))

    def problem(self, mailbox: str, ref: ObjectRef, direction: str) -> tuple[str, str] | None:
        """An object by its name, or all of a kind."""
        problems = (self.told[mailbox].get("status") or {}).get("problems") or []
        for wanted in (ref, ObjectRef(ref.resource, "", "*")):
            for one in reversed([problem for problem in problems if problem["direction"] == direction]):
                if (
                    ObjectRef(
                        GroupResource(one.get("group", ""), one["resource"]), one.get("namespace", ""), one["name"]
                    )
                    == wanted
                ):
                    return one["reason"], one.get("message", "")
        return None

    def translates(self, mailbox: str) -> bool:
        """Whether the syncer speaks of the generations of copies."""
        syncer = (self.told[mailbox].get("status") or {}).get("syncer") or {}
        return bool(syncer.get("translatesGenerations"))

    def unreturned(self, mailbox: str, ref: ObjectRef) -> tuple[str, str, str] | None:
        found = self.problem(mailbox, ref, "status")
        if found is None:
            return None
        return "StatusNotReturned", f"its syncer cannot return its status: {': '.join(filter(None, found))}", ""

    def stale(self, mailbox: str) -> tuple[str, str, str] | None:
        told = self.told[mailbox]
        beats = [
            times.parse(entry["time"])
            for entry in told["metadata"].get("managedFields") or ()
            if entry.get("subresource") == "status" and HEARTBEAT in str(entry["fieldsV1"])
        ]
        if not beats:
            return None
        if self.world.fleet.hub.now - max(beats) >= STALE_AFTER:
            since = f"{max(beats):%Y-%m-%dT%H:%M:%SZ}"
            return "HeartbeatMissing", f"the last heartbeat of its syncer was at {since}", since
        for one in told["status"].get("conditions") or ():
            if one["type"] == "EdgeReachable" and one["status"] == "False":
                return "EdgeUnreachable", one["message"], one["lastTransitionTime"]
        return None

    # --- summaries --------------------------------------------------------------------------------

    def expected(self, cluster: str) -> dict[tuple[str, str], Obj]:
        found = {}
        for name, placement in self.placements[cluster].items():
            for ref in self.refs[cluster] if is_there(placement) else ():
                how = self.selected(cluster, placement, ref)
                copies = self.copies(cluster, placement, ref)
                if how is not None and copies and self.is_summarized(placement, ref, copies):
                    found[ref.namespace, summary_name(name, ref)] = self.summary(cluster, placement, ref, how)
        return found

    def is_summarized(self, placement: Obj, ref: ObjectRef, copies: list[Copy]) -> bool:
        wish = annotations_of(placement).get(SUMMARIZE)
        if wish is not None:
            return str(ref.resource) in wish.split(",")
        return ref.resource == DEPLOYMENTS or any(one.there and one.there.get("status") for one in copies)

    def summary(self, cluster: str, placement: Obj, ref: ObjectRef, how: How) -> Obj:
        source, copies = self.refs[cluster][ref], self.copies(cluster, placement, ref)
        copy_statuses = {
            one.mailbox: read_copy_status(ref.resource, orjson.dumps(one.there)) for one in copies if one.there
        }
        reporting = [copy_status for copy_status in copy_statuses.values() if copy_status.reporting]
        broken = [entry for one in copies if (entry := broken_of(one, copy_statuses.get(one.mailbox))) is not None]
        progressing = sum(
            broken_of(one, copy_statuses[one.mailbox]) is None
            and progress_of(copy_statuses[one.mailbox], translates=self.translates(one.mailbox)) is not None
            for one in copies
            if one.mailbox in copy_statuses
        )
        owner = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement"}
        labels = summary_labels(placement["metadata"]["name"], ref)
        body = {
            "owners": [owner | {field: placement["metadata"][field] for field in ("name", "uid")}],
            "labels": labels,
            "subject": {
                "group": ref.resource.group,
                "version": "v1",
                "kind": source["kind"],
                "resource": ref.resource.resource,
                "namespace": ref.namespace,
                "name": ref.name,
                "uid": source["metadata"]["uid"],
            },
            "destinations": {
                "expected": len(copies),
                "reporting": len(reporting),
                "missing": sum(one.there is None for one in copies),
                "stale": sum(one.stale is not None for one in copies),
                "broken": len(broken),
                **({"progressing": progressing} if progressing else {}),
            },
            "observedAt": max((copy_status.observed for copy_status in reporting), default=None) or None,
            "aggregates": aggregates(reporting),
            "conditions": histograms(copy_status.conditions for copy_status in reporting),
            "values": histograms(copy_status.texts for copy_status in reporting),
            "broken": broken,
            "collected": [self.answer(cluster, name, ref, copies, copy_statuses) for name in how.collectors],
        }
        return {field: value for field, value in body.items() if value}

    def question(self, cluster: str, name: str) -> CollectorQuery | None:
        found = self.collectors[cluster].get(name)
        try:
            return None if found is None else parse_query(found["spec"])
        except InvalidQueryError:
            return None

    def answer(
        self, cluster: str, name: str, ref: ObjectRef, copies: list[Copy], copy_statuses: dict[str, CopyStatus]
    ) -> Obj:
        question = self.question(cluster, name)
        if question is None:
            why = INVALID if name in self.collectors[cluster] else MISSING
            return {"name": name, "errors": [{"message": why}]}
        answering = CollectorResult(name, question)
        for one in copies:
            answering.put(one.mailbox, self.row(cluster, ref, one, copy_statuses.get(one.mailbox)))
        return answering.body()

    def row(self, cluster: str, ref: ObjectRef, copy: Copy, copy_status: CopyStatus | None) -> DestinationRow:
        location = self.locations.get(copy.destination.location) or {"metadata": {}}
        source = {name: value for name, value in self.refs[cluster][ref].items() if name != "status"}
        returned = None if copy.there is None else copy.there.get("status")
        propagation: Obj = {"stale": copy.stale is not None}
        if copy_status is not None and copy_status.observed:
            propagation["lastReturnedUpdateTimestamp"] = copy_status.observed
        inventory = {
            "name": copy.destination.target,
            "location": copy.destination.location,
            "cluster": copy.destination.cluster,
            "labels": labels_of(location),
            "annotations": annotations_of(location),
        }
        given: dict[str, Any] = {
            "inventory": inventory,
            "obj": source,
            "returned": {} if returned is None else {"status": returned},
            "propagation": propagation,
        }
        return DestinationRow(copy.destination, given)

    # --- what came back ---------------------------------------------------------------------------

    def returned(self, cluster: str, ref: ObjectRef) -> tuple[str | None, str | None, Obj]:
        """The count, the SyncTarget that it is from, and the status."""
        asking = [
            (f"{cluster}|{name}", placement)
            for name, placement in self.placements[cluster].items()
            if is_there(placement) and (how := self.selected(cluster, placement, ref)) is not None and how.singleton
        ]
        if not asking:
            return None, None, {}
        copies = {one.mailbox: one for _, placement in asking for one in self.copies(cluster, placement, ref)}
        there = [one.there for _, placement in asking for one in self.copies(cluster, placement, ref) if one.there]
        status = there[0].get("status") if len(copies) == 1 and there else None
        if not status:
            return str(len(copies)), None, {}
        [copy] = copies.values()
        return "1", copy.destination.target, status

    # --- what is there ----------------------------------------------------------------------------

    def is_ending(self) -> bool:
        """Whether the hub is about to remove a namespace in which nothing is held."""
        return any(
            not is_there(space) and not any(ref.namespace == name for ref in self.refs[cluster])
            for cluster, spaces in self.spaces.items()
            for name, space in spaces.items()
        )

    def wrong(self) -> str:
        """The first thing that is not as it should be."""
        for cluster in self.world.workloads:
            there = {key: plain(obj) for key, obj in self.summaries[cluster].items()}
            expected = self.expected(cluster)
            for key in sorted(there.keys() | expected.keys()):
                if there.get(key) != expected.get(key):
                    return f"{key} in {cluster} is {there.get(key)} and not {expected.get(key)}"
            for ref, obj in self.refs[cluster].items():
                found = (
                    labels_of(obj).get(EXECUTING_COUNT),
                    annotations_of(obj).get(STATUS_RETURNED_FROM),
                    obj.get("status") or {},
                )
                if is_there(obj) and found != self.returned(cluster, ref):
                    return f"{ref} in {cluster} has {found} and not {self.returned(cluster, ref)}"
            for name, obj in self.collectors[cluster].items():
                status = obj.get("status") or {}
                valid = "False" if self.question(cluster, name) is None else "True"
                said = [one["status"] for one in status.get("conditions") or ()]
                if said != [valid] or status["observedGeneration"] != obj["metadata"]["generation"]:
                    return f"of {name} in {cluster} is said {status}"
        return ""


def matches(selector: Obj, obj: Obj | None) -> bool:
    return bool((selector.get("matchLabels") or {}).items() <= labels_of(obj).items())


def broken_of(copy: Copy, copy_status: CopyStatus | None) -> Obj | None:
    if copy_status is None:
        return None
    verdict = copy.refused or copy_status.problem or copy.stale
    if verdict is None:
        return None
    words = dict(zip(("reason", "message", "since"), verdict, strict=False))
    place = {
        "cluster": copy.destination.cluster,
        "locationName": copy.destination.location,
        "syncTargetName": copy.destination.target,
    }
    return place | {name: text for name, text in words.items() if text}


def aggregates(copy_statuses: list[CopyStatus]) -> Obj:
    found = {}
    for path in {path for copy_status in copy_statuses for path in copy_status.numbers}:
        numbers = [copy_status.numbers[path] for copy_status in copy_statuses if path in copy_status.numbers]
        found[path] = {"count": len(numbers), "sum": sum(numbers), "min": min(numbers), "max": max(numbers)}
    return found


def histograms(some: Any) -> Obj:
    counts = Counter((path, value) for one in some for path, value in one.items())
    found: dict[str, dict[str, int]] = {}
    for (path, value), count in counts.items():
        found.setdefault(path, {})[value] = count
    return found


def plain(summary: Obj) -> Obj:
    """With what of its metadata is ours."""
    metadata = summary["metadata"]
    content = {name: value for name, value in summary.items() if name not in ("apiVersion", "kind", "metadata")}
    labels = {name: value for name, value in labels_of(summary).items() if name.startswith("edge.kcp.io/")}
    return {"owners": metadata.get("ownerReferences"), "labels": labels, **content}
