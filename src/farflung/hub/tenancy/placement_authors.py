"""Records the authors of EdgePlacements and virtual machines, and protects the slices that follow from them.

Schedulers place on a Location only if the author has the verb `place` on it.  So the hub alone writes the author: the
user of the request that creates the object or changes its spec.  A SinglePlacementSlice has the destinations that a
scheduler chose.  Other users may add destinations if they may place on every Location of that workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from farflung.apis.edge.authors import Author
from farflung.apis.edge.names import AUTHOR, EDGE_GROUP, PLACE, PROJECTED
from farflung.apis.globalscheduler.machines import BINDING_FIELDS
from farflung.apis.kcp.names import SCHEDULING_GROUP
from farflung.apis.resource import Resource
from farflung.hub.auth.virtual_machines import has_priority, is_machine, is_placement
from farflung.hub.registry.call import Call
from farflung.hub.registry.pipeline import Write
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.machinery.errors import Obj, forbidden

SLICES: Final = (EDGE_GROUP, "singleplacementslices")
PLACING: Final = Attributes(PLACE, SCHEDULING_GROUP, "locations")


# --- authors --------------------------------------------------------------------------------------


def has_author(resource: Resource) -> bool:
    return is_placement(resource) or has_priority(resource)


def restore_author(write: Write) -> None:
    """Replace the author that a client sent by the recorded one.  If none is recorded, because an earlier version wrote
    the object, a client that sends one becomes the author."""
    new, call = write.new["metadata"], write.call
    recorded = None if write.old is None else (write.old["metadata"].get("annotations") or {}).get(AUTHOR)
    if recorded is None and write.old is not None and not call.target.subresource and _is_sent(new):
        recorded = _author(call)
    _set_author(new, recorded)


def _is_sent(metadata: Obj) -> bool:
    annotations = metadata.get("annotations")
    return isinstance(annotations, dict) and AUTHOR in annotations


def _author(call: Call) -> str:
    user = responsible_user(call)
    return Author(user.name, user.groups, user.cluster).annotation


def responsible_user(call: Call) -> User:
    """The user of a request.  An initializer writes with the permissions of the workspace's owner, who is not
    responsible for it in other workspaces."""
    user = call.user
    return replace(user, cluster=call.target.cluster) if user.borrowed and not user.cluster else user


def record_author(write: Write) -> None:
    new, old = write.new, write.old
    if not is_machine(write.call.resource):
        changed = old is None or new.get("spec") != old.get("spec")
    else:
        changed = _machine_spec(new) is not None and _machine_spec(new) != _machine_spec(old or {})
    if changed:
        _set_author(new["metadata"], _author(write.call))


def _set_author(metadata: Obj, author: str | None) -> None:
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict) or annotations.get(AUTHOR) == author:  # validation refuses other types
        return
    kept = {name: value for name, value in annotations.items() if name != AUTHOR}
    if author is not None:
        kept[AUTHOR] = author
    if kept:
        metadata["annotations"] = kept
    else:
        metadata.pop("annotations", None)


def _machine_spec(pod: Obj) -> Obj | None:
    """Without the binding, which the global scheduler writes; None for Pods that are no machines, and for copies."""
    spec = pod.get("spec") or {}
    if spec.get("virtualMachine") is None or PROJECTED in (pod["metadata"].get("labels") or ()):
        return None
    return {name: value for name, value in spec.items() if name not in BINDING_FIELDS}


# --- slices ---------------------------------------------------------------------------------------


def is_slice(resource: Resource) -> bool:
    return (resource.group, resource.plural) == SLICES


def check_destinations(user: User, new: Obj, old: Obj | None, may_place: Callable[[str], bool]) -> None:
    """Raises 403.  `may_place`: whether the user may place on every Location of a logical cluster."""
    added = set(_destinations(new)) - set(() if old is None else _destinations(old))
    for cluster in sorted({cluster for cluster, _ in added}):
        if not may_place(cluster):
            why = (
                f'User "{user.name}" cannot add destinations in {cluster} to a SinglePlacementSlice: this requires '
                f"permission to {PLACE} every Location there; the edge scheduler writes the slices of EdgePlacements"
            )
            raise forbidden(*SLICES, new["metadata"].get("name", ""), why)


def _destinations(obj: Obj) -> Iterator[tuple[str, str]]:
    """The cluster of each destination, and the destination for its owners: other owners use it for other objects."""
    owners = sorted(_text(one) for one in obj["metadata"].get("ownerReferences") or ())
    name = obj["metadata"].get("name", "")
    for entry in obj.get("destinations") or ():
        yield str(entry.get("cluster", "")), _text((name, owners, sorted(entry.items())))


def _text(value: Any) -> str:
    return repr(sorted(value.items()) if isinstance(value, dict) else value)
