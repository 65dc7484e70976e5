"""What `farflung status` says of Clusters, and of the virtual machines and stacks that are bound to them.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from farflung.cli import fields
from farflung.controllers.global_scheduler.failover import AILMENTS
from farflung.controllers.global_scheduler.inventory import TARGET
from farflung.controllers.global_scheduler.statuses import DELIVERED, PLACED, SCHEDULED
from farflung.lib.words import count
from farflung.machinery.errors import Obj

UNWELL: Final = frozenset(health.value for health in AILMENTS)
UNKNOWN: Final = "Unknown"
FAILED: Final = "Failed"
BOUND: Final = "bound"
WAITING: Final = "waiting"
OUTDATED: Final = "outdated"  #: bound as it was asked for before: there is no place for what is asked for now
STATES: Final = (BOUND, "undelivered", OUTDATED, WAITING, "failed", "ended")
WRONG: Final = ("undelivered", OUTDATED, WAITING)
NAMED: Final = 5  #: Clusters that are not well


def machines(clusters: Iterable[Obj], pods: Iterable[Obj], allocations: Iterable[Obj]) -> Obj | None:
    """None: there are none, and no Clusters."""
    known = list(clusters)
    phases = {(fields.cluster_of(one), fields.name_of(one)): _phase(one) for one in known}
    troubles = sorted((fields.name_of(one), why) for one in known if (why := _message(one, TARGET)))
    found = [_pod(one) for one in pods if isinstance(fields.at(one, "spec", "virtualMachine"), dict)]
    found += [_allocation(one) for one in allocations]
    if not phases and not found:
        return None
    states = Counter(state for state, _ in found)
    reasons = Counter(why for state, why in found if state in WRONG and why)
    commonest = min(reasons.items(), key=lambda one: (-one[1], one[0]), default=("", 0))
    return {
        "clusters": {
            "all": len(phases),
            "phases": dict(sorted(Counter(phases.values()).items())),
            "unwell": sorted({*(name for (_, name), phase in phases.items() if phase in UNWELL), *dict(troubles)}),
            "troubles": [{"cluster": name, "message": why} for name, why in troubles],
        },
        "machines": {"all": len(found), "states": {state: states[state] for state in STATES}},
        "reason": {"message": commonest[0], "number": commonest[1]},
    }


def is_well(found: Obj) -> bool:
    return not found["clusters"]["unwell"] and not any(found["machines"]["states"][state] for state in WRONG)


def _phase(cluster: Obj) -> str:
    return fields.text(cluster, "status", "phase") or UNKNOWN


def _pod(pod: Obj) -> tuple[str, str]:
    """Its state, and why it is so."""
    phase = fields.text(pod, "status", "phase")
    if phase in (FAILED, "Succeeded"):
        return ("failed" if phase == FAILED else "ended"), ""
    if not (fields.text(pod, "spec", "nodeName") or fields.text(pod, "spec", "clusterName")):
        return WAITING, _message(pod, SCHEDULED)
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


# --- for people -----------------------------------------------------------------------------------


def lines(found: Obj) -> Iterator[str]:
    clusters, machines = found["clusters"], found["machines"]
    if clusters["all"]:
        phases = ", ".join(f"{number} {phase}" for phase, number in clusters["phases"].items())
        yield f"{count(clusters['all'], 'Cluster')}: {phases}{_named(clusters['unwell'])}"
    for one in clusters["troubles"][:NAMED]:
        yield f"  {fields.line(one['cluster'])}: {one['message']}"
    if number := machines["all"]:
        what = "virtual machine or stack" if number == 1 else "virtual machines and stacks"
        states = ", ".join(f"{number} {state}" for state, number in machines["states"].items() if number)
        yield f"{number} {what}: {states}"
    if number := found["reason"]["number"]:
        yield f"  {number} of them: {found['reason']['message']}"


def _named(names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f" (not well: {', '.join(fields.line(name) for name in names[:NAMED])}{more})"
