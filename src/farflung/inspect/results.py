"""Results of the engines: frozen values with their names in JSON and YAML, and the error if there is none."""

from __future__ import annotations

from typing import Any

import msgspec

from farflung.lib.errors import UserError


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that are UNSET are omitted."""


def as_document(result: Any) -> Any:
    """For JSON and YAML."""
    return msgspec.to_builtins(result)


class InspectError(UserError):
    """Why there is no result."""
