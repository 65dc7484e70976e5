"""SyncTargets and Locations: which targets are at which location, and what is to be said of a target.

Both are indexed: a change of one costs about as much as there are others that it concerns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from pyroaring import BitMap

from farflung.hub.tenancy.conditions import READY, Verdict, is_met, merged
from farflung.hub.tenancy.hashes import sync_target_key
from farflung.lib.numbers import Numbers
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.machinery.label_index import LabelIndex, SelectorIndex
from farflung.machinery.selectors import LabelSelector, selector_of

HEARTBEAT: Final = "HeartbeatHealthy"
REACHABLE: Final = "EdgeReachable"  #: what a target's syncer says of its cluster
SECONDS: Final = 60.0  #: after which a target without a heartbeat is not ready any more
KEY_LABEL: Final = "internal.workload.kcp.io/key"
LABELS: Final = "scheduling.kcp.io/labels"  #: the annotation of a Location that shows its labels


class Target(NamedTuple):
    """A SyncTarget, as locations see it."""

    labels: Mapping[str, str]
    is_available: bool


class Count(NamedTuple):
    instances: int
    available: int

    def status(self) -> Obj:
        return {"instances": self.instances, "availableInstances": self.available}


NONE: Final = Count(0, 0)


def target_of(obj: Obj) -> Target:
    is_schedulable = not (obj.get("spec") or {}).get("unschedulable")
    return Target(obj["metadata"].get("labels") or {}, is_schedulable and is_met(obj, READY))


def instance_selector(location: Obj) -> LabelSelector | None:
    """None selects nothing: there is no selector, or nobody can tell what it means."""
    written = (location.get("spec") or {}).get("instanceSelector")
    if written is None:
        return None
    try:
        return selector_of(written)
    except KeyError:
        return None


class Workspace:
    """The targets and locations of one workspace, with the counts always right."""

    def __init__(self) -> None:
        self.targets: dict[str, Target] = {}
        self._target_numbers = Numbers()
        self._labels = LabelIndex()  #: of targets
        self._available = BitMap()  #: targets
        self._location_numbers = Numbers()
        self._selectors: dict[str, LabelSelector | None] = {}
        self._index = SelectorIndex()  #: of locations
        self._counts: dict[str, Count] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.targets or self._selectors)

    def count(self, location: str) -> Count:
        return self._counts.get(location, NONE)

    def set_target(self, name: str, new: Target | None) -> list[str]:
        """The locations whose counts it changes.  None: it is gone."""
        old = self.targets.pop(name, None)
        if new is not None:
            self.targets[name] = new
        if new == old:
            return []
        self._note_target(name, new)
        before = BitMap() if old is None else self._index.matching(old.labels)
        after = BitMap() if new is None else self._index.matching(new.labels)
        lost = NONE if old is None else Count(1, int(old.is_available))
        won = NONE if new is None else Count(1, int(new.is_available))
        changed = before ^ after if lost == won else before | after
        for number in changed:
            location = self._location_numbers.name(number)
            instances, available = self._counts[location]
            if number in before:
                instances, available = instances - lost.instances, available - lost.available
            if number in after:
                instances, available = instances + won.instances, available + won.available
            self._counts[location] = Count(instances, available)
        return [self._location_numbers.name(number) for number in changed]

    def _note_target(self, name: str, target: Target | None) -> None:
        if target is None:
            number = self._target_numbers.forget(name)
            self._labels.remove(number)
            self._available.discard(number)
            return
        number = self._target_numbers.of(name)
        self._labels.put(number, target.labels)
        if target.is_available:
            self._available.add(number)
        else:
            self._available.discard(number)

    def set_location(self, name: str, location: Obj | None) -> None:
        """None: it is gone."""
        if location is None:
            if name in self._selectors:
                del self._selectors[name], self._counts[name]
                self._index.remove(self._location_numbers.forget(name))
            return
        selector = instance_selector(location)
        if name in self._selectors and selector == self._selectors[name]:
            return
        self._selectors[name] = selector
        number = self._location_numbers.of(name)
        if selector is None:
            self._index.remove(number)
            self._counts[name] = NONE
        else:
            self._index.put(number, selector)
            found = self._labels.select(selector)
            self._counts[name] = Count(len(found), found.intersection_cardinality(self._available))


# --- what is said of them -------------------------------------------------------------------------


def shown_labels(location: Obj) -> str | None:
    """The annotation that shows a location's labels; None for one without."""
    labels = location["metadata"].get("labels") or {}
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items())) or None


def key_of(cluster: str, target: Obj) -> str:
    return sync_target_key(cluster, target["metadata"]["name"])


def last_heartbeat(target: Obj) -> datetime | None:
    text = (target.get("status") or {}).get("lastSyncerHeartbeatTime")
    try:
        return times.parse(text) if text else None
    except times.TimeError:
        return None


def heartbeat_verdict(heartbeat: datetime | None, now: datetime, seconds: float = SECONDS) -> Verdict:
    if heartbeat is None:
        return Verdict(HEARTBEAT, "ErrorHeartbeat", "No heartbeat yet seen", "Warning")
    if now - heartbeat > timedelta(seconds=seconds):
        shown = f"{heartbeat.astimezone(UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
        return Verdict(HEARTBEAT, "ErrorHeartbeat", f"No heartbeat since {shown}", "Warning")
    return Verdict(HEARTBEAT)


def ready_verdict(conditions: Iterable[Obj], heartbeat: Verdict) -> Verdict:
    """A target is ready if it is heard of and says nothing to the contrary."""
    found = next((one for one in conditions if one.get("type") == REACHABLE and one.get("status") == "False"), None)
    if found is None or not heartbeat.is_met:
        return heartbeat._replace(type=READY)
    reason, severity = found.get("reason") or "EdgeUnreachable", found.get("severity") or "Error"
    return Verdict(READY, reason, found.get("message") or "The cluster cannot be reached by its syncer", severity)


def target_status(url: str, cluster: str, target: Obj, now: datetime, seconds: float = SECONDS) -> Obj:
    """The parts of a SyncTarget's status that the hub keeps.  `url`: the hub's."""
    metadata, status = target["metadata"], target.get("status") or {}
    verdict = heartbeat_verdict(last_heartbeat(target), now, seconds)
    present = status.get("conditions") or ()
    conditions = merged(present, (verdict, ready_verdict(present, verdict)), times.format_seconds(now))
    path = f"{cluster}/{metadata['name']}/{metadata['uid']}"
    urls = {"syncerURL": f"{url}/services/syncer/{path}", "upsyncerURL": f"{url}/services/upsyncer/{path}"}
    return {"conditions": conditions, "virtualWorkspaces": [urls]}
