"""The amounts that objects use of ResourceQuotas, by the resource names of quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from farflung.apis.core.resources import HUGE_PAGES, is_extended
from farflung.apis.names import BETA_STORAGE_CLASS
from farflung.apis.validation import spec_of
from farflung.machinery.errors import Obj
from farflung.machinery.quantity import ZERO, Quantity, QuantityError, parse

Amounts = Mapping[str, Quantity]

EACH: Final = Quantity(10**9)  #: one
COUNT: Final = "count/"
OF_CLASS: Final = ".storageclass.storage.k8s.io/"
PODS: Final = "/core/pods/"
SERVICES: Final = "/core/services/"
CLAIMS: Final = "/core/persistentvolumeclaims/"
COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
#: resource names that count objects without the prefix `count/`
PLAIN_COUNTS: Final = {
    f"/core/{plural}/": plural for plural in ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")
}
#: groups whose objects are stored under another group
SHARED: Final = {"events.k8s.io": "core"}


def amounts_of(texts: Mapping[str, str] | None) -> dict[str, Quantity]:
    """The valid amounts.  Validation reports the others."""
    found: dict[str, Quantity] = {}
    for name, text in (texts or {}).items():
        try:
            found[name] = parse(text)
        except QuantityError:
            continue
    return found


def counted_prefix(resource: str) -> str:
    """The prefix of the objects that a resource name counts; empty if there is none."""
    if resource.startswith(COUNT):
        plural, _, group = resource.removeprefix(COUNT).partition(".")
        return f"/{SHARED.get(group, group) or 'core'}/{plural}/" if plural and "/" not in plural + group else ""
    if resource == "persistentvolumeclaims" or resource == "requests.storage" or OF_CLASS in resource:
        return CLAIMS
    if resource.startswith("services"):
        return SERVICES
    for prefix, plural in PLAIN_COUNTS.items():
        if resource == plural:
            return prefix
    return PODS if resource == "pods" or _is_compute(resource) else ""


def _is_compute(resource: str) -> bool:
    requested = resource.removeprefix("requests.")
    if requested in COMPUTE or requested.startswith(HUGE_PAGES) or resource.removeprefix("limits.") in COMPUTE:
        return True
    return resource != requested and is_extended(requested)


def usage_of(prefix: str, obj: Obj) -> dict[str, Quantity]:
    """The amounts of one object."""
    _, group, plural, _ = prefix.split("/")
    used = {COUNT + (plural if group == "core" else f"{plural}.{group}"): EACH}
    special = SPECIAL.get(prefix)
    if special is not None:
        used |= special(obj)
    elif prefix in PLAIN_COUNTS:
        used[PLAIN_COUNTS[prefix]] = EACH
    if prefix == "/core/events/":
        used[f"{COUNT}events.events.k8s.io"] = EACH
    return used


# --- Pods -----------------------------------------------------------------------------------------


def pod_usage(pod: Obj) -> dict[str, Quantity]:
    """A finished pod uses only an object count."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return {}
    return compute_usage(pod_requests(pod), pod_limits(pod))


def compute_usage(requests: Amounts, limits: Amounts) -> dict[str, Quantity]:
    used = {"pods": EACH}
    for name in COMPUTE:
        if name in requests:
            used[name] = used[f"requests.{name}"] = requests[name]
        if name in limits:
            used[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith(HUGE_PAGES):
            used[name] = used[f"requests.{name}"] = amount
        elif is_extended(name):
            used[f"requests.{name}"] = amount
    return used


def pod_requests(pod: Obj) -> dict[str, Quantity]:
    """The effective requests of a pod: the sum of its containers, or the largest init container."""
    found = _of_pod(pod, "requests")
    _add(found, amounts_of(spec_of(pod).get("overhead")))
    return found


def pod_limits(pod: Obj) -> dict[str, Quantity]:
    found = _of_pod(pod, "limits")
    overhead = amounts_of(spec_of(pod).get("overhead"))
    _add(found, {name: amount for name, amount in overhead.items() if found.get(name, ZERO).nanos})
    return found


def _of_pod(pod: Obj, member: str) -> dict[str, Quantity]:
    spec = spec_of(pod)
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(total, _of_container(container, member))
    staying: dict[str, Quantity] = {}  #: restartable init containers
    first: dict[str, Quantity] = {}  #: the maximum while init containers run
    for container in spec.get("initContainers") or ():
        needed = _of_container(container, member)
        if container.get("restartPolicy") == "Always":
            _add(total, needed)
            _add(staying, needed)
            needed = staying
        else:
            _add(needed, staying)
        _raise_to(first, needed)
    _raise_to(total, first)
    return total | amounts_of((spec.get("resources") or {}).get(member))


def _of_container(container: Obj, member: str) -> dict[str, Quantity]:
    return amounts_of((container.get("resources") or {}).get(member))


def _add(total: dict[str, Quantity], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: dict[str, Quantity], least: Amounts) -> None:
    for name, amount in least.items():
        if name not in total or total[name] < amount:
            total[name] = amount


# --- others ---------------------------------------------------------------------------------------


def service_usage(service: Obj) -> dict[str, Quantity]:
    spec = spec_of(service)
    ports = spec.get("ports") or ()
    used = {"services": EACH}
    if spec.get("type") == "NodePort":
        used["services.nodeports"] = _times(len(ports))
    elif spec.get("type") == "LoadBalancer":
        used["services.loadbalancers"] = EACH
        if spec.get("allocateLoadBalancerNodePorts", True):
            used["services.nodeports"] = _times(len(ports))
        else:
            used["services.nodeports"] = _times(sum(1 for port in ports if port.get("nodePort")))
    return used


def claim_usage(claim: Obj) -> dict[str, Quantity]:
    spec = spec_of(claim)
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    storage_class = annotations.get(BETA_STORAGE_CLASS, spec.get("storageClassName") or "")
    used = {"persistentvolumeclaims": EACH}
    requested = amounts_of((spec.get("resources") or {}).get("requests")).get("storage")
    allocated = amounts_of((claim.get("status") or {}).get("allocatedResources")).get("storage")
    if requested is not None:
        used["requests.storage"] = allocated if allocated is not None and requested < allocated else requested
    if storage_class:
        used |= {f"{storage_class}{OF_CLASS}{name}": amount for name, amount in used.items()}
    return used


def _times(count: int) -> Quantity:
    return Quantity(count * EACH.nanos)


SPECIAL: Final[Mapping[str, Callable[[Obj], dict[str, Quantity]]]] = {
    PODS: pod_usage,
    SERVICES: service_usage,
    CLAIMS: claim_usage,
}


def containers_of(pod: Obj) -> Iterable[Obj]:
    spec = spec_of(pod)
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
