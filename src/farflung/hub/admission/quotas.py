"""ResourceQuotas: the objects that a quota covers, their amounts, and whether they exceed it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from farflung.apis.core.resources import service_class
from farflung.apis.validation import spec_of
from farflung.hub.admission.usage import (
    CLAIMS,
    PODS,
    SERVICES,
    Amounts,
    amounts_of,
    compute_usage,
    containers_of,
    counted_prefix,
    usage_of,
)
from farflung.machinery.errors import Obj
from farflung.machinery.quantity import ZERO, Quantity

#: if a quota limits these, every container must have them
EXPLICIT: Final = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
#: prefixes of kinds whose amounts an update can increase
GROWING: Final = frozenset({SERVICES, CLAIMS})


@dataclass(frozen=True, slots=True)
class QuotaScope:
    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """A parsed ResourceQuota."""

    hard: Mapping[str, Quantity]
    scopes: tuple[QuotaScope, ...]
    prefixes: frozenset[str]  #: prefixes of the kinds that it counts

    def covers(self, prefix: str, obj: Obj) -> bool:
        """Whether it counts an object."""
        return prefix in self.prefixes and all(matches(scope, prefix, obj) for scope in self.scopes)

    def usage(self, prefix: str, obj: Obj) -> dict[str, Quantity]:
        """The amounts of an object."""
        if not self.covers(prefix, obj):
            return {}
        return {name: amount for name, amount in usage_of(prefix, obj).items() if name in self.hard}


def quota_of(obj: Obj) -> Quota:
    spec = spec_of(obj)
    hard = amounts_of(spec.get("hard"))
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes = [QuotaScope(name) for name in spec.get("scopes") or ()]
    scopes += [
        QuotaScope(one.get("scopeName", ""), one.get("operator", ""), tuple(one.get("values") or ()))
        for one in expressions
    ]
    prefixes = frozenset(prefix for prefix in map(counted_prefix, hard) if prefix)
    return Quota(hard, tuple(scopes), prefixes)


# --- scopes ---------------------------------------------------------------------------------------


def matches(scope: QuotaScope, prefix: str, obj: Obj) -> bool:
    if prefix == CLAIMS and scope.name == "VolumeAttributesClass":
        return _selects(scope, spec_of(obj).get("volumeAttributesClassName") or "")
    if prefix != PODS:
        return False
    spec = spec_of(obj)
    match scope.name:
        case "Terminating":
            return _has_deadline(spec)
        case "NotTerminating":
            return not _has_deadline(spec)
        case "BestEffort":
            return service_class(spec) == "BestEffort"
        case "NotBestEffort":
            return service_class(spec) != "BestEffort"
        case "PriorityClass":
            return _selects(scope, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return any(map(_reaches_out, _affinity_terms(spec)))
    return False


def _has_deadline(spec: Obj) -> bool:
    deadline = spec.get("activeDeadlineSeconds")
    return deadline is not None and deadline >= 0


def _selects(scope: QuotaScope, value: str) -> bool:
    match scope.operator:
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
        case "In":
            return bool(value) and value in scope.values
        case "NotIn":
            return not value or value not in scope.values
    return False


def _affinity_terms(spec: Obj) -> Iterable[Obj]:
    affinity = spec.get("affinity") or {}
    for member in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(member) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


def _reaches_out(term: Obj) -> bool:
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


# --- what is refused ------------------------------------------------------------------------------


def missing_amounts(quota: Quota, prefix: str, obj: Obj) -> str:
    """The resources that a quota requires and a pod omits, as text; empty if none."""
    if prefix != PODS or spec_of(obj).get("resources"):
        return ""
    needed = EXPLICIT.intersection(quota.hard)
    missing: dict[str, set[str]] = {}
    for container in containers_of(obj) if needed else ():
        resources = container.get("resources") or {}
        present = compute_usage(amounts_of(resources.get("requests")), amounts_of(resources.get("limits")))
        for resource in needed.difference(present):
            missing.setdefault(resource, set()).add(container.get("name", ""))
    if not missing:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def exceeded(hard: Amounts, used: Amounts, wanted: Amounts) -> list[str]:
    """The names of the exceeded resources."""
    return sorted(name for name, amount in wanted.items() if hard[name] < used.get(name, ZERO) + amount)


def exceeded_text(name: str, hard: Amounts, used: Amounts, wanted: Amounts, names: Iterable[str]) -> str:
    names = list(names)
    requested, taken, limited = (
        ",".join(f"{resource}={amounts.get(resource, ZERO)}" for resource in names) for amounts in (wanted, used, hard)
    )
    return f"exceeded quota: {name}, requested: {requested}, used: {taken}, limited: {limited}"


def growth(after: Amounts, before: Amounts) -> dict[str, Quantity]:
    """The positive differences to the former amounts."""
    grown = {name: amount - before.get(name, ZERO) for name, amount in after.items()}
    return {name: amount for name, amount in grown.items() if amount.nanos > 0}


def negative(usage: Amounts) -> list[str]:
    return sorted(name for name, amount in usage.items() if amount.nanos < 0)


def status_of(spec_hard: Mapping[str, Any], used: Amounts) -> Obj:
    """The desired status of a ResourceQuota."""
    shown = {name: str(used[name]) for name in sorted(spec_hard) if name in used}
    return {"hard": dict(spec_hard), "used": shown}
