"""Shapes: the schema of a type of the API, and the function that conforms objects to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

from farflung.apis import definitions, wire
from farflung.apis.resource import Resource
from farflung.machinery.errors import Obj
from farflung.machinery.schema.conform import Conformed, compile
from farflung.machinery.schema.model import Schema


class Conforms(Protocol):
    def conform(self, obj: Obj) -> Conformed:
        """Raises Malformed if a value does not fit its type."""


@dataclass(frozen=True, slots=True)
class Shape:
    group: str
    version: str
    kind: str
    definition: str
    schema: Schema
    conformer: Conforms
    custom: bool = False  #: defined by a CustomResourceDefinition
    merging: Schema | None = None  #: for strategic merge patches of a custom resource; None: not supported
    encoded: str = ""  #: the definition for protobuf bodies of a custom resource; empty: not supported

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@cache
def shape(group: str, version: str, kind: str, definition: str) -> Shape:
    schema = definitions.schema(definition)
    return Shape(group, version, kind, definition, schema, compile(schema, wire.fields))


def shape_of(resource: Resource) -> Shape:
    return shape(resource.group, resource.version, resource.kind, resource.definition)


def object_meta() -> Shape:
    return shape("", "v1", "ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


def scale() -> Shape:
    return shape("autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1.Scale")


def delete_options() -> Shape:
    return shape("", "v1", "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
