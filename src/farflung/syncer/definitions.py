"""Copy the definitions of upsynced kinds to the mailbox, so that it serves them.

The mailbox keeps a definition when nothing upsyncs its kind any more, as it keeps namespaces: its deletion would delete
every object of the kind there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from farflung.apis.names import CUSTOM_RESOURCE_DEFINITIONS
from farflung.client.errors import Forbidden, NotFound
from farflung.machinery.errors import Obj
from farflung.placement.names import DEFINITIONS, GroupResource, ObjectRef
from farflung.syncer.context import SyncerContext
from farflung.syncer.conversion import for_mailbox, is_downsynced, is_upsynced, updated_upsync
from farflung.syncer.discovery import DefinitionState

#: a role of the mailbox names them
ADVICE: Final = "run `farflung syncer-gen` again, which allows the definitions of what placements upsync by then"


class UpsyncedDefinitions:
    def __init__(
        self, context: SyncerContext, state_of: Callable[[str], DefinitionState | None], on_write: Callable[[], None]
    ) -> None:
        """`state_of`: of the definition of that name at the edge; None: there is none.
        `on_write`: called when the mailbox has another definition."""
        self._mailbox = context.options.mailbox
        self._edge = context.options.edge
        self._kinds = context.kinds
        self._log = context.log
        self._state_of = state_of
        self._on_write = on_write
        self._copied: dict[str, DefinitionState] = {}  #: name → state of the last copy
        self._wanted: frozenset[str] = frozenset()

    def plan(self, kinds: Collection[GroupResource]) -> Iterator[ObjectRef]:
        """The definitions to copy, of the upsynced kinds."""
        names = {f"{resource.resource}.{resource.group}": resource for resource in kinds if resource.group}
        self._wanted = frozenset(names)
        self._copied = {name: state for name, state in self._copied.items() if name in names}
        for name, resource in sorted(names.items()):
            state = self._state_of(name)
            if state is not None and (self._kinds.in_mailbox(resource, "") is None or self._copied.get(name) != state):
                yield ObjectRef(DEFINITIONS, "", name)

    async def copy(self, name: str) -> None:
        """Nothing if the mailbox has a definition that the syncer did not copy."""
        state = self._state_of(name)
        if name not in self._wanted or state is None:
            return
        try:
            found = await self._edge.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            return
        wanted = definition_for_mailbox(found)
        try:
            if not is_downsynced(found) and await self._lacks(name, wanted):
                await self._mailbox.apply(CUSTOM_RESOURCE_DEFINITIONS, wanted, force=True)
                self._log.info("upsynced", v=2, object=str(ObjectRef(DEFINITIONS, "", name)))
                self._on_write()
        except Forbidden as error:
            raise Forbidden(error.status, error.reason, f"{error}; {ADVICE}") from None
        self._copied[name] = state

    async def _lacks(self, name: str, wanted: Obj) -> bool:
        """Whether the mailbox has no definition of that name, or an earlier copy."""
        try:
            there = await self._mailbox.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFound:
            return True
        return is_upsynced(there) and updated_upsync(there, wanted) is not None


def definition_for_mailbox(definition: Obj) -> Obj:
    """Without the webhook that converts versions at the edge, which the hub cannot reach."""
    copy = for_mailbox(definition)
    copy.pop("status", None)
    copy["spec"] = {**copy["spec"], "conversion": {"strategy": "None"}}
    return copy
