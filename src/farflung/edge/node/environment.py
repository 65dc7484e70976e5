"""The environment of a container, as kubelet makes it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from farflung.machinery import quantity
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.quantity import QuantityError

#: what a `$` may begin: itself once more, or a name in parentheses
DOLLAR: Final = re.compile(r"\$(?:\$|\(([^)]*)\))", re.DOTALL)

CONFIG_MAP: Final = "ConfigMap"
SECRET: Final = "Secret"  # noqa: S105
KINDS: Final = {"configMapRef": CONFIG_MAP, "secretRef": SECRET, "configMapKeyRef": CONFIG_MAP, "secretKeyRef": SECRET}

Find = Callable[[str, str], Obj | None]  #: of a kind, by name, in the namespace of the pod
SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]", re.DOTALL)


class PodConfigError(Exception):
    """Something that a pod needs and that is not there; a sentence without any content of it."""


@dataclass(frozen=True, slots=True)
class DownwardAPI:
    """What containers can ask about themselves and their pod."""

    field: Callable[[str], str]  #: by its path.  Raises Unavailable
    resource: Callable[[Obj], str]  #: by a resourceFieldRef.  Raises Unavailable


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` stands for a value, `$$` for a `$`; what is not known stays as it is."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else values.get(name, match[0])

    return DOLLAR.sub(replaced, text)


def environment(container: Obj, find: Find, downward: DownwardAPI) -> dict[str, str]:
    """Raises Unavailable."""
    values: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        values |= _all_of(source, find)
    for variable in container.get("env") or ():
        value = _value(variable, values, find, downward)
        if value is not None:
            values[variable["name"]] = value
    return values


def expanded_command(container: Obj, member: str, values: Mapping[str, str]) -> tuple[str, ...] | None:
    """`command` or `args`, if it says so."""
    words = container.get(member)
    return tuple(expand(word, values) for word in words) if words else None


def _all_of(source: Obj, find: Find) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for member in ("configMapRef", "secretRef"):
        reference = source.get(member)
        if reference:
            found = _found(KINDS[member], reference, find)
            values = {} if found is None else text_data(found)
            return {prefix + key: value for key, value in sorted(values.items()) if is_variable(prefix + key)}
    return {}


def is_variable(name: str) -> bool:
    return bool(name) and "=" not in name and name.isascii() and name.isprintable()


def _value(variable: Obj, values: Mapping[str, str], find: Find, downward: DownwardAPI) -> str | None:
    """None: it is optional, and not there."""
    source = variable.get("valueFrom")
    if not source:
        return expand(variable.get("value") or "", values)
    if "fieldRef" in source:
        return downward.field(source["fieldRef"].get("fieldPath", ""))
    if "resourceFieldRef" in source:
        return downward.resource(source["resourceFieldRef"])
    for member in ("configMapKeyRef", "secretKeyRef"):
        if member in source:
            return _keyed(KINDS[member], source[member], find)
    raise PodConfigError(f"the value of {variable['name']} comes from something that this node does not know")


def _keyed(kind: str, reference: Obj, find: Find) -> str | None:
    found = _found(kind, reference, find)
    key = reference.get("key", "")
    value = None if found is None else text_data(found).get(key)
    if value is None and found is not None and not reference.get("optional"):
        where = f"{found['metadata'].get('namespace', '')}/{reference.get('name', '')}"
        raise PodConfigError(f"couldn't find key {key} in {kind} {where}")
    return value


def _found(kind: str, reference: Obj, find: Find) -> Obj | None:
    """None: it is optional, and not there.  Raises Unavailable."""
    name = reference.get("name", "")
    found = find(kind, name)
    if found is None and not reference.get("optional"):
        raise PodConfigError(f'{kind.lower()} "{name}" not found')
    return found


def text_data(obj: Obj) -> dict[str, str]:
    """The data of a ConfigMap or a Secret."""
    if obj.get("kind") == SECRET:
        return {key: value.decode(errors="replace") for key, value in binary_data(obj).items()}
    return dict(obj.get("data") or {})


def binary_data(obj: Obj) -> dict[str, bytes]:
    """The same, and what is no text."""
    data: Mapping[str, str] = obj.get("data") or {}
    if obj.get("kind") == SECRET:
        return {key: _decoded(value) for key, value in data.items()}
    binary: Mapping[str, str] = obj.get("binaryData") or {}
    return {key: value.encode() for key, value in data.items()} | {k: _decoded(v) for k, v in binary.items()}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


# --- what a pod refers to -------------------------------------------------------------------------


def referenced_objects(pod: Obj) -> frozenset[tuple[str, str]]:
    """The kinds and names of all that its containers and volumes are made of."""
    spec = pod["spec"]
    found: set[tuple[str, str]] = set()
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        sources = [
            *(container.get("envFrom") or ()),
            *((one.get("valueFrom") or {}) for one in container.get("env") or ()),
        ]
        found |= {(KINDS[member], one[member].get("name", "")) for one in sources for member in KINDS if member in one}
    for volume in spec.get("volumes") or ():
        found |= set(_of_volume([volume, *((volume.get("projected") or {}).get("sources") or ())]))
    return frozenset(found)


def _of_volume(sources: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    for source in sources:
        if "configMap" in source:
            yield CONFIG_MAP, source["configMap"].get("name", "")
        if "secret" in source:
            secret = source["secret"]
            yield SECRET, secret.get("secretName") or secret.get("name", "")


def downward(pod: Obj, container: Obj | None, address: str, allocatable: Mapping[str, str]) -> DownwardAPI:
    """`container`: the one that asks; None: a volume, which names it.  `address`: of the pod and of its node."""

    def resource(reference: Obj) -> str:
        asked = container if container is not None else _container(pod, reference.get("containerName", ""))
        return resource_value(asked, reference, allocatable)

    return DownwardAPI(lambda path: field_value(pod, path, address), resource)


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
        return format_map(metadata.get(path.partition(".")[2]) or {})
    if match := SUBSCRIPT.fullmatch(path):
        value: str = (metadata.get(match[1]) or {}).get(match[2], "")
        return value
    raise PodConfigError(f"unsupported fieldPath: {path}")


def format_map(values: Mapping[str, str]) -> str:
    """One `key="value"` per line."""
    return "\n".join(f"{key}={go_quote(value)}" for key, value in sorted(values.items()))


def resource_value(container: Obj, reference: Obj, allocatable: Mapping[str, str]) -> str:
    """In units of the divisor, rounded up.  A limit that is not set is what the node has.  Raises Unavailable."""
    member, _, name = reference.get("resource", "").partition(".")
    if member not in ("limits", "requests") or not name:
        raise PodConfigError(f"unsupported container resource : {reference.get('resource', '')}")
    said = ((container.get("resources") or {}).get(member) or {}).get(name)
    if said is None:
        said = allocatable.get(name, "0") if member == "limits" else "0"
    try:
        amount, divisor = quantity.parse(str(said)), quantity.parse(str(reference.get("divisor") or "0"))
    except QuantityError as error:
        raise PodConfigError(str(error)) from None
    unit = divisor.nanos or quantity.ONE
    return str(-(-amount.nanos // unit))


def _container(pod: Obj, name: str) -> Obj:
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if container["name"] == name:
            return dict(container)
    raise PodConfigError(f"container {name} not found")
