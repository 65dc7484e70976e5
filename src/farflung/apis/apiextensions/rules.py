"""The rules of CustomResourceDefinitions, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from farflung.apis.apiextensions import conditions, defaults, validation
from farflung.apis.apiextensions.schemas import TooDeep, everything_in, schema_of
from farflung.apis.checks import keep_spec
from farflung.apis.rules import Rules
from farflung.machinery import names
from farflung.machinery.errors import Obj, go_quote
from farflung.machinery.schema.structural import formats

GROUP: Final = "apiextensions.k8s.io"
KIND: Final = "CustomResourceDefinition"
#: formats that are notes to the reader, and known as such
NOTES: Final = frozenset({"int32", "int64", "float", "double"})


def warnings(new: Obj, old: Obj | None) -> list[str]:
    """Formats that nobody knows check nothing.  An update is warned of new ones only."""
    before = _unknown_formats(old) if old is not None else {}
    return [f"unrecognized format {go_quote(name)}" for name in _unknown_formats(new) if name not in before]


def _unknown_formats(definition: Obj) -> dict[str, None]:
    found: dict[str, None] = {}
    for version in definition["spec"].get("versions") or ():
        try:
            said = [part.get("format") for part in everything_in(schema_of(version) or {})]
        except TooDeep:
            continue
        found |= {name: None for name in said if name and name not in NOTES and not formats.known(name)}
    return found


RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (GROUP, KIND): Rules(
        name=names.dns_subdomain,
        default=defaults.default,
        prepare_create=defaults.prepare_create,
        prepare_update=defaults.prepare_update,
        prepare_status=keep_spec,
        prepare_delete=conditions.mark_deleted,
        validate_create=validation.validate_create,
        validate_update=validation.validate_update,
        validate_status=validation.validate_status,
        warnings=warnings,
        unconditional_update=False,
        short_finalizers=True,
        generation=True,
    )
}
