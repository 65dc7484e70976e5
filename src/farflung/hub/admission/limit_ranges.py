"""LimitRanges: defaults and limits of new Pods and PersistentVolumeClaims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from farflung.apis.validation import spec_of
from farflung.hub.admission.usage import Amounts, amounts_of, pod_limits, pod_requests
from farflung.machinery.errors import ApiError, Obj, forbidden
from farflung.machinery.quantity import Quantity, parse

ANNOTATION: Final = "kubernetes.io/limit-ranger"

LARGEST: Final = (2**63 - 1) * 10**9  #: in nanos; larger amounts are printed as this one

NOTHING: Final[Amounts] = {}


# --- defaults -------------------------------------------------------------------------------------


def default_pod(pod: Obj, ranges: Iterable[Obj]) -> None:
    """Set missing requests and limits of containers."""
    for limit_range in ranges:
        requests, limits = _defaults(limit_range)
        if requests or limits:
            _default_containers(pod, requests, limits)


def _defaults(limit_range: Obj) -> tuple[Obj, Obj]:
    requests: Obj = {}
    limits: Obj = {}
    for limit in _limits(limit_range, "Container"):
        requests |= limit.get("defaultRequest") or {}
        limits |= limit.get("default") or {}
    return requests, limits


def _default_containers(pod: Obj, requests: Obj, limits: Obj) -> None:
    changes: list[str] = []
    for member, called in (("containers", "container"), ("initContainers", "init container")):
        for container in spec_of(pod).get(member) or ():
            resources: Obj = container.get("resources") or {}
            for kind, wanted in (("requests", requests), ("limits", limits)):
                missing = sorted(wanted.keys() - (resources.get(kind) or {}).keys())
                if missing:
                    resources[kind] = {**(resources.get(kind) or {}), **{name: wanted[name] for name in missing}}
                    changes.append(f"{', '.join(missing)} {kind[:-1]} for {called} {container.get('name', '')}")
            if resources:
                container["resources"] = resources
    if changes:
        metadata = pod["metadata"]
        text = "LimitRanger plugin set: " + "; ".join(changes)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: text}


# --- bounds ---------------------------------------------------------------------------------------


def check_pod(pod: Obj, ranges: Iterable[Obj]) -> None:
    """Raises 403 for the first LimitRange that a pod violates."""
    for limit_range in ranges:
        errors: list[str] = []
        spec = spec_of(pod)
        containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        for limit in (limit_range.get("spec") or {}).get("limits") or ():
            if limit.get("type") == "Container":
                for container in containers:
                    resources = container.get("resources") or {}
                    requests, limits = amounts_of(resources.get("requests")), amounts_of(resources.get("limits"))
                    errors += _violations("Container", limit, requests, limits)
            elif limit.get("type") == "Pod":
                errors += _violations("Pod", limit, pod_requests(pod), pod_limits(pod))
        if errors:
            raise _refusal("pods", pod, errors)


def check_claim(claim: Obj, ranges: Iterable[Obj]) -> None:
    """Raises 403 for the first LimitRange that a PersistentVolumeClaim violates."""
    for limit_range in ranges:
        errors: list[str] = []
        requests = amounts_of((spec_of(claim).get("resources") or {}).get("requests"))
        for limit in _limits(limit_range, "PersistentVolumeClaim"):
            for name, bound in _bounds(limit, "min"):
                errors += _below(name, "PersistentVolumeClaim", bound, requests, NOTHING)
            for name, bound in _bounds(limit, "max"):
                errors += _above(name, "PersistentVolumeClaim", bound, requests.get(name), "request")
        if errors:
            raise _refusal("persistentvolumeclaims", claim, errors)


def _limits(limit_range: Obj, kind: str) -> list[Obj]:
    limits = (limit_range.get("spec") or {}).get("limits") or ()
    return [limit for limit in limits if limit.get("type") == kind]


def _bounds(limit: Obj, member: str) -> list[tuple[str, Quantity]]:
    return [(name, parse(amount)) for name, amount in sorted((limit.get(member) or {}).items())]


def _refusal(plural: str, obj: Obj, errors: Sequence[str]) -> ApiError:
    distinct = list(dict.fromkeys(errors))
    return forbidden("", plural, name_of(obj), distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]")


def name_of(obj: Obj) -> str:
    """The name of an object in an error, even before it is generated."""
    metadata: Obj = obj.get("metadata") or {}
    return metadata.get("name") or metadata.get("generateName") or "Unknown"


def _violations(kind: str, limit: Obj, requests: Amounts, limits: Amounts) -> list[str]:
    errors: list[str] = []
    for name, bound in _bounds(limit, "min"):
        errors += _below(name, kind, bound, requests, limits)
    for name, bound in _bounds(limit, "max"):
        found = _above(name, kind, bound, limits.get(name), "limit")
        errors += found or (_above(name, kind, bound, requests[name], "request") if name in requests else [])
    for name, bound in _bounds(limit, "maxLimitRequestRatio"):
        errors += _too_uneven(name, kind, bound, requests.get(name), limits.get(name))
    return errors


def _below(name: str, kind: str, bound: Quantity, requests: Amounts, limits: Amounts) -> list[str]:
    limit_text = f"minimum {name} usage per {kind} is {bound}"
    request, limit = requests.get(name), limits.get(name)
    if request is None:
        return [f"{limit_text}.  No request is specified"]
    if request < bound:
        return [f"{limit_text}, but request is {request}"]
    return [f"{limit_text}, but limit is {limit}"] if limit is not None and limit < bound else []


def _above(name: str, kind: str, bound: Quantity, amount: Quantity | None, what: str) -> list[str]:
    limit_text = f"maximum {name} usage per {kind} is {bound}"
    if amount is None:
        return [f"{limit_text}.  No {what} is specified"]
    return [f"{limit_text}, but {what} is {amount}"] if bound < amount else []


def _too_uneven(name: str, kind: str, bound: Quantity, request: Quantity | None, limit: Quantity | None) -> list[str]:
    limit_text = f"{name} max limit to request ratio per {kind} is {bound}"
    if request is None or not request.nanos:
        return [f"{limit_text}, but no request is specified or request is 0"]
    if limit is None or not limit.nanos:
        return [f"{limit_text}, but no limit is specified or limit is 0"]
    if limit.nanos * 1000 <= bound.milli * request.nanos:
        return []
    ratio = min(limit.nanos, LARGEST) / request.nanos
    return [f"{limit_text}, but provided ratio is {ratio:f}"]
