"""What a SyncTarget has to show of its syncer.  Pure.

A syncer's clock may be wrong, so the time in its heartbeat does not count.  What counts is when the server last took a
report of the syncer: the time that managedFields has for the owner of the heartbeat field, which every change by that
owner renews.  A SyncTarget is judged by the same clock, and a controller that was restarted reads the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from farflung.controllers.mailbox.decide import Condition, Config, Target
from farflung.controllers.mailbox.room import Room, amounts_of, differences
from farflung.machinery import times
from farflung.machinery.errors import Obj

REFRESH: Final = timedelta(seconds=25)  #: a SyncTarget is written for every other heartbeat, which is often enough
LATEST: Final = 45.0  #: seconds after which it is written for any: before it looks dead
EDGE_REACHABLE: Final = "EdgeReachable"
CAPACITY_KNOWN: Final = "CapacityKnown"
READY: Final = "Ready"
STATUSES: Final = frozenset({"True", "False", "Unknown"})
LONGEST_REASON: Final = 128  #: characters
LONGEST_MESSAGE: Final = 1024
_FIELD: Final = b'"f:lastSyncerHeartbeatTime"'

# --- what a syncer reports ------------------------------------------------------------------------


class _Owner(msgspec.Struct, rename="camel"):
    subresource: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class _Metadata(msgspec.Struct, rename="camel"):
    managed_fields: list[_Owner] | None = None


class _Status(msgspec.Struct):
    conditions: list[Condition] | None = None
    allocatable: Any = None
    capacity: Any = None


class _Config(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


_CONFIG: Final = msgspec.json.Decoder(_Config)


def config_of(document: bytes) -> Config:
    """A SyncerConfig.  msgspec.MsgspecError if it is none."""
    found = _CONFIG.decode(document)
    status = found.status or _Status()
    said = {one.type: one for one in reversed(status.conditions or [])}
    beats = [beat for owner in found.metadata.managed_fields or () if (beat := _beat(owner)) is not None]
    return Config(max(beats, default=None), said.get(EDGE_REACHABLE), _room(status, said.get(CAPACITY_KNOWN)))


def _room(status: _Status, known: Condition | None) -> Room | None:
    """A syncer that may not look says so.  One that knows nothing of capacity says nothing."""
    room = Room(amounts_of(status.allocatable), amounts_of(status.capacity))
    return room if any(room) or (known is not None and known.status == "False") else None


def _beat(owner: _Owner) -> datetime | None:
    if owner.subresource != "status" or _FIELD not in bytes(owner.fields_v1):
        return None
    return moment(owner.time)


def moment(text: str) -> datetime | None:
    try:
        return times.parse(text)
    except times.TimeError:
        return None


# --- what is shown of it --------------------------------------------------------------------------


class Decision(NamedTuple):
    status: Obj  #: what the status of the SyncTarget has to say from now on; empty: nothing else
    again: float | None = None  #: seconds after which to look again


NOTHING: Final = Decision({})


@dataclass(slots=True)
class _Since:
    """What was last heard of a mailbox, and what its SyncTarget shows; and from when that is, by a clock that never
    jumps.  Of what was there before we looked nobody knows that."""

    beat: datetime | None
    heard: float
    shown: str
    since: float


class Reports:
    """Which reports are worth a write.  Knows how old each SyncTarget's heartbeat is."""

    def __init__(self) -> None:
        self._since: dict[str, _Since] = {}

    def forget(self, mailbox: str) -> None:
        self._since.pop(mailbox, None)

    def _heard(self, mailbox: str, target: Target, config: Config, now: float) -> float:
        """When there was the heartbeat that the SyncTarget shows."""
        known = self._since.setdefault(mailbox, _Since(config.beat, -inf, target.heartbeat, -inf))
        if known.beat != config.beat:
            known.beat, known.heard = config.beat, now
        if known.shown != target.heartbeat:
            known.shown = target.heartbeat
            known.since = known.heard if moment(target.heartbeat) == config.beat else -inf
        return known.since

    def decide(self, mailbox: str, target: Target, config: Config, now: float) -> Decision:
        """`now`: of a clock that never jumps, in seconds.  A SyncTarget whose syncer never reported is left alone."""
        since = self._heard(mailbox, target, config, now)
        if config.beat is None:
            return NOTHING
        before = next((one for one in target.conditions if one.type == EDGE_REACHABLE), None)
        edge, shown = _reported(config, before), moment(target.heartbeat)
        amounts = {} if config.room is None else differences(target.status, config.room)
        if shown == config.beat and edge == before and not amounts:
            return NOTHING
        left = LATEST - (now - since)
        is_fresh = shown is not None and abs(config.beat - shown) < REFRESH
        if is_fresh and left > 0 and _gist(edge) == _gist(before) and not amounts:
            return Decision({}, left)
        status: Obj = {"lastSyncerHeartbeatTime": times.format_seconds(config.beat), **amounts}
        return Decision(status if edge == before else {**status, "conditions": _with(target.conditions, edge)})


def _gist(condition: Condition | None) -> tuple[str, str] | None:
    """What cannot wait.  Words may be others each time."""
    return None if condition is None else (condition.status, condition.reason)


def _with(conditions: Iterable[Condition], edge: Condition | None) -> list[Obj]:
    others = [one for one in conditions if one.type != EDGE_REACHABLE]
    together = others if edge is None else [*others, edge]
    return [msgspec.to_builtins(one) for one in sorted(together, key=lambda one: (one.type != READY, one.type))]


def _reported(config: Config, before: Condition | None) -> Condition | None:
    """With the time of what is shown already if that says the same, else with the heartbeat's."""
    edge, beat = config.edge, config.beat
    if edge is None or edge.status not in STATUSES or beat is None:
        return None
    condition = Condition(
        type=EDGE_REACHABLE,
        status=edge.status,
        severity="Error" if edge.status == "False" else "",
        reason=edge.reason[:LONGEST_REASON],
        message=edge.message[:LONGEST_MESSAGE],
        last_transition_time=times.format_seconds(beat),
    )
    if before is None:
        return condition
    same = msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)
    return before if same == before else condition
