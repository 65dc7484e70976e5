"""The APIExports of built-in kinds in root:compute: kcp's `kubernetes` with four kinds, and `kubernetes-more`.

Their schemas are the built-in ones in structural form.  Only keys of map lists have defaults: `replicas` of a
Deployment, for example, stays absent.  A Pod may be a virtual machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from farflung.apis import definitions
from farflung.apis.builtin.kinds import WORKLOADS
from farflung.apis.custom_kinds import CustomKind, anything, quantity
from farflung.apis.globalscheduler import pods
from farflung.apis.kcp.names import COMPUTE_ANNOTATION, COMPUTE_EXPORT, MORE_EXPORT
from farflung.apis.resource import Resource
from farflung.machinery.errors import Obj

#: the kinds of kcp's export
KCP_KINDS: Final = ("ingresses.networking.k8s.io", "services", "deployments.apps", "pods")
#: kinds whose objects a cluster creates for itself
NEVER_EXPORTED: Final = frozenset(
    {
        "bindings",
        "componentstatuses",
        "nodes",
        "apiservices.apiregistration.k8s.io",
        "controllerrevisions.apps",
        "csinodes.storage.k8s.io",
        "csistoragecapacities.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
        "ipaddresses.networking.k8s.io",
        "resourceslices.resource.k8s.io",
    }
)
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


def _described(resource: Resource, snapshot: str) -> CustomKind:
    schema = structural(resource.definition)
    fields = {
        name: field for name, field in schema["properties"].items() if name not in ("apiVersion", "kind", "metadata")
    }
    return CustomKind(
        resource.group,
        resource.plural,
        resource.kind,
        schema["description"],
        pods.extended(fields, _virtual_machine()) if resource.qualified == "pods" else fields,
        required=[name for name in schema.get("required", ()) if name in fields],
        status=resource.has_status,
        scale=SCALE if resource.subresource("scale") is not None else {},
        namespaced=resource.namespaced,
        short_names=resource.short_names,
        categories=resource.categories,
        version=resource.version,
        snapshot=snapshot,
    )


def _virtual_machine() -> Obj:
    core = "io.k8s.api.core.v1."
    return pods.virtual_machine(
        structural(f"{core}ResourceRequirements"), structural(f"{core}VolumeMount"), structural(f"{core}VolumeDevice")
    )


def _preferred() -> dict[str, Resource]:
    """Every built-in kind that is not part of each workspace, in its preferred version."""
    found: dict[str, Resource] = {}
    for one in WORKLOADS:
        found.setdefault(one.qualified, one)
    return found


_BY_NAME: Final = _preferred()
#: the kinds of each export, in the order in which bindings list them
EXPORTED: Final[Mapping[str, tuple[Resource, ...]]] = {
    COMPUTE_EXPORT: tuple(_BY_NAME[name] for name in KCP_KINDS),
    MORE_EXPORT: tuple(one for name, one in _BY_NAME.items() if name not in {*KCP_KINDS, *NEVER_EXPORTED}),
}
#: the first part of the names of their schemas
SNAPSHOTS: Final = {COMPUTE_EXPORT: "v124", MORE_EXPORT: "v134"}
SCHEMA_NAMES: Final = frozenset(
    f"{SNAPSHOTS[export]}.{one.plural}.{one.group or 'core'}" for export, found in EXPORTED.items() for one in found
)


@cache
def kinds(export: str) -> tuple[CustomKind, ...]:
    return tuple(_described(one, SNAPSHOTS[export]) for one in EXPORTED[export])


def resource_schemas(export: str) -> list[Obj]:
    """The APIResourceSchemas of an export, to be created.  The schemas in them are not to be changed."""
    return [one.resource_schema() for one in kinds(export)]


def api_export(export: str) -> Obj:
    """An APIExport of root:compute, to be created."""
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIExport",
        "metadata": {"name": export, "annotations": {COMPUTE_ANNOTATION: "true"}},
        "spec": {
            "latestResourceSchemas": [one.resource_schema_name for one in kinds(export)],
            "maximalPermissionPolicy": {"local": {}},
        },
    }
