"""Creation, annotation, scaling and cleanup of a Deployment's ReplicaSets.  Pure."""

from __future__ import annotations

from copy import deepcopy
from math import floor
from typing import Final

from farflung.controllers.workload.deployment.rollout import (
    DESIRED,
    HASH,
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
    UNLIMITED,
    Rollout,
    annotation_number,
    available_replicas,
    is_rolling,
    max_surge,
    max_unavailable,
    replicas,
    revision,
    status_count,
    total_replicas,
)
from farflung.controllers.workload.model.objects import DEPLOYMENTS, REPLICA_SETS, annotations_of, creation_time
from farflung.controllers.workload.model.ownership import owner_reference
from farflung.controllers.workload.model.revisions import short_hash
from farflung.controllers.workload.model.steps import NORMAL, WARNING, EventText, WriteStep, create, delete, update
from farflung.machinery.errors import Obj

#: annotations that describe one object only
NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAX_REPLICAS,
        "deprecated.deployment.rollback.to",
    }
)
MAX_HISTORY: Final = 2000  #: characters
MAX_NAME: Final = 253


def next_revision(rollout: Rollout) -> int:
    return max((revision(one) for one in rollout.old), default=0) + 1


def new_replica_set(rollout: Rollout) -> Obj:
    """The ReplicaSet of the current template."""
    deployment = rollout.deployment
    spec, metadata = deployment["spec"], deployment["metadata"]
    hashed = short_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount"))
    template = deepcopy(spec["template"])
    worn = {**((template.get("metadata") or {}).get("labels") or {}), HASH: hashed}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": worn}
    selector = deepcopy(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: hashed}
    made: Obj = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{metadata['name'][: MAX_NAME - 1 - len(hashed)]}-{hashed}",
            "namespace": metadata["namespace"],
            "labels": dict(worn),
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
        after[REVISION] = str(number)
        if former := before.get(REVISION):
            after[REVISION_HISTORY] = _history(before.get(REVISION_HISTORY, ""), former)
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
    return {DESIRED: str(desired), MAX_REPLICAS: str(desired + max_surge(deployment))}


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
    name, way = metadata["name"], "up" if size > before else "down"
    said = EventText(NORMAL, "ScalingReplicaSet", f"Scaled {way} replica set {name} from {before} to {size}")
    return (WriteStep(update(REPLICA_SETS, changed), said if before != size else None),)


def is_scaling_event(rollout: Rollout) -> bool:
    """Whether the Deployment was scaled since its ReplicaSets were scaled."""
    active = (one for one in rollout.all if replicas(one) > 0)
    desired = replicas(rollout.deployment)
    return any((noted := annotation_number(one, DESIRED)) is not None and noted != desired for one in active)


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
        return tuple(step for one in rollout.old_active for step in scale_steps(one, 0, deployment))
    return _scale_proportionally(rollout) if is_rolling(deployment) else ()


def _active_or_latest(rollout: Rollout) -> Obj | None:
    """The only ReplicaSet with replicas; the latest one if none has any; None if several have."""
    active = [one for one in rollout.all if replicas(one) > 0]
    if not active:
        return rollout.all[-1]
    return active[0] if len(active) == 1 else None


def _is_saturated(rollout: Rollout) -> bool:
    new, desired = rollout.new, replicas(rollout.deployment)
    if new is None or annotation_number(new, DESIRED) != desired:
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
    before = annotation_number(replica_set, MAX_REPLICAS) or status_count(deployment, "replicas")
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


# --- recreate -------------------------------------------------------------------------------------


def scale_down_old(rollout: Rollout) -> tuple[WriteStep, ...]:
    return tuple(step for one in rollout.old_active for step in scale_steps(one, 0, rollout.deployment))
