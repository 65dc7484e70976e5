"""When what is seen through a view changed without a write of what is seen: as workspaces accept what an export claims,
as they unbind it, and as the export itself changes.  Whoever watched until then has to list anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from farflung.hub import objects
from farflung.hub.objects import cluster_in, name_in
from farflung.hub.tenancy import claims
from farflung.hub.tenancy.api_exports import EXPORTS, exists, schema_names
from farflung.hub.tenancy.bound_apis import BoundApis, Export, Facts
from farflung.hub.tenancy.claims import Claim
from farflung.store.base import Change, Entry, Revision, Store

Place = tuple[str, str]  #: group and plural
#: told of a view, and of which kinds in it; None for all of them
Listener = Callable[[str, Collection[Place] | None], None]


class Content(NamedTuple):
    """What an export puts into its view."""

    schemas: tuple[str, ...]
    claims: tuple[Claim, ...]
    identity: str


def content_of(entry: Entry | None) -> Content | None:
    if entry is None:
        return None
    export = objects.decode(entry)
    identity = (export.get("status") or {}).get("identityHash", "")
    return Content(tuple(schema_names(export)), tuple(map(claims.claim_of, claims.wishes(export))), identity)


class Sight:
    def __init__(self, store: Store, apis: BoundApis) -> None:
        self._began = store.revision
        self._store = store
        self._changed: dict[Export, Revision] = {}  #: of exports that are there
        self._listeners: list[Listener] = []
        apis.subscribe(self._hear_binding)
        store.subscribe(EXPORTS, self._hear_exports)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def steady_since(self, export: Export) -> Revision:
        """What is seen now was seen since then, too: an older history lacks what came and went otherwise."""
        return self._changed.get(export, self._began)

    def _hear_binding(self, before: Facts | None, after: Facts | None, revision: Revision) -> None:
        for export in {facts.export for facts in (before, after) if facts is not None and facts.export is not None}:
            old, new = _applied(before, export), _applied(after, export)
            if (after is None or old != new) and exists(self._store, *export):
                self._changed[export] = revision
            if old != new:
                self._tell(export, {(claim.group, claim.resource) for claim in old ^ new})

    def _hear_exports(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.previous is not None and content_of(change.previous) == content_of(change.entry):
                continue
            export = Export(cluster_in(change.key), name_in(change.key)[1])
            if change.entry is not None:
                self._changed[export] = change.revision
            else:
                self._changed.pop(export, None)  # nobody sees anything; what comes in its place begins then
            if change.previous is not None:
                self._tell(export, None)

    def _tell(self, export: Export, places: Collection[Place] | None) -> None:
        for listener in self._listeners:
            listener(f"{export.cluster}/{export.name}", places)


def _applied(facts: Facts | None, export: Export) -> frozenset[Claim]:
    return frozenset(facts.applied) if facts is not None and facts.export == export else frozenset()
