"""Clusters, virtual machines and stacks in `farflung status`.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from farflung.apis.globalscheduler.names import DELIVERED, TAKES_MACHINES
from farflung.apis.names import POD_SCHEDULED
from farflung.inspect import fields, scheduler_lease
from farflung.machinery.errors import Obj
from farflung.machines.failover import HEALTH_TAINTS, remove_refusal_reason
from farflung.machines.inventory import TARGET
from farflung.machines.statuses import PLACED

UNWELL: Final = frozenset(health.value for health in HEALTH_TAINTS)
UNKNOWN: Final = "Unknown"
FAILED: Final = "Failed"
BOUND: Final = "bound"
WAITING: Final = "waiting"
OUTDATED: Final = "outdated"  #: bound for an earlier spec; the current one does not fit
STATES: Final = (BOUND, "undelivered", OUTDATED, WAITING, "failed", "ended")
WRONG: Final = ("undelivered", OUTDATED, WAITING)


def machines(
    clusters: Iterable[Obj], pods: Iterable[Obj], allocations: Iterable[Obj], scheduler: Obj | None = None
) -> Obj | None:
    """Everything, without workspace paths.  None: no Clusters, machines or files.  `scheduler`: its Lease; None: not
    visible."""
    there = sorted(map(_cluster, clusters), key=_order)
    found = [_machine(one, "Pod", *_pod(one)) for one in pods if _is_machine(one)]
    found += [_machine(one, "Allocation", *_allocation(one)) for one in allocations]
    if not there and not found and not (scheduler and scheduler["files"]):
        return None
    states = Counter(one["state"] for one in found)
    return {
        "clusters": {
            "all": len(there),
            "phases": dict(sorted(Counter(one["phase"] for one in there).items())),
            "unwell": sorted({one["name"] for one in there if not _is_well(one)}),
            "listed": there,
        },
        "machines": {
            "all": len(found),
            "states": {state: states[state] for state in STATES},
            "listed": sorted(found, key=lambda one: (one["state"] not in WRONG, *_order(one))),
        },
        "reasons": _reasons(found),
        "scheduler": scheduler,
    }


def without_healthy(found: Obj) -> Obj:
    """The same, without healthy entries."""
    clusters = [one for one in found["clusters"]["listed"] if not _is_well(one)]
    machines = [one for one in found["machines"]["listed"] if one["state"] in WRONG]
    return {
        **found,
        "clusters": {**found["clusters"], "listed": clusters},
        "machines": {**found["machines"], "listed": machines},
    }


def _reasons(found: Iterable[Obj]) -> list[Obj]:
    """Reasons of problems, the most frequent first.  Reasons that differ only in the machine's name count as one."""
    alike: dict[tuple[str, str], list[Obj]] = {}
    for one in found:
        if one["state"] in WRONG and one["why"]:
            why = remove_refusal_reason(one["why"])
            message = why.replace(f'"{one["name"]}"', "NAME") if one["name"] else why
            alike.setdefault((one["state"], message), []).append(one)
    common = sorted(alike.items(), key=lambda each: (-len(each[1]), each[0]))
    return [
        {"state": state, "message": some[0]["why"] if len(some) == 1 else message, "number": len(some)}
        for (state, message), some in common
    ]


def _order(one: Obj) -> tuple[str, str, str]:
    return one["cluster"], one["namespace"], one["name"]


def _head(obj: Obj) -> Obj:
    return {
        "cluster": fields.cluster_of(obj),
        "namespace": fields.text(obj, "metadata", "namespace"),
        "name": fields.name_of(obj),
    }


def _cluster(obj: Obj) -> Obj:
    phase = fields.text(obj, "status", "phase") or UNKNOWN
    stacks = fields.number(obj, "status", "stacks")
    why = _message(obj, TARGET) or _message(obj, TAKES_MACHINES)
    return {**_head(obj), "phase": phase, "stacks": stacks, "why": why}


def _is_well(cluster: Obj) -> bool:
    return cluster["phase"] not in UNWELL and not cluster["why"]


def _is_machine(pod: Obj) -> bool:
    return isinstance(fields.at(pod, "spec", "virtualMachine"), dict)


def _machine(obj: Obj, kind: str, state: str, why: str) -> Obj:
    return {"kind": kind, **_head(obj), "state": state, "boundTo": _places(obj), "why": why}


def _places(obj: Obj) -> list[str]:
    """Names of the Clusters of its replicas."""
    at = fields.text(obj, "spec", "nodeName") or fields.text(obj, "spec", "clusterName")
    placements = fields.objects(obj, "status", "placements")
    return [at] if at else [name for one in placements if (name := fields.text(one, "cluster", "name"))]


def is_well(found: Obj) -> bool:
    if found["scheduler"] is not None and not scheduler_lease.is_well(found["scheduler"]):
        return False
    return not found["clusters"]["unwell"] and not any(found["machines"]["states"][state] for state in WRONG)


def _pod(pod: Obj) -> tuple[str, str]:
    """State and reason."""
    phase = fields.text(pod, "status", "phase")
    if phase in (FAILED, "Succeeded"):
        return ("failed" if phase == FAILED else "ended"), ""
    if not (fields.text(pod, "spec", "nodeName") or fields.text(pod, "spec", "clusterName")):
        return WAITING, _message(pod, POD_SCHEDULED)
    why = _message(pod, DELIVERED)
    return ("undelivered" if why else BOUND), why


def _allocation(allocation: Obj) -> tuple[str, str]:
    if fields.text(allocation, "status", "phase") == FAILED:
        return "failed", ""
    is_bound = any(fields.objects(allocation, "status", "placements"))
    if is_bound and fields.condition(allocation, PLACED).get("status") != "False":
        return BOUND, ""
    return (OUTDATED if is_bound else WAITING), _message(allocation, PLACED)


def _message(obj: Obj, type: str) -> str:
    condition = fields.condition(obj, type)
    return fields.line(fields.text(condition, "message")) if condition.get("status") == "False" else ""
