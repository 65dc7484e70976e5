"""The state of each edge, from its SyncTarget and its syncer's report.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from farflung.apis.edge.names import EDGE_REACHABLE, ORPHANS_PRESENT
from farflung.apis.kcp.names import HEARTBEAT_HEALTHY
from farflung.inspect import fields
from farflung.inspect.results import Result
from farflung.lib.words import count
from farflung.machinery.errors import Obj
from farflung.machinery.label_index import SelectorIndex
from farflung.machinery.times import format_seconds
from farflung.placement.names import GroupResource, Part, mailbox_name
from farflung.placement.types import parse_location


class EdgeHealth(StrEnum):
    """The worst first."""

    STALE = "stale"  #: the last heartbeat is too old
    UNREACHABLE = "unreachable"  #: the syncer does not reach its cluster
    NOT_READY = "not ready"  #: for a reason that the SyncTarget has
    OFFLINE = "offline"  #: no heartbeat yet
    READY = "ready"


class ObjectCounts(Result, frozen=True):
    """Objects at an edge."""

    synced: int
    pending: int
    failing: int
    orphaned: int
    upsynced: int


class Edge(Result, frozen=True):
    """None: not visible."""

    name: str
    cluster: str
    uid: str
    mailbox: str
    locations: list[str] | None
    state: EdgeHealth
    heard: str | None
    objects: ObjectCounts | None
    problems: list[str]
    remarks: list[str]
    workspace: str = ""

    @property
    def is_well(self) -> bool:
        return self.state is EdgeHealth.READY and not self.problems


RANKS: Final = {state: rank for rank, state in enumerate(EdgeHealth)}


def state_of(target: Obj) -> EdgeHealth:
    """As the hub determined it with its own clock."""
    if fields.condition(target, "Ready").get("status") == "True":
        return EdgeHealth.READY
    if fields.moment(target, "status", "lastSyncerHeartbeatTime") is None:
        return EdgeHealth.OFFLINE
    if fields.condition(target, HEARTBEAT_HEALTHY).get("status") == "False":
        return EdgeHealth.STALE
    if fields.condition(target, EDGE_REACHABLE).get("status") == "False":
        return EdgeHealth.UNREACHABLE
    return EdgeHealth.NOT_READY


def edges(
    targets: Iterable[Obj],
    locations: Iterable[Obj] | None,
    mailboxes: Mapping[str, str] | None,
    reports: Mapping[str, Obj] | None,
    now: datetime,
) -> list[Edge]:
    """The worst first.  `mailboxes`: name → logical cluster; `reports`: SyncerConfigs by logical
    cluster; None: not visible."""
    selecting = None if locations is None else LocationIndex(locations)
    found = [_edge(one, selecting, mailboxes, reports, now) for one in targets]
    return sorted(found, key=lambda one: (RANKS[one.state], not one.problems, one.cluster, one.name))


class LocationIndex:
    """The Locations that select a SyncTarget."""

    def __init__(self, locations: Iterable[Obj]) -> None:
        self._names: dict[str, list[str]] = {}
        self._indexes: dict[str, SelectorIndex] = {}
        for one in locations:
            try:
                location = parse_location(one)
            except msgspec.MsgspecError:
                continue
            names = self._names.setdefault(location.key.cluster, [])
            if location.instances is not None:
                index = self._indexes.setdefault(location.key.cluster, SelectorIndex())
                index.put(len(names), location.instances)
            names.append(location.key.name)

    def locations_of(self, target: Obj) -> list[str]:
        cluster = fields.cluster_of(target)
        if cluster not in self._indexes:
            return []
        found = self._indexes[cluster].matching(fields.texts(target, "metadata", "labels"))
        return sorted(self._names[cluster][at] for at in found)


def _edge(
    target: Obj,
    selecting: LocationIndex | None,
    mailboxes: Mapping[str, str] | None,
    reports: Mapping[str, Obj] | None,
    now: datetime,
) -> Edge:
    cluster, uid, state = fields.cluster_of(target), fields.text(target, "metadata", "uid"), state_of(target)
    mailbox = mailbox_name(cluster, uid)
    inside = (mailboxes or {}).get(mailbox, "")
    report = (reports or {}).get(inside) if inside else None
    heard = fields.moment(target, "status", "lastSyncerHeartbeatTime")
    missing = [] if mailboxes is None or mailbox in mailboxes else ["it has no mailbox yet"]
    return Edge(
        fields.name_of(target),
        cluster,
        uid,
        mailbox,
        None if selecting is None else selecting.locations_of(target),
        state,
        None if heard is None else format_seconds(heard),
        _objects(report),
        [*_why(target, state), *missing, *_reported(report)],
        list(_remarks(target, now)),
    )


def _objects(report: Obj | None) -> ObjectCounts | None:
    """None if there is no report."""
    if not isinstance(fields.at(report, "status", "objects"), dict):
        return None
    names = ObjectCounts.__struct_fields__
    return ObjectCounts(*(fields.number(report, "status", "objects", name) for name in names))


def _why(target: Obj, state: EdgeHealth) -> Iterator[str]:
    if state is EdgeHealth.OFFLINE:
        yield "no syncer has reported yet"
    elif state in (EdgeHealth.UNREACHABLE, EdgeHealth.NOT_READY):
        ready = fields.condition(target, "Ready") or fields.condition(target, EDGE_REACHABLE)
        yield describe(ready) or "no reason in its conditions"


def describe(condition: Obj) -> str:
    """`Reason: message`"""
    return describe_reason(fields.text(condition, "reason"), fields.text(condition, "message"))


def describe_reason(reason: str, message: str) -> str:
    return fields.line(": ".join(filter(None, (reason, message))))


def _reported(report: Obj | None) -> Iterator[str]:
    if failing := fields.number(report, "status", "objects", "failing"):
        first = next(fields.objects(report, "status", "problems"), None)
        example = "" if first is None else f"; {_part(first)}: {describe(first)}"
        yield f"{count(failing, 'object')} failing{fields.line(example)}"
    if orphaned := fields.number(report, "status", "objects", "orphaned"):
        yield f"{count(orphaned, 'object')} orphaned"
    for name, problem in ((ORPHANS_PRESENT, "True"), ("HubUnchanged", "False")):  # earlier syncers report the second
        condition = fields.condition(report, name)
        if condition.get("status") == problem:
            yield describe(condition)


def _part(problem: Obj) -> Part:
    kind = GroupResource(fields.text(problem, "group"), fields.text(problem, "resource"))
    return Part(kind, fields.text(problem, "namespace"), fields.text(problem, "name"))


def _remarks(target: Obj, now: datetime) -> Iterator[str]:
    """Requested states."""
    if fields.at(target, "spec", "unschedulable") is True:
        yield "unschedulable"
    evicted = fields.moment(target, "spec", "evictAfter")
    if evicted is not None and evicted <= now:
        yield "evicting"
    if fields.text(target, "metadata", "deletionTimestamp"):
        yield "being deleted"
