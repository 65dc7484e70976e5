"""The schema of a custom resource as patches and server-side apply walk it."""

from __future__ import annotations

from typing import Any, Final

from farflung.machinery.errors import Obj
from farflung.machinery.schema.model import Lookup, Schema

OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def apply_schema(schema: Any, lookup: Lookup) -> Schema:
    """The root node of a version's openAPIV3Schema.  Metadata is that of every object, whatever the schema says of it;
    `lookup` finds its definition."""
    definition: Obj = schema if isinstance(schema, dict) else {}
    properties = definition.get("properties")
    identity = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": f"#/definitions/{OBJECT_META}"},
    }
    known = {**(properties if isinstance(properties, dict) else {}), **identity}
    return Schema({**definition, "type": "object", "properties": known}, lookup)
