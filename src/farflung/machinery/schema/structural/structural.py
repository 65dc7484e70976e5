"""The schema of one version of a custom resource, compiled once.

    structural = compile_structural(schema, metadata)
    problems = structural.conform(obj)      prunes, drops nulls and sets defaults, in place
    errors = structural.validate(obj, old)

Nothing here fails or recurses without bound, whatever the object: what is followed is the schema.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from farflung.machinery.errors import FieldError, Obj, go_quote
from farflung.machinery.schema.model import Lookup, Schema
from farflung.machinery.schema.structural.conform import EnabledSteps, compile_default, compile_objects
from farflung.machinery.schema.structural.embedded import MetadataRules, conform_embedded, embedded_errors
from farflung.machinery.schema.structural.node import ANYTHING, SchemaNode, finder, read
from farflung.machinery.schema.structural.quick_check import QuickCheck
from farflung.machinery.schema.structural.report import UNKNOWN, ErrorReport, duplicates, is_arranged
from farflung.machinery.schema.walk import MOST_PROBLEMS, Convert, Make, Problems, path_text, steps_of

STATUS: Final = "status"
ALL_STEPS: Final = EnabledSteps(prune=True, default=True)
ONLY_PRUNE: Final = EnabledSteps(prune=True, default=False)


class Structural:
    """One version's schema."""

    def __init__(self, node: SchemaNode, metadata: MetadataRules) -> None:
        self._node = node
        self._status = node.properties.get(STATUS, ANYTHING)
        self._metadata = metadata
        self._conform = compile_objects(node, ALL_STEPS)
        self._fitting = QuickCheck()
        self._fits = self._fitting.table(node, True)[dict]
        self._embedded = finder(node, lambda one: one.embedded)
        self._arranged = finder(node, is_arranged)
        #: makes the status of an object without one, if it gets a default
        self.default_status: Final[Make | None] = compile_default(self._status, ALL_STEPS)

    @cached_property
    def _prune(self) -> Convert:
        return compile_objects(self._node, ONLY_PRUNE)

    # --- what an object becomes -------------------------------------------------------------------

    def conform(self, obj: Obj) -> list[str]:
        """Prune, drop nulls and default, in place.  Tells what was pruned, `unknown field "spec.x"`; raises Malformed
        if an embedded object's metadata cannot be read.  The object's own metadata is not checked."""
        return self._changed(self._conform, obj)

    def prune(self, obj: Obj) -> list[str]:
        """The first third of `conform`."""
        return self._changed(self._prune, obj)

    def _changed(self, convert: Convert, obj: Obj) -> list[str]:
        unknown: Problems = []
        converted = convert(obj, None, unknown)
        obj.clear()
        obj.update(converted)
        names = sorted({path_text((*steps_of(path), name)) for path, name in unknown})
        problems = [f"unknown field {go_quote(name)}" for name in names[:MOST_PROBLEMS]]
        if self._embedded is not None:
            for place in self._embedded(obj, ""):
                problems += conform_embedded(place, self._metadata)
        return problems

    # --- what is wrong with it --------------------------------------------------------------------

    def validate(self, new: Obj, old: Obj | None = None) -> list[FieldError]:
        """Validation errors of a new object, or of an update.  Its metadata is checked elsewhere, but
        for what the schema says of it."""
        if self._fits(new):
            return self._embedded_errors(new)
        errors = self._reported(self._node, new, UNKNOWN if old is None else old)
        return [*errors, *self._embedded_errors(new), *self._duplicates(new, old)]

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """The same for a change of the status alone: of the schema, only what it says of the status counts."""
        if self._fits(new):
            return self._embedded_errors(new)
        errors: list[FieldError] = []
        if STATUS in new:
            errors = self._reported(self._status, new[STATUS], old.get(STATUS, UNKNOWN), STATUS)
        return [*errors, *self._embedded_errors(new), *self._duplicates(new, old)]

    def _reported(self, node: SchemaNode, value: Any, old: Any, base: str = "") -> list[FieldError]:
        if self._fitting.fits(node, value):
            return []
        return ErrorReport(self._fitting, base).errors(node, value, old)

    def _embedded_errors(self, obj: Obj) -> list[FieldError]:
        """Kubernetes makes no difference between new and changed ones."""
        if self._embedded is None:
            return []
        return [error for place in self._embedded(obj, "") for error in embedded_errors(place, self._metadata)]

    def _duplicates(self, new: Obj, old: Obj | None) -> list[FieldError]:
        """None are new if there were some before."""
        found = self._duplicates_in(new)
        return [] if found and old is not None and self._duplicates_in(old) else found

    def _duplicates_in(self, obj: Obj) -> list[FieldError]:
        if self._arranged is None:
            return []
        return [error for place in self._arranged(obj, "") for error in duplicates(place)]


def compile_structural(schema: Any, metadata: MetadataRules) -> Structural:
    """`schema` is the openAPIV3Schema of a version; `metadata` is what is known of all objects' metadata."""
    return Structural(read(schema), metadata)


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
