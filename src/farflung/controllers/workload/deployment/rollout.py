"""A Deployment and its ReplicaSets, as numbers.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from farflung.controllers.workload.objects import fence, is_terminating, notes, oldest_first, portion
from farflung.machinery.errors import Obj

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MOST: Final = "deployment.kubernetes.io/max-replicas"
UNLIMITED: Final = 2**31 - 1


def replicas(obj: Obj) -> int:
    """That it should have."""
    wanted = obj["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def counted(obj: Obj, what: str) -> int:
    """In the status, as `replicas` or `availableReplicas`."""
    return int((obj.get("status") or {}).get(what) or 0)


def available(replica_set: Obj) -> int:
    """Never more than it should have: who scaled it down has given up the others."""
    return min(counted(replica_set, "availableReplicas"), replicas(replica_set))


def total(replica_sets: Iterable[Obj]) -> int:
    return sum(replicas(one) for one in replica_sets)


def number(obj: Obj, annotation: str) -> int | None:
    """None if it is not there or none."""
    text = notes(obj).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def revision(replica_set: Obj) -> int:
    return number(replica_set, REVISION) or 0


def is_rolling(deployment: Obj) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def surge(deployment: Obj) -> int:
    """How many more pods there may be than desired."""
    if not is_rolling(deployment):
        return 0
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    return portion(rolling.get("maxSurge"), replicas(deployment), round_up=True)


def tolerated(deployment: Obj) -> int:
    """How many fewer pods may be available than desired."""
    desired = replicas(deployment)
    if not is_rolling(deployment) or not desired:
        return 0
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    _, unavailable = fence(rolling.get("maxSurge"), rolling.get("maxUnavailable"), desired)
    return min(unavailable, desired)


def deadline(deployment: Obj) -> int | None:
    """Seconds in which something has to move; None if there is no such limit."""
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds is None or seconds == UNLIMITED else int(seconds)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment, the ReplicaSet of its template, and those of former ones, oldest first."""

    deployment: Obj
    new: Obj | None
    old: tuple[Obj, ...]

    @property
    def all(self) -> tuple[Obj, ...]:
        return self.old if self.new is None else (*self.old, self.new)

    @property
    def old_active(self) -> tuple[Obj, ...]:
        return tuple(one for one in self.old if replicas(one) > 0)


def rollout(deployment: Obj, replica_sets: Iterable[Obj]) -> Rollout:
    """Of several ReplicaSets of the same template the oldest counts."""
    living = [one for one in oldest_first(replica_sets) if not is_terminating(one)]
    wanted = template_of(deployment)
    new = next((one for one in living if template_of(one) == wanted), None)
    return Rollout(deployment, new, tuple(one for one in living if one is not new))


def template_of(obj: Obj) -> Obj:
    """Without the hash, which a Deployment's own has not."""
    template: Obj = obj["spec"]["template"]
    metadata = dict(template.get("metadata") or {})
    worn = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != HASH}
    return {**template, "metadata": {**metadata, "labels": worn} if worn else metadata}
