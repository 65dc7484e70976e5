"""Create, update and delete one object of one mailbox."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import orjson

from farflung.apis.edge.names import DOWNSYNC_OVERWRITE
from farflung.apis.names import Collection
from farflung.client.errors import AlreadyExists, Invalid, NotFound, Refused
from farflung.client.rest import Client
from farflung.controllers.placement_translator.decide import SHOWN, PlacementProblem
from farflung.controllers.placement_translator.status_writer import TranslatorContext
from farflung.machinery.errors import Obj
from farflung.placement import names, project
from farflung.placement.customize import Customizer
from farflung.placement.feeds import DiscoveryCache, ObjectFeeds
from farflung.placement.index import Copy, CopyReason
from farflung.placement.names import NAMESPACES, GroupResource, Part, PlacementKey, Source
from farflung.placement.project import Desired, ServedVersions, SourceObject, agreed, contributing_clusters, desired
from farflung.placement.state import CONTAINER_KINDS
from farflung.placement.types import Location, ObservedObject, Route
from farflung.runtime.cache import Key

MOST_STRIPPED: Final = 20_000  #: cached stripped objects


class SourceObjects(NamedTuple):
    sources: list[SourceObject]
    conflict: str = ""  #: why sources are left out


class SourceReader:
    def __init__(self, serving: DiscoveryCache, everywhere: Client) -> None:
        self._serving = serving
        self._everywhere = everywhere
        self._agreed: dict[tuple[str, GroupResource], str] = {}  #: versions, by mailbox
        self._stripped: dict[tuple[str, Part], tuple[int, str, Obj]] = {}

    async def gather(self, copy: Copy, alive: list[tuple[str, ObservedObject]]) -> SourceObjects:
        """`alive`: by cluster.  Raises ClientError."""
        if len(alive) > 1 and len({seen.api_version for _, seen in alive}) > 1:
            return await self._in_one_version(copy, alive)
        return SourceObjects(
            [SourceObject(cluster, seen.version, self._bare(cluster, copy.part, seen)) for cluster, seen in alive]
        )

    async def _in_one_version(self, copy: Copy, alive: list[tuple[str, ObservedObject]]) -> SourceObjects:
        kind = copy.part.kind
        offers: list[ServedVersions] = []
        for cluster, seen in alive:
            versions = await self._serving.versions(cluster, kind) or (seen.api_version,)
            offers.append(ServedVersions(cluster, versions, versions[0]))
        agreement = agreed(offers, self._agreed.get((copy.mailbox, kind)))
        self._agreed[copy.mailbox, kind] = agreement.version
        sources: list[SourceObject] = []
        for cluster, seen in alive:
            if cluster not in agreement.dropped:
                bare = await self._bare_in(agreement.version, cluster, copy.part, seen)
                sources += [] if bare is None else [SourceObject(cluster, seen.version, bare)]
        return SourceObjects(sources, agreement.conflict)

    def _bare(self, cluster: str, part: Part, seen: ObservedObject) -> Obj:
        """The object without server-set fields, computed once for all mailboxes."""
        remembered = self._stripped.get((cluster, part))
        if remembered is not None and remembered[:2] == (seen.version, seen.api_version):
            return remembered[2]
        return self._remember(cluster, part, seen.version, seen.api_version, orjson.loads(seen.document))

    async def _bare_in(self, version: str, cluster: str, part: Part, seen: ObservedObject) -> Obj | None:
        """The same in another API version; None if the object was deleted."""
        remembered = self._stripped.get((cluster, part))
        if remembered is not None and remembered[:2] == (seen.version, version):
            return remembered[2]
        if version == seen.api_version:
            return self._bare(cluster, part, seen)
        collection = Collection(part.kind.group, version, part.kind.resource, "")
        try:
            obj = await self._everywhere.workspace(cluster).get(collection, part.name, part.namespace)
        except NotFound:
            return None
        return self._remember(cluster, part, seen.version, version, obj)

    def _remember(self, cluster: str, part: Part, version: int, api_version: str, obj: Obj) -> Obj:
        if len(self._stripped) >= MOST_STRIPPED:
            self._stripped.clear()
        bare = project.stripped(obj)
        self._stripped[cluster, part] = version, api_version, bare
        return bare


Report = Callable[[Copy, AbstractSet[PlacementKey], list[PlacementProblem]], None]
REMEMBERED: Final = 20_000  #: cached copies that are equal in all mailboxes
NOT_FOUND: Final = 404
TRANSIENT: Final = (401, 409, 410, 429)  #: statuses that do not depend on the object
SECRETS: Final = GroupResource("", "secrets")


class Copier:
    def __init__(
        self,
        context: TranslatorContext,
        feeds: ObjectFeeds,
        gathering: SourceReader,
        report: Report,
    ) -> None:
        """`report` is called with all problems of a copy and their placements whenever it is reconciled."""
        self._known = context.known
        self._feeds = feeds
        self._gathering = gathering
        self._everywhere = context.views.everywhere
        self._report = report
        self._failing_objects = context.failing_objects
        self._now = context.now
        self._log = context.log
        self._ending: dict[Copy, asyncio.Event] = {}  #: namespaces with a deletion in flight
        self._common: dict[Part, tuple[object, Desired]] = {}  #: copies that are equal in all mailboxes

    async def copy(self, copy: Copy) -> float | None:
        """Seconds after which to reconcile again, or None.  Raises ClientError, without values of Secrets."""
        if copy.part.namespace:
            await self._ended(copy.mailbox, copy.part.namespace)
        cluster = self._known.mailboxes.get(copy.mailbox)
        if cluster is None:
            return None
        try:
            return await self._copy(copy, cluster)
        except Refused as error:
            raise type(error)(error.status, error.reason, _said(copy, error), None, error.retry_after) from None

    async def _ended(self, mailbox: str, namespace: str) -> None:
        """Wait for the deletion of a namespace: it would delete a new copy too."""
        while ending := self._ending.get(Copy(mailbox, Part(NAMESPACES, "", namespace))):
            await ending.wait()

    async def _copy(self, copy: Copy, cluster: str) -> float | None:
        wanted = self._known.engine.reasons(*copy)
        observed = self._known.world.get(cluster, copy.part)
        kept = self._kept(observed, wanted)
        read = await self._gathering.gather(
            copy, self._alive(copy.part, contributing_clusters(copy.part, wanted, kept))
        )
        want = self._desired(copy.part, wanted, read, kept)
        placements = {one.placement for one in wanted}
        if want.problem:
            failed = PlacementProblem(names.CUSTOMIZATION_FAILED, f"{_at(copy)}: {want.problem}")
            self._report(copy, placements, [failed, *_ambiguities(copy, want)])
        elif want.obj is None:
            if observed is not None and (held := self._failures(copy, observed)):
                self._report(copy, observed.placements, held)  # the next rebuild reconciles it again
                return None
            self._report(copy, placements, [])
            await self._withdraw(copy, cluster, observed)
        elif observed is not None and not observed.ours:
            self._report(copy, placements, _of_others(copy, wanted))
        elif self._known.offers.source(cluster, copy.part.kind) is None:
            return self._report_unserved(copy, cluster, wanted)
        else:
            found = _remarks(copy, want, read.conflict)
            try:
                await self._put(copy, cluster, want.obj, observed)
            except Refused as error:
                if error.status < 500 and error.status not in TRANSIENT and not _is_about_namespace(error):
                    found.append(PlacementProblem(names.REFUSED, f"{_at(copy)}: {_said(copy, error)}"))
                raise
            finally:
                self._report(copy, placements, found)
        return None

    def _report_unserved(self, copy: Copy, cluster: str, wanted: list[CopyReason]) -> float | None:
        """Report the kind, unless a binding or definition may still serve it."""
        kind, sources = copy.part.kind, sorted({one.placement.cluster for one in wanted})
        left = self._known.neighbors.serving_delay(copy.mailbox, cluster, kind, sources, self._now())
        unknown = PlacementProblem(names.NOT_SERVED, f"{_at(copy)}: the mailbox does not serve {kind}")
        self._report(copy, {one.placement for one in wanted}, [] if left else [unknown])
        return left if 0 < left < math.inf else None

    # --- desired copy -----------------------------------------------------------------------------

    def _kept(self, observed: ObservedObject | None, wanted: list[CopyReason]) -> list[PlacementKey]:
        """Undecided placements of the copy."""
        if observed is None or observed.placements == {one.placement for one in wanted}:
            return []
        others = observed.placements - {one.placement for one in wanted}
        return sorted(key for key in others if self._known.is_undecided(key))

    def _desired(self, part: Part, wanted: list[CopyReason], read: SourceObjects, kept: list[PlacementKey]) -> Desired:
        """Computed once for all mailboxes, unless it is customized."""
        if any(self._is_special(one.cluster, part) for one in read.sources):
            return self._compute(part, wanted, read, kept)
        why = (
            [(one.placement, one.selected) for one in wanted],
            [(one.cluster, one.version, one.obj["apiVersion"]) for one in read.sources],
            kept,
        )
        remembered = self._common.get(part)
        if remembered is not None and remembered[0] == why:
            return remembered[1]
        want = self._compute(part, wanted, read, kept)
        if len(self._common) >= REMEMBERED:
            self._common.clear()
        self._common[part] = why, want
        return want

    def _is_special(self, cluster: str, part: Part) -> bool:
        seen = self._known.world.get(cluster, part)
        return seen is None or bool(seen.customizer) or seen.expands

    def _compute(self, part: Part, wanted: list[CopyReason], read: SourceObjects, kept: list[PlacementKey]) -> Desired:
        known = self._known

        def customizer_of(cluster: str) -> Callable[[str], Customizer | None]:
            return lambda name: known.customizers.get((cluster, name))

        def location(place: Route) -> Location | None:
            return known.locations.get((place.cluster, place.location))

        return desired(part, wanted, read.sources, customizer_of, location, kept)

    def _alive(self, part: Part, clusters: Sequence[str]) -> list[tuple[str, ObservedObject]]:
        found = [(cluster, seen) for cluster in clusters if (seen := self._known.world.get(cluster, part)) is not None]
        return [(cluster, seen) for cluster, seen in found if seen.alive and not seen.ours and not seen.system]

    # --- create and update ------------------------------------------------------------------------

    def _at(self, cluster: str, kind: GroupResource, api_version: str) -> tuple[Client, Source, Collection]:
        """`api_version`: with the group."""
        source = self._known.offers.source(cluster, kind)
        assert source is not None
        version = api_version.rpartition("/")[2]
        return self._everywhere.workspace(cluster), source, Collection(kind.group, version, kind.resource, "")

    async def _put(self, copy: Copy, cluster: str, wanted: Obj, observed: ObservedObject | None) -> None:
        if observed is None:
            if not self._known.neighbors.is_closing(cluster, copy.part):  # otherwise an event follows
                await self._create(copy, cluster, wanted)
        elif observed.alive:  # otherwise an event follows
            changed = project.updated(orjson.loads(observed.document), wanted)
            if changed is not None:
                await self._update(copy, cluster, wanted, changed, observed)

    async def _create(self, copy: Copy, cluster: str, wanted: Obj) -> None:
        client, source, collection = self._at(cluster, copy.part.kind, wanted["apiVersion"])
        namespace = Part(NAMESPACES, "", copy.part.namespace)
        if copy.part.namespace and self._known.world.get(cluster, namespace) is None:
            await self.copy(Copy(copy.mailbox, namespace))
        try:
            answer = await client.create(collection, wanted, copy.part.namespace)
        except AlreadyExists:
            return  # an event follows
        self._log_write("Created", copy)
        self._feeds.assume(source, answer)

    async def _update(self, copy: Copy, cluster: str, wanted: Obj, changed: Obj, observed: ObservedObject) -> None:
        client, source, collection = self._at(cluster, copy.part.kind, wanted["apiVersion"])
        try:
            answer = await client.update(collection, changed)
        except Invalid:
            if not await self._can_be_replaced(copy, client, collection, wanted):
                raise
            await self._delete(copy, cluster, observed)  # the event of the deletion creates it again
            return
        self._log_write("Updated", copy)
        self._feeds.assume(source, answer)

    async def _can_be_replaced(self, copy: Copy, client: Client, collection: Collection, wanted: Obj) -> bool:
        """Whether a copy with immutable fields can be deleted and created again.  A dry run of the creation
        validates the object before it answers AlreadyExists."""
        left_alone = wanted["metadata"]["annotations"].get(DOWNSYNC_OVERWRITE) == project.NEVER
        if copy.part.kind in CONTAINER_KINDS or left_alone:
            return False
        try:
            await client.with_dry_run().create(collection, wanted, copy.part.namespace)
        except AlreadyExists:
            return True
        return False

    # --- withdraw ---------------------------------------------------------------------------------

    async def _withdraw(self, copy: Copy, cluster: str, observed: ObservedObject | None) -> None:
        if observed is None or not observed.ours or not observed.alive:
            return
        if any(self._known.withdrawals.stays(*copy, key) for key in observed.placements):
            return
        if copy.part.kind not in CONTAINER_KINDS or not self._is_occupied(copy, cluster):
            await self._delete(copy, cluster, observed)
        elif observed.placements and not self._is_being_emptied(copy, cluster):
            await self._release(copy, cluster, observed)

    def _failures(self, copy: Copy, observed: ObservedObject) -> list[PlacementProblem]:
        """Why a copy stays that may seem to be unwanted only because the engine fails with an object."""
        failing = [one for key in sorted(observed.placements) for one in self._failing_objects(key.cluster)]
        if not failing or not observed.ours or not observed.alive:
            return []
        shown = ", ".join(failing[:SHOWN]) + (f" and {len(failing) - SHOWN} more" if len(failing) > SHOWN else "")
        message = (
            f"{_at(copy)}: the copy stays, because the placement translator fails to process {shown} of the workspace; "
            'change or delete that object, and report the translator\'s log line "engine failed and will be rebuilt"'
        )
        return [PlacementProblem(names.TRANSLATOR_FAILED, message)]

    async def _release(self, copy: Copy, cluster: str, observed: ObservedObject) -> None:
        """Remove the placements from the copy.  It is deleted later, when the objects in it are deleted by others."""
        client, source, collection = self._at(cluster, copy.part.kind, observed.api_version)
        answer = await client.update(collection, project.released(orjson.loads(observed.document)))
        self._log_write("Released", copy)
        self._feeds.assume(source, answer)

    async def _delete(self, copy: Copy, cluster: str, observed: ObservedObject) -> None:
        source = self._known.offers.source(cluster, copy.part.kind)
        if source is None:
            return  # deleted with its kind
        client, _, collection = self._at(cluster, copy.part.kind, source.version)
        uid, version = observed.uid, str(observed.version)
        ending = self._ending[copy] = asyncio.Event()
        try:
            answer = await client.delete(collection, copy.part.name, copy.part.namespace, uid=uid, version=version)
        except NotFound:
            return  # an event follows
        finally:
            self._ending.pop(copy, None)
            ending.set()
        self._log_write("Deleted", copy)
        if (answer.get("metadata") or {}).get("deletionTimestamp"):
            self._feeds.assume(source, answer)  # it has finalizers; an event follows
        else:
            self._feeds.forget(source, Key(cluster, copy.part.namespace, copy.part.name), observed.version)

    def _is_occupied(self, copy: Copy, cluster: str) -> bool:
        """Whether its deletion would delete other objects."""
        if not all(self._feeds.is_known(source) for source in self._known.offers.of(cluster)):
            return True
        return any(True for _ in self._within(copy, cluster))

    def _is_being_emptied(self, copy: Copy, cluster: str) -> bool:
        """Whether the translator still has to delete objects in it."""
        return any(seen.ours and seen.alive for seen in self._within(copy, cluster))

    def _within(self, copy: Copy, cluster: str) -> Iterator[ObservedObject]:
        """Objects in a namespace, or of the kinds of a definition or binding; except wanted objects of
        these kinds, which cannot exist without it."""
        world, part = self._known.world, copy.part
        if part.kind == NAMESPACES:
            inside = ((one, world.get(cluster, one)) for one in world.inside(cluster, part.name))
            yield from (seen for _, seen in inside if seen is not None and not seen.system)
            return
        brought = {source.kind for source in self._known.offers.served_by(cluster, part)}
        for one, seen in world.parts(cluster).items():
            if one.kind in brought and not (seen.ours and self._known.engine.is_desired(copy.mailbox, one)):
                yield seen

    def _log_write(self, what: str, copy: Copy) -> None:
        self._log.info(f"{what} object in mailbox workspace", v=3, mbwsName=copy.mailbox, object=str(copy.part))


# --- problems -------------------------------------------------------------------------------------


def _at(copy: Copy) -> str:
    return f"{copy.part} in {copy.mailbox}"


def _said(copy: Copy, error: Refused) -> str:
    """The message of the server may quote values, so that of Secrets is left out."""
    return error.reason or str(error.status) if copy.part.kind == SECRETS else str(error)


def _of_others(copy: Copy, wanted: list[CopyReason]) -> list[PlacementProblem]:
    """No problem if the object is needed only as a dependency, like a namespace."""
    if all(one.selected is None for one in wanted):
        return []
    theirs = "there is one already that no placement brought, and it is left alone"
    return [PlacementProblem(names.CONFLICT, f"{_at(copy)}: {theirs}")]


def _is_about_namespace(error: Refused) -> bool:
    """Whether the namespace is missing or terminating; its event follows."""
    causes = error.details.get("causes")
    going = isinstance(causes, list) and any(
        isinstance(one, dict) and one.get("reason") == "NamespaceTerminating" for one in causes
    )
    return going or (error.status == NOT_FOUND and error.details.get("kind") == "namespaces")


def _remarks(copy: Copy, want: Desired, conflict: str) -> list[PlacementProblem]:
    found = [PlacementProblem(names.CONFLICT, f"{_at(copy)}: {one}") for one in want.conflicts]
    if conflict:
        found.append(PlacementProblem(names.CONFLICT, f"{_at(copy)}: {conflict}"))
    found += _ambiguities(copy, want)
    return found + [PlacementProblem(names.CUSTOMIZATION_INCOMPLETE, f"{_at(copy)}: {one}") for one in want.remarks]


def _ambiguities(copy: Copy, want: Desired) -> list[PlacementProblem]:
    return [PlacementProblem(names.AMBIGUOUS, f"{_at(copy)}: {want.ambiguity}")] if want.ambiguity else []
