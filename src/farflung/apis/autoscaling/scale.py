"""The `scale` subresource: conversion between a workload and its Scale object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from farflung.apis.validation import NOT_NEGATIVE, Errors
from farflung.machinery.errors import Obj, invalid, invalid_value
from farflung.machinery.fields.sets import Fields, path

API_VERSION: Final = "autoscaling/v1"
KIND: Final = "Scale"
SHARED_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class Scaling(Protocol):
    """Reads and writes the Scale of objects of a kind."""

    replicas: Fields  #: where the wanted number is

    def scale(self, obj: Obj) -> Obj:
        """An object's Scale."""

    def apply(self, obj: Obj, scale: Obj) -> None:
        """Give an object the replicas of a Scale; its resourceVersion is for the caller to compare.
        Raises a 422 for a number of replicas that cannot be."""


class BuiltinScaling:
    replicas = path("spec", "replicas")

    def __init__(self, group: str, kind: str) -> None:
        self._group = group
        self._kind = kind

    def scale(self, obj: Obj) -> Obj:
        return scale_of(obj, self._group, self._kind)

    def apply(self, obj: Obj, scale: Obj) -> None:
        apply_scale(obj, scale)


def scale_of(obj: Obj, group: str, kind: str) -> Obj:
    """The Scale of a built-in object."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    replicas = spec.get("replicas", 1)
    selector = spec.get("selector")
    shown: Obj = {"replicas": status.get("replicas", 0)}
    text = _labels(selector or {}) if (group, kind) == ("", "ReplicationController") else selector_text(selector)
    if text:
        shown["selector"] = text
    return a_scale(obj, replicas, shown)


def a_scale(obj: Obj, replicas: int, status: Obj) -> Obj:
    metadata = obj.get("metadata") or {}
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {member: metadata[member] for member in SHARED_METADATA if member in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def check_scale(scale: Obj) -> Errors:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    return [invalid_value("spec.replicas", replicas, NOT_NEGATIVE)] if replicas < 0 else []


def apply_scale(obj: Obj, scale: Obj) -> None:
    """Give an object the replicas of a Scale; its resourceVersion is for the caller to compare.

    Raises a 422 for a number of replicas that cannot be.
    """
    if errors := check_scale(scale):
        raise invalid("autoscaling", KIND, (obj.get("metadata") or {}).get("name", ""), errors)
    obj["spec"] = {**(obj.get("spec") or {}), "replicas": (scale.get("spec") or {}).get("replicas", 0)}


def selector_text(selector: Obj | None) -> str:
    """A label selector in the form of a query: `a=b,c in (d,e),!f`."""
    if selector is None:
        return "<none>"
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    parts += [
        (expression.get("key", ""), _expression(expression)) for expression in selector.get("matchExpressions") or ()
    ]
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _expression(expression: Obj) -> str:
    key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
    match expression.get("operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
    return f"!{key}"
