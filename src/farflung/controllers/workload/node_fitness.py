"""Whether a node takes a pod, as far as labels and taints say.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from farflung.controllers.workload.conditions import is_true
from farflung.controllers.workload.pods import labels
from farflung.machinery.errors import Obj
from farflung.machinery.selectors import IN_OBJECTS, LabelSelector, Requirement

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
OPERATORS: Final = {**IN_OBJECTS, "Gt": "gt", "Lt": "lt"}

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
