"""What a pod can be told about itself: the downward API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from farflung.edge.node.environment import Downward, Unavailable
from farflung.machinery import quantity
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.quantity import QuantityError

SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]", re.DOTALL)


def downward(pod: Obj, container: Obj | None, address: str, allocatable: Mapping[str, str]) -> Downward:
    """`container`: the one that asks; None: a volume, which names it.  `address`: of the pod and of its node."""

    def resource(reference: Obj) -> str:
        asked = container if container is not None else _container(pod, reference.get("containerName", ""))
        return resource_value(asked, reference, allocatable)

    return Downward(lambda path: field_value(pod, path, address), resource)


def field_value(pod: Obj, path: str, address: str) -> str:
    """Raises Unavailable."""
    metadata, spec = pod["metadata"], pod["spec"]
    simple = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.hostIP": address,
        "status.hostIPs": address,
        "status.podIP": address,
        "status.podIPs": address,
    }
    if path in simple:
        return simple[path] or ""
    if path in ("metadata.labels", "metadata.annotations"):
        return formatted(metadata.get(path.partition(".")[2]) or {})
    if match := SUBSCRIPT.fullmatch(path):
        value: str = (metadata.get(match[1]) or {}).get(match[2], "")
        return value
    raise Unavailable(f"unsupported fieldPath: {path}")


def formatted(values: Mapping[str, str]) -> str:
    """One `key="value"` per line."""
    return "\n".join(f"{key}={go_quote(value)}" for key, value in sorted(values.items()))


def resource_value(container: Obj, reference: Obj, allocatable: Mapping[str, str]) -> str:
    """In units of the divisor, rounded up.  A limit that is not set is what the node has.  Raises Unavailable."""
    member, _, name = reference.get("resource", "").partition(".")
    if member not in ("limits", "requests") or not name:
        raise Unavailable(f"unsupported container resource : {reference.get('resource', '')}")
    said = ((container.get("resources") or {}).get(member) or {}).get(name)
    if said is None:
        said = allocatable.get(name, "0") if member == "limits" else "0"
    try:
        amount, divisor = quantity.parse(str(said)), quantity.parse(str(reference.get("divisor") or "0"))
    except QuantityError as error:
        raise Unavailable(str(error)) from None
    unit = divisor.nanos or quantity.ONE
    return str(-(-amount.nanos // unit))


def _container(pod: Obj, name: str) -> Obj:
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if container["name"] == name:
            return dict(container)
    raise Unavailable(f"container {name} not found")
