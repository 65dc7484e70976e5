"""Decisions of the mailbox controller: workspaces, bindings, and the status of SyncTargets.  Pure.

The clock of a syncer may be wrong, so the time in its heartbeat is not used, but the hub's: the `managedFields`
entry of the heartbeat's owner, whose time every update by that owner renews.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from math import inf
from typing import Final, NamedTuple

import msgspec

from farflung.apis.edge.names import EDGE_REACHABLE, SYNC_TARGET_NAME
from farflung.apis.kcp.names import ExportReference
from farflung.machinery import times
from farflung.machinery.errors import Obj
from farflung.placement.names import BINDING, EXPORT, THE_ONE
from farflung.placement.syncer_config import SyncerHeartbeat, capacity_patch, moment
from farflung.placement.types import ApiBinding, StatusCondition, SyncTarget, Workspace

# --- decisions ------------------------------------------------------------------------------------


class MailboxStep(Enum):
    """The next step; afterwards the mailbox is reconciled again."""

    NOTHING = auto()
    LEAVE = auto()  #: not a mailbox
    WAIT = auto()  #: until it is ready, deleted or bound
    CREATE = auto()
    MARK = auto()
    DELETE = auto()


def decide_workspace(target: SyncTarget | None, workspace: Workspace | None) -> MailboxStep:
    wanted = target is not None and not target.is_terminating
    if workspace is None:
        return MailboxStep.CREATE if wanted else MailboxStep.NOTHING
    if workspace.is_terminating:
        return MailboxStep.WAIT if wanted else MailboxStep.NOTHING
    if not wanted:
        return MailboxStep.DELETE if workspace.target_name else MailboxStep.LEAVE
    assert target is not None
    if workspace.target_name != target.metadata.name:
        return MailboxStep.MARK
    return MailboxStep.NOTHING if workspace.ready else MailboxStep.WAIT


def is_ending(target: SyncTarget | None, workspace: Workspace) -> bool:
    """Whether this is a terminating mailbox."""
    return workspace.is_terminating and bool(workspace.target_name or target is not None)


def decide_binding(binding: ApiBinding | None, provider: str) -> MailboxStep:
    if binding is None:
        return MailboxStep.CREATE
    if binding.is_terminating:
        return MailboxStep.WAIT
    if binding.export != ExportReference(provider, EXPORT):
        return MailboxStep.DELETE
    return MailboxStep.NOTHING if binding.bound else MailboxStep.WAIT


# --- objects of a mailbox -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MailboxObjects:
    """The objects of a mailbox."""

    workspace: Obj
    binding: Obj
    config: Obj


def mailbox_objects(name: str, target: str, provider: str) -> MailboxObjects:
    return MailboxObjects(
        {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": name, "annotations": {SYNC_TARGET_NAME: target}},
            "spec": {},
        },
        {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIBinding",
            "metadata": {"name": BINDING},
            "spec": {"reference": {"export": {"path": provider, "name": EXPORT}}},
        },
        {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "SyncerConfig", "metadata": {"name": THE_ONE}, "spec": {}},
    )


REFRESH: Final = timedelta(seconds=25)  #: a SyncTarget is updated for every other heartbeat
MAX_HEARTBEAT_DELAY: Final = (
    45.0  #: seconds after which any heartbeat is written, before the SyncTarget counts as not ready
)
READY: Final = "Ready"
STATUSES: Final = frozenset({"True", "False", "Unknown"})
LONGEST_REASON: Final = 128  #: characters
LONGEST_MESSAGE: Final = 1024


# --- status of SyncTargets ------------------------------------------------------------------------


class StatusDecision(NamedTuple):
    status: Obj  #: changes of the status of the SyncTarget; empty: none
    again: float | None = None  #: seconds after which to decide again


NOTHING: Final = StatusDecision({})


@dataclass(slots=True)
class _Since:
    """The last heartbeat of a mailbox and the one in its SyncTarget, with monotonic times of their changes; -inf for
    those of an earlier process."""

    beat: datetime | None
    received: float
    shown: str
    since: float


class Reports:
    """Decides which reports are written, by the age of the heartbeat in each SyncTarget."""

    def __init__(self) -> None:
        self._since: dict[str, _Since] = {}

    def forget(self, mailbox: str) -> None:
        self._since.pop(mailbox, None)

    def _reported_at(self, mailbox: str, target: SyncTarget, config: SyncerHeartbeat, now: float) -> float:
        """The monotonic time of the heartbeat in the SyncTarget."""
        known = self._since.setdefault(mailbox, _Since(config.beat, -inf, target.heartbeat, -inf))
        if known.beat != config.beat:
            known.beat, known.received = config.beat, now
        if known.shown != target.heartbeat:
            known.shown = target.heartbeat
            known.since = known.received if moment(target.heartbeat) == config.beat else -inf
        return known.since

    def decide(self, mailbox: str, target: SyncTarget, config: SyncerHeartbeat, now: float) -> StatusDecision:
        """`now`: monotonic seconds.  A SyncTarget whose syncer never reported is not changed."""
        since = self._reported_at(mailbox, target, config, now)
        if config.beat is None:
            return NOTHING
        before = next((one for one in target.conditions if one.type == EDGE_REACHABLE), None)
        edge, shown = _reported(config, before), moment(target.heartbeat)
        amounts = {} if config.room is None else capacity_patch(target.status, config.room)
        if shown == config.beat and edge == before and not amounts:
            return NOTHING
        left = MAX_HEARTBEAT_DELAY - (now - since)
        is_fresh = shown is not None and abs(config.beat - shown) < REFRESH
        if is_fresh and left > 0 and _gist(edge) == _gist(before) and not amounts:
            return StatusDecision({}, left)
        status: Obj = {"lastSyncerHeartbeatTime": times.format_seconds(config.beat), **amounts}
        return StatusDecision(status if edge == before else {**status, "conditions": _with(target.conditions, edge)})


def _gist(condition: StatusCondition | None) -> tuple[str, str] | None:
    """What cannot wait.  Words may be others each time."""
    return None if condition is None else (condition.status, condition.reason)


def _with(conditions: Iterable[StatusCondition], edge: StatusCondition | None) -> list[Obj]:
    others = [one for one in conditions if one.type != EDGE_REACHABLE]
    together = others if edge is None else [*others, edge]
    return [msgspec.to_builtins(one) for one in sorted(together, key=lambda one: (one.type != READY, one.type))]


def _reported(config: SyncerHeartbeat, before: StatusCondition | None) -> StatusCondition | None:
    """With the transition time of the current condition if both are equal, else of the heartbeat."""
    edge, beat = config.edge, config.beat
    if edge is None or edge.status not in STATUSES or beat is None:
        return None
    condition = StatusCondition(
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
