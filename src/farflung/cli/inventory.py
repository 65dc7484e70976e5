"""What the scheduler sees, read once: for those who want to ask the engine something, and change nothing.

inventory = await read(root)                the Locations and SyncTargets of all workspaces
engine = inventory.engine()
observed = await slices_of(workspace, name) the slices that one placement has
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from farflung.apis.edge.names import SINGLE_PLACEMENT_SLICES, SOURCE_PLACEMENT
from farflung.apis.kcp.names import API_EXPORTS, LOCATIONS, SYNC_TARGETS
from farflung.apis.names import Collection
from farflung.client.errors import ClientError, Expired, Forbidden, Garbled, NotFound
from farflung.client.rest import Client, Selection
from farflung.machinery.errors import Obj
from farflung.placement.names import ObjectKey
from farflung.placement.resolve import Resolver
from farflung.placement.types import (
    Location,
    Placement,
    ScheduledTarget,
    is_extra,
    parse_location,
    parse_target,
    source_label,
)
from farflung.runtime.exports import url_of

T = TypeVar("T")

ATTEMPTS: Final = 3  #: to read a list that takes longer than the server remembers


class HiddenError(ClientError):
    """A sentence that says what cannot be seen, and what it takes to see it."""

    def __init__(self, sentence: str, said: str = "") -> None:
        """`said`: what the server says of it."""
        super().__init__(f"{sentence}. The server says: {said}" if said else sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Inventory:
    """All Locations and SyncTargets."""

    locations: tuple[Location, ...]
    targets: tuple[ScheduledTarget, ...]

    def engine(self) -> Resolver:
        engine = Resolver()
        for target in self.targets:
            engine.put_target(target)
        for location in self.locations:
            engine.put_location(location)
        return engine

    def targets_of(self, cluster: str) -> list[ScheduledTarget]:
        """Sorted by name."""
        return sorted((one for one in self.targets if one.key.cluster == cluster), key=lambda one: one.key.name)


async def read(root: Client) -> Inventory:
    """`root`: of the workspace that exports both kinds.  Raises HiddenError to those who may not see them."""
    locations = await everywhere(root, LOCATIONS, parse_location)
    return Inventory(locations, await everywhere(root, SYNC_TARGETS, parse_target))


async def everywhere(
    exporting: Client, collection: Collection, parse: Callable[[bytes], T], *, export: str = ""
) -> tuple[T, ...]:
    """The objects of all workspaces, through the view of an export, which is called like their group unless `export`
    says otherwise.  `exporting`: of the workspace that has it.  Raises HiddenError to those who may not see them."""
    name = export or collection.group
    view = exporting.view(await _view_of(exporting, collection, name))
    for attempt in range(ATTEMPTS):
        try:
            return tuple(
                [parse(bytes(raw)) async for page in view.pages(collection) for raw in page.items or ()],
            )
        except Expired:
            if attempt == ATTEMPTS - 1:
                raise
        except Forbidden as error:
            raise _hidden(exporting, collection, name, "list", "apiexports/content", error) from None
        except msgspec.MsgspecError as error:
            raise Garbled(f"a {collection.kind} that is none: {error}") from None
    raise AssertionError("unreachable")


async def _view_of(exporting: Client, collection: Collection, name: str) -> str:
    try:
        url, missing = url_of(await exporting.get(API_EXPORTS, name))
    except NotFound:
        missing = f"there is no APIExport {name} in the workspace {_name(exporting)}"
        raise HiddenError(f"{missing}, which shows {_plural(collection)} of all workspaces") from None
    except Forbidden as error:
        raise _hidden(exporting, collection, name, "get", "apiexports", error) from None
    if not url:
        raise HiddenError(f"the APIExport {name} in the workspace {_name(exporting)} has no view yet: {missing}")
    return url


def _hidden(
    exporting: Client, collection: Collection, name: str, verb: str, resource: str, error: Forbidden
) -> HiddenError:
    right = f'the verb "{verb}" on {resource} of apis.kcp.io, for the name {name}'
    return HiddenError(
        f"you may not see {_plural(collection)} of all workspaces: what is missing is {right}, in the workspace "
        f"{_name(exporting)}",
        str(error),
    )


def _name(exporting: Client) -> str:
    return exporting.prefix.rpartition("/")[2]


def _plural(collection: Collection) -> str:
    kind = collection.kind
    return f"the {kind.removesuffix('y')}ies" if kind.endswith("y") else f"the {kind}s"


async def slices_of(workspace: Client, name: str) -> list[Obj]:
    """The slices of one placement, or of one that would be called so: the one of its name, and those that are labelled
    as further ones."""
    labelled = await workspace.list(
        SINGLE_PLACEMENT_SLICES, Selection(labels=f"{SOURCE_PLACEMENT}={source_label(name)}")
    )
    placement = Placement(ObjectKey("", name))
    found = {obj["metadata"]["name"]: obj for obj in labelled if is_extra(placement, obj)}
    if name not in found:
        with suppress(NotFound):
            found[name] = await workspace.get(SINGLE_PLACEMENT_SLICES, name)
    return [found[one] for one in sorted(found)]
