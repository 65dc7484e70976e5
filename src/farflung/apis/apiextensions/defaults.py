"""What a definition gets without asking, and what of it only the server sets."""

from __future__ import annotations

from typing import Final

from farflung.apis.apiextensions.names import MEMBERS
from farflung.machinery.errors import Obj

WEBHOOK_PORT: Final = 443


def default(definition: Obj) -> None:
    spec = definition.setdefault("spec", {})
    spec["names"] = _names(spec.get("names") or {})
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    client = (spec["conversion"].get("webhook") or {}).get("clientConfig") or {}
    if client.get("service") is not None:
        client["service"].setdefault("port", WEBHOOK_PORT)
    status = definition.get("status")
    if status and not status.get("storedVersions"):
        status["storedVersions"] = _stored(spec, [])


def _names(names: Obj) -> Obj:
    kind = names.get("kind", "")
    found = dict(names)
    if not found.get("singular") and kind:
        found["singular"] = kind.lower()
    if not found.get("listKind") and kind:
        found["listKind"] = f"{kind}List"
    return {member: found[member] for member in MEMBERS if member in found}


def prepare_create(definition: Obj) -> None:
    definition["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _stored(definition["spec"], []),
    }


def prepare_update(new: Obj, old: Obj) -> None:
    """A status is not written with the rest; the version that is stored from now on is noted in it."""
    status = dict(old.get("status") or {})
    status["storedVersions"] = _stored(new["spec"], status.get("storedVersions") or [])
    new["status"] = status


def _stored(spec: Obj, before: list[str]) -> list[str] | None:
    """What there may be objects of: what there was, and the first version that is marked for storage."""
    for version in spec.get("versions") or ():
        if version.get("storage"):
            name: str = version.get("name", "")
            return before if name in before else [*before, name]
    return before or None
