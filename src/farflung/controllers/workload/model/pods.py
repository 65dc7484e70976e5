"""State of pods, deletion order, and pods from templates.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, Final

from farflung.apis.names import POD_DELETION_COST, PODS, Collection
from farflung.controllers.workload.model.objects import (
    ZERO_TIME,
    annotations_of,
    creation_time,
    is_terminating,
    parse_time,
)
from farflung.controllers.workload.model.ownership import owner_reference
from farflung.controllers.workload.model.steps import NORMAL, WARNING, EventText, WriteStep, create, delete, soonest
from farflung.machinery.errors import Obj

REPLACEMENT_DELAY: Final = timedelta(seconds=10)
PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
MAX_NAME_BASE: Final = 58  #: characters of a generated name before the random suffix
BURST_REPLICAS: Final = 500  #: most pods that one reconcile creates


def phase(pod: Obj) -> str:
    return (pod.get("status") or {}).get("phase") or ""


def is_finished(pod: Obj) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    return not is_finished(pod) and not is_terminating(pod)


def ready_since(pod: Obj) -> datetime | None:
    """None if it is not ready."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return parse_time(condition.get("lastTransitionTime"))
    return None


def is_ready(pod: Obj) -> bool:
    return ready_since(pod) is not None


def is_available(pod: Obj, seconds: int, now: datetime) -> bool:
    """Whether it has been ready for `seconds`."""
    since = ready_since(pod)
    return since is not None and (not seconds or since + timedelta(seconds=seconds) <= now)


def seconds_until_available(pods: Iterable[Obj], seconds: int, now: datetime) -> float | None:
    """Seconds until the next ready pod becomes available."""
    waiting = [since for pod in pods if (since := ready_since(pod)) is not None and not is_available(pod, seconds, now)]
    return soonest(*((since + timedelta(seconds=seconds) - now).total_seconds() for since in waiting))


def restart_count(pod: Obj) -> int:
    status = pod.get("status") or {}
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return sum(one.get("restartCount") or 0 for one in statuses)


def rank_for_deletion(pods: Sequence[Obj]) -> list[Obj]:
    """Pods to delete first come first: unassigned, pending, not ready, lower deletion cost, ready for a shorter time,
    more restarts, younger."""
    return sorted(pods, key=_deletion_rank)


def _deletion_rank(pod: Obj) -> tuple[Any, ...]:
    since = ready_since(pod)
    return (
        bool((pod.get("spec") or {}).get("nodeName")),
        PHASES.get(phase(pod), 0),
        since is not None,
        _deletion_cost(pod),
        -(since or ZERO_TIME).timestamp(),
        -restart_count(pod),
        -creation_time(pod).timestamp(),
        pod["metadata"]["name"],
    )


def _deletion_cost(pod: Obj) -> int:
    text = annotations_of(pod).get(POD_DELETION_COST, "")
    try:
        return int(text)
    except ValueError:
        return 0


def seconds_until_replacement(pod: Obj, now: datetime) -> float:
    """Seconds until a finished pod may be replaced, so that a crashing pod is not recreated in a tight loop."""
    return (creation_time(pod) + REPLACEMENT_DELAY - now).total_seconds()


def random_name(prefix: str, suffix: str) -> str:
    """Like the server's name for this generateName."""
    return prefix[:MAX_NAME_BASE] + suffix


def pod_from_template(owner: Obj, collection: Collection, template: Obj, name: str, prefix: str = "") -> Obj:
    """A pod that `owner` controls.  `prefix`: its generateName."""
    given = template.get("metadata") or {}
    metadata: Obj = {
        "name": name,
        "generateName": prefix or f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [owner_reference(owner, collection)],
    }
    for member in ("labels", "annotations", "finalizers"):
        if given.get(member):
            metadata[member] = deepcopy(given[member])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deepcopy(template.get("spec") or {})}


def create_pod_step(pod: Obj) -> WriteStep:
    done = EventText(NORMAL, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
    return WriteStep(create(PODS, pod), done, EventText(WARNING, "FailedCreate", "Error creating: "))


def delete_pod_step(pod: Obj) -> WriteStep:
    done = EventText(NORMAL, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
    return WriteStep(delete(PODS, pod), done, EventText(WARNING, "FailedDelete", "Error deleting: "))
