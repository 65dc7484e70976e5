"""Keeping the books of who wrote which field (`metadata.managedFields`), as requests come in."""

from __future__ import annotations

from typing import Final

from farflung.hub.options import FIELD_MANAGER_LIMIT, WriteOptions
from farflung.hub.registry.call import Call
from farflung.hub.registry.origin import without_origin
from farflung.lib.memory import remember
from farflung.machinery import managed
from farflung.machinery.errors import Obj
from farflung.machinery.fields.sets import Fields, path, union

STATUS: Final = path("status")
SPEC: Final = path("spec")
#: what a status update cannot change
ALL_BUT_STATUS: Final = union(SPEC, path("metadata", "labels"))


def manager_of(call: Call, options: WriteOptions) -> str:
    """The fieldManager parameter, or else the program's name at the start of its User-Agent."""
    if options.field_manager:
        return options.field_manager
    return program_of(call.request.headers.get("user-agent", ""))


@remember(1024)
def program_of(agent: str) -> str:
    program = agent.partition("/")[0]
    return "".join(char for char in program if char.isprintable())[:FIELD_MANAGER_LIMIT] or "unknown"


def dropped_by_server(call: Call) -> Fields | None:
    """The fields a request may contain but does not write, so nobody comes to own them by it."""
    if call.target.subresource == "status":
        return SPEC if call.resource.custom else ALL_BUT_STATUS
    return STATUS if call.resource.subresource("status") else None


def own(call: Call, obj: Obj, old: Obj | None, manager: str) -> None:
    """After a create, an update or a patch: what changed is the manager's.  Defaults are in, nothing else is yet."""
    entries = managed.after_update(
        without_origin(call, obj),
        None if old is None else without_origin(call, old),
        call.kind.schema,
        manager=manager,
        api_version=call.resource.api_version,
        now=call.now(),
        subresource=call.target.subresource,
        reset=dropped_by_server(call),
    )
    set_owners(obj, entries)


def set_owners(obj: Obj, entries: list[Obj]) -> None:
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)
