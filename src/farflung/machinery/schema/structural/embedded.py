"""Embedded objects: conversion and validation of their apiVersion, kind and metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from farflung.machinery import names
from farflung.machinery.errors import NAMES, FieldError, Malformed, Obj, go_quote, invalid_value, required
from farflung.machinery.schema.conform import Conformed
from farflung.machinery.schema.structural.node import NodeValue, below


@dataclass(frozen=True, slots=True)
class MetadataRules:
    """Conversion and validation of ObjectMeta."""

    conform: Callable[[Obj], Conformed]  #: as the type ObjectMeta; raises Malformed
    validate: Callable[[Obj], list[FieldError]]  #: its errors; fields are `metadata.labels` and so on


class UnreadableMetadata(Malformed):
    """apiVersion, kind or metadata of an embedded object do not fit their types."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


def conform_embedded(embedded: NodeValue, metadata: MetadataRules) -> list[str]:
    """Conform the metadata to ObjectMeta, in place.  Returns its dropped fields.  Raises UnreadableMetadata."""
    value = embedded.value
    if type(value) is not dict:
        return []
    for name in ("apiVersion", "kind"):
        if name in value and type(value[name]) is not str:
            raise UnreadableMetadata(invalid_value(below(embedded.path, name), value[name], "must be a string"))
    if "metadata" not in value:
        return []
    given = value["metadata"]
    try:
        conformed = metadata.conform({} if given is None else given)
    except Malformed as error:
        raise UnreadableMetadata(invalid_value(below(embedded.path, "metadata"), given, error.why)) from None
    value["metadata"] = conformed.obj
    if conformed.obj.get("creationTimestamp", "") is None:
        del conformed.obj["creationTimestamp"]
    return conformed.problems


def located(problem: str, embedded: NodeValue) -> str:
    """`unknown field "x"` → `unknown field "spec.template.metadata.x"`"""
    return problem.replace('"', f"{go_quote(below(embedded.path, 'metadata'))[:-1]}.", 1)


def embedded_errors(embedded: NodeValue, metadata: MetadataRules) -> list[FieldError]:
    value = embedded.value
    if type(value) is not dict:
        return []
    missing = [required(below(embedded.path, name)) for name in ("apiVersion", "kind") if name not in value]
    wrong = [error for name, item in value.items() if name in CHECKS for error in CHECKS[name](item)]
    errors = [*missing, *(replace(error, field=below(embedded.path, error.field)) for error in wrong)]
    return [*errors, *_metadata_errors(embedded, metadata)]


def _version_errors(value: Any) -> list[FieldError]:
    if type(value) is not str:
        return [invalid_value("apiVersion", value, "must be a string")]
    if not value:
        return [required("apiVersion")]
    if value.count("/") > 1:
        return [invalid_value("apiVersion", value, f"unexpected GroupVersion string: {value}")]
    return []


def _kind_errors(value: Any) -> list[FieldError]:
    if type(value) is not str:
        return [invalid_value("kind", value, "must be a string")]
    if not value:
        return [required("kind")]
    wrong = names.dns_1035_label(value.lower())
    if not wrong:
        return []
    return [invalid_value("kind", value, "may have mixed case, but should otherwise match: " + ",".join(wrong))]


CHECKS = {"apiVersion": _version_errors, "kind": _kind_errors}


def _metadata_errors(embedded: NodeValue, metadata: MetadataRules) -> list[FieldError]:
    given = embedded.value.get("metadata")
    if given is None:
        return []
    if type(given) is not dict:
        why = f"json: cannot unmarshal {NAMES[type(given)]} into Go value of type v1.ObjectMeta"
        return [invalid_value(below(embedded.path, "metadata"), given, why)]
    try:
        errors = metadata.validate(metadata.conform(given).obj)
    except Malformed as error:
        return [invalid_value(below(embedded.path, "metadata"), given, error.why)]
    return [replace(error, field=below(embedded.path, error.field)) for error in errors]
