"""Pods as controllers see them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, Final

from farflung.client.resource import Collection
from farflung.controllers.workload.objects import LONG_AGO, PODS, created, is_terminating, moment, notes
from farflung.controllers.workload.ownership import reference_to
from farflung.controllers.workload.steps import NORMAL, WARNING, Said, Step, create, delete, sooner
from farflung.machinery.errors import Obj

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
RENEWAL: Final = timedelta(seconds=10)
PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
LONGEST_BASE: Final = 58  #: characters of a name before its random ones
MOST_AT_ONCE: Final = 500  #: pods that one look makes: how many there should be may be a mistake


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
            return moment(condition.get("lastTransitionTime"))
    return None


def is_ready(pod: Obj) -> bool:
    return ready_since(pod) is not None


def is_available(pod: Obj, seconds: int, now: datetime) -> bool:
    """Ready for so long."""
    since = ready_since(pod)
    return since is not None and (not seconds or since + timedelta(seconds=seconds) <= now)


def next_available(pods: Iterable[Obj], seconds: int, now: datetime) -> float | None:
    """Seconds until the next one that is ready has been so for long enough."""
    waiting = [since for pod in pods if (since := ready_since(pod)) is not None and not is_available(pod, seconds, now)]
    return sooner(*((since + timedelta(seconds=seconds) - now).total_seconds() for since in waiting))


def restarts(pod: Obj) -> int:
    status = pod.get("status") or {}
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return sum(one.get("restartCount") or 0 for one in statuses)


def first_to_go(pods: Sequence[Obj]) -> list[Obj]:
    """Those that are missed least come first: not on a node, pending, not ready, cheap, ready for a short time,
    restarted often, young."""
    return sorted(pods, key=_worth)


def _worth(pod: Obj) -> tuple[Any, ...]:
    since = ready_since(pod)
    return (
        bool((pod.get("spec") or {}).get("nodeName")),
        PHASES.get(phase(pod), 0),
        since is not None,
        _deletion_cost(pod),
        -(since or LONG_AGO).timestamp(),
        -restarts(pod),
        -created(pod).timestamp(),
        pod["metadata"]["name"],
    )


def _deletion_cost(pod: Obj) -> int:
    text = notes(pod).get(DELETION_COST, "")
    try:
        return int(text)
    except ValueError:
        return 0


def next_renewal(pod: Obj, now: datetime) -> float:
    """Seconds until a pod that has ended may be replaced by another of its kind, which may end as soon."""
    return (created(pod) + RENEWAL - now).total_seconds()


def random_name(prefix: str, suffix: str) -> str:
    """As the server would make it of a generateName."""
    return prefix[:LONGEST_BASE] + suffix


def pod_of(owner: Obj, collection: Collection, template: Obj, name: str, prefix: str = "") -> Obj:
    """A pod that `owner` controls.  `prefix`: what a server that chose the name would have been given."""
    said = template.get("metadata") or {}
    metadata: Obj = {
        "name": name,
        "generateName": prefix or f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [reference_to(owner, collection)],
    }
    for member in ("labels", "annotations", "finalizers"):
        if said.get(member):
            metadata[member] = deepcopy(said[member])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": deepcopy(template.get("spec") or {})}


def creation(pod: Obj) -> Step:
    done = Said(NORMAL, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
    return Step(create(PODS, pod), done, Said(WARNING, "FailedCreate", "Error creating: "))


def removal(pod: Obj) -> Step:
    done = Said(NORMAL, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
    return Step(delete(PODS, pod), done, Said(WARNING, "FailedDelete", "Error deleting: "))
