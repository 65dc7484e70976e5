"""APIResourceSchemas of kinds that a cluster serves, from its definitions or its OpenAPI documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from farflung.apis.apiextensions.conditions import APPROVED
from farflung.apis.custom_kinds import schema_hash
from farflung.apis.kcp.names import APIS_GROUP
from farflung.machinery.errors import Obj

API_VERSION: Final = f"{APIS_GROUP}/v1alpha1"
KINDS: Final = "x-kubernetes-group-version-kind"
ANYTHING: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
LIST_TYPE: Final = "x-kubernetes-list-type"
#: fields of OpenAPI schemas that structural schemas have, too; server-set defaults are left out
KEPT: Final[tuple[str, ...]] = ("description", "format", "enum", "x-kubernetes-map-type")
VERSION: Final = ("name", "served", "storage", "deprecated", "deprecationWarning", "additionalPrinterColumns")
DEPTH: Final = 40  #: of nested fields; a deeper field may have any content


class NotImportable(Exception):
    """Why a kind cannot be imported."""


def resource_schema(group: str, names: Obj, scope: str, versions: list[Obj]) -> Obj:
    """Named by its content, because an APIResourceSchema cannot be changed."""
    spec = {"group": group, "names": names, "scope": scope, "versions": versions}
    metadata: Obj = {"name": f"v{schema_hash(spec)}.{names['plural']}.{group or 'core'}"}
    if group.endswith((".k8s.io", ".kubernetes.io")):
        metadata["annotations"] = {APPROVED: "unapproved, imported from a cluster"}
    return {"apiVersion": API_VERSION, "kind": "APIResourceSchema", "metadata": metadata, "spec": spec}


def schema_of_definition(definition: Obj) -> Obj:
    """Of a CustomResourceDefinition.  If a webhook converts between its versions, only the storage version."""
    spec = definition["spec"]
    webhook = (spec.get("conversion") or {}).get("strategy") == "Webhook"
    versions = [
        {
            **{key: one[key] for key in VERSION if key in one},
            "schema": (one.get("schema") or {}).get("openAPIV3Schema") or {"type": "object", ANYTHING: True},
            "subresources": one.get("subresources") or {},
        }
        for one in spec["versions"]
        if one["storage"] or not webhook
    ]
    names = {"listKind": f"{spec['names']['kind']}List", "singular": spec["names"]["kind"].lower(), **spec["names"]}
    return resource_schema(spec["group"], names, spec["scope"], versions)


def export_of(name: str, existing: Obj | None, schemas: list[Obj]) -> Obj:
    """The APIExport with these schemas, instead of earlier ones of the same kinds."""
    known = (existing or {}).get("spec", {}).get("latestResourceSchemas") or []
    offered = {schema.partition(".")[2]: schema for schema in known}
    offered |= {one["metadata"]["name"].partition(".")[2]: one["metadata"]["name"] for one in schemas}
    if existing is None:
        spec = {"latestResourceSchemas": sorted(offered.values())}
        return {"apiVersion": API_VERSION, "kind": "APIExport", "metadata": {"name": name}, "spec": spec}
    return {**existing, "spec": {**existing["spec"], "latestResourceSchemas": list(offered.values())}}


# --- OpenAPI --------------------------------------------------------------------------------------


class OpenApiDocument:
    """The OpenAPI v3 document of a group and version."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        components: Any = document.get("components") or {}
        self._schemas: Mapping[str, Obj] = components.get("schemas") or {}

    def structural(self, group: str, version: str, kind: str) -> Obj:
        """The schema of a kind as a structural schema.  Raises NotImportable."""
        wanted = {"group": group, "version": version, "kind": kind}
        for schema in self._schemas.values():
            if wanted in (schema.get(KINDS) or ()):
                break
        else:
            raise NotImportable("the cluster publishes no schema of it")
        found = self._object(schema, ())
        found.pop(ANYTHING, None)
        if "properties" not in found:
            return {**found, ANYTHING: True}
        return {**found, "properties": {**found["properties"], "metadata": {"type": "object"}}}

    def _converted(self, schema: Obj, seen: tuple[str, ...]) -> Obj:
        """`seen`: the definitions around this schema.  A recursive one may have any content below."""
        references = list(_references(schema))
        if references:
            name = references[0].rpartition("/")[2]
            described = {key: schema[key] for key in KEPT if key in schema}
            if name in seen or len(seen) >= DEPTH or name not in self._schemas:
                return {"type": "object", ANYTHING: True, **described}
            return {**self._converted(self._schemas[name], (*seen, name)), **described}
        if _is_int_or_string(schema):
            return {INT_OR_STRING: True, **{key: schema[key] for key in ("description",) if key in schema}}
        kind = schema.get("type")
        if kind == "array":
            return self._array(schema, seen)
        if kind == "object" or "properties" in schema:
            return self._object(schema, seen)
        if not isinstance(kind, str):
            return {ANYTHING: True, **{key: schema[key] for key in ("description",) if key in schema}}
        return {"type": kind, **{key: schema[key] for key in KEPT if key in schema}}

    def _object(self, schema: Obj, seen: tuple[str, ...]) -> Obj:
        found: Obj = {"type": "object", **{key: schema[key] for key in KEPT if key in schema}}
        if schema.get("properties"):
            found["properties"] = {name: self._converted(one, seen) for name, one in schema["properties"].items()}
            if schema.get("required"):
                found["required"] = schema["required"]
        elif isinstance(schema.get("additionalProperties"), dict):
            found["additionalProperties"] = self._converted(schema["additionalProperties"], seen)
        else:
            found[ANYTHING] = True
        return found

    def _array(self, schema: Obj, seen: tuple[str, ...]) -> Obj:
        items = self._converted(schema.get("items") or {}, seen)
        found: Obj = {"type": "array", "items": items, **{key: schema[key] for key in KEPT if key in schema}}
        if schema.get(LIST_TYPE) == "set" or set(schema.get(LIST_KEYS) or ()) <= set(items.get("required") or ()):
            found |= {key: schema[key] for key in (LIST_TYPE, LIST_KEYS) if key in schema}
        return found


def _references(schema: Obj) -> Iterator[str]:
    for one in (schema, *(schema.get("allOf") or ())):
        if isinstance(one.get("$ref"), str):
            yield one["$ref"]


def _is_int_or_string(schema: Obj) -> bool:
    kinds = {one.get("type") for one in (*(schema.get("oneOf") or ()), *(schema.get("anyOf") or ()))}
    return schema.get("format") == "int-or-string" or {"string"} < kinds <= {"string", "integer", "number"}
