"""Whether a node takes a pod, as far as labels and taints say.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from farflung.controllers.workload.objects import is_true, labels
from farflung.machinery.errors import Obj
from farflung.machinery.quantity import QuantityError, parse
from farflung.machinery.selectors import IN_OBJECTS, LabelSelector, Requirement

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
OPERATORS: Final = {**IN_OBJECTS, "Gt": "gt", "Lt": "lt"}
PODS: Final = "pods"
ANYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - as pods say that any address is meant

Amounts = dict[str, int]  #: in thousandths of nanos, by resource: exact


# --- labels and names -----------------------------------------------------------------------------


def is_chosen(spec: Obj, node: Obj) -> bool:
    """By `nodeSelector` and by what node affinity requires."""
    if not (spec.get("nodeSelector") or {}).items() <= labels(node).items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def _matches(term: Obj, node: Obj) -> bool:
    """An empty term matches nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    named = {"metadata.name": node["metadata"]["name"]}
    return _selected(expressions, labels(node)) and _selected(fields, named)


def _selected(expressions: Iterable[Obj], worn: Mapping[str, str]) -> bool:
    requirements = (
        Requirement(one["key"], OPERATORS[one["operator"]], tuple(one.get("values") or ())) for one in expressions
    )
    return LabelSelector(tuple(requirements)).matches(worn)


# --- taints ---------------------------------------------------------------------------------------


def is_ready(node: Obj) -> bool:
    return is_true(node.get("status"), "Ready")


def taints(node: Obj, *, states: bool = True) -> list[Obj]:
    """Its own, and, if `states` count, what others would have put on it because of its state."""
    found = list((node.get("spec") or {}).get("taints") or ())
    if not states:
        return found
    implied = [NOT_READY] if not is_ready(node) else []
    implied += [UNSCHEDULABLE] if (node.get("spec") or {}).get("unschedulable") else []
    known = {taint.get("key") for taint in found}
    return [*found, *({"key": key, "effect": NO_SCHEDULE} for key in implied if key not in known)]


def untolerated(node: Obj, tolerations: Sequence[Obj], effects: Sequence[str], *, states: bool = True) -> Obj | None:
    """The first taint that keeps pods away which have these tolerations."""
    for taint in taints(node, states=states):
        if taint.get("effect") in effects and not any(_tolerates(one, taint) for one in tolerations):
            return taint
    return None


def _tolerates(toleration: Mapping[str, Any], taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


class Port(NamedTuple):
    """Of a node."""

    protocol: str
    address: str
    number: int

    def clashes(self, other: Port) -> bool:
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return self.address == other.address or self.address in ANYWHERE or other.address in ANYWHERE


def host_ports(pod: Obj) -> list[Port]:
    return [
        Port(port.get("protocol") or "TCP", port.get("hostIP") or "", port["hostPort"])
        for container in (*(pod["spec"].get("containers") or ()), *_sidecars(pod))
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def requests(pod: Obj) -> Amounts:
    """Of all containers together; those that run one after the other before them need only be possible."""
    spec = pod["spec"]
    running = _sum(_asked(container) for container in spec.get("containers") or ())
    beside: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside = _sum((beside, _asked(container)))
            highest = _most(highest, beside)
        else:
            highest = _most(highest, _sum((beside, _asked(container))))
    whole = _sum((_most(_sum((running, beside)), highest), _amounts(spec.get("overhead") or {})))
    return {name: amount for name, amount in whole.items() if amount}


def allocatable(node: Obj) -> Amounts:
    status = node.get("status") or {}
    return _amounts(status.get("allocatable") or status.get("capacity") or {})


def added(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return _sum((one, other))


def room_for_pods(node: Obj) -> int | None:
    """None if it does not say."""
    status = node.get("status") or {}
    text = (status.get("allocatable") or status.get("capacity") or {}).get(PODS)
    try:
        return None if text is None else parse(str(text)).whole
    except QuantityError:
        return None


def _sidecars(pod: Obj) -> list[Obj]:
    return [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]


def _asked(container: Obj) -> Amounts:
    return _amounts((container.get("resources") or {}).get("requests") or {})


def _amounts(texts: Mapping[str, object]) -> Amounts:
    found: Amounts = {}
    for name, text in texts.items():
        try:
            found[name] = parse(str(text)).nanos
        except QuantityError:
            continue
    return found


def _sum(many: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for amounts in many:
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
