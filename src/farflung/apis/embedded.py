"""The metadata of objects that are embedded in custom resources."""

from __future__ import annotations

from typing import Final

from farflung.apis import definitions, wire
from farflung.apis.metadata import validate_metadata
from farflung.apis.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import FieldError, Obj
from farflung.machinery.schema.conform import Conformed, compile
from farflung.machinery.schema.structural.embedded import Metadata

_CONFORMER: Final = compile(definitions.schema(f"{definitions.META}ObjectMeta"), wire.fields)
_RULES: Final = Rules(name=names.path_segment, short_finalizers=True)


def conform(metadata: Obj) -> Conformed:
    """As the type ObjectMeta; raises Malformed."""
    return _CONFORMER.conform(metadata)


def validate(metadata: Obj) -> list[FieldError]:
    """An embedded object need not have a name, and is where it says it is."""
    named = metadata if metadata.get("name") else {**metadata, "name": "anything"}
    return validate_metadata({"metadata": named}, _RULES, namespaced=bool(metadata.get("namespace")))


OBJECT_META: Final = Metadata(conform, validate)
