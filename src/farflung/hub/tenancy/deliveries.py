"""EdgePlacements by which the global scheduler leads virtual machines to where they are bound: who says where that is.

How a machine is, and that it has ended, is told by the copy to which such an EdgePlacement leads.  So who could lead it
elsewhere could say so, too: only those may who bind machines.  Anybody who may delete EdgePlacements may delete these:
the scheduler makes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from farflung.apis.edge.names import EDGE_GROUP
from farflung.apis.globalscheduler.names import GLOBALSCHEDULER_GROUP
from farflung.apis.resource import Resource
from farflung.hub.request.attributes import Attributes
from farflung.hub.request.user import User
from farflung.hub.tenancy.virtual_machines import BINDING, PODS
from farflung.machinery.errors import Obj, forbidden

PLACEMENTS: Final = (EDGE_GROUP, "edgeplacements")
PREFIX: Final = "global-scheduler-"  #: how their names begin
DELIVERS: Final = f"{GLOBALSCHEDULER_GROUP}/delivers-to"  #: the annotation with the Cluster that one is about


def concerns(resource: Resource) -> bool:
    return (resource.group, resource.plural) == PLACEMENTS


def said_of(placement: Obj) -> dict[str, Any]:
    """What only those say who may bind machines, by its path; nothing of an EdgePlacement that is none of these."""
    metadata = placement["metadata"]
    name, mark = metadata.get("name") or metadata.get("generateName", ""), (metadata.get("annotations") or {})
    if DELIVERS not in mark and not name.startswith(PREFIX):
        return {}
    return {f"metadata.annotations[{DELIVERS}]": mark.get(DELIVERS), "spec": placement.get("spec")}


def differences(new: Obj, old: Obj | None) -> Sequence[str]:
    after, before = said_of(new), {} if old is None else said_of(old)
    return sorted(path for path in after.keys() | before.keys() if after.get(path) != before.get(path))


def check_leading(user: User, new: Obj, old: Obj | None, may: Callable[[Attributes], bool]) -> None:
    """Raises 403.  `may`: whether the user may do something in the workspace, in whatever view the request is."""
    changed = differences(new, old)
    if not changed or may(Attributes("create", *PODS, BINDING)):
        return
    why = (
        f'User "{user.name}" cannot set, change or remove {", ".join(changed)} of an EdgePlacement that leads virtual '
        "machines to where they are bound: that is said by those who may create pods/binding"
    )
    raise forbidden(*PLACEMENTS, new["metadata"].get("name", ""), why)
