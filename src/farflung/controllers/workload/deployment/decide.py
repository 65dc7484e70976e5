"""Plans the next step of one Deployment.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from farflung.controllers.workload.deployment.replica_sets import (
    cleanup_steps,
    create_step,
    is_scaling_event,
    new_replica_set,
    rolling_steps,
    scale,
    scale_down_old,
    updated_replica_set,
)
from farflung.controllers.workload.deployment.rollout import (
    REVISION,
    Rollout,
    is_rolling,
    observe,
    progress_deadline,
    replicas,
    revision,
)
from farflung.controllers.workload.deployment.status import (
    PROGRESSING,
    TIMED_OUT,
    condition,
    count_status,
    is_complete,
    progress_status,
    requeue_after,
)
from farflung.controllers.workload.model.objects import (
    DEPLOYMENTS,
    REPLICA_SETS,
    annotations_of,
    find_condition,
    is_terminating,
    set_condition,
)
from farflung.controllers.workload.model.steps import WorkloadPlan, WriteStep, update, update_status
from farflung.machinery.errors import Obj


def decide(deployment: Obj, replica_sets: Iterable[Obj], busy: frozenset[str], now: datetime) -> WorkloadPlan:
    """Plan one step: the pause condition, the new ReplicaSet, sizes, cleanup, and last the status.

    `busy`: uids of ReplicaSets that have unfinished pods, terminating ones included.
    """
    whole = observe(deployment, replica_sets)
    if is_terminating(deployment):
        return _status_plan(deployment, count_status(whole, now), None)
    if (paused := _pause_step(deployment, now)) is not None:
        return WorkloadPlan((paused,))
    if whole.new is not None and (steps := _new_replica_set_steps(whole, now)):
        return WorkloadPlan(steps)
    if deployment["spec"].get("paused"):
        steps = scale(whole) or cleanup_steps(whole)
        return WorkloadPlan(steps) if steps else _status_plan(deployment, count_status(whole, now), None)
    steps = (scale(whole) if is_scaling_event(whole) else ()) or _rollout_steps(whole, busy, now)
    if steps:
        return WorkloadPlan(steps)
    status = progress_status(whole, now)
    return _status_plan(deployment, status, requeue_after(deployment, status, now))


def _status_plan(deployment: Obj, status: Obj, again: float | None) -> WorkloadPlan:
    if status == deployment.get("status"):
        return WorkloadPlan((), again)
    return WorkloadPlan((WriteStep(update_status(DEPLOYMENTS, deployment, status)),), again)


def _pause_step(deployment: Obj, now: datetime) -> WriteStep | None:
    """Write the pause or the resume to the Progressing condition, which restarts the progress deadline."""
    if progress_deadline(deployment) is None:
        return None
    status: Obj = deployment.get("status") or {}
    current = find_condition(status, PROGRESSING)
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
    changed = {**status, "conditions": set_condition(status.get("conditions") or [], said)}
    return WriteStep(update_status(DEPLOYMENTS, deployment, changed))


# --- the ReplicaSet of the template ---------------------------------------------------------------


def _new_replica_set_steps(whole: Rollout, now: datetime) -> tuple[WriteStep, ...]:
    """Copy annotations to the new ReplicaSet, and its revision to the Deployment."""
    assert whole.new is not None
    if (changed := updated_replica_set(whole)) is not None:
        return (WriteStep(update(REPLICA_SETS, changed)),)
    name = whole.new["metadata"]["name"]
    return _revision_steps(
        whole.deployment, revision(whole.new), "FoundNewReplicaSet", f'Found new replica set "{name}"', now
    )


def _revision_steps(deployment: Obj, number: int, reason: str, message: str, now: datetime) -> tuple[WriteStep, ...]:
    """Write the revision annotation and a first Progressing condition."""
    status: Obj = deployment.get("status") or {}
    changed = deployment
    if annotations_of(deployment).get(REVISION) != str(number):
        metadata = {**deployment["metadata"], "annotations": {**annotations_of(deployment), REVISION: str(number)}}
        changed = {**deployment, "metadata": metadata}
    if progress_deadline(deployment) is not None and find_condition(status, PROGRESSING) is None:
        said = condition(PROGRESSING, "True", reason, message, now)
        status = {**status, "conditions": set_condition(status.get("conditions") or [], said)}
    if changed is deployment and status == (deployment.get("status") or {}):
        return ()
    return (WriteStep(update_status(DEPLOYMENTS, changed, status)),)


def _create_steps(whole: Rollout, now: datetime) -> tuple[WriteStep, ...]:
    new = new_replica_set(whole)
    deployment = whole.deployment
    status: Obj = deployment.get("status") or {}
    if progress_deadline(deployment) is not None:
        name = new["metadata"]["name"]
        said = condition(PROGRESSING, "True", "NewReplicaSetCreated", f'Created new replica set "{name}"', now)
        status = {**status, "conditions": set_condition(status.get("conditions") or [], said)}
    noted = {**annotations_of(deployment), REVISION: str(revision(new))}
    changed = {**deployment, "metadata": {**deployment["metadata"], "annotations": noted}}
    return create_step(new), WriteStep(update_status(DEPLOYMENTS, changed, status))


# --- from one ReplicaSet to the next --------------------------------------------------------------


def _rollout_steps(whole: Rollout, busy: frozenset[str], now: datetime) -> tuple[WriteStep, ...]:
    if not is_rolling(whole.deployment):
        return _recreate_steps(whole, busy, now)
    if whole.new is None:
        return _create_steps(whole, now)
    return rolling_steps(whole) or _cleanup_when_complete(whole)


def _recreate_steps(whole: Rollout, busy: frozenset[str], now: datetime) -> tuple[WriteStep, ...]:
    """Create new pods after all old pods have finished."""
    if steps := scale_down_old(whole):
        return steps
    if any(one["metadata"]["uid"] in busy for one in whole.old):
        return ()
    if whole.new is None:
        return _create_steps(whole, now)
    if replicas(whole.new) != replicas(whole.deployment):
        return rolling_steps(whole)
    return _cleanup_when_complete(whole)


def _cleanup_when_complete(whole: Rollout) -> tuple[WriteStep, ...]:
    deployment = whole.deployment
    return cleanup_steps(whole) if is_complete(deployment, deployment.get("status") or {}) else ()


# --- errors ---------------------------------------------------------------------------------------


def report_create_error(deployment: Obj, message: str, now: datetime) -> tuple[WriteStep, ...]:
    """The server refused the new ReplicaSet."""
    if progress_deadline(deployment) is None:
        return ()
    status: Obj = deployment.get("status") or {}
    said = condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now)
    changed = {**status, "conditions": set_condition(status.get("conditions") or [], said)}
    return () if changed == status else (WriteStep(update_status(DEPLOYMENTS, deployment, changed)),)
