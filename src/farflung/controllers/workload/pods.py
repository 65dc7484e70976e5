"""Pods as controllers see them.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from farflung.controllers.workload.steps import sooner
from farflung.machinery import times
from farflung.machinery.errors import Obj

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
RENEWAL: Final = timedelta(seconds=10)
PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


def phase(pod: Obj) -> str:
    return (pod.get("status") or {}).get("phase") or ""


def is_terminating(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: Obj) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    return not is_finished(pod) and not is_terminating(pod)


def labels(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def notes(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def moment(text: str | None) -> datetime:
    """LONG_AGO if nobody says."""
    return times.parse(text) if text else LONG_AGO


def created(obj: Obj) -> datetime:
    return moment(obj["metadata"].get("creationTimestamp"))


def oldest_first(objects: Iterable[Obj]) -> list[Obj]:
    return sorted(objects, key=lambda obj: (created(obj), obj["metadata"]["name"]))


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
