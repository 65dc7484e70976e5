"""What has to be done next about one Deployment.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from farflung.controllers.workload.deployment.replica_sets import (
    forgetting,
    is_other_size,
    kept_up,
    made,
    making,
    old_to_zero,
    rescaled,
    rolled,
)
from farflung.controllers.workload.deployment.rollout import (
    REVISION,
    Rollout,
    deadline,
    is_rolling,
    replicas,
    revision,
    rollout,
)
from farflung.controllers.workload.deployment.status import (
    PROGRESSING,
    TIMED_OUT,
    condition,
    counts,
    is_complete,
    next_look,
    progress,
)
from farflung.controllers.workload.objects import DEPLOYMENTS, REPLICA_SETS, found, is_terminating, notes, put
from farflung.controllers.workload.steps import Plan, Step, update, update_status
from farflung.machinery.errors import Obj


def decide(deployment: Obj, replica_sets: Iterable[Obj], busy: frozenset[str], now: datetime) -> Plan:
    """`busy`: the uids of ReplicaSets that have pods which have not ended, going or not.

    Each look does one thing, and what it wrote leads to the next: first what is said of pausing, then the new
    ReplicaSet as such, then sizes, then what is no longer needed, and, when all that is done, the status."""
    whole = rollout(deployment, replica_sets)
    if is_terminating(deployment):
        return _status(deployment, counts(whole, now), None)
    if (paused := _about_pause(deployment, now)) is not None:
        return Plan((paused,))
    if whole.new is not None and (steps := _about_new(whole, now)):
        return Plan(steps)
    if deployment["spec"].get("paused"):
        steps = rescaled(whole) or forgetting(whole)
        return Plan(steps) if steps else _status(deployment, counts(whole, now), None)
    steps = (rescaled(whole) if is_other_size(whole) else ()) or _about_rollout(whole, busy, now)
    if steps:
        return Plan(steps)
    status = progress(whole, now)
    return _status(deployment, status, next_look(deployment, status, now))


def _status(deployment: Obj, status: Obj, again: float | None) -> Plan:
    if status == deployment.get("status"):
        return Plan((), again)
    return Plan((Step(update_status(DEPLOYMENTS, deployment, status)),), again)


def _about_pause(deployment: Obj, now: datetime) -> Step | None:
    """Time that passes while it is paused does not count against its deadline."""
    if deadline(deployment) is None:
        return None
    status: Obj = deployment.get("status") or {}
    current = found(status, PROGRESSING)
    if current is not None and current.get("reason") == TIMED_OUT:
        return None
    noted = current is not None and current.get("reason") == "DeploymentPaused"
    paused = bool(deployment["spec"].get("paused"))
    if paused == noted:
        return None
    reason, message = (
        ("DeploymentPaused", "Deployment is paused") if paused else ("DeploymentResumed", "Deployment is resumed")
    )
    said = condition(PROGRESSING, "Unknown", reason, message, now)
    changed = {**status, "conditions": put(status.get("conditions") or [], said)}
    return Step(update_status(DEPLOYMENTS, deployment, changed))


# --- the ReplicaSet of the template ---------------------------------------------------------------


def _about_new(whole: Rollout, now: datetime) -> tuple[Step, ...]:
    """It has the annotations of the Deployment, and the Deployment its revision."""
    assert whole.new is not None
    if (changed := kept_up(whole)) is not None:
        return (Step(update(REPLICA_SETS, changed)),)
    name = whole.new["metadata"]["name"]
    return _noted(whole.deployment, revision(whole.new), "FoundNewReplicaSet", f'Found new replica set "{name}"', now)


def _noted(deployment: Obj, number: int, reason: str, message: str, now: datetime) -> tuple[Step, ...]:
    """The revision in the Deployment, and a first word about its progress."""
    status: Obj = deployment.get("status") or {}
    changed = deployment
    if notes(deployment).get(REVISION) != str(number):
        metadata = {**deployment["metadata"], "annotations": {**notes(deployment), REVISION: str(number)}}
        changed = {**deployment, "metadata": metadata}
    if deadline(deployment) is not None and found(status, PROGRESSING) is None:
        said = condition(PROGRESSING, "True", reason, message, now)
        status = {**status, "conditions": put(status.get("conditions") or [], said)}
    if changed is deployment and status == (deployment.get("status") or {}):
        return ()
    return (Step(update_status(DEPLOYMENTS, changed, status)),)


def _created(whole: Rollout, now: datetime) -> tuple[Step, ...]:
    new = made(whole)
    deployment = whole.deployment
    status: Obj = deployment.get("status") or {}
    if deadline(deployment) is not None:
        name = new["metadata"]["name"]
        said = condition(PROGRESSING, "True", "NewReplicaSetCreated", f'Created new replica set "{name}"', now)
        status = {**status, "conditions": put(status.get("conditions") or [], said)}
    noted = {**notes(deployment), REVISION: str(revision(new))}
    changed = {**deployment, "metadata": {**deployment["metadata"], "annotations": noted}}
    return making(new), Step(update_status(DEPLOYMENTS, changed, status))


# --- from one ReplicaSet to the next --------------------------------------------------------------


def _about_rollout(whole: Rollout, busy: frozenset[str], now: datetime) -> tuple[Step, ...]:
    if not is_rolling(whole.deployment):
        return _recreated(whole, busy, now)
    if whole.new is None:
        return _created(whole, now)
    return rolled(whole) or _forgotten(whole)


def _recreated(whole: Rollout, busy: frozenset[str], now: datetime) -> tuple[Step, ...]:
    """Nothing new before everything old has ended."""
    if steps := old_to_zero(whole):
        return steps
    if any(one["metadata"]["uid"] in busy for one in whole.old):
        return ()
    if whole.new is None:
        return _created(whole, now)
    if replicas(whole.new) != replicas(whole.deployment):
        return rolled(whole)
    return _forgotten(whole)


def _forgotten(whole: Rollout) -> tuple[Step, ...]:
    deployment = whole.deployment
    return forgetting(whole) if is_complete(deployment, deployment.get("status") or {}) else ()


# --- what goes wrong ------------------------------------------------------------------------------


def refused(deployment: Obj, message: str, now: datetime) -> tuple[Step, ...]:
    """The new ReplicaSet cannot be created."""
    if deadline(deployment) is None:
        return ()
    status: Obj = deployment.get("status") or {}
    said = condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now)
    changed = {**status, "conditions": put(status.get("conditions") or [], said)}
    return () if changed == status else (Step(update_status(DEPLOYMENTS, deployment, changed)),)
