"""Plans the next step of one Deployment.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import floor
from typing import Final

from farflung.apis.names import (
    DEPLOYMENT_DESIRED,
    DEPLOYMENT_HISTORY,
    DEPLOYMENT_MAX,
    DEPLOYMENT_REVISION,
    DEPLOYMENTS,
    LAST_APPLIED,
    REPLICA_FAILURE,
    REPLICA_SETS,
)
from farflung.controllers.workload.model.objects import (
    annotations_of,
    creation_time,
    find_condition,
    is_terminating,
    oldest_first,
    parse_time,
    resolve_fenceposts,
    resolve_int_or_percent,
    set_condition,
    without_condition,
)
from farflung.controllers.workload.model.ownership import owner_reference
from farflung.controllers.workload.model.revisions import short_hash
from farflung.controllers.workload.model.steps import (
    NORMAL,
    WARNING,
    EventText,
    WorkloadPlan,
    WriteStep,
    create,
    delete,
    status_plan,
    update,
    update_status,
)
from farflung.machinery.errors import Obj
from farflung.machinery.times import format_seconds

HASH: Final = "pod-template-hash"
UNLIMITED: Final = 2**31 - 1
#: annotations that describe one object only
NOT_COPIED: Final = frozenset(
    {
        LAST_APPLIED,
        DEPLOYMENT_REVISION,
        DEPLOYMENT_HISTORY,
        DEPLOYMENT_DESIRED,
        DEPLOYMENT_MAX,
        "deprecated.deployment.rollback.to",
    }
)
MAX_HISTORY: Final = 2000  #: characters
MAX_NAME: Final = 253
AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
COMPLETE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"


def decide(deployment: Obj, replica_sets: Iterable[Obj], busy: frozenset[str], now: datetime) -> WorkloadPlan:
    """Plan one step: the pause condition, the new ReplicaSet, sizes, cleanup, and last the status.

    `busy`: uids of ReplicaSets that have unfinished pods, terminating ones included.
    """
    rollout = observe(deployment, replica_sets)
    if is_terminating(deployment):
        return status_plan(DEPLOYMENTS, deployment, count_status(rollout, now))
    if (paused := _pause_step(deployment, now)) is not None:
        return WorkloadPlan((paused,))
    if rollout.new is not None and (steps := _new_replica_set_steps(rollout, now)):
        return WorkloadPlan(steps)
    if deployment["spec"].get("paused"):
        steps = scale(rollout) or cleanup_steps(rollout)
        return WorkloadPlan(steps) if steps else status_plan(DEPLOYMENTS, deployment, count_status(rollout, now))
    steps = (scale(rollout) if is_scaling_event(rollout) else ()) or _rollout_steps(rollout, busy, now)
    if steps:
        return WorkloadPlan(steps)
    status = progress_status(rollout, now)
    return status_plan(DEPLOYMENTS, deployment, status, requeue_after(deployment, status, now))


def _pause_step(deployment: Obj, now: datetime) -> WriteStep | None:
    """Write the pause or the resume to the Progressing condition, which restarts the progress deadline."""
    if progress_deadline(deployment) is None:
        return None
    status: Obj = deployment.get("status") or {}
    current = find_condition(status, PROGRESSING)
    if current is not None and current.get("reason") == TIMED_OUT:
        return None
    recorded = current is not None and current.get("reason") == "DeploymentPaused"
    paused = bool(deployment["spec"].get("paused"))
    if paused == recorded:
        return None
    reason, message = (
        ("DeploymentPaused", "Deployment is paused") if paused else ("DeploymentResumed", "Deployment is resumed")
    )
    changed = _with_condition(status, condition(PROGRESSING, "Unknown", reason, message, now))
    return WriteStep(update_status(DEPLOYMENTS, deployment, changed))


def _with_condition(status: Obj, new: Obj) -> Obj:
    return {**status, "conditions": set_condition(status.get("conditions") or [], new)}


# --- the ReplicaSet of the template ---------------------------------------------------------------


def _new_replica_set_steps(rollout: Rollout, now: datetime) -> tuple[WriteStep, ...]:
    """Copy annotations to the new ReplicaSet, and its revision to the Deployment."""
    assert rollout.new is not None
    if (changed := updated_replica_set(rollout)) is not None:
        return (WriteStep(update(REPLICA_SETS, changed)),)
    name = rollout.new["metadata"]["name"]
    return _revision_steps(
        rollout.deployment, revision(rollout.new), "FoundNewReplicaSet", f'Found new replica set "{name}"', now
    )


def _revision_steps(deployment: Obj, number: int, reason: str, message: str, now: datetime) -> tuple[WriteStep, ...]:
    """Write the revision annotation and a first Progressing condition."""
    status: Obj = deployment.get("status") or {}
    changed = deployment
    if annotations_of(deployment).get(DEPLOYMENT_REVISION) != str(number):
        metadata = {
            **deployment["metadata"],
            "annotations": {**annotations_of(deployment), DEPLOYMENT_REVISION: str(number)},
        }
        changed = {**deployment, "metadata": metadata}
    if progress_deadline(deployment) is not None and find_condition(status, PROGRESSING) is None:
        status = _with_condition(status, condition(PROGRESSING, "True", reason, message, now))
    if changed is deployment and status == (deployment.get("status") or {}):
        return ()
    return (WriteStep(update_status(DEPLOYMENTS, changed, status)),)


def _create_steps(rollout: Rollout, now: datetime) -> tuple[WriteStep, ...]:
    new = new_replica_set(rollout)
    deployment = rollout.deployment
    status: Obj = deployment.get("status") or {}
    if progress_deadline(deployment) is not None:
        name = new["metadata"]["name"]
        message = f'Created new replica set "{name}"'
        status = _with_condition(status, condition(PROGRESSING, "True", "NewReplicaSetCreated", message, now))
    annotations = {**annotations_of(deployment), DEPLOYMENT_REVISION: str(revision(new))}
    changed = {**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}}
    return create_step(new), WriteStep(update_status(DEPLOYMENTS, changed, status))


# --- from one ReplicaSet to the next --------------------------------------------------------------


def _rollout_steps(rollout: Rollout, busy: frozenset[str], now: datetime) -> tuple[WriteStep, ...]:
    if not is_rolling(rollout.deployment):
        return _recreate_steps(rollout, busy, now)
    if rollout.new is None:
        return _create_steps(rollout, now)
    return rolling_steps(rollout) or _cleanup_when_complete(rollout)


def _recreate_steps(rollout: Rollout, busy: frozenset[str], now: datetime) -> tuple[WriteStep, ...]:
    """Create new pods after all old pods have finished."""
    if steps := scale_down_old(rollout):
        return steps
    if any(one["metadata"]["uid"] in busy for one in rollout.old):
        return ()
    if rollout.new is None:
        return _create_steps(rollout, now)
    if replicas(rollout.new) != replicas(rollout.deployment):
        return rolling_steps(rollout)
    return _cleanup_when_complete(rollout)


def _cleanup_when_complete(rollout: Rollout) -> tuple[WriteStep, ...]:
    deployment = rollout.deployment
    return cleanup_steps(rollout) if is_complete(deployment, deployment.get("status") or {}) else ()


# --- errors ---------------------------------------------------------------------------------------


def report_create_error(deployment: Obj, message: str, now: datetime) -> tuple[WriteStep, ...]:
    """The server refused the new ReplicaSet."""
    if progress_deadline(deployment) is None:
        return ()
    status: Obj = deployment.get("status") or {}
    changed = _with_condition(status, condition(PROGRESSING, "False", "ReplicaSetCreateError", message, now))
    return () if changed == status else (WriteStep(update_status(DEPLOYMENTS, deployment, changed)),)


# --- numbers of a rollout -------------------------------------------------------------------------


def replicas(obj: Obj) -> int:
    """The desired number."""
    wanted = obj["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def status_count(obj: Obj, what: str) -> int:
    """A number in the status, as `availableReplicas`."""
    return int((obj.get("status") or {}).get(what) or 0)


def available_replicas(replica_set: Obj) -> int:
    """Never more than `spec.replicas`: the others are about to be deleted."""
    return min(status_count(replica_set, "availableReplicas"), replicas(replica_set))


def total_replicas(replica_sets: Iterable[Obj]) -> int:
    return sum(replicas(one) for one in replica_sets)


def annotation_number(obj: Obj, annotation: str) -> int | None:
    """None if it is missing or not a number."""
    text = annotations_of(obj).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def revision(replica_set: Obj) -> int:
    return annotation_number(replica_set, DEPLOYMENT_REVISION) or 0


def is_rolling(deployment: Obj) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def max_surge(deployment: Obj) -> int:
    if not is_rolling(deployment):
        return 0
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    return resolve_int_or_percent(rolling.get("maxSurge"), replicas(deployment), round_up=True)


def max_unavailable(deployment: Obj) -> int:
    desired = replicas(deployment)
    if not is_rolling(deployment) or not desired:
        return 0
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    _, unavailable = resolve_fenceposts(rolling.get("maxSurge"), rolling.get("maxUnavailable"), desired)
    return min(unavailable, desired)


def progress_deadline(deployment: Obj) -> int | None:
    """Seconds; None: no deadline."""
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds is None or seconds == UNLIMITED else int(seconds)


@dataclass(frozen=True, slots=True)
class Rollout:
    """`new`: the ReplicaSet of the current template; `old`: the others, oldest first."""

    deployment: Obj
    new: Obj | None
    old: tuple[Obj, ...]

    @property
    def all(self) -> tuple[Obj, ...]:
        return self.old if self.new is None else (*self.old, self.new)

    @property
    def old_active(self) -> tuple[Obj, ...]:
        return tuple(one for one in self.old if replicas(one) > 0)


def observe(deployment: Obj, replica_sets: Iterable[Obj]) -> Rollout:
    """Of several ReplicaSets with the current template, the oldest is the new one."""
    living = [one for one in oldest_first(replica_sets) if not is_terminating(one)]
    wanted = template_without_hash(deployment)
    new = next((one for one in living if template_without_hash(one) == wanted), None)
    return Rollout(deployment, new, tuple(one for one in living if one is not new))


def template_without_hash(obj: Obj) -> Obj:
    """The pod template without the pod-template-hash label."""
    template: Obj = obj["spec"]["template"]
    metadata = dict(template.get("metadata") or {})
    template_labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != HASH}
    return {**template, "metadata": {**metadata, "labels": template_labels} if template_labels else metadata}


# --- ReplicaSets ----------------------------------------------------------------------------------


def next_revision(rollout: Rollout) -> int:
    return max((revision(one) for one in rollout.old), default=0) + 1


def new_replica_set(rollout: Rollout) -> Obj:
    """The ReplicaSet of the current template."""
    deployment = rollout.deployment
    spec, metadata = deployment["spec"], deployment["metadata"]
    hashed = short_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount"))
    template = deepcopy(spec["template"])
    template_labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH: hashed}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": template_labels}
    selector = deepcopy(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: hashed}
    made: Obj = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{metadata['name'][: MAX_NAME - 1 - len(hashed)]}-{hashed}",
            "namespace": metadata["namespace"],
            "labels": dict(template_labels),
            "annotations": {},
            "ownerReferences": [owner_reference(deployment, DEPLOYMENTS)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }
    if spec.get("minReadySeconds"):
        made["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    made["spec"]["replicas"] = new_size(Rollout(deployment, made, rollout.old))
    return with_annotations(made, deployment, next_revision(rollout), sized=True)


def create_step(replica_set: Obj) -> WriteStep:
    name, size = replica_set["metadata"]["name"], replicas(replica_set)
    scaled = EventText(NORMAL, "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}")
    failed = EventText(WARNING, "ReplicaSetCreateError", f'Failed to create new replica set "{name}": ')
    return WriteStep(create(REPLICA_SETS, replica_set), scaled if size else None, failed)


def with_annotations(replica_set: Obj, deployment: Obj, number: int, *, sized: bool = False) -> Obj:
    """With the Deployment's annotations and this revision if that is newer; the same object if nothing changes.  A
    ReplicaSet that was rolled back to keeps a history of its revisions."""
    before = annotations_of(replica_set)
    copied = {key: value for key, value in annotations_of(deployment).items() if key not in NOT_COPIED}
    after = {**before, **copied}
    if revision(replica_set) < number:
        after[DEPLOYMENT_REVISION] = str(number)
        if former := before.get(DEPLOYMENT_REVISION):
            after[DEPLOYMENT_HISTORY] = _history(before.get(DEPLOYMENT_HISTORY, ""), former)
    if sized:
        after |= _size_annotations(deployment)
    if after == before:
        return replica_set
    return {**replica_set, "metadata": {**replica_set["metadata"], "annotations": after}}


def _history(before: str, former: str) -> str:
    revisions = [*filter(None, before.split(",")), former]
    while len(revisions) > 1 and len(",".join(revisions)) > MAX_HISTORY:
        revisions.pop(0)
    return ",".join(revisions)


def _size_annotations(deployment: Obj) -> dict[str, str]:
    desired = replicas(deployment)
    return {DEPLOYMENT_DESIRED: str(desired), DEPLOYMENT_MAX: str(desired + max_surge(deployment))}


def updated_replica_set(rollout: Rollout) -> Obj | None:
    """The new ReplicaSet with current annotations and minReadySeconds; None if nothing changes."""
    assert rollout.new is not None
    changed = with_annotations(rollout.new, rollout.deployment, next_revision(rollout))
    wait = rollout.deployment["spec"].get("minReadySeconds") or 0
    if wait != (changed["spec"].get("minReadySeconds") or 0):
        changed = {**changed, "spec": {**changed["spec"], "minReadySeconds": wait}}
    return None if changed is rollout.new else changed


def new_size(rollout: Rollout) -> int:
    """The size of the new ReplicaSet within maxSurge."""
    desired, new = replicas(rollout.deployment), rollout.new
    assert new is not None
    if not is_rolling(rollout.deployment):
        return desired
    room = desired + max_surge(rollout.deployment) - total_replicas(rollout.all)
    return replicas(new) if room <= 0 else replicas(new) + min(room, desired - replicas(new))


def scale_steps(replica_set: Obj, size: int, deployment: Obj) -> tuple[WriteStep, ...]:
    """Scale, and record the Deployment's size in annotations."""
    before = replicas(replica_set)
    sizes = _size_annotations(deployment)
    if before == size and sizes.items() <= annotations_of(replica_set).items():
        return ()
    metadata = {**replica_set["metadata"], "annotations": {**annotations_of(replica_set), **sizes}}
    changed = {**replica_set, "metadata": metadata, "spec": {**replica_set["spec"], "replicas": size}}
    name, direction = metadata["name"], "up" if size > before else "down"
    scaled = EventText(NORMAL, "ScalingReplicaSet", f"Scaled {direction} replica set {name} from {before} to {size}")
    return (WriteStep(update(REPLICA_SETS, changed), scaled if before != size else None),)


def is_scaling_event(rollout: Rollout) -> bool:
    """Whether the Deployment was scaled since its ReplicaSets were scaled."""
    active = (one for one in rollout.all if replicas(one) > 0)
    desired = replicas(rollout.deployment)
    return any(
        (recorded := annotation_number(one, DEPLOYMENT_DESIRED)) is not None and recorded != desired for one in active
    )


def cleanup_steps(rollout: Rollout) -> tuple[WriteStep, ...]:
    """Delete empty old ReplicaSets beyond revisionHistoryLimit."""
    limit = rollout.deployment["spec"].get("revisionHistoryLimit")
    if limit is None or limit == UNLIMITED or len(rollout.old) <= limit:
        return ()
    oldest = sorted(rollout.old, key=revision)[: len(rollout.old) - limit]
    return tuple(WriteStep(delete(REPLICA_SETS, one)) for one in oldest if _is_empty(one))


def _is_empty(replica_set: Obj) -> bool:
    seen = status_count(replica_set, "observedGeneration") >= replica_set["metadata"].get("generation", 0)
    return seen and replicas(replica_set) == 0 and status_count(replica_set, "replicas") == 0


# --- scaling of the Deployment --------------------------------------------------------------------


def scale(rollout: Rollout) -> tuple[WriteStep, ...]:
    deployment = rollout.deployment
    if not rollout.all:
        return ()
    if (only := _active_or_latest(rollout)) is not None:
        return scale_steps(only, replicas(deployment), deployment)
    if _is_saturated(rollout):
        return scale_down_old(rollout)
    return _scale_proportionally(rollout) if is_rolling(deployment) else ()


def _active_or_latest(rollout: Rollout) -> Obj | None:
    """The only ReplicaSet with replicas; the latest one if none has any; None if several have."""
    active = [one for one in rollout.all if replicas(one) > 0]
    if not active:
        return rollout.all[-1]
    return active[0] if len(active) == 1 else None


def _is_saturated(rollout: Rollout) -> bool:
    new, desired = rollout.new, replicas(rollout.deployment)
    if new is None or annotation_number(new, DEPLOYMENT_DESIRED) != desired:
        return False
    return replicas(new) == desired and status_count(new, "availableReplicas") == desired


def _scale_proportionally(rollout: Rollout) -> tuple[WriteStep, ...]:
    """Scale all in proportion, larger ones first; the largest gets the rounding difference."""
    deployment = rollout.deployment
    active = [one for one in rollout.all if replicas(one) > 0]
    desired = replicas(deployment)
    allowed = desired + max_surge(deployment) if desired else 0
    change = allowed - total_replicas(active)
    newer_first = 1 if change > 0 else -1
    active.sort(key=lambda one: (-replicas(one), -newer_first * creation_time(one).timestamp()))
    sizes: list[int] = []
    left = change
    for one in active:
        share = _share(one, deployment)
        share = min(share, left) if change > 0 else max(share, left)
        share = share if change and left else 0
        sizes.append(replicas(one) + share)
        left -= share
    sizes[0] = max(0, sizes[0] + left)
    return tuple(step for one, size in zip(active, sizes, strict=True) for step in scale_steps(one, size, deployment))


def _share(replica_set: Obj, deployment: Obj) -> int:
    """Its proportional change."""
    desired, size = replicas(deployment), replicas(replica_set)
    if not desired:
        return -size
    before = annotation_number(replica_set, DEPLOYMENT_MAX) or status_count(deployment, "replicas")
    return floor(size * (desired + max_surge(deployment)) / before + 0.5) - size if before else 0


# --- rolling update -------------------------------------------------------------------------------


def rolling_steps(rollout: Rollout) -> tuple[WriteStep, ...]:
    """Scale up the new ReplicaSet within maxSurge, or else scale down the old ones within maxUnavailable."""
    deployment, new = rollout.deployment, rollout.new
    assert new is not None
    desired = replicas(deployment)
    if replicas(new) > desired:
        return scale_steps(new, desired, deployment)
    if (size := new_size(rollout)) != replicas(new):
        return scale_steps(new, size, deployment)
    return _scale_down_old_steps(rollout)


def _scale_down_old_steps(rollout: Rollout) -> tuple[WriteStep, ...]:
    deployment, new = rollout.deployment, rollout.new
    assert new is not None
    least = replicas(deployment) - max_unavailable(deployment)
    coming = replicas(new) - available_replicas(new)
    most = total_replicas(rollout.all) - least - coming
    if most <= 0:
        return ()
    sizes = {one["metadata"]["uid"]: replicas(one) for one in rollout.old_active}
    _take_broken(rollout, sizes, most)
    _take_available(rollout, sizes, sum(available_replicas(one) for one in rollout.all) - least)
    return tuple(
        step
        for one in rollout.old_active
        if (size := sizes[one["metadata"]["uid"]]) != replicas(one)
        for step in scale_steps(one, size, deployment)
    )


def _take_broken(rollout: Rollout, sizes: dict[str, int], most: int) -> None:
    """Unavailable pods are removed first."""
    for one in rollout.old_active:
        taken = min(most, replicas(one) - available_replicas(one))
        sizes[one["metadata"]["uid"]] -= taken
        most -= taken


def _take_available(rollout: Rollout, sizes: dict[str, int], most: int) -> None:
    for one in rollout.old_active:
        taken = min(max(most, 0), sizes[one["metadata"]["uid"]])
        sizes[one["metadata"]["uid"]] -= taken
        most -= taken


def scale_down_old(rollout: Rollout) -> tuple[WriteStep, ...]:
    return tuple(step for one in rollout.old_active for step in scale_steps(one, 0, rollout.deployment))


# --- status ---------------------------------------------------------------------------------------


def condition(type: str, status: str, reason: str, message: str, now: datetime) -> Obj:
    stamp = format_seconds(now)
    return {
        "type": type,
        "status": status,
        "lastUpdateTime": stamp,
        "lastTransitionTime": stamp,
        "reason": reason,
        "message": message,
    }


def count_status(rollout: Rollout, now: datetime) -> Obj:
    """The status without changes of the Progressing condition."""
    deployment, every = rollout.deployment, rollout.all
    before: Obj = deployment.get("status") or {}
    available = sum(status_count(one, "availableReplicas") for one in every)
    numbers = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(status_count(one, "replicas") for one in every),
        "updatedReplicas": status_count(rollout.new, "replicas") if rollout.new is not None else 0,
        "readyReplicas": sum(status_count(one, "readyReplicas") for one in every),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total_replicas(every) - available),
    }
    status: Obj = {name: number for name, number in numbers.items() if number}
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    if available >= replicas(deployment) - max_unavailable(deployment):
        message = "Deployment has minimum availability."
        new = condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    else:
        message = "Deployment does not have minimum availability."
        new = condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
    status["conditions"] = set_condition(before.get("conditions") or [], new)
    return status


def progress_status(rollout: Rollout, now: datetime) -> Obj:
    """The rollout status."""
    deployment, status = rollout.deployment, count_status(rollout, now)
    before: Obj = deployment.get("status") or {}
    current = find_condition(before, PROGRESSING)
    conditions: list[Obj] = status["conditions"]
    if progress_deadline(deployment) is None:
        conditions = without_condition(conditions, PROGRESSING)
    elif not _was_complete(status, current):
        conditions = _progress_conditions(rollout, status, conditions, now)
    status["conditions"] = _with_failure(rollout, conditions)
    return status


def _was_complete(status: Obj, current: Obj | None) -> bool:
    all_updated = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    return all_updated and current is not None and current.get("reason") == COMPLETE


def _progress_conditions(rollout: Rollout, status: Obj, conditions: list[Obj], now: datetime) -> list[Obj]:
    deployment = rollout.deployment
    current = find_condition(deployment.get("status"), PROGRESSING)
    if is_complete(deployment, status):
        return set_condition(conditions, _progressing(rollout, "True", COMPLETE, "has successfully progressed.", now))
    if _has_progressed(deployment.get("status") or {}, status):
        new = _progressing(rollout, "True", "ReplicaSetUpdated", "is progressing.", now)
        if current is not None and current.get("status") == "True":
            new["lastTransitionTime"] = current.get("lastTransitionTime", new["lastTransitionTime"])
        return [*without_condition(conditions, PROGRESSING), new]
    if _is_late(deployment, current, now):
        return set_condition(conditions, _progressing(rollout, "False", TIMED_OUT, "has timed out progressing.", now))
    return conditions


def _progressing(rollout: Rollout, status: str, reason: str, what: str, now: datetime) -> Obj:
    kind, one = ("Deployment", rollout.deployment) if rollout.new is None else ("ReplicaSet", rollout.new)
    return condition(PROGRESSING, status, reason, f'{kind} "{one["metadata"]["name"]}" {what}', now)


def is_complete(deployment: Obj, status: Obj) -> bool:
    desired, seen = replicas(deployment), status.get("observedGeneration", 0)
    reached = all(status.get(name, 0) == desired for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return reached and seen >= deployment["metadata"].get("generation", 0)


def _has_progressed(before: Obj, after: Obj) -> bool:
    def left(status: Obj) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return left(after) < left(before) or any(after.get(name, 0) > before.get(name, 0) for name in more)


def _is_late(deployment: Obj, current: Obj | None, now: datetime) -> bool:
    if current is None or current.get("reason") == COMPLETE:
        return False
    left = seconds_until_timeout(deployment, current, now)
    return current.get("reason") == TIMED_OUT or (left is not None and left < 0)


def seconds_until_timeout(deployment: Obj, current: Obj, now: datetime) -> float | None:
    """Seconds until the progress deadline; None: no deadline."""
    seconds = progress_deadline(deployment)
    if seconds is None:
        return None
    return (parse_time(current.get("lastUpdateTime")) + timedelta(seconds=seconds) - now).total_seconds()


def requeue_after(deployment: Obj, status: Obj, now: datetime) -> float | None:
    """Seconds until the progress deadline may have passed."""
    current = find_condition(status, PROGRESSING)
    if current is None or is_complete(deployment, status) or current.get("reason") == TIMED_OUT:
        return None
    left = seconds_until_timeout(deployment, current, now)
    return None if left is None else max(left, 0) + 1


def _with_failure(rollout: Rollout, conditions: list[Obj]) -> list[Obj]:
    """Copy the ReplicaFailure condition of the first ReplicaSet that has one, the new one first."""
    newest = (*((rollout.new,) if rollout.new is not None else ()), *rollout.old)
    for replica_set in newest:
        if (failed := find_condition(replica_set.get("status"), REPLICA_FAILURE)) is not None and failed.get(
            "status"
        ) == "True":
            return set_condition(conditions, {**failed, "lastUpdateTime": failed.get("lastTransitionTime")})
    return without_condition(conditions, REPLICA_FAILURE)
