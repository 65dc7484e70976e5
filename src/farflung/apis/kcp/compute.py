"""The APIExport `kubernetes` of root:compute: four built-in kinds as APIResourceSchemas.

Their schemas are the built-in ones in structural form.  Only keys of map lists have defaults: `replicas` of a
Deployment, for example, stays absent.  A Pod may be a virtual machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from farflung.apis import definitions
from farflung.apis.custom_kinds import Described, anything, quantity
from farflung.apis.globalscheduler import pods
from farflung.apis.kcp.names import COMPUTE_ANNOTATION
from farflung.machinery.errors import Obj

EXPORT: Final = "kubernetes"
SCALE: Final = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}

QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
FIELDS: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
#: what a structural schema says like a definition does
KEPT: Final = ("format", "x-kubernetes-map-type")
LIST_TYPE: Final = "x-kubernetes-list-type"
KEYS: Final = "x-kubernetes-list-map-keys"
#: fields that are keys of a list's entries without being required
KEY_DEFAULTS: Final[Mapping[str, Any]] = {"protocol": "TCP"}


def structural(name: str) -> Obj:
    """A built-in definition as a structural schema, references followed.  Not to be changed."""
    if name == QUANTITY:
        return quantity("A quantity, such as 100m or 2Gi.")
    if name == INT_OR_STRING:
        return {"x-kubernetes-int-or-string": True, "description": "A number or a text."}
    if name == FIELDS:
        return anything("A set of fields.")
    return _defined(name)


@cache
def _defined(name: str) -> Obj:
    return _converted(definitions.definition(name))


def _converted(schema: Obj) -> Obj:
    if "$ref" in schema:
        referred = structural(schema["$ref"].rpartition("/")[2])
        return {**referred, "description": schema["description"]} if "description" in schema else referred
    found: Obj = {"type": _type(schema["type"])}
    if "description" in schema:
        found["description"] = schema["description"]
    for key in KEPT:
        if key in schema:
            found[key] = schema[key]
    if "properties" in schema:
        found["properties"] = {name: _converted(field) for name, field in schema["properties"].items()}
    if "required" in schema:
        found["required"] = schema["required"]
    if "items" in schema:
        found.update(_list(schema, _converted(schema["items"])))
    if "additionalProperties" in schema:
        found["additionalProperties"] = _converted(schema["additionalProperties"])
    return found


def _type(types: str | list[str]) -> str:
    """Removes null from the types of optional fields; a structural schema drops nulls anyway."""
    return types if isinstance(types, str) else types[0]


def _list(schema: Obj, items: Obj) -> Obj:
    """The keys of a list's entries must be required or have a default; a list of others is one value."""
    found: Obj = {key: schema[key] for key in (LIST_TYPE, KEYS) if key in schema}
    missing = [key for key in found.get(KEYS, ()) if key not in items.get("required", ())]
    if not missing:
        return {**found, "items": items}
    if not KEY_DEFAULTS.keys() >= set(missing):
        return {"items": items}
    fields = dict(items["properties"])
    for key in missing:
        fields[key] = {**fields[key], "default": KEY_DEFAULTS[key]}
    return {**found, "items": {**items, "properties": fields}}


def _kind(group: str, plural: str, definition: str, short_name: str, *categories: str, **rest: Any) -> Described:
    schema = structural(definition)
    fields = {name: field for name, field in schema["properties"].items() if name in ("spec", "status")}
    return Described(
        group,
        plural,
        definition.rpartition(".")[2],
        schema["description"],
        pods.extended(fields, _virtual_machine()) if (group, plural) == ("", "pods") else fields,
        namespaced=True,
        short_names=(short_name,),
        categories=categories,
        version="v1",
        snapshot="v124",
        **rest,
    )


def _virtual_machine() -> Obj:
    core = "io.k8s.api.core.v1."
    return pods.virtual_machine(
        structural(f"{core}ResourceRequirements"), structural(f"{core}VolumeMount"), structural(f"{core}VolumeDevice")
    )


@cache
def kinds() -> tuple[Described, ...]:
    """The exported kinds, in the order in which bindings list them."""
    return (
        _kind("networking.k8s.io", "ingresses", "io.k8s.api.networking.v1.Ingress", "ing"),
        _kind("", "services", "io.k8s.api.core.v1.Service", "svc", "all"),
        _kind("apps", "deployments", "io.k8s.api.apps.v1.Deployment", "deploy", "all", scale=SCALE),
        _kind("", "pods", "io.k8s.api.core.v1.Pod", "po", "all"),
    )


@cache
def schema_names() -> frozenset[str]:
    return frozenset(one.resource_schema_name for one in kinds())


def resource_schemas() -> list[Obj]:
    """The APIResourceSchemas of root:compute, to be created.  The schemas in them are not to be changed."""
    return [one.resource_schema() for one in kinds()]


def api_export() -> Obj:
    """The APIExport of root:compute, to be created."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": EXPORT, "annotations": {COMPUTE_ANNOTATION: "true"}},
        "spec": {
            "latestResourceSchemas": [one.resource_schema_name for one in kinds()],
            "maximalPermissionPolicy": {"local": {}},
        },
    }
