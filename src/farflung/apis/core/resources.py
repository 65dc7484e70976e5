"""Compute resources: valid names, requests and limits, and the quality-of-service class of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from farflung.apis.rows import InvalidIf
from farflung.apis.validation import NOT_NEGATIVE, POSITIVE, Errors, check_name
from farflung.machinery import names
from farflung.machinery.errors import (
    Obj,
    duplicate,
    field_forbidden,
    field_not_found,
    invalid_value,
    not_supported,
    required,
)
from farflung.machinery.quantity import Quantity, parse


@dataclass(frozen=True, slots=True)
class PodContext:
    volumes: Mapping[str, Obj]  #: name → volume, of those that are valid
    claims: frozenset[str]  #: names of resource claims
    grace: int | None  #: terminationGracePeriodSeconds
    restart: str
    host_users: bool
    template: bool  #: it is not a pod, but the template of one


Amounts = Mapping[str, str]  #: resource name → quantity

HUGE_PAGES: Final = "hugepages-"
OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
OF_PODS: Final = ("cpu", "memory", HUGE_PAGES)
OF_QUOTAS: Final = frozenset(
    {
        "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers", "storage",
        "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage",
        "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    }
)  # fmt: skip
WHOLE: Final = frozenset(
    {
        "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip
DECIDE_CLASS: Final = ("cpu", "memory")
MILLI: Final = 10**6  #: a thousandth, in nanos
NOT_WHOLE: Final = "must be an integer"
POSITIVE_AMOUNT: Final = InvalidIf(lambda amount: parse(amount).nanos <= 0, POSITIVE)


def check_quantity(resource: str, amount: str, field: str, errors: Errors) -> None:
    quantity = parse(amount)
    if quantity.nanos < 0:
        errors.append(invalid_value(field, amount, NOT_NEGATIVE))
    if quantity.milli % 1000 and is_whole(resource):
        errors.append(invalid_value(field, amount, NOT_WHOLE))


def is_whole(resource: str) -> bool:
    """There is no half of it."""
    return resource in WHOLE or is_extended(resource)


def is_native(resource: str) -> bool:
    return "/" not in resource or resource.partition("/")[0].endswith("kubernetes.io")


def is_extended(resource: str) -> bool:
    """A device that a plugin of a node offers."""
    if is_native(resource) or resource.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{resource}")


def may_overcommit(resource: str) -> bool:
    return is_native(resource) and not resource.startswith(HUGE_PAGES)


def check_container_resource(resource: str, field: str, errors: Errors) -> None:
    if resource in OF_CONTAINERS:
        return
    before = len(errors)
    check_name(names.qualified_name, resource, field, errors)
    if "/" not in resource:
        if len(errors) == before and not (resource.startswith(HUGE_PAGES) or resource in OF_QUOTAS):
            errors.append(invalid_value(field, resource, "must be a standard resource type or fully qualified"))
        if not resource.startswith(HUGE_PAGES):
            errors.append(invalid_value(field, resource, "must be a standard resource for containers"))
    elif not is_native(resource) and not is_extended(resource):
        errors.append(invalid_value(field, resource, "doesn't follow extended resource name standard"))


def check_amounts(amounts: Amounts, path: str, errors: Errors) -> None:
    for resource, amount in amounts.items():
        check_container_resource(resource, f"{path}[{resource}]", errors)
        check_quantity(resource, amount, f"{path}[{resource}]", errors)


def check_requirements(resources: Obj, path: str, errors: Errors, pod: PodContext) -> None:
    """The `resources` of a container."""
    limits: Amounts = resources.get("limits") or {}
    requests: Amounts = resources.get("requests") or {}
    check_amounts(limits, f"{path}.limits", errors)
    for resource, amount in requests.items():
        field = f"{path}.requests[{resource}]"
        check_container_resource(resource, field, errors)
        check_quantity(resource, amount, field, errors)
        _check_within_limit(resource, amount, limits, path, errors)
    if not any(name in limits or name in requests for name in DECIDE_CLASS) and _has_huge_pages(limits, requests):
        errors.append(field_forbidden(path, "HugePages require cpu or memory"))
    _check_claims(resources.get("claims") or (), pod.claims, f"{path}.claims", errors)


def _has_huge_pages(*lists: Amounts) -> bool:
    return any(resource.startswith(HUGE_PAGES) for amounts in lists for resource in amounts)


def _check_within_limit(resource: str, amount: str, limits: Amounts, path: str, errors: Errors) -> None:
    limit = limits.get(resource)
    if limit is None:
        if not may_overcommit(resource):
            errors.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
    elif amount != limit:
        if not may_overcommit(resource) and parse(amount) != parse(limit):
            why = f"must be equal to {resource} limit of {limit}"
            errors.append(invalid_value(f"{path}.requests", amount, why))
        elif parse(limit) < parse(amount):
            why = f"must be less than or equal to {resource} limit of {limit}"
            errors.append(invalid_value(f"{path}.requests", amount, why))


def _check_claims(used: Iterable[Obj], known: frozenset[str], path: str, errors: Errors) -> None:
    seen: set[tuple[str, str]] = set()
    for at, claim in enumerate(used):
        name, request = claim.get("name", ""), claim.get("request", "")
        key = f"{name}/{request}" if request else name
        if not name:
            errors.append(required(f"{path}[{at}]"))
        elif (name, request) in seen:
            errors.append(duplicate(f"{path}[{at}]", key))
        elif name not in known:
            errors.append(field_not_found(f"{path}[{at}]", key))
        seen.add((name, request))


def check_pod_requirements(resources: Obj, path: str, errors: Errors) -> None:
    """The `resources` of a whole pod."""
    if resources.get("claims"):
        errors.append(field_forbidden(f"{path}.claims", "claims cannot be set for Resources at pod-level"))
    limits: Amounts = resources.get("limits") or {}
    for member in ("limits", "requests"):
        for resource, amount in (resources.get(member) or {}).items():
            field = f"{path}.{member}[{resource}]"
            if not resource.startswith(OF_PODS):
                errors.append(not_supported(field, resource, OF_PODS))
            check_quantity(resource, amount, field, errors)
            if member == "requests" and resource in limits:
                _check_within_limit(resource, amount, limits, path, errors)


def round_amounts(resources: Obj) -> None:
    """Nothing is counted finer than in thousandths: `limits` and `requests` are rounded up."""
    for member in ("limits", "requests"):
        amounts: Obj = resources.get(member) or {}
        for resource, amount in amounts.items():
            quantity = parse(amount)
            if quantity.nanos % MILLI:
                amounts[resource] = str(quantity.rounded_up(-3))


def default_requests(container: Obj) -> None:
    """Requests default to limits.  For containers of Pods only, not of templates."""
    resources = container.get("resources")
    if resources and (limits := resources.get("limits")):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def service_class(spec: Obj) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`: how early a pod is evicted."""
    whole = spec.get("resources")
    holders = [whole] if whole else [c.get("resources") for c in _containers(spec)]
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    every_limit = True
    for resources in holders:
        _add_amounts(requests, resources and resources.get("requests"))
        limited = _add_amounts(limits, resources and resources.get("limits"))
        every_limit = every_limit and limited == len(DECIDE_CLASS)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if every_limit and requests == limits else "Burstable"


def _containers(spec: Obj) -> list[Obj]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _add_amounts(total: dict[str, Quantity], amounts: Amounts | None) -> int:
    """Adds what decides the class of service; returns how many of them there are."""
    found = 0
    for resource in DECIDE_CLASS if amounts else ():
        amount = amounts.get(resource) if amounts else None
        quantity = parse(amount) if amount else None
        if quantity is not None and quantity.nanos > 0:
            total[resource] = total[resource] + quantity if resource in total else quantity
            found += 1
    return found
