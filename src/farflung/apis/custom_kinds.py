"""Kinds that are defined by OpenAPI schemas in Python, and functions that build such schemas.

A fragment is a plain dict, shared by many schemas: never change one.  `facets` are further keys of the schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
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


def integer(description: str, **facets: Any) -> Obj:
    """A number without a fraction, of 32 bits unless `format` says otherwise."""
    return {"description": description, "type": "integer", "format": "int32", **facets}


def number(description: str, **facets: Any) -> Obj:
    return {"description": description, "type": "number", **facets}


def boolean(description: str, **facets: Any) -> Obj:
    return {"description": description, "type": "boolean", **facets}


def date_time(description: str) -> Obj:
    return text(description, format="date-time")


def object_(
    description: str, /, requires: Iterable[str] = (), facets: Mapping[str, Any] | None = None, **fields: Obj
) -> Obj:
    """An object.  `requires`: the fields that it must have."""
    found: Obj = {"description": description, "type": "object", "properties": fields, **(facets or {})}
    if requires:
        found["required"] = sorted(requires)
    return found


def array(description: str, items: Obj, **facets: Any) -> Obj:
    return {"description": description, "type": "array", "items": items, **facets}


def texts(description: str, each: str, **facets: Any) -> Obj:
    """A list of texts; `each`: the description of an entry."""
    return array(description, text(each), **facets)


def map_list(description: str, items: Obj, keys: Sequence[str], **facets: Any) -> Obj:
    """A list in which no two entries have the same keys."""
    map_keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return array(description, items, **map_keys, **facets)


def distinct(description: str, items: Obj, **facets: Any) -> Obj:
    """A list without two equal entries."""
    return array(description, items, **{"x-kubernetes-list-type": "set"}, **facets)


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
    requirement = object_(
        "One condition on the labels.",
        key=text("The label key."),
        operator=text("In, NotIn, Exists or DoesNotExist."),
        values=texts("Label values: one or more for In and NotIn, none for Exists and DoesNotExist.", "A value."),
        requires=("key", "operator"),
    )
    fields = {
        "matchLabels": mapping("Labels and the values they must have.", text("The value.")),
        "matchExpressions": array("Further conditions, all of which must hold.", requirement),
    }
    return object_(description, **fields, facets={"x-kubernetes-map-type": "atomic", **facets})


def taints(description: str) -> Obj:
    """Taints, like those of Nodes."""
    taint = object_(
        "A taint.",
        key=text("The key, like that of a label.", minLength=1, maxLength=317),
        value=text("The value; optional.", maxLength=63),
        effect=text(
            "The effect on placements that do not tolerate it. NoSchedule: no new destinations. PreferNoSchedule: "
            "destinations only if no other Location is left. NoExecute: existing destinations are removed, too.",
            enum=[NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE],
        ),
        requires=("key", "effect"),
    )
    return array(description, taint, maxItems=64)


def tolerations(description: str) -> Obj:
    toleration = object_(
        "A toleration of taints.",
        key=text("The taint key. Empty with the operator Exists: all keys."),
        operator=text(
            "Equal: key and value of the taint must be equal. Exists: the key must be equal, with any value.",
            enum=["Equal", "Exists"],
            default="Equal",
        ),
        value=text("The taint value that the operator Equal requires."),
        effect=text("The taint effect. Empty: all effects.", enum=[NO_SCHEDULE, "PreferNoSchedule", NO_EXECUTE]),
    )
    checks = (
        ("(has(self.key) && self.key != '') || self.operator == 'Exists'", "operator must be Exists without a key"),
        (
            "self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "value must be empty if operator is Exists",
        ),
    )
    return array(description, checked(toleration, *checks), maxItems=64)


def conditions(description: str) -> Obj:
    """kcp's conditions: like those of Kubernetes, with a severity and without an observed generation."""
    condition = object_(
        "A condition.",
        type=text("The type, in CamelCase."),
        status=text("True, False or Unknown."),
        severity=text("The severity of a condition that is False: Error, Warning or Info."),
        lastTransitionTime=date_time("When status, severity, reason or message last changed."),
        reason=text("The reason, as one CamelCase word."),
        message=text("A human-readable message."),
        requires=("type", "status", "lastTransitionTime"),
    )
    return array(description, condition)


def column(name: str, path: str, description: str = "", kind: str = "string", priority: int = 0) -> Obj:
    """A column of the output of `kubectl get`."""
    found: Obj = {"name": name, "type": kind, "jsonPath": path}
    if description:
        found["description"] = description
    if priority:
        found["priority"] = priority
    return found


def of_condition(type: str, field: str = "status") -> str:
    """The path of a column that shows a field of a condition."""
    return f'.status.conditions[?(@.type=="{type}")].{field}'


AGE: Final = column("Age", ".metadata.creationTimestamp", kind="date")


# --- A kind that is described as data: kcp's own, those of the edge API ---------------------------

API_VERSION: Final = text("The API group and version of the object, such as `example.org/v1`.")
KIND: Final = text("The kind of the object. Cannot be changed.")


@dataclass(frozen=True, slots=True)
class CustomKind:
    group: str
    plural: str
    kind: str
    description: str
    fields: Mapping[str, Obj]  #: beside apiVersion, kind and metadata
    required: Sequence[str] = ()
    name: Mapping[str, object] = field(default_factory=dict)  #: schema facets of metadata.name
    columns: Sequence[Obj] = ()
    status: bool = True  #: whether its status is a subresource
    scale: Mapping[str, str] = field(default_factory=dict)
    namespaced: bool = False
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ("kcp",)
    version: str = "v1alpha1"
    snapshot: str = ""  #: prefix of the name of its APIResourceSchema; empty: version and hash of its content

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
        """A CustomResourceDefinition with accepted names and without conditions."""
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
        """The name depends on the content, because an APIResourceSchema cannot be changed."""
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
