"""Schemas of the built-in kinds, from the OpenAPI definitions in the `kubernetes-validate` package."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from farflung.machinery.schema.model import Schema

VERSION = "1.34"  #: which release's definitions we serve


class _File(msgspec.Struct):
    definitions: dict[str, msgspec.Raw] = msgspec.field(name="$defs")


@cache
def _raw() -> dict[str, msgspec.Raw]:
    """Every definition, still encoded: 1.4 MB of bytes instead of 15 MB of dicts."""
    package = importlib.util.find_spec("kubernetes_validate")
    assert package and package.submodule_search_locations, "kubernetes-validate is a dependency of this package"
    folder = Path(package.submodule_search_locations[0], "kubernetes-json-schema", f"v{VERSION}.0-local")
    return msgspec.json.decode((folder / "_definitions.json").read_bytes(), type=_File).definitions


def names() -> list[str]:
    return list(_raw())


def decoded(name: str) -> dict[str, Any]:
    """One definition as JSON, made anew: the caller's own."""
    return msgspec.json.decode(_raw()[name], type=dict[str, Any])


@cache
def definition(name: str) -> dict[str, Any]:
    """One definition as JSON, references in it left as they are.  Not to be changed."""
    return decoded(name)


@cache
def schema(name: str) -> Schema:
    """`io.k8s.api.core.v1.ConfigMap` → its schema."""
    return Schema(definition(name), schema, name)


META = "io.k8s.apimachinery.pkg.apis.meta.v1."
