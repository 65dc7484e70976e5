"""ReplicaSets as a Deployment makes, annotates, scales and forgets them.  Pure."""

from __future__ import annotations

from copy import deepcopy
from math import floor
from typing import Final

from farflung.controllers.workload.deployment.rollout import (
    DESIRED,
    HASH,
    MOST,
    REVISION,
    REVISION_HISTORY,
    UNLIMITED,
    Rollout,
    available,
    counted,
    is_rolling,
    number,
    replicas,
    revision,
    surge,
    tolerated,
    total,
)
from farflung.controllers.workload.objects import DEPLOYMENTS, REPLICA_SETS, created, notes
from farflung.controllers.workload.ownership import reference_to
from farflung.controllers.workload.revisions import short_hash
from farflung.controllers.workload.steps import NORMAL, WARNING, Said, Step, create, delete, update
from farflung.machinery.errors import Obj

#: what says something about one object alone
NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MOST,
        "deprecated.deployment.rollback.to",
    }
)
LONGEST_HISTORY: Final = 2000  #: characters
LONGEST_NAME: Final = 253


def next_revision(rollout: Rollout) -> int:
    return max((revision(one) for one in rollout.old), default=0) + 1


def made(rollout: Rollout) -> Obj:
    """The ReplicaSet of the present template."""
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
            "name": f"{metadata['name'][: LONGEST_NAME - 1 - len(hashed)]}-{hashed}",
            "namespace": metadata["namespace"],
            "labels": dict(worn),
            "annotations": {},
            "ownerReferences": [reference_to(deployment, DEPLOYMENTS)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }
    if spec.get("minReadySeconds"):
        made["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    made["spec"]["replicas"] = next_size(Rollout(deployment, made, rollout.old))
    return annotated(made, deployment, next_revision(rollout), sized=True)


def making(replica_set: Obj) -> Step:
    name, size = replica_set["metadata"]["name"], replicas(replica_set)
    scaled = Said(NORMAL, "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}")
    failed = Said(WARNING, "ReplicaSetCreateError", f'Failed to create new replica set "{name}": ')
    return Step(create(REPLICA_SETS, replica_set), scaled if size else None, failed)


def annotated(replica_set: Obj, deployment: Obj, number: int, *, sized: bool = False) -> Obj:
    """With the Deployment's annotations and this revision, if its own is older; itself if nothing changes.  One that
    gets a newer revision was rolled back to, and keeps a list of those it had."""
    before = notes(replica_set)
    copied = {key: value for key, value in notes(deployment).items() if key not in NOT_COPIED}
    after = {**before, **copied}
    if revision(replica_set) < number:
        after[REVISION] = str(number)
        if former := before.get(REVISION):
            after[REVISION_HISTORY] = _history(before.get(REVISION_HISTORY, ""), former)
    if sized:
        after |= _sizes(deployment)
    if after == before:
        return replica_set
    return {**replica_set, "metadata": {**replica_set["metadata"], "annotations": after}}


def _history(before: str, former: str) -> str:
    revisions = [*filter(None, before.split(",")), former]
    while len(revisions) > 1 and len(",".join(revisions)) > LONGEST_HISTORY:
        revisions.pop(0)
    return ",".join(revisions)


def _sizes(deployment: Obj) -> dict[str, str]:
    desired = replicas(deployment)
    return {DESIRED: str(desired), MOST: str(desired + surge(deployment))}


def kept_up(rollout: Rollout) -> Obj | None:
    """The new ReplicaSet as it should be, apart from its size; None if it is so."""
    assert rollout.new is not None
    changed = annotated(rollout.new, rollout.deployment, next_revision(rollout))
    wait = rollout.deployment["spec"].get("minReadySeconds") or 0
    if wait != (changed["spec"].get("minReadySeconds") or 0):
        changed = {**changed, "spec": {**changed["spec"], "minReadySeconds": wait}}
    return None if changed is rollout.new else changed


def next_size(rollout: Rollout) -> int:
    """Of the new ReplicaSet, as far as there is room."""
    desired, new = replicas(rollout.deployment), rollout.new
    assert new is not None
    if not is_rolling(rollout.deployment):
        return desired
    room = desired + surge(rollout.deployment) - total(rollout.all)
    return replicas(new) if room <= 0 else replicas(new) + min(room, desired - replicas(new))


def scaling(replica_set: Obj, size: int, deployment: Obj) -> tuple[Step, ...]:
    """To this size, noting the Deployment's at this moment."""
    before = replicas(replica_set)
    sizes = _sizes(deployment)
    if before == size and sizes.items() <= notes(replica_set).items():
        return ()
    metadata = {**replica_set["metadata"], "annotations": {**notes(replica_set), **sizes}}
    changed = {**replica_set, "metadata": metadata, "spec": {**replica_set["spec"], "replicas": size}}
    name, way = metadata["name"], "up" if size > before else "down"
    said = Said(NORMAL, "ScalingReplicaSet", f"Scaled {way} replica set {name} from {before} to {size}")
    return (Step(update(REPLICA_SETS, changed), said if before != size else None),)


def is_other_size(rollout: Rollout) -> bool:
    """Whether the Deployment was scaled since its ReplicaSets were."""
    active = (one for one in rollout.all if replicas(one) > 0)
    desired = replicas(rollout.deployment)
    return any((noted := number(one, DESIRED)) is not None and noted != desired for one in active)


def forgetting(rollout: Rollout) -> tuple[Step, ...]:
    """Old ReplicaSets beyond the limit of the history, if nothing is left of them."""
    limit = rollout.deployment["spec"].get("revisionHistoryLimit")
    if limit is None or limit == UNLIMITED or len(rollout.old) <= limit:
        return ()
    oldest = sorted(rollout.old, key=revision)[: len(rollout.old) - limit]
    return tuple(Step(delete(REPLICA_SETS, one)) for one in oldest if _is_empty(one))


def _is_empty(replica_set: Obj) -> bool:
    seen = counted(replica_set, "observedGeneration") >= replica_set["metadata"].get("generation", 0)
    return seen and replicas(replica_set) == 0 and counted(replica_set, "replicas") == 0


# --- because the Deployment has another size ------------------------------------------------------


def rescaled(rollout: Rollout) -> tuple[Step, ...]:
    deployment = rollout.deployment
    if not rollout.all:
        return ()
    if (only := _only_active(rollout)) is not None:
        return scaling(only, replicas(deployment), deployment)
    if _is_saturated(rollout):
        return tuple(step for one in rollout.old_active for step in scaling(one, 0, deployment))
    return _in_proportion(rollout) if is_rolling(deployment) else ()


def _only_active(rollout: Rollout) -> Obj | None:
    """The one with pods; of none, the new one or else the latest; None if there are several."""
    active = [one for one in rollout.all if replicas(one) > 0]
    if not active:
        return rollout.all[-1]
    return active[0] if len(active) == 1 else None


def _is_saturated(rollout: Rollout) -> bool:
    new, desired = rollout.new, replicas(rollout.deployment)
    if new is None or number(new, DESIRED) != desired:
        return False
    return replicas(new) == desired and counted(new, "availableReplicas") == desired


def _in_proportion(rollout: Rollout) -> tuple[Step, ...]:
    """All grow or shrink alike, larger ones first; what rounding leaves over goes to the largest."""
    deployment = rollout.deployment
    active = [one for one in rollout.all if replicas(one) > 0]
    desired = replicas(deployment)
    allowed = desired + surge(deployment) if desired else 0
    change = allowed - total(active)
    newer_first = 1 if change > 0 else -1
    active.sort(key=lambda one: (-replicas(one), -newer_first * created(one).timestamp()))
    sizes: list[int] = []
    left = change
    for one in active:
        share = _share(one, deployment)
        share = min(share, left) if change > 0 else max(share, left)
        share = share if change and left else 0
        sizes.append(replicas(one) + share)
        left -= share
    sizes[0] = max(0, sizes[0] + left)
    return tuple(step for one, size in zip(active, sizes, strict=True) for step in scaling(one, size, deployment))


def _share(replica_set: Obj, deployment: Obj) -> int:
    """What it would grow by if it were alone."""
    desired, size = replicas(deployment), replicas(replica_set)
    if not desired:
        return -size
    before = number(replica_set, MOST) or counted(deployment, "replicas")
    return floor(size * (desired + surge(deployment)) / before + 0.5) - size if before else 0


# --- because there is a new template --------------------------------------------------------------


def rolled(rollout: Rollout) -> tuple[Step, ...]:
    """Up with the new one as far as there is room, or else down with the old ones as far as enough stay available."""
    deployment, new = rollout.deployment, rollout.new
    assert new is not None
    desired = replicas(deployment)
    if replicas(new) > desired:
        return scaling(new, desired, deployment)
    if (size := next_size(rollout)) != replicas(new):
        return scaling(new, size, deployment)
    return _old_down(rollout)


def _old_down(rollout: Rollout) -> tuple[Step, ...]:
    deployment, new = rollout.deployment, rollout.new
    assert new is not None
    least = replicas(deployment) - tolerated(deployment)
    coming = replicas(new) - available(new)
    most = total(rollout.all) - least - coming
    if most <= 0:
        return ()
    sizes = {one["metadata"]["uid"]: replicas(one) for one in rollout.old_active}
    _take_broken(rollout, sizes, most)
    _take_available(rollout, sizes, sum(available(one) for one in rollout.all) - least)
    return tuple(
        step
        for one in rollout.old_active
        if (size := sizes[one["metadata"]["uid"]]) != replicas(one)
        for step in scaling(one, size, deployment)
    )


def _take_broken(rollout: Rollout, sizes: dict[str, int], most: int) -> None:
    """Pods that are not available are no loss."""
    for one in rollout.old_active:
        taken = min(most, replicas(one) - available(one))
        sizes[one["metadata"]["uid"]] -= taken
        most -= taken


def _take_available(rollout: Rollout, sizes: dict[str, int], most: int) -> None:
    for one in rollout.old_active:
        taken = min(max(most, 0), sizes[one["metadata"]["uid"]])
        sizes[one["metadata"]["uid"]] -= taken
        most -= taken


# --- all at once ----------------------------------------------------------------------------------


def old_to_zero(rollout: Rollout) -> tuple[Step, ...]:
    return tuple(step for one in rollout.old_active for step in scaling(one, 0, rollout.deployment))
