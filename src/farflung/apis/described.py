"""A kind that is described as data: kcp's own, those of the edge API.

It can be had as a CustomResourceDefinition and as an APIResourceSchema, which say the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from farflung.apis.fragments import text
from farflung.machinery.errors import Obj

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
        return f"{self.snapshot or f'{self.version}-{digest(self._snapshot())}'}.{self.qualified}"

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


def digest(spec: Obj) -> str:
    """Of what an APIResourceSchema says, for its name."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
