"""Whether a CustomResourceDefinition may have the names it wants, decided as it is written.

Who writes a definition hears at once whether it is served.  A definition that waits for names to become free is
looked at again by housekeeping.
"""

from __future__ import annotations

from farflung.hub import objects
from farflung.hub.admission.definitions.conditions import with_status
from farflung.hub.catalog.served import Kinds
from farflung.hub.registry.call import Call
from farflung.machinery.errors import Obj


def establish(call: Call, definition: Obj) -> None:
    """Give a valid definition the status that its names, and those of the others in its group, deserve."""
    definition["status"] = with_status(definition, others_of(call, definition), call.now())


def others_of(call: Call, definition: Obj) -> list[Obj]:
    """The other definitions of its group in its cluster: a definition is named after its group."""
    end = f".{definition['spec']['group']}"
    own = call.key_of(definition["metadata"]["name"])
    entries = call.store.list(objects.prefix(call.resource, call.target.cluster)).entries
    defined = [objects.decode(entry) for entry in entries if entry.key.endswith(end) and entry.key != own]
    return defined + bound_in(call.tools.kinds, call.target.cluster, definition["spec"]["group"])


def bound_in(kinds: Kinds, cluster: str, group: str) -> list[Obj]:
    """What a cluster serves of a group that it has not defined itself."""
    return [one.named for one in kinds.of(cluster).definitions if one.group == group and one.is_bound]
