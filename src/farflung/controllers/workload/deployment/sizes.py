"""How ReplicaSets of a Deployment are scaled when it was, and while it goes from one to the next.  Pure."""

from __future__ import annotations

from math import floor

from farflung.controllers.workload.deployment.replica_sets import next_size, scaling
from farflung.controllers.workload.deployment.values import (
    DESIRED,
    MOST,
    Rollout,
    available,
    counted,
    is_rolling,
    number,
    replicas,
    surge,
    tolerated,
    total,
)
from farflung.controllers.workload.pods import created
from farflung.controllers.workload.steps import Step
from farflung.machinery.errors import Obj

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
