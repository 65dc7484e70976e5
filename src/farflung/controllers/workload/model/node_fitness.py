"""Node affinity, taints, and the resources and host ports of pods and nodes.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from farflung.apis.names import NO_SCHEDULE, NOT_READY_TAINT, UNSCHEDULABLE_TAINT
from farflung.controllers.workload.model.objects import is_condition_true, labels
from farflung.machinery.errors import Obj
from farflung.machinery.quantity import QuantityError, parse
from farflung.machinery.selectors import IN_OBJECTS, LabelSelector, Requirement
from farflung.runtime.cache import CacheChange

OPERATORS: Final = {**IN_OBJECTS, "Gt": "gt", "Lt": "lt"}
PODS: Final = "pods"
ANY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - values of hostIP that mean any address

Amounts = dict[str, int]  #: in thousandths of nanos, by resource: exact


# --- labels and names -----------------------------------------------------------------------------


def matches_node_affinity(spec: Obj, node: Obj) -> bool:
    """Whether nodeSelector and required node affinity match."""
    if not (spec.get("nodeSelector") or {}).items() <= labels(node).items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_matches_term(term, node) for term in required.get("nodeSelectorTerms") or ())


def _matches_term(term: Obj, node: Obj) -> bool:
    """An empty term matches nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    named = {"metadata.name": node["metadata"]["name"]}
    return _matches_expressions(expressions, labels(node)) and _matches_expressions(fields, named)


def _matches_expressions(expressions: Iterable[Obj], values: Mapping[str, str]) -> bool:
    requirements = (
        Requirement(one["key"], OPERATORS[one["operator"]], tuple(one.get("values") or ())) for one in expressions
    )
    return LabelSelector(tuple(requirements)).matches(values)


# --- taints ---------------------------------------------------------------------------------------


def is_ready(node: Obj) -> bool:
    return is_condition_true(node.get("status"), "Ready")


def effective_taints(node: Obj, *, states: bool = True) -> list[Obj]:
    """The node's taints; with `states`, also those that the node controller would add for its state."""
    found = list((node.get("spec") or {}).get("taints") or ())
    if not states:
        return found
    implied = [NOT_READY_TAINT] if not is_ready(node) else []
    implied += [UNSCHEDULABLE_TAINT] if (node.get("spec") or {}).get("unschedulable") else []
    known = {taint.get("key") for taint in found}
    return [*found, *({"key": key, "effect": NO_SCHEDULE} for key in implied if key not in known)]


def find_untolerated_taint(
    node: Obj, tolerations: Sequence[Obj], effects: Sequence[str], *, states: bool = True
) -> Obj | None:
    for taint in effective_taints(node, states=states):
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


# --- changes, ports and resources -----------------------------------------------------------------


def changes_node(change: CacheChange[Obj]) -> bool:
    """Whether a field changed that scheduling depends on; heartbeats do not count."""
    return (None if change.old is None else _relevant_fields(change.old)) != (
        None if change.new is None else _relevant_fields(change.new)
    )


def _relevant_fields(node: Obj) -> tuple[Any, ...]:
    metadata, status = node["metadata"], node.get("status") or {}
    states = [(one.get("type"), one.get("status")) for one in status.get("conditions") or ()]
    return metadata.get("labels"), node.get("spec"), status.get("allocatable"), status.get("capacity"), states


class HostPort(NamedTuple):
    protocol: str
    address: str
    number: int

    def conflicts(self, other: HostPort) -> bool:
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return self.address == other.address or self.address in ANY_ADDRESS or other.address in ANY_ADDRESS


def host_ports(pod: Obj) -> list[HostPort]:
    init_containers = pod["spec"].get("initContainers") or ()
    sidecars = [one for one in init_containers if one.get("restartPolicy") == "Always"]
    return [
        HostPort(port.get("protocol") or "TCP", port.get("hostIP") or "", port["hostPort"])
        for container in (*(pod["spec"].get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def requests(pod: Obj) -> Amounts:
    """Sum over containers and sidecars, or the largest init container if that is more, plus overhead."""
    spec = pod["spec"]
    running = _sum(_container_requests(container) for container in spec.get("containers") or ())
    beside: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside = _sum((beside, _container_requests(container)))
            highest = _most(highest, beside)
        else:
            highest = _most(highest, _sum((beside, _container_requests(container))))
    whole = _sum((_most(_sum((running, beside)), highest), _amounts(spec.get("overhead") or {})))
    return {name: amount for name, amount in whole.items() if amount}


def allocatable(node: Obj) -> Amounts:
    status = node.get("status") or {}
    return _amounts(status.get("allocatable") or status.get("capacity") or {})


def add_amounts(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    return _sum((one, other))


def pod_capacity(node: Obj) -> int | None:
    """None: not limited."""
    status = node.get("status") or {}
    text = (status.get("allocatable") or status.get("capacity") or {}).get(PODS)
    try:
        return None if text is None else parse(str(text)).whole
    except QuantityError:
        return None


def _container_requests(container: Obj) -> Amounts:
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
