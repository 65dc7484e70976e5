"""Kinds that are defined by OpenAPI schemas in Python, and functions that build such schemas.

A fragment is a plain dict, shared by many schemas: never change one.  `facets` are further keys of the schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from farflung.apis.names import NO_EXECUTE, NO_SCHEDULE
from farflung.machinery.errors import Obj

QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


def text(description: str, **facets: Any) -> Obj:
    return {"description": description, "type": "string", **facets}


def whole(description: str, **facets: Any) -> Obj:
    """A number without a fraction, of 32 bits unless `format` says otherwise."""
    return {"description": description, "type": "integer", "format": "int32", **facets}


def number(description: str, **facets: Any) -> Obj:
    return {"description": description, "type": "number", **facets}


def flag(description: str, **facets: Any) -> Obj:
    return {"description": description, "type": "boolean", **facets}


def moment(description: str) -> Obj:
    return text(description, format="date-time")


def record(description: str, fields: Mapping[str, Obj], required: Sequence[str] = (), **facets: Any) -> Obj:
    found: Obj = {"description": description, "type": "object", "properties": dict(fields), **facets}
    if required:
        found["required"] = sorted(required)
    return found


def listing(description: str, items: Obj, **facets: Any) -> Obj:
    return {"description": description, "type": "array", "items": items, **facets}


def texts(description: str, each: str, **facets: Any) -> Obj:
    """A list of texts; `each` says what one of them is."""
    return listing(description, text(each), **facets)


def keyed(description: str, items: Obj, keys: Sequence[str], **facets: Any) -> Obj:
    """A list in which no two entries have the same keys."""
    map_keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return listing(description, items, **map_keys, **facets)


def distinct(description: str, items: Obj, **facets: Any) -> Obj:
    """A list without two equal entries."""
    return listing(description, items, **{"x-kubernetes-list-type": "set"}, **facets)


def mapping(description: str, values: Obj, **facets: Any) -> Obj:
    return {"description": description, "type": "object", "additionalProperties": values, **facets}


def anything(description: str, **facets: Any) -> Obj:
    """An object with any fields."""
    return {"description": description, "type": "object", "x-kubernetes-preserve-unknown-fields": True, **facets}


def quantity(description: str) -> Obj:
    return {
        "description": description,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": True,
    }


def checked(fragment: Obj, *rules: tuple[str, str]) -> Obj:
    """Adds CEL rules: expressions and their messages."""
    validations = [{"rule": rule, "message": message} for rule, message in rules]
    return {**fragment, "x-kubernetes-validations": validations}


def label_selector(description: str, **facets: Any) -> Obj:
    requirement = record(
        "One condition on the labels.",
        {
            "key": text("The label that is looked at."),
            "operator": text("How it is compared: In, NotIn, Exists or DoesNotExist."),
            "values": texts("What it is compared with: one or more for In and NotIn, none for the others.", "A value."),
        },
        required=("key", "operator"),
    )
    fields = {
        "matchLabels": mapping("Labels and the values they must have.", text("The value.")),
        "matchExpressions": listing("Further conditions, all of which must hold.", requirement),
    }
    return record(description, fields, **{"x-kubernetes-map-type": "atomic"}, **facets)


def taints(description: str) -> Obj:
    """Taints, like those of Nodes."""
    taint = record(
        "A taint.",
        {
            "key": text("The key, like that of a label.", minLength=1, maxLength=317),
            "value": text("The value; optional.", maxLength=63),
            "effect": text(
                "The effect on placements that do not tolerate it. NoSchedule: no new destinations. PreferNoSchedule: "
                "destinations only if no other Location is left. NoExecute: existing destinations are removed, too.",
                enum=[NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE],
            ),
        },
        required=("key", "effect"),
    )
    return listing(description, taint, maxItems=64)


def tolerations(description: str) -> Obj:
    toleration = record(
        "Marks that do not matter.",
        {
            "key": text("What the marks are called; any if it is left out, for which the operator is Exists."),
            "operator": text(
                "Whether the value has to be equal, too, or the mark only has to exist.",
                enum=["Equal", "Exists"],
                default="Equal",
            ),
            "value": text("The value of the marks, if the operator is Equal."),
            "effect": text(
                "The effect of the marks; any if it is left out.", enum=[NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE]
            ),
        },
    )
    checks = (
        ("(has(self.key) && self.key != '') || self.operator == 'Exists'", "operator must be Exists without a key"),
        (
            "self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "value must be empty if operator is Exists",
        ),
    )
    return listing(description, checked(toleration, *checks), maxItems=64)


def conditions(description: str) -> Obj:
    """kcp's conditions: like those of Kubernetes, with a severity and without an observed generation."""
    condition = record(
        "A condition.",
        {
            "type": text("The type, in CamelCase."),
            "status": text("True, False or Unknown."),
            "severity": text("How bad it is that the status is False: Error, Warning or Info."),
            "lastTransitionTime": moment("When status, severity, reason or message last became another."),
            "reason": text("The reason, as one CamelCase word."),
            "message": text("A human-readable message."),
        },
        required=("type", "status", "lastTransitionTime"),
    )
    return listing(description, condition)


def column(name: str, path: str, description: str = "", kind: str = "string", priority: int = 0) -> Obj:
    """A column of the output of `kubectl get`."""
    found: Obj = {"name": name, "type": kind, "jsonPath": path}
    if description:
        found["description"] = description
    if priority:
        found["priority"] = priority
    return found


def of_condition(type: str, field: str = "status") -> str:
    """The path to what a column shows of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].{field}'


AGE: Final = column("Age", ".metadata.creationTimestamp", kind="date")


# --- A kind that is described as data: kcp's own, those of the edge API ---------------------------

API_VERSION: Final = text("The group and version of the object's form, such as `example.org/v1`.")
KIND: Final = text("What the object is. Cannot be changed.")


@dataclass(frozen=True, slots=True)
class Described:
    group: str
    plural: str
    kind: str
    description: str
    fields: Mapping[str, Obj]  #: beside apiVersion, kind and metadata
    required: Sequence[str] = ()
    name: Mapping[str, object] = field(default_factory=dict)  #: what an object's name must be, as facets of a text
    columns: Sequence[Obj] = ()
    status: bool = True  #: whether its status is a subresource
    scale: Mapping[str, str] = field(default_factory=dict)
    namespaced: bool = False
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ("kcp",)
    version: str = "v1alpha1"
    snapshot: str = ""  #: what its APIResourceSchema is called before the first dot; made of its content if empty

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def qualified(self) -> str:
        """`workspaces.tenancy.kcp.io`, `pods.core`"""
        return f"{self.plural}.{self.group or 'core'}"

    def schema(self) -> Obj:
        """The OpenAPI schema of its objects."""
        metadata: Obj = {"type": "object"}
        if self.name:
            metadata["properties"] = {"name": {"type": "string", **self.name}}
        properties = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, **self.fields}
        schema: Obj = {"description": self.description, "type": "object", "properties": properties}
        if self.required:
            schema["required"] = sorted(self.required)
        return schema

    def definition(self) -> Obj:
        """A CustomResourceDefinition as it is when its names are accepted; its conditions are left out."""
        version = self._version()
        version["schema"] = {"openAPIV3Schema": version["schema"]}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.qualified},
            "spec": {**self._identity(), "versions": [version]},
            "status": {"acceptedNames": self._names(), "conditions": [], "storedVersions": [self.version]},
        }

    def resource_schema(self) -> Obj:
        return {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIResourceSchema",
            "metadata": {"name": self.resource_schema_name},
            "spec": self._snapshot(),
        }

    @property
    def resource_schema_name(self) -> str:
        """Another name for another content, because an APIResourceSchema cannot be changed."""
        return f"{self.snapshot or f'{self.version}-{schema_hash(self._snapshot())}'}.{self.qualified}"

    def _snapshot(self) -> Obj:
        return {**self._identity(), "versions": [self._version()]}

    def _identity(self) -> Obj:
        scope = "Namespaced" if self.namespaced else "Cluster"
        return {"group": self.group, "names": self._names(), "scope": scope}

    def _names(self) -> Obj:
        names: Obj = {
            "plural": self.plural,
            "singular": self.singular,
            "kind": self.kind,
            "listKind": f"{self.kind}List",
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        if self.categories:
            names["categories"] = list(self.categories)
        return names

    def _version(self) -> Obj:
        version: Obj = {"name": self.version, "served": True, "storage": True, "schema": self.schema()}
        subresources: Obj = {}
        if self.status:
            subresources["status"] = {}
        if self.scale:
            subresources["scale"] = dict(self.scale)
        if subresources:
            version["subresources"] = subresources
        if self.columns:
            version["additionalPrinterColumns"] = list(self.columns)
        return version


def schema_hash(spec: Obj) -> str:
    """A hash of an APIResourceSchema, for its name."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
