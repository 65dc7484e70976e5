"""Schemas of the built-in kinds, from the OpenAPI definitions in the `kubernetes-validate` package."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from farflung.lib.packages import file_of
from farflung.machinery.schema.model import Schema

VERSION = "1.34"  #: which release's definitions we serve
PACKAGE = ("kubernetes-validate", ">=1.34.1,<1.35")  #: its name, and the versions whose files are where we read them
FILE = f"kubernetes-json-schema/v{VERSION}.0-local/_definitions.json"


class _File(msgspec.Struct):
    definitions: dict[str, msgspec.Raw] = msgspec.field(name="$defs")


@cache
def _raw() -> dict[str, msgspec.Raw]:
    """Every definition, still encoded: 1.4 MB of bytes instead of 15 MB of dicts.  Raises WrongPackage."""
    file = file_of(*PACKAGE, "kubernetes_validate", FILE)
    return msgspec.json.decode(file.read_bytes(), type=_File).definitions


def names() -> list[str]:
    return list(_raw())


def decoded(name: str) -> dict[str, Any]:
    """A new copy of one definition, as JSON."""
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
