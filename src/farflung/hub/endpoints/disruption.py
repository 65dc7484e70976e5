"""How many of the pods that a PodDisruptionBudget is about may go."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from farflung.machinery import times
from farflung.machinery.errors import ApiError, Obj
from farflung.machinery.times import format_seconds

FORGOTTEN: Final = timedelta(minutes=2)  #: a pod that was to go and is there after this is not going
MESSAGE: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def is_exempt(pod: Obj) -> bool:
    """Nothing is disrupted by its end."""
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def is_ready(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def counted(budget: Obj, pods: Iterable[Obj], expected: int, now: datetime) -> Obj:
    """The status of a budget as it should be.  `expected`: how many of its pods there should be."""
    going = still_going(budget, now)
    healthy = sum(
        is_ready(pod) and "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in going
        for pod in pods
    )
    desired = desired_healthy(budget.get("spec", {}), expected)
    status = {
        **(budget.get("status") or {}),
        "observedGeneration": budget["metadata"].get("generation", 0),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": max(healthy - desired, 0) if expected > 0 else 0,
        "disruptedPods": going,
    }
    if not going:
        del status["disruptedPods"]
    return status


def still_going(budget: Obj, now: datetime) -> dict[str, str]:
    """The pods that were evicted a moment ago, and since when."""
    noted: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    return {name: since for name, since in noted.items() if now - times.parse(since) < FORGOTTEN}


def desired_healthy(spec: Obj, expected: int) -> int:
    if (most := spec.get("maxUnavailable")) is not None:
        return max(expected - share(most, expected), 0)
    least = spec.get("minAvailable")
    return expected if least is None else share(least, expected)


def share(value: Any, whole: int) -> int:
    """A number, or a percentage of the whole, rounded up."""
    if isinstance(value, int):
        return value
    return -(-whole * int(value.removesuffix("%")) // 100)


def spent(budget: Obj, pod: Obj, status: Obj, now: datetime) -> Obj | None:
    """The status of a budget that lets a pod go; None if it does not matter to the budget.  Raises ApiError."""
    healthy, desired = status["currentHealthy"], status["desiredHealthy"]
    if not is_ready(pod):
        always = budget.get("spec", {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or (healthy >= desired and desired > 0):
            return None
    if status["disruptionsAllowed"] <= 0:
        name = budget["metadata"]["name"]
        why = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        details = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
        raise ApiError(429, "TooManyRequests", MESSAGE, details)
    return {
        **status,
        "disruptionsAllowed": status["disruptionsAllowed"] - 1,
        "disruptedPods": {**status.get("disruptedPods", {}), pod["metadata"]["name"]: format_seconds(now)},
    }
