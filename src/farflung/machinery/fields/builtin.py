"""Facts about the Go types of built-in kinds that ownership needs and OpenAPI lacks.

Ownership of a new object is the difference between Go's empty value of its type and the object.  An empty value is
not empty JSON: it contains structs that are no pointers, and fields that Go never omits.  The creator of an object does
not own those (`.spec.template`), but the fields in them that differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from farflung.machinery.errors import Obj
from farflung.machinery.schema.model import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, Schema

STRUCT: Final = object()  #: the empty value of the field's struct

#: Go type → fields that its empty value has although OpenAPI does not require them
ALWAYS_PRESENT: Final[Mapping[str, Mapping[str, Any]]] = {
    "CronJobSpec": {"jobTemplate": STRUCT},
    "CustomResourceDefinitionStatus": {"acceptedNames": STRUCT, "conditions": None, "storedVersions": None},
    "DaemonSetSpec": {"updateStrategy": STRUCT},
    "DeploymentSpec": {"strategy": STRUCT},
    "Event": {
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
        "deprecatedSource": STRUCT,
        "eventTime": None,
        "firstTimestamp": None,
        "involvedObject": STRUCT,
        "lastTimestamp": None,
        "regarding": STRUCT,
        "reportingComponent": "",
        "reportingInstance": "",
        "source": STRUCT,
    },
    "IngressStatus": {"loadBalancer": STRUCT},
    "JobTemplateSpec": {"metadata": STRUCT, "spec": STRUCT},
    "NetworkPolicySpec": {"podSelector": STRUCT},
    "NodeDaemonEndpoints": {"kubeletEndpoint": STRUCT},
    "NodeStatus": {"daemonEndpoints": STRUCT, "nodeInfo": STRUCT},
    "PersistentVolumeClaimSpec": {"resources": STRUCT},
    "PodTemplate": {"template": STRUCT},
    "PodTemplateSpec": {"metadata": STRUCT, "spec": STRUCT},
    "ReplicaSetSpec": {"template": STRUCT},
    "ServiceStatus": {"loadBalancer": STRUCT},
    "StatefulSetSpec": {"updateStrategy": STRUCT},
}
#: present in the empty value of every kind that has them
IN_EVERY_KIND: Final = frozenset({"spec", "status"})

EMPTY_SCALARS: Final[Mapping[str, Any]] = {STRING: "", INTEGER: 0, NUMBER: 0, BOOLEAN: False}

#: (Go type of the items, key of the list) → the default of a key that Go may omit
KEY_DEFAULTS: Final[Mapping[tuple[str, str], Any]] = {
    ("ContainerPort", "protocol"): "TCP",
    ("ServicePort", "protocol"): "TCP",
    ("LocalObjectReference", "name"): "",
}


def is_builtin(schema: Schema) -> bool:
    """Whether the type is a Go struct, and not described by a CustomResourceDefinition."""
    return schema.name.startswith("io.k8s.")


def empty_object(schema: Schema) -> Obj:
    """The Go zero value of the kind, with which a new object is compared."""
    if not is_builtin(schema):
        return {"metadata": {}}
    common = {name: _empty(schema.member(name)) for name in IN_EVERY_KIND & schema.property_names}
    return {**common, **_empty_struct(schema), "metadata": {}}


def _empty_struct(schema: Schema) -> Obj:
    present: dict[str, Any] = dict.fromkeys(schema.definition.get("required", ()), STRUCT)
    listed = ALWAYS_PRESENT.get(schema.go_name, {})
    present.update((name, value) for name, value in listed.items() if name in schema.property_names)
    return {name: _empty(schema.member(name)) if value is STRUCT else value for name, value in present.items()}


def _empty(schema: Schema | None) -> Any:
    if schema is None or schema.format in ("date-time", "byte"):
        return None
    if schema.kind == OBJECT:
        return _empty_struct(schema)
    return EMPTY_SCALARS.get(schema.kind)


def key_default(items: Schema, key: str) -> Any:
    """The default of an item's key; None if the item must have the key."""
    member = items.member(key)
    if member is None:
        return None
    if not is_builtin(items):
        return member.definition.get("default")
    if key in items.definition.get("required", ()):
        return EMPTY_SCALARS.get(member.kind)
    return KEY_DEFAULTS.get((items.go_name, key))
