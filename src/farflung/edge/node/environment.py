"""Environment variables of containers, and the downward API, as in kubelet.  Pure."""

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

#: `$$` or `$(NAME)`
DOLLAR: Final = re.compile(r"\$(?:\$|\(([^)]*)\))", re.DOTALL)

CONFIG_MAP: Final = "ConfigMap"
SECRET: Final = "Secret"  # noqa: S105
KINDS: Final = {"configMapRef": CONFIG_MAP, "secretRef": SECRET, "configMapKeyRef": CONFIG_MAP, "secretKeyRef": SECRET}

Find = Callable[[str, str], Obj | None]  #: by kind and name, in the namespace of the pod
SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]", re.DOTALL)


class PodConfigError(Exception):
    """A referenced object is missing, or a field is not supported.  The message contains no data of Secrets."""


@dataclass(frozen=True, slots=True)
class DownwardAPI:
    """The values of fieldRef and resourceFieldRef."""

    field: Callable[[str], str]  #: by fieldPath.  Raises PodConfigError
    resource: Callable[[Obj], str]  #: by resourceFieldRef.  Raises PodConfigError


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by `$`.  Unknown names are kept."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else values.get(name, match[0])

    return DOLLAR.sub(replaced, text)


def environment(container: Obj, find: Find, downward: DownwardAPI) -> dict[str, str]:
    """Raises PodConfigError."""
    values: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        values |= _from_object(source, find)
    for variable in container.get("env") or ():
        value = _value(variable, values, find, downward)
        if value is not None:
            values[variable["name"]] = value
    return values


def expanded_command(container: Obj, member: str, values: Mapping[str, str]) -> tuple[str, ...] | None:
    """`member`: command or args."""
    words = container.get(member)
    return tuple(expand(word, values) for word in words) if words else None


def _from_object(source: Obj, find: Find) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for member in ("configMapRef", "secretRef"):
        reference = source.get(member)
        if reference:
            found = _referenced(KINDS[member], reference, find)
            values = {} if found is None else text_data(found)
            return {prefix + key: value for key, value in sorted(values.items()) if is_variable(prefix + key)}
    return {}


def is_variable(name: str) -> bool:
    return bool(name) and "=" not in name and name.isascii() and name.isprintable()


def _value(variable: Obj, values: Mapping[str, str], find: Find, downward: DownwardAPI) -> str | None:
    """None: optional and missing."""
    source = variable.get("valueFrom")
    if not source:
        return expand(variable.get("value") or "", values)
    if "fieldRef" in source:
        return downward.field(source["fieldRef"].get("fieldPath", ""))
    if "resourceFieldRef" in source:
        return downward.resource(source["resourceFieldRef"])
    for member in ("configMapKeyRef", "secretKeyRef"):
        if member in source:
            return _key_value(KINDS[member], source[member], find)
    raise PodConfigError(f"the value of {variable['name']} has a source that this node does not support")


def _key_value(kind: str, reference: Obj, find: Find) -> str | None:
    found = _referenced(kind, reference, find)
    key = reference.get("key", "")
    value = None if found is None else text_data(found).get(key)
    if value is None and found is not None and not reference.get("optional"):
        where = f"{found['metadata'].get('namespace', '')}/{reference.get('name', '')}"
        raise PodConfigError(f"couldn't find key {key} in {kind} {where}")
    return value


def _referenced(kind: str, reference: Obj, find: Find) -> Obj | None:
    """None: optional and missing.  Raises PodConfigError."""
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
    """The data of a ConfigMap or a Secret, binaryData included."""
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


# --- references -----------------------------------------------------------------------------------


def referenced_objects(pod: Obj) -> frozenset[tuple[str, str]]:
    """Kinds and names of the ConfigMaps and Secrets that its containers and volumes use."""
    spec = pod["spec"]
    found: set[tuple[str, str]] = set()
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        sources = [
            *(container.get("envFrom") or ()),
            *((one.get("valueFrom") or {}) for one in container.get("env") or ()),
        ]
        found |= {(KINDS[member], one[member].get("name", "")) for one in sources for member in KINDS if member in one}
    for volume in spec.get("volumes") or ():
        found |= set(_volume_references([volume, *((volume.get("projected") or {}).get("sources") or ())]))
    return frozenset(found)


def _volume_references(sources: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    for source in sources:
        if "configMap" in source:
            yield CONFIG_MAP, source["configMap"].get("name", "")
        if "secret" in source:
            secret = source["secret"]
            yield SECRET, secret.get("secretName") or secret.get("name", "")


# --- downward API ---------------------------------------------------------------------------------


def downward_api(pod: Obj, container: Obj | None, address: str, allocatable: Mapping[str, str]) -> DownwardAPI:
    """`container`: None for a volume, whose references name a container.  `address`: of the pod and of its node."""

    def resource(reference: Obj) -> str:
        target = container if container is not None else _container(pod, reference.get("containerName", ""))
        return resource_value(target, reference, allocatable)

    return DownwardAPI(lambda path: field_value(pod, path, address), resource)


def field_value(pod: Obj, path: str, address: str) -> str:
    """Raises PodConfigError."""
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
    """In units of the divisor, rounded up.  A missing limit is the capacity of the node.  Raises PodConfigError."""
    member, _, name = reference.get("resource", "").partition(".")
    if member not in ("limits", "requests") or not name:
        raise PodConfigError(f"unsupported container resource : {reference.get('resource', '')}")
    amount_text = ((container.get("resources") or {}).get(member) or {}).get(name)
    if amount_text is None:
        amount_text = allocatable.get(name, "0") if member == "limits" else "0"
    try:
        amount, divisor = quantity.parse(str(amount_text)), quantity.parse(str(reference.get("divisor") or "0"))
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
