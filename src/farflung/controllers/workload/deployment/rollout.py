"""The state of a rollout: a Deployment, its ReplicaSets and their numbers.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from farflung.controllers.workload.model.objects import (
    annotations_of,
    is_terminating,
    oldest_first,
    resolve_fenceposts,
    resolve_int_or_percent,
)
from farflung.machinery.errors import Obj

HASH: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
UNLIMITED: Final = 2**31 - 1


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
    return annotation_number(replica_set, REVISION) or 0


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
    worn = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != HASH}
    return {**template, "metadata": {**metadata, "labels": worn} if worn else metadata}
